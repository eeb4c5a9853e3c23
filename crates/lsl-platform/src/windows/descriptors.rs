//! How many descriptors this process may have: on Windows as many as there is memory for.

use std::io;

use crate::socket::AsSocket;

/// Nothing to do.
pub fn make_room(_newest: impl AsSocket) {}

/// False: no limit can be raised.
pub fn made_room_after(_error: &io::Error) -> bool {
    false
}

/// The same error.
pub fn explained(error: io::Error) -> io::Error {
    error
}
