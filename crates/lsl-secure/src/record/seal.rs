//! Seals the records that this side sends.

use lsl_platform::fork::Generation;

use crate::kdf::Secret;
use crate::record::kind::{Kind, LEN_BYTES, MAX_ALERT_TEXT, PADDED, TAG_BYTES};
use crate::record::ratchet::Ratchet;
use crate::record::{MAX_PAYLOAD, RECORD_OVERHEAD};
use crate::session::require_own;
use crate::{Cause, Error, Result, Role, Suite};

/// Seals records in counter order. Returned bytes must be sent whole and in order, or the session
/// ended: sealing is commitment (§8.4). Updates its key by itself when due (§8.5).
///
/// After `fork` every call in the child fails with [`Cause::Internal`] (§8.6).
#[derive(Debug)]
pub struct Sealer {
    ratchet: Ratchet,
    role: Role,
    pad_to: u16,
    phase: Phase,
    /// Bytes on the wire under the present key.
    key_bytes: u64,
    /// Time of the present key's first use, as far as a caller passed the time.
    key_since: Option<f64>,
    totals: Totals,
    generation: Generation,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// An outlet before its DESCRIPTOR, which must be its first record (or ALERT its only one).
    Unintroduced,
    Open,
    Ended,
}

impl Sealer {
    /// Seals as `role` under the traffic secret of its direction.
    pub(crate) fn new(suite: Suite, secret: &Secret, role: Role, pad_to: u16) -> Self {
        Self {
            ratchet: Ratchet::new(suite, secret),
            role,
            pad_to,
            phase: match role {
                Role::Outlet => Phase::Unintroduced,
                Role::Inlet => Phase::Open,
            },
            key_bytes: 0,
            key_since: None,
            totals: Totals::default(),
            generation: Generation::current(),
        }
    }

    pub(crate) fn role(&self) -> Role {
        self.role
    }

    /// Appends `bytes` as DATA records to `out`, in as few records as possible; none for no bytes.
    /// `now` is `local_clock`, for the hourly key update.
    ///
    /// # Errors
    /// After CLOSE or ALERT, and in a forked child.
    pub fn seal_data(&mut self, bytes: &[u8], now: f64, out: &mut Vec<u8>) -> Result<()> {
        self.require_open()?;
        // All that a frame of some hundred bytes needs is this one record, and nothing else is paid.
        if self.is_routine(bytes.len(), now) {
            out.reserve(bytes.len() + RECORD_OVERHEAD);
            self.seal_now(Kind::Data, bytes, out)?;
            self.totals.bytes += len_u64(bytes);
            return Ok(());
        }
        self.seal_any(bytes, now, out)
    }

    /// Whether so many bytes make one record that needs neither padding nor a key update.
    #[inline]
    fn is_routine(&self, len: usize, now: f64) -> bool {
        // With the KEY_UPDATE that must still fit behind it.
        let wire_len = u64::try_from(len + 2 * RECORD_OVERHEAD).unwrap_or(u64::MAX);
        self.pad_to == 0
            && (1..=MAX_PAYLOAD).contains(&len)
            && self.ratchet.counter() < MOST_RECORDS - 1
            && self.key_bytes.saturating_add(wire_len) <= MOST_BYTES
            && self
                .key_since
                .is_some_and(|since| now - since < UPDATE_SECS)
    }

    /// DATA of any length, with all that may be due before it.
    #[inline(never)]
    pub(super) fn seal_any(&mut self, bytes: &[u8], now: f64, out: &mut Vec<u8>) -> Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        let most = self.most_payload();
        let records = bytes.len().div_ceil(most);
        out.reserve(bytes.len() + records * (RECORD_OVERHEAD + usize::from(self.pad_to)));
        for payload in bytes.chunks(most) {
            self.update_hourly(now, out)?;
            self.seal(Kind::Data, payload, out)?;
            self.totals.bytes += len_u64(payload);
        }
        Ok(())
    }

    /// Appends a KEY_UPDATE, after which the next key is in use.
    ///
    /// # Errors
    /// As [`seal_data`](Self::seal_data).
    pub fn seal_key_update(&mut self, out: &mut Vec<u8>) -> Result<()> {
        self.require_open()?;
        self.update(out)
    }

    /// Appends a PING (initiators only). `t0` is `local_clock`, and counts for the hourly key update.
    ///
    /// # Errors
    /// As [`seal_data`](Self::seal_data).
    pub fn seal_ping(&mut self, t0: f64, out: &mut Vec<u8>) -> Result<()> {
        self.require_role(Role::Inlet)?;
        self.require_open()?;
        self.update_hourly(t0, out)?;
        self.seal(Kind::Ping, &t0.to_be_bytes(), out)
    }

    /// Appends a PONG (responders only): t0, t1, t2 in seconds of `local_clock`. t2 counts for the
    /// hourly key update.
    ///
    /// # Errors
    /// As [`seal_data`](Self::seal_data).
    pub fn seal_pong(&mut self, times: [f64; 3], out: &mut Vec<u8>) -> Result<()> {
        self.require_role(Role::Outlet)?;
        self.require_open()?;
        let [t0, t1, t2] = times;
        self.update_hourly(t2, out)?;
        let mut payload = [0; 24];
        for (to, time) in payload.chunks_exact_mut(8).zip([t0, t1, t2]) {
            to.copy_from_slice(&time.to_be_bytes());
        }
        self.seal(Kind::Pong, &payload, out)
    }

    /// Appends CLOSE, the last record of this direction.
    ///
    /// # Errors
    /// As [`seal_data`](Self::seal_data).
    pub fn seal_close(&mut self, out: &mut Vec<u8>) -> Result<()> {
        self.require_open()?;
        self.seal(Kind::Close, &[0], out)?;
        self.end();
        Ok(())
    }

    /// Appends ALERT, the last record of this direction. `text` is cut to 255 bytes.
    ///
    /// # Errors
    /// As [`seal_data`](Self::seal_data).
    pub fn seal_alert(&mut self, cause: Cause, text: &str, out: &mut Vec<u8>) -> Result<()> {
        require_own(self.generation)?;
        if self.phase == Phase::Ended {
            return Err(ended());
        }
        let text = cut(text, MAX_ALERT_TEXT);
        let mut payload = Vec::with_capacity(1 + text.len());
        payload.push(cause.code());
        payload.extend_from_slice(text.as_bytes());
        self.seal(Kind::Alert, &payload, out)?;
        self.end();
        Ok(())
    }

    /// Appends the DESCRIPTOR, the first record of an outlet.
    ///
    /// # Errors
    /// For an inlet, a second one, a payload that fits no record, and in a forked child.
    pub(crate) fn seal_descriptor(&mut self, payload: &[u8], out: &mut Vec<u8>) -> Result<()> {
        self.require_role(Role::Outlet)?;
        require_own(self.generation)?;
        if self.phase != Phase::Unintroduced {
            return Err(internal("DESCRIPTOR must be the first record"));
        }
        if payload.len() > self.most_payload() {
            return Err(internal("DESCRIPTOR does not fit into a record"));
        }
        self.seal(Kind::Descriptor, payload, out)?;
        self.phase = Phase::Open;
        Ok(())
    }

    /// Records and bytes of DATA sealed so far, and key updates made.
    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// One record, after a key update if this would be one of the last under its key.
    #[inline(never)]
    fn seal(&mut self, kind: Kind, payload: &[u8], out: &mut Vec<u8>) -> Result<()> {
        let room_for_update = self.wire_len(0);
        let wire_len = self.wire_len(payload.len());
        if self.ratchet.counter() >= MOST_RECORDS - 1
            || self.key_bytes + wire_len + room_for_update > MOST_BYTES
        {
            self.update(out)?;
        }
        self.seal_now(kind, payload, out)
    }

    fn update_hourly(&mut self, now: f64, out: &mut Vec<u8>) -> Result<()> {
        let since = *self.key_since.get_or_insert(now);
        if now - since >= UPDATE_SECS {
            self.update(out)?;
            self.key_since = Some(now);
        }
        Ok(())
    }

    #[cold]
    #[inline(never)]
    fn update(&mut self, out: &mut Vec<u8>) -> Result<()> {
        self.seal_now(Kind::KeyUpdate, &[], out)?;
        self.ratchet.update();
        self.key_bytes = 0;
        // The next record that knows the time starts the hour.
        self.key_since = None;
        self.totals.key_updates += 1;
        Ok(())
    }

    /// Builds and seals one record under the present key at the end of `out`. Inlined into its few
    /// callers: cold code costs more than the cipher.
    #[expect(
        clippy::inline_always,
        reason = "measured: fewer cache lines on the way of a record"
    )]
    #[inline(always)]
    fn seal_now(&mut self, kind: Kind, payload: &[u8], out: &mut Vec<u8>) -> Result<()> {
        let start = out.len();
        let padding = self.padding(payload.len());
        let Ok(len) = u16::try_from(1 + payload.len() + padding + TAG_BYTES) else {
            return Err(internal("a payload that fits no record"));
        };
        let len = len.to_be_bytes();
        let [high, low] = len;
        let padded = if padding > 0 { PADDED } else { 0 };
        out.extend_from_slice(&[high, low, kind.byte() | padded]);
        out.extend_from_slice(payload);
        if padding > 0 {
            pad(padding, out)?;
        }
        let sealed = out
            .get_mut(start + LEN_BYTES..)
            .and_then(|text| self.ratchet.seal(&len, text));
        let Some(tag) = sealed else {
            return Err(self.abandon(start, out));
        };
        out.extend_from_slice(&tag);
        self.key_bytes += len_u64(out.get(start..).unwrap_or_default());
        self.totals.records += 1;
        Ok(())
    }

    /// Removes the record: no plaintext may be left for a caller who sends `out` all the same.
    #[cold]
    #[inline(never)]
    fn abandon(&mut self, start: usize, out: &mut Vec<u8>) -> Error {
        out.truncate(start);
        self.end();
        Error::session(Cause::KeyLimit, "the record counter ended")
    }

    /// Bytes of padding, with their length field, behind `payload` bytes.
    #[inline]
    fn padding(&self, payload: usize) -> usize {
        if self.pad_to == 0 {
            return 0;
        }
        padding_to(self.pad_to, payload)
    }

    /// Bytes on the wire of a record with this much payload.
    fn wire_len(&self, payload: usize) -> u64 {
        let len = payload + self.padding(payload) + RECORD_OVERHEAD;
        u64::try_from(len).unwrap_or(u64::MAX)
    }

    fn most_payload(&self) -> usize {
        if self.pad_to == 0 {
            MAX_PAYLOAD
        } else {
            MAX_PAYLOAD - LEN_BYTES
        }
    }

    #[inline]
    fn require_open(&self) -> Result<()> {
        require_own(self.generation)?;
        match self.phase {
            Phase::Open => Ok(()),
            Phase::Unintroduced => Err(internal("nothing may be sent before DESCRIPTOR")),
            Phase::Ended => Err(ended()),
        }
    }

    fn require_role(&self, role: Role) -> Result<()> {
        if self.role == role {
            Ok(())
        } else {
            Err(internal("a record that only the other side may send"))
        }
    }

    pub(crate) fn end(&mut self) {
        self.phase = Phase::Ended;
        self.ratchet.end();
    }

    #[cfg(test)]
    pub(super) fn ratchet(&mut self) -> &mut Ratchet {
        &mut self.ratchet
    }

    /// Acts as if DESCRIPTOR had never been due.
    #[cfg(test)]
    pub(crate) fn skip_descriptor(&mut self) {
        self.phase = Phase::Open;
        self.ratchet.set_counter(0);
    }

    #[cfg(test)]
    pub(super) fn set_key_bytes(&mut self, bytes: u64) {
        self.key_bytes = bytes;
    }
}

/// Sums of one direction of a session.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// Number of records of all types.
    pub records: u64,
    /// Payload bytes of DATA records, without padding.
    pub bytes: u64,
    /// Number of KEY_UPDATE records: changes of the key.
    pub key_updates: u64,
}

/// The beginning of `text`, at most `most` bytes, cut between characters.
fn cut(text: &str, most: usize) -> &str {
    let end = text
        .char_indices()
        .map(|(at, character)| at + character.len_utf8())
        .take_while(|&end| end <= most)
        .last();
    text.get(..end.unwrap_or(0)).unwrap_or_default()
}

fn len_u64(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}

/// Padding that fills `payload` bytes up to a multiple of `pad_to`, if a record has room for it.
#[inline(never)]
fn padding_to(pad_to: u16, payload: usize) -> usize {
    let padded = (payload + LEN_BYTES).next_multiple_of(usize::from(pad_to));
    padded.min(MAX_PAYLOAD).saturating_sub(payload)
}

/// Appends so much padding, its length field included.
#[inline(never)]
fn pad(padding: usize, out: &mut Vec<u8>) -> Result<()> {
    let pad_len = u16::try_from(padding).map_err(|_| internal("too much padding"))?;
    out.resize(out.len() + padding - LEN_BYTES, 0);
    out.extend_from_slice(&pad_len.to_be_bytes());
    Ok(())
}

#[cold]
#[inline(never)]
fn ended() -> Error {
    internal("nothing may be sent after CLOSE or ALERT")
}

#[cold]
#[inline(never)]
fn internal(detail: &'static str) -> Error {
    Error::session(Cause::Internal, detail)
}

/// Records under one key, its KEY_UPDATE included.
pub(super) const MOST_RECORDS: u64 = 1 << 22;

/// Bytes on the wire under one key, its KEY_UPDATE included.
pub(super) const MOST_BYTES: u64 = 1 << 34;

/// Age of a key at which the next record updates it.
pub(super) const UPDATE_SECS: f64 = 3600.0;
