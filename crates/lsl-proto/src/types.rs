//! The small vocabulary every module shares: formats, options, lengths, timeouts.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::{Error, Result};

/// Nominal rate of a stream whose samples come at no fixed interval.
pub const IRREGULAR_RATE: f64 = 0.0;

/// Timestamp meaning "let the receiver compute it from the previous one and the nominal rate".
pub const DEDUCED_TIMESTAMP: f64 = -1.0;

/// The number of seconds that LSL programs use for "wait for ever".
pub const FOREVER_SECS: f64 = 32_000_000.0;

/// Type of one channel value. The numeric values are part of the C ABI.
/// Spec: lsl-protocol §2.1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(i32)]
pub enum ChannelFormat {
    /// No format; legal in a stream info, useless in an outlet.
    Undefined = 0,
    /// 32-bit IEEE float; `float32` in XML.
    Float32 = 1,
    /// 64-bit IEEE float; `double64` in XML.
    Double64 = 2,
    /// Byte string of any length and content.
    String = 3,
    /// 32-bit signed integer; `int32` in XML.
    Int32 = 4,
    /// 16-bit signed integer; `int16` in XML.
    Int16 = 5,
    /// 8-bit signed integer; `int8` in XML.
    Int8 = 6,
    /// 64-bit signed integer; `int64` in XML.
    Int64 = 7,
}

impl ChannelFormat {
    /// Every format that can be streamed, in the order of the ABI.
    pub const STREAMABLE: [Self; 7] = [
        Self::Float32,
        Self::Double64,
        Self::String,
        Self::Int32,
        Self::Int16,
        Self::Int8,
        Self::Int64,
    ];

    /// Returns the bytes per value; 0 for strings and `Undefined`.
    pub const fn value_size(self) -> usize {
        match self {
            Self::Undefined | Self::String => 0,
            Self::Int8 => 1,
            Self::Int16 => 2,
            Self::Float32 | Self::Int32 => 4,
            Self::Double64 | Self::Int64 => 8,
        }
    }

    /// Returns the name used in XML.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Undefined => "undefined",
            Self::Float32 => "float32",
            Self::Double64 => "double64",
            Self::String => "string",
            Self::Int32 => "int32",
            Self::Int16 => "int16",
            Self::Int8 => "int8",
            Self::Int64 => "int64",
        }
    }

    /// Returns whether values are IEEE floats.
    pub const fn is_float(self) -> bool {
        matches!(self, Self::Float32 | Self::Double64)
    }
}

impl fmt::Display for ChannelFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for ChannelFormat {
    type Err = Error;

    /// Accepts the seven streamable names (Spec: lsl-protocol §2.3); `undefined` is refused.
    fn from_str(text: &str) -> Result<Self> {
        Self::STREAMABLE
            .into_iter()
            .find(|format| format.name() == text)
            .ok_or_else(|| Error::Argument(format!("Invalid channel format {text}")))
    }
}

/// Byte order of multi-byte numbers. Spec: lsl-protocol §7.2.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ByteOrder {
    /// Least significant byte first; `1234` on the wire.
    Little,
    /// Most significant byte first; `4321` on the wire.
    Big,
}

impl ByteOrder {
    /// The order of this host, which is that of raw samples.
    pub const NATIVE: Self = if cfg!(target_endian = "big") {
        Self::Big
    } else {
        Self::Little
    };

    /// Returns the number that stands for it in headers.
    pub const fn code(self) -> i32 {
        match self {
            Self::Little => 1234,
            Self::Big => 4321,
        }
    }

    /// Returns the order of a header number; `None` unless it is 1234 or 4321.
    pub const fn from_code(code: i32) -> Option<Self> {
        match code {
            1234 => Some(Self::Little),
            4321 => Some(Self::Big),
            _ => None,
        }
    }
}

/// Length of a sample buffer, in any unit that LSL accepts. Spec: lsl-protocol §9.4.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum BufferLength {
    /// Seconds of data; 100 samples a second are assumed for irregular streams.
    Seconds(f64),
    /// Thousandths of a second of data.
    Milliseconds(u32),
    /// Number of samples, at any rate.
    Samples(usize),
}

impl BufferLength {
    /// Returns the capacity in samples for a stream of this nominal rate; at least 1.
    pub fn to_samples(self, nominal_srate: f64) -> usize {
        let rate = if nominal_srate == IRREGULAR_RATE {
            100.0
        } else {
            nominal_srate
        };
        let samples = match self {
            Self::Seconds(secs) => rate * secs,
            Self::Milliseconds(ms) => (rate * f64::from(ms)).trunc() / 1000.0,
            Self::Samples(samples) => return samples.clamp(1, MAX_BUFFER_SAMPLES),
        };
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "fractions are cut as liblsl does; out of range saturates, NaN becomes 0"
        )]
        let samples = samples as usize;
        samples.clamp(1, MAX_BUFFER_SAMPLES)
    }
}

/// Peers read lengths as a C `int`.
const MAX_BUFFER_SAMPLES: usize = i32::MAX as usize;

impl Default for BufferLength {
    /// Returns six minutes, liblsl's default.
    fn default() -> Self {
        Self::Seconds(360.0)
    }
}

/// Corrections that an inlet applies to timestamps when they are pulled.
/// Spec: lsl-protocol §11.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ProcessingOptions {
    bits: u32,
}

impl ProcessingOptions {
    /// Timestamps as the sender gave them.
    pub const NONE: Self = Self { bits: 0 };
    /// Map the sender's clock onto ours.
    pub const CLOCKSYNC: Self = Self { bits: 1 };
    /// Smooth jitter of regular streams.
    pub const DEJITTER: Self = Self { bits: 2 };
    /// Keep timestamps from going backwards.
    pub const MONOTONIZE: Self = Self { bits: 4 };
    /// Accepted for compatibility: our inlets are always safe to share between threads.
    pub const THREADSAFE: Self = Self { bits: 8 };
    /// All options above; `proc_ALL` of liblsl.
    pub const ALL: Self = Self { bits: 15 };

    /// Converts the bit mask of the C ABI; unknown bits are ignored.
    pub const fn from_bits(bits: u32) -> Self {
        Self {
            bits: bits & Self::ALL.bits,
        }
    }

    /// Returns the bit mask of the C ABI.
    pub const fn bits(self) -> u32 {
        self.bits
    }

    /// Returns whether every option of `other` is set.
    pub const fn contains(self, other: Self) -> bool {
        self.bits & other.bits == other.bits
    }
}

impl std::ops::BitOr for ProcessingOptions {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self {
            bits: self.bits | other.bits,
        }
    }
}

/// Longest time that a call may wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Timeout {
    /// At most this long; zero never waits.
    After(Duration),
    /// No limit; the deadline is infinite.
    Forever,
}

impl Timeout {
    /// Zero: look once, never wait.
    pub const NOW: Self = Self::After(Duration::ZERO);

    /// Converts seconds of the C ABI: negative and NaN mean now, `FOREVER_SECS` and more for ever.
    #[inline]
    pub fn from_secs(secs: f64) -> Self {
        if secs >= FOREVER_SECS {
            Self::Forever
        } else if secs > 0.0 {
            Self::After(Duration::from_secs_f64(secs))
        } else {
            Self::NOW
        }
    }

    /// Returns the deadline in seconds of `local_clock`; infinite for `Forever`.
    pub fn deadline(self, now: f64) -> f64 {
        match self {
            Self::After(limit) => now + limit.as_secs_f64(),
            Self::Forever => f64::INFINITY,
        }
    }
}

impl From<Duration> for Timeout {
    fn from(limit: Duration) -> Self {
        Self::After(limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffer_lengths_are_those_of_liblsl() {
        let text = include_str!("../tests/vectors/buffer-lengths.json");
        let vectors: serde_json::Value = serde_json::from_str(text).unwrap();
        for case in vectors["cases"].as_array().unwrap() {
            let number = |key: &str| case[key].as_u64().unwrap();
            let length = match number("flags") {
                0 => BufferLength::Seconds(case["max_buflen"].as_f64().unwrap()),
                1 => BufferLength::Samples(usize::try_from(number("max_buflen")).unwrap()),
                2 => BufferLength::Milliseconds(u32::try_from(number("max_buflen")).unwrap()),
                // Both units at once cannot be said with this type.
                _ => continue,
            };
            let samples = length.to_samples(case["nominal_srate"].as_f64().unwrap());
            assert_eq!(samples as u64, number("max_buffer_length_header"), "{case}");
        }
        assert_eq!(BufferLength::Samples(0).to_samples(1.0), 1);
        assert_eq!(BufferLength::Seconds(-3.0).to_samples(1.0), 1);
        assert_eq!(BufferLength::Seconds(f64::NAN).to_samples(1.0), 1);
        assert_eq!(
            BufferLength::Seconds(f64::INFINITY).to_samples(1.0),
            MAX_BUFFER_SAMPLES
        );
        assert_eq!(
            BufferLength::Milliseconds(360_000).to_samples(32_000.0),
            11_520_000
        );
    }

    #[test]
    fn timeouts_take_the_seconds_of_the_c_abi() {
        assert_eq!(Timeout::from_secs(-1.0), Timeout::NOW);
        assert_eq!(Timeout::from_secs(f64::NAN), Timeout::NOW);
        assert_eq!(
            Timeout::from_secs(0.5),
            Timeout::After(Duration::from_millis(500))
        );
        assert_eq!(Timeout::from_secs(FOREVER_SECS), Timeout::Forever);
        assert_eq!(Timeout::from_secs(f64::INFINITY), Timeout::Forever);
        assert!(Timeout::Forever.deadline(3.0).is_infinite());
    }
}
