//! Events of a recorder at work, in one bounded queue. Texts are the caller's.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use lsl_core::{StreamInfo, Timeout, local_clock};

use crate::space::Alarm;

/// Event of a recording for its user. Names and reasons come from the network as they are: escape
/// them before they reach a terminal.
#[derive(Debug, Clone)]
pub enum Event {
    /// A stream that was asked for is not there yet; it is recorded when it comes.
    Awaited(String),
    /// A stream was found and does not connect; it is tried on.
    NotConnected(String),
    /// The recording begins with these streams.
    Recording {
        /// File that will be written.
        path: PathBuf,
        /// Streams of the recording so far.
        streams: Vec<StreamInfo>,
        /// Number of these streams connected in plaintext.
        in_plaintext: usize,
        /// Bytes a second that they will need, as far as they say.
        bytes_per_sec: f64,
        /// Bytes that are free, if that is known.
        free: Option<u64>,
    },
    /// The file had this name before, and was renamed.
    Displaced {
        /// File that will be written.
        path: PathBuf,
        /// New name of the file that was there.
        moved: PathBuf,
    },
    /// The folder to go on in is on the disk of the recording.
    SpillOnSameDisk(PathBuf),
    /// A stream has appeared and is recorded from now on.
    Found(String),
    /// A stream is lost; it goes on when it is back.
    Lost {
        /// Name that the stream announces.
        name: String,
        /// Reason of the loss, for people.
        reason: String,
    },
    /// A stream that was lost flows again.
    Returned {
        /// Name that the stream announces.
        name: String,
        /// Number of samples that were lost meanwhile, 0 if none was; `None` if nobody knows.
        lost: Option<u64>,
    },
    /// Samples of a stream that flows were lost before they came here.
    Missing {
        /// Name that the stream announces.
        name: String,
        /// Number of these samples.
        lost: u64,
        /// Timestamp of the sample before the first of them.
        after: f64,
        /// Reason of the first loss, for people.
        reason: String,
    },
    /// Encryption does not allow to read a stream.
    Refused {
        /// Name that the stream announces.
        name: String,
        /// Reason of the refusal, for people.
        reason: String,
    },
    /// A stream does not connect.
    Unreachable {
        /// Name that the stream announces.
        name: String,
        /// Error of the failed attempt.
        error: String,
    },
    /// A stream sends nothing, and its outlet does not answer.
    Silent(String),
    /// Two outlets have the same name and source id; both are recorded.
    Twin(String),
    /// A stream has no values or too many, and is not recorded.
    Unfit(String),
    /// The clock of a stream cannot be measured: its timestamps are recorded as they come.
    NotSynced(String),
    /// A stream stamps its samples with a clock that is not LSL's.
    AlienClock {
        /// Name that the stream announces.
        name: String,
        /// Seconds from the timestamp until now, negative for one in the future.
        lag_secs: f64,
    },
    /// Streams that were never connected cause no more events: anybody can make them up.
    TooManyStrangers,
    /// The disk fills up: too little is free, or will be soon.
    LowSpace(Alarm),
    /// Less is free than was asked for; the recording goes on in another file.
    LeavingDisk {
        /// Bytes that were asked for.
        min_free: u64,
        /// Path of the next file.
        path: PathBuf,
    },
    /// The other file cannot be made, for this reason; the recording goes on where it was.
    NotLeft(String),
    /// The disk failed; the recording goes on in another file.
    Spilled {
        /// Error that the disk gave.
        reason: String,
        /// Path of the next file.
        path: PathBuf,
    },
    /// The disk is full; samples wait in memory. Repeated while it stays so.
    DiskFull(String),
    /// There is room again, and writing goes on.
    RoomAgain,
    /// The journal beside the file cannot be written.
    NoJournal(String),
    /// A part of the recording could not be written.
    Trouble(String),
    /// The disk is too slow for the end of the recording; what waits in memory is given up.
    GivenUp,
    /// A client of the remote control was turned away.
    Client(Complaint),
}

/// Reason why a client of the remote control was turned away.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Complaint {
    /// There are too many connections.
    TooMany,
    /// A web page has a browser send commands.
    WebPage,
    /// It sent bytes that are no command.
    Garbage,
    /// It sent a command without the token of this file.
    NoToken(PathBuf),
}

/// Queue of events. Clones are the same queue, which several recorders may share. Holds 1000
/// events; beyond that the oldest are dropped and counted.
#[derive(Debug, Clone, Default)]
pub struct Events(Arc<EventQueue>);

#[derive(Debug, Default)]
struct EventQueue {
    waiting: Mutex<VecDeque<Event>>,
    dropped: AtomicU64,
    added: Condvar,
}

impl Events {
    /// Adds an event; never waits.
    pub(crate) fn push(&self, event: Event) {
        let mut waiting = self
            .0
            .waiting
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if waiting.len() >= MAX_WAITING {
            waiting.pop_front();
            self.0.dropped.fetch_add(1, Ordering::Relaxed);
        }
        waiting.push_back(event);
        self.0.added.notify_one();
    }

    /// Returns the number of events dropped because the queue was full.
    pub fn dropped(&self) -> u64 {
        self.0.dropped.load(Ordering::Relaxed)
    }

    /// Takes the next event. Blocks until there is one, `timeout` at the longest.
    pub fn next(&self, timeout: impl Into<Timeout>) -> Option<Event> {
        let deadline = timeout.into().deadline(local_clock());
        let mut waiting = self
            .0
            .waiting
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(event) = waiting.pop_front() {
                return Some(event);
            }
            let left = deadline - local_clock();
            if left <= 0.0 {
                return None;
            }
            let left = Duration::from_secs_f64(left.min(LONGEST_WAIT_SECS));
            let waited = self.0.added.wait_timeout(waiting, left);
            waiting = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

const MAX_WAITING: usize = 1000;
/// A wait without limit is one of many.
const LONGEST_WAIT_SECS: f64 = 3600.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_in_order_and_without_end_nobody_waits() {
        let events = Events::default();
        assert!(events.next(Timeout::NOW).is_none());
        let other = events.clone();
        let waiting = std::thread::spawn(move || other.next(Timeout::Forever));
        events.push(Event::Found("a".into()));
        assert!(matches!(waiting.join().unwrap(), Some(Event::Found(name)) if name == "a"));
        (0..2 * MAX_WAITING).for_each(|number| {
            events.push(Event::Lost {
                name: number.to_string(),
                reason: String::new(),
            });
        });
        let mut taken = std::iter::from_fn(|| events.next(Timeout::NOW));
        assert!(
            matches!(taken.next(), Some(Event::Lost { name, .. }) if name == MAX_WAITING.to_string())
        );
        assert_eq!(taken.count(), MAX_WAITING - 1);
        assert_eq!(events.dropped(), MAX_WAITING as u64);
    }
}
