//! Replies on their way into a search, and who is told of them.

use lsl_platform::clock::local_clock;
use lsl_proto::discovery::search::{Received, Search};

use crate::net::monitor::Monitor;

/// Hands a reply to the search, and wakes those who wait if it is news to them.
pub(crate) fn take_in(
    search: &Monitor<Search>,
    reply: impl FnOnce(&mut Search, f64) -> Received,
) -> Received {
    let now = local_clock();
    let mut locked = search.lock();
    let received = reply(&mut locked, now);
    let is_news = locked.is_done(now) || matches!(received, Received::New | Received::Changed);
    drop(locked);
    if is_news {
        search.wake();
    }
    received
}
