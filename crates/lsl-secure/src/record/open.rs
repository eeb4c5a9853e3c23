//! Opening: what the peer sends.

use crate::kdf::Secret;
use crate::record::Totals;
use crate::{Cause, Result, Role, Suite};

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
    /// The peer ends the session.
    Alert(Cause, &'a str),
}

/// Opens the peer's records in order. Every failure is final.
///
/// After `fork` every call in the child fails with [`Cause::Internal`].
#[derive(Debug)]
pub struct Opener {
    _todo: (),
}

impl Opener {
    /// Opens what the peer of `role` (this side) sends, under the traffic secret of its direction.
    /// An inlet's expects DESCRIPTOR (or ALERT) first.
    pub(crate) fn new(_suite: Suite, _secret: &Secret, _role: Role) -> Self {
        unimplemented!()
    }

    /// Takes bytes as they come from the socket, cut anywhere, and hands on every complete record,
    /// opened in place. What is left of an incomplete one is kept (at most one record). An error of
    /// `on_record` ends the session like one of ours. `now` is `local_clock`, for the rate limit of
    /// key updates.
    ///
    /// # Errors
    /// [`Cause::RecordAuthFailed`], [`Cause::RecordOverflow`], [`Cause::UnexpectedRecord`],
    /// [`Cause::KeyLimit`]; the same again on every later call.
    pub fn receive(
        &mut self,
        _bytes: &mut [u8],
        _now: f64,
        _on_record: impl FnMut(Record<'_>) -> Result<()>,
    ) -> Result<()> {
        unimplemented!()
    }

    /// The connection ended: fine after CLOSE.
    ///
    /// # Errors
    /// [`Cause::Truncated`] otherwise.
    pub fn end(&self) -> Result<()> {
        unimplemented!()
    }

    /// What came so far.
    pub fn totals(&self) -> Totals {
        unimplemented!()
    }
}
