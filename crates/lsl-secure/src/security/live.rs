//! The sessions that are alive, beside the trust list they live by: one lock for both, so that no
//! session slips in under a list that is just being replaced. Spec: LSS/1 §3.2, §6.2.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, Weak};

use lsl_platform::fork::Generation;

use super::{Security, lock};
use crate::audit::Span;
use crate::trust::TrustList;
use crate::{Cause, Descriptor, PublicKey, Role};

/// A session that the trust list may end.
#[derive(Debug, Clone)]
pub struct SessionEntry {
    /// Key that the peer proved.
    pub peer: PublicKey,
    /// Role of the **peer**, not ours.
    pub role: Role,
    /// Address of the peer, for networks in `from`.
    pub remote: IpAddr,
    /// Address of our end of the connection.
    pub local: IpAddr,
    /// Description of the stream that the session carries.
    pub stream: Descriptor,
    /// Tree of the connection's events.
    pub span: Span,
}

/// Keeps a session registered until dropped.
#[derive(Debug)]
pub struct SessionGuard {
    security: Weak<Security>,
    owner: Generation,
    id: u64,
}

impl SessionGuard {
    pub(super) fn new(security: Weak<Security>, owner: Generation, id: u64) -> Self {
        Self {
            security,
            owner,
            id,
        }
    }
}

impl Drop for SessionGuard {
    fn drop(&mut self) {
        // In a forked child this number may be another session's.
        if self.owner.is_current()
            && let Some(security) = self.security.upgrade()
        {
            // The callback may own what registers: it is dropped after the lock.
            let mut live = lock(&security.running().live);
            let removed = (live.remove(self.id), live.remove_plain(self.id));
            drop(live);
            drop(removed);
        }
    }
}

pub(super) type End = Arc<dyn Fn(Cause) + Send + Sync>;
pub(super) type EndPlaintext = Arc<dyn Fn() + Send + Sync>;

/// A session that a new list ends.
pub(super) struct Ended {
    pub(super) session: SessionEntry,
    /// Name of the peer in the old list.
    pub(super) name: Option<String>,
    pub(super) cause: Cause,
    pub(super) end: End,
}

/// The trust list, with the sessions that depend on it.
#[derive(Default)]
pub(super) struct Sessions {
    trust: Arc<TrustList>,
    by_id: BTreeMap<u64, RunningSession>,
    /// Connections in plaintext, which end with the migration; `None` once they were told.
    plain: BTreeMap<u64, Option<EndPlaintext>>,
    /// Per peer key and stream.
    counts: HashMap<(PublicKey, Vec<u8>), usize>,
    next_id: u64,
}

pub(super) struct RunningSession {
    session: SessionEntry,
    /// Taken when it was ended; the session counts until it is gone.
    end: Option<End>,
}

impl Sessions {
    pub(super) fn new(trust: TrustList) -> Self {
        Self {
            trust: Arc::new(trust),
            ..Self::default()
        }
    }

    pub(super) fn trust(&self) -> Arc<TrustList> {
        Arc::clone(&self.trust)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_id.is_empty() && self.plain.is_empty()
    }

    pub(super) fn add(&mut self, session: SessionEntry, end: End) -> Result<u64, Cause> {
        let count = self.counts.entry(key_of(&session)).or_insert(0);
        if *count >= MAX_SESSIONS {
            return Err(Cause::Busy);
        }
        *count += 1;
        let id = self.next_id;
        self.next_id += 1;
        let end = Some(end);
        self.by_id.insert(id, RunningSession { session, end });
        Ok(id)
    }

    pub(super) fn add_plain(&mut self, end: EndPlaintext) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        self.plain.insert(id, Some(end));
        id
    }

    pub(super) fn remove_plain(&mut self, id: u64) -> Option<EndPlaintext> {
        self.plain.remove(&id)?
    }

    /// Takes the plaintext connections that are to be told, each once.
    pub(super) fn take_plain(&mut self) -> Vec<EndPlaintext> {
        self.plain.values_mut().filter_map(Option::take).collect()
    }

    pub(super) fn remove(&mut self, id: u64) -> Option<RunningSession> {
        let entry = self.by_id.remove(&id)?;
        let key = key_of(&entry.session);
        if let Some(count) = self.counts.get_mut(&key) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&key);
            }
        }
        Some(entry)
    }

    /// Takes a new list, and gives the sessions that do not fit it, each once.
    pub(super) fn replace_trust(
        &mut self,
        trust: TrustList,
        fits: impl Fn(&TrustList, &SessionEntry) -> Result<(), Cause>,
    ) -> Vec<Ended> {
        let old = std::mem::replace(&mut self.trust, Arc::new(trust));
        let mut ended = Vec::new();
        for entry in self.by_id.values_mut() {
            if let Err(cause) = fits(&self.trust, &entry.session)
                && let Some(end) = entry.end.take()
            {
                ended.push(Ended {
                    session: entry.session.clone(),
                    name: old.find(&entry.session.peer).map(|peer| peer.name.clone()),
                    cause,
                    end,
                });
            }
        }
        ended
    }
}

fn key_of(session: &SessionEntry) -> (PublicKey, Vec<u8>) {
    (session.peer, session.stream.uid.clone())
}

impl fmt::Debug for Sessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sessions")
            .field("trust", &self.trust)
            .field("sessions", &self.by_id.len())
            .field("plain", &self.plain.len())
            .finish_non_exhaustive()
    }
}

/// Live sessions per peer key and stream (§6.2).
const MAX_SESSIONS: usize = 1024;
