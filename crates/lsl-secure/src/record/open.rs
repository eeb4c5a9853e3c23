//! Opens the records that the peer sends.

use std::borrow::Cow;
use std::mem;

use lsl_platform::fork::Generation;

use crate::audit::printable;
use crate::kdf::Secret;
use crate::record::kind::{Kind, LEN_BYTES, MAX_ALERT_TEXT, PADDED, TAG_BYTES};
use crate::record::ratchet::Ratchet;
use crate::record::{MAX_RECORD_LEN, Totals};
use crate::session::require_own;
use crate::{Cause, Error, Result, Role, Suite};

/// One record that the peer sent. Key updates are followed silently.
#[derive(Debug, PartialEq)]
#[non_exhaustive]
pub enum Record<'a> {
    /// Bytes of the LSL stream.
    Data(&'a [u8]),
    /// The outlet's DESCRIPTOR payload (only the first record an initiator receives).
    Descriptor(&'a [u8]),
    /// The inlet asks for a PONG with this t0.
    Ping(f64),
    /// The outlet's answer: t0, t1, t2.
    Pong([f64; 3]),
    /// The authenticated end of this direction. Nothing follows.
    Close,
    /// The peer ends the session. Its text is as it was sent: escape it before showing it.
    Alert(Cause, &'a str),
}

/// Opens the peer's records in order. Every failure is final.
///
/// After `fork` every call in the child fails with [`Cause::Internal`].
#[derive(Debug)]
pub struct Opener {
    ratchet: Ratchet,
    /// Role of this side, not the peer's.
    role: Role,
    phase: Phase,
    /// The beginning of a record whose rest has not come yet.
    partial: Vec<u8>,
    updates: RecentUpdates,
    totals: Totals,
    generation: Generation,
}

#[derive(Debug)]
enum Phase {
    /// An inlet before the outlet's DESCRIPTOR, which confirms the keys.
    Unintroduced,
    Open,
    Closed,
    Failed {
        cause: Cause,
        detail: Cow<'static, str>,
    },
}

impl Opener {
    /// Opens the records of the peer of `role` (this side) under the traffic secret of their
    /// direction. An inlet expects DESCRIPTOR (or ALERT) first.
    pub(crate) fn new(suite: Suite, secret: &Secret, role: Role) -> Self {
        Self {
            ratchet: Ratchet::new(suite, secret),
            role,
            phase: match role {
                Role::Inlet => Phase::Unintroduced,
                Role::Outlet => Phase::Open,
            },
            partial: Vec::new(),
            updates: RecentUpdates::default(),
            totals: Totals::default(),
            generation: Generation::current(),
        }
    }

    /// Takes bytes as they come from the socket, cut anywhere, and hands on every complete record,
    /// opened in place. The rest of an incomplete one is kept (at most one record). An error of
    /// `on_record` ends the session like one of ours. `now` is `local_clock`, for the rate limit of
    /// key updates. Afterwards the content of `bytes` is undefined.
    ///
    /// # Errors
    /// [`Cause::RecordAuthFailed`], [`Cause::RecordOverflow`], [`Cause::UnexpectedRecord`],
    /// [`Cause::KeyLimit`], and [`Error::Alert`] right after [`Record::Alert`] was handed on; the
    /// same cause again on every later call.
    pub fn receive(
        &mut self,
        bytes: &mut [u8],
        now: f64,
        mut on_record: impl FnMut(Record<'_>) -> Result<()>,
    ) -> Result<()> {
        require_own(self.generation)?;
        if matches!(self.phase, Phase::Failed { .. }) {
            return self.end();
        }
        let received = self.receive_all(bytes, now, &mut on_record);
        if let Err(error) = &received {
            self.fail(error);
        }
        received
    }

    /// The connection ended: fine after CLOSE.
    ///
    /// # Errors
    /// [`Cause::Truncated`] otherwise, or the failure that came before.
    pub fn end(&self) -> Result<()> {
        require_own(self.generation)?;
        match &self.phase {
            Phase::Closed => Ok(()),
            Phase::Failed { cause, detail } => Err(Error::session(*cause, detail.clone())),
            Phase::Unintroduced | Phase::Open => Err(Error::session(
                Cause::Truncated,
                "the connection ended without CLOSE",
            )),
        }
    }

    /// Returns the sums of all records opened so far.
    pub fn totals(&self) -> Totals {
        self.totals
    }

    fn receive_all(
        &mut self,
        mut bytes: &mut [u8],
        now: f64,
        on_record: &mut impl FnMut(Record<'_>) -> Result<()>,
    ) -> Result<()> {
        while !bytes.is_empty() {
            if matches!(self.phase, Phase::Closed) {
                return Err(unexpected("something after CLOSE"));
            }
            // Whole records are opened where they lie; only the last one may have to be kept.
            let whole = if self.partial.is_empty() {
                record_len(bytes)?.filter(|&len| len <= bytes.len())
            } else {
                None
            };
            let Some(whole) = whole else {
                bytes = self.complete_partial(bytes, now, on_record)?;
                continue;
            };
            let (record, rest) = bytes.split_at_mut(whole);
            self.open(record, now, on_record)?;
            bytes = rest;
        }
        Ok(())
    }

    /// Moves bytes into `partial` until it holds a whole record, and opens that.
    #[inline(never)]
    fn complete_partial<'a>(
        &mut self,
        bytes: &'a mut [u8],
        now: f64,
        on_record: &mut impl FnMut(Record<'_>) -> Result<()>,
    ) -> Result<&'a mut [u8]> {
        let wanted = record_len(&self.partial)?.unwrap_or(LEN_BYTES);
        let missing = wanted.saturating_sub(self.partial.len()).min(bytes.len());
        let (more, rest) = bytes.split_at_mut(missing);
        self.partial
            .reserve_exact(wanted.saturating_sub(self.partial.len()));
        self.partial.extend_from_slice(more);
        if record_len(&self.partial)? == Some(self.partial.len()) {
            let mut record = mem::take(&mut self.partial);
            self.open(&mut record, now, on_record)?;
            // The memory stays: a fast stream leaves a partial record after every read.
            record.clear();
            self.partial = record;
        }
        Ok(rest)
    }

    /// Opens one whole record, with its length field. DATA goes straight on, everything else a way of
    /// its own: cold code costs more than the cipher.
    #[inline]
    fn open(
        &mut self,
        record: &mut [u8],
        now: f64,
        on_record: &mut impl FnMut(Record<'_>) -> Result<()>,
    ) -> Result<()> {
        if self.ratchet.counter() >= MOST_RECORDS {
            return Err(too_many_records());
        }
        let Some((&mut len, text)) = record.split_first_chunk_mut::<LEN_BYTES>() else {
            return Err(auth_failed());
        };
        let Some(text) = self.ratchet.open(&len, text) else {
            return Err(auth_failed());
        };
        match text {
            [DATA, payload @ ..] if !payload.is_empty() && matches!(self.phase, Phase::Open) => {
                self.totals.records += 1;
                self.totals.bytes += u64::try_from(payload.len()).unwrap_or(u64::MAX);
                on_record(Record::Data(payload))
            }
            _ => self.handle(text, now, on_record),
        }
    }

    /// A record that is not just DATA.
    #[cold]
    #[inline(never)]
    fn handle(
        &mut self,
        text: &[u8],
        now: f64,
        on_record: &mut impl FnMut(Record<'_>) -> Result<()>,
    ) -> Result<()> {
        let (kind, payload) = split(text)?;
        self.totals.records += 1;
        let first = matches!(self.phase, Phase::Unintroduced);
        if first != (kind == Kind::Descriptor) && kind != Kind::Alert {
            return Err(unexpected(if first {
                "another record before DESCRIPTOR"
            } else {
                "DESCRIPTOR where there is none"
            }));
        }
        match kind {
            Kind::Data if payload.is_empty() => Err(unexpected("DATA without bytes")),
            Kind::Data => {
                self.totals.bytes += u64::try_from(payload.len()).unwrap_or(u64::MAX);
                on_record(Record::Data(payload))
            }
            Kind::Descriptor => {
                self.phase = Phase::Open;
                on_record(Record::Descriptor(payload))
            }
            Kind::KeyUpdate => {
                let [] = *exactly(payload)?;
                if !self.updates.allow(now) {
                    return Err(unexpected("too many key updates in a second"));
                }
                self.ratchet.update();
                self.totals.key_updates += 1;
                Ok(())
            }
            Kind::Close => {
                // Other reasons than 0 mean the same.
                let [_reason] = *exactly(payload)?;
                self.phase = Phase::Closed;
                self.ratchet.end();
                on_record(Record::Close)
            }
            Kind::Ping if self.role == Role::Outlet => {
                on_record(Record::Ping(f64::from_be_bytes(*exactly(payload)?)))
            }
            Kind::Pong if self.role == Role::Inlet => {
                let bytes: &[u8; 24] = exactly(payload)?;
                let mut times = [0.0; 3];
                for (time, bytes) in times.iter_mut().zip(bytes.chunks_exact(8)) {
                    *time = f64::from_be_bytes(*exactly(bytes)?);
                }
                on_record(Record::Pong(times))
            }
            Kind::Ping | Kind::Pong => Err(unexpected("a record of the wrong side")),
            Kind::Alert => {
                let (code, text) = match payload {
                    [code, text @ ..] if text.len() <= MAX_ALERT_TEXT => (*code, text),
                    _ => return Err(unexpected("a payload of the wrong length")),
                };
                let (cause, text) = (Cause::from_code(code), String::from_utf8_lossy(text));
                on_record(Record::Alert(cause, &text))?;
                Err(Error::Alert {
                    cause,
                    text: printable(text.as_bytes()),
                })
            }
        }
    }

    #[cold]
    #[inline(never)]
    pub(crate) fn fail(&mut self, error: &Error) {
        let detail = match error {
            Error::Session { detail, .. } => detail.clone(),
            other => Cow::Owned(other.to_string()),
        };
        self.phase = Phase::Failed {
            cause: error.cause(),
            detail,
        };
        self.partial = Vec::new();
        self.ratchet.end();
    }

    #[cfg(test)]
    pub(super) fn ratchet(&mut self) -> &mut Ratchet {
        &mut self.ratchet
    }

    #[cfg(test)]
    pub(super) fn skip_descriptor(&mut self) {
        self.phase = Phase::Open;
    }

    #[cfg(test)]
    pub(super) fn buffered(&self) -> usize {
        self.partial.capacity()
    }
}

/// The length of the record that starts with `bytes`, its length field included; `None` if that has
/// not come yet.
#[inline]
fn record_len(bytes: &[u8]) -> Result<Option<usize>> {
    let Some(len) = bytes.first_chunk::<LEN_BYTES>() else {
        return Ok(None);
    };
    let len = usize::from(u16::from_be_bytes(*len));
    // A holder of the key cannot have sent less, since there is no type byte under the tag.
    if len <= TAG_BYTES || len > MAX_RECORD_LEN {
        return Err(impossible_len(len));
    }
    Ok(Some(LEN_BYTES + len))
}

#[cold]
#[inline(never)]
fn impossible_len(len: usize) -> Error {
    if len <= TAG_BYTES {
        return auth_failed();
    }
    Error::session(Cause::RecordOverflow, format!("a record of {len} bytes"))
}

/// Type and payload of a plaintext, its padding removed.
fn split(text: &[u8]) -> Result<(Kind, &[u8])> {
    let Some((&kind, mut payload)) = text.split_first() else {
        return Err(unexpected("a record without type"));
    };
    if kind & PADDED != 0 {
        let pad_len = payload.last_chunk::<LEN_BYTES>().copied();
        let pad_len = usize::from(u16::from_be_bytes(pad_len.unwrap_or_default()));
        payload = payload
            .len()
            .checked_sub(pad_len)
            .filter(|_| pad_len >= LEN_BYTES)
            .and_then(|len| payload.get(..len))
            .ok_or_else(|| unexpected("padding of an impossible length"))?;
    }
    let kind = Kind::from_byte(kind & !PADDED).ok_or_else(|| unexpected("an unknown type"))?;
    Ok((kind, payload))
}

/// The payload as `N` bytes.
fn exactly<const N: usize>(payload: &[u8]) -> Result<&[u8; N]> {
    payload
        .try_into()
        .map_err(|_| unexpected("a payload of the wrong length"))
}

#[cold]
#[inline(never)]
fn unexpected(detail: &'static str) -> Error {
    Error::session(Cause::UnexpectedRecord, detail)
}

#[cold]
#[inline(never)]
fn too_many_records() -> Error {
    Error::session(
        Cause::KeyLimit,
        "the peer uses its key for too many records",
    )
}

#[cold]
#[inline(never)]
fn auth_failed() -> Error {
    Error::session(
        Cause::RecordAuthFailed,
        "a record is not the authentic next one",
    )
}

/// When the last key updates came, to notice a flood of them.
#[derive(Debug)]
struct RecentUpdates {
    /// A ring; times that never were lie infinitely far back.
    times: [f64; MOST_UPDATES],
    next: usize,
}

impl Default for RecentUpdates {
    fn default() -> Self {
        Self {
            times: [f64::NEG_INFINITY; MOST_UPDATES],
            next: 0,
        }
    }
}

impl RecentUpdates {
    /// Notes an update; false if it is one too many within a second.
    fn allow(&mut self, now: f64) -> bool {
        let Some(oldest) = self.times.get_mut(self.next) else {
            return false;
        };
        let age = now - *oldest;
        *oldest = now;
        self.next = (self.next + 1) % MOST_UPDATES;
        // A clock that makes no sense allows nothing.
        age >= 1.0
    }
}

/// The type byte of DATA without padding.
const DATA: u8 = Kind::Data.byte();

/// Key updates within one second.
const MOST_UPDATES: usize = 16;

/// Records under one key, its KEY_UPDATE included.
pub(super) const MOST_RECORDS: u64 = 1 << 24;
