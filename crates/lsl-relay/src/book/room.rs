//! Room that the documents of a directory take, and the streams that found none. Spec: relay §13.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Weak};

use lsl_proto::StreamInfo;

use super::{Uid, Way};
use crate::id::RelayId;

/// What is wrong with a stream that is not taken over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// There are too many, or too many of whoever tells of it.
    #[error("whoever tells of it may have no more of limits.streams")]
    TooMany,
    /// The documents would take too much memory, or those of whoever tells of it.
    #[error("the descriptions of streams take too much memory")]
    TooLong,
    /// This field differs from that of the stream with this uid: somebody lies, or it is another one.
    #[error("its {0} is not that of the stream with this uid")]
    Differs(&'static str),
}

/// Somebody who tells of streams.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Teller {
    Link(RelayId),
    /// A host, by its address.
    Host(Vec<u8>),
    River,
}

impl Teller {
    fn of(way: Way, info: &StreamInfo) -> Self {
        match way {
            Way::Link(link) => Self::Link(link),
            Way::River => Self::River,
            Way::Direct(_) => {
                let addresses = [info.v4_address_bytes(), info.v6_address_bytes()];
                let address = addresses.into_iter().find(|address| !address.is_empty());
                Self::Host(address.unwrap_or_default().to_vec())
            }
        }
    }
}

#[derive(Debug, Default)]
struct Held {
    ways: AtomicUsize,
    bytes: AtomicUsize,
}

/// Room of one way's document, until dropped.
#[derive(Debug)]
pub(super) struct Taken {
    all: Arc<Held>,
    of_teller: Arc<Held>,
    bytes: usize,
}

impl Drop for Taken {
    fn drop(&mut self) {
        for held in [&self.all, &self.of_teller] {
            held.ways.fetch_sub(1, Relaxed);
            held.bytes.fetch_sub(self.bytes, Relaxed);
        }
    }
}

/// Room of all documents.
#[derive(Debug)]
pub(super) struct Room {
    most_bytes: usize,
    all: Arc<Held>,
    of_tellers: HashMap<Teller, Weak<Held>>,
    waiting: VecDeque<(Uid, Way)>,
    /// Those that wait, and those that were asked for since and have not come.
    absent: HashSet<(Uid, Way)>,
}

impl Room {
    /// Creates the room of a directory.
    pub(super) fn new() -> Self {
        Self {
            most_bytes: MAX_BYTES,
            all: Arc::default(),
            of_tellers: HashMap::new(),
            waiting: VecDeque::new(),
            absent: HashSet::new(),
        }
    }

    /// Takes a place for a way. Nobody has more than others leave to all: whoever makes up streams keeps no real one
    /// out. `streams` are the number of those known and the most, for a way to a new one.
    pub(super) fn take(
        &mut self,
        way: Way,
        info: &StreamInfo,
        streams: Option<(usize, usize)>,
    ) -> Result<Taken, Refusal> {
        let teller = Teller::of(way, info);
        let known = self.of_tellers.get(&teller).and_then(Weak::upgrade);
        let of_teller = known.unwrap_or_else(|| {
            self.of_tellers.retain(|_, held| held.strong_count() > 0);
            let held = Arc::default();
            self.of_tellers.insert(teller, Arc::downgrade(&held));
            held
        });
        let bytes = info.document().size();
        let (own, all) = (&of_teller, &self.all);
        if streams.is_some_and(|(known, most)| known + own.ways.load(Relaxed) >= most) {
            return Err(Refusal::TooMany);
        }
        if own.bytes.load(Relaxed) + all.bytes.load(Relaxed) + bytes > self.most_bytes {
            return Err(Refusal::TooLong);
        }
        for held in [own, all] {
            held.ways.fetch_add(1, Relaxed);
            held.bytes.fetch_add(bytes, Relaxed);
        }
        Ok(Taken {
            all: Arc::clone(all),
            of_teller,
            bytes,
        })
    }

    /// Remembers one that found no place, one of so many at the most.
    pub(super) fn wait(&mut self, uid: Uid, way: Way, most: usize) {
        if self.absent.len() < most && self.absent.insert((uid.clone(), way)) {
            self.waiting.push_back((uid, way));
        }
    }

    /// Notes that one is asked for.
    pub(super) fn expect(&mut self, uid: Uid, way: Way) {
        self.absent.insert((uid, way));
    }

    /// Forgets one, which came or is gone. Returns whether it was absent.
    pub(super) fn forget(&mut self, uid: &Uid, way: Way) -> bool {
        let entry = (uid.clone(), way);
        let was_absent = self.absent.remove(&entry);
        if was_absent {
            self.waiting.retain(|waiting| *waiting != entry);
        }
        was_absent
    }

    /// Forgets all of one way, whose directory begins anew.
    pub(super) fn forget_way(&mut self, way: Way) {
        self.absent.retain(|(_, by)| *by != way);
        self.waiting.retain(|(_, by)| *by != way);
    }

    /// Returns those that may find a place now that there are so many.
    pub(super) fn next(&mut self, places: usize) -> Vec<(Uid, Way)> {
        let count = places.min(MOST_ASKED).min(self.waiting.len());
        self.waiting.drain(..count).collect()
    }
}

/// Streams that are asked for again at a time; each that comes makes way for another.
const MOST_ASKED: usize = 8;

/// Memory that documents take in all, roughly; a source alone has half of it at the most.
const MAX_BYTES: usize = 256 << 20;

#[cfg(test)]
mod tests {
    use lsl_proto::ChannelFormat;

    use super::*;

    #[test]
    fn documents_of_one_source_leave_room_for_others() {
        let info = StreamInfo::new("a", "EEG", 8, 250.0, ChannelFormat::Float32, "a").unwrap();
        let bytes = info.document().size();
        let mut room = Room {
            most_bytes: 8 * bytes,
            ..Room::new()
        };
        let mut take = |id| {
            let way = Way::Link(RelayId(id));
            std::iter::from_fn(|| room.take(way, &info, None).ok()).collect::<Vec<_>>()
        };
        let (one, other) = (take(1), take(2));
        assert_eq!((one.len(), other.len()), (4, 2));
        drop(one);
        for id in [1, 3] {
            assert_eq!(take(id).len(), 3);
        }
        drop(other);
        assert_eq!(room.all.bytes.load(Relaxed), 0);
    }
}
