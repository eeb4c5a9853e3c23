#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    reason = "the vectors give the low bits of every value as one hexadecimal number"
)]

use serde_json::Value;

use super::*;

/// Type names of `conversions.json`: the letters of the C functions.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    F,
    D,
    L,
    I,
    S,
    C,
    Str,
}

fn kind_of(format: ChannelFormat) -> Kind {
    match format {
        ChannelFormat::Float32 => Kind::F,
        ChannelFormat::Double64 => Kind::D,
        ChannelFormat::Int64 => Kind::L,
        ChannelFormat::Int32 => Kind::I,
        ChannelFormat::Int16 => Kind::S,
        ChannelFormat::Int8 => Kind::C,
        ChannelFormat::String | ChannelFormat::Undefined => Kind::Str,
    }
}

/// `v` is the stream's own type; `str` and `buf` are text.
fn kind(letters: &str, format: ChannelFormat) -> Kind {
    match letters {
        "f" => Kind::F,
        "d" => Kind::D,
        "l" => Kind::L,
        "i" => Kind::I,
        "s" => Kind::S,
        "c" => Kind::C,
        "str" | "buf" => Kind::Str,
        "v" => kind_of(format),
        other => panic!("{other}"),
    }
}

fn bits(text: &Value) -> u64 {
    u64::from_str_radix(text.as_str().unwrap().trim_start_matches("0x"), 16).unwrap()
}

fn hex(text: &str) -> Vec<u8> {
    text.as_bytes()
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

fn until_nul(text: &[u8]) -> Vec<u8> {
    text.split(|byte| *byte == 0).next().unwrap().to_vec()
}

fn push(kind: Kind, format: ChannelFormat, case: &Value, letters: &str) -> Vec<u8> {
    let mut raw = Vec::new();
    if kind == Kind::Str {
        let text = hex(case["value_hex"].as_str().unwrap());
        // The NUL-terminated functions are the C ABI's business; their effect is this cut.
        let text = if letters == "str" {
            until_nul(&text)
        } else {
            text
        };
        append_raw(&[text.as_slice()], format, &mut raw);
        return raw;
    }
    let value = bits(&case["value_bits"]);
    match kind {
        Kind::F => append_raw(&[f32::from_bits(value as u32)], format, &mut raw),
        Kind::D => append_raw(&[f64::from_bits(value)], format, &mut raw),
        Kind::L => append_raw(&[value as i64], format, &mut raw),
        Kind::I => append_raw(&[value as i32], format, &mut raw),
        Kind::S => append_raw(&[value as i16], format, &mut raw),
        _ => append_raw(&[value as i8], format, &mut raw),
    }
    raw
}

fn pull<T: PullElement>(raw: &[u8], format: ChannelFormat, slot: T) -> T {
    let mut slots = [slot];
    read_raw(raw, format, &mut slots).unwrap();
    let [value] = slots;
    value
}

/// The pulled value as the vectors show it; for numbers with whether it is NaN.
fn pull_shown(kind: Kind, raw: &[u8], format: ChannelFormat) -> (String, bool) {
    match kind {
        Kind::F => {
            let value = pull(raw, format, 0.0_f32);
            (format!("{:#010x}", value.to_bits()), value.is_nan())
        }
        Kind::D => {
            let value = pull(raw, format, 0.0_f64);
            (format!("{:#018x}", value.to_bits()), value.is_nan())
        }
        Kind::L => (format!("{:#018x}", pull(raw, format, 0_i64)), false),
        Kind::I => (format!("{:#010x}", pull(raw, format, 0_i32)), false),
        Kind::S => (format!("{:#06x}", pull(raw, format, 0_i16)), false),
        Kind::C => (format!("{:#04x}", pull(raw, format, 0_i8)), false),
        Kind::Str => unreachable!("text is compared as bytes"),
    }
}

#[test]
fn the_conversion_matrix_is_that_of_liblsl() {
    let file = include_str!("../../tests/vectors/conversions.json");
    let vectors: Value = serde_json::from_str(file).unwrap();
    let (mut checked, mut indeterminate, mut wrong) = (0, 0, Vec::new());
    for case in vectors["cases"].as_array().unwrap() {
        let format: ChannelFormat = case["format"].as_str().unwrap().parse().unwrap();
        let name = case["push"].as_str().unwrap();
        let letters = name
            .strip_prefix("lsl_push_sample_")
            .unwrap()
            .strip_suffix("tp")
            .unwrap();
        if case["push_rc"] != 0 {
            assert_eq!((letters, format), ("v", ChannelFormat::String));
            continue;
        }
        let raw = push(kind(letters, format), format, case, letters);
        for (name, expected) in case["pulls"].as_object().unwrap() {
            let letters = name.strip_prefix("lsl_pull_sample_").unwrap();
            if letters == "v" && format == ChannelFormat::String {
                continue;
            }
            let kind = kind(letters, format);
            let ok = if kind == Kind::Str {
                let text = pull(&raw, format, vec![b'x'; 3]);
                let text = if letters == "str" {
                    until_nul(&text)
                } else {
                    text
                };
                if expected["indeterminate"] == true {
                    indeterminate += 1;
                    parse::f64(&text) == 0.0 && text.starts_with(b"0")
                } else {
                    hex(expected["hex"].as_str().unwrap()) == text
                }
            } else {
                let (shown, is_nan) = pull_shown(kind, &raw, format);
                if expected["indeterminate"] == true {
                    indeterminate += 1;
                    shown
                        .trim_start_matches("0x")
                        .bytes()
                        .all(|digit| digit == b'0')
                } else if expected["out"]
                    .as_str()
                    .is_some_and(|out| out.ends_with("nan"))
                {
                    // Only that it is one: payloads are not conversions' business.
                    is_nan
                } else {
                    expected["bits"] == shown
                }
            };
            checked += 1;
            if !ok {
                wrong.push(format!(
                    "{} {format} {} {name}",
                    case["push"], case["value"]
                ));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {checked} differ: {wrong:#?}",
        wrong.len()
    );
    // So that a change of the file's shape cannot make this test vacuous.
    assert!(
        checked > 24_000 && indeterminate > 0,
        "{checked} {indeterminate}"
    );
}

#[test]
fn chunks_convert_like_single_values_and_back() {
    let values: Vec<i64> = (-300..300).map(|n| n * 7_919).collect();
    for format in ChannelFormat::STREAMABLE {
        let mut together = Vec::new();
        append_raw(&values, format, &mut together);
        let mut apart = Vec::new();
        for value in &values {
            append_raw(&[*value], format, &mut apart);
        }
        assert_eq!(together, apart, "{format}");
        let mut back = vec![0; values.len()];
        read_raw(&together, format, &mut back).unwrap();
        if matches!(format, ChannelFormat::Int64 | ChannelFormat::Double64) {
            assert_eq!(back, values, "{format}");
        }
    }
}

#[test]
fn every_text_type_pushes_the_same_bytes() {
    let mut expected = Vec::new();
    append_raw(&["12", "-7"], ChannelFormat::String, &mut expected);
    assert_eq!(
        RawStrings::new(&expected).collect::<Vec<_>>(),
        [b"12", b"-7"]
    );
    let check = |push: &dyn Fn(&mut Vec<u8>)| {
        let mut raw = Vec::new();
        push(&mut raw);
        assert_eq!(raw, expected);
    };
    check(&|raw| {
        append_raw(
            &["12".to_owned(), "-7".to_owned()],
            ChannelFormat::String,
            raw,
        );
    });
    check(&|raw| {
        append_raw(
            &[b"12".to_vec(), b"-7".to_vec()],
            ChannelFormat::String,
            raw,
        );
    });
    check(&|raw| append_raw(&[&b"12"[..], b"-7"], ChannelFormat::String, raw));
    check(&|raw| append_raw(&[12_i16, -7], ChannelFormat::String, raw));
}

#[test]
fn invalid_utf8_reaches_a_string_as_replacement_and_a_vector_as_it_is() {
    let mut raw = Vec::new();
    append_raw(&[&b"a\xff\0b"[..]], ChannelFormat::String, &mut raw);
    assert_eq!(pull(&raw, ChannelFormat::String, Vec::new()), b"a\xff\0b");
    assert_eq!(
        pull(&raw, ChannelFormat::String, String::new()),
        "a\u{fffd}\0b"
    );
}

#[test]
fn a_wrong_number_of_values_is_an_argument_error() {
    let check = |raw: &[u8], format, slots: usize| {
        let error = read_raw(raw, format, &mut vec![0_i32; slots]).unwrap_err();
        assert_eq!(error.kind(), crate::ErrorKind::Argument, "{format} {slots}");
    };
    check(&[0; 8], ChannelFormat::Float32, 1);
    check(&[0; 8], ChannelFormat::Float32, 3);
    check(&[0; 7], ChannelFormat::Int16, 3);
    check(&[], ChannelFormat::Undefined, 1);
    let mut strings = Vec::new();
    append_raw(&["a", "b"], ChannelFormat::String, &mut strings);
    check(&strings, ChannelFormat::String, 1);
    check(&strings, ChannelFormat::String, 3);
    check(&strings[..strings.len() - 1], ChannelFormat::String, 2);
    check(&u64::MAX.to_ne_bytes(), ChannelFormat::String, 1);
}

#[test]
fn text_is_parsed_as_by_stream_extraction() {
    let long = format!("{}7", "9".repeat(400));
    for (text, double, long_integer) in [
        (
            "9223372036854775807",
            9_223_372_036_854_775_807_f64,
            i64::MAX,
        ),
        (
            "-9223372036854775808",
            -9_223_372_036_854_775_808_f64,
            i64::MIN,
        ),
        (
            "9223372036854775808",
            9_223_372_036_854_775_808_f64,
            i64::MAX,
        ),
        (long.as_str(), f64::MAX, i64::MAX),
        ("\x0b\x0c +8", 8.0, 8),
        ("+-8", 0.0, 0),
        (".", 0.0, 0),
        (".e5", 0.0, 0),
        ("1.e2", 100.0, 1),
        ("1e99999999999999999999999", f64::MAX, 1),
        ("-1e-99999999999999999999", -0.0, -1),
        ("\u{a0}1", 0.0, 0),
    ] {
        assert_eq!(
            parse::f64(text.as_bytes()).to_bits(),
            double.to_bits(),
            "{text:?}"
        );
        assert_eq!(
            parse::integer::<i64>(text.as_bytes()),
            long_integer,
            "{text:?}"
        );
    }
}

#[test]
fn raw_samples_are_cut_where_they_end_and_refused_where_they_do_not() {
    let cut = |raw: &[u8], format, channels, samples| -> Option<Vec<Vec<u8>>> {
        let samples = RawSamples::new(raw, format, channels, samples).ok()?;
        Some(samples.map(<[u8]>::to_vec).collect())
    };
    let numbers = |samples| cut(&[1, 2, 3, 4, 5, 6, 7, 8], ChannelFormat::Int16, 2, samples);
    assert_eq!(numbers(2), Some(vec![vec![1, 2, 3, 4], vec![5, 6, 7, 8]]));
    assert_eq!((numbers(1), numbers(3)), (None, None));
    assert_eq!(cut(&[], ChannelFormat::Int16, 2, 0), Some(vec![]));
    let mut texts = Vec::new();
    let ends = [&b"a"[..], b"", b"bcd", b"\xff"].map(|text| {
        append_raw_string(text, &mut texts);
        texts.len()
    });
    let [_, first, _, all] = ends;
    let expected = vec![texts[..first].to_vec(), texts[first..all].to_vec()];
    let strings = |raw: &[u8], samples| cut(raw, ChannelFormat::String, 2, samples);
    assert_eq!(strings(&texts, 2), Some(expected));
    assert_eq!((strings(&texts, 1), strings(&texts, 3)), (None, None));
    for short in 0..all {
        assert_eq!(strings(&texts[..short], 2), None);
    }
}
