//! Remarks for people and the log, on stderr: stdout is for results. A closed stderr is no reason
//! to stop (`eprintln!` would panic), and foreign text in it steers no terminal.

use std::fmt::Display;
use std::io::{self, Write};
use std::sync::{Mutex, PoisonError};

use lsl_platform::terminal::printable;

/// Writes a text to stderr. Its own line breaks stay: callers escape those of foreign text.
pub fn note(text: impl Display) {
    let lines = text.to_string();
    let escaped = |line: &str| printable(line.as_bytes(), usize::MAX);
    let lines: Vec<String> = lines.split('\n').map(escaped).collect();
    let _ = writeln!(io::stderr().lock(), "{}", lines.join("\n"));
}

/// Destination of the log. It is written in whole events, and each of them is one line.
#[derive(Debug)]
pub struct LogLine;

impl Write for LogLine {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let line = event.strip_suffix(b"\n").unwrap_or(event);
        let line = printable(line, usize::MAX) + "\n";
        io::stderr().lock().write_all(line.as_bytes())?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().lock().flush()
    }
}

/// Keeps the log for a report: of one that is too long, the beginning.
#[derive(Debug)]
pub struct KeptLog;

impl KeptLog {
    /// Returns the lines until now.
    pub fn lines() -> Vec<String> {
        let kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
        let mut lines = kept.lines.clone();
        if kept.lost > 0 {
            lines.push(format!("and {} more", kept.lost));
        }
        lines
    }
}

impl Write for KeptLog {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.lines.len() < MOST_LINES {
            let line = event.strip_suffix(b"\n").unwrap_or(event);
            kept.lines.push(printable(line, LONGEST));
        } else {
            kept.lost += 1;
        }
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct Kept {
    lines: Vec<String>,
    lost: usize,
}

static KEPT: Mutex<Kept> = Mutex::new(Kept {
    lines: Vec::new(),
    lost: 0,
});

const MOST_LINES: usize = 10_000;
const LONGEST: usize = 1000;
