use std::ffi::CStr;

use serde_json::Value;

use super::*;
use crate::common::{lsl_destroy_string, lsl_last_error, shown};
use crate::xml::{lsl_append_child, lsl_append_child_value, lsl_child, lsl_name};

fn new(name: &CStr, stream_type: &CStr, count: i32, rate: f64, format: i32, id: &CStr) -> Handle {
    let (name, stream_type, id) = (name.as_ptr(), stream_type.as_ptr(), id.as_ptr());
    // SAFETY: NUL-terminated texts.
    unsafe { lsl_create_streaminfo(name, stream_type, count, rate, format, id) }
}

fn eeg() -> Handle {
    new(c"Cap", c"EEG", 8, 250.0, 1, c"cap-1")
}

fn from_xml(xml: &[u8]) -> Handle {
    let xml = CString::new(xml).unwrap();
    // SAFETY: a NUL-terminated text.
    unsafe { lsl_streaminfo_from_xml(xml.as_ptr()) }
}

fn xml(info: Handle) -> Vec<u8> {
    let text = lsl_get_xml(info);
    // SAFETY: NUL-terminated and not yet released.
    let copy = unsafe { CStr::from_ptr(text) }.to_bytes().to_vec();
    // SAFETY: given by the library just now.
    unsafe { lsl_destroy_string(text) };
    copy
}

fn matches(info: Handle, query: &CStr) -> i32 {
    // SAFETY: a NUL-terminated text.
    unsafe { lsl_stream_info_matches_query(info, query.as_ptr()) }
}

fn vector() -> Value {
    let text = include_str!("../../../lsl-proto/tests/vectors/streaminfo-from-xml.json");
    serde_json::from_str(text).unwrap()
}

fn hex(value: &Value) -> Vec<u8> {
    let digits = value.as_str().unwrap().as_bytes().chunks(2);
    digits
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

fn number(value: &Value) -> f64 {
    value
        .as_f64()
        .unwrap_or_else(|| value.as_str().unwrap().parse().unwrap())
}

#[test]
fn creation_refuses_with_liblsls_texts() {
    let max = i32::MAX;
    let channel_count = "The channel_count of a stream must be nonnegative.";
    let rate = "The nominal sampling rate of a stream must be nonnegative.";
    let name = "The name of a stream must be non-empty.";
    let format = |n| format!("The stream info was created with an unknown channel format {n}");
    for (arguments, expected) in [
        ((c"", 1, 1.0, 1), name),
        ((c"", -1, -1.0, 99), name),
        ((c"n", -1, 1.0, 1), channel_count),
        ((c"n", i32::MIN, 1.0, 1), channel_count),
        ((c"n", 1, -0.5, 1), rate),
        ((c"n", 1, f64::NEG_INFINITY, 1), rate),
        ((c"n", 1, 1.0, 8), &*format(8)),
        ((c"n", 1, 1.0, -1), &*format(-1)),
        ((c"n", 1, 1.0, max), &*format(max)),
    ] {
        let (name, count, rate, format) = arguments;
        let info = new(name, c"t", count, rate, format, c"");
        assert!(info.is_null(), "{arguments:?}");
        assert_eq!(shown(lsl_last_error()), expected, "{arguments:?}");
    }
    for (count, rate, format) in [
        (0, 0.0, 0),
        (max, f64::NAN, 7),
        (1, f64::INFINITY, 3),
        (1, -0.0, 6),
    ] {
        let info = new(c"n", c"", count, rate, format, c"");
        assert_eq!(lsl_get_channel_count(info), count);
        assert_eq!(lsl_get_channel_format(info), format);
        lsl_destroy_streaminfo(info);
    }
    // The default constructor of lsl_cpp.h.
    let untitled = new(c"untitled", c"", 0, 0.0, 0, c"");
    assert!(!untitled.is_null());
    lsl_destroy_streaminfo(untitled);
}

#[test]
fn null_texts_are_refused() {
    let (n, null) = (c"n".as_ptr(), ptr::null());
    for [name, stream_type, id] in [[null, n, n], [n, null, n], [n, n, null]] {
        // SAFETY: NULL or NUL-terminated texts.
        let info = unsafe { lsl_create_streaminfo(name, stream_type, 1, 1.0, 1, id) };
        assert!(info.is_null());
        assert!(shown(lsl_last_error()).contains("NULL"));
    }
    // SAFETY: NULL is allowed.
    assert!(unsafe { lsl_streaminfo_from_xml(null) }.is_null());
    let info = eeg();
    // SAFETY: NULL is allowed.
    assert_eq!(unsafe { lsl_stream_info_matches_query(info, null) }, 0);
    lsl_destroy_streaminfo(info);
}

#[test]
fn getters_of_a_new_info() {
    let info = eeg();
    let texts = [
        shown(lsl_get_name(info)),
        shown(lsl_get_type(info)),
        shown(lsl_get_source_id(info)),
        shown(lsl_get_uid(info)),
        shown(lsl_get_session_id(info)),
        shown(lsl_get_hostname(info)),
    ];
    assert_eq!(texts, ["Cap", "EEG", "cap-1", "", "", ""]);
    assert_eq!(lsl_get_channel_count(info), 8);
    assert!(lsl_get_nominal_srate(info).to_bits() == 250_f64.to_bits());
    assert!(lsl_get_created_at(info) == 0.0);
    assert_eq!(
        (lsl_get_channel_format(info), lsl_get_version(info)),
        (1, 110)
    );
    assert_eq!(lsl_get_name(info), lsl_get_name(info), "one address");
    assert_eq!(lsl_get_desc(info), lsl_get_desc(info), "one handle");
    lsl_destroy_streaminfo(info);
    for (format, bytes) in [0, 4, 8, 0, 4, 2, 1, 8].into_iter().enumerate() {
        let info = new(c"n", c"", 3, 0.0, i32::try_from(format).unwrap(), c"");
        assert_eq!(lsl_get_channel_bytes(info), bytes, "{format}");
        assert_eq!(lsl_get_sample_bytes(info), 3 * bytes, "{format}");
        lsl_destroy_streaminfo(info);
    }
}

#[test]
fn what_is_no_info_gives_nothing() {
    let stale = eeg();
    let desc = lsl_get_desc(stale);
    lsl_destroy_streaminfo(stale);
    lsl_destroy_streaminfo(stale);
    kept::forget(stale);
    let info = eeg();
    let node = lsl_get_desc(info);
    for none in [
        ptr::null_mut(),
        stale,
        desc,
        node,
        ptr::without_provenance_mut(1),
    ] {
        for text in [
            lsl_get_name,
            lsl_get_type,
            lsl_get_source_id,
            lsl_get_uid,
            lsl_get_session_id,
            lsl_get_hostname,
            lsl_reset_uid,
        ] {
            assert_eq!(shown(text(none)), "");
        }
        for number in [
            lsl_get_channel_count,
            lsl_get_channel_format,
            lsl_get_version,
            lsl_get_channel_bytes,
            lsl_get_sample_bytes,
        ] {
            assert_eq!(number(none), 0);
        }
        assert!(lsl_get_nominal_srate(none) == 0.0 && lsl_get_created_at(none) == 0.0);
        assert_eq!(xml(none), b"");
        assert!(lsl_get_desc(none).is_null());
        assert!(lsl_copy_streaminfo(none).is_null());
        assert_eq!(matches(none, c""), 0);
        lsl_destroy_streaminfo(none);
    }
    // A node is no info: destroying it as one did nothing.
    assert_eq!(shown(lsl_name(node)), "desc");
    lsl_destroy_streaminfo(info);
}

#[test]
fn xml_of_new_infos_is_liblsls() {
    for case in vector()["fresh"].as_array().unwrap() {
        let text = |key: &str| CString::new(case[key].as_str().unwrap()).unwrap();
        let int = |key: &str| i32::try_from(case[key].as_i64().unwrap()).unwrap();
        let info = new(
            &text("name"),
            &text("type"),
            int("channel_count"),
            number(&case["nominal_srate"]),
            int("channel_format"),
            &text("source_id"),
        );
        assert_eq!(xml(info), hex(&case["xml_hex"]), "{case}");
        lsl_destroy_streaminfo(info);
    }
}

#[test]
fn every_document_is_read_as_liblsl_does() {
    let vector = vector();
    let base = hex(&vector["base_hex"]);
    let cases = vector["cases"].as_array().unwrap();
    let error = shown(lsl_last_error());
    let mut read = 0;
    for case in cases {
        let input = match case["field"].as_str() {
            None => hex(&case["xml_hex"]),
            Some(field) => {
                let base = String::from_utf8(base.clone()).unwrap();
                let (open, close) = (format!("<{field}>"), format!("</{field}>"));
                let (before, rest) = base.split_once(&open).unwrap();
                let (_, after) = rest.split_once(&close).unwrap();
                let element = case["text"]
                    .as_str()
                    .map_or(String::new(), |text| open + text + &close);
                format!("{before}{element}{after}").into_bytes()
            }
        };
        if input.contains(&0) {
            continue;
        }
        read += 1;
        let info = from_xml(&input);
        let name = shown(lsl_get_name(info));
        if let Some(reason) = case["invalid"].as_str() {
            assert_eq!(name, format!("(invalid: {reason})"), "{case}");
            assert_eq!(xml(info), hex(&vector["invalid_document_hex"]), "{case}");
            assert_eq!(lsl_get_version(info), 0, "{case}");
        } else {
            assert_eq!(name, case["name"].as_str().unwrap(), "{case}");
            for (found, expected) in [
                (lsl_get_channel_count(info), "channel_count"),
                (lsl_get_channel_format(info), "channel_format"),
                (lsl_get_version(info), "version"),
            ] {
                assert_eq!(i64::from(found), case[expected], "{case}");
            }
            for (found, expected) in [
                (lsl_get_nominal_srate(info), "nominal_srate"),
                (lsl_get_created_at(info), "created_at"),
            ] {
                assert_eq!(found.to_bits(), number(&case[expected]).to_bits(), "{case}");
            }
            if !case["reserialised_hex"].is_null() {
                assert_eq!(xml(info), hex(&case["reserialised_hex"]), "{case}");
            }
        }
        lsl_destroy_streaminfo(info);
    }
    assert!(read > 150, "{read} of {}", cases.len());
    assert_eq!(shown(lsl_last_error()), error, "no error is recorded");
}

#[test]
fn copies_are_independent() {
    let info = eeg();
    let copy = lsl_copy_streaminfo(info);
    // SAFETY: a NUL-terminated text.
    let child = unsafe { lsl_append_child(lsl_get_desc(info), c"only".as_ptr()) };
    assert!(!child.is_null());
    assert_ne!(xml(info), xml(copy));
    lsl_destroy_streaminfo(info);
    assert_eq!(shown(lsl_get_name(copy)), "Cap");
    lsl_destroy_streaminfo(copy);
}

#[test]
fn uids_are_random_and_in_field_and_document() {
    let info = eeg();
    let first = lsl_reset_uid(info);
    let uid = shown(first);
    assert_eq!(uid.len(), 36);
    assert_eq!(lsl_get_uid(info), first);
    assert!(
        String::from_utf8(xml(info))
            .unwrap()
            .contains(&format!("<uid>{uid}</uid>"))
    );
    assert_ne!(shown(lsl_reset_uid(info)), uid);
    // With a uid the document can be read again.
    let read = from_xml(&xml(info));
    assert_eq!(shown(lsl_get_name(read)), "Cap");
    lsl_destroy_streaminfo(read);
    lsl_destroy_streaminfo(info);
}

#[test]
fn queries_see_the_document() {
    let info = eeg();
    // SAFETY: NUL-terminated texts.
    unsafe { lsl_append_child_value(lsl_get_desc(info), c"manu".as_ptr(), c"Acme".as_ptr()) };
    let error = shown(lsl_last_error());
    for (query, expected) in [
        (c"", 1),
        (c"type='EEG'", 1),
        (c"type='MEG'", 0),
        (c"channel_count>5 and type='EEG'", 1),
        (c"channel_count='8'", 1),
        (c"nominal_srate=250", 1),
        (c"version=1.1", 1),
        (c"desc/manu='Acme'", 1),
        (c"count(desc/*)=1", 1),
        (c"starts-with(name,'Ca')", 1),
        (c"contains(name,'ap')", 1),
        (c"string-length(name)=3", 1),
        (c"not(type='EEG')", 0),
        (c"/info/type='EEG'", 1),
        (c"info/type='EEG'", 0),
        (c"type", 1),
        (c"nonsense", 0),
        (c"1", 1),
        (c"0", 0),
        (c"'abc'", 1),
        (c"''", 0),
        (c"type=", 0),
        (c"((", 0),
        (c"$x", 0),
    ] {
        assert_eq!(matches(info, query), expected, "{query:?}");
    }
    assert_eq!(shown(lsl_last_error()), error, "no error is recorded");
    lsl_destroy_streaminfo(info);
}

#[test]
fn a_removed_description_is_null() {
    let info = eeg();
    let desc = lsl_get_desc(info);
    let root = crate::xml::lsl_parent(desc);
    crate::xml::lsl_remove_child(root, desc);
    assert!(lsl_get_desc(info).is_null());
    // SAFETY: a NUL-terminated text.
    assert!(unsafe { lsl_child(desc, c"a".as_ptr()) }.is_null());
    lsl_destroy_streaminfo(info);
}

#[test]
fn texts_of_a_destroyed_info_live_on() {
    let info = eeg();
    let pointers = [lsl_get_name(info), lsl_get_type(info), lsl_reset_uid(info)];
    let uid = shown(pointers[2]);
    lsl_destroy_streaminfo(info);
    // Memory that is used again soon.
    let others: Vec<Handle> = (0..100).map(|_| eeg()).collect();
    assert_eq!(pointers.map(shown), ["Cap", "EEG", &uid]);
    assert_eq!(
        [lsl_get_name(info), lsl_get_type(info), lsl_get_uid(info)],
        pointers
    );
    assert_eq!(shown(lsl_get_source_id(info)), "cap-1");
    assert_eq!(
        (lsl_get_channel_count(info), lsl_get_version(info)),
        (8, 110)
    );
    // It is no stream info any more, and no document.
    assert!(lsl_get_desc(info).is_null() && lsl_copy_streaminfo(info).is_null());
    assert_eq!((xml(info), matches(info, c"")), (Vec::new(), 0));
    assert!(crate::outlet::lsl_create_outlet(info, 0, 10).is_null());
    assert!(crate::inlet::lsl_create_inlet(info, 10, 0, 1).is_null());
    for other in others {
        lsl_destroy_streaminfo(other);
    }
}

#[test]
fn destroying_while_others_read_is_safe() {
    for _ in 0..50 {
        let info = eeg().addr();
        let readers: Vec<_> = (0..3)
            .map(|_| {
                std::thread::spawn(move || {
                    let info = ptr::without_provenance_mut(info);
                    for _ in 0..100 {
                        let desc = lsl_get_desc(info);
                        // SAFETY: NUL-terminated texts.
                        unsafe { lsl_append_child_value(desc, c"a".as_ptr(), c"b".as_ptr()) };
                        lsl_get_channel_count(info);
                    }
                })
            })
            .collect();
        lsl_destroy_streaminfo(ptr::without_provenance_mut(info));
        for reader in readers {
            reader.join().unwrap();
        }
    }
}
