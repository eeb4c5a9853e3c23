//! XPath numbers as text, in pugixml's spelling: no exponents, no `+`, 16 significant digits.
//! Spec: lsl-protocol §4.

use super::lex::is_space;

/// Parses a number; NaN if the text is none. White space around it is ignored.
pub(super) fn parse(text: &[u8]) -> f64 {
    let text = trim(text);
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    let mut points = 0;
    for &byte in digits {
        match byte {
            b'0'..=b'9' => {}
            b'.' => points += 1,
            _ => return f64::NAN,
        }
    }
    // Texts that Rust would refuse, "" and "." and two points, are no XPath numbers either.
    if points > 1 {
        return f64::NAN;
    }
    str::from_utf8(text)
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(f64::NAN)
}

/// Writes a number as `string(number)` does.
pub(super) fn write(value: f64) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "Infinity" } else { "-Infinity" }.to_owned();
    }
    if value == 0.0 {
        return "0".to_owned();
    }
    let scientific = format!("{:.*e}", DIGITS_AFTER_FIRST, value.abs());
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let digits: String = mantissa.chars().filter(char::is_ascii_digit).collect();
    let digits = digits.trim_end_matches('0');
    // Digits before the point; zero or less means zeros after it.
    let whole = exponent.parse::<i32>().unwrap_or(0) + 1;
    let zeros = |count: usize| "0".repeat(count);
    let sign = if value < 0.0 { "-" } else { "" };
    match usize::try_from(whole) {
        Ok(0) | Err(_) => {
            format!("{sign}0.{}{digits}", zeros(whole.unsigned_abs() as usize))
        }
        Ok(whole) => match digits.split_at_checked(whole) {
            None | Some((_, "")) => {
                format!(
                    "{sign}{digits}{}",
                    zeros(whole.saturating_sub(digits.len()))
                )
            }
            Some((before, after)) => format!("{sign}{before}.{after}"),
        },
    }
}

/// Rounds as `round()` does: halves go up; a negative value that rounds to zero gives negative zero.
pub(super) fn round(value: f64) -> f64 {
    if (-0.5..=0.0).contains(&value) {
        value.ceil()
    } else {
        round_half_up(value)
    }
}

/// Rounds as `substring()` does: halves go up.
pub(super) fn round_half_up(value: f64) -> f64 {
    (value + 0.5).floor()
}

/// Converts a count or position to an XPath number.
#[expect(
    clippy::cast_precision_loss,
    reason = "no document has 2^53 nodes or bytes"
)]
pub(super) fn from_count(count: usize) -> f64 {
    count as f64
}

fn trim(text: &[u8]) -> &[u8] {
    let mut text = text;
    while let [first, rest @ ..] = text
        && is_space(*first)
    {
        text = rest;
    }
    while let [rest @ .., last] = text
        && is_space(*last)
    {
        text = rest;
    }
    text
}

/// C's `DBL_DIG`: digits printed after the first.
const DIGITS_AFTER_FIRST: usize = 15;
