//! Streams and values that tests record.

use lsl_proto::ChannelFormat;
use lsl_xdf::{StreamHeader, Strings, Values};

/// A header of a stream that is called by its format.
pub(crate) fn header(format: ChannelFormat, channels: u32, srate: f64) -> StreamHeader {
    StreamHeader::new(format.name(), "test", channels, srate, format).unwrap()
}

/// Values that tell their number: of sample `first` on, `samples` × `channels`.
pub(crate) fn values(
    format: ChannelFormat,
    first: usize,
    samples: usize,
    channels: usize,
) -> Values {
    let numbers = first * channels..(first + samples) * channels;
    match format {
        ChannelFormat::Float32 => numbers.map(|n| n as f32 * 0.5).collect::<Vec<_>>().into(),
        ChannelFormat::Double64 => numbers.map(|n| n as f64 * 0.1).collect::<Vec<_>>().into(),
        ChannelFormat::Int32 => numbers.map(|n| n as i32 - 7).collect::<Vec<_>>().into(),
        ChannelFormat::Int16 => numbers.map(|n| n as i16).collect::<Vec<_>>().into(),
        ChannelFormat::Int8 => numbers.map(|n| n as i8).collect::<Vec<_>>().into(),
        ChannelFormat::Int64 => numbers
            .map(|n| i64::MIN + n as i64)
            .collect::<Vec<_>>()
            .into(),
        ChannelFormat::String | ChannelFormat::Undefined => Values::String(
            numbers
                .map(|n| format!("märker {n} {}", "x".repeat(n % 40)))
                .collect::<Strings>(),
        ),
    }
}

/// Timestamps of a regular stream, with jitter where `n % 5 == 0`.
pub(crate) fn stamps(first: usize, samples: usize, srate: f64) -> Vec<f64> {
    let mut last = 1000.0;
    let mut all = Vec::new();
    for n in 0..first + samples {
        last = if n % 5 == 0 {
            1000.0 + n as f64 / srate + (n % 3) as f64 * 1e-4
        } else {
            last + 1.0 / srate
        };
        all.push(last);
    }
    all.split_off(first)
}
