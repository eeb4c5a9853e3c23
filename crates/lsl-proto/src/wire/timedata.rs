//! Clock probes: an inlet asks an outlet for its time, the outlet answers with two readings of its
//! clock. Times are seconds of `local_clock` of the host that took them. Spec: lsl-protocol §5.1.
//!
//! This file only knows the text of the readings; `time` interprets them.

use crate::text::{DIGITS_F64, write_general_short};
use crate::wire::discovery::{DatagramError, parse_ascii, split_blank, split_line};

/// First line of a probe.
pub(crate) const COMMAND: &[u8] = b"LSL:timedata";

/// A probe, as an inlet sends it to the service port of an outlet.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TimeRequest {
    /// Tells the probes of one wave from those of earlier ones.
    pub wave_id: i32,
    /// The sender's clock when it sent this; finite.
    pub t0: f64,
}

impl TimeRequest {
    /// Reads a probe; text after the two numbers is ignored.
    ///
    /// # Errors
    /// [`DatagramError`]: a malformed probe must not be answered.
    pub fn parse(datagram: &[u8]) -> Result<Self, DatagramError> {
        let (command, rest) = split_line(datagram);
        if command.trim_ascii() != COMMAND {
            return Err(DatagramError::Command);
        }
        let (wave_id, rest) = take_wave_id(rest)?;
        let (t0, _) = take_time(rest)?;
        Ok(Self { wave_id, t0 })
    }

    /// Writes the datagram, byte for byte as liblsl sends it.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = COMMAND.to_vec();
        out.extend_from_slice(b"\r\n");
        out.extend_from_slice(self.wave_id.to_string().as_bytes());
        push_time(&mut out, self.t0);
        out.extend_from_slice(b"\r\n");
        out
    }

    /// Builds the answer, given the outlet's clock at receipt (`t1`) and at sending (`t2`).
    pub fn reply(self, t1: f64, t2: f64) -> TimeReply {
        TimeReply {
            wave_id: self.wave_id,
            t0: self.t0,
            t1,
            t2,
        }
    }
}

/// The answer to a probe, sent to the source of the probe.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TimeReply {
    /// Wave of the probe that is answered.
    pub wave_id: i32,
    /// `t0` of the probe, rounded to 16 significant digits.
    pub t0: f64,
    /// The outlet's clock when the probe arrived.
    pub t1: f64,
    /// The outlet's clock when this was sent.
    pub t2: f64,
}

impl TimeReply {
    /// Reads an answer; text after the four numbers is ignored.
    ///
    /// # Errors
    /// [`DatagramError::Number`] when a number is missing, malformed or not finite.
    pub fn parse(datagram: &[u8]) -> Result<Self, DatagramError> {
        let (wave_id, rest) = take_wave_id(datagram)?;
        let (t0, rest) = take_time(rest)?;
        let (t1, rest) = take_time(rest)?;
        let (t2, _) = take_time(rest)?;
        Ok(Self {
            wave_id,
            t0,
            t1,
            t2,
        })
    }

    /// Writes the datagram, byte for byte as liblsl sends it: a leading blank, no line end.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = vec![b' '];
        out.extend_from_slice(self.wave_id.to_string().as_bytes());
        for time in [self.t0, self.t1, self.t2] {
            push_time(&mut out, time);
        }
        out
    }
}

fn take_wave_id(text: &[u8]) -> Result<(i32, &[u8]), DatagramError> {
    let (token, rest) = split_blank(text);
    Ok((parse_ascii(token).ok_or(DatagramError::Number)?, rest))
}

fn take_time(text: &[u8]) -> Result<(f64, &[u8]), DatagramError> {
    let (token, rest) = split_blank(text);
    let time = parse_ascii(token).filter(|time: &f64| time.is_finite());
    Ok((time.ok_or(DatagramError::Number)?, rest))
}

fn push_time(out: &mut Vec<u8>, time: f64) {
    out.push(b' ');
    write_general_short(out, time, DIGITS_F64);
}

#[cfg(test)]
mod tests;
