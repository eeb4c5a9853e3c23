//! Authenticated clock probes over UDP with the keys of a live session. Spec: LSS/1 §9.

use crate::kdf::Secret;
use crate::{Result, SessionId};

/// Every packet of both directions has this size.
pub const TIME_PACKET_LEN: usize = 79;

/// What every packet starts with.
pub const TIME_PREFIX: &[u8; 15] = b"LSL:timesec/1\r\n";

/// The time keys of a session, before it is known which side uses them. Erased on drop.
#[derive(Debug)]
pub struct TimeKeys {
    _todo: (),
}

impl TimeKeys {
    /// `time_i` and `time_r` of the session.
    pub(crate) fn new(_session: SessionId, _initiator: Secret, _responder: Secret) -> Self {
        unimplemented!()
    }

    /// For the inlet.
    pub fn into_prober(self) -> TimeProber {
        unimplemented!()
    }

    /// For the outlet.
    pub fn into_responder(self) -> TimeResponder {
        unimplemented!()
    }
}

/// The first 8 bytes of the session id in a packet of the right length and prefix.
pub fn session_prefix(_packet: &[u8]) -> Option<[u8; 8]> {
    unimplemented!()
}

/// The inlet's side: counts its probes and accepts one reply for each.
#[derive(Debug)]
pub struct TimeProber {
    _todo: (),
}

/// An authentic reply. All in seconds: t0 and arrival of the inlet's clock, t1 and t2 of the outlet's.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TimeReply {
    /// When the probe was sent.
    pub t0: f64,
    /// When it arrived.
    pub t1: f64,
    /// When the reply was sealed.
    pub t2: f64,
}

impl TimeProber {
    /// A probe that leaves now (`t0`).
    ///
    /// # Errors
    /// After 2^32 probes, and in a forked child.
    pub fn probe(&mut self, _t0: f64) -> Result<[u8; TIME_PACKET_LEN]> {
        unimplemented!()
    }

    /// Takes a packet that arrived at `now`. `None` for everything that is not an authentic first
    /// reply, within `max_rtt_secs`, to one of our probes: dropped and counted in [`dropped`](Self::dropped).
    pub fn receive(&mut self, _packet: &[u8], _now: f64, _max_rtt_secs: f64) -> Option<TimeReply> {
        unimplemented!()
    }

    /// Packets dropped so far.
    pub fn dropped(&self) -> u64 {
        unimplemented!()
    }
}

/// The outlet's side: a replay window, and answers of the same size.
#[derive(Debug)]
pub struct TimeResponder {
    _todo: (),
}

impl TimeResponder {
    /// The key to find it by: [`session_prefix`] of its packets.
    pub fn prefix(&self) -> [u8; 8] {
        unimplemented!()
    }

    /// Answers a packet that arrived at `t1`; `t2` is read just before sealing. `None` for
    /// everything that is not authentic and new.
    pub fn answer(
        &mut self,
        _packet: &[u8],
        _t1: f64,
        _t2: impl FnOnce() -> f64,
    ) -> Option<[u8; TIME_PACKET_LEN]> {
        unimplemented!()
    }

    /// Packets dropped so far.
    pub fn dropped(&self) -> u64 {
        unimplemented!()
    }
}
