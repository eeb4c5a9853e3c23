//! Values of many samples, sample after sample, channel after channel.

use lsl_proto::ChannelFormat;
use lsl_proto::value::{RawStrings, append_raw_string};

/// Values of one format. For samples × channels they lie sample by sample: the value of channel `c`
/// in sample `s` is at `s * channels + c`.
#[derive(Debug, Clone, PartialEq)]
pub enum Values {
    /// `float32`: floats of 32 bits.
    Float32(Vec<f32>),
    /// `double64`: floats of 64 bits.
    Double64(Vec<f64>),
    /// `string`: texts, which may hold any bytes.
    String(Strings),
    /// `int32`: signed integers of 32 bits.
    Int32(Vec<i32>),
    /// `int16`: signed integers of 16 bits.
    Int16(Vec<i16>),
    /// `int8`: signed integers of 8 bits.
    Int8(Vec<i8>),
    /// `int64`: signed integers of 64 bits.
    Int64(Vec<i64>),
}

/// Evaluates an expression with the vector of any format.
macro_rules! each {
    ($values:expr, $list:ident => $numbers:expr, $strings:expr) => {
        match $values {
            Values::Float32($list) => $numbers,
            Values::Double64($list) => $numbers,
            Values::String($list) => $strings,
            Values::Int32($list) => $numbers,
            Values::Int16($list) => $numbers,
            Values::Int8($list) => $numbers,
            Values::Int64($list) => $numbers,
        }
    };
}

impl Values {
    /// Creates an empty list of this format; `None` for [`ChannelFormat::Undefined`].
    pub fn new(format: ChannelFormat) -> Option<Self> {
        Some(match format {
            ChannelFormat::Undefined => return None,
            ChannelFormat::Float32 => Self::Float32(Vec::new()),
            ChannelFormat::Double64 => Self::Double64(Vec::new()),
            ChannelFormat::String => Self::String(Strings::default()),
            ChannelFormat::Int32 => Self::Int32(Vec::new()),
            ChannelFormat::Int16 => Self::Int16(Vec::new()),
            ChannelFormat::Int8 => Self::Int8(Vec::new()),
            ChannelFormat::Int64 => Self::Int64(Vec::new()),
        })
    }

    /// Returns the format of the values.
    pub const fn format(&self) -> ChannelFormat {
        match self {
            Self::Float32(_) => ChannelFormat::Float32,
            Self::Double64(_) => ChannelFormat::Double64,
            Self::String(_) => ChannelFormat::String,
            Self::Int32(_) => ChannelFormat::Int32,
            Self::Int16(_) => ChannelFormat::Int16,
            Self::Int8(_) => ChannelFormat::Int8,
            Self::Int64(_) => ChannelFormat::Int64,
        }
    }

    /// Returns the number of values (not samples).
    pub fn len(&self) -> usize {
        each!(self, list => list.len(), list.len())
    }

    /// Returns whether there are no values.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the bytes of memory that they take, roughly.
    pub(crate) fn memory(&self) -> usize {
        match self {
            Self::String(texts) => texts.bytes.len() + size_of::<usize>() * texts.len(),
            numbers => numbers.format().value_size() * numbers.len(),
        }
    }

    /// Removes all values and keeps the memory.
    pub fn clear(&mut self) {
        each!(self, list => list.clear(), list.clear());
    }

    /// Appends the values of `other`. Returns `false` without any effect if its format differs.
    pub fn extend_from(&mut self, other: &Self) -> bool {
        match (self, other) {
            (Self::Float32(to), Self::Float32(from)) => to.extend_from_slice(from),
            (Self::Double64(to), Self::Double64(from)) => to.extend_from_slice(from),
            (Self::String(to), Self::String(from)) => from.iter().for_each(|text| to.push(text)),
            (Self::Int32(to), Self::Int32(from)) => to.extend_from_slice(from),
            (Self::Int16(to), Self::Int16(from)) => to.extend_from_slice(from),
            (Self::Int8(to), Self::Int8(from)) => to.extend_from_slice(from),
            (Self::Int64(to), Self::Int64(from)) => to.extend_from_slice(from),
            _ => return false,
        }
        true
    }

    /// Appends values in the raw layout of [`lsl_proto::value`], those of whole samples; a rest that is no value is
    /// left out.
    pub fn extend_from_raw(&mut self, raw: &[u8]) {
        /// Decodes the numbers of a fixed width.
        macro_rules! numbers {
            ($list:ident, $type:ty) => {
                $list.extend(
                    (raw.as_chunks::<{ size_of::<$type>() }>().0.iter())
                        .map(|&value| <$type>::from_ne_bytes(value)),
                )
            };
        }
        match self {
            Self::Float32(list) => numbers!(list, f32),
            Self::Double64(list) => numbers!(list, f64),
            Self::String(list) => RawStrings::new(raw).for_each(|text| list.push(text)),
            Self::Int32(list) => numbers!(list, i32),
            Self::Int16(list) => numbers!(list, i16),
            Self::Int8(list) => numbers!(list, i8),
            Self::Int64(list) => numbers!(list, i64),
        }
    }

    /// Appends the values of a range to `raw`, in the raw layout of [`lsl_proto::value`]. Values out of range are left
    /// out.
    pub fn append_raw(&self, range: std::ops::Range<usize>, raw: &mut Vec<u8>) {
        each!(self, list => {
            for value in list.get(range).unwrap_or_default() {
                raw.extend_from_slice(&value.to_ne_bytes());
            }
        }, {
            for text in range.filter_map(|index| list.get(index)) {
                append_raw_string(text, raw);
            }
        });
    }

    /// Appends the values of a range as a file has them. Values out of range are left out.
    pub(crate) fn append_le(&self, range: std::ops::Range<usize>, out: &mut Vec<u8>) {
        each!(self, list => {
            for value in list.get(range).unwrap_or_default() {
                out.extend_from_slice(&value.to_le_bytes());
            }
        }, {
            for text in range.filter_map(|index| list.get(index)) {
                crate::chunk::append_varlen(out, text.len() as u64);
                out.extend_from_slice(text);
            }
        });
    }

    /// Appends numbers as a file has them; a rest that is no whole value is left out. Does nothing for
    /// strings.
    pub(crate) fn extend_from_le(&mut self, bytes: &[u8]) {
        /// Decodes the numbers of a fixed width.
        macro_rules! numbers {
            ($list:ident, $type:ty) => {
                $list.extend(
                    bytes
                        .as_chunks::<{ size_of::<$type>() }>()
                        .0
                        .iter()
                        .map(|&value| <$type>::from_le_bytes(value)),
                )
            };
        }
        match self {
            Self::Float32(list) => numbers!(list, f32),
            Self::Double64(list) => numbers!(list, f64),
            Self::String(_) => {}
            Self::Int32(list) => numbers!(list, i32),
            Self::Int16(list) => numbers!(list, i16),
            Self::Int8(list) => numbers!(list, i8),
            Self::Int64(list) => numbers!(list, i64),
        }
    }
}

/// Implements the conversions of vectors into values.
macro_rules! from_vectors {
    ($($variant:ident: $type:ty,)*) => {$(
        impl From<Vec<$type>> for Values {
            fn from(values: Vec<$type>) -> Self {
                Self::$variant(values)
            }
        }
    )*};
}

from_vectors! {
    Float32: f32,
    Double64: f64,
    Int32: i32,
    Int16: i16,
    Int8: i8,
    Int64: i64,
}

impl<T: AsRef<[u8]>> FromIterator<T> for Strings {
    fn from_iter<I: IntoIterator<Item = T>>(texts: I) -> Self {
        let mut strings = Self::default();
        for text in texts {
            strings.push(text.as_ref());
        }
        strings
    }
}

impl From<Strings> for Values {
    fn from(strings: Strings) -> Self {
        Self::String(strings)
    }
}

/// List of texts in one piece of memory. LSL does not validate text, so these are bytes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Strings {
    bytes: Vec<u8>,
    /// End of each text in `bytes`.
    ends: Vec<usize>,
}

impl Strings {
    /// Returns the number of texts.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns whether there are no texts.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Appends a text behind the others.
    pub fn push(&mut self, text: &[u8]) {
        self.bytes.extend_from_slice(text);
        self.ends.push(self.bytes.len());
    }

    /// Returns the text at an index.
    pub fn get(&self, index: usize) -> Option<&[u8]> {
        let end = *self.ends.get(index)?;
        let start = match index.checked_sub(1) {
            Some(before) => *self.ends.get(before)?,
            None => 0,
        };
        self.bytes.get(start..end)
    }

    /// Iterates over the texts in order.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> + '_ {
        (0..self.len()).filter_map(|index| self.get(index))
    }

    /// Removes all texts and keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    /// Removes all texts from this index on.
    pub fn truncate(&mut self, len: usize) {
        self.ends.truncate(len);
        self.bytes.truncate(self.ends.last().copied().unwrap_or(0));
    }
}
