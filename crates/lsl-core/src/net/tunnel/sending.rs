//! The direction to the peer: sealed and sent in counter order, whole, within a limit.
//! Spec: LSS/1 §8.4.

use std::io;

use lsl_platform::clock::local_clock;
use lsl_secure::{Cause, Sealer};

/// The direction to the peer, under one lock.
#[derive(Debug)]
pub(super) struct Sending {
    pub(super) sealer: Sealer,
    /// Sealed bytes, of which those from `sent` on wait for the socket.
    pub(super) out: Vec<u8>,
    pub(super) sent: usize,
    /// The newest PING without an answer.
    pub(super) pong: Option<Pong>,
    /// CLOSE or ALERT was sealed.
    pub(super) last: bool,
    /// It was CLOSE.
    pub(super) closed: bool,
    pub(super) failure: Option<Cause>,
    pub(super) told_key_updates: u64,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Pong {
    pub(super) t0: f64,
    pub(super) t1: f64,
}

impl Sending {
    pub(super) fn new(sealer: Sealer) -> Self {
        Self {
            sealer,
            out: Vec::new(),
            sent: 0,
            pong: None,
            last: false,
            closed: false,
            failure: None,
            told_key_updates: 0,
        }
    }

    pub(super) fn unsent(&self) -> usize {
        self.out.len() - self.sent
    }

    /// The session failed: not a byte more, not even a goodbye.
    pub(super) fn fail(&mut self, cause: Cause) {
        self.failure = self.failure.or(Some(cause));
        self.last = true;
        self.pong = None;
        self.out.clear();
        self.sent = 0;
    }

    pub(super) fn send(
        &mut self,
        bytes: &[u8],
        write: &mut impl FnMut(&[u8]) -> io::Result<usize>,
    ) -> io::Result<usize> {
        if self.last {
            return Err(io::ErrorKind::NotConnected.into());
        }
        if !self.flush(write)? {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let mut sealed = 0;
        for now in bytes.chunks(MAX_SEALED_AT_ONCE) {
            self.sealer
                .seal_data(now, local_clock(), &mut self.out)
                .map_err(|error| io::Error::new(io::ErrorKind::NotConnected, error))?;
            sealed += now.len();
            debug_assert!(self.unsent() <= MAX_UNSENT_BYTES, "sealed too much");
            if !self.flush(write)? {
                break;
            }
        }
        Ok(sealed)
    }

    /// Writes until nothing is left (true) or the socket is full. A PONG that is due goes before
    /// anything that is not sealed yet.
    pub(super) fn flush(
        &mut self,
        write: &mut impl FnMut(&[u8]) -> io::Result<usize>,
    ) -> io::Result<bool> {
        loop {
            while self.sent < self.out.len() {
                match write(&self.out[self.sent..]) {
                    Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                    Ok(sent) => self.sent += sent,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                    Err(error) => return Err(error),
                }
            }
            self.out.clear();
            self.sent = 0;
            match self.pong.take() {
                Some(Pong { t0, t1 }) if !self.last => self
                    .sealer
                    .seal_pong([t0, t1, local_clock()], &mut self.out)
                    .map_err(|error| io::Error::new(io::ErrorKind::NotConnected, error))?,
                _ => return Ok(true),
            }
        }
    }

    pub(super) fn has_news(&self) -> bool {
        self.sealer.totals().key_updates != self.told_key_updates
    }

    pub(super) fn take_news(&mut self) -> u64 {
        let updates = self.sealer.totals().key_updates;
        updates - std::mem::replace(&mut self.told_key_updates, updates)
    }
}

/// Bytes of DATA that are sealed at a time.
pub(super) const MAX_SEALED_AT_ONCE: usize = 48 * 1024;

/// Sealed bytes that may wait for a socket: DATA, and on top of it PONG, KEY_UPDATE, ALERT or CLOSE,
/// each padded to 4096 bytes at most. Spec: LSS/1 §8.4.
pub(super) const MAX_UNSENT_BYTES: usize = 64 * 1024;
