//! Test values, carried as bytes from end to end so that no bit is lost to a conversion.

use std::fmt::{self, Write as _};

use serde_json::{Value, json};

/// The channel formats of LSL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Float32,
    Double64,
    Text,
    Int32,
    Int16,
    Int8,
    Int64,
}

impl Format {
    pub(crate) const ALL: [Self; 7] = [
        Self::Float32,
        Self::Double64,
        Self::Text,
        Self::Int32,
        Self::Int16,
        Self::Int8,
        Self::Int64,
    ];

    /// As in the stream info.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Float32 => "float32",
            Self::Double64 => "double64",
            Self::Text => "string",
            Self::Int32 => "int32",
            Self::Int16 => "int16",
            Self::Int8 => "int8",
            Self::Int64 => "int64",
        }
    }

    fn size(self) -> usize {
        match self {
            Self::Float32 | Self::Int32 => 4,
            Self::Double64 | Self::Int64 => 8,
            Self::Int16 => 2,
            Self::Int8 => 1,
            Self::Text => 0,
        }
    }
}

/// Values of one format.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Values {
    /// Little-endian bytes, one value after the other.
    Numbers(Vec<u8>),
    Texts(Vec<Vec<u8>>),
}

impl fmt::Debug for Values {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Numbers(bytes) => write!(f, "{}", to_hex(bytes)),
            Self::Texts(texts) => {
                // A text of 70000 characters would bury the difference.
                f.debug_list()
                    .entries(
                        texts
                            .iter()
                            .map(|text| (text.len(), &text[..text.len().min(20)])),
                    )
                    .finish()
            }
        }
    }
}

impl Values {
    /// What arrives when these are sent over protocol 1.00: its archive knows one NaN only, the
    /// positive one with every mantissa bit set (Spec: lsl-protocol §8, seen on 1.18.0 and 1.17.7).
    pub(crate) fn over_100(self, format: Format) -> Self {
        let Self::Numbers(mut bytes) = self else {
            return self;
        };
        for value in bytes.chunks_mut(format.size()) {
            match format {
                Format::Float32 if bits(value) & 0x7fff_ffff > 0x7f80_0000 => {
                    value.copy_from_slice(&0x7fff_ffff_u32.to_le_bytes());
                }
                Format::Double64 if bits(value) << 1 > 0x7ff << 53 => {
                    value.copy_from_slice(&(u64::MAX >> 1).to_le_bytes());
                }
                _ => {}
            }
        }
        Self::Numbers(bytes)
    }

    /// What is left of these as text: what is no UTF-8 is repaired.
    pub(crate) fn repaired(self) -> Self {
        match self {
            Self::Texts(texts) => {
                let repair = |text: Vec<u8>| String::from_utf8_lossy(&text).into_owned().into();
                Self::Texts(texts.into_iter().map(repair).collect())
            }
            numbers @ Self::Numbers(_) => numbers,
        }
    }

    /// As `peer.py` reads them.
    pub(crate) fn to_json(&self) -> Value {
        match self {
            Self::Numbers(bytes) => json!(to_hex(bytes)),
            Self::Texts(texts) => texts.iter().map(|text| json!(to_hex(text))).collect(),
        }
    }

    /// As `peer.py` writes them.
    pub(crate) fn from_json(value: &Value) -> Option<Self> {
        match value {
            Value::String(text) => Some(Self::Numbers(from_hex(text)?)),
            Value::Array(texts) => {
                let texts = texts.iter().map(|text| from_hex(text.as_str()?));
                Some(Self::Texts(texts.collect::<Option<_>>()?))
            }
            _ => None,
        }
    }
}

/// What `lsl gen --pattern counter` sends: `samples` samples from number `first` on, with their number
/// in every channel. Integers wrap around, strings are decimal text.
pub(crate) fn counter(format: Format, channels: usize, first: u32, samples: u32) -> Values {
    let numbers = (first..first + samples).flat_map(|number| std::iter::repeat_n(number, channels));
    match format {
        Format::Text => Values::Texts(numbers.map(|n| n.to_string().into_bytes()).collect()),
        Format::Float32 => {
            // Exact: no run counts to 2^24, and a `u16` converts without a cast.
            let exact = |n: u32| u16::try_from(n).map_or(f32::NAN, f32::from);
            Values::Numbers(numbers.flat_map(|n| exact(n).to_le_bytes()).collect())
        }
        Format::Double64 => {
            Values::Numbers(numbers.flat_map(|n| f64::from(n).to_le_bytes()).collect())
        }
        Format::Int32 | Format::Int16 | Format::Int8 | Format::Int64 => {
            // The low bytes of a number are the number wrapped around.
            let size = format.size();
            let low = |n: u32| u64::from(n).to_le_bytes().into_iter().take(size);
            Values::Numbers(numbers.flat_map(low).collect())
        }
    }
}

/// `count` values of a format, different for every `round`, starting with the awkward ones.
pub(crate) fn pattern(format: Format, count: usize, round: u16) -> Values {
    if format == Format::Text {
        let awkward: [&[u8]; 6] = [
            "äöü €".as_bytes(),
            b"",
            b"nul\0inside",
            b"<&>\"'",
            b"\xff\xfe no UTF-8",
            b"\0",
        ];
        let long = |length: usize| vec![b'x'; length];
        let texts = (0..count).map(|index| match (round, index) {
            (1, 0) => long(255),
            (1, 1) => long(256),
            (1, 2) => long(70_000),
            _ => {
                let at = usize::from(round) + index;
                awkward
                    .get(at)
                    .map_or_else(|| format!("text {at}").into_bytes(), |text| text.to_vec())
            }
        });
        return Values::Texts(texts.collect());
    }
    let bytes = (0_u16..)
        .take(count)
        .flat_map(|index| number(format, round * 3 + index));
    Values::Numbers(bytes.collect())
}

/// Little-endian bytes of the `at`th value of a format: its limits first, then a spread of bits.
fn number(format: Format, at: u16) -> Vec<u8> {
    let spread = u64::from(at + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    match format {
        Format::Float32 => {
            let awkward = [
                1.5,
                -0.0,
                f32::MAX,
                f32::MIN_POSITIVE,
                f32::INFINITY,
                f32::NEG_INFINITY,
                f32::NAN,
                f32::from_bits(1),
                0.1,
            ];
            let value = awkward
                .get(usize::from(at))
                .copied()
                .unwrap_or_else(|| f32::from(at) / 3.0);
            value.to_le_bytes().to_vec()
        }
        Format::Double64 => {
            let awkward = [
                1.5,
                -0.0,
                f64::MAX,
                f64::MIN_POSITIVE,
                f64::INFINITY,
                f64::NEG_INFINITY,
                f64::NAN,
                f64::from_bits(1),
                0.1,
            ];
            let value = awkward
                .get(usize::from(at))
                .copied()
                .unwrap_or_else(|| f64::from(at) / 3.0);
            value.to_le_bytes().to_vec()
        }
        _ => {
            let size = format.size();
            let top = 1_u64 << (size * 8 - 1);
            let awkward = [0, 1, u64::MAX, top, top - 1, top + 1];
            let value = awkward.get(usize::from(at)).copied().unwrap_or(spread);
            value.to_le_bytes()[..size].to_vec()
        }
    }
}

/// A little-endian value of up to eight bytes.
fn bits(value: &[u8]) -> u64 {
    value
        .iter()
        .rev()
        .fold(0, |bits, byte| bits << 8 | u64::from(*byte))
}

pub(crate) fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

pub(crate) fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes().chunks(2);
    digits
        .map(|pair| u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok())
        .collect()
}

/// A time stamp as `peer.py` writes and reads it.
pub(crate) fn stamp_to_json(stamp: f64) -> Value {
    json!(format!("{:016x}", stamp.to_bits()))
}

pub(crate) fn stamp_from_json(value: &Value) -> Option<f64> {
    Some(f64::from_bits(
        u64::from_str_radix(value.as_str()?, 16).ok()?,
    ))
}
