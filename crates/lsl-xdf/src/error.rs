//! Errors of recordings, distinguished by the remedy that callers have.

use std::io;
use std::path::PathBuf;

/// Error of a call on a recording.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The bytes are no XDF file; nothing was read.
    #[error("not an XDF file: {0}")]
    NotXdf(&'static str),
    /// The caller asked for something that cannot be written; nothing was.
    #[error("{0}")]
    Argument(String),
    /// The system refused. The call had no effect; earlier chunks are untouched, and it may be repeated
    /// once the cause is gone.
    #[error("cannot {doing}: {source}")]
    Io {
        /// Action that failed, as the end of "cannot".
        doing: &'static str,
        /// Error of the operating system.
        #[source]
        source: io::Error,
    },
    /// The system refused an action on a file of this name.
    #[error("cannot {doing} {}: {source}", path.display())]
    Path {
        /// Action that failed, as the end of "cannot".
        doing: &'static str,
        /// Path of the file or folder.
        path: PathBuf,
        /// Error of the operating system.
        #[source]
        source: io::Error,
    },
    /// An earlier error left the output in a state that must not be written to. It stays so.
    #[error("the recording has ended because of an earlier error: {0}")]
    Ended(String),
}

/// Kind of an [`Error`], for decisions of callers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The input is no XDF file.
    NotXdf,
    /// The caller made a mistake.
    Argument,
    /// No space is left; free some, or go on elsewhere.
    Full,
    /// Any other refusal of the system.
    Io,
    /// Nothing more can be written here.
    Ended,
}

impl Error {
    /// Returns the kind of this error.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::NotXdf(_) => ErrorKind::NotXdf,
            Self::Argument(_) => ErrorKind::Argument,
            Self::Ended(_) => ErrorKind::Ended,
            Self::Io { source, .. } | Self::Path { source, .. } => match source.kind() {
                io::ErrorKind::StorageFull
                | io::ErrorKind::QuotaExceeded
                | io::ErrorKind::FileTooLarge => ErrorKind::Full,
                _ => ErrorKind::Io,
            },
        }
    }

    pub(crate) fn io(doing: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { doing, source }
    }

    pub(crate) fn path(
        doing: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Path {
            doing,
            path: path.into(),
            source,
        }
    }
}

/// Result of the fallible calls of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;
