//! Streams that cannot be told apart: an inlet that loses one of them does not know which to go on with.
//! Spec: doctor §2.4.

use std::collections::{HashMap, HashSet};

use super::{Found, ResolverEvent, Search};
use crate::StreamInfo;

/// What a search knows of streams with the same source id, name and type.
#[derive(Debug, Default)]
pub(super) struct Conflicts {
    /// Uids by what is the same.
    alike: HashMap<Vec<u8>, Vec<Vec<u8>>>,
    /// How many of these have several uids.
    several: usize,
    told: HashSet<Vec<u8>>,
    /// Those that nobody took yet.
    new: Vec<(StreamInfo, StreamInfo)>,
}

impl Conflicts {
    /// Returns what another outlet of this stream has, too; `None` if it cannot be found again, or a relay offers it.
    pub(super) fn identity(info: &StreamInfo) -> Option<Vec<u8>> {
        let source_id = info.source_id_bytes();
        let is_own = !source_id.is_empty() && info.relay_advert().is_none();
        is_own.then(|| [source_id, info.name_bytes(), info.stream_type_bytes()].join(&0))
    }

    pub(super) fn may_be(&self) -> bool {
        self.several > 0
    }

    /// Takes note of a stream, unless there are so many alike that one more says nothing.
    pub(super) fn add(&mut self, identity: &[u8], uid: &[u8]) {
        let alike = self.alike.entry(identity.to_vec()).or_default();
        if alike.len() < MOST_ALIKE {
            alike.push(uid.to_vec());
            self.several += usize::from(alike.len() == 2);
        }
    }

    pub(super) fn remove(&mut self, identity: &[u8], uid: &[u8]) {
        let Some(alike) = self.alike.get_mut(identity) else {
            return;
        };
        let before = alike.len();
        alike.retain(|it| it != uid);
        self.several -= usize::from((before, alike.len()) == (2, 1));
        if alike.is_empty() {
            self.alike.remove(identity);
        }
    }

    /// Returns whether nobody is told of this any more.
    fn is_told(&self, identity: &[u8]) -> bool {
        self.told.len() >= MOST_TOLD || self.told.contains(identity)
    }
}

impl Search {
    /// Returns the streams that turned out to be two since the last call, each pair once.
    pub fn take_conflicts(&mut self) -> Vec<(StreamInfo, StreamInfo)> {
        std::mem::take(&mut self.conflicts.new)
    }

    /// Looks whether another stream that cannot be told from this one answers, too. A program that was started again
    /// has another uid, and what it had before is forgotten only later: both have to answer after the later one came.
    pub(super) fn look_for_twin(&mut self, uid: &[u8]) -> bool {
        if !self.conflicts.may_be() {
            return false;
        }
        let twin = || {
            let found = self.found.get(uid)?;
            let identity = found.identity.as_ref();
            let identity = identity.filter(|it| !self.conflicts.is_told(it))?;
            let is_alive = |other: &&Found| {
                let since = found.first_seen.max(other.first_seen);
                found.last_seen.min(other.last_seen) >= since + LATER_SECS
            };
            let alike = self.conflicts.alike.get(identity)?.iter();
            let others = alike.filter(|it| *it != uid);
            let twin = others.filter_map(|it| self.found.get(it)).find(is_alive)?;
            Some((identity.clone(), found.info.clone(), twin.info.clone()))
        };
        twin().is_some_and(|(identity, one, other)| self.tell_conflict(identity, one, other))
    }

    /// Looks whether the outlet with the uid of `info` is of another host. Only a copied machine has the same.
    pub(super) fn look_for_clone(&mut self, info: StreamInfo) -> bool {
        let uid = info.uid_bytes();
        if self.conflicts.is_told(uid) {
            return false;
        }
        let known = self.found.get(uid).map(|found| &found.info);
        let host = info.hostname_bytes();
        let is_other = |known: &&StreamInfo| {
            let known = known.hostname_bytes();
            known != host && !known.is_empty() && !host.is_empty()
        };
        let Some(known) = known.filter(is_other).cloned() else {
            return false;
        };
        self.tell_conflict(uid.to_vec(), known, info)
    }

    fn tell_conflict(&mut self, identity: Vec<u8>, one: StreamInfo, other: StreamInfo) -> bool {
        self.conflicts.told.insert(identity);
        self.push_event(ResolverEvent::Conflict(Box::new([
            one.clone(),
            other.clone(),
        ])));
        self.conflicts.new.push((one, other));
        true
    }
}

/// Answers to one wave come within, in seconds.
const LATER_SECS: f64 = 0.4;

const MOST_TOLD: usize = 1024;

/// Of one stream. Anybody can make them up.
const MOST_ALIKE: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_streams_that_are_made_up_to_be_alike_few_are_kept() {
        let mut conflicts = Conflicts::default();
        for (number, several) in (0..50).zip([0, 1].into_iter().chain([1; 48])) {
            conflicts.add(b"stream", &[number]);
            assert_eq!(conflicts.several, several);
        }
        assert_eq!(conflicts.alike[&b"stream"[..]].len(), MOST_ALIKE);
        for number in (0..50).rev() {
            conflicts.remove(b"stream", &[number]);
            assert_eq!(conflicts.may_be(), number > 1);
        }
        assert!(conflicts.alike.is_empty());
    }
}
