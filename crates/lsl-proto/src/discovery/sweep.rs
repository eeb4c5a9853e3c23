//! Asks every host of some networks whether it is there, one a millisecond, every eight seconds. Spec: doctor §2.1,
//! §2.4.

use std::collections::VecDeque;
use std::net::Ipv4Addr;

use crate::config::Ipv4Network;

/// The sweeps of a context: whichever search runs takes the next host.
#[derive(Debug)]
pub struct Sweep {
    hosts: VecDeque<Ipv4Addr>,
    next_at: f64,
    begun_at: f64,
}

impl Default for Sweep {
    fn default() -> Self {
        Self {
            hosts: VecDeque::new(),
            next_at: f64::NEG_INFINITY,
            begun_at: f64::NEG_INFINITY,
        }
    }
}

impl Sweep {
    /// Returns the next host to ask at `now`, if one is due.
    pub fn poll(&mut self, networks: &[Ipv4Network], now: f64) -> Option<Ipv4Addr> {
        if self.hosts.is_empty() && now >= self.begun_at + INTERVAL_SECS {
            self.hosts = networks
                .iter()
                .flat_map(|network| network.hosts())
                .collect();
            (self.begun_at, self.next_at) = (now, now);
        }
        if now < self.next_at {
            return None;
        }
        let host = self.hosts.pop_front()?;
        // What a late timer missed is made up for, but not in one go.
        self.next_at = (self.next_at + TICK_SECS).max(now - LATE_SECS);
        Some(host)
    }

    /// Returns when to ask again, in seconds of `local_clock`.
    pub fn poll_timeout(&self) -> f64 {
        if self.hosts.is_empty() {
            self.begun_at + INTERVAL_SECS
        } else {
            self.next_at
        }
    }
}

const INTERVAL_SECS: f64 = 8.0;
const TICK_SECS: f64 = 0.001;
const LATE_SECS: f64 = 0.016;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thousand_hosts_a_second_are_asked_every_eight_seconds() {
        let networks = ["10.1.0.0/23", "10.2.0.0/30"].map(|text| text.parse().unwrap());
        let mut sweep = Sweep::default();
        let (mut now, mut asked) = (100.0, Vec::new());
        while now < 110.0 {
            // Searches come and go, and nobody is left out or asked twice.
            while let Some(host) = sweep.poll(&networks, now) {
                asked.push((now, host));
            }
            now = sweep.poll_timeout();
        }
        let hosts: usize = networks
            .iter()
            .map(|network: &Ipv4Network| network.hosts().count())
            .sum();
        assert_eq!(asked.len(), 2 * hosts);
        let (first, second) = asked.split_at(hosts);
        assert!(first[hosts - 1].0 - first[0].0 >= 0.5);
        assert!((second[0].0 - 108.0).abs() < 1e-6);
        let all: std::collections::HashSet<_> = first.iter().map(|(_, host)| host).collect();
        assert_eq!(all.len(), hosts);
        // A thread that was late does not make up for a second at once.
        let at_once = std::iter::from_fn(|| sweep.poll(&networks, 117.0)).count();
        assert!(at_once == 1, "{at_once}");
        let at_once = std::iter::from_fn(|| sweep.poll(&networks, 118.0)).count();
        assert!(at_once <= 20, "{at_once}");
    }
}
