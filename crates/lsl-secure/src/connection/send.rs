//! The direction to the peer: sealed and sent in counter order, whole, within a limit.
//! Spec: LSS/1 §8.4.

use std::io;
use std::sync::Arc;

use lsl_platform::fork::Generation;

use super::SessionInfo;
use crate::{Cause, Error, Result, Role, Sealer, Totals};

/// The direction to the peer. Seals and writes in one call, so that the order of counters is the
/// order on the wire. In a forked child it writes nothing.
#[derive(Debug)]
pub struct SendHalf {
    info: Arc<SessionInfo>,
    sealer: Sealer,
    out: Unsent,
    /// t0 and t1 of the newest PING without an answer, and what to add to t2.
    pong: Option<[f64; 3]>,
    /// CLOSE or ALERT was sealed, or nothing may be sealed any more.
    has_ended: bool,
    /// CLOSE was sealed, so that this direction ends properly.
    has_closed: bool,
    failure: Option<Cause>,
    reported_key_updates: u64,
}

impl SendHalf {
    pub(super) fn new(sealer: Sealer, info: Arc<SessionInfo>) -> Self {
        Self {
            info,
            sealer,
            out: Unsent::default(),
            pong: None,
            has_ended: false,
            has_closed: false,
            failure: None,
            reported_key_updates: 0,
        }
    }

    /// Returns the facts of the session.
    pub fn info(&self) -> &Arc<SessionInfo> {
        &self.info
    }

    /// Seals what there is room for and writes what `write` takes. Returns how many of `bytes` were
    /// sealed: they count as sent.
    ///
    /// # Errors
    /// `WouldBlock` while sealed bytes wait; `NotConnected` after the end and in a forked child; those
    /// of `write`.
    pub fn send(
        &mut self,
        bytes: &[u8],
        now: impl Fn() -> f64,
        mut write: impl FnMut(&[u8]) -> io::Result<usize>,
    ) -> io::Result<usize> {
        if self.has_ended {
            return Err(io::ErrorKind::NotConnected.into());
        }
        let is_idle = self.out.is_empty() && self.pong.is_none();
        if !is_idle && !self.flush(&now, &mut write)? {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let mut sealed = 0;
        for piece in bytes.chunks(MOST_SEALED_AT_ONCE) {
            self.sealer
                .seal_data(piece, now(), &mut self.out.bytes)
                .map_err(not_connected)?;
            sealed += piece.len();
            debug_assert!(self.unsent() <= MAX_UNSENT_BYTES, "sealed too much");
            if !self.out.write_to(&mut write)? {
                break;
            }
        }
        Ok(sealed)
    }

    /// Writes until nothing is left (true) or the socket is full. A PONG that is due goes before
    /// anything that is not sealed yet; its t2 is the time of sealing.
    ///
    /// # Errors
    /// `NotConnected` in a forked child; those of `write`.
    pub fn flush(
        &mut self,
        now: impl Fn() -> f64,
        mut write: impl FnMut(&[u8]) -> io::Result<usize>,
    ) -> io::Result<bool> {
        while self.out.write_to(&mut write)? {
            match self.pong.take() {
                Some([t0, t1, shift]) if !self.has_ended => self
                    .sealer
                    .seal_pong([t0, t1, now() + shift], &mut self.out.bytes)
                    .map_err(not_connected)?,
                _ => return Ok(true),
            }
        }
        Ok(false)
    }

    /// Seals a PING (initiators only), unless sealed bytes wait: behind them it would be of no use.
    ///
    /// # Errors
    /// For a responder, after the end, and in a forked child.
    pub fn ping(&mut self, t0: f64) -> Result<()> {
        if self.out.is_empty() {
            self.sealer.seal_ping(t0, &mut self.out.bytes)
        } else {
            Ok(())
        }
    }

    /// Answers a PING with the next [`flush`](Self::flush) (responders only). Older ones that have no
    /// answer yet get none.
    pub fn pong(&mut self, t0: f64, t1: f64) {
        self.pong_shifted(t0, t1, 0.0);
    }

    /// Answers a PING in another clock, as [`pong`](Self::pong) does in ours: `t1` is of that clock, and to t2 so many
    /// seconds are added. Spec: relay §7.
    pub fn pong_shifted(&mut self, t0: f64, t1: f64, t2_shift_secs: f64) {
        self.pong = Some([t0, t1, t2_shift_secs]);
    }

    /// Seals CLOSE, if nothing ended this direction before.
    pub fn close(&mut self) {
        if !self.has_ended {
            self.has_ended = true;
            self.has_closed = self.sealer.seal_close(&mut self.out.bytes).is_ok();
        }
    }

    /// Seals an ALERT, if nothing ended this direction before.
    pub fn alert(&mut self, cause: Cause) {
        self.failure.get_or_insert(cause);
        if !self.has_ended {
            self.has_ended = true;
            let text = match self.sealer.role() {
                Role::Outlet => cause.name(),
                Role::Inlet => "",
            };
            // Fails in a forked child only, which must stay silent.
            let _ = self.sealer.seal_alert(cause, text, &mut self.out.bytes);
        }
    }

    /// Ends this direction because of an error of the session: with an ALERT where §6.1 has one, else
    /// without a byte more.
    pub fn fail(&mut self, error: &Error) {
        let cause = error.cause();
        match error {
            Error::Session { .. } if cause.is_alerted() => self.alert(cause),
            // The peer is authentic and what it said is wrong: it is told nothing but the end.
            Error::Session { .. } if cause == Cause::Malformed => self.close(),
            _ => {
                self.failure.get_or_insert(cause);
                self.has_ended = true;
                self.sealer.end();
                self.pong = None;
                self.out.clear();
            }
        }
    }

    /// Returns how many sealed bytes wait for the socket.
    pub fn unsent(&self) -> usize {
        self.out.len()
    }

    /// Whether CLOSE, ALERT or a failure has ended this direction.
    pub fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Returns whether CLOSE was sealed and written completely.
    pub fn is_closed(&self) -> bool {
        self.has_closed && self.out.is_empty()
    }

    /// Returns the first cause of a failure.
    pub fn failure(&self) -> Option<Cause> {
        self.failure
    }

    /// Returns the sums of the sealed records.
    pub fn totals(&self) -> Totals {
        self.sealer.totals()
    }

    /// Whether keys were changed that [`take_key_updates`](Self::take_key_updates) has not reported.
    pub fn has_key_updates(&self) -> bool {
        self.sealer.totals().key_updates != self.reported_key_updates
    }

    /// Returns the number of key changes since the last call.
    pub fn take_key_updates(&mut self) -> u64 {
        let updates = self.sealer.totals().key_updates;
        updates - std::mem::replace(&mut self.reported_key_updates, updates)
    }
}

/// Queues bytes that wait for the socket of the process that made them.
#[derive(Debug)]
pub struct Unsent {
    bytes: Vec<u8>,
    /// Length of the prefix of `bytes` that was written.
    sent: usize,
    generation: Generation,
}

impl Default for Unsent {
    fn default() -> Self {
        Self {
            bytes: Vec::new(),
            sent: 0,
            generation: Generation::current(),
        }
    }
}

impl Unsent {
    /// Returns the number of bytes.
    pub fn len(&self) -> usize {
        self.bytes.len() - self.sent
    }

    /// Returns whether every byte was written.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Drops all bytes without writing them, and the memory of exceptionally many.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.sent = 0;
        if self.bytes.capacity() > MOST_BYTES_KEPT {
            self.bytes = Vec::new();
        }
    }

    /// Appends `bytes`; the next write sends them.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Writes until nothing is left (true) or the socket is full.
    ///
    /// # Errors
    /// `NotConnected` in a forked child; `WriteZero` if `write` takes nothing; those of `write`, but
    /// `WouldBlock`.
    pub fn write_to(
        &mut self,
        write: &mut impl FnMut(&[u8]) -> io::Result<usize>,
    ) -> io::Result<bool> {
        if !self.generation.is_current() {
            return Err(io::ErrorKind::NotConnected.into());
        }
        while let Some(rest @ [_, ..]) = self.bytes.get(self.sent..) {
            match write(rest) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => self.sent += written.min(rest.len()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        self.clear();
        Ok(true)
    }
}

fn not_connected(error: Error) -> io::Error {
    io::Error::new(io::ErrorKind::NotConnected, error)
}

/// Bytes of DATA that are sealed at a time.
const MOST_SEALED_AT_ONCE: usize = 48 * 1024;

/// Sealed bytes that may wait for a socket: DATA, and on top of it PONG, KEY_UPDATE, ALERT or CLOSE,
/// each padded to 4096 bytes at most. Spec: LSS/1 §8.4.
pub(super) const MAX_UNSENT_BYTES: usize = 64 * 1024;

/// Memory that a queue keeps for the next bytes.
const MOST_BYTES_KEPT: usize = 2 * MAX_UNSENT_BYTES;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_of_exceptionally_many_bytes_goes_back() {
        let mut unsent = Unsent::default();
        let mut write = |bytes: &[u8]| Ok(bytes.len());
        unsent.push(&vec![0; MAX_UNSENT_BYTES]);
        assert!(unsent.write_to(&mut write).unwrap());
        assert!(unsent.bytes.capacity() >= MAX_UNSENT_BYTES);
        unsent.push(&vec![0; MOST_BYTES_KEPT + 1]);
        assert!(unsent.write_to(&mut write).unwrap());
        assert_eq!(unsent.bytes.capacity(), 0);
    }
}
