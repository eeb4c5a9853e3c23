//! State that changes while a process runs: trust list, sessions, limits, memory. A forked child
//! gets all of it anew. A lock held by another thread during the fork would never open in the
//! child, and the child must not end the parent's sessions. Spec: LSS/1 §8.6.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

use lsl_platform::fork::Generation;

use super::clock::Clock;
use super::live::Sessions;
use super::watch::Watch;
use crate::PublicKey;
use crate::admission::Admission;
use crate::known::Known;
use crate::trust::{Date, TrustList};

#[derive(Debug)]
pub(super) struct Running {
    pub(super) owner: Generation,
    pub(super) watch: Option<Mutex<Watch>>,
    /// When the trust list in use was written. Not asked of `watch`, which is locked while the file is
    /// read, and a network share can hang.
    pub(super) modified: Mutex<Option<Duration>>,
    pub(super) live: Mutex<Sessions>,
    /// Day on which the approaching end of an entry was last told.
    pub(super) told: Mutex<HashMap<PublicKey, Date>>,
    pub(super) admission: Mutex<Admission>,
    pub(super) known: Option<Known>,
}

/// State with which a child begins. Never changes, so that it can be read without a lock.
#[derive(Debug, Default)]
pub(super) struct Origin {
    trust_file: Option<PathBuf>,
    known_file: Option<PathBuf>,
    /// Trust list of a program without files.
    list: TrustList,
    /// Such a program under `migrate`.
    has_memory: bool,
}

impl Running {
    /// Creates the state of the process that reads the files first, and the origin for its
    /// children.
    pub(super) fn first(
        watch: Option<Watch>,
        list: TrustList,
        known: Option<Known>,
    ) -> (Origin, Self) {
        let origin = Origin {
            trust_file: watch.as_ref().map(|watch| watch.path().to_owned()),
            known_file: known
                .as_ref()
                .and_then(|known| known.path().map(Into::into)),
            list: if watch.is_none() {
                list.clone()
            } else {
                TrustList::default()
            },
            has_memory: known.as_ref().is_some_and(|known| known.path().is_none()),
        };
        (origin, Self::new(watch, list, known))
    }

    /// Creates the state of a forked child, reading the files anew.
    pub(super) fn of_child(
        origin: &Origin,
        open: impl Fn(PathBuf) -> Option<Known>,
        clock: &Clock,
    ) -> Self {
        // While the file cannot be read, no peer is trusted: fail closed.
        let watched = origin
            .trust_file
            .clone()
            .map(|path| Watch::of_child(path, clock.utc()));
        let (watch, list) = match watched {
            Some((watch, list)) => (Some(watch), list),
            None => (None, origin.list.clone()),
        };
        let known = match origin.known_file.clone() {
            Some(path) => open(path),
            None => origin.has_memory.then(Known::in_memory),
        };
        Self::new(watch, list, known)
    }

    fn new(watch: Option<Watch>, list: TrustList, known: Option<Known>) -> Self {
        let limit = lsl_platform::privilege::open_file_limit();
        let quarter = limit.map_or(u64::MAX, |limit| limit / 4);
        let max_pending = usize::try_from(quarter).map_or(1024, |quarter| quarter.clamp(1, 1024));
        Self {
            owner: Generation::current(),
            modified: Mutex::new(watch.as_ref().map(Watch::modified)),
            watch: watch.map(Mutex::new),
            live: Mutex::new(Sessions::new(list)),
            told: Mutex::default(),
            admission: Mutex::new(Admission::new(max_pending)),
            known,
        }
    }
}
