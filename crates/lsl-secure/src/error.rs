//! Causes for which a session, a file or a peer is refused. Spec: LSS/1 §6.1.

use std::borrow::Cow;
use std::io;
use std::path::PathBuf;

/// Result of every fallible call in this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Reason for which a session ended, as audit and alerts name it. Two causes may share a
/// [`code`](Self::code).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Cause {
    /// A message that does not follow the specification.
    Malformed,
    /// No protocol version in common.
    Version,
    /// No cipher suite in common.
    NoCommonSuite,
    /// The key exchange gave the all-zero secret.
    BadKeyShare,
    /// A handshake ciphertext does not open (also: other PSK).
    DecryptFailed,
    /// The peer's signature does not verify.
    BadSignature,
    /// The peer's transcript authenticator does not verify.
    BadFinished,
    /// The peer has a kind of identity that this version does not know.
    UnsupportedIdentity,
    /// The peer's key is not in the trust file, or its address not in `from`.
    NotAuthorised,
    /// The peer's key may not play this role.
    RoleNotAllowed,
    /// The peer's entry ended with its `not_after`.
    Expired,
    /// The peer's entry was removed or narrowed while its session was alive.
    Revoked,
    /// The peer has our own key but is another machine.
    SelfKey,
    /// A limit on sessions or handshakes.
    Busy,
    /// The peer took too long.
    Timeout,
    /// A record does not open: changed, replayed, reordered or left out.
    RecordAuthFailed,
    /// The connection ended without CLOSE.
    Truncated,
    /// A record longer than allowed.
    RecordOverflow,
    /// A record that may not come now, or not from this side, or with this content.
    UnexpectedRecord,
    /// The outlet's DESCRIPTOR differs from the stream that the user resolved.
    DescriptorMismatch,
    /// The peer does not speak LSS.
    PeerNotSecure,
    /// The peer only speaks plaintext and the policy forbids it.
    PlaintextRefused,
    /// A key was used for too many records.
    KeyLimit,
    /// Anything else, and every code we do not know.
    Internal,
}

impl Cause {
    /// The number in alerts and audit, 1 to 20.
    pub fn code(self) -> u8 {
        match self {
            Self::Malformed => 1,
            Self::Version => 2,
            Self::NoCommonSuite => 3,
            Self::BadKeyShare => 4,
            Self::DecryptFailed => 5,
            Self::BadSignature | Self::BadFinished => 6,
            Self::UnsupportedIdentity => 7,
            Self::NotAuthorised => 8,
            Self::RoleNotAllowed => 9,
            Self::Expired | Self::Revoked => 10,
            Self::SelfKey => 11,
            Self::Busy => 12,
            Self::Timeout => 13,
            Self::RecordAuthFailed => 14,
            Self::Truncated => 15,
            Self::RecordOverflow | Self::UnexpectedRecord => 16,
            Self::DescriptorMismatch => 17,
            Self::PeerNotSecure | Self::PlaintextRefused => 18,
            Self::KeyLimit => 19,
            Self::Internal => 20,
        }
    }

    /// The name in audit lines and messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::Version => "version",
            Self::NoCommonSuite => "no_common_suite",
            Self::BadKeyShare => "bad_key_share",
            Self::DecryptFailed => "decrypt_failed",
            Self::BadSignature => "bad_signature",
            Self::BadFinished => "bad_finished",
            Self::UnsupportedIdentity => "unsupported_identity",
            Self::NotAuthorised => "not_authorised",
            Self::RoleNotAllowed => "role_not_allowed",
            Self::Expired => "expired",
            Self::Revoked => "revoked",
            Self::SelfKey => "self_key",
            Self::Busy => "busy",
            Self::Timeout => "timeout",
            Self::RecordAuthFailed => "record_auth_failed",
            Self::Truncated => "truncated",
            Self::RecordOverflow => "record_overflow",
            Self::UnexpectedRecord => "unexpected_record",
            Self::DescriptorMismatch => "descriptor_mismatch",
            Self::PeerNotSecure => "peer_not_secure",
            Self::PlaintextRefused => "plaintext_refused",
            Self::KeyLimit => "key_limit",
            Self::Internal => "internal",
        }
    }

    /// Whether a peer is told by ALERT that its session ends for this.
    pub(crate) fn is_alerted(self) -> bool {
        matches!(self.code(), 7..=12 | 16 | 17 | 19 | 20)
    }

    /// Whether a trust list says this of a key.
    pub fn is_verdict(self) -> bool {
        matches!(
            self,
            Self::NotAuthorised
                | Self::RoleNotAllowed
                | Self::Expired
                | Self::Revoked
                | Self::SelfKey
        )
    }

    /// Returns the cause of a received alert code; of two causes with one code, the first of the
    /// table.
    pub fn from_code(code: u8) -> Self {
        match code {
            1 => Self::Malformed,
            2 => Self::Version,
            3 => Self::NoCommonSuite,
            4 => Self::BadKeyShare,
            5 => Self::DecryptFailed,
            6 => Self::BadSignature,
            7 => Self::UnsupportedIdentity,
            8 => Self::NotAuthorised,
            9 => Self::RoleNotAllowed,
            10 => Self::Expired,
            11 => Self::SelfKey,
            12 => Self::Busy,
            13 => Self::Timeout,
            14 => Self::RecordAuthFailed,
            15 => Self::Truncated,
            16 => Self::UnexpectedRecord,
            17 => Self::DescriptorMismatch,
            18 => Self::PeerNotSecure,
            19 => Self::KeyLimit,
            _ => Self::Internal,
        }
    }
}

/// Error of any call in `lsl-secure`.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// This side ends the session.
    #[error("{} (code {}): {detail}", cause.name(), cause.code())]
    Session {
        /// Reason that the audit log names.
        cause: Cause,
        /// Explanation for the local log; never sent.
        detail: Cow<'static, str>,
    },
    /// The authenticated peer ended the session.
    #[error("the peer ended the session: {} (code {}) {text}", cause.name(), cause.code())]
    Alert {
        /// Reason that the peer named.
        cause: Cause,
        /// Text that the peer added, made safe to print.
        text: String,
    },
    /// A textual refusal in place of M2 (unauthenticated): `LSL/110 503 …`. Spec: LSS/1 §4.2.
    #[error("the outlet refused: {text}")]
    Refused {
        /// 403, 404, 501, 503, 505, or 0 if the line cannot be read.
        status: u16,
        /// The line, made safe to print.
        text: String,
    },
    /// A configuration, key or trust file cannot be used. The text names file, line and remedy.
    #[error("{}: {reason}", path.display())]
    File {
        /// Path of the unusable file.
        path: PathBuf,
        /// Description of the fault and its remedy.
        reason: String,
    },
    /// The operating system refused something.
    #[error("{context}: {source}")]
    Io {
        /// Action that failed, for the message.
        context: String,
        /// Error that the system returned.
        #[source]
        source: io::Error,
    },
}

impl Error {
    /// Creates the error of a session that this side ends.
    pub fn session(cause: Cause, detail: impl Into<Cow<'static, str>>) -> Self {
        Self::Session {
            cause,
            detail: detail.into(),
        }
    }

    /// The cause for audit; [`Cause::Internal`] for files and system errors.
    pub fn cause(&self) -> Cause {
        match self {
            Self::Session { cause, .. } | Self::Alert { cause, .. } => *cause,
            Self::Refused { status, .. } => match status {
                503 => Cause::Busy,
                505 => Cause::Version,
                _ => Cause::PeerNotSecure,
            },
            Self::File { .. } | Self::Io { .. } => Cause::Internal,
        }
    }

    /// Wraps a system error with the action that failed.
    pub fn io(context: impl Into<String>, source: io::Error) -> Self {
        Self::Io {
            context: context.into(),
            source,
        }
    }

    /// A file that cannot be used.
    pub fn file(path: impl Into<PathBuf>, reason: impl Into<String>) -> Self {
        Self::File {
            path: path.into(),
            reason: reason.into(),
        }
    }
}
