//! Parsers of numbers in text, as C++ stream extraction in the classic locale: leading white space
//! is skipped, the longest prefix that looks like a number counts, the rest is ignored, nothing
//! usable is 0. Spec: c-abi §9.4.

use crate::text::{decimal_prefix, integer_prefix, saturating_i64, skip_space};

/// Returns the code of the first non-blank byte: liblsl extracts a *character* here, so `12` is 49.
/// Returns 0 if there is none, where liblsl leaves the value uninitialised.
pub(super) fn first_character(text: &[u8]) -> i8 {
    skip_space(text)
        .first()
        .map_or(0, |byte| byte.cast_signed())
}

/// Parses decimal digits with an optional sign; saturates at the limits of the type.
pub(super) fn integer<T: Limited>(text: &[u8]) -> T {
    T::clamp_from(integer_prefix(skip_space(text)).map_or(0, saturating_i64))
}

/// Integers that a 64-bit value can be clamped to.
pub(super) trait Limited {
    fn clamp_from(value: i64) -> Self;
}

macro_rules! limited {
    ($($integer:ident)+) => { $(
        impl Limited for $integer {
            fn clamp_from(value: i64) -> Self {
                let limit = if value < 0 { Self::MIN } else { Self::MAX };
                Self::try_from(value).unwrap_or(limit)
            }
        }
    )+ };
}

limited!(i64 i32 i16);

/// Parses a decimal 32-bit float; overflow gives the largest finite value.
pub(super) fn f32(text: &[u8]) -> f32 {
    let value = decimal_prefix(skip_space(text)).and_then(|number| number.parse::<f32>().ok());
    value.unwrap_or(0.0).clamp(f32::MIN, f32::MAX)
}

/// Parses a decimal 64-bit float; overflow gives the largest finite value.
pub(super) fn f64(text: &[u8]) -> f64 {
    let value = decimal_prefix(skip_space(text)).and_then(|number| number.parse::<f64>().ok());
    value.unwrap_or(0.0).clamp(f64::MIN, f64::MAX)
}
