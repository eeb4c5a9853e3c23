//! Who may have costly queries evaluated. Every query has a little work for nothing, which is more than
//! those of real programs need; what costs more is limited per host, per network and in total, so that
//! neither one source nor a thousand occupy the thread of the sockets. Knows neither queries nor
//! streams. Spec: lsl-protocol §15.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use lsl_proto::limits::TokenBucket;
use lsl_proto::query::{CHEAP_WORK, CHEAP_WORK_PER_STREAM};

/// Who pays for a query: an IPv4 address, or the /64 of which an IPv6 host may use every address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Host(IpAddr);

impl From<IpAddr> for Host {
    fn from(address: IpAddr) -> Self {
        Self(network(address, (32, 64)))
    }
}

/// What one query may spend and has spent.
#[derive(Debug)]
pub(crate) struct QueryAccount {
    pub(crate) source: Host,
    /// What is left of the work for nothing.
    pub(crate) cheap: u64,
    /// What was spent, for who shares out the thread's time.
    pub(crate) spent: u64,
}

impl QueryAccount {
    pub(crate) fn of(address: IpAddr) -> Self {
        Self {
            source: address.into(),
            cheap: CHEAP_WORK,
            spent: 0,
        }
    }

    /// Spends work for nothing if there is enough of it.
    pub(crate) fn spend_cheap(&mut self, work: u64) -> bool {
        self.spent += work;
        let left = self.cheap.checked_sub(work);
        self.cheap = left.unwrap_or(0);
        left.is_some()
    }

    /// One more stream to look at.
    pub(crate) fn look(&mut self) {
        self.cheap += CHEAP_WORK_PER_STREAM;
        self.spent += LOOK_WORK;
    }
}

/// Token buckets of work per host, per network and for everybody. Work is paid after it was done, so a
/// bucket may fall below zero; what is below is paid before the next.
#[derive(Debug, Default)]
pub(crate) struct QueryBudget {
    buckets: HashMap<(usize, IpAddr), TokenBucket>,
}

impl QueryBudget {
    /// Whether a source may begin something costly at `now`, in seconds of `local_clock`.
    pub(crate) fn admits(&self, source: Host, now: f64) -> bool {
        LEVELS.iter().enumerate().all(|(level, limit)| {
            let bucket = self.buckets.get(&(level, limit.network(source)));
            bucket.is_none_or(|bucket| bucket.ready_at(now) <= now)
        })
    }

    /// Pays for work that was done.
    pub(crate) fn charge(&mut self, source: Host, work: u64, now: f64) {
        if self.buckets.len() >= MAX_BUCKETS {
            self.buckets.retain(|_, bucket| !bucket.is_full(now));
        }
        #[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
        let work = work as f64;
        for (level, limit) in LEVELS.iter().enumerate() {
            let full = || TokenBucket::new(limit.rate, limit.capacity);
            let key = (level, limit.network(source));
            let bucket = self.buckets.entry(key).or_insert_with(full);
            bucket.charge(work, now);
        }
    }
}

/// What the sources of a network may spend together.
struct Limit {
    /// Length of the network's prefix, IPv4 and IPv6.
    prefix: (u32, u32),
    /// Units at once.
    capacity: f64,
    /// Units a second.
    rate: f64,
}

impl Limit {
    fn network(&self, source: Host) -> IpAddr {
        network(source.0, self.prefix)
    }
}

/// The network of an address. There is one of length zero.
fn network(address: IpAddr, (v4, v6): (u32, u32)) -> IpAddr {
    match address {
        IpAddr::V4(address) if v4 > 0 => {
            let mask = u32::MAX << (32 - v4);
            Ipv4Addr::from_bits(address.to_bits() & mask).into()
        }
        IpAddr::V6(address) if v6 > 0 => {
            let mask = u128::MAX << (128 - v6);
            Ipv6Addr::from_bits(address.to_bits() & mask).into()
        }
        _ => Ipv4Addr::UNSPECIFIED.into(),
    }
}

/// A million units are about two milliseconds: everybody together has a hundredth of the thread.
const LEVELS: [Limit; 3] = [
    Limit {
        prefix: (32, 64),
        capacity: 2.0e6,
        rate: 1.0e6,
    },
    Limit {
        prefix: (24, 48),
        capacity: 3.0e6,
        rate: 2.5e6,
    },
    Limit {
        prefix: (0, 0),
        capacity: 5.0e6,
        rate: 5.0e6,
    },
];

/// Buckets that are full again are forgotten from here on. What all may spend in the seconds that a
/// bucket takes to fill makes far fewer that are not.
const MAX_BUCKETS: usize = 4096;

/// Price of looking at a stream, whatever is asked about it.
const LOOK_WORK: u64 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn source(address: &str) -> Host {
        address.parse::<IpAddr>().unwrap().into()
    }

    /// Units that these sources get in so many seconds, in evaluations of 100,000.
    fn spent(limits: &mut QueryBudget, sources: &[Host], secs: u32) -> u64 {
        let mut spent = 0;
        for millisecond in 0..secs * 1000 {
            let now = 100.0 + f64::from(millisecond) / 1000.0;
            for &source in sources {
                if limits.admits(source, now) {
                    limits.charge(source, 100_000, now);
                    spent += 100_000;
                }
            }
        }
        spent
    }

    #[test]
    fn costly_work_is_bounded_per_host_per_network_and_in_total() {
        let one = [source("10.0.0.1")];
        let network: Vec<Host> = (1..255).map(|n| source(&format!("10.0.0.{n}"))).collect();
        let same_64: Vec<Host> = (1..255).map(|n| source(&format!("fd00::{n:x}"))).collect();
        let everywhere: Vec<Host> = (1..255)
            .map(|n| source(&format!("10.{n}.0.1")))
            .chain((1..255).map(|n| source(&format!("fd00:{n:x}::1"))))
            .collect();
        for (sources, expected) in [
            (one.as_slice(), 2.0e6 + 10.0 * 1.0e6),
            (&same_64, 2.0e6 + 10.0 * 1.0e6),
            (&network, 3.0e6 + 10.0 * 2.5e6),
            (&everywhere, 5.0e6 + 10.0 * 5.0e6),
        ] {
            #[expect(clippy::cast_precision_loss, reason = "few")]
            let spent = spent(&mut QueryBudget::default(), sources, 10) as f64;
            assert!((spent - expected).abs() <= 2e5, "{spent} of {expected}");
        }
    }

    #[test]
    fn a_network_that_floods_leaves_work_for_others() {
        let mut limits = QueryBudget::default();
        let network: Vec<Host> = (1..255).map(|n| source(&format!("127.0.0.{n}"))).collect();
        spent(&mut limits, &network, 5);
        assert!(!limits.admits(source("127.0.0.77"), 105.0));
        assert!(limits.admits(source("127.1.0.1"), 105.0));
        assert!(limits.admits(source("fd00::1"), 105.0));
    }

    #[test]
    fn buckets_are_forgotten() {
        let mut limits = QueryBudget::default();
        for n in 0..20_000_u32 {
            let address = IpAddr::from(n.to_be_bytes());
            limits.charge(address.into(), 10_000, f64::from(n) / 500.0);
        }
        assert!(limits.buckets.len() <= MAX_BUCKETS + 3);
    }
}
