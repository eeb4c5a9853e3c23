//! Numbers as text: written as C's `printf` does, which is the form of every number in LSL's XML, headers
//! and string conversions; and the prefix of a text that C++ reads as one. Knows nothing of the number's origin. Spec: c-abi §9.3, lsl-protocol §2.2.

use std::io::Write as _;

/// Significant digits of a `f64` in XML and string samples.
pub(crate) const DIGITS_F64: usize = 16;

/// Significant digits of a `f32` in string samples.
pub(crate) const DIGITS_F32: usize = 8;

/// Significant digits that give every `f64` back.
pub(crate) const DIGITS_EXACT: usize = 17;

/// Appends `value` as `printf("%#.{precision}g")` does: always `precision` significant digits and a
/// point. A `f32` is widened first, which changes neither its digits nor its sign.
pub(crate) fn write_general(out: &mut Vec<u8>, value: f64, precision: usize) {
    write(out, value, precision, Zeros::Keep);
}

/// Appends `value` as `printf("%.{precision}g")` does: trailing zeros and a trailing point go.
pub(crate) fn write_general_short(out: &mut Vec<u8>, value: f64, precision: usize) {
    write(out, value, precision, Zeros::Strip);
}

/// Returns `value` as `printf("%#.16g")` writes it.
pub(crate) fn format_g16(value: f64) -> Vec<u8> {
    let mut out = Vec::with_capacity(24);
    write_general(&mut out, value, DIGITS_F64);
    out
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Zeros {
    Keep,
    Strip,
}

fn write(out: &mut Vec<u8>, value: f64, precision: usize, zeros: Zeros) {
    if value.is_sign_negative() {
        out.push(b'-');
    }
    if !value.is_finite() {
        out.extend_from_slice(if value.is_nan() { b"nan" } else { b"inf" });
        return;
    }
    let precision = precision.max(1);
    // `{:e}` with a precision rounds exactly, and its exponent is the one after rounding, which is
    // the one C decides the form by.
    let scientific = format!("{:.*e}", precision - 1, value.abs());
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let mut digits: Vec<u8> = mantissa.bytes().filter(u8::is_ascii_digit).collect();
    if zeros == Zeros::Strip {
        while digits.len() > 1 && digits.last() == Some(&b'0') {
            digits.pop();
        }
    }

    let fixed = usize::try_from(exponent)
        .ok()
        .filter(|&exponent| exponent < precision);
    if let Some(exponent) = fixed {
        // Stripped zeros before the point come back here.
        digits.resize(digits.len().max(exponent + 1), b'0');
        let (whole, fraction) = digits.split_at(exponent + 1);
        write_point(out, whole, fraction, zeros);
    } else if (-4..0).contains(&exponent) {
        out.extend_from_slice(b"0.");
        out.extend((exponent + 1..0).map(|_| b'0'));
        out.extend_from_slice(&digits);
    } else {
        let (whole, fraction) = digits.split_at(1);
        write_point(out, whole, fraction, zeros);
        let sign = if exponent < 0 { '-' } else { '+' };
        // Writing to a vector cannot fail.
        let _ = write!(out, "e{sign}{:02}", exponent.unsigned_abs());
    }
}

fn write_point(out: &mut Vec<u8>, whole: &[u8], fraction: &[u8], zeros: Zeros) {
    out.extend_from_slice(whole);
    if zeros == Zeros::Keep || !fraction.is_empty() {
        out.push(b'.');
    }
    out.extend_from_slice(fraction);
}

/// Skips white space as C's `isspace` sees it.
pub(crate) fn skip_space(text: &[u8]) -> &[u8] {
    let is_space = |byte: &&u8| matches!(byte, b' ' | b'\t'..=b'\r');
    let blanks = text.iter().take_while(is_space).count();
    text.get(blanks..).unwrap_or_default()
}

/// Returns the leading decimal integer: a sign and digits. `None` without digits.
pub(crate) fn integer_prefix(text: &[u8]) -> Option<&str> {
    let mut prefix = Prefix { text, len: 0 };
    prefix.eat(b"+-");
    (prefix.eat_digits() > 0).then(|| prefix.text()).flatten()
}

/// Returns the leading decimal number: a sign, digits with or without a point, an exponent. `None`
/// without digits. An exponent without digits voids the number, as the stream reader of C++ has
/// swallowed its `e` by then; `nan`, `inf` and hexadecimal are no numbers.
pub(crate) fn decimal_prefix(text: &[u8]) -> Option<&str> {
    let mut prefix = Prefix { text, len: 0 };
    prefix.eat(b"+-");
    let mut digits = prefix.eat_digits();
    if prefix.eat(b".") {
        digits += prefix.eat_digits();
    }
    if digits > 0 && prefix.eat(b"eE") {
        prefix.eat(b"+-");
        digits = prefix.eat_digits();
    }
    (digits > 0).then(|| prefix.text()).flatten()
}

/// Parses what [`integer_prefix`] returned; saturates at the limits of 64 bits.
pub(crate) fn saturating_i64(integer: &str) -> i64 {
    let limit = if integer.starts_with('-') {
        i64::MIN
    } else {
        i64::MAX
    };
    integer.parse().unwrap_or(limit)
}

/// Cursor over a text, whose prefix grows with the characters accepted.
struct Prefix<'a> {
    text: &'a [u8],
    len: usize,
}

impl<'a> Prefix<'a> {
    fn eat(&mut self, any_of: &[u8]) -> bool {
        let next = self.text.get(self.len);
        let found = next.is_some_and(|byte| any_of.contains(byte));
        self.len += usize::from(found);
        found
    }

    fn eat_digits(&mut self) -> usize {
        let rest = self.text.get(self.len..).unwrap_or_default();
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        self.len += digits;
        digits
    }

    fn text(&self) -> Option<&'a str> {
        std::str::from_utf8(self.text.get(..self.len)?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(value: f64, precision: usize, kept: &str, stripped: &str) {
        let mut out = Vec::new();
        write_general(&mut out, value, precision);
        assert_eq!(
            String::from_utf8(out).unwrap(),
            kept,
            "%#.{precision}g of {value:?}"
        );
        let mut out = Vec::new();
        write_general_short(&mut out, value, precision);
        assert_eq!(
            String::from_utf8(out).unwrap(),
            stripped,
            "%.{precision}g of {value:?}"
        );
    }

    /// Expectations from the specification and from C's printf.
    #[test]
    fn doubles() {
        let check = |value, kept, stripped| check(value, 16, kept, stripped);
        check(0.0, "0.000000000000000", "0");
        check(-0.0, "-0.000000000000000", "-0");
        check(0.1, "0.1000000000000000", "0.1");
        check(1.1, "1.100000000000000", "1.1");
        check(100.0, "100.0000000000000", "100");
        check(250.0, "250.0000000000000", "250");
        check(1_000_000.5, "1000000.500000000", "1000000.5");
        check(1e15, "1000000000000000.", "1000000000000000");
        check(1e16, "1.000000000000000e+16", "1e+16");
        check(
            9_999_999_999_999_998.0,
            "9999999999999998.",
            "9999999999999998",
        );
        check(
            99_999_999_999_999_984.0,
            "9.999999999999998e+16",
            "9.999999999999998e+16",
        );
        check(0.0001, "0.0001000000000000000", "0.0001");
        check(1e-5, "1.000000000000000e-05", "1e-05");
        check(1e-9, "1.000000000000000e-09", "1e-09");
        check(1e-300, "1.000000000000000e-300", "1e-300");
        check(5e-324, "4.940656458412465e-324", "4.940656458412465e-324");
        check(f64::MAX, "1.797693134862316e+308", "1.797693134862316e+308");
        check(1_397.486_383_369, "1397.486383369000", "1397.486383369");
        check(
            0.000_1_f64.next_down(),
            "9.999999999999999e-05",
            "9.999999999999999e-05",
        );
        check(
            0.001_f64.next_down(),
            "0.0009999999999999998",
            "0.0009999999999999998",
        );
        // Ties go to even, as in glibc.
        check(
            1_234_567_890_123_456.5,
            "1234567890123456.",
            "1234567890123456",
        );
        check(
            1_234_567_890_123_457.5,
            "1234567890123458.",
            "1234567890123458",
        );
        check(f64::NAN, "nan", "nan");
        check(-f64::NAN, "-nan", "-nan");
        check(f64::INFINITY, "inf", "inf");
        check(f64::NEG_INFINITY, "-inf", "-inf");
    }

    #[test]
    fn floats() {
        let check = |value: f32, kept, stripped| check(f64::from(value), 8, kept, stripped);
        check(0.0, "0.0000000", "0");
        check(12.5, "12.500000", "12.5");
        check(0.1, "0.10000000", "0.1");
        check(16_777_216.0, "16777216.", "16777216");
        check(1e8, "1.0000000e+08", "1e+08");
        check(1e-5, "9.9999997e-06", "9.9999997e-06");
        check(f32::MAX, "3.4028235e+38", "3.4028235e+38");
        check(-f32::NAN, "-nan", "-nan");
    }

    #[test]
    fn six_digits() {
        check(123_456.0, 6, "123456.", "123456");
        check(1_234_567.0, 6, "1.23457e+06", "1.23457e+06");
        check(120_000.0, 6, "120000.", "120000");
        // The form follows the exponent after rounding.
        check(0.000_099_999_999, 6, "0.000100000", "0.0001");
        check(999_999.5, 6, "1.00000e+06", "1e+06");
        check(0.000_123_456_78, 6, "0.000123457", "0.000123457");
        check(7.0, 0, "7.", "7");
    }
}
