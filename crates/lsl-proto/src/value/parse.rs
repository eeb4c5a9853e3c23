//! Parsers of numbers in text, as C++ stream extraction in the classic locale: leading white space
//! is skipped, the longest prefix that looks like a number counts, the rest is ignored, nothing
//! usable is 0. Spec: c-abi §9.4.

/// Returns the code of the first non-blank byte: liblsl extracts a *character* here, so `12` is 49.
/// Returns 0 if there is none, where liblsl leaves the value uninitialised.
pub(super) fn first_character(text: &[u8]) -> i8 {
    skip_space(text)
        .first()
        .map_or(0, |byte| byte.cast_signed())
}

/// Parses decimal digits with an optional sign; saturates at the limits of the type.
pub(super) fn integer<T: Limited>(text: &[u8]) -> T {
    let text = skip_space(text);
    let (negative, digits) = match text.split_first() {
        Some((b'-', digits)) => (true, digits),
        Some((b'+', digits)) => (false, digits),
        _ => (false, text),
    };
    // Summed downwards because the negative range is the larger one; further digits saturate.
    let value = digits
        .iter()
        .take_while(|byte| byte.is_ascii_digit())
        .fold(0_i64, |sum, byte| {
            sum.saturating_mul(10)
                .saturating_sub(i64::from(byte - b'0'))
        });
    T::clamp_from(if negative {
        value
    } else {
        value.saturating_neg()
    })
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
    let value = float_prefix(text).parse::<f32>().unwrap_or(0.0);
    if value.is_infinite() {
        f32::MAX.copysign(value)
    } else {
        value
    }
}

/// Parses a decimal 64-bit float; overflow gives the largest finite value.
pub(super) fn f64(text: &[u8]) -> f64 {
    let value = float_prefix(text).parse::<f64>().unwrap_or(0.0);
    if value.is_infinite() {
        f64::MAX.copysign(value)
    } else {
        value
    }
}

/// Returns the prefix that stream extraction collects: sign, digits with a point, exponent. An
/// incomplete exponent (`1e+`) belongs to it and makes the whole unparsable, as in liblsl. Words
/// such as `nan` and `inf` and hexadecimal never get into it.
fn float_prefix(text: &[u8]) -> &str {
    let text = skip_space(text);
    let mut end = usize::from(matches!(text.first(), Some(b'+' | b'-')));
    let digits = |from: usize| {
        text.iter()
            .skip(from)
            .take_while(|byte| byte.is_ascii_digit())
            .count()
    };
    end += digits(end);
    if text.get(end) == Some(&b'.') {
        end += 1;
        end += digits(end);
    }
    if matches!(text.get(end), Some(b'e' | b'E')) {
        end += 1;
        end += usize::from(matches!(text.get(end), Some(b'+' | b'-')));
        end += digits(end);
    }
    // All bytes taken are ASCII.
    text.get(..end)
        .and_then(|prefix| std::str::from_utf8(prefix).ok())
        .unwrap_or_default()
}

fn skip_space(text: &[u8]) -> &[u8] {
    let blanks = text
        .iter()
        .take_while(|byte| matches!(byte, b' ' | b'\t'..=b'\r'))
        .count();
    text.get(blanks..).unwrap_or_default()
}
