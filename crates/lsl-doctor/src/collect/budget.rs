//! What a run sends in all, without the pair, whatever it finds: nobody's network is asked more. Spec: doctor Part B

use std::sync::atomic::{AtomicUsize, Ordering};

/// What may still be sent. Its own search and its inlets, which are those of programs, are left room for.
#[derive(Debug)]
pub(super) struct Budget {
    datagrams: AtomicUsize,
    connections: AtomicUsize,
}

impl Budget {
    pub(super) fn new() -> Self {
        Self {
            datagrams: AtomicUsize::new(MOST_DATAGRAMS - OF_PROGRAMS),
            connections: AtomicUsize::new(MOST_CONNECTIONS - OF_PROGRAMS / 4),
        }
    }

    /// Takes so many datagrams, or what is left. Returns how many may be sent.
    pub(super) fn datagrams(&self, wanted: usize) -> usize {
        take(&self.datagrams, wanted)
    }

    /// Takes so many connections, or what is left. Returns how many may be made.
    pub(super) fn connections(&self, wanted: usize) -> usize {
        take(&self.connections, wanted)
    }

    /// Puts so many connections by, or what is left, for what comes later.
    pub(super) fn set_aside(&self, connections: usize) -> Self {
        Self {
            datagrams: AtomicUsize::default(),
            connections: self.connections(connections).into(),
        }
    }

    /// Returns how many datagrams are left.
    pub(super) fn left(&self) -> usize {
        self.datagrams.load(Ordering::Relaxed)
    }
}

fn take(left: &AtomicUsize, wanted: usize) -> usize {
    let less = |left: usize| Some(left.saturating_sub(wanted));
    let before = left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    before.unwrap_or_default().min(wanted)
}

const MOST_DATAGRAMS: usize = 1600;
const MOST_CONNECTIONS: usize = 600;
/// Datagrams of a search of two seconds, and clock probes of eight inlets; they connect a quarter as often.
const OF_PROGRAMS: usize = 160;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_sent_than_there_is() {
        let budget = Budget::new();
        assert_eq!((budget.datagrams(1400), budget.left()), (1400, 40));
        assert_eq!((budget.datagrams(50), budget.datagrams(1)), (40, 0));
        let later = budget.set_aside(10);
        assert_eq!((budget.connections(600), budget.connections(1)), (550, 0));
        assert_eq!((later.connections(11), later.datagrams(1)), (10, 0));
    }
}
