//! Contents of generated samples: a counter that proves order and completeness, or something that
//! looks like an EEG.
#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    reason = "counters wrap and measured values saturate, as `lsl gen --help` says"
)]

use std::f64::consts::TAU;

use clap::ValueEnum;
use lsl_core::{PushElement, StreamInfo};

/// Content of the samples that `lsl gen` sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Pattern {
    /// Something like an EEG in microvolts: alpha rhythm, slow drift, noise
    Eeg,
    /// Sample n carries n in every channel; integers wrap, strings are decimal text, float32 is
    /// exact up to 16777216
    Counter,
}

/// A type that can carry generated values.
pub(crate) trait Synthetic: PushElement + Sized {
    /// Converts the number of a sample.
    fn counter(number: u64) -> Self;
    /// Converts a measured value; integers saturate.
    fn analog(value: f64) -> Self;
}

macro_rules! synthetic {
    ($($type:ty),+) => {$(
        impl Synthetic for $type {
            fn counter(number: u64) -> Self {
                // Integers keep the low bits: that is the documented wrapping.
                number as Self
            }

            fn analog(value: f64) -> Self {
                // Integers saturate.
                value as Self
            }
        }
    )+};
}

synthetic!(f32, f64, i8, i16, i32, i64);

impl Synthetic for String {
    fn counter(number: u64) -> Self {
        number.to_string()
    }

    fn analog(value: f64) -> Self {
        format!("{value:.3}")
    }
}

/// Generator of something like an EEG. The same for every run, so that recordings can be compared.
#[derive(Debug)]
pub(crate) struct Eeg {
    rate: f64,
    noise: u64,
}

impl Eeg {
    /// Creates a generator for a stream of this rate in Hz; an irregular one counts as 250 Hz.
    pub(crate) fn new(rate: f64) -> Self {
        let rate = if rate > 0.0 { rate } else { 250.0 };
        Self {
            rate,
            noise: 0x9e37_79b9_7f4a_7c15,
        }
    }

    /// Returns the next value of `channel` at sample `number`, in microvolts, within ±100.
    pub(crate) fn value(&mut self, number: u64, channel: usize) -> f64 {
        let time = number as f64 / self.rate;
        let phase = channel as f64 * 0.37;
        // Alpha waxes and wanes; channels follow each other a little.
        let alpha = (25.0 + 15.0 * (TAU * 0.13 * time + phase).sin()) * wave(10.0, time, phase);
        let drift = 20.0 * wave(0.2, time, phase * 3.0);
        alpha + drift + 10.0 * self.next_noise()
    }

    /// Returns noise, uniform within ±1 (xorshift64).
    fn next_noise(&mut self) -> f64 {
        self.noise ^= self.noise << 13;
        self.noise ^= self.noise >> 7;
        self.noise ^= self.noise << 17;
        (self.noise >> 11) as f64 / (1_u64 << 52) as f64 - 1.0
    }
}

fn wave(hertz: f64, time: f64, phase: f64) -> f64 {
    (TAU * hertz * time + phase).sin()
}

/// Returns a label of the international 10-10 system as far as they go, a number after that.
fn label(channel: usize) -> String {
    LABELS
        .get(channel)
        .map_or_else(|| format!("Ch{}", channel + 1), |label| (*label).into())
}

const LABELS: [&str; 64] = [
    "Fp1", "Fp2", "F7", "F3", "Fz", "F4", "F8", "FC5", "FC1", "FC2", "FC6", "T7", "C3", "Cz", "C4",
    "T8", "TP9", "CP5", "CP1", "CP2", "CP6", "TP10", "P7", "P3", "Pz", "P4", "P8", "PO9", "O1",
    "Oz", "O2", "PO10", "AF7", "AF3", "AF4", "AF8", "F5", "F1", "F2", "F6", "FT9", "FT7", "FC3",
    "FC4", "FT8", "FT10", "C5", "C1", "C2", "C6", "TP7", "CP3", "CPz", "CP4", "TP8", "P5", "P1",
    "P2", "P6", "PO7", "PO3", "POz", "PO4", "PO8",
];

/// Describes every channel by convention: label, unit, type.
pub(crate) fn add_channels(info: &mut StreamInfo, kind: &str, unit: &str) {
    let count = info.channel_count() as usize;
    let mut channels = info.desc_mut().into_child("channels");
    for channel in 0..count {
        channels
            .append_child("channel")
            .set("label", label(channel))
            .set("unit", unit)
            .set("type", kind);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_wrap_as_documented() {
        assert_eq!([127, 128, 256].map(i8::counter), [127, -128, 0]);
        assert_eq!(
            [32_767, 32_768, 65_536].map(i16::counter),
            [32_767, -32_768, 0]
        );
        assert_eq!([1 << 31, 1 << 32].map(i32::counter), [i32::MIN, 0]);
        assert_eq!(i64::counter(1 << 40), 1 << 40);
        assert_eq!(f32::counter((1 << 24) - 1).to_string(), "16777215");
        assert_eq!(f64::counter(1 << 40).to_string(), (1_u64 << 40).to_string());
        assert_eq!(String::counter(17), "17");
    }

    #[test]
    fn the_eeg_stays_in_range_and_is_the_same_every_time() {
        let mut values = Vec::new();
        let (mut first, mut second) = (Eeg::new(500.0), Eeg::new(500.0));
        for number in 0..5000 {
            let value = first.value(number, 3);
            assert_eq!(value.to_bits(), second.value(number, 3).to_bits());
            assert!(value.abs() <= 100.0);
            values.push(value);
        }
        let mean = values.iter().sum::<f64>() / 5000.0;
        assert!(mean.abs() < 5.0, "{mean}");
        assert_eq!(
            (i8::analog(1e9), String::analog(-1.25)),
            (127, "-1.250".into())
        );
    }

    #[test]
    fn labels_are_unique() {
        let mut labels: Vec<_> = (0..200).map(label).collect();
        assert_eq!((labels[0].as_str(), labels[64].as_str()), ("Fp1", "Ch65"));
        labels.sort();
        labels.dedup();
        assert_eq!(labels.len(), 200);
    }
}
