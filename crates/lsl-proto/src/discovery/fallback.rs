//! Asking over TCP where UDP is swallowed: each host that says nothing for 120 ms, and then ever more seldom.
//! Spec: doctor §2.4.

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};

use super::tcp_probes::TcpProbes;

/// What became of a question over TCP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProbeEnd {
    /// A stream answered.
    Answered,
    /// Somebody accepted, and had nothing to say.
    Accepted,
    /// Nobody listens there.
    Refused,
    /// Nothing was heard.
    Silent,
}

/// The hosts that a search asks by unicast, and which of them are to be asked over TCP.
#[derive(Debug)]
pub(super) struct Fallback {
    hosts: HashMap<IpAddr, Host>,
    probes: TcpProbes,
    /// Ports that answered over TCP.
    live: HashSet<SocketAddr>,
    /// When a port that refused may be asked again.
    refused: HashMap<SocketAddr, f64>,
}

#[derive(Debug)]
struct Host {
    ports: Vec<SocketAddr>,
    due: f64,
    /// Number of rounds so far.
    rounds: usize,
    heard_at: f64,
}

impl Default for Fallback {
    fn default() -> Self {
        Self {
            hosts: HashMap::new(),
            probes: TcpProbes::with_limits(MAX_PROBES, Some(MAX_OF_HOST)),
            live: HashSet::new(),
            refused: HashMap::new(),
        }
    }
}

impl Fallback {
    /// Takes note of all ports at which hosts can be asked, those that are likely to answer first. Others are not asked
    /// any more.
    pub(super) fn watch(&mut self, targets: impl IntoIterator<Item = SocketAddr>, now: f64) {
        let mut fresh = HashSet::new();
        for target in targets {
            let host = self.hosts.entry(target.ip()).or_insert_with(|| Host {
                ports: Vec::new(),
                due: now + FIRST_SECS,
                rounds: 0,
                heard_at: f64::NEG_INFINITY,
            });
            if fresh.insert(target.ip()) {
                host.ports.clear();
            }
            if host.ports.len() < MAX_PORTS && !host.ports.contains(&target) {
                host.ports.push(target);
            }
        }
        self.hosts.retain(|address, _| fresh.contains(address));
        self.live.retain(|port| fresh.contains(&port.ip()));
        self.probes.retain(|address| fresh.contains(&address));
    }

    /// Takes note of a datagram that came from a host.
    pub(super) fn heard(&mut self, host: IpAddr, now: f64) {
        if let Some(host) = self.hosts.get_mut(&host) {
            host.heard_at = now;
        }
    }

    /// Asks the ports again that answered, so that their streams do not count as gone.
    pub(super) fn begin_wave(&mut self) {
        let live: Vec<_> = self.live.iter().copied().collect();
        self.probes.add(&live);
    }

    /// Returns the next port to ask, if there is one.
    pub(super) fn poll(&mut self, now: f64) -> Option<SocketAddr> {
        if self.poll_timeout() <= now {
            self.refused.retain(|_, until| *until > now);
            for (address, host) in &mut self.hosts {
                if host.due > now {
                    continue;
                }
                if now - host.heard_at < HEARD_SECS {
                    host.due = host.heard_at + HEARD_SECS;
                    continue;
                }
                host.due = match PAUSES_SECS.get(host.rounds).or(PAUSES_SECS.last()) {
                    // Nothing between us and this host swallows UDP for long.
                    Some(pause) if !address.is_loopback() => now + pause,
                    _ => f64::INFINITY,
                };
                host.rounds += 1;
                let ports = host.ports.iter().copied();
                let ports: Vec<_> = ports.filter(|it| !self.refused.contains_key(it)).collect();
                self.probes.add(&ports);
            }
        }
        self.probes.poll()
    }

    /// Returns when to ask again.
    pub(super) fn poll_timeout(&self) -> f64 {
        let due = self.hosts.values().map(|host| host.due);
        due.fold(f64::INFINITY, f64::min)
    }

    /// Takes note of what became of a question.
    pub(super) fn on_ended(&mut self, target: SocketAddr, end: ProbeEnd, now: f64) {
        self.probes.on_ended(target);
        match end {
            ProbeEnd::Answered if self.hosts.contains_key(&target.ip()) => {
                self.live.insert(target);
            }
            ProbeEnd::Refused => drop(self.refused.insert(target, now + REFUSED_SECS)),
            ProbeEnd::Answered | ProbeEnd::Accepted | ProbeEnd::Silent => {}
        }
        if end != ProbeEnd::Answered {
            self.live.remove(&target);
        }
    }
}

/// On a network that carries UDP a host answers within milliseconds.
const FIRST_SECS: f64 = 0.12;

/// From one round to the next, while a host says nothing.
const PAUSES_SECS: [f64; 4] = [1.25, 5.0, 15.0, 60.0];

/// So long a host counts as one that is heard: more than a wave, less than it takes until its streams count as gone.
const HEARD_SECS: f64 = 2.5;

const REFUSED_SECS: f64 = 10.0;

/// Connections under way of one search, and to one host.
const MAX_PROBES: usize = 64;
const MAX_OF_HOST: usize = 8;

/// Ports of a host that are asked in one round.
const MAX_PORTS: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    fn ports(host: u8, ports: std::ops::Range<u16>) -> Vec<SocketAddr> {
        ports.map(|port| ([10, 0, 0, host], port).into()).collect()
    }

    /// Lets `secs` pass; every port that is asked ends like this. Returns the times at which host 1 was asked, in
    /// milliseconds, each once.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "milliseconds of a test"
    )]
    fn rounds(fallback: &mut Fallback, secs: f64, end: ProbeEnd) -> Vec<(u32, usize)> {
        let (mut now, mut asked) = (0.0, Vec::<(u32, usize)>::new());
        while now < secs {
            while let Some(target) = fallback.poll(now) {
                fallback.on_ended(target, end, now);
                let at = (now * 1e3).round() as u32;
                match asked.last_mut() {
                    Some((last, count)) if *last == at => *count += 1,
                    _ => asked.push((at, 1)),
                }
            }
            now = fallback.poll_timeout().max(now + 1e-6);
        }
        asked
    }

    #[test]
    fn a_silent_host_is_asked_ever_more_seldom() {
        let all = |times: &[u32], count| times.iter().map(|at| (*at, count)).collect::<Vec<_>>();
        for (end, expected) in [
            (
                ProbeEnd::Silent,
                all(&[120, 1370, 6370, 21_370, 81_370, 141_370], 32),
            ),
            // A port that refused is left alone for 10 s.
            (ProbeEnd::Refused, all(&[120, 21_370, 81_370, 141_370], 32)),
        ] {
            let mut fallback = Fallback::default();
            fallback.watch(ports(1, 100..200), 0.0);
            assert_eq!(rounds(&mut fallback, 150.0, end), expected, "{end:?}");
        }
    }

    #[test]
    fn who_is_heard_is_left_alone_until_it_is_silent() {
        let mut fallback = Fallback::default();
        fallback.watch(ports(1, 1..3), 0.0);
        fallback.heard([10, 0, 0, 1].into(), 0.05);
        fallback.heard([10, 0, 0, 9].into(), 0.05);
        let asked = rounds(&mut fallback, 6.0, ProbeEnd::Silent);
        assert_eq!(asked, [(2550, 2), (3800, 2)]);
        // This host is asked once per search.
        let mut own = Fallback::default();
        own.watch([([127, 0, 0, 1], 5).into()], 0.0);
        assert_eq!(rounds(&mut own, 300.0, ProbeEnd::Silent), [(120, 1)]);
        assert!(own.poll_timeout().is_infinite());
    }

    #[test]
    fn so_many_connections_are_under_way_and_what_answered_is_asked_again() {
        let mut fallback = Fallback::default();
        fallback.watch((1..=20).flat_map(|host| ports(host, 1..33)), 0.0);
        let asked: Vec<_> = std::iter::from_fn(|| fallback.poll(0.2)).collect();
        assert_eq!(asked.len(), MAX_PROBES);
        for host in 1..=20 {
            let of_host = asked
                .iter()
                .filter(|it| it.ip() == IpAddr::from([10, 0, 0, host]));
            assert!(of_host.count() <= MAX_OF_HOST);
        }
        let mut one = Fallback::default();
        one.watch(ports(1, 1..3), 0.0);
        let live = one.poll(0.2).unwrap();
        let _ = one.poll(0.2).unwrap();
        one.on_ended(live, ProbeEnd::Answered, 0.3);
        for end in [ProbeEnd::Answered, ProbeEnd::Silent] {
            one.begin_wave();
            assert_eq!(one.poll(0.4), Some(live));
            one.on_ended(live, end, 0.5);
        }
        one.begin_wave();
        assert_eq!(one.poll(0.6), None);
    }

    #[test]
    fn who_is_not_known_any_more_is_not_asked() {
        let mut fallback = Fallback::default();
        fallback.watch(ports(1, 1..33), 0.0);
        let asked: Vec<_> = std::iter::from_fn(|| fallback.poll(0.2)).collect();
        fallback.on_ended(asked[0], ProbeEnd::Answered, 0.2);
        for host in 2..=100 {
            fallback.watch(ports(host, 1..2), 0.2);
        }
        for &target in &asked[1..] {
            fallback.on_ended(target, ProbeEnd::Silent, 0.3);
        }
        fallback.begin_wave();
        assert_eq!(fallback.poll(0.5), Some(ports(100, 1..2)[0]));
        assert_eq!(fallback.poll(0.5), None);
        fallback.watch([], 0.6);
        fallback.on_ended(ports(100, 1..2)[0], ProbeEnd::Answered, 0.6);
        fallback.begin_wave();
        assert_eq!(fallback.poll(0.6), None);
        assert_eq!((fallback.hosts.len(), fallback.probes.len()), (0, 0));
    }
}
