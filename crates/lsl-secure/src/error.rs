//! Causes for which a session, a file or a peer is refused. Spec: LSS/1 §6.1.

use std::borrow::Cow;
use std::io;
use std::path::PathBuf;

/// Result of every fallible call in this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Makes [`Cause`] of its variants with their codes and names.
macro_rules! causes {
    ($($(#[$doc:meta])+ $cause:ident = $code:literal, $name:literal;)+) => {
        /// Reason for which a session ended, as audit and alerts name it. Two causes may share a
        /// [`code`](Self::code).
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Cause {
            $($(#[$doc])+ $cause,)+
        }

        impl Cause {
            const ALL: &[Self] = &[$(Self::$cause,)+];

            /// Returns the number in alerts and audit, 1 to 20.
            pub fn code(self) -> u8 {
                match self {
                    $(Self::$cause => $code,)+
                }
            }

            /// Returns the name in audit lines and messages.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$cause => $name,)+
                }
            }
        }
    };
}

causes! {
    /// A message that does not follow the specification.
    Malformed = 1, "malformed";
    /// No protocol version in common.
    Version = 2, "version";
    /// No cipher suite in common.
    NoCommonSuite = 3, "no_common_suite";
    /// The key exchange gave the all-zero secret.
    BadKeyShare = 4, "bad_key_share";
    /// A handshake ciphertext does not open (also: other PSK).
    DecryptFailed = 5, "decrypt_failed";
    /// The peer's signature does not verify.
    BadSignature = 6, "bad_signature";
    /// The peer's transcript authenticator does not verify.
    BadFinished = 6, "bad_finished";
    /// The peer has a kind of identity that this version does not know.
    UnsupportedIdentity = 7, "unsupported_identity";
    /// The peer's key is not in the trust file, or its address not in `from`.
    NotAuthorised = 8, "not_authorised";
    /// The peer's key may not play this role.
    RoleNotAllowed = 9, "role_not_allowed";
    /// The peer's entry ended with its `not_after`.
    Expired = 10, "expired";
    /// The peer's entry was removed or narrowed while its session was alive.
    Revoked = 10, "revoked";
    /// The peer has our own key but is another machine.
    SelfKey = 11, "self_key";
    /// A limit on sessions or handshakes.
    Busy = 12, "busy";
    /// The peer took too long.
    Timeout = 13, "timeout";
    /// A record does not open: changed, replayed, reordered or left out.
    RecordAuthFailed = 14, "record_auth_failed";
    /// The connection ended without CLOSE.
    Truncated = 15, "truncated";
    /// A record that may not come now, or not from this side, or with this content.
    UnexpectedRecord = 16, "unexpected_record";
    /// A record longer than allowed.
    RecordOverflow = 16, "record_overflow";
    /// The outlet's DESCRIPTOR differs from the stream that the user resolved.
    DescriptorMismatch = 17, "descriptor_mismatch";
    /// The peer does not speak LSS.
    PeerNotSecure = 18, "peer_not_secure";
    /// The peer only speaks plaintext and the policy forbids it.
    PlaintextRefused = 18, "plaintext_refused";
    /// A key was used for too many records.
    KeyLimit = 19, "key_limit";
    /// Anything else, and every code we do not know.
    Internal = 20, "internal";
}

impl Cause {
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
    /// table, and [`Cause::Internal`] for codes that are not in it.
    pub fn from_code(code: u8) -> Self {
        let mut causes = Self::ALL.iter().copied();
        causes
            .find(|cause| cause.code() == code)
            .unwrap_or(Self::Internal)
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
