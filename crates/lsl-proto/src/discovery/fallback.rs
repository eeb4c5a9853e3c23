//! Asking over TCP where UDP is swallowed: each host that says nothing for 120 ms, and then ever more seldom.
//! Spec: doctor §2.4.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::net::{IpAddr, SocketAddr};

use super::asked::{AskedHosts, Rounds};
use super::tcp_probes::{Slots, TcpProbes};

/// What became of a question over TCP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProbeEnd {
    /// A stream answered.
    Answered,
    /// Somebody accepted, and has nothing that is looked for.
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
    /// What earlier searches asked, and what stands for this one there.
    asked: AskedHosts,
    key: u64,
    /// So long a host counts as one that is heard.
    heard_secs: f64,
}

#[derive(Debug)]
struct Host {
    ports: Vec<SocketAddr>,
    due: f64,
    /// Number of rounds so far.
    rounds: usize,
    heard_at: f64,
}

impl Fallback {
    /// Takes up where the last search for the same ended.
    pub(super) fn new(asked: AskedHosts, query: &impl Hash) -> Self {
        Self {
            hosts: HashMap::new(),
            probes: TcpProbes::new(MAX_OF_SEARCH, Slots::Fixed(MAX_OF_HOST)),
            live: HashSet::new(),
            key: asked.key(query),
            asked,
            heard_secs: HEARD_SECS,
        }
    }

    /// Takes note of all ports at which hosts can be asked, those that are likely to answer first. Others are not asked
    /// any more.
    pub(super) fn watch(&mut self, targets: impl IntoIterator<Item = SocketAddr>, now: f64) {
        let mut fresh = HashSet::new();
        let mut asked = self.asked.lock();
        let rounds = asked.rounds(self.key, now);
        for target in targets {
            let host = self.hosts.entry(target.ip()).or_insert_with(|| {
                let before = rounds.get(&target.ip());
                let first = now + FIRST_SECS;
                Host {
                    ports: Vec::new(),
                    due: before.map_or(first, |rounds| rounds.due.max(first)),
                    rounds: before.map_or(0, |rounds| rounds.count),
                    heard_at: f64::NEG_INFINITY,
                }
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

    /// Asks the ports again that answered, so that their streams do not count as gone. The next wave comes after
    /// `period_secs`.
    pub(super) fn begin_wave(&mut self, period_secs: f64) {
        self.heard_secs = HEARD_SECS.max(HEARD_PERIODS * period_secs);
        let live: Vec<_> = self.live.iter().copied().collect();
        self.probes.add(&live);
    }

    /// Returns the next port to ask, if there is one.
    pub(super) fn poll(&mut self, now: f64) -> Option<SocketAddr> {
        if self.poll_timeout() <= now {
            let mut asked = self.asked.lock();
            for (address, host) in &mut self.hosts {
                if host.due > now {
                    continue;
                }
                if now - host.heard_at < self.heard_secs {
                    host.due = host.heard_at + self.heard_secs;
                    continue;
                }
                let pauses = PAUSES_SECS.get(host.rounds).or(PAUSES_SECS.last());
                let due = now + pauses.copied().unwrap_or_default();
                host.rounds += 1;
                let count = host.rounds;
                asked.note(self.key, *address, Rounds { count, due }, now);
                // Nothing between us and this host swallows UDP for long.
                host.due = if address.is_loopback() {
                    f64::INFINITY
                } else {
                    due
                };
                let ports = host.ports.iter().copied();
                let ports: Vec<_> = ports.filter(|port| asked.may_ask(*port, now)).collect();
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
        let mut asked = self.asked.lock();
        match (end, self.hosts.get_mut(&target.ip())) {
            (ProbeEnd::Answered, Some(_)) => {
                self.live.insert(target);
                // Whoever looks for this again finds it as soon.
                asked.rounds(self.key, now).remove(&target.ip());
            }
            // It is there, and may have more to say later.
            (ProbeEnd::Accepted, Some(host)) => {
                host.heard_at = now;
                if let Some(rounds) = asked.rounds(self.key, now).get_mut(&target.ip()) {
                    rounds.due = rounds.due.max(now + HEARD_SECS);
                }
            }
            (ProbeEnd::Refused, _) => asked.refused(target, now),
            (ProbeEnd::Answered | ProbeEnd::Accepted | ProbeEnd::Silent, _) => {}
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

/// So long a host counts as one that is heard, at least: more than a wave, less than it takes until its streams count
/// as gone.
const HEARD_SECS: f64 = 2.5;
const HEARD_PERIODS: f64 = 1.4;

/// Connections under way of one search, and to one host.
const MAX_OF_SEARCH: usize = 64;
const MAX_OF_HOST: usize = 8;

/// Ports of a host that are asked in one round.
const MAX_PORTS: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    fn alone() -> Fallback {
        Fallback::new(AskedHosts::default(), b"")
    }

    fn ports(host: u8, ports: std::ops::Range<u16>) -> Vec<SocketAddr> {
        ports.map(|port| ([10, 0, 0, host], port).into()).collect()
    }

    fn rounds(fallback: &mut Fallback, secs: f64, end: ProbeEnd) -> Vec<(u32, usize)> {
        rounds_from(fallback, 0.0, secs, end)
    }

    /// Lets time pass; every port that is asked ends like this. Returns the times at which host 1 was asked, in
    /// milliseconds, each once.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "milliseconds of a test"
    )]
    fn rounds_from(
        fallback: &mut Fallback,
        mut now: f64,
        until: f64,
        end: ProbeEnd,
    ) -> Vec<(u32, usize)> {
        let mut asked = Vec::<(u32, usize)>::new();
        while now < until {
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
            let mut fallback = alone();
            fallback.watch(ports(1, 100..200), 0.0);
            assert_eq!(rounds(&mut fallback, 150.0, end), expected, "{end:?}");
        }
    }

    #[test]
    fn short_searches_one_after_the_other_ask_like_one_that_is_long() {
        let context = AskedHosts::default();
        let accepted = [120, 2620, 7620, 22_620, 82_620, 142_620];
        let silent = [120, 1370, 6370, 21_370, 81_370, 141_370];
        let own = IpAddr::from([127, 0, 0, 1]);
        for (query, address, end, expected) in [
            (&b"a"[..], ports(1, 1..33), ProbeEnd::Accepted, accepted),
            (b"b", ports(1, 1..33), ProbeEnd::Silent, silent),
            (b"c", vec![(own, 5).into()], ProbeEnd::Silent, silent),
        ] {
            let asked = (0..150).flat_map(|second| {
                let mut search = Fallback::new(context.clone(), &query);
                let now = f64::from(second);
                search.watch(address.iter().copied(), now);
                rounds_from(&mut search, now, now + 1.0, end)
            });
            let asked: Vec<_> = asked.map(|(at, _)| at).collect();
            assert_eq!(asked, expected, "{query:?}");
        }
        // Who has what is looked for is found as soon the next time.
        let found = || {
            let mut search = Fallback::new(context.clone(), b"d");
            search.watch(ports(1, 1..2), 200.0);
            rounds_from(&mut search, 200.0, 201.0, ProbeEnd::Answered)
        };
        assert_eq!([found(), found()], [[(200_120, 1)], [(200_120, 1)]]);
        // After a while it is as if nobody had asked.
        let mut later = Fallback::new(context, &&b"b"[..]);
        later.watch(ports(1, 1..2), 400.0);
        assert!(later.poll_timeout() < 400.2);
    }

    #[test]
    fn who_is_heard_is_left_alone_until_it_is_silent() {
        let mut fallback = alone();
        fallback.watch(ports(1, 1..3), 0.0);
        fallback.heard([10, 0, 0, 1].into(), 0.05);
        fallback.heard([10, 0, 0, 9].into(), 0.05);
        let asked = rounds(&mut fallback, 6.0, ProbeEnd::Silent);
        assert_eq!(asked, [(2550, 2), (3800, 2)]);
        // This host is asked once per search.
        let mut own = alone();
        own.watch([([127, 0, 0, 1], 5).into()], 0.0);
        assert_eq!(rounds(&mut own, 300.0, ProbeEnd::Silent), [(120, 1)]);
        assert!(own.poll_timeout().is_infinite());
    }

    #[test]
    fn so_many_connections_are_under_way_and_what_answered_is_asked_again() {
        let mut fallback = alone();
        fallback.watch((1..=20).flat_map(|host| ports(host, 1..33)), 0.0);
        let asked: Vec<_> = std::iter::from_fn(|| fallback.poll(0.2)).collect();
        assert_eq!(asked.len(), MAX_OF_SEARCH);
        for host in 1..=20 {
            let of_host = asked
                .iter()
                .filter(|it| it.ip() == IpAddr::from([10, 0, 0, host]));
            assert!(of_host.count() <= MAX_OF_HOST);
        }
        let mut one = alone();
        one.watch(ports(1, 1..3), 0.0);
        let live = one.poll(0.2).unwrap();
        let _ = one.poll(0.2).unwrap();
        one.on_ended(live, ProbeEnd::Answered, 0.3);
        for end in [ProbeEnd::Answered, ProbeEnd::Silent] {
            one.begin_wave(1.0);
            assert_eq!(one.poll(0.4), Some(live));
            one.on_ended(live, end, 0.5);
        }
        one.begin_wave(1.0);
        assert_eq!(one.poll(0.6), None);
    }

    #[test]
    fn who_is_not_known_any_more_is_not_asked() {
        let mut fallback = alone();
        fallback.watch(ports(1, 1..33), 0.0);
        let asked: Vec<_> = std::iter::from_fn(|| fallback.poll(0.2)).collect();
        fallback.on_ended(asked[0], ProbeEnd::Answered, 0.2);
        for host in 2..=100 {
            fallback.watch(ports(host, 1..2), 0.2);
        }
        for &target in &asked[1..] {
            fallback.on_ended(target, ProbeEnd::Silent, 0.3);
        }
        fallback.begin_wave(1.0);
        assert_eq!(fallback.poll(0.5), Some(ports(100, 1..2)[0]));
        assert_eq!(fallback.poll(0.5), None);
        fallback.watch([], 0.6);
        fallback.on_ended(ports(100, 1..2)[0], ProbeEnd::Answered, 0.6);
        fallback.begin_wave(1.0);
        assert_eq!(fallback.poll(0.6), None);
        assert_eq!((fallback.hosts.len(), fallback.probes.len()), (0, 0));
    }
}
