//! Recordings that tests make: two streams with known values, and what is wrong with some of them.

use std::path::Path;

use lsl_core::secure::SecretKey;
use lsl_core::{ChannelFormat, StreamInfo};
use lsl_xdf::chunk::{BOUNDARY_UUID, PADDING_TAG};
use lsl_xdf::integrity::Signer;
use lsl_xdf::{FileHeader, PipeSink, Recording, StreamHeader, Strings};

/// Samples of the regular stream.
pub(crate) const SAMPLES: usize = 300;
/// Its rate.
pub(crate) const RATE: f64 = 500.0;
/// When it begins on its own clock, which is this much behind the recorder's.
pub(crate) const BEGIN: f64 = 1000.0;
pub(crate) const OFFSET: f64 = 50.0;
/// A text that must not be found on a disk.
pub(crate) const SECRET: &str = "patient 4711 blinked";

/// The value of a channel of a sample.
#[expect(clippy::cast_precision_loss, reason = "small numbers")]
pub(crate) fn value(sample: usize, channel: usize) -> f32 {
    sample as f32 + channel as f32 / 4.0
}

/// A recording with EEG of two channels and three markers.
pub(crate) fn whole() -> Vec<u8> {
    make(None)
}

/// The same, signed by a device.
pub(crate) fn signed(key: SecretKey) -> Vec<u8> {
    make(Some(Box::new(Device(key))))
}

/// Signed and without streams, as far as we can read it: the length of a chunk leads over a boundary.
pub(crate) fn signed_unreadable(key: SecretKey) -> Vec<u8> {
    let mut recording = Recording::new(PipeSink(Vec::new()), &FileHeader::new("now"), 0.0).unwrap();
    recording.sign_with(Box::new(Device(key)), 0.0).unwrap();
    recording.private(PADDING_TAG, &BOUNDARY_UUID, 0.0).unwrap();
    recording.finish(1.0).unwrap();
    recording.into_sink().0
}

struct Device(SecretKey);

impl Signer for Device {
    fn public_key(&self) -> [u8; 32] {
        *self.0.public().as_bytes()
    }

    fn sign(&self, message: &[u8]) -> [u8; 64] {
        self.0.sign_recording(message)
    }
}

/// The timestamp of the marker in a part of the recording: half an interval behind a sample of the other
/// stream, on the other clock.
#[expect(clippy::cast_precision_loss, reason = "small numbers")]
pub(crate) fn marker_stamp(part: usize) -> f64 {
    BEGIN + (part * 50 + 25) as f64 / RATE + OFFSET + 0.001
}

#[expect(clippy::cast_precision_loss, reason = "small numbers")]
fn make(signer: Option<Box<dyn Signer>>) -> Vec<u8> {
    let header = FileHeader::new("2026-11-22T08:31:56+0000");
    let mut recording = Recording::new(PipeSink(Vec::new()), &header, 0.0).unwrap();
    if let Some(signer) = signer {
        recording.sign_with(signer, 0.0).unwrap();
    }
    let mut info = StreamInfo::new("Amp", "EEG", 2, RATE, ChannelFormat::Float32, "amp-1").unwrap();
    {
        let mut channels = info.desc_mut().into_child("channels");
        channels.append_child("channel").set("label", "C3");
        channels.append_child("channel").set("label", "C4");
    }
    let eeg = StreamHeader::from_info(&info).unwrap();
    let eeg = recording.add_stream(&eeg, 0.0).unwrap();
    let markers = StreamHeader::new("Markers", "Markers", 1, 0.0, ChannelFormat::String).unwrap();
    let markers = recording.add_stream(&markers, 0.0).unwrap();
    for time in [0.0, 5.0, 10.0] {
        let at = BEGIN + time;
        recording.clock_offset(eeg, at, OFFSET, time).unwrap();
        let at = BEGIN + OFFSET + time;
        recording.clock_offset(markers, at, 0.0, time).unwrap();
    }
    let stamps: Vec<f64> = (0..SAMPLES).map(|n| BEGIN + n as f64 / RATE).collect();
    for (part, stamps) in stamps.chunks(50).enumerate() {
        let values: Vec<f32> = (0..stamps.len())
            .flat_map(|n| [0, 1].map(|channel| value(part * 50 + n, channel)))
            .collect();
        let now = part as f64 / 10.0;
        recording.samples(eeg, stamps, &values.into(), now).unwrap();
        if part % 2 == 1 {
            let stamp = marker_stamp(part);
            let text = format!("{SECRET}, part {part}");
            let texts: Strings = [text].into_iter().collect();
            recording
                .samples(markers, &[stamp], &texts.into(), now)
                .unwrap();
        }
    }
    recording.finish(20.0).unwrap();
    recording.into_sink().0
}

/// The same as a crash leaves it: without footers, cut inside samples.
pub(crate) fn cut() -> Vec<u8> {
    let mut bytes = whole();
    let footer = find(&bytes, b"<?xml").last().copied().unwrap();
    bytes.truncate(footer - 1200);
    bytes
}

/// The same with zeros over a part of its middle.
pub(crate) fn holed() -> Vec<u8> {
    let mut bytes = whole();
    let samples = find(&bytes, &value(60, 0).to_le_bytes())[0];
    bytes[samples - 40..samples + 40].fill(0);
    bytes
}

/// Where something stands.
pub(crate) fn find(bytes: &[u8], what: &[u8]) -> Vec<usize> {
    let windows = bytes.windows(what.len()).enumerate();
    windows
        .filter(|(_, window)| *window == what)
        .map(|(at, _)| at)
        .collect()
}

/// Whether any file below a folder contains this.
pub(crate) fn folder_contains(folder: &Path, what: &[u8]) -> bool {
    std::fs::read_dir(folder).unwrap().any(|entry| {
        let path = entry.unwrap().path();
        if path.is_dir() {
            folder_contains(&path, what)
        } else {
            !find(&std::fs::read(path).unwrap(), what).is_empty()
        }
    })
}
