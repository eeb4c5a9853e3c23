//! What is told of an inlet's connection. Spec: doctor §2.6.

use super::{Action, Progress, Purpose, Recovery, Suspicion};

/// State of an inlet's data connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum InletState {
    /// There is none yet: it is being made, or nobody asked for samples.
    Connecting,
    /// It flows, or its outlet is there and pauses.
    Connected,
    /// It is silent for longer than it ever was, and the outlet is asked whether it is there.
    Suspect,
    /// The outlet is gone, and it or its successor is looked for.
    Searching,
    /// Several outlets could be the one that is looked for: the inlet waits until only one is left.
    Ambiguous,
    /// The stream is lost for good.
    Lost,
}

/// Searches for the outlet of the feed.
#[derive(Debug, Default)]
pub(super) struct Rescues {
    /// Whether one found it or its successor, but there was no connection yet.
    pub(super) is_found: bool,
    /// Those that brought it back.
    pub(super) count: u64,
}

impl Recovery {
    /// Returns the state of the data connection, of which the caller knows whether it was opened.
    pub fn state(&self, is_opened: bool) -> InletState {
        let is_asked = matches!(self.action, Some(Action::Probe | Action::AskBoth));
        let is_in_doubt = self.suspicion.as_ref().is_some_and(Suspicion::is_open);
        if self.is_feed_sought() {
            if self.candidates > 1 {
                InletState::Ambiguous
            } else {
                InletState::Searching
            }
        } else if !is_opened {
            InletState::Connecting
        } else if is_asked || is_in_doubt {
            InletState::Suspect
        } else {
            InletState::Connected
        }
    }

    /// Returns how many searches for the outlet of the feed brought it back, or its successor.
    pub fn rescues(&self) -> u64 {
        self.rescues.count
    }

    pub(super) fn is_feed_sought(&self) -> bool {
        let feed = self.connections[Purpose::Feed as usize];
        matches!(feed, Progress::Searching { .. }) || self.watch.is_some_and(|it| it.is_missed)
    }
}
