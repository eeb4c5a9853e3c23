//! A token bucket with a clock passed in.

/// Holds up to `burst` tokens and gains `per_second`.
#[derive(Debug, Clone)]
pub(super) struct Bucket {
    per_second: f64,
    burst: f64,
    tokens: f64,
    /// When `tokens` was right; minus infinity before the first use.
    at: f64,
}

impl Bucket {
    /// A full one.
    pub(super) fn new(per_second: f64, burst: f64) -> Self {
        Self {
            per_second,
            burst,
            tokens: burst,
            at: f64::NEG_INFINITY,
        }
    }

    pub(super) fn has_token(&mut self, now: f64) -> bool {
        self.refill(now);
        self.tokens >= 1.0
    }

    pub(super) fn is_full(&mut self, now: f64) -> bool {
        self.refill(now);
        self.tokens >= self.burst
    }

    /// Takes one that [`has_token`](Self::has_token) promised.
    pub(super) fn take(&mut self, now: f64) {
        self.refill(now);
        self.tokens -= 1.0;
    }

    pub(super) fn give_back(&mut self, now: f64) {
        self.refill(now);
        self.tokens = (self.tokens + 1.0).min(self.burst);
    }

    /// A clock that stands or goes back gives nothing.
    fn refill(&mut self, now: f64) {
        if now > self.at {
            self.tokens = (self.tokens + (now - self.at) * self.per_second).min(self.burst);
            self.at = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_come_with_time_up_to_the_burst() {
        let mut bucket = Bucket::new(20.0, 3.0);
        for _ in 0..3 {
            assert!(bucket.has_token(5.0));
            bucket.take(5.0);
        }
        assert!(!bucket.has_token(5.0) && !bucket.has_token(5.04));
        assert!(!bucket.has_token(1.0), "a clock that goes back");
        assert!(bucket.has_token(5.06));
        assert!(!bucket.is_full(5.14) && bucket.is_full(5.16));
        bucket.give_back(5.16);
        bucket.take(5.16);
        assert!(!bucket.is_full(5.16), "never more than the burst");
        bucket.give_back(5.16);
        assert!(bucket.is_full(5.16));
    }
}
