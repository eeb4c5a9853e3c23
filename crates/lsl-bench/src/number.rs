//! Values of all formats as the benchmark fills them: the number of a sample stands in its first
//! channels, in as many digits as its format needs. Readers find missing samples by it.

use lsl_core::{PullElement, PushElement};

/// A number that a stream carries.
pub(super) trait Number: PushElement + PullElement + lsl_dl::Element {
    /// Digits are below this; every one of them is exact in this format.
    const BASE: u64;
    /// Bytes of one value in memory.
    const BYTES: usize;

    fn from_digit(digit: u64) -> Self;
    fn to_digit(self) -> u64;
    /// Appends the bytes of these values.
    fn write(values: &[Self], out: &mut Vec<u8>);
    /// Takes values from as many bytes as they have.
    fn read(bytes: &[u8], values: &mut [Self]);
}

macro_rules! numbers {
    ($($type:ty, $bits:literal;)+) => {$(
        #[expect(
            clippy::allow_attributes,
            reason = "which of the casts below the lints mean depends on the type"
        )]
        impl Number for $type {
            const BASE: u64 = 1 << $bits;
            const BYTES: usize = size_of::<Self>();

            #[allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap,
                clippy::cast_precision_loss, reason = "digits are below the base")]
            fn from_digit(digit: u64) -> Self {
                (digit % Self::BASE) as Self
            }

            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss,
                reason = "what is no digit is a wrong number either way")]
            fn to_digit(self) -> u64 {
                self as u64 % Self::BASE
            }

            fn write(values: &[Self], out: &mut Vec<u8>) {
                for value in values {
                    out.extend_from_slice(&value.to_ne_bytes());
                }
            }

            fn read(bytes: &[u8], values: &mut [Self]) {
                for (value, bytes) in values.iter_mut().zip(bytes.as_chunks().0) {
                    *value = Self::from_ne_bytes(*bytes);
                }
            }
        }
    )+};
}

numbers! {
    i8, 7;
    i16, 15;
    i32, 30;
    i64, 40;
    f32, 20;
    f64, 40;
}

/// Rule by which numbers are written into samples of this many channels.
#[derive(Debug, Clone, Copy)]
pub(super) struct Numbering {
    digits: usize,
    /// Numbers are known up to multiples of this.
    pub(super) modulus: u64,
}

impl Numbering {
    pub(super) fn of<T: Number>(channels: usize) -> Self {
        let mut numbering = Self {
            digits: 0,
            modulus: 1,
        };
        while numbering.digits < channels && numbering.modulus < ENOUGH {
            numbering.digits += 1;
            numbering.modulus = numbering.modulus.saturating_mul(T::BASE);
        }
        numbering
    }

    pub(super) fn write<T: Number>(self, mut number: u64, sample: &mut [T]) {
        for value in sample.iter_mut().take(self.digits) {
            *value = T::from_digit(number);
            number /= T::BASE;
        }
    }

    pub(super) fn read<T: Number>(self, sample: &[T]) -> u64 {
        let digits = sample.iter().take(self.digits).rev();
        digits.fold(0, |number, digit| number * T::BASE + digit.to_digit())
    }
}

/// More samples than any measurement has.
const ENOUGH: u64 = 1 << 40;

/// Calls a function with the type of a format, which is refused if it is no number.
macro_rules! with_format {
    ($format:expr, $function:ident($($argument:expr),*)) => {
        match $format {
            "int8" => $function::<i8>($($argument),*),
            "int16" => $function::<i16>($($argument),*),
            "int32" => $function::<i32>($($argument),*),
            "int64" => $function::<i64>($($argument),*),
            "float32" => $function::<f32>($($argument),*),
            "double64" => $function::<f64>($($argument),*),
            other => Err(::lsl_cli::failure::Failure::Usage(format!(
                "--format {other}: give float32, double64, int8, int16, int32 or int64"
            ))),
        }
    };
}
pub(super) use with_format;

#[cfg(test)]
mod tests {
    use super::*;

    fn check<T: Number>(channels: usize, modulus: u64) {
        let numbering = Numbering::of::<T>(channels);
        assert_eq!(numbering.modulus, modulus);
        let mut sample = vec![T::default(); channels];
        for number in [0, 1, 127, 128, 255, 99_999, 16_777_217, (1 << 33) + 5] {
            numbering.write(number, &mut sample);
            assert_eq!(numbering.read(&sample), number % modulus, "{number}");
        }
    }

    #[test]
    fn numbers_survive_in_every_format() {
        check::<i8>(1, 128);
        check::<i8>(8, 1 << 42);
        check::<i16>(384, 1 << 45);
        check::<i32>(2, 1 << 60);
        check::<i64>(1, 1 << 40);
        check::<f32>(1, 1 << 20);
        check::<f32>(64, 1 << 40);
        check::<f64>(1, 1 << 40);
    }

    #[test]
    fn bytes_are_those_of_the_values() {
        let values = [1_i16, -2, 300];
        let mut bytes = Vec::new();
        Number::write(&values, &mut bytes);
        let mut back = [0_i16; 3];
        Number::read(&bytes, &mut back);
        assert_eq!((bytes.len(), back), (6, values));
    }
}
