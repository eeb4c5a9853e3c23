//! A textual refusal in place of M2, `LSL/110 503 …`. Nobody has signed it: it is shown and chooses a
//! retry delay, nothing else. Spec: LSS/1 §4.2, §4.4.

use tokio::io::{AsyncRead, AsyncReadExt};

use crate::audit::printable;
use crate::{Error, Result};

/// How every line of LSL starts, and no M2: its length would be 19 539.
pub(super) const START: &[u8; 2] = b"LS";

/// Reads the rest of the line whose [`START`] has been read. What it is, is an error.
///
/// # Errors
/// If the connection fails otherwise than by ending, which also ends the line.
pub(super) async fn receive<T: AsyncRead + Unpin>(stream: &mut T) -> Result<Error> {
    let mut line = [0; MOST_LINE];
    let (start, rest) = line.split_at_mut(START.len());
    start.copy_from_slice(START);
    let mut len = 0;
    while len < rest.len() && !rest[..len].contains(&b'\n') {
        match stream.read(&mut rest[len..]).await {
            Ok(0) => break,
            Ok(more) => len += more,
            Err(error) if super::is_gone(&error) => break,
            Err(error) => return Err(Error::io("receiving", error)),
        }
    }
    Ok(refused(&line[..START.len() + len]))
}

fn refused(bytes: &[u8]) -> Error {
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

/// Longest line that is read.
const MOST_LINE: usize = 256;
