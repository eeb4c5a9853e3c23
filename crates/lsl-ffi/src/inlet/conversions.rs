//! Every measured conversion of liblsl through this library's own push and pull functions: all push
//! functions, all formats, all pull functions. Spec: c-abi §9.

#![expect(
    clippy::cast_possible_truncation,
    reason = "the vectors give the low bits of every value as one hexadecimal number"
)]

use std::collections::HashMap;
use std::ffi::c_char;
use std::ptr;

use lsl_core::ChannelFormat;
use serde_json::Value;

use super::pull::*;
use super::pull_text::*;
use super::*;
use crate::common::lsl_destroy_string;
use crate::outlet::push::*;
use crate::outlet::push_text::*;
use crate::testing::{SOON, Stream, UNSET, take_text};

fn bits(text: &Value) -> u64 {
    u64::from_str_radix(text.as_str().unwrap().trim_start_matches("0x"), 16).unwrap()
}

fn bytes(hex: &Value) -> Vec<u8> {
    let digits = hex.as_str().unwrap().as_bytes().chunks(2);
    digits
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

/// Pushes the value of a case.
fn push(out: Handle, format: ChannelFormat, case: &Value) -> i32 {
    let function = case["push"].as_str().unwrap();
    if !case["value_hex"].is_null() {
        let mut text = bytes(&case["value_hex"]);
        let length = u32::try_from(text.len()).unwrap();
        text.push(0);
        let texts = [text.as_ptr().cast::<c_char>()];
        return match function {
            // SAFETY: one channel, one terminated text.
            "lsl_push_sample_strtp" => unsafe {
                lsl_push_sample_strtp(out, texts.as_ptr(), 5.0, 1)
            },
            // SAFETY: one channel, one text of that length.
            "lsl_push_sample_buftp" => unsafe {
                lsl_push_sample_buftp(out, texts.as_ptr(), &raw const length, 5.0, 1)
            },
            other => panic!("{other}"),
        };
    }
    if case["value_bits"].is_null() {
        assert_eq!(function, "lsl_push_sample_vtp");
        // SAFETY: refused for string streams before anything is read.
        return unsafe { lsl_push_sample_vtp(out, function.as_ptr().cast(), 5.0, 1) };
    }
    let value = bits(&case["value_bits"]);
    // The value in each width; misaligned for good measure.
    let mut memory = [0_u8; 9];
    let width = match (function, format.value_size()) {
        ("lsl_push_sample_ftp" | "lsl_push_sample_itp", _) => 4,
        ("lsl_push_sample_dtp" | "lsl_push_sample_ltp", _) => 8,
        ("lsl_push_sample_stp", _) => 2,
        ("lsl_push_sample_ctp", _) => 1,
        (_, size) => size,
    };
    match width {
        1 => memory[1] = value as u8,
        2 => memory[1..3].copy_from_slice(&(value as u16).to_ne_bytes()),
        4 => memory[1..5].copy_from_slice(&(value as u32).to_ne_bytes()),
        _ => memory[1..].copy_from_slice(&value.to_ne_bytes()),
    }
    let data = memory[1..].as_ptr();
    match function {
        // SAFETY: one channel, and one value of the right width.
        "lsl_push_sample_ftp" => unsafe { lsl_push_sample_ftp(out, data.cast(), 5.0, 1) },
        // SAFETY: as above.
        "lsl_push_sample_dtp" => unsafe { lsl_push_sample_dtp(out, data.cast(), 5.0, 1) },
        // SAFETY: as above.
        "lsl_push_sample_ltp" => unsafe { lsl_push_sample_ltp(out, data.cast(), 5.0, 1) },
        // SAFETY: as above.
        "lsl_push_sample_itp" => unsafe { lsl_push_sample_itp(out, data.cast(), 5.0, 1) },
        // SAFETY: as above.
        "lsl_push_sample_stp" => unsafe { lsl_push_sample_stp(out, data.cast(), 5.0, 1) },
        // SAFETY: as above.
        "lsl_push_sample_ctp" => unsafe { lsl_push_sample_ctp(out, data.cast(), 5.0, 1) },
        // SAFETY: as above.
        "lsl_push_sample_vtp" => unsafe { lsl_push_sample_vtp(out, data.cast(), 5.0, 1) },
        other => panic!("{other}"),
    }
}

/// Result of one pull function.
#[derive(Debug, PartialEq)]
enum Pulled {
    Bits(u64),
    Text(Vec<u8>),
    Refused(i32),
}

/// Pulls one value with the function of this name.
fn pull(inlet: Handle, format: ChannelFormat, function: &str) -> Pulled {
    let mut memory = [0_u8; 8];
    let data = memory.as_mut_ptr();
    let mut text: *mut c_char = ptr::null_mut();
    let mut length = u32::MAX;
    let mut ec = UNSET;
    let code = &raw mut ec;
    let raw_size = i32::try_from(format.value_size()).unwrap();
    let (width, stamp) = match function {
        // SAFETY: one channel, and room for one value of any width.
        "lsl_pull_sample_f" => (4, unsafe {
            lsl_pull_sample_f(inlet, data.cast(), 1, SOON, code)
        }),
        // SAFETY: as above.
        "lsl_pull_sample_d" => (8, unsafe {
            lsl_pull_sample_d(inlet, data.cast(), 1, SOON, code)
        }),
        // SAFETY: as above.
        "lsl_pull_sample_l" => (8, unsafe {
            lsl_pull_sample_l(inlet, data.cast(), 1, SOON, code)
        }),
        // SAFETY: as above.
        "lsl_pull_sample_i" => (4, unsafe {
            lsl_pull_sample_i(inlet, data.cast(), 1, SOON, code)
        }),
        // SAFETY: as above.
        "lsl_pull_sample_s" => (2, unsafe {
            lsl_pull_sample_s(inlet, data.cast(), 1, SOON, code)
        }),
        // SAFETY: as above.
        "lsl_pull_sample_c" => (1, unsafe {
            lsl_pull_sample_c(inlet, data.cast(), 1, SOON, code)
        }),
        // SAFETY: as above.
        "lsl_pull_sample_v" => (format.value_size(), unsafe {
            lsl_pull_sample_v(inlet, data.cast(), raw_size, SOON, code)
        }),
        // SAFETY: one channel, one slot.
        "lsl_pull_sample_str" => (0, unsafe {
            lsl_pull_sample_str(inlet, &raw mut text, 1, SOON, code)
        }),
        // SAFETY: one channel, one slot, one length.
        "lsl_pull_sample_buf" => (0, unsafe {
            lsl_pull_sample_buf(inlet, &raw mut text, &raw mut length, 1, SOON, code)
        }),
        other => panic!("{other}"),
    };
    if ec != 0 {
        assert_eq!(stamp.to_bits(), 0);
        return Pulled::Refused(ec);
    }
    assert_eq!(stamp.to_bits(), 5.0_f64.to_bits());
    match (function, width) {
        ("lsl_pull_sample_str", _) => Pulled::Text(take_text(text)),
        ("lsl_pull_sample_buf", _) => {
            // SAFETY: the text has that many bytes and a NUL.
            let all = unsafe { std::slice::from_raw_parts(text.cast::<u8>(), length as usize + 1) };
            let (last, all) = all.split_last().unwrap();
            assert_eq!(*last, 0);
            let all = all.to_vec();
            // SAFETY: it belongs to the caller.
            unsafe { lsl_destroy_string(text) };
            Pulled::Text(all)
        }
        (_, width) => {
            let mut value = [0; 8];
            value[..width].copy_from_slice(&memory[..width]);
            Pulled::Bits(u64::from_le_bytes(value))
        }
    }
}

/// Returns liblsl's result; `None` where it gives uninitialised memory, for which 0 is right.
fn expected(pulled: &Value) -> Option<Pulled> {
    if pulled["indeterminate"] == true {
        return None;
    }
    Some(match (&pulled["ec"], &pulled["hex"]) {
        (code, _) if *code != 0 => Pulled::Refused(i32::try_from(code.as_i64().unwrap()).unwrap()),
        (_, Value::Null) => Pulled::Bits(bits(&pulled["bits"])),
        (_, text) => Pulled::Text(bytes(text)),
    })
}

#[test]
fn all_measured_conversions_through_the_c_functions() {
    let file = include_str!("../../../lsl-proto/tests/vectors/conversions.json");
    let vectors: Value = serde_json::from_str(file).unwrap();
    let streams: HashMap<&str, Stream> = ChannelFormat::STREAMABLE
        .into_iter()
        .map(|format| {
            let name = format!("conversions-{format}");
            (format.name(), Stream::new(&name, 1, 0.0, format))
        })
        .collect();
    let functions = ["f", "d", "l", "i", "s", "c", "v", "str", "buf"]
        .map(|letters| format!("lsl_pull_sample_{letters}"));
    let (mut observations, mut wrong) = (0, Vec::new());
    for case in vectors["cases"].as_array().unwrap() {
        let format: ChannelFormat = case["format"].as_str().unwrap().parse().unwrap();
        let stream = &streams[format.name()];
        for function in &functions {
            observations += 1;
            let code = push(stream.out, format, case);
            assert_eq!(i64::from(code), case["push_rc"].as_i64().unwrap(), "{case}");
            if code != 0 {
                continue;
            }
            let pulled = pull(stream.inlet, format, function);
            if let Pulled::Refused(_) = pulled {
                // liblsl consumed the sample that it refused.
                until_flushed(stream.inlet);
            }
            match expected(&case["pulls"][function]) {
                Some(expected) if pulled == expected => {}
                None if is_zero(&pulled) => {}
                other => wrong.push(format!("{function}: {pulled:?}, not {other:?}: {case}")),
            }
        }
    }
    assert!(wrong.is_empty(), "{} wrong: {}", wrong.len(), wrong[0]);
    assert_eq!(observations, 24_705);
}

fn is_zero(pulled: &Pulled) -> bool {
    match pulled {
        Pulled::Bits(bits) => *bits == 0,
        Pulled::Text(text) => text.starts_with(b"0"),
        Pulled::Refused(_) => false,
    }
}

fn until_flushed(inlet: Handle) {
    crate::testing::until("the refused sample is there", || {
        lsl_inlet_flush(inlet) == 1
    });
}
