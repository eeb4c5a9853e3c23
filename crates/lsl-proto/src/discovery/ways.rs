//! Ways to streams, by uid: programs copy infos and make them again from their text, so what a way needs is kept
//! beside them. Spec: relay §5.2, doctor §2.3.

use std::collections::{BTreeMap, HashMap};
use std::net::{SocketAddr, SocketAddrV6};

/// Address at which an outlet answered a search.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DirectWay {
    /// Address of its host, with the interface of a link-local one and without a port.
    pub host: SocketAddr,
    /// How it was asked.
    pub by: Medium,
    /// From the questions to the answer, in seconds.
    pub round_trip_secs: f64,
}

/// How an outlet was asked. Groups and broadcasts have one query id, so that they are not told apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Medium {
    /// By a group or a broadcast address.
    Group,
    /// By its own address.
    Unicast,
    /// Over TCP.
    Tcp,
}

/// Most addresses that are kept of one stream.
pub const MAX_DIRECT: usize = 6;

impl DirectWay {
    /// Adds a way to those of a stream, in place of the one by the same host. The fastest come first. Of too many one
    /// whose address nobody asked goes, as it is the easiest to forge.
    pub fn add_to(mut self, ways: &mut Vec<Self>) {
        let before = ways.iter().find(|known| known.host == self.host);
        if let Some(before) = before.filter(|_| self.by == Medium::Group) {
            self.by = before.by;
        }
        ways.retain(|known| known.host != self.host);
        ways.push(self);
        ways.sort_by(|a, b| a.round_trip_secs.total_cmp(&b.round_trip_secs));
        if ways.len() > MAX_DIRECT {
            let slowest = ways.iter().rposition(|way| way.by == Medium::Group);
            ways.remove(slowest.unwrap_or(MAX_DIRECT));
        }
    }
}

/// Returns the address alone of one with a port.
pub(super) fn host_of(address: SocketAddr) -> SocketAddr {
    match address {
        SocketAddr::V4(v4) => (*v4.ip(), 0).into(),
        SocketAddr::V6(v6) => SocketAddrV6::new(*v6.ip(), 0, 0, v6.scope_id()).into(),
    }
}

/// Values of so many streams; beyond them those that were used longest ago make room.
#[derive(Debug)]
pub struct ByUid<T> {
    values: HashMap<Vec<u8>, (u64, T)>,
    /// Uids in the order in which they were used.
    used: BTreeMap<u64, Vec<u8>>,
    last_use: u64,
    most: usize,
}

impl<T: Default> ByUid<T> {
    /// Creates an empty table for at most so many streams.
    pub fn new(most: usize) -> Self {
        Self {
            values: HashMap::new(),
            used: BTreeMap::new(),
            last_use: 0,
            most: most.max(1),
        }
    }

    /// Returns the value of a stream, if there is one.
    pub fn get_mut(&mut self, uid: &[u8]) -> Option<&mut T> {
        let (at, value) = self.values.get_mut(uid)?;
        self.last_use += 1;
        let uid = self.used.remove(at)?;
        *at = self.last_use;
        self.used.insert(self.last_use, uid);
        Some(value)
    }

    /// Has `change` look at the value of a stream, and makes one if there is none.
    pub fn update(&mut self, uid: &[u8], change: impl FnOnce(&mut T)) {
        if let Some(value) = self.get_mut(uid) {
            return change(value);
        }
        while self.values.len() >= self.most
            && let Some((_, oldest)) = self.used.pop_first()
        {
            self.values.remove(&oldest);
        }
        let mut value = T::default();
        change(&mut value);
        self.last_use += 1;
        self.used.insert(self.last_use, uid.to_vec());
        self.values.insert(uid.to_vec(), (self.last_use, value));
    }

    /// Forgets a stream.
    pub fn remove(&mut self, uid: &[u8]) {
        if let Some((at, _)) = self.values.remove(uid) {
            self.used.remove(&at);
        }
    }
}

/// Ways to streams through relays. `W` is one way, through the relay whose number stands beside it.
#[derive(Debug)]
pub struct Ways<W>(ByUid<Vec<(u32, W)>>);

impl<W: Clone> Ways<W> {
    /// Creates an empty table for at most so many streams.
    pub fn new(most: usize) -> Self {
        Self(ByUid::new(most))
    }

    /// Adds the way through a relay, in place of the one before.
    pub fn add(&mut self, uid: &[u8], relay: u32, way: W) {
        self.0.update(uid, |ways| {
            ways.retain(|(known, _)| *known != relay);
            ways.push((relay, way));
            ways.sort_by_key(|(relay, _)| *relay);
        });
    }

    /// Removes the way through a relay.
    pub fn remove(&mut self, uid: &[u8], relay: u32) {
        if let Some(ways) = self.0.get_mut(uid) {
            ways.retain(|(known, _)| *known != relay);
            if ways.is_empty() {
                self.0.remove(uid);
            }
        }
    }

    /// Returns the ways to a stream, in the order of the relays.
    pub fn of(&mut self, uid: &[u8]) -> Vec<W> {
        let ways = self.0.get_mut(uid).into_iter().flatten();
        ways.map(|(_, way)| way.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ways_are_kept_by_uid_up_to_a_bound() {
        let mut ways = Ways::new(3);
        ways.add(b"a", 1, "a1");
        ways.add(b"a", 0, "a0");
        ways.add(b"a", 1, "a1 again");
        assert_eq!(ways.of(b"a"), ["a0", "a1 again"]);
        ways.remove(b"a", 0);
        assert_eq!(ways.of(b"a"), ["a1 again"]);
        ways.remove(b"a", 1);
        assert_eq!(ways.of(b"a"), [""; 0]);
        ways.add(b"used", 0, "u");
        for number in 0..1000_u32 {
            ways.add(&number.to_be_bytes(), 0, "x");
            assert_eq!(ways.of(b"used"), ["u"]);
            ways.add(b"comes and goes", 0, "y");
            ways.remove(b"comes and goes", 0);
        }
        assert!(ways.0.values.len() <= 3, "{ways:?}");
        assert_eq!(ways.0.values.len(), ways.0.used.len());
        assert_eq!(ways.of(&999_u32.to_be_bytes()), ["x"]);
        assert!(ways.of(&1_u32.to_be_bytes()).is_empty());
    }

    #[test]
    fn of_a_stream_the_six_fastest_ways_are_kept() {
        let mut ways = Vec::new();
        let way = |last: u8, round_trip_secs, by| DirectWay {
            host: ([10, 0, 0, last], 0).into(),
            by,
            round_trip_secs,
        };
        let hosts = |ways: &[DirectWay]| {
            let hosts = ways.iter().map(|way| way.host.to_string());
            let hosts: Vec<_> = hosts.map(|host| host[7..].to_owned()).collect();
            hosts.join(" ")
        };
        for last in 1..=9 {
            way(last, f64::from(10 - last), Medium::Group).add_to(&mut ways);
        }
        way(4, 0.5, Medium::Group).add_to(&mut ways);
        assert_eq!(hosts(&ways), "4:0 9:0 8:0 7:0 6:0 5:0");
        // However fast they are, those by groups do not displace one that was asked itself.
        for by in [Medium::Unicast, Medium::Group] {
            way(5, 9.0, by).add_to(&mut ways);
        }
        for last in 11..=20 {
            way(last, 0.1, Medium::Group).add_to(&mut ways);
        }
        assert_eq!(hosts(&ways[5..]), "5:0");
        assert_eq!((ways.len(), ways[5].by), (6, Medium::Unicast));
    }
}
