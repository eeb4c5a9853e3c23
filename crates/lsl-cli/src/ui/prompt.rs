//! Passphrases: asked for without showing them on a terminal, read as a line where there is none.
//! Only this command may ask; the libraries never do (LSS/1 §3.3). Erased when dropped.

use std::fs::File;
use std::io::{self, IsTerminal, Read, Write};

use lsl_platform::stream;
use lsl_platform::terminal::{Typed, read_hidden};
use zeroize::Zeroizing;

use super::notice::note;
use crate::failure::{Failure, Outcome};

/// Passphrase in memory, erased when dropped.
pub(crate) type Passphrase = Zeroizing<String>;

/// Returns whether a terminal is there to ask on.
pub(crate) fn can_ask() -> bool {
    io::stdin().is_terminal()
}

/// Asks for a passphrase that exists; without a terminal, reads the next line of standard input.
pub(crate) fn ask(question: &str) -> Outcome<Passphrase> {
    let mut input = stream::input()?;
    let line = if can_ask() {
        hidden(&mut input, question)?
    } else {
        next_line(&mut input)?
    };
    text(&line)
}

/// Asks for a new passphrase: on a terminal twice, since the typed text is not shown.
pub(crate) fn ask_new(what: &str) -> Outcome<Passphrase> {
    let first = ask(&format!("New passphrase for {what}: "))?;
    if first.is_empty() {
        return Err(Failure::Usage(
            "an empty passphrase protects nothing".into(),
        ));
    }
    if can_ask() && ask("The same again: ")? != first {
        return Err(Failure::Usage(
            "the two passphrases differ; nothing was changed, run it again".into(),
        ));
    }
    Ok(first)
}

fn hidden(input: &mut File, question: &str) -> Outcome<Zeroizing<Vec<u8>>> {
    let mut stderr = io::stderr().lock();
    // An error is ignored: there is a terminal, so the question appears.
    let _ = write!(stderr, "{question}").and_then(|()| stderr.flush());
    drop(stderr);
    let typed = read_hidden(input);
    note("");
    match typed? {
        Typed::Line(line) => Ok(Zeroizing::new(line)),
        Typed::Aborted => Err(Failure::Runtime("no passphrase given".into())),
    }
}

/// Reads a line byte by byte: the bytes behind it are for other readers.
fn next_line(input: &mut impl Read) -> Outcome<Zeroizing<Vec<u8>>> {
    let mut line = Zeroizing::new(Vec::with_capacity(MAX_LINE));
    let mut byte = [0];
    loop {
        match input.read(&mut byte) {
            Ok(0) if line.is_empty() => {
                return Err(Failure::Runtime(
                    "a passphrase is needed, and standard input is neither a terminal nor does it \
                     contain one"
                        .into(),
                ));
            }
            Ok(0) => break,
            Ok(_) if byte[0] == b'\n' => break,
            Ok(_) if line.len() == MAX_LINE => {
                return Err(Failure::Usage(format!(
                    "the passphrase is longer than {MAX_LINE} bytes"
                )));
            }
            Ok(_) => line.push(byte[0]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
    if line.last() == Some(&b'\r') {
        line.pop();
    }
    Ok(line)
}

fn text(line: &[u8]) -> Outcome<Passphrase> {
    match std::str::from_utf8(line) {
        Ok(text) => Ok(Zeroizing::new(text.to_owned())),
        Err(_) => Err(Failure::Usage("the passphrase is not UTF-8 text".into())),
    }
}

const MAX_LINE: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_one_by_one() {
        let mut input = &b"first\r\nsecond\n\nlast"[..];
        let mut next = || next_line(&mut input).map(|line| text(&line).unwrap().to_string());
        assert_eq!(next().unwrap(), "first");
        assert_eq!(next().unwrap(), "second");
        assert_eq!(next().unwrap(), "");
        assert_eq!(next().unwrap(), "last");
        assert!(next().unwrap_err().to_string().contains("terminal"));
    }

    #[test]
    fn what_is_no_text_is_refused() {
        assert!(text(&[0xff]).is_err());
        let long = [b'x'; MAX_LINE + 1];
        assert!(next_line(&mut &long[..]).is_err());
    }
}
