//! Counts the things that sources hold, and finds the source that holds most. Spec: LSS/1 §6.2.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};

use crate::Host;

/// Numbered things by source. Numbers are never used again and grow with time.
#[derive(Debug, Default)]
pub(super) struct Pool {
    next: u64,
    owners: HashMap<u64, Host>,
    /// Numbers held by each source; sources without any are absent.
    holdings: HashMap<Host, BTreeSet<u64>>,
    /// The same sources, ordered by the number of things held, then by the age of the oldest.
    ranking: BTreeSet<(usize, Reverse<u64>, Host)>,
}

impl Pool {
    pub(super) fn len(&self) -> usize {
        self.owners.len()
    }

    pub(super) fn count(&self, source: Host) -> usize {
        self.holdings.get(&source).map_or(0, BTreeSet::len)
    }

    pub(super) fn source(&self, number: u64) -> Option<Host> {
        self.owners.get(&number).copied()
    }

    pub(super) fn insert(&mut self, source: Host) -> u64 {
        let number = self.next;
        self.next += 1;
        self.owners.insert(number, source);
        self.change(source, |held| held.insert(number));
        number
    }

    pub(super) fn remove(&mut self, number: u64) -> Option<Host> {
        let source = self.owners.remove(&number)?;
        self.change(source, |held| held.remove(&number));
        Some(source)
    }

    /// The oldest thing of the source that holds most, of several such the oldest of all; sources
    /// that are `protected` come last.
    pub(super) fn oldest_of_largest(&self, protected: impl Fn(Host) -> bool) -> Option<u64> {
        let ranked = self.ranking.iter().rev();
        let stranger = ranked.clone().find(|(_, _, source)| !protected(*source));
        let (_, oldest, _) = stranger.or_else(|| self.ranking.last())?;
        Some(oldest.0)
    }

    /// Changes the things that a source holds, and its place in the ranking.
    fn change(&mut self, source: Host, change: impl FnOnce(&mut BTreeSet<u64>) -> bool) {
        let held = self.holdings.entry(source).or_default();
        let rank = |held: &BTreeSet<u64>| Some((held.len(), Reverse(*held.first()?), source));
        if let Some(rank) = rank(held) {
            self.ranking.remove(&rank);
        }
        change(held);
        match rank(held) {
            Some(rank) => {
                self.ranking.insert(rank);
            }
            None => {
                self.holdings.remove(&source);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    fn source(address: &str) -> Host {
        Host::from(address.parse::<IpAddr>().unwrap())
    }

    #[test]
    fn a_source_is_an_ipv4_address_or_half_an_ipv6_one() {
        let check =
            |a: &str, b: &str, same: bool| assert_eq!(source(a) == source(b), same, "{a} {b}");
        check("10.0.0.1", "10.0.0.1", true);
        check("10.0.0.1", "10.0.0.2", false);
        check("10.0.0.1", "::ffff:10.0.0.1", true);
        check("::ffff:10.0.0.1", "::ffff:10.0.0.2", false);
        check("2001:db8::1", "2001:db8::ffff:ffff:ffff:ffff", true);
        check("2001:db8::1", "2001:db8:0:1::1", false);
        check("fe80::1", "fe80::2", true);
        check("::1", "127.0.0.1", false);
    }

    #[test]
    fn whoever_holds_most_loses_his_oldest() {
        let (a, b, c) = (source("10.0.0.1"), source("10.0.0.2"), source("10.0.0.3"));
        let mut pool = Pool::default();
        assert_eq!(pool.oldest_of_largest(|_| false), None);
        let first = pool.insert(c);
        let [b1, _b2] = [pool.insert(b), pool.insert(b)];
        let [a1, _a2, _a3] = [pool.insert(a), pool.insert(a), pool.insert(a)];
        assert_eq!(pool.oldest_of_largest(|_| false), Some(a1));
        assert_eq!(pool.oldest_of_largest(|source| source == a), Some(b1));
        assert_eq!(pool.oldest_of_largest(|source| source != c), Some(first));
        assert_eq!(pool.oldest_of_largest(|_| true), Some(a1));
        assert_eq!(pool.remove(a1), Some(a));
        assert_eq!(pool.remove(a1), None);
        // Now two hold as many: the oldest of both goes.
        assert_eq!(pool.oldest_of_largest(|_| false), Some(b1));
        assert_eq!(pool.ranking.len(), 3);
        assert_eq!((pool.count(a), pool.count(b), pool.len()), (2, 2, 5));
    }
}
