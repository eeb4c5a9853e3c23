//! Every captured feed, encoded and decoded, over both protocols: `feed*` was sent by a liblsl
//! outlet, `inlet*` was understood by a liblsl inlet.

use std::fs;

use serde_json::Value;

use super::super::*;
use crate::value::{append_raw, read_raw};
use crate::wire::archive100::{Decoder100, Encoder100};
use crate::wire::testpattern::PatternCheck;

const VECTORS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/vectors");

#[derive(Debug)]
struct Feed {
    id: String,
    format: ChannelFormat,
    channels: u32,
    nominal_srate: f64,
    shortinfo: Vec<u8>,
    version: u32,
    order: ByteOrder,
    suppress: bool,
    /// Bytes between the response header and the first sample.
    preamble: Vec<u8>,
    samples: Vec<Sample>,
}

#[derive(Debug)]
struct Sample {
    /// As received (`feed`) or as pulled after deduction (`inlet`).
    timestamp: Option<f64>,
    raw: Vec<u8>,
    /// Its encoding, where the vector has it apart.
    wire: Option<Vec<u8>>,
}

fn unhex(text: &Value) -> Vec<u8> {
    let pairs = text.as_str().unwrap().as_bytes().chunks(2);
    pairs
        .map(|p| u8::from_str_radix(std::str::from_utf8(p).unwrap(), 16).unwrap())
        .collect()
}

fn number(value: &Value) -> f64 {
    value
        .as_f64()
        .unwrap_or_else(|| value.as_str().unwrap().parse().unwrap())
}

/// The raw layout of values as the vectors write them.
fn raw_of(format: ChannelFormat, values: &[Value]) -> Vec<u8> {
    let mut raw = Vec::new();
    for value in values {
        if let Some(text) = value["utf8"].as_str() {
            append_raw(&[text], format, &mut raw);
        } else if let Some(text) = value["repeat"].as_str() {
            let times = usize::try_from(value["times"].as_u64().unwrap()).unwrap();
            append_raw(&[text.repeat(times)], format, &mut raw);
        } else if format.is_float() {
            append_raw(&[number(value)], format, &mut raw);
        } else {
            append_raw(&[value.as_i64().unwrap()], format, &mut raw);
        }
    }
    raw
}

/// Bitwise, but any NaN for any NaN: the vectors do not keep the payload.
fn same_values(format: ChannelFormat, a: &[u8], b: &[u8]) -> bool {
    let numbers = |raw: &[u8]| {
        let mut values = vec![0.0_f64; raw.len() / format.value_size()];
        read_raw(raw, format, &mut values).unwrap();
        values
    };
    a == b
        || format.is_float()
            && a.len() == b.len()
            && numbers(a)
                .iter()
                .zip(numbers(b))
                .all(|(a, b)| a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan())
}

fn xml_field(xml: &[u8], tag: &str) -> String {
    let xml = std::str::from_utf8(xml).unwrap();
    let (_, rest) = xml.split_once(&format!("<{tag}>")).unwrap();
    rest.split_once("</").unwrap().0.to_owned()
}

fn load(id: &str, vector: &Value) -> Feed {
    let inlet = vector["kind"] == "inlet_session";
    let shortinfo = if inlet {
        unhex(&vector["inputs"]["stream_xml_hex"])
    } else {
        unhex(&vector["vars"]["shortinfo_hex"])
    };
    let format: ChannelFormat = xml_field(&shortinfo, "channel_format").parse().unwrap();
    let mut preamble = unhex(&vector["exchange"][1]["hex"]);
    let mut header = String::new();
    if preamble.starts_with(b"LSL/") {
        let end = preamble
            .windows(4)
            .position(|bytes| bytes == b"\r\n\r\n")
            .unwrap()
            + 4;
        header = String::from_utf8(preamble.drain(..end).collect()).unwrap();
    }
    let samples = if inlet {
        let sample = |sample: &Value| Sample {
            timestamp: Some(number(&sample["timestamp"])),
            raw: raw_of(format, sample["values"].as_array().unwrap()),
            wire: None,
        };
        vector["decoded_by_liblsl"]
            .as_array()
            .unwrap()
            .iter()
            .map(sample)
            .collect()
    } else if let Some(steps) = vector["steps"].as_array() {
        let sample = |sample: &Value| Sample {
            timestamp: (sample["deduced"] == false).then(|| number(&sample["timestamp"])),
            raw: raw_of(format, sample["values"].as_array().unwrap()),
            wire: Some(unhex(&sample["hex"])),
        };
        let of_step = |step: &Value| step["wire_samples"].as_array().unwrap().clone();
        steps
            .iter()
            .flat_map(of_step)
            .map(|value| sample(&value))
            .collect()
    } else {
        let sample = |sample: &Value| Sample {
            timestamp: Some(number(&sample["timestamp"])),
            raw: raw_of(format, &[sample["value"].clone()]),
            wire: Some(if sample["hex"].is_null() {
                let mut wire = unhex(&sample["prefix_hex"]);
                let times = usize::try_from(sample["then_repeat"][1].as_u64().unwrap()).unwrap();
                wire.extend(unhex(&sample["then_repeat"][0]).repeat(times));
                wire
            } else {
                unhex(&sample["hex"])
            }),
        };
        vector["exchange"][2]["samples"]
            .as_array()
            .unwrap()
            .iter()
            .map(sample)
            .collect()
    };
    Feed {
        id: id.to_owned(),
        format,
        channels: xml_field(&shortinfo, "channel_count").parse().unwrap(),
        nominal_srate: xml_field(&shortinfo, "nominal_srate").parse().unwrap(),
        shortinfo,
        version: if header.contains("Data-Protocol-Version: 110") {
            110
        } else {
            100
        },
        order: if header.contains("Order: 4321") {
            ByteOrder::Big
        } else {
            ByteOrder::Little
        },
        suppress: header.contains("Suppress-Subnormals: 1"),
        preamble,
        samples,
    }
}

impl Feed {
    fn encode(&self, timestamp: Option<f64>, raw: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        let timestamp = timestamp.unwrap_or(DEDUCED_TIMESTAMP);
        if self.version == 110 {
            let encoder = Encoder110::new(self.format, self.channels, self.order);
            encoder.encode_raw(&mut out, timestamp, raw).unwrap();
        } else {
            let encoder = Encoder100::new(self.format, self.channels);
            encoder.encode_raw(&mut out, timestamp, raw).unwrap();
        }
        out
    }

    fn encode_typed<T: crate::value::PullElement + PushElement + Clone + Default>(
        &self,
        timestamp: Option<f64>,
        raw: &[u8],
    ) -> Vec<u8> {
        let mut values = vec![T::default(); self.channels as usize];
        read_raw(raw, self.format, &mut values).unwrap();
        let mut out = Vec::new();
        let timestamp = timestamp.unwrap_or(DEDUCED_TIMESTAMP);
        if self.version == 110 {
            let encoder = Encoder110::new(self.format, self.channels, self.order);
            encoder.encode_sample(&mut out, timestamp, &values).unwrap();
        } else {
            let encoder = Encoder100::new(self.format, self.channels);
            encoder.encode_sample(&mut out, timestamp, &values).unwrap();
        }
        out
    }

    fn encode_preamble(&self) -> Vec<u8> {
        let mut out = Vec::new();
        if self.version == 110 {
            let encoder = Encoder110::new(self.format, self.channels, self.order);
            encoder.encode_test_patterns(&mut out);
        } else {
            let encoder = Encoder100::new(self.format, self.channels);
            encoder.encode_preamble(&mut out, &self.shortinfo);
        }
        out
    }

    /// Decodes a whole feed given in pieces; the patterns are checked and left out.
    fn decode(&self, bytes: &[u8], piece: usize) -> Vec<(Option<f64>, Vec<u8>)> {
        let mut patterns = PatternCheck::new(self.format, self.channels);
        let mut samples = Vec::new();
        let mut sink = |timestamp: Option<f64>, raw: &[u8]| {
            if patterns.missing() > 0 {
                patterns.sample(timestamp, raw);
            } else {
                samples.push((timestamp, raw.to_vec()));
            }
        };
        if self.version == 110 {
            let mut decoder = Decoder110::new(self.format, self.channels, self.order)
                .with_subnormals_suppressed(self.suppress);
            for bytes in bytes.chunks(piece) {
                decoder.decode(bytes, &mut sink).unwrap();
            }
            assert!(decoder.is_between_samples(), "{}", self.id);
        } else {
            let mut decoder = Decoder100::new(self.format, self.channels);
            for bytes in bytes.chunks(piece) {
                decoder.decode(bytes, &mut sink).unwrap();
            }
            assert_eq!(
                decoder.shortinfo(),
                Some(&self.shortinfo[..]),
                "{}",
                self.id
            );
            assert!(decoder.is_between_samples(), "{}", self.id);
        }
        assert!(patterns.matched() && patterns.missing() == 0, "{}", self.id);
        samples
    }
}

fn each_feed(prefix: &str, mut visit: impl FnMut(&Feed, &Value)) {
    let mut feeds = 0;
    for entry in fs::read_dir(VECTORS).unwrap() {
        let path = entry.unwrap().path();
        let id = path.file_stem().unwrap().to_str().unwrap();
        if !id.starts_with(prefix) {
            continue;
        }
        let vector: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        if vector["kind"] == "streamfeed" || vector["kind"] == "inlet_session" {
            visit(&load(id, &vector), &vector);
            feeds += 1;
        }
    }
    assert!(feeds >= 20, "only {feeds} {prefix} vectors were found");
}

#[test]
fn feeds_of_liblsl_outlets_are_reproduced_and_understood() {
    each_feed("feed1", |feed, _| {
        assert_eq!(feed.encode_preamble(), feed.preamble, "{}", feed.id);
        let mut bytes = feed.preamble.clone();
        for sample in &feed.samples {
            let wire = sample.wire.as_ref().unwrap();
            let what = format!("{} {:?}", feed.id, sample.timestamp);
            assert_eq!(&feed.encode(sample.timestamp, &sample.raw), wire, "{what}");
            let typed = match feed.format {
                ChannelFormat::Float32 => Feed::encode_typed::<f32>,
                ChannelFormat::Double64 => Feed::encode_typed::<f64>,
                ChannelFormat::String => Feed::encode_typed::<Vec<u8>>,
                ChannelFormat::Int16 => Feed::encode_typed::<i16>,
                _ => Feed::encode_typed::<i64>,
            };
            assert_eq!(&typed(feed, sample.timestamp, &sample.raw), wire, "{what}");
            bytes.extend(wire);
        }
        for piece in [1, 7, usize::MAX] {
            let decoded = feed.decode(&bytes, piece);
            assert_eq!(decoded.len(), feed.samples.len(), "{}", feed.id);
            for ((timestamp, raw), sample) in decoded.iter().zip(&feed.samples) {
                assert_eq!(*timestamp, sample.timestamp, "{}", feed.id);
                assert!(
                    same_values(feed.format, raw, &sample.raw),
                    "{} {raw:?}",
                    feed.id
                );
            }
        }
    });
}

#[test]
fn feeds_to_liblsl_inlets_are_understood_as_they_understood_them() {
    each_feed("inlet1", |feed, vector| {
        let mut bytes = feed.preamble.clone();
        assert_eq!(feed.encode_preamble(), bytes, "{}", feed.id);
        bytes.extend(unhex(&vector["exchange"][2]["hex"]));
        for piece in [1, 5, usize::MAX] {
            let mut deducer = TimestampDeducer::new(feed.nominal_srate);
            let decoded = feed.decode(&bytes, piece);
            assert_eq!(decoded.len(), feed.samples.len(), "{}", feed.id);
            for ((timestamp, raw), sample) in decoded.iter().zip(&feed.samples) {
                assert_eq!(
                    Some(deducer.next(*timestamp)),
                    sample.timestamp,
                    "{}",
                    feed.id
                );
                assert!(
                    same_values(feed.format, raw, &sample.raw),
                    "{} {raw:?}",
                    feed.id
                );
            }
        }
    });
}
