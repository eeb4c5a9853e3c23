//! How many handshakes one process bears, and whose turn it is: pure bookkeeping with a clock passed
//! in. Spec: LSS/1 §6.2.

use std::net::IpAddr;

/// Limits of one process, over all its outlets.
#[derive(Debug)]
pub struct Admission {
    _todo: (),
}

/// One connection that is not authenticated yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Ticket(u64);

/// What to do with a new connection.
#[derive(Debug, PartialEq, Eq)]
pub enum Arrival {
    /// Serve it. If there is a second ticket, close that connection (with 503 before M2): it is the
    /// oldest of the source that has most.
    Serve(Ticket, Option<Ticket>),
    /// Answer 503: its source has too many.
    Refuse,
}

/// Whether asymmetric work may start.
#[derive(Debug, PartialEq)]
pub enum Turn {
    /// Yes; a token is taken.
    Now,
    /// Ask again at this time (`local_clock`), or when told by [`Admission::next`].
    Wait(f64),
}

impl Admission {
    /// `max_pending` is min(1024, RLIMIT_NOFILE/4).
    pub fn new(_max_pending: usize) -> Self {
        unimplemented!()
    }

    /// A connection was accepted.
    pub fn arrive(&mut self, _source: IpAddr, _now: f64) -> Arrival {
        unimplemented!()
    }

    /// M1 is complete and wants its asymmetric work. Round robin over sources, known ones first.
    pub fn turn(&mut self, _ticket: Ticket, _now: f64) -> Turn {
        unimplemented!()
    }

    /// M3 was accepted: the token comes back and the source is known for 10 minutes.
    pub fn succeeded(&mut self, _ticket: Ticket, _now: f64) {
        unimplemented!()
    }

    /// The connection ended before M3 was accepted.
    pub fn failed(&mut self, _ticket: Ticket, _now: f64) {
        unimplemented!()
    }

    /// Connections that are not authenticated now.
    pub fn pending(&self) -> usize {
        unimplemented!()
    }
}
