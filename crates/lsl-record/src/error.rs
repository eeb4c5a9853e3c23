//! Reasons why a recording does not begin.

use std::io;
use std::path::PathBuf;

/// Reason why nothing is recorded. There is no new file then, or at most an empty one: if the system gives no
/// thread for it, or the file cannot be signed.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The caller cancelled the start.
    #[error("cancelled")]
    Cancelled,
    /// The configuration of encryption is unusable.
    #[error(transparent)]
    Security(lsl_core::Error),
    /// The past is asked for, and the configuration does not let inlets do that.
    #[error("the configuration has Resume = 0: no outlet is asked for the past")]
    NoHistory,
    /// The path names a folder or a device.
    #[error("{} is a folder or a device; name a file in it", .0.display())]
    NotAFile(PathBuf),
    /// No file can be made in a folder.
    #[error("cannot record into {}: {source}", folder.display())]
    Folder {
        /// Folder that was to hold the file.
        folder: PathBuf,
        /// Error that the system returned.
        source: io::Error,
    },
    /// The folder to go on in does not exist.
    #[error("{}: there is no such folder (is its disk mounted?)", .0.display())]
    NoSpillFolder(PathBuf),
    /// The folder to go on in is the one of the recording.
    #[error("{}: that is the folder of the recording itself; name one on another disk", .0.display())]
    SpillsIntoItself(PathBuf),
    /// The search for streams cannot begin.
    #[error(transparent)]
    Search(lsl_core::Error),
    /// Streams that are required did not answer in time.
    #[error("required, but not there in time: {}", .0.join(", "))]
    Missing(Vec<String>),
    /// No stream answered in time.
    #[error("no stream answered in time")]
    NothingFound,
    /// Encryption allows none of the streams, or one that is required not: names and reasons.
    #[error("encryption does not allow to record {} streams", .0.len())]
    Refused(Vec<(String, String)>),
    /// Streams that are required were found and do not connect.
    #[error("required and found, but no connection is possible: {}", .0.join(", "))]
    Unreachable(Vec<String>),
    /// The file cannot be made.
    #[error(transparent)]
    Output(lsl_xdf::Error),
    /// The system gives no more threads.
    #[error("cannot start a thread: {0}")]
    Threads(io::Error),
}
