//! Which data ports a search asks over TCP, and when (`lab.ResolveOverTCP`). Spec: lsl-protocol §3.6.
//!
//! Each host has as many slots as any other, so that those behind a firewall, which take seconds, do not
//! keep all.

use std::collections::{HashMap, HashSet, VecDeque};
use std::net::{IpAddr, SocketAddr};

/// Data ports that are asked, or wait to be. A port is asked once at a time.
#[derive(Debug)]
pub(super) struct TcpProbes {
    hosts: HashMap<IpAddr, ProbedHost>,
    /// Hosts that have both a waiting port and a free slot.
    ready: VecDeque<IpAddr>,
    running: usize,
    /// Ports that are asked at the same time.
    most: usize,
    slots: Slots,
}

/// Ports of one host that are asked at the same time.
#[derive(Debug, Clone, Copy)]
pub(super) enum Slots {
    /// So many.
    Fixed(usize),
    /// An equal share of all, at least `LEAST_PROBES`.
    Share,
}

impl Default for TcpProbes {
    fn default() -> Self {
        Self::new(MAX_PROBES, Slots::Share)
    }
}

/// A host that is asked over TCP.
#[derive(Debug)]
struct ProbedHost {
    waiting: VecDeque<SocketAddr>,
    /// Ports that wait or are being asked.
    ports: HashSet<u16>,
    running: usize,
    slots: usize,
}

impl ProbedHost {
    fn is_ready(&self) -> bool {
        self.running < self.slots && !self.waiting.is_empty()
    }
}

impl TcpProbes {
    pub(super) fn new(most: usize, slots: Slots) -> Self {
        Self {
            hosts: HashMap::new(),
            ready: VecDeque::new(),
            running: 0,
            most,
            slots,
        }
    }

    /// Wants every one of these ports asked, unless it still is.
    pub(super) fn add(&mut self, targets: &[SocketAddr]) {
        let hosts: HashSet<IpAddr> = targets.iter().map(SocketAddr::ip).collect();
        let slots = match self.slots {
            Slots::Fixed(slots) => slots,
            Slots::Share => (self.most / hosts.len().max(1)).max(LEAST_PROBES),
        };
        for &target in targets {
            let host = self.hosts.entry(target.ip()).or_insert_with(|| ProbedHost {
                waiting: VecDeque::new(),
                ports: HashSet::new(),
                running: 0,
                slots,
            });
            if !host.ports.insert(target.port()) {
                continue;
            }
            let was_ready = host.is_ready();
            host.waiting.push_back(target);
            if host.is_ready() && !was_ready {
                self.ready.push_back(target.ip());
            }
        }
    }

    /// Returns the next port to ask, if there is a slot for it.
    pub(super) fn poll(&mut self) -> Option<SocketAddr> {
        if self.running >= self.most {
            return None;
        }
        let address = self.ready.pop_front()?;
        let host = self.hosts.get_mut(&address)?;
        let target = host.waiting.pop_front()?;
        host.running += 1;
        self.running += 1;
        if host.is_ready() {
            self.ready.push_back(address);
        }
        Some(target)
    }

    /// Takes note that a port was asked, whatever came of it.
    pub(super) fn on_ended(&mut self, target: SocketAddr) {
        let Some(host) = self.hosts.get_mut(&target.ip()) else {
            return;
        };
        if host.ports.remove(&target.port()) {
            let was_ready = host.is_ready();
            host.running -= 1;
            self.running -= 1;
            if host.is_ready() && !was_ready {
                self.ready.push_back(target.ip());
            }
            if host.ports.is_empty() {
                self.hosts.remove(&target.ip());
            }
        }
    }

    /// Asks other hosts no more than they already are.
    pub(super) fn retain(&mut self, is_wanted: impl Fn(IpAddr) -> bool) {
        self.ready.retain(|address| is_wanted(*address));
        self.hosts.retain(|address, host| {
            if !is_wanted(*address) {
                for target in host.waiting.drain(..) {
                    host.ports.remove(&target.port());
                }
            }
            !host.ports.is_empty()
        });
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.hosts.len()
    }
}

const MAX_PROBES: usize = 128;
/// Slots of one host, however many hosts there are.
const LEAST_PROBES: usize = 8;

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn ports(host: u8, count: u16) -> Vec<SocketAddr> {
        let address = Ipv4Addr::new(10, 0, 0, host);
        (1..=count).map(|port| (address, port).into()).collect()
    }

    #[test]
    fn hosts_that_say_nothing_do_not_keep_others_from_being_asked() {
        let mut probes = TcpProbes::default();
        let mut targets: Vec<SocketAddr> = (1..=12).flat_map(|host| ports(host, 32)).collect();
        let live = ports(13, 32);
        targets.extend(&live);
        probes.add(&targets);
        let mut asked = Vec::new();
        // The deaf ones keep their slots.
        while let Some(target) = probes.poll() {
            asked.push(target);
            if live.contains(&target) {
                probes.on_ended(target);
            }
        }
        assert_eq!(asked.len(), 12 * 9 + 32);
        assert!(live.iter().all(|target| asked.contains(target)));
        // In the next wave those are asked again, and nobody twice at the same time.
        probes.add(&targets);
        assert_eq!(std::iter::from_fn(|| probes.poll()).count(), 9);
        for target in asked.into_iter().filter(|it| !live.contains(it)) {
            probes.on_ended(target);
        }
        assert_eq!(std::iter::from_fn(|| probes.poll()).count(), 12 * 9);
    }

    #[test]
    fn so_many_are_asked_at_the_same_time() {
        let mut probes = TcpProbes::default();
        let targets: Vec<SocketAddr> = (1..=100).flat_map(|host| ports(host, 32)).collect();
        probes.add(&targets);
        let asked: Vec<SocketAddr> = std::iter::from_fn(|| probes.poll()).collect();
        assert_eq!(asked.len(), MAX_PROBES);
        probes.on_ended(asked[0]);
        assert_eq!(std::iter::from_fn(|| probes.poll()).count(), 1);
    }
}
