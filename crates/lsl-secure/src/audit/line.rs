//! The line of an event: JSON, written by hand, because a program that sets up a thousand sessions a second
//! should not notice its log. Spec: LSS/1 §10.
//!
//! Texts are made safe here, before a line leaves the thread that recorded it. The line still lacks its
//! place in a chain and the closing brace, which [`Writer`](super::file::Writer) adds.

use std::fmt::{self, Write as _};

use base64ct::{Base64Unpadded, Encoding as _};
use lsl_platform::calendar::rfc3339_nanos;

use super::event::{Entry, Extra, role_name};
use super::span::Span;
use super::text::{MAX_DETAIL, MAX_OUTSIDE, is_plain, safe};
use crate::handshake::{MAX_STEPS, TimedStep};

/// The beginning of a line: `{"ts":"…","event":"…"`, and the fields of the event.
#[derive(Debug)]
pub(super) struct Line(Vec<u8>);

impl Line {
    pub(super) fn new(entry: &Entry) -> Self {
        // An array of the greatest length would have to be cleared each time, which costs more.
        let mut line = Self(Vec::with_capacity(USUAL_LEN));
        let event = &entry.event;
        line.put(b"{\"ts\":\"");
        line.put(&rfc3339_nanos(entry.utc));
        line.put(b"\"");
        line.word("event", Some(event.kind.name()));
        let span = event.span.and_then(Span::name);
        line.field("span", span, |line, name| {
            line.quoted(|line| line.hex(&name));
        });
        line.field("sid", event.session.as_ref(), |line, id| {
            line.quoted(|line| line.hex(&id.0));
        });
        line.field("peer_addr", event.peer_addr, |line, address| {
            line.quoted(|line| line.display(address));
        });
        line.field("peer_fp", event.peer, |line, fingerprint| {
            let mut digits = [0; 43];
            let encoded = Base64Unpadded::encode(&fingerprint.0, &mut digits).unwrap_or_default();
            line.quoted(|line| {
                line.put(b"SHA256:");
                line.put(encoded.as_bytes());
            });
        });
        line.text("peer_name", event.peer_name.as_deref(), MAX_OUTSIDE);
        line.truth("claimed", event.claimed());
        line.word("role", event.role.map(role_name));
        line.word("suite", event.suite.map(crate::Suite::name));
        line.number("version", event.version());
        line.word("policy", event.policy.map(crate::Policy::name));
        line.text("stream_uid", event.stream_uid.as_deref(), MAX_OUTSIDE);
        line.number("code", event.cause.map(crate::Cause::code));
        // Beside `code`, because two causes may share one.
        line.word("cause", event.cause.map(crate::Cause::name));
        line.text("detail", event.detail.as_deref(), MAX_DETAIL);
        let took = event.took.map(|took| took.as_micros());
        let took = took.map(|took| u64::try_from(took).unwrap_or(u64::MAX));
        line.number("took_us", took);
        let steps = event.steps.as_ref().filter(|steps| !steps.is_empty());
        line.field("steps", steps, |line, steps| line.steps(steps));
        if let Some(traffic) = event.traffic {
            line.number("bytes", Some(traffic.bytes));
            line.number("records", Some(traffic.records));
            line.field(
                "duration_secs",
                Some(traffic.duration_secs),
                |line, secs| {
                    if secs.is_finite() {
                        // With a point, as JSON encoders write it.
                        line.display(format_args!("{secs:?}"));
                    } else {
                        line.put(b"null");
                    }
                },
            );
            line.truth("clean", Some(traffic.clean));
        }
        line.more(event.more.iter().flatten());
        line.number("suppressed", entry.suppressed);
        line
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Writes a field that has a value.
    fn field<T>(&mut self, name: &str, value: Option<T>, write: impl FnOnce(&mut Self, T)) {
        let Some(value) = value else {
            return;
        };
        self.put(b",\"");
        self.put(name.as_bytes());
        self.put(b"\":");
        write(self, value);
    }

    /// A word of ours, which needs no escapes.
    fn word(&mut self, name: &str, value: Option<&str>) {
        self.field(name, value, |line, word| {
            line.quoted(|line| line.put(word.as_bytes()));
        });
    }

    /// A text from outside, made safe and cut to `max_bytes`.
    fn text(&mut self, name: &str, value: Option<&str>, max_bytes: usize) {
        self.field(name, value, |line, text| line.quote(text, max_bytes));
    }

    fn quote(&mut self, text: &str, max_bytes: usize) {
        self.quoted(|line| {
            if text.len() <= max_bytes && is_plain(text) {
                return line.put(text.as_bytes());
            }
            // JSON wants these two escaped, and control characters, of which none is left.
            for part in safe(text, max_bytes).split_inclusive(['"', '\\']) {
                let mark = part.ends_with(['"', '\\']);
                let (plain, mark) = part.as_bytes().split_at(part.len() - usize::from(mark));
                line.put(plain);
                if !mark.is_empty() {
                    line.put(b"\\");
                    line.put(mark);
                }
            }
        });
    }

    fn number(&mut self, name: &str, value: Option<impl Into<u64>>) {
        self.field(name, value, |line, number| line.digits(number.into()));
    }

    fn truth(&mut self, name: &str, value: Option<bool>) {
        self.field(name, value, |line, truth| {
            line.put(if truth { b"true" } else { b"false" });
        });
    }

    fn steps(&mut self, steps: &[TimedStep]) {
        for (index, timed) in steps.iter().take(MAX_STEPS).enumerate() {
            self.put(if index == 0 { b"[[" } else { b",[" });
            self.quoted(|line| line.put(timed.step.name().as_bytes()));
            for number in [timed.after_us, timed.took_us] {
                self.put(b",");
                self.digits(number.into());
            }
            self.put(b"]");
        }
        self.put(b"]");
    }

    /// Fields that few events have, as far as a line has room for them; the rest is counted.
    fn more<'a>(&mut self, fields: impl Iterator<Item = &'a (&'static str, Extra)>) {
        let mut left_out = 0_u64;
        for (key, value) in fields {
            let before = self.0.len();
            match value {
                Extra::Number(number) => self.number(key, Some(*number)),
                Extra::Truth(truth) => self.truth(key, Some(*truth)),
                Extra::Text(text) => self.text(key, Some(text), MAX_OUTSIDE),
                Extra::Texts(texts) => self.field(key, Some(texts), |line, texts| {
                    line.put(b"[");
                    for (index, text) in texts.iter().enumerate() {
                        line.put(if index == 0 { b"" } else { b"," });
                        line.quote(text, MAX_OUTSIDE);
                    }
                    line.put(b"]");
                }),
            }
            if self.0.len() > MAX_WITH_MORE {
                self.0.truncate(before);
                left_out += 1;
            }
        }
        self.number("left_out", (left_out > 0).then_some(left_out));
    }

    fn quoted(&mut self, write: impl FnOnce(&mut Self)) {
        self.put(b"\"");
        write(self);
        self.put(b"\"");
    }

    fn hex(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.put(&hex_of(*byte));
        }
    }

    fn digits(&mut self, number: u64) {
        let (digits, start) = decimal(number);
        self.put(digits.get(start..).unwrap_or_default());
    }

    fn display(&mut self, value: impl fmt::Display) {
        // Writing to memory cannot fail.
        let _ = write!(self, "{value}");
    }

    fn put(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }
}

impl fmt::Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.put(text.as_bytes());
        Ok(())
    }
}

/// Two hexadecimal digits.
pub(super) fn hex_of(byte: u8) -> [u8; 2] {
    let digit = |nibble: u8| match nibble {
        0..=9 => b'0' + nibble,
        _ => b'a' - 10 + nibble,
    };
    [digit(byte >> 4), digit(byte & 15)]
}

/// The digits of a number at the end of an array, and where they begin.
pub(super) fn decimal(mut number: u64) -> ([u8; MAX_DIGITS], usize) {
    let mut digits = [b'0'; MAX_DIGITS];
    let mut start = MAX_DIGITS;
    for digit in digits.iter_mut().rev() {
        *digit += (number % 10) as u8;
        number /= 10;
        start -= 1;
        if number == 0 {
            break;
        }
    }
    (digits, start)
}

/// With what stands behind it, such as the place in a chain, a line is no longer than 4096 bytes.
const MAX_WITH_MORE: usize = 3600;

/// Holds most lines.
const USUAL_LEN: usize = 640;

/// Digits of the greatest `u64`.
const MAX_DIGITS: usize = 20;
