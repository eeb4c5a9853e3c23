//! Signal that stops a recording, and futures that it interrupts.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

use tokio::sync::watch;

/// Signal that tells streams when and how to stop.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Halt {
    /// Go on; no end is set.
    Go,
    /// Stop with all samples up to this time of our clock, and no later than the second time.
    Drain(f64, f64),
    /// Stop at once with the samples already here.
    Now,
}

/// Awaits a future; returns `None` if the signal to stop comes first.
pub(crate) async fn unless_halted<T>(
    halt: &mut watch::Receiver<Halt>,
    future: impl Future<Output = T>,
) -> Option<T> {
    let halted = async {
        // Fails only if the sender is gone.
        let _ = halt.wait_for(|halt| *halt != Halt::Go).await;
    };
    first(future, halted).await
}

/// Awaits a future, unless the signal changes: to stop, or to stop at once.
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

/// Awaits `wanted`; returns `None` if `other` is ready before it.
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
