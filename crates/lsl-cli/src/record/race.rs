//! Waiting for one of two things.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

use tokio::sync::watch;

use super::stream::Halt;

/// What a future yields, unless it is time to stop first.
pub(super) async fn unless_halted<T>(
    halt: &mut watch::Receiver<Halt>,
    future: impl Future<Output = T>,
) -> Option<T> {
    let halted = async {
        // Fails only if nobody can say so any more.
        let _ = halt.wait_for(|halt| *halt != Halt::Go).await;
    };
    first(future, halted).await
}

/// The same, unless another wish is uttered, to stop or to stop at once.
pub(super) async fn unless_changed<T>(
    halt: &mut watch::Receiver<Halt>,
    future: impl Future<Output = T>,
) -> Option<T> {
    let changed = async {
        if halt.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    };
    first(future, changed).await
}

/// What the first of two yields, unless the other one is there before.
pub(super) async fn first<T>(
    wanted: impl Future<Output = T>,
    other: impl Future<Output = ()>,
) -> Option<T> {
    let (mut wanted, mut other) = (pin!(wanted), pin!(other));
    poll_fn(|context| {
        if let Poll::Ready(value) = wanted.as_mut().poll(context) {
            return Poll::Ready(Some(value));
        }
        other.as_mut().poll(context).map(|()| None)
    })
    .await
}
