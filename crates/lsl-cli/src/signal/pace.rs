//! Schedule of samples. Sample n is due at start + n / rate, whatever happened before:
//! delays do not add up, a late wake-up catches up.
#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "conversions saturate: before the start nothing is due"
)]

/// The schedule of one stream. Times are seconds of `local_clock`.
#[derive(Debug, Clone)]
pub struct Pace {
    start: f64,
    period_secs: f64,
    done: u64,
}

impl Pace {
    /// Creates a schedule of samples every `period_secs`, the first one at `start`.
    pub fn new(start: f64, period_secs: f64) -> Self {
        Self {
            start,
            period_secs,
            done: 0,
        }
    }

    /// Returns the number of samples handed out so far, which is that of the next one.
    pub fn done(&self) -> u64 {
        self.done
    }

    /// Returns the time at which sample `number` is due.
    pub fn time_of(&self, number: u64) -> f64 {
        self.start + number as f64 * self.period_secs
    }

    /// Returns the time at which the next `count` samples are all due.
    pub fn next_time(&self, count: u64) -> f64 {
        self.time_of(self.done + count.max(1) - 1)
    }

    /// Returns the number of samples that are due and not handed out.
    pub fn due(&self, now: f64) -> u64 {
        if now < self.start {
            return 0;
        }
        // The product of `time_of` decides, so that sleeping until `next_time` is enough.
        let mut total = ((now - self.start) / self.period_secs) as u64 + 1;
        if self.time_of(total) <= now {
            total += 1;
        } else if total > 0 && self.time_of(total - 1) > now {
            total -= 1;
        }
        total.saturating_sub(self.done)
    }

    /// Counts `count` more samples as handed out.
    pub fn advance(&mut self, count: u64) {
        self.done += count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_do_not_add_up() {
        let mut pace = Pace::new(100.0, 0.1);
        for (now, due) in [(99.9, 0), (100.0, 1), (100.05, 1), (100.1, 2), (100.95, 10)] {
            assert_eq!(pace.due(now), due, "{now}");
        }
        pace.advance(4);
        assert_eq!((pace.done(), pace.due(100.35), pace.due(100.95)), (4, 0, 6));
        assert!((pace.next_time(3) - 100.6).abs() < 1e-9);
    }

    #[test]
    fn waking_at_the_given_time_is_never_too_early() {
        for (start, period) in [(0.0, 1.0 / 3.0), (1e6, 1.0 / 30_000.0), (123.456, 0.002)] {
            let mut pace = Pace::new(start, period);
            for _ in 0..20_000 {
                let wake = pace.next_time(1);
                assert_eq!(pace.due(wake), 1, "{wake}");
                pace.advance(1);
            }
        }
    }
}
