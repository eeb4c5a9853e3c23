//! Whose rights this process has, and how many descriptors it may open.

/// False: no file makes a process of another user's out of a program that somebody starts. Who starts one
/// as another user does not lend it an environment of his own either.
pub fn is_secure_execution() -> bool {
    false
}

/// No limit.
pub fn open_file_limit() -> Option<u64> {
    None
}
