//! What can go wrong with an encrypted recording. Variants are named by what the caller can do; no text
//! contains a secret, or a line that might hold one.

use std::io;
use std::path::PathBuf;

/// Result of every fallible call in this module.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong, in groups that a command maps to exit statuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The disk, the pipe or the operating system.
    Io,
    /// A value given by the caller is not acceptable: a key, a file name, a combination of them.
    Argument,
    /// The keys given do not open the file.
    Key,
    /// The file is not what it should be: not age, cut off, or changed.
    File,
    /// The caller asked to stop.
    Cancelled,
}

/// Error of any call in this module.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// No one would be able to open the file.
    #[error("nobody could open the file: name at least one recipient, or a passphrase")]
    NoRecipients,
    /// A passphrase stands alone in a file; the format forbids other recipients beside it.
    #[error("a passphrase cannot be combined with other recipients: use one or the other")]
    MixedRecipients,
    /// A recipient cannot be used.
    #[error("{origin}: not usable as a recipient: {reason}")]
    BadRecipient {
        /// Where it was read: a file and a line, or what the caller calls it.
        origin: String,
        /// Why, and what to use instead.
        reason: String,
    },
    /// An identity cannot be used.
    #[error("{origin}: not usable as an identity: {reason}")]
    BadIdentity {
        /// Where it was read: a file and a line, or what the caller calls it.
        origin: String,
        /// Why, and what to use instead.
        reason: String,
    },
    /// The file is locked to other keys.
    #[error(
        "none of the identities given opens this file; it is locked to {locked_to}: give the identity file or SSH private key that belongs to one of these"
    )]
    NoMatchingIdentity {
        /// The kinds of recipients in the header, in words. age does not write down which keys.
        locked_to: String,
    },
    /// The file is locked with a passphrase and none was given.
    #[error("this file is locked with a passphrase: give the passphrase")]
    PassphraseNeeded,
    /// The passphrase is not the one.
    #[error("wrong passphrase")]
    WrongPassphrase,
    /// The header asks for more work, and memory, than this program is willing to spend.
    #[error(
        "opening this file takes scrypt with work factor {required}, {} of memory, and {limit} is the limit: raise the limit only if you trust who made the file",
        scrypt_memory(*required)
    )]
    ExcessiveWork {
        /// The binary logarithm of the work that the header asks for.
        required: u8,
        /// The largest that is accepted.
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
    /// A later version of the format.
    #[error("an age file of a version that this program does not know; it reads v1")]
    UnknownVersion,
    /// The header is not as the format wants it, or was changed.
    #[error("the header of the age file is damaged: {0}")]
    BadHeader(&'static str),
    /// The file ends too early: not finished, or cut.
    #[error(
        "the encrypted file is cut off: {plain_bytes} bytes before the cut are whole and authentic"
    )]
    CutOff {
        /// Plaintext that can be read up to the last whole chunk.
        plain_bytes: u64,
    },
    /// A part of the payload is not what was written.
    #[error(
        "the encrypted file was changed or damaged: {plain_bytes} bytes before that are whole and authentic"
    )]
    Damaged {
        /// Plaintext before the first chunk that is not authentic.
        plain_bytes: u64,
    },
    /// The file to be locked is encrypted already.
    #[error("this file is an age file already: nothing to lock")]
    AlreadyLocked,
    /// The file changed while it was read.
    #[error("the file changed while it was read: is something still recording into it?")]
    Changed,
    /// The file is still being written; nothing was changed.
    #[error("{}", crate::hold::BUSY)]
    InUse,
    /// The source was to be removed and is only a link.
    #[error(
        "it is a symbolic link, and removing that leaves the file behind it: name the file itself"
    )]
    Link,
    /// A directory, a device, a pipe: whole-file operations work on regular files.
    #[error("not a regular file")]
    NotAFile,
    /// The target is there already, and the caller did not say that it may go.
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
    /// The group this error belongs to.
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

    /// An error of this module that came through [`io::Read`], as itself again.
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

/// What scrypt with this work factor and age's r = 8 needs.
fn scrypt_memory(log_n: u8) -> String {
    match log_n {
        0..10 => format!("{} KiB", 1_u64 << log_n),
        10..20 => format!("{} MiB", 1_u64 << (log_n - 10)),
        20..30 => format!("{} GiB", 1_u64 << (log_n - 20)),
        _ => "more memory than there is".to_owned(),
    }
}
