//! Limits the lines per second that strangers can cause. Pure bookkeeping with a clock passed in.
//! Spec: LSS/1 §6.2, §10.

use super::event::{Entry, EventKind, RATED};

/// Lets ten events a second of each kind that a stranger can cause pass, and counts the rest.
#[derive(Debug, Default)]
pub(super) struct Limiter {
    budgets: [Budget; RATED.len()],
}

#[derive(Debug, Default)]
struct Budget {
    /// When the present period began.
    began: f64,
    passed: u32,
    /// The last that did not pass, and how many before it: a flood that ends leaves a line, too.
    held: Option<(Entry, u64)>,
}

impl Limiter {
    /// Returns the entry to write in place of `entry`: itself, with the count suppressed before it,
    /// or nothing.
    pub(super) fn admit(&mut self, mut entry: Entry, now: f64) -> Option<Entry> {
        let (lines, secs) = period(entry.event.kind);
        let Some(budget) = entry
            .event
            .kind
            .rated()
            .and_then(|index| self.budgets.get_mut(index))
        else {
            return Some(entry);
        };
        if !(0.0..secs).contains(&(now - budget.began)) {
            budget.began = now;
            budget.passed = 0;
        }
        if budget.passed < lines {
            budget.passed += 1;
            entry.suppressed = budget.held.take().map(|(_, before)| before + 1);
            return Some(entry);
        }
        let before = budget.held.take().map_or(0, |(_, before)| before + 1);
        budget.held = Some((entry, before));
        None
    }

    /// Whether something waits for [`overdue`](Self::overdue).
    pub(super) fn holds(&self) -> bool {
        self.budgets.iter().any(|budget| budget.held.is_some())
    }

    /// Returns the last event of each flood that has ended, with the count suppressed before it.
    pub(super) fn overdue(&mut self, now: f64) -> Vec<Entry> {
        let ended = |budget: &&mut Budget| {
            let held = budget.held.as_ref();
            held.is_some_and(|(entry, _)| now - budget.began >= period(entry.event.kind).1)
        };
        let budgets = self.budgets.iter_mut().filter(ended);
        budgets.filter_map(Budget::release).collect()
    }

    /// Works as [`overdue`](Self::overdue), also for floods that go on: the process ends.
    pub(super) fn release(&mut self) -> Vec<Entry> {
        self.budgets
            .iter_mut()
            .filter_map(Budget::release)
            .collect()
    }
}

impl Budget {
    fn release(&mut self) -> Option<Entry> {
        let (mut entry, before) = self.held.take()?;
        entry.suppressed = (before > 0).then_some(before);
        Some(entry)
    }
}

/// Returns the number of lines of one kind allowed per period, and the period in seconds.
fn period(kind: EventKind) -> (u32, f64) {
    match kind {
        // As many on average. But a recorder of old that begins with 200 streams is what an auditor
        // of a migration looks for: each of its lines counts.
        EventKind::PlaintextAccepted => (600, 60.0),
        _ => (10, 1.0),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::event::Event;
    use super::*;

    fn entry(kind: EventKind) -> Entry {
        Entry {
            event: Event::new(kind),
            utc: Duration::ZERO,
            suppressed: None,
        }
    }

    #[test]
    fn ten_a_second_pass_and_the_rest_is_counted() {
        let mut limiter = Limiter::default();
        let mut written = Vec::new();
        // 1000 failures in 5 seconds.
        for tick in 0..1000 {
            let now = f64::from(tick) * 0.005;
            written.extend(limiter.admit(entry(EventKind::HandshakeFailed), now));
        }
        assert_eq!(written.len(), 50);
        assert!(limiter.holds());
        let last = limiter.overdue(6.0);
        assert_eq!(last.len(), 1);
        assert!(!limiter.holds());
        written.extend(last);
        let suppressed: u64 = written.iter().filter_map(|line| line.suppressed).sum();
        assert_eq!(written.len() as u64 + suppressed, 1000);
        assert!(limiter.overdue(7.0).is_empty());
    }

    #[test]
    fn a_flood_of_one_kind_hides_no_other() {
        let mut limiter = Limiter::default();
        for _ in 0..100 {
            limiter.admit(entry(EventKind::HandshakeFailed), 0.0);
        }
        assert!(
            limiter
                .admit(entry(EventKind::PlaintextRefused), 0.0)
                .is_some()
        );
        for _ in 0..100 {
            // Only a trusted peer, or the user, causes these.
            assert!(limiter.admit(entry(EventKind::HandshakeOk), 0.0).is_some());
            assert!(limiter.admit(entry(EventKind::Revoked), 0.0).is_some());
        }
    }

    #[test]
    fn plaintext_of_anybody_fills_no_disk_but_a_burst_is_written() {
        let mut limiter = Limiter::default();
        let mut lines = 0;
        for tick in 0..100_000 {
            let now = f64::from(tick) * 0.001;
            let admitted = limiter.admit(entry(EventKind::PlaintextAccepted), now);
            lines += u32::from(admitted.is_some());
            if tick == 500 {
                assert_eq!(lines, 501);
            }
        }
        assert_eq!(lines, 1200);
        assert!(limiter.overdue(119.0).is_empty());
        assert_eq!(
            limiter.overdue(120.5)[0].suppressed,
            Some(100_000 - 1201 - 59_400)
        );
    }

    #[test]
    fn nothing_is_released_before_its_second_is_over_but_at_the_end() {
        let mut limiter = Limiter::default();
        for _ in 0..12 {
            limiter.admit(entry(EventKind::LimitsHit), 3.0);
        }
        assert!(limiter.overdue(3.5).is_empty());
        let last = limiter.release();
        assert_eq!(last.len(), 1);
        assert_eq!(last[0].suppressed, Some(1));
    }
}
