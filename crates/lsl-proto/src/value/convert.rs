//! The conversion matrix: every source type knows how it reads as every stream format.
//!
//! Numbers follow the C casts of an x86-64 build of liblsl, which for floats out of range differ
//! from Rust's saturating `as`. Spec: c-abi §9.1, §9.2.

#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_lossless,
    clippy::use_self,
    reason = "the casts are the rules of C this module exists for"
)]

use std::io::Write as _;

use super::parse;
use crate::text::{DIGITS_F32, DIGITS_F64, write_general};
use crate::{ByteOrder, ChannelFormat};

/// Not nameable outside the crate: the set of element types is closed.
#[expect(unnameable_types, reason = "that is what seals the element traits")]
pub(crate) mod sealed {
    /// A value that can be read as any stream format.
    pub trait ValueSource {
        fn f32(&self) -> f32;
        fn f64(&self) -> f64;
        fn i64(&self) -> i64;
        fn i32(&self) -> i32;
        fn i16(&self) -> i16;
        fn i8(&self) -> i8;
        /// Returns the bytes of its text form, either its own or written to `scratch`.
        fn text<'a>(&'a self, scratch: &'a mut Vec<u8>) -> &'a [u8] {
            scratch.clear();
            self.append_text(scratch);
            scratch
        }
        /// Appends the bytes of its text form.
        fn append_text(&self, out: &mut Vec<u8>);
    }

    /// A slot that can be set from any stream format.
    pub trait ValueTarget {
        fn set<S: ValueSource>(&mut self, value: &S);
    }
}

use sealed::{ValueSource, ValueTarget};

/// Appends `values` as `format` in the given byte order; nothing for strings and `Undefined`.
pub(crate) fn append_numbers<T: ValueSource>(
    values: &[T],
    format: ChannelFormat,
    order: ByteOrder,
    out: &mut Vec<u8>,
) {
    let start = out.len();
    out.resize(start + values.len() * format.value_size(), 0);
    write_numbers(values, format, order, out.split_at_mut(start).1);
}

/// Writes `values` as `format` in the given byte order to the beginning of `out`, which has room for
/// all; nothing for strings and `Undefined`.
#[inline]
pub(crate) fn write_numbers<T: ValueSource>(
    values: &[T],
    format: ChannelFormat,
    order: ByteOrder,
    out: &mut [u8],
) {
    use ByteOrder::{Big, Little};
    use ChannelFormat as F;
    match (format, order) {
        (F::Float32, Little) => write_each(values, out, |v| v.f32().to_le_bytes()),
        (F::Float32, Big) => write_each(values, out, |v| v.f32().to_be_bytes()),
        (F::Double64, Little) => write_each(values, out, |v| v.f64().to_le_bytes()),
        (F::Double64, Big) => write_each(values, out, |v| v.f64().to_be_bytes()),
        (F::Int64, Little) => write_each(values, out, |v| v.i64().to_le_bytes()),
        (F::Int64, Big) => write_each(values, out, |v| v.i64().to_be_bytes()),
        (F::Int32, Little) => write_each(values, out, |v| v.i32().to_le_bytes()),
        (F::Int32, Big) => write_each(values, out, |v| v.i32().to_be_bytes()),
        (F::Int16, Little) => write_each(values, out, |v| v.i16().to_le_bytes()),
        (F::Int16, Big) => write_each(values, out, |v| v.i16().to_be_bytes()),
        (F::Int8, _) => write_each(values, out, |v| v.i8().to_ne_bytes()),
        (F::String | F::Undefined, _) => {}
    }
}

/// Sets `values` from native numbers of `format`; false for strings and `Undefined` with values.
pub(super) fn read_numbers<T: ValueTarget>(
    raw: &[u8],
    format: ChannelFormat,
    values: &mut [T],
) -> bool {
    use ChannelFormat as F;
    match format {
        F::Float32 => read_each(raw, values, f32::from_ne_bytes),
        F::Double64 => read_each(raw, values, f64::from_ne_bytes),
        F::Int64 => read_each(raw, values, i64::from_ne_bytes),
        F::Int32 => read_each(raw, values, i32::from_ne_bytes),
        F::Int16 => read_each(raw, values, i16::from_ne_bytes),
        F::Int8 => read_each(raw, values, i8::from_ne_bytes),
        F::String | F::Undefined => return values.is_empty(),
    }
    true
}

/// Encodes each value into a chunk of fixed size, which lets the compiler vectorise.
#[inline]
fn write_each<T, const N: usize>(values: &[T], out: &mut [u8], encode: impl Fn(&T) -> [u8; N]) {
    for (slot, value) in out.as_chunks_mut::<N>().0.iter_mut().zip(values) {
        *slot = encode(value);
    }
}

fn read_each<T: ValueTarget, S: ValueSource, const N: usize>(
    raw: &[u8],
    values: &mut [T],
    decode: impl Fn([u8; N]) -> S,
) {
    for (value, bytes) in values.iter_mut().zip(raw.as_chunks::<N>().0) {
        value.set(&decode(*bytes));
    }
}

/// Truncates as `cvttsd2si` to 32 bits; NaN and values out of range become the smallest integer.
fn truncate_to_i32(value: f64) -> i32 {
    if value > -2_147_483_649.0 && value < 2_147_483_648.0 {
        value as i32
    } else {
        i32::MIN
    }
}

/// Truncates as `cvttsd2si` to 64 bits, with the same exceptions.
fn truncate_to_i64(value: f64) -> i64 {
    const LIMIT: f64 = 9_223_372_036_854_775_808.0;
    if (-LIMIT..LIMIT).contains(&value) {
        value as i64
    } else {
        i64::MIN
    }
}

macro_rules! float_source {
    ($float:ident, $digits:ident) => {
        impl ValueSource for $float {
            #[inline]
            fn f32(&self) -> f32 {
                *self as f32
            }
            #[inline]
            fn f64(&self) -> f64 {
                f64::from(*self)
            }
            #[inline]
            fn i64(&self) -> i64 {
                truncate_to_i64(f64::from(*self))
            }
            #[inline]
            fn i32(&self) -> i32 {
                truncate_to_i32(f64::from(*self))
            }
            // The narrow integers go through 32 bits and keep the low ones.
            #[inline]
            fn i16(&self) -> i16 {
                truncate_to_i32(f64::from(*self)) as i16
            }
            #[inline]
            fn i8(&self) -> i8 {
                truncate_to_i32(f64::from(*self)) as i8
            }
            fn append_text(&self, out: &mut Vec<u8>) {
                write_general(out, f64::from(*self), $digits);
            }
        }
    };
}

float_source!(f32, DIGITS_F32);
float_source!(f64, DIGITS_F64);

macro_rules! integer_source {
    ($($integer:ident)+) => { $(
        impl ValueSource for $integer {
            #[inline]
            fn f32(&self) -> f32 {
                *self as f32
            }
            #[inline]
            fn f64(&self) -> f64 {
                *self as f64
            }
            #[inline]
            fn i64(&self) -> i64 {
                i64::from(*self)
            }
            #[inline]
            fn i32(&self) -> i32 {
                *self as i32
            }
            #[inline]
            fn i16(&self) -> i16 {
                *self as i16
            }
            #[inline]
            fn i8(&self) -> i8 {
                *self as i8
            }
            fn append_text(&self, out: &mut Vec<u8>) {
                // Writing to a vector cannot fail.
                let _ = write!(out, "{self}");
            }
        }
    )+ };
}

integer_source!(i64 i32 i16 i8);

macro_rules! text_source {
    ($($text:ty)+) => { $(
        impl ValueSource for $text {
            fn f32(&self) -> f32 {
                parse::f32(self.as_ref())
            }
            fn f64(&self) -> f64 {
                parse::f64(self.as_ref())
            }
            fn i64(&self) -> i64 {
                parse::integer(self.as_ref())
            }
            fn i32(&self) -> i32 {
                parse::integer(self.as_ref())
            }
            fn i16(&self) -> i16 {
                parse::integer(self.as_ref())
            }
            fn i8(&self) -> i8 {
                parse::first_character(self.as_ref())
            }
            fn text<'a>(&'a self, _: &'a mut Vec<u8>) -> &'a [u8] {
                self.as_ref()
            }
            fn append_text(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(self.as_ref());
            }
        }
    )+ };
}

text_source!(String Vec<u8> &str &[u8]);

macro_rules! number_target {
    ($($number:ident)+) => { $(
        impl ValueTarget for $number {
            #[inline]
            fn set<S: ValueSource>(&mut self, value: &S) {
                *self = value.$number();
            }
        }
    )+ };
}

number_target!(f32 f64 i64 i32 i16 i8);

impl ValueTarget for Vec<u8> {
    fn set<S: ValueSource>(&mut self, value: &S) {
        self.clear();
        value.append_text(self);
    }
}

impl ValueTarget for String {
    fn set<S: ValueSource>(&mut self, value: &S) {
        let mut bytes = std::mem::take(self).into_bytes();
        bytes.clear();
        value.append_text(&mut bytes);
        *self = String::from_utf8(bytes)
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned());
    }
}
