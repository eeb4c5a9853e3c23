//! The one rate limiter of the workspace, and hosts as limits count them. Pure bookkeeping with a clock passed in.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A host as limits count it: an IPv4 address, or the /64 of which an IPv6 host may use every address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Host(IpAddr);

impl From<IpAddr> for Host {
    fn from(address: IpAddr) -> Self {
        Self(network(address.to_canonical(), (32, 64)))
    }
}

impl Host {
    /// Returns the network of the host, for these lengths of the prefix (IPv4, IPv6).
    pub fn network(self, prefix: (u32, u32)) -> IpAddr {
        network(self.0, prefix)
    }
}

/// Returns the network of an address. There is only one of length zero.
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

/// Limits a rate: holds at most `burst` tokens and gains `rate` of them a second.
///
/// Times are seconds of `local_clock`. A clock that stands or goes back gives nothing.
#[derive(Debug, Clone)]
pub struct TokenBucket {
    rate: f64,
    burst: f64,
    /// Tokens at the time `at`; negative while work that was [`charge`](Self::charge)d is not paid
    /// for.
    tokens: f64,
    /// Minus infinity before the first use.
    at: f64,
}

impl TokenBucket {
    /// Creates a full bucket: `rate` tokens per second, at most `burst`.
    #[inline]
    pub const fn new(rate: f64, burst: f64) -> Self {
        Self {
            rate,
            burst,
            tokens: burst,
            at: f64::NEG_INFINITY,
        }
    }

    /// Takes a token; false if there is none.
    #[inline]
    pub fn take(&mut self, now: f64) -> bool {
        let has_token = self.level(now) >= 1.0;
        if has_token {
            self.charge(1.0, now);
        }
        has_token
    }

    /// Returns the time from which [`take`](Self::take) succeeds without other takers: `now` if
    /// there is a token.
    pub fn ready_at(&self, now: f64) -> f64 {
        let missing = 1.0 - self.level(now);
        if missing <= 0.0 {
            return now;
        }
        // Later than `now` even if rounding says otherwise, so that a waiting caller makes
        // progress.
        (now.max(self.at) + missing / self.rate).max(now.next_up())
    }

    /// Takes so many tokens, whether they are there or not; a negative number gives some back.
    #[inline]
    pub fn charge(&mut self, tokens: f64, now: f64) {
        self.tokens = self.level(now) - tokens;
        self.at = self.at.max(now);
    }

    /// Whether it is as a new one.
    pub fn is_full(&self, now: f64) -> bool {
        self.level(now) >= self.burst
    }

    /// Returns the tokens that are there; negative while more were taken than there were.
    #[inline]
    pub fn level(&self, now: f64) -> f64 {
        (self.tokens + (now - self.at).max(0.0) * self.rate).min(self.burst)
    }
}

#[expect(clippy::float_cmp, reason = "these times are exact")]
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_come_with_time_up_to_the_burst() {
        let mut bucket = TokenBucket::new(20.0, 3.0);
        assert!((0..3).all(|_| bucket.take(5.0)));
        assert!(!bucket.take(5.0) && !bucket.take(5.04));
        assert!(!bucket.take(1.0), "a clock that goes back");
        assert!(bucket.take(5.06));
        assert!(!bucket.is_full(5.19) && bucket.is_full(5.21));
        bucket.charge(-1.0, 5.21);
        assert_eq!((0..9).filter(|_| bucket.take(5.21)).count(), 3);
        bucket.charge(-3.0, 5.21);
        assert!(bucket.is_full(5.21));
        for pause in 1..4 {
            let now = 1000.0 * f64::from(pause);
            assert_eq!((0..9).filter(|_| bucket.take(now)).count(), 3);
        }
    }

    #[test]
    fn who_has_to_wait_is_told_until_when() {
        let mut bucket = TokenBucket::new(2.0, 3.0);
        assert_eq!(bucket.ready_at(10.0), 10.0);
        assert!((0..3).all(|_| bucket.take(10.0)));
        // Asking costs nothing, and a clock that goes back gives nothing.
        for now in [10.0, 10.25, 9.0] {
            assert_eq!(bucket.ready_at(now), 10.5);
        }
        assert!(bucket.take(10.5));
        assert_eq!(bucket.ready_at(10.5), 11.0);
        let mut now = 11.0_f64.next_down();
        while !bucket.take(now) {
            assert!(bucket.ready_at(now) > now);
            now = bucket.ready_at(now);
        }
    }

    #[test]
    fn what_was_charged_beyond_the_tokens_is_paid_first() {
        let mut bucket = TokenBucket::new(8.0, 5.0);
        bucket.charge(20.0, 1.0);
        assert_eq!(bucket.ready_at(1.0), 3.0);
        assert!(!bucket.take(2.9) && bucket.take(3.0));
    }

    #[test]
    fn over_time_there_are_as_many_tokens_as_promised() {
        let mut bucket = TokenBucket::new(2.0, 3.0);
        let times = (0..10_000).map(|tick| 1.0 + f64::from(tick) * 0.01);
        let taken = times.filter(|now| bucket.take(*now)).count();
        // 100 seconds with two each, and the first burst.
        assert!((200..=203).contains(&taken), "{taken}");
    }
}
