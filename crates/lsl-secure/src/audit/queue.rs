//! Holds lines until they are due for the disk. Pure bookkeeping with a clock passed in; nothing
//! here knows a thread. Spec: LSS/1 §10.
//!
//! A thread that is woken for every line costs a busy program two context switches a line. So
//! ordinary lines wait for others, and warnings do not wait. When lines are due is settled once, when
//! the first of them comes: a thread that sleeps until then need not be woken.

/// Lines that are not written yet, oldest first, each with its line feed.
#[derive(Debug, Default)]
pub(super) struct Queue {
    bytes: Vec<u8>,
    lines: u64,
    /// When they are to be written; `None` while there are none.
    due: Option<f64>,
    /// Before this time ordinary lines wait: there were many just now.
    pause_until: f64,
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
    pub(super) fn push(&mut self, line: &[u8], is_warning: bool, now: f64) -> Result<(), Full> {
        let limit = if is_warning {
            MAX_BYTES
        } else {
            MAX_BYTES - KEPT_FOR_WARNINGS
        };
        if self.bytes.len() + line.len() >= limit {
            return Err(Full);
        }
        self.bytes.extend_from_slice(line);
        self.bytes.push(b'\n');
        self.lines += 1;
        if is_warning || self.bytes.len() >= BATCH_BYTES {
            self.make_due();
        } else {
            let due = (now + BATCH_SECS).max(self.pause_until);
            self.due.get_or_insert(due);
        }
        Ok(())
    }

    /// Makes all lines of the queue due at once.
    pub(super) fn make_due(&mut self) {
        if self.lines > 0 {
            self.due = Some(f64::NEG_INFINITY);
        }
    }

    /// When the lines are to be written; `None` if there are none.
    pub(super) fn due(&self) -> Option<f64> {
        self.due
    }

    /// Until when nothing is to be done unless somebody says so. While lines come in numbers that is when
    /// those to come are due.
    pub(super) fn alarm(&self, now: f64) -> f64 {
        let pause = (self.pause_until > now).then_some(self.pause_until);
        self.due.or(pause).unwrap_or(f64::INFINITY)
    }

    /// Exchanges the lines that are due, if there are any, for the empty buffer `batch`. Returns their number.
    pub(super) fn take(&mut self, now: f64, batch: &mut Vec<u8>) -> Option<u64> {
        self.due.filter(|due| *due <= now)?;
        self.due = None;
        std::mem::swap(&mut self.bytes, batch);
        let lines = std::mem::take(&mut self.lines);
        if lines >= MANY_LINES {
            self.pause_until = now + PAUSE_SECS;
        }
        Some(lines)
    }

    /// Gives memory back if nothing waits. Returns whether that is so.
    pub(super) fn shrink(&mut self) -> bool {
        let is_quiet = self.lines == 0;
        if is_quiet {
            self.bytes = Vec::new();
        }
        is_quiet
    }
}

/// Bytes of lines that wait for the disk, warnings among them.
pub(super) const MAX_BYTES: usize = 8 << 20;
/// Bytes that only warnings may take.
pub(super) const KEPT_FOR_WARNINGS: usize = 1 << 20;
/// So many bytes do not wait for more.
const BATCH_BYTES: usize = 4 << 20;
/// Time that an ordinary line waits for others.
pub(super) const BATCH_SECS: f64 = 0.25;
/// A batch of so many lines says that more are coming.
const MANY_LINES: u64 = 64;
/// Time from such a batch to the next.
const PAUSE_SECS: f64 = 1.0;

#[cfg(test)]
mod tests {
    use super::*;

    /// A queue with so many ordinary lines, one a second from 10 s on.
    fn with_lines(count: u32) -> Queue {
        let mut queue = Queue::default();
        for number in 0..count {
            queue
                .push(b"line", false, 10.0 + f64::from(number))
                .unwrap();
        }
        queue
    }

    /// The lines that are due.
    fn take(queue: &mut Queue, now: f64) -> Option<(u64, Vec<u8>)> {
        let mut batch = Vec::new();
        queue.take(now, &mut batch).map(|lines| (lines, batch))
    }

    #[test]
    fn ordinary_lines_wait_a_quarter_of_a_second_for_others() {
        let mut queue = with_lines(3);
        assert_eq!(queue.due(), Some(10.25), "counted from the first");
        assert_eq!(take(&mut queue, 10.24), None);
        let (lines, bytes) = take(&mut queue, 10.25).unwrap();
        assert_eq!((lines, &bytes[..]), (3, &b"line\nline\nline\n"[..]));
        assert_eq!((queue.due(), queue.alarm(10.25)), (None, f64::INFINITY));
        assert_eq!(take(&mut queue, 100.0), None);
        queue.push(b"line", false, 20.0).unwrap();
        assert_eq!(queue.due(), Some(20.25));
    }

    #[test]
    fn after_many_lines_the_next_wait_for_a_second_and_wake_nobody() {
        let mut queue = Queue::default();
        for _ in 0..MANY_LINES {
            queue.push(b"line", false, 10.0).unwrap();
        }
        take(&mut queue, 10.25).unwrap();
        // The thread sleeps until then; whoever records comes to the same deadline.
        assert_eq!(Some(queue.alarm(10.25)), Some(11.25));
        queue.push(b"line", false, 10.5).unwrap();
        assert_eq!((queue.due(), queue.alarm(10.5)), (Some(11.25), 11.25));
        queue.push(b"warning", true, 10.6).unwrap();
        assert_eq!(take(&mut queue, 10.6).unwrap().0, 2, "it does not wait");
        queue.push(b"line", false, 11.2).unwrap();
        assert_eq!(queue.due(), Some(11.45), "at least its quarter");
    }

    #[test]
    fn a_warning_takes_everything_before_it_along_at_once() {
        let mut queue = with_lines(3);
        queue.push(b"refused", true, 10.0).unwrap();
        let (lines, bytes) = take(&mut queue, 10.0).unwrap();
        assert_eq!(lines, 4);
        assert!(bytes.ends_with(b"line\nrefused\n"));
    }

    #[test]
    fn whoever_asks_gets_what_is_there_and_nothing_later() {
        let mut queue = with_lines(2);
        queue.make_due();
        assert_eq!(take(&mut queue, 10.0).unwrap().0, 2);
        queue.make_due();
        assert_eq!(queue.due(), None);
        assert!(queue.shrink());
        queue.push(b"line", false, 30.0).unwrap();
        assert_eq!(queue.due(), Some(30.25), "nobody asked for this one");
        assert!(!queue.shrink());
    }

    #[test]
    fn many_bytes_do_not_wait_and_leave_room_for_warnings() {
        let mut queue = Queue::default();
        let line = [b'x'; 1023];
        let mut lines = 0;
        while queue.due() != Some(f64::NEG_INFINITY) {
            queue.push(&line, false, 10.0).unwrap();
            lines += 1;
        }
        assert_eq!(lines, BATCH_BYTES >> 10);
        while queue.push(&line, false, 10.0).is_ok() {
            lines += 1;
        }
        assert_eq!(lines, (MAX_BYTES - KEPT_FOR_WARNINGS) >> 10);
        while queue.push(&line, true, 10.0).is_ok() {
            lines += 1;
        }
        assert_eq!(lines, MAX_BYTES >> 10);
        assert_eq!(take(&mut queue, 10.0).unwrap().0, lines as u64);
    }
}
