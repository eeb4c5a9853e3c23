//! Number of descriptors of this process: on Windows memory alone limits it.

use std::io;

use crate::socket::AsSocket;

/// Does nothing: there is no limit to raise.
pub fn make_room(_newest: impl AsSocket) {}

/// Returns false: there is no limit to raise.
pub fn made_room_after(_error: &io::Error) -> bool {
    false
}

/// Returns the error unchanged: no limit is its cause.
pub fn explained(error: io::Error) -> io::Error {
    error
}
