//! Lines of a log one by one, whatever the file holds: no line takes more than a fixed amount of
//! memory, and lines that are no JSON are passed on as they are.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

use lsl_core::secure::audit::torn_len;
use serde::Deserialize;

use crate::failure::{Failure, Outcome};

/// Log file that is read line by line.
#[derive(Debug)]
pub(super) struct Lines {
    reader: BufReader<File>,
    name: String,
    number: u64,
    position: u64,
    line: Vec<u8>,
    /// The line in `line` was handed out, up to here.
    is_done: bool,
    handed_out: usize,
}

/// Fields of a line that the commands use; absent ones stay empty.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct AuditRecord {
    pub(super) ts: String,
    pub(super) event: String,
    pub(super) exe: Option<String>,
    pub(super) peer_addr: Option<String>,
    pub(super) peer_fp: Option<String>,
    pub(super) peer_name: Option<String>,
    pub(super) claimed: bool,
    pub(super) role: Option<String>,
    pub(super) suite: Option<String>,
    pub(super) stream_uid: Option<String>,
    pub(super) cause: Option<String>,
    pub(super) detail: Option<String>,
    pub(super) bytes: Option<u64>,
    pub(super) duration_secs: Option<f64>,
    pub(super) clean: Option<bool>,
    pub(super) suppressed: u64,
    pub(super) dropped: u64,
}

impl Lines {
    pub(super) fn open(path: &Path) -> Outcome<Self> {
        let name = path.display().to_string();
        let failed = |error: io::Error| match error.kind() {
            io::ErrorKind::NotFound => Failure::NotFound(error.to_string()),
            _ => error.into(),
        };
        let file = File::open(path).map_err(|error| failed(error).context(&name))?;
        Ok(Self {
            reader: BufReader::new(file),
            name,
            number: 0,
            position: 0,
            line: Vec::new(),
            is_done: false,
            handed_out: 0,
        })
    }

    /// Returns the next line without its line feed, also a last one that has none; `None` at the end.
    pub(super) fn next(&mut self) -> Outcome<Option<&[u8]>> {
        if !self.read()? && (self.is_done || self.line.is_empty()) {
            return Ok(None);
        }
        Ok(Some(self.finish()))
    }

    /// Returns the next line as [`next`](Self::next) does, but `None` until it has its line feed.
    pub(super) fn next_complete(&mut self) -> Outcome<Option<&[u8]>> {
        Ok(if self.read()? {
            Some(self.finish())
        } else {
            None
        })
    }

    /// Returns the number of the line that was returned last, from 1.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Returns the number of bytes read, without those of a line that follows a torn one and is the next.
    pub(super) fn position(&self) -> u64 {
        let rest = self.line.len().saturating_sub(self.handed_out);
        self.position - if self.is_done { rest as u64 } else { 0 }
    }

    /// Returns the file that is being read.
    pub(super) fn file(&self) -> &File {
        self.reader.get_ref()
    }

    /// What a killed program left of a line comes alone, and the line of another one after it.
    fn finish(&mut self) -> &[u8] {
        self.is_done = true;
        self.number += 1;
        if self.line.last() == Some(&b'\n') {
            self.line.pop();
        }
        self.handed_out = match torn_len(&self.line) {
            0 => self.line.len(),
            torn => torn,
        };
        self.line.get(..self.handed_out).unwrap_or_default()
    }

    /// Reads on until the line is complete; returns whether it is.
    fn read(&mut self) -> Outcome<bool> {
        if self.is_done {
            self.line.drain(..self.handed_out);
            self.is_done = false;
            if !self.line.is_empty() {
                self.number -= 1;
                return Ok(true);
            }
        }
        loop {
            let bytes = match self.reader.fill_buf() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(Failure::from(error).context(&self.name)),
                Ok(bytes) => bytes,
            };
            if bytes.is_empty() {
                return Ok(false);
            }
            // Finds the line feed faster than a loop.
            let len = (&mut &*bytes).skip_until(b'\n').unwrap_or(bytes.len());
            let line = bytes.get(..len).unwrap_or_default();
            let room = MAX_LINE.saturating_sub(self.line.len());
            self.line
                .extend_from_slice(line.get(..room).unwrap_or(line));
            let is_whole = line.ends_with(b"\n");
            self.reader.consume(len);
            self.position += len as u64;
            if is_whole {
                return Ok(true);
            }
        }
    }
}

/// Parses the fields of a line; `None` if it is none of an audit log.
pub(super) fn parse(line: &[u8]) -> Option<AuditRecord> {
    let entry: AuditRecord = serde_json::from_slice(line).ok()?;
    (!entry.event.is_empty()).then_some(entry)
}

/// Longest line kept, in bytes; ours are at most 4096 bytes long, and longer ones are not ours.
const MAX_LINE: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn lines_of(content: &[u8]) -> Vec<Vec<u8>> {
        let name = format!("lsl-audit-lines-{}-{}", std::process::id(), content.len());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, content).unwrap();
        let mut lines = Lines::open(&path).unwrap();
        let mut all = Vec::new();
        while let Some(line) = lines.next().unwrap() {
            all.push(line.to_vec());
        }
        let feeds = content.split_inclusive(|byte| *byte == b'\n').count();
        assert_eq!(lines.number(), feeds as u64);
        std::fs::remove_file(&path).unwrap();
        all
    }

    #[test]
    fn files_of_every_shape_fall_into_lines() {
        let check = |content: &[u8], expected: &[&[u8]]| assert_eq!(lines_of(content), expected);
        check(b"", &[]);
        check(b"a\nbc\n", &[b"a", b"bc"]);
        check(b"a\n\nbcd", &[b"a", b"", b"bcd"]);
        check(b"\xff\0", &[b"\xff\0"]);
        let (one, other) = (&b"{\"ts\":\"1\"}"[..], &b"{\"ts\":\"2\"}"[..]);
        let torn = [one, b"\n", &one[..8], other, b"\n", one].concat();
        assert_eq!(lines_of(&torn), [one, &one[..8], other, one]);
        let long = lines_of(&[vec![b'x'; 1 << 20], b"\nafter\n".to_vec()].concat());
        assert_eq!(long[0].len(), MAX_LINE);
        assert_eq!(long[1], b"after");
    }

    #[test]
    fn a_line_that_is_being_written_is_waited_for() {
        let path = std::env::temp_dir().join(format!("lsl-audit-grows-{}", std::process::id()));
        let mut file = File::create(&path).unwrap();
        let mut lines = Lines::open(&path).unwrap();
        assert_eq!(lines.next_complete().unwrap(), None);
        file.write_all(b"one\ntw").unwrap();
        assert_eq!(lines.next_complete().unwrap(), Some(&b"one"[..]));
        assert_eq!(lines.next_complete().unwrap(), None);
        assert_eq!(lines.next_complete().unwrap(), None);
        file.write_all(b"o\n").unwrap();
        assert_eq!(lines.next_complete().unwrap(), Some(&b"two"[..]));
        file.write_all(b"end").unwrap();
        assert_eq!(lines.next_complete().unwrap(), None);
        assert_eq!(lines.next().unwrap(), Some(&b"end"[..]));
        assert_eq!(lines.next().unwrap(), None);
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn only_objects_with_an_event_are_entries() {
        let check = |line: &[u8], expected: bool| assert_eq!(parse(line).is_some(), expected);
        check(br#"{"event":"handshake_ok"}"#, true);
        check(br#"{"event":"handshake_ok","new_field":[1]}"#, true);
        check(b"{}", false);
        check(b"[]", false);
        check(b"", false);
        check(br#"{"event":"#, false);
    }
}
