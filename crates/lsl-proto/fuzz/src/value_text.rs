//! Text read as a number, as happens when text is pushed into a numeric stream. Input: the text.

use lsl_proto::ChannelFormat;
use lsl_proto::value::{append_raw, append_raw_string, read_raw};

pub fn check(input: &[u8]) {
    let as_i64 = i64::from_ne_bytes(number(input, ChannelFormat::Int64));
    let as_i32 = i32::from_ne_bytes(number(input, ChannelFormat::Int32));
    let as_i16 = i16::from_ne_bytes(number(input, ChannelFormat::Int16));
    let as_f64 = f64::from_ne_bytes(number(input, ChannelFormat::Double64));
    let as_f32 = f32::from_ne_bytes(number(input, ChannelFormat::Float32));
    let _ = number::<1>(input, ChannelFormat::Int8);

    // Every width clamps the same number.
    assert_eq!(
        i64::from(as_i32),
        as_i64.clamp(i32::MIN.into(), i32::MAX.into())
    );
    assert_eq!(
        i64::from(as_i16),
        as_i64.clamp(i16::MIN.into(), i16::MAX.into())
    );
    // Overflow gives the largest number, nonsense gives zero: never an infinity or NaN.
    assert!(as_f64.is_finite() && as_f32.is_finite());
    // What is written is read back; of a double, 16 of its 17 digits are written.
    assert_eq!(
        i64::from_ne_bytes(number(&text(as_i64), ChannelFormat::Int64)),
        as_i64
    );
    let again = f64::from_ne_bytes(number(&text(as_f64), ChannelFormat::Double64));
    assert!((again - as_f64).abs() <= as_f64.abs() * 1e-15 + f64::from_bits(1));

    // Plain numbers mean what they mean in Rust.
    let plain = std::str::from_utf8(input).unwrap_or_default();
    if let Ok(expected) = plain.parse::<i64>() {
        assert_eq!(as_i64, expected);
    }
    let is_decimal = plain
        .bytes()
        .all(|byte| byte.is_ascii_digit() || b"+-.eE".contains(&byte));
    if let Ok(expected) = plain.parse::<f64>()
        && is_decimal
    {
        let expected = expected.clamp(f64::MIN, f64::MAX);
        assert_eq!(as_f64.to_bits(), expected.to_bits());
    }
    pulled_alike(input, as_f64, as_i64);
}

/// Pushing text into a numeric stream and pulling numbers from a text stream are one conversion.
fn pulled_alike(input: &[u8], as_f64: f64, as_i64: i64) {
    let mut raw = Vec::new();
    append_raw_string(input, &mut raw);
    let (mut double, mut int, mut bytes) = ([0.0_f64], [0_i64], [Vec::new()]);
    read_raw(&raw, ChannelFormat::String, &mut double).expect("one value");
    read_raw(&raw, ChannelFormat::String, &mut int).expect("one value");
    read_raw(&raw, ChannelFormat::String, &mut bytes).expect("one value");
    assert_eq!((double[0].to_bits(), int[0]), (as_f64.to_bits(), as_i64));
    assert_eq!(bytes[0], input);
}

fn number<const N: usize>(text: &[u8], format: ChannelFormat) -> [u8; N] {
    let mut raw = Vec::new();
    append_raw(&[text], format, &mut raw);
    raw.try_into().expect("one value")
}

fn text<T: lsl_proto::value::PushElement>(value: T) -> Vec<u8> {
    let mut raw = Vec::new();
    append_raw(&[value], ChannelFormat::String, &mut raw);
    let mut text = [Vec::new()];
    read_raw(&raw, ChannelFormat::String, &mut text).expect("one value");
    std::mem::take(&mut text[0])
}
