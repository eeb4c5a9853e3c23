//! The adapter for async byte streams: handshake drivers, and `SecureStream`, which is the tunnel as
//! an `AsyncRead + AsyncWrite`. Time-outs and closing follow LSS/1 §4.2; policy and admission are
//! the caller's.

use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite};

use crate::{Cause, Descriptor, Local, PublicKey, Result, Session};

/// Handshakes as the inlet on a connected stream and sends `request` with M3.
///
/// `decide` judges the outlet's key (a `Cause` refuses it), `check` its DESCRIPTOR. After it returned
/// nothing is read beyond the DESCRIPTOR record. On failure everything the peer must be told has been
/// sent, and the stream only needs [`close`].
///
/// # Errors
/// [`Error::Refused`](crate::Error::Refused) for a textual refusal, [`Cause::PeerNotSecure`] if the
/// peer closed without a word, [`Cause::Timeout`] (10 s for M2, 10 s for DESCRIPTOR), and all others.
pub async fn connect<T: AsyncRead + AsyncWrite + Unpin>(
    _stream: &mut T,
    _local: Arc<Local>,
    _request: &[u8],
    _decide: impl FnOnce(PublicKey) -> Result<(), Cause>,
    _check: impl FnOnce(&Descriptor) -> Result<(), Cause>,
) -> Result<(Session, Descriptor)> {
    unimplemented!()
}

/// What an outlet asks its program during a handshake.
pub trait Gate: Send {
    /// Before the asymmetric work of M1: waits for its turn. `Err` answers 503.
    fn admit(&mut self) -> impl Future<Output = Result<(), Cause>> + Send;

    /// Judges the inlet's key. `Err` answers ALERT.
    fn decide(&mut self, peer: PublicKey) -> Result<(), Cause>;
}

/// Handshakes as the outlet. The preamble has been read from `stream`, and nothing else. M1 must
/// come within 3 s, M3 within 5 s. Asymmetric work runs on tokio's blocking pool.
///
/// On failure everything the peer must be told (alert, 503, 505) has been sent, and the stream only
/// needs [`close`].
///
/// # Errors
/// The session's failure, for the audit log.
pub async fn accept<T: AsyncRead + AsyncWrite + Unpin>(
    _stream: &mut T,
    _local: Arc<Local>,
    _descriptor: &Descriptor,
    _gate: &mut impl Gate,
) -> Result<Session> {
    unimplemented!()
}

/// Ends a connection so that what was sent last arrives: shuts down writing, reads and discards until
/// the end, at most 1 s and 64 KiB. Spec: LSS/1 §4.2.
pub async fn close<T: AsyncRead + AsyncWrite + Unpin>(_stream: &mut T) {
    unimplemented!()
}
