//! A search, and those who wait for it.

use lsl_platform::clock::local_clock;
use lsl_proto::discovery::search::{Received, Search};

use crate::net::monitor::Monitor;

/// A search, and whether it is over.
#[derive(Debug)]
pub(crate) struct SearchState {
    pub search: Search,
    pub done: bool,
}

/// Hands a reply to the search, and wakes those who wait if it is news to them.
pub(crate) fn take_in(
    monitor: &Monitor<SearchState>,
    reply: impl FnOnce(&mut Search, f64) -> Received,
) -> Received {
    let now = local_clock();
    let mut state = monitor.lock();
    let received = reply(&mut state.search, now);
    state.done |= state.search.is_done(now);
    let news = state.done || matches!(received, Received::New | Received::Changed);
    drop(state);
    if news {
        monitor.wake();
    }
    received
}
