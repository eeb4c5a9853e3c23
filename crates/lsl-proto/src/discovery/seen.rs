//! Hosts that answered searches, and the ports that answered, so that later searches can ask them where groups do
//! not reach. Never kept on disk: addresses wander between networks. Spec: doctor §2.1.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

/// The hosts that were seen last.
#[derive(Debug)]
pub struct SeenHosts {
    hosts: HashMap<IpAddr, Seen>,
    most: usize,
}

#[derive(Debug)]
struct Seen {
    /// With the interface of a link-local address.
    address: SocketAddr,
    /// Newest first.
    ports: Vec<u16>,
    at: f64,
}

impl SeenHosts {
    /// Creates an empty table for at most so many hosts; beyond it those seen longest ago make room.
    pub fn new(most: usize) -> Self {
        let hosts = HashMap::new();
        Self { hosts, most }
    }

    /// Takes note of an answer or a connection. Returns whether the host is a new one.
    pub fn saw(&mut self, from: SocketAddr, now: f64) -> bool {
        if let Some(seen) = self.hosts.get_mut(&from.ip()) {
            (seen.address, seen.at) = (from, now);
            if !seen.ports.starts_with(&[from.port()]) {
                seen.ports.retain(|port| *port != from.port());
                seen.ports.insert(0, from.port());
                seen.ports.truncate(MAX_PORTS);
            }
            return false;
        }
        self.hosts.retain(|_, seen| now - seen.at < KEPT_SECS);
        if self.hosts.len() >= self.most {
            let oldest = self.hosts.iter().min_by(|a, b| a.1.at.total_cmp(&b.1.at));
            if let Some(oldest) = oldest.map(|(host, _)| *host) {
                self.hosts.remove(&oldest);
            }
        }
        let seen = Seen {
            address: from,
            ports: vec![from.port()],
            at: now,
        };
        self.hosts.insert(from.ip(), seen);
        true
    }

    /// Iterates over the hosts that were seen in the last 24 h, in no order, with their ports, newest first.
    pub fn iter(&self, now: f64) -> impl Iterator<Item = (SocketAddr, &[u16])> {
        let recent = move |seen: &&Seen| now - seen.at < KEPT_SECS;
        let recent = self.hosts.values().filter(recent);
        recent.map(|seen| (seen.address, &*seen.ports))
    }
}

const KEPT_SECS: f64 = 24.0 * 3600.0;

/// Of liblsl each outlet has ports of its own, and the usual range is 32.
const MAX_PORTS: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_kept_for_a_day_up_to_a_bound() {
        let mut seen = SeenHosts::new(2);
        let mut saw = |text: &str, at: f64| seen.saw(text.parse().unwrap(), at);
        assert!(saw("10.0.0.1:5", 0.0) && saw("10.0.0.2:5", 1.0));
        assert!(!saw("10.0.0.1:6", 2.0) && !saw("10.0.0.1:5", 3.0) && !saw("10.0.0.1:5", 3.0));
        // It takes the place of the one seen longest ago.
        assert!(saw("[fe80::1%3]:7", 4.0));
        let mut known: Vec<_> = seen.iter(5.0).collect();
        known.sort();
        let v6 = "[fe80::1%3]:7".parse().unwrap();
        let expected: [(SocketAddr, &[u16]); 2] =
            [("10.0.0.1:5".parse().unwrap(), &[5, 6]), (v6, &[7])];
        assert_eq!(known, expected);
        assert_eq!(seen.iter(86_403.5).count(), 1);
        for port in 1..100 {
            seen.saw(([10, 0, 0, 1], port).into(), 6.0);
        }
        assert!(seen.iter(7.0).all(|(_, ports)| ports.len() <= MAX_PORTS));
    }
}
