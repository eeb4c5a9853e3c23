//! A textual refusal in place of M2, `LSL/110 503 …`. Nobody has signed it: it is shown and chooses a
//! retry delay, nothing else. Spec: LSS/1 §4.2, §4.4.

use crate::Error;
use crate::audit::printable;

/// How every line of LSL starts, and no M2: its length would be 19 539.
pub(super) const START: &[u8; 2] = b"LS";

/// Longest line that is read.
pub(super) const MOST_LINE: usize = 256;

/// The error that the first line of `bytes` is.
pub(super) fn refused(bytes: &[u8]) -> Error {
    let line = bytes.split(|&byte| byte == b'\n').next().unwrap_or(bytes);
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    Error::Refused {
        status: status(line).unwrap_or(0),
        text: printable(line),
    }
}

/// The status of `LSL/110 403 …`, if it is one of ours.
fn status(line: &[u8]) -> Option<u16> {
    let mut words = line.split(|&byte| byte == b' ');
    let version = words.next()?.strip_prefix(b"LSL/")?;
    if version.is_empty() || !version.iter().all(u8::is_ascii_digit) {
        return None;
    }
    match words.next()? {
        b"403" => Some(403),
        b"404" => Some(404),
        b"501" => Some(501),
        b"503" => Some(503),
        b"505" => Some(505),
        _ => None,
    }
}
