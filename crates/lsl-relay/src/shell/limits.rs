//! Bounds what one peer may have looked up in the directory. Spec: relay §5.1.

use std::collections::HashMap;

use lsl_core::relay::Peer;
use lsl_proto::limits::{Host, TokenBucket};
use lsl_secure::Fingerprint;

/// Peer as limits count it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Who {
    Key(Fingerprint),
    /// Programs of one host that do not encrypt.
    Host(Host),
}

impl Who {
    pub(super) fn of(peer: &Peer) -> Self {
        let key = peer.trusted.as_ref().map(|(key, _)| key.fingerprint());
        key.map_or_else(|| Self::Host(peer.address.ip().into()), Self::Key)
    }
}

/// Watches and questions of all peers.
#[derive(Debug, Default)]
pub(super) struct Limits(HashMap<Who, Asking>);

#[derive(Debug)]
struct Asking {
    watches: usize,
    /// Budget of questions. One token pays for [`STREAMS_PER_TOKEN`] streams that are looked at.
    questions: TokenBucket,
}

impl Limits {
    /// Takes a question about so many streams. Returns after how many seconds it is answered; `None` if the peer
    /// asks too much.
    pub(super) fn ask(&mut self, who: Who, streams: usize, now: f64) -> Option<f64> {
        if self.0.len() >= MOST_KNOWN {
            let is_busy = |it: &Asking| it.watches > 0 || !it.questions.is_full(now);
            self.0.retain(|_, asking| is_busy(asking));
        }
        let asking = self.0.entry(who).or_insert_with(|| Asking {
            watches: 0,
            questions: TokenBucket::new(RATE, BURST),
        });
        let wait = asking.questions.ready_at(now) - now;
        if wait > PATIENCE_SECS {
            return None;
        }
        let price = 1 + u32::try_from(streams).unwrap_or(u32::MAX) / STREAMS_PER_TOKEN;
        asking.questions.charge(price.into(), now);
        Some(wait)
    }

    /// Begins a watch as [`ask`](Self::ask) takes a question; [`leave`](Self::leave) ends it.
    pub(super) fn watch(&mut self, who: Who, streams: usize, now: f64) -> Option<f64> {
        let watches = self.0.get(&who).map_or(0, |asking| asking.watches);
        let wait = (watches < MOST_WATCHES).then(|| self.ask(who, streams, now))??;
        self.0.get_mut(&who)?.watches += 1;
        Some(wait)
    }

    /// Ends a watch.
    pub(super) fn leave(&mut self, who: Who) {
        if let Some(asking) = self.0.get_mut(&who) {
            asking.watches = asking.watches.saturating_sub(1);
        }
    }
}

/// Watches of a peer at a time.
const MOST_WATCHES: usize = 16;

/// Tokens per second: at worst, a tenth of a core looks at the streams for one peer.
const RATE: f64 = 64.0;

const BURST: f64 = 128.0;

const STREAMS_PER_TOKEN: u32 = 64;

/// Time in seconds that a question may wait for its turn.
const PATIENCE_SECS: f64 = 5.0;

/// Peers beyond which those are forgotten that ask nothing.
const MOST_KNOWN: usize = 1024;

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use super::*;

    #[test]
    fn a_flood_of_one_peer_is_bounded_and_hinders_no_other() {
        let host = |n| Who::Host(IpAddr::from(Ipv4Addr::from_bits(n)).into());
        let hosts = [3000, 3001].map(host);
        let mut limits = Limits::default();
        let mut flood = |now| {
            (0..1000)
                .filter(|_| limits.ask(hosts[0], 6400, now).is_some())
                .count()
        };
        // 101 tokens each: two at once, and what is paid for within the time that one waits.
        assert_eq!(flood(1.0), 5);
        let later = (2..62).map(|now| flood(f64::from(now))).sum::<usize>();
        assert!((37..=39).contains(&later), "{later}");
        assert_eq!(limits.ask(hosts[1], 6400, 61.0), Some(0.0));
        for _ in 0..MOST_WATCHES {
            assert!(limits.watch(hosts[1], 1, 100.0).is_some());
        }
        assert_eq!(limits.watch(hosts[1], 1, 100.0), None);
        limits.leave(hosts[1]);
        assert!(limits.watch(hosts[1], 1, 100.0).is_some());
        for n in 0..2000 {
            let now = 200.0 + f64::from(n);
            limits.ask(host(n), 0, now);
        }
        assert!(limits.0.len() <= MOST_KNOWN);
        assert_eq!(limits.watch(hosts[1], 1, 3000.0), None);
    }
}
