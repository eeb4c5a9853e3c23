//! Who waits for the socket of a data connection: the runtime's reactor, a thread that is blocked in
//! a pull, or for a while nobody. Only decides; it knows no socket, no lock and no clock.
//!
//! All of it lies behind the one lock of an inlet's flow, together with the connection and the ring,
//! and **whoever holds that lock may read the socket**, without blocking, and puts what it read into
//! the ring before it lets go. So there is never more than one reader, bytes are never on their way
//! between two of them, and nothing can be lost between looking and waiting. What has to be settled
//! is only who is woken when the socket has something:
//! * *watched*: it is registered with the reactor, which wakes the data task. The state of an idle
//!   stream and of slow ones, and whenever somebody waits who cannot watch a socket;
//! * *led*: a thread blocked in a pull, the leader, waits for the socket itself. A leader is told
//!   (interrupted) whenever it waits for the wrong thing: others put samples into the ring, or the
//!   connection ended;
//! * *resting*: nobody. Pulls read by themselves, and the data task looks every few milliseconds, so
//!   that the outlet is not held up if they are slow or stop. Once both find nothing the socket is
//!   watched again.

/// What is known of a connection here.
pub trait Connection {
    /// Whether the reactor wakes the data task when something can be read.
    fn is_registered(&self) -> bool;

    /// Ends that. A registered socket wakes the reactor for every segment, though nobody cares.
    fn unregister(&mut self);

    /// Whether it can be read no more; only the data task has any use for it.
    fn is_broken(&self) -> bool;
}

impl<C: Connection + ?Sized> Connection for Box<C> {
    fn is_registered(&self) -> bool {
        (**self).is_registered()
    }

    fn unregister(&mut self) {
        (**self).unregister();
    }

    fn is_broken(&self) -> bool {
        (**self).is_broken()
    }
}

/// The connection of an inlet, if there is one, and who waits for it. `I` interrupts a leader.
#[derive(Debug)]
pub struct Reader<C, I> {
    connection: Option<C>,
    /// Of the connection; never used again.
    number: u64,
    leader: Option<(LeaderId, I)>,
    last_id: u64,
    /// Whether a pull read since the task last looked.
    was_read_by_caller: bool,
    /// When somebody last wanted the socket watched, in seconds of `local_clock`.
    requested_at: f64,
    last_arrival: f64,
    /// Between the last two arrivals.
    gap_secs: f64,
}

/// Names one leader among all that there ever were.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaderId(u64);

/// The right and the duty to wait for the socket.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Lead {
    /// For [`Reader::leave`].
    pub id: LeaderId,
    /// Whether the data task must learn that the socket is not watched any more.
    pub was_registered: bool,
    /// See [`Reader::quiet_at`].
    pub quiet_at: f64,
}

impl<C, I> Default for Reader<C, I> {
    fn default() -> Self {
        Self {
            connection: None,
            number: 0,
            leader: None,
            last_id: 0,
            was_read_by_caller: false,
            requested_at: f64::NEG_INFINITY,
            last_arrival: f64::NEG_INFINITY,
            gap_secs: f64::INFINITY,
        }
    }
}

impl<C: Connection, I: Clone> Reader<C, I> {
    /// There is a connection now; its number is for [`end`](Self::end).
    pub fn begin(&mut self, connection: C) -> u64 {
        debug_assert!(self.connection.is_none(), "one connection at a time");
        self.connection = Some(connection);
        self.number += 1;
        self.was_read_by_caller = false;
        // Whoever waits for the first sample waited for a connection.
        self.gap_secs = f64::INFINITY;
        self.last_arrival = f64::NEG_INFINITY;
        self.number
    }

    /// Gives up connection `number`, if it is still there: whom to interrupt, and what to drop once
    /// the lock is free.
    pub fn end(&mut self, number: u64) -> (Option<C>, Option<I>) {
        if self.number != number {
            return (None, None);
        }
        let leader = self.leader.take().map(|(_, interrupt)| interrupt);
        (self.connection.take(), leader)
    }

    /// Gives up whatever connection there is, as [`end`](Self::end).
    pub fn close(&mut self) -> (Option<C>, Option<I>) {
        self.end(self.number)
    }

    /// The connection, for whoever holds the lock and wants to read; `None` also for a broken one.
    #[inline]
    pub fn connection(&mut self) -> Option<&mut C> {
        self.connection.as_mut().filter(|it| !it.is_broken())
    }

    /// Connection `number`, also if it is broken; for the data task that brought it.
    pub fn connection_of(&mut self, number: u64) -> Option<&mut C> {
        self.connection.as_mut().filter(|_| self.number == number)
    }

    /// The connection, also a broken one.
    pub fn any_connection(&mut self) -> Option<&mut C> {
        self.connection.as_mut()
    }

    /// Takes the lead for a thread that found the ring empty, if nobody has it and the stream flows:
    /// for a slow one it is not worth the trouble, and its outlet may be gone without a word, which
    /// the data task must notice.
    #[inline]
    pub fn lead(&mut self, now: f64, interrupt: &I) -> Option<Lead> {
        if self.leader.is_some() || self.quiet_at() <= now || self.gap_secs >= QUIET_SECS {
            return None;
        }
        let connection = self.connection()?;
        let was_registered = connection.is_registered();
        if was_registered {
            connection.unregister();
        }
        self.last_id += 1;
        let id = LeaderId(self.last_id);
        self.leader = Some((id, interrupt.clone()));
        self.requested_at = f64::NEG_INFINITY;
        Some(Lead {
            id,
            was_registered,
            quiet_at: self.quiet_at(),
        })
    }

    /// Whether the lead is still that of `id`; it ends with the connection.
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

    /// The leader, to interrupt it.
    pub fn leader(&self) -> Option<&I> {
        self.leader.as_ref().map(|(_, interrupt)| interrupt)
    }

    /// When the stream counts as quiet, unless something arrives: until then a leader waits.
    #[inline]
    pub fn quiet_at(&self) -> f64 {
        self.last_arrival + QUIET_SECS
    }

    /// Samples were put into the ring at `now`.
    #[inline]
    pub fn on_read(&mut self, now: f64) {
        self.gap_secs = now - self.last_arrival;
        self.last_arrival = now;
    }

    /// Waiting for the socket failed: nobody leads until the stream has shown anew that it flows.
    pub fn back_off(&mut self) {
        self.gap_secs = f64::INFINITY;
    }

    /// A pull that does not wait has read, or tried to. Ends watching a stream that flows, unless
    /// somebody needs that (`is_prompt`); whether the data task must learn of it.
    pub fn on_caller_read(&mut self, now: f64, arrived: bool, is_prompt: bool) -> bool {
        self.was_read_by_caller = true;
        let keep = !arrived || is_prompt || self.is_requested(now);
        match self.connection() {
            Some(connection) if !keep && connection.is_registered() => {
                connection.unregister();
                true
            }
            _ => false,
        }
    }

    /// Somebody waits who cannot watch the socket: whether the data task must be woken to do so.
    pub fn request_reactor(&mut self, now: f64) -> bool {
        self.requested_at = now;
        // A leader wakes all who wait when it leaves, and then they ask again.
        self.leader.is_none() && self.connection().is_some_and(|it| !it.is_registered())
    }

    /// For the data task: whether the socket shall be watched. `is_prompt` if somebody waits.
    pub fn needs_reactor(&self, now: f64, is_prompt: bool) -> bool {
        is_prompt || self.is_requested(now)
    }

    /// For the data task, once per tick: whether callers read since the last, so that it may rest for
    /// another one. They had found the ring empty then: reading much beside them would only take the
    /// processor and the lock from them. Somebody who keeps looking for samples does not keep a stream
    /// that stopped from being watched: its outlet may be gone.
    pub fn is_read_by_callers(&mut self, now: f64) -> bool {
        let was_read_by_caller = std::mem::take(&mut self.was_read_by_caller);
        was_read_by_caller && now < self.quiet_at()
    }

    fn is_requested(&self, now: f64) -> bool {
        now - self.requested_at < PATIENCE_SECS
    }
}

/// A stream without samples for that long is slow. Waking a pull through the data task costs some
/// 10 µs of latency, which nobody notices at such rates.
const QUIET_SECS: f64 = 0.25;

/// How long the socket stays watched for the sake of somebody who waited: most wait again soon.
const PATIENCE_SECS: f64 = 0.5;

#[cfg(all(test, lsl_loom))]
mod loom;
#[cfg(test)]
mod tests;
