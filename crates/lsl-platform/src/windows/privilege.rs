//! Rights of this process, and the number of descriptors it may open.

/// Returns false: no file gives a program the rights of another user when it is started. Starting a program
/// as another user does not pass on a foreign environment either.
pub fn is_secure_execution() -> bool {
    false
}

/// Returns `None`: there is no limit.
pub fn open_file_limit() -> Option<u64> {
    None
}
