//! What can go wrong with a recording, by what the caller can do about it.

use std::io;
use std::path::PathBuf;

/// Why something could not be done.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The bytes are no XDF file; nothing was read.
    #[error("not an XDF file: {0}")]
    NotXdf(&'static str),
    /// The caller asked for something that cannot be written; nothing was.
    #[error("{0}")]
    Argument(String),
    /// The system refused. What was asked for did not happen; earlier chunks are untouched, and the
    /// same call may be made again once the cause is gone.
    #[error("cannot {doing}: {source}")]
    Io {
        /// What was tried, as the end of "cannot".
        doing: &'static str,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The system refused to do something with a file by this name.
    #[error("cannot {doing} {}: {source}", path.display())]
    Path {
        /// What was tried, as the end of "cannot".
        doing: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// An earlier error left the output in a state that must not be written to. It stays so.
    #[error("the recording has ended because of an earlier error: {0}")]
    Ended(String),
}

/// The kinds of [`Error`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The input is something else.
    NotXdf,
    /// The caller's mistake.
    Argument,
    /// No space is left; free some, or go on elsewhere.
    Full,
    /// Any other refusal of the system.
    Io,
    /// Nothing more can be written here.
    Ended,
}

impl Error {
    /// What kind of error this is.
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

/// The usual result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;
