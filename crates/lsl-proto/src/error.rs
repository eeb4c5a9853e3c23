//! The one error type of the crate. Variants are named by the caller's possible reactions.

use std::io;

/// Result of every fallible call in this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Class of an error, as the C ABI groups them (Spec: c-abi §3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The deadline passed, or the inlet was closed; trying again may work.
    Timeout,
    /// The source is gone and cannot be recovered; make a new inlet.
    Lost,
    /// A value given by the caller is not acceptable.
    Argument,
    /// Anything else: sockets, resources, a peer that broke the protocol.
    Internal,
}

/// Error of any call in `lsl-core`.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The deadline passed before `operation` finished.
    #[error("The {operation}() operation timed out.")]
    Timeout {
        /// Name of the call that waited.
        operation: &'static str,
    },
    /// The inlet was closed before `operation` finished.
    #[error("The {operation}() operation was interrupted by close_stream().")]
    Closed {
        /// Name of the call that waited.
        operation: &'static str,
    },
    /// The source of an inlet is gone and recovery is off or impossible.
    #[error(
        "The stream read by this inlet has been lost: {reason}. To recover, re-resolve the source and create a new inlet."
    )]
    Lost {
        /// Reason of the loss, in words.
        reason: String,
    },
    /// A value given by the caller is not acceptable; the text says which and why.
    #[error("{0}")]
    Argument(String),
    /// A predicate does not parse.
    #[error("Invalid query '{query}': {reason}")]
    Query {
        /// The full text that was parsed.
        query: String,
        /// Reason given by the parser.
        reason: String,
    },
    /// A stream info (or other XML document) received or given does not describe a stream.
    #[error("not a valid stream info: {0}")]
    InvalidInfo(String),
    /// The configuration cannot be used.
    #[error("configuration: {0}")]
    Config(String),
    /// The security policy forbids it, or the security configuration cannot be used. The text names
    /// the remedy.
    #[error("{0}")]
    Security(String),
    /// A peer sent something the protocol does not allow.
    #[error("protocol error: {0}")]
    Protocol(String),
    /// A call of the operating system failed.
    #[error("{context}: {source}")]
    Io {
        /// Operation that failed, in words.
        context: String,
        /// Error of the operating system.
        #[source]
        source: io::Error,
    },
}

impl Error {
    /// Returns the group this error belongs to.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Timeout { .. } | Self::Closed { .. } => ErrorKind::Timeout,
            Self::Lost { .. } => ErrorKind::Lost,
            Self::Argument(_) | Self::Query { .. } | Self::InvalidInfo(_) => ErrorKind::Argument,
            Self::Config(_) | Self::Security(_) | Self::Protocol(_) | Self::Io { .. } => {
                ErrorKind::Internal
            }
        }
    }

    /// Wraps a system error; `context` names the operation that failed.
    pub fn io(context: impl Into<String>, source: io::Error) -> Self {
        Self::Io {
            context: context.into(),
            source,
        }
    }
}
