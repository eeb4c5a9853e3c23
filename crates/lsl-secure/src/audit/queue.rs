//! Holds lines until they are due for the disk. Pure bookkeeping with a clock passed in; nothing
//! here knows a thread. Spec: LSS/1 §10.
//!
//! A thread that is woken for every line costs a busy program two context switches a line. So
//! ordinary lines wait for others, and warnings do not wait.

use std::collections::VecDeque;

use super::event::AuditEntry;

/// Lines that are not written yet, oldest first.
#[derive(Debug, Default)]
pub(super) struct Queue {
    entries: VecDeque<AuditEntry>,
    len_bytes: usize,
    /// When they are to be written; `None` while there are none.
    due: Option<f64>,
    /// Whether they are due because they are many.
    is_full_batch: bool,
}

/// The queue has no place for a line.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Full;

impl Queue {
    /// Adds a line at the time `now`.
    ///
    /// # Errors
    /// [`Full`], for ordinary lines earlier than for warnings: many of one kind must not push out
    /// the other.
    pub(super) fn push(&mut self, entry: AuditEntry, now: f64) -> Result<(), Full> {
        let is_warning = entry.kind.is_warning();
        let room = if is_warning {
            MAX_QUEUE + KEPT_FOR_WARNINGS
        } else {
            MAX_QUEUE
        };
        if self.entries.len() >= room {
            return Err(Full);
        }
        self.len_bytes += entry.usual_len();
        self.entries.push_back(entry);
        self.is_full_batch |= self.len_bytes >= BATCH_BYTES;
        if is_warning || self.is_full_batch {
            self.make_due();
        } else {
            self.due.get_or_insert(now + BATCH_SECS);
        }
        Ok(())
    }

    /// Makes all lines of the queue due at once.
    pub(super) fn make_due(&mut self) {
        if !self.entries.is_empty() {
            self.due = Some(f64::NEG_INFINITY);
        }
    }

    /// When the lines are to be written; `None` if there are none.
    pub(super) fn due(&self) -> Option<f64> {
        self.due
    }

    /// Takes the lines that are due, if there are any, and says whether they became due by their number.
    pub(super) fn take(&mut self, now: f64) -> Option<(VecDeque<AuditEntry>, bool)> {
        self.due.filter(|due| *due <= now)?;
        let queue = std::mem::take(self);
        Some((queue.entries, queue.is_full_batch))
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }
}

/// Lines that wait for the disk; many times the size of a batch.
pub(super) const MAX_QUEUE: usize = 2048;
/// Places beyond `MAX_QUEUE` that only warnings may take.
pub(super) const KEPT_FOR_WARNINGS: usize = 256;
/// So many bytes are worth a write.
pub(super) const BATCH_BYTES: usize = 64 << 10;
/// Time that an ordinary line waits for others.
pub(super) const BATCH_SECS: f64 = 0.25;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::event::{Event, EventKind};
    use super::*;

    fn entry(kind: EventKind) -> AuditEntry {
        AuditEntry::new(Event::new(kind), Duration::ZERO)
    }

    /// A queue with so many ordinary lines, one a second from 10 s on.
    fn with_lines(count: u32) -> Queue {
        let mut queue = Queue::default();
        for number in 0..count {
            let now = 10.0 + f64::from(number);
            queue.push(entry(EventKind::HandshakeOk), now).unwrap();
        }
        queue
    }

    #[test]
    fn ordinary_lines_wait_a_quarter_of_a_second_for_others() {
        let mut queue = with_lines(3);
        assert_eq!(queue.due(), Some(10.25), "counted from the first");
        assert!(queue.take(10.24).is_none());
        let (lines, is_full) = queue.take(10.25).unwrap();
        assert_eq!((lines.len(), is_full), (3, false));
        assert_eq!(queue.due(), None);
        assert!(queue.take(100.0).is_none());
        queue.push(entry(EventKind::KeyUpdate), 20.0).unwrap();
        assert_eq!(queue.due(), Some(20.25));
    }

    #[test]
    fn a_refusal_takes_everything_before_it_along_at_once() {
        for kind in [
            EventKind::HandshakeFailed,
            EventKind::PolicyRefused,
            EventKind::PlaintextRefused,
            EventKind::RecordAuthFailed,
            EventKind::Revoked,
        ] {
            let mut queue = with_lines(3);
            queue.push(entry(kind), 10.0).unwrap();
            let (lines, _) = queue.take(10.0).unwrap();
            assert_eq!(lines.len(), 4, "{kind:?}");
            assert_eq!(lines[3].kind, kind);
        }
    }

    #[test]
    fn whoever_asks_gets_what_is_there_and_nothing_later() {
        let mut queue = with_lines(2);
        queue.make_due();
        assert_eq!(queue.take(10.0).unwrap().0.len(), 2);
        queue.make_due();
        assert_eq!(queue.due(), None);
        queue.push(entry(EventKind::HandshakeOk), 30.0).unwrap();
        assert_eq!(queue.due(), Some(30.25), "nobody asked for this one");
    }

    #[test]
    fn many_bytes_do_not_wait() {
        let mut queue = Queue::default();
        let mut lines = 0;
        while queue.due() != Some(f64::NEG_INFINITY) {
            queue.push(entry(EventKind::HandshakeOk), 10.0).unwrap();
            lines += 1;
        }
        assert!((100..MAX_QUEUE / 4).contains(&lines), "{lines}");
        let (taken, is_full) = queue.take(10.0).unwrap();
        assert_eq!((taken.len(), is_full), (lines, true));
    }

    #[test]
    fn ordinary_lines_leave_room_for_refusals() {
        let mut queue = Queue::default();
        let mut push = |kind| queue.push(entry(kind), 10.0);
        for _ in 0..MAX_QUEUE {
            push(EventKind::HandshakeOk).unwrap();
        }
        assert_eq!(push(EventKind::HandshakeOk), Err(Full));
        for _ in 0..KEPT_FOR_WARNINGS {
            push(EventKind::PolicyRefused).unwrap();
        }
        assert_eq!(push(EventKind::PolicyRefused), Err(Full));
        let lines = queue.take(10.0).unwrap().0;
        assert_eq!(lines.len(), MAX_QUEUE + KEPT_FOR_WARNINGS);
    }
}
