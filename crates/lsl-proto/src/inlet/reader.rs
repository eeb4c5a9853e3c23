//! Who waits for the socket of a data connection: the runtime's reactor, a thread that is blocked in a
//! pull, or for a while nobody. Only decides; it knows no socket, no lock and no clock.
//!
//! It lies behind the one lock of an inlet's feed, together with the connection and the ring, and **whoever
//! holds that lock may read the socket**, without blocking, and puts what it read into the ring before it
//! lets go. So there is never more than one reader, bytes are never on their way between two of them, and
//! nothing can be lost between looking and waiting. What has to be settled is only who is woken when the
//! socket has something:
//! * *the reactor*, with which the socket is registered, and which wakes the inlet's task. The state of an
//!   idle stream and of slow ones, and whenever somebody waits who cannot wait for a socket;
//! * *the leader*, a thread blocked in a pull, which waits for the socket itself. It is interrupted whenever
//!   it waits for the wrong thing: others put samples into the ring, or the connection ended;
//! * *a timer*: pulls read by themselves, and the task looks every few milliseconds, so that the outlet is
//!   not held up if they are slow or stop. Once both find nothing the socket is registered again.

/// Leader and history of one feed. `I` interrupts a leader.
#[derive(Debug)]
pub struct Reader<I> {
    leader: Option<(LeaderId, I)>,
    last_id: u64,
    /// Whether a pull read since the task last looked.
    was_read_by_caller: bool,
    /// When somebody last wanted the socket registered, in seconds of `local_clock`.
    requested_at: f64,
    last_read: f64,
    /// Between the last two reads that brought samples.
    gap_secs: f64,
}

/// Name of one leader among all that there ever were.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaderId(u64);

impl<I> Default for Reader<I> {
    fn default() -> Self {
        Self {
            leader: None,
            last_id: 0,
            was_read_by_caller: false,
            requested_at: f64::NEG_INFINITY,
            last_read: f64::NEG_INFINITY,
            gap_secs: f64::INFINITY,
        }
    }
}

impl<I: Clone> Reader<I> {
    /// Starts anew with another connection. Whoever waits for its first sample waited for a connection.
    pub fn begin(&mut self) {
        self.was_read_by_caller = false;
        self.gap_secs = f64::INFINITY;
        self.last_read = f64::NEG_INFINITY;
    }

    /// Takes the lead from the present leader, because its connection ended. Returns it for an interrupt.
    pub fn end(&mut self) -> Option<I> {
        self.leader.take().map(|(_, interrupt)| interrupt)
    }

    /// Gives the lead to a thread that found the ring empty, if nobody has it and the stream flows: for a
    /// slow one it is not worth the trouble, and its outlet may be gone without a word, which the inlet's
    /// task must notice. The caller has a connection, and ends its registration.
    #[inline]
    pub fn lead(&mut self, now: f64, interrupt: &I) -> Option<LeaderId> {
        if self.leader.is_some() || self.quiet_at() <= now || self.gap_secs >= QUIET_SECS {
            return None;
        }
        self.last_id += 1;
        let id = LeaderId(self.last_id);
        self.leader = Some((id, interrupt.clone()));
        self.requested_at = f64::NEG_INFINITY;
        Some(id)
    }

    /// Returns whether this leader still leads; that ends with the connection.
    #[inline]
    pub fn is_leader(&self, id: LeaderId) -> bool {
        self.leader.as_ref().is_some_and(|(own, _)| *own == id)
    }

    /// Gives up the lead. The caller wakes those who wait, so that one of them takes it.
    #[inline]
    pub fn resign(&mut self, id: LeaderId) {
        if self.is_leader(id) {
            self.leader = None;
        }
        self.was_read_by_caller = true;
    }

    /// Takes the lead from a leader that did not come back when the stream was quiet: somebody ended its thread, or
    /// jumped out of its pull. Returns it for an interrupt, as it may only be late.
    pub fn depose(&mut self, now: f64) -> Option<I> {
        if now < self.quiet_at() + OVERDUE_SECS {
            return None;
        }
        self.end()
    }

    /// Returns the leader, to interrupt it.
    #[inline]
    pub fn leader(&self) -> Option<&I> {
        self.leader.as_ref().map(|(_, interrupt)| interrupt)
    }

    /// Returns when the stream counts as quiet, unless something arrives: until then a leader waits.
    #[inline]
    pub fn quiet_at(&self) -> f64 {
        self.last_read + QUIET_SECS
    }

    /// Notes that samples were put into the ring at `now`.
    #[inline]
    pub fn on_read(&mut self, now: f64) {
        self.gap_secs = now - self.last_read;
        self.last_read = now;
    }

    /// Refuses leaders until the stream has shown anew that it flows: waiting for the socket failed.
    pub fn back_off(&mut self) {
        self.gap_secs = f64::INFINITY;
    }

    /// Notes that a pull that does not wait has read, or tried to. Returns whether the registration of the
    /// socket may end: the stream flows, and nobody needs the reactor (`is_prompt`).
    pub fn on_caller_read(&mut self, now: f64, has_samples: bool, is_prompt: bool) -> bool {
        self.was_read_by_caller = true;
        has_samples && !is_prompt && !self.is_requested(now)
    }

    /// Notes that somebody waits who cannot wait for the socket. Returns whether it must be registered:
    /// a leader wakes all who wait when it resigns, and then they ask again.
    pub fn request_reactor(&mut self, now: f64) -> bool {
        self.requested_at = now;
        self.leader.is_none()
    }

    /// Returns, for the inlet's task, whether the socket shall be registered. `is_prompt` if somebody waits.
    pub fn needs_reactor(&self, now: f64, is_prompt: bool) -> bool {
        is_prompt || self.is_requested(now)
    }

    /// Returns, for the inlet's task, once per tick, whether callers read since the last, so that it may
    /// rest for another one. They had found the ring empty then: reading much beside them would only take
    /// the processor and the lock from them. Somebody who keeps looking for samples does not keep a stream
    /// that stopped from being registered: its outlet may be gone.
    pub fn is_read_by_callers(&mut self, now: f64) -> bool {
        let was_read = std::mem::take(&mut self.was_read_by_caller);
        was_read && now < self.quiet_at()
    }

    fn is_requested(&self, now: f64) -> bool {
        now - self.requested_at < PATIENCE_SECS
    }
}

/// A stream without samples for that long is slow. Waking a pull through the inlet's task costs some
/// 10 µs of latency, which nobody notices at such rates.
const QUIET_SECS: f64 = 0.25;

/// A leader that is late by that much is gone.
const OVERDUE_SECS: f64 = 1.0;

/// How long the socket stays registered for the sake of somebody who waited: most wait again soon.
const PATIENCE_SECS: f64 = 0.5;

#[cfg(test)]
mod tests;
