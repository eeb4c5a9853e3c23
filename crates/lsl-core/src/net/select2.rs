//! The two-future `select` this crate needs, without the macro.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

/// Output of the future that ended first.
#[derive(Debug)]
pub enum Either<A, B> {
    /// Of the first future.
    First(A),
    /// Of the second one.
    Second(B),
}

/// Runs both futures until one ends; the other is dropped. The first is polled first.
pub async fn select2<A: Future, B: Future>(first: A, second: B) -> Either<A::Output, B::Output> {
    let mut first = pin!(first);
    let mut second = pin!(second);
    poll_fn(|cx| {
        if let Poll::Ready(output) = first.as_mut().poll(cx) {
            return Poll::Ready(Either::First(output));
        }
        second.as_mut().poll(cx).map(Either::Second)
    })
    .await
}
