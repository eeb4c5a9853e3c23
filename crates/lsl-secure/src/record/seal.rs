//! Sealing: what this side sends.

use crate::kdf::Secret;
use crate::{Cause, Result, Role, Suite};

/// Seals records in counter order. What it returned must be sent whole and in order, or the session
/// ended: sealing is commitment (§8.4). Updates its key by itself when due (§8.5).
///
/// After `fork` every call in the child fails with [`Cause::Internal`] (§8.6).
#[derive(Debug)]
pub struct Sealer {
    _todo: (),
}

impl Sealer {
    /// Seals as `role` under the traffic secret of its direction.
    pub(crate) fn new(_suite: Suite, _secret: &Secret, _role: Role, _pad_to: u16) -> Self {
        unimplemented!()
    }

    /// Appends `bytes` as DATA records to `out`, in as few records as possible. `now` is
    /// `local_clock`, for the hourly key update.
    ///
    /// # Errors
    /// After CLOSE or ALERT, and in a forked child.
    pub fn seal_data(&mut self, _bytes: &[u8], _now: f64, _out: &mut Vec<u8>) -> Result<()> {
        unimplemented!()
    }

    /// Appends a KEY_UPDATE, after which the next key is in use.
    ///
    /// # Errors
    /// As [`seal_data`](Self::seal_data).
    pub fn seal_key_update(&mut self, _out: &mut Vec<u8>) -> Result<()> {
        unimplemented!()
    }

    /// Appends a PING (initiators only).
    ///
    /// # Errors
    /// As [`seal_data`](Self::seal_data).
    pub fn seal_ping(&mut self, _t0: f64, _out: &mut Vec<u8>) -> Result<()> {
        unimplemented!()
    }

    /// Appends a PONG (responders only): t0, t1, t2 in seconds of `local_clock`.
    ///
    /// # Errors
    /// As [`seal_data`](Self::seal_data).
    pub fn seal_pong(&mut self, _times: [f64; 3], _out: &mut Vec<u8>) -> Result<()> {
        unimplemented!()
    }

    /// Appends CLOSE, the last record of this direction.
    ///
    /// # Errors
    /// As [`seal_data`](Self::seal_data).
    pub fn seal_close(&mut self, _out: &mut Vec<u8>) -> Result<()> {
        unimplemented!()
    }

    /// Appends DESCRIPTOR, the first record of a responder.
    pub(crate) fn seal_descriptor(&mut self, _payload: &[u8], _out: &mut Vec<u8>) -> Result<()> {
        unimplemented!()
    }

    /// Appends ALERT, the last record of this direction. `text` is cut to 255 bytes.
    ///
    /// # Errors
    /// As [`seal_data`](Self::seal_data).
    pub fn seal_alert(&mut self, _cause: Cause, _text: &str, _out: &mut Vec<u8>) -> Result<()> {
        unimplemented!()
    }

    /// Records and bytes of DATA sealed so far, and key updates made.
    pub fn totals(&self) -> Totals {
        unimplemented!()
    }
}

/// What one direction has carried.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// Records of all types.
    pub records: u64,
    /// Payload bytes of DATA.
    pub bytes: u64,
    /// KEY_UPDATE records.
    pub key_updates: u64,
}
