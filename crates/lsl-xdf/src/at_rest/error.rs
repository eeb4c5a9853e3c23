//! Errors of encrypted recordings. Variants are named by what the caller can do; texts contain neither
//! secrets nor lines that might hold one.

use std::io;
use std::path::PathBuf;

/// Result of every fallible call in this module.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Groups of errors, which a command maps to exit statuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Failure of the disk, the pipe or the operating system.
    Io,
    /// Unacceptable value of the caller: a key, a file name, a combination of them.
    Argument,
    /// The given keys do not open the file.
    Key,
    /// The file is not age, cut off, or changed.
    File,
    /// The caller asked to stop.
    Cancelled,
}

/// Error of any call in this module.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused the call.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// No recipient was given, so that the file could not be opened.
    #[error("nobody could open the file: name at least one recipient, or a passphrase")]
    NoRecipients,
    /// A passphrase stands alone in a file; the format forbids other recipients beside it.
    #[error("a passphrase cannot be combined with other recipients: use one or the other")]
    MixedRecipients,
    /// A recipient cannot be used.
    #[error("{origin}: not usable as a recipient: {reason}")]
    BadRecipient {
        /// Source of the text: a file and a line, or the caller's name for it.
        origin: String,
        /// Reason and remedy, in words for people.
        reason: String,
    },
    /// An identity cannot be used.
    #[error("{origin}: not usable as an identity: {reason}")]
    BadIdentity {
        /// Source of the text: a file and a line, or the caller's name for it.
        origin: String,
        /// Reason and remedy, in words for people.
        reason: String,
    },
    /// The file is locked to other keys.
    #[error(
        "none of the identities given opens this file; it is locked to {locked_to}: give the identity file or SSH private key that belongs to one of these"
    )]
    NoMatchingIdentity {
        /// Kinds of recipients in the header, in words. age does not record which keys.
        locked_to: String,
    },
    /// The file is locked with a passphrase and none was given.
    #[error("this file is locked with a passphrase: give the passphrase")]
    PassphraseNeeded,
    /// None of the given passphrases opens the file.
    #[error("wrong passphrase")]
    WrongPassphrase,
    /// The header asks for more work, and memory, than the limit allows.
    #[error(
        "opening this file takes scrypt with work factor {required}, {} of memory, and {limit} is the limit: raise the limit only if you trust who made the file",
        scrypt_memory(*required)
    )]
    ExcessiveWork {
        /// Binary logarithm of the work that the header asks for.
        required: u8,
        /// Largest such number that is accepted.
        limit: u8,
    },
    /// The file is not encrypted, or not by age.
    #[error("not an age file: it does not start with \"age-encryption.org/v1\"")]
    NotAge,
    /// The file is encrypted, in the text form of age.
    #[error(
        "an age file in its text form (\"armored\"), which is not read here: turn it into the binary form with `age --decrypt` and lock it again"
    )]
    Armored,
    /// The file has a later version of the format.
    #[error("an age file of a version that this program does not know; it reads v1")]
    UnknownVersion,
    /// The header violates the format, or was changed.
    #[error("the header of the age file is damaged: {0}")]
    BadHeader(&'static str),
    /// The file ends too early: not finished, or cut.
    #[error(
        "the encrypted file is cut off: {plain_bytes} bytes before the cut are whole and authentic"
    )]
    CutOff {
        /// Bytes of plaintext up to the last whole chunk.
        plain_bytes: u64,
    },
    /// A part of the payload is not authentic.
    #[error(
        "the encrypted file was changed or damaged: {plain_bytes} bytes before that are whole and authentic"
    )]
    Damaged {
        /// Bytes of plaintext before the first chunk that is not authentic.
        plain_bytes: u64,
    },
    /// The file to be locked is encrypted already.
    #[error("this file is an age file already: nothing to lock")]
    AlreadyLocked,
    /// The file changed while it was read.
    #[error("the file changed while it was read: is something still recording into it?")]
    Changed,
    /// The file is still being written; nothing was changed.
    #[error("{}", crate::file_lock::BUSY)]
    InUse,
    /// The source was to be removed, but it is a symbolic link.
    #[error(
        "it is a symbolic link, and removing that leaves the file behind it: name the file itself"
    )]
    Link,
    /// The file is a directory, a device or a pipe, not a regular file.
    #[error("not a regular file")]
    NotAFile,
    /// The target exists, and the caller did not permit replacing it.
    #[error("{} exists already; it was not touched", .0.display())]
    Exists(PathBuf),
    /// Source and target are the same file.
    #[error("source and target are the same file")]
    SameFile,
    /// The caller asked to stop; nothing is left behind.
    #[error("stopped on request; nothing was changed")]
    Cancelled,
}

impl Error {
    /// Returns the group of this error.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Io(_) => ErrorKind::Io,
            Self::NoRecipients
            | Self::MixedRecipients
            | Self::BadRecipient { .. }
            | Self::BadIdentity { .. }
            | Self::AlreadyLocked
            | Self::NotAFile
            | Self::Link
            | Self::Exists(_)
            | Self::SameFile => ErrorKind::Argument,
            Self::NoMatchingIdentity { .. }
            | Self::PassphraseNeeded
            | Self::WrongPassphrase
            | Self::ExcessiveWork { .. } => ErrorKind::Key,
            Self::Changed
            | Self::InUse
            | Self::NotAge
            | Self::Armored
            | Self::UnknownVersion
            | Self::BadHeader(_)
            | Self::CutOff { .. }
            | Self::Damaged { .. } => ErrorKind::File,
            Self::Cancelled => ErrorKind::Cancelled,
        }
    }

    /// Recovers an error of this module that came through [`io::Read`].
    pub fn from_io(error: io::Error) -> Self {
        match error.downcast::<Self>() {
            Ok(inner) => inner,
            Err(error) => Self::Io(error),
        }
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        let kind = match error {
            Error::Io(error) => return error,
            Error::CutOff { .. } => io::ErrorKind::UnexpectedEof,
            // Not `Interrupted`: readers take that for "again".
            Error::Cancelled => io::ErrorKind::Other,
            _ => io::ErrorKind::InvalidData,
        };
        Self::new(kind, error)
    }
}

/// Returns the memory that scrypt needs with this work factor and age's r = 8.
fn scrypt_memory(log_n: u8) -> String {
    match log_n {
        0..10 => format!("{} KiB", 1_u64 << log_n),
        10..20 => format!("{} MiB", 1_u64 << (log_n - 10)),
        20..30 => format!("{} GiB", 1_u64 << (log_n - 20)),
        _ => "more memory than there is".to_owned(),
    }
}
