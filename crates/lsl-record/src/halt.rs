//! How and when to stop, and waiting unless it is time to.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

use tokio::sync::watch;

/// How and when to stop.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Halt {
    /// Not yet.
    Go,
    /// With everything up to this time of our clock, and no later than the second one.
    Drain(f64, f64),
    /// With what is here.
    Now,
}

/// What a future yields, unless it is time to stop first.
pub(crate) async fn unless_halted<T>(
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
pub(crate) async fn unless_changed<T>(
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
pub(crate) async fn first<T>(
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
