//! When hosts were asked over TCP, kept per context: a program that begins a short search every second, for a stream
//! that is not there, asks them no more often than one long search would. Spec: doctor §2.4.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, RandomState};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What searches of a context asked over TCP.
#[derive(Debug, Clone, Default)]
pub struct AskedHosts(Arc<Mutex<Asked>>);

#[derive(Debug, Default)]
pub(super) struct Asked {
    /// By what was asked: who has nothing of one stream may have another.
    queries: HashMap<u64, HashMap<IpAddr, Rounds>>,
    /// When a port that refused may be asked again.
    refused: HashMap<SocketAddr, f64>,
    hasher: RandomState,
}

/// How often a host was asked in vain, and when it is its turn again.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rounds {
    pub(super) count: usize,
    pub(super) due: f64,
}

impl AskedHosts {
    /// Returns what the rounds of a search go by.
    pub(super) fn key(&self, query: &impl Hash) -> u64 {
        self.lock().hasher.hash_one(query)
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Asked> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Asked {
    /// Returns the rounds of the searches that ask this.
    pub(super) fn rounds(&mut self, key: u64, now: f64) -> &mut HashMap<IpAddr, Rounds> {
        self.queries.retain(|_, hosts| {
            hosts.retain(|_, rounds| now < rounds.due + KEPT_SECS);
            !hosts.is_empty()
        });
        let is_kept = self.queries.len() < MAX_QUERIES || self.queries.contains_key(&key);
        self.queries
            .entry(if is_kept { key } else { OTHERS })
            .or_default()
    }

    /// Takes note of a round.
    pub(super) fn note(&mut self, key: u64, host: IpAddr, rounds: Rounds, now: f64) {
        let hosts = self.rounds(key, now);
        if hosts.len() >= MAX_HOSTS && !hosts.contains_key(&host) {
            // Addresses that were made up go first: their pauses are short.
            let soonest = hosts.iter().min_by(|a, b| a.1.due.total_cmp(&b.1.due));
            if let Some(soonest) = soonest.map(|(host, _)| *host) {
                hosts.remove(&soonest);
            }
        }
        hosts.insert(host, rounds);
    }

    /// Takes note of a port where nobody listens.
    pub(super) fn refused(&mut self, port: SocketAddr, now: f64) {
        self.refused.retain(|_, until| *until > now);
        self.refused.insert(port, now + REFUSED_SECS);
    }

    /// Returns whether a port may be asked.
    pub(super) fn may_ask(&self, port: SocketAddr, now: f64) -> bool {
        self.refused.get(&port).is_none_or(|until| *until <= now)
    }
}

/// So long after its next turn a host counts as one that was never asked.
const KEPT_SECS: f64 = 60.0;

const REFUSED_SECS: f64 = 10.0;

/// Queries that are told apart. Others share their rounds, so that texts that change each time are no way around them.
const MAX_QUERIES: usize = 8;
const OTHERS: u64 = 0;

/// Hosts of a query that are remembered.
const MAX_HOSTS: usize = 1024;
