//! Terminals: pictures on them, their height, and hidden input of a line, for passphrases. And foreign text
//! made safe to show.

#[cfg_attr(windows, path = "windows/terminal.rs")]
mod system;

use std::io::{self, Read};

pub use self::system::{prepare, read_hidden, rows};
pub use crate::text::printable;

/// Answer of the user to a prompt.
#[derive(Debug, PartialEq, Eq)]
pub enum Typed {
    /// A line, without its end. The caller must erase it.
    Line(Vec<u8>),
    /// Ctrl-C, or Ctrl-D on an empty line.
    Aborted,
}

/// Reads one key at a time, so that nothing behind the line's end is consumed.
fn read_line(from: &mut impl Read) -> io::Result<Typed> {
    // Never grows: no copy of a passphrase is left behind in freed memory.
    let mut line = Vec::with_capacity(MAX_LINE);
    loop {
        let mut key = [0];
        match from.read(&mut key) {
            Ok(0) if line.is_empty() => return Ok(Typed::Aborted),
            Ok(0) => return Ok(Typed::Line(line)),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        }
        match key[0] {
            b'\n' | b'\r' => return Ok(Typed::Line(line)),
            CTRL_C => {
                line.fill(0);
                return Ok(Typed::Aborted);
            }
            CTRL_D if line.is_empty() => return Ok(Typed::Aborted),
            CTRL_D => return Ok(Typed::Line(line)),
            CTRL_U => line.clear(),
            BACKSPACE | DELETE => erase_character(&mut line),
            _ if line.len() == MAX_LINE => {
                line.fill(0);
                return Err(io::Error::new(
                    io::ErrorKind::InvalidInput,
                    "the line is longer than 4096 bytes",
                ));
            }
            byte => line.push(byte),
        }
    }
}

/// Removes the last character, which in UTF-8 may be several bytes.
fn erase_character(line: &mut Vec<u8>) {
    while let Some(byte) = line.pop() {
        let is_continuation = byte & 0xc0 == 0x80;
        if !is_continuation {
            break;
        }
    }
}

const MAX_LINE: usize = 4096;
const CTRL_C: u8 = 0x03;
const CTRL_D: u8 = 0x04;
const BACKSPACE: u8 = 0x08;
const CTRL_U: u8 = 0x15;
const DELETE: u8 = 0x7f;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_edit_the_line() {
        let check = |keys: &[u8], expected: Typed| {
            assert_eq!(read_line(&mut &*keys).unwrap(), expected, "{keys:?}");
        };
        let line = |text: &str| Typed::Line(text.as_bytes().to_vec());
        check(b"secret\nrest", line("secret"));
        check(b"secret\r", line("secret"));
        check(b"wrong\x15right\n", line("right"));
        check(b"secrex\x7ft\n", line("secret"));
        check(b"\x08\x7fa\n", line("a"));
        check("grö\x7fe\n".as_bytes(), line("gre"));
        check(b"\n", line(""));
        check(b"cut", line("cut"));
        check(b"cut\x04", line("cut"));
        check(b"", Typed::Aborted);
        check(b"\x04", Typed::Aborted);
        check(b"never\x03", Typed::Aborted);
    }

    #[test]
    fn a_line_has_a_limit() {
        let longest = [b'x'; MAX_LINE];
        let typed = read_line(&mut [&longest[..], b"\n"].concat().as_slice()).unwrap();
        assert_eq!(typed, Typed::Line(longest.to_vec()));
        let error = read_line(&mut [&longest[..], b"x\n"].concat().as_slice()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn what_is_no_terminal_is_refused() {
        let mut file = std::fs::File::open(std::env::current_exe().unwrap()).unwrap();
        assert!(!prepare(&file) && read_hidden(&mut file).is_err());
    }
}
