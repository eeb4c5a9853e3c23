use serde_json::Value;

use super::fullinfo::{parse_double, parse_int};
use super::*;
use crate::ErrorKind;
use crate::xml::Limits;

macro_rules! vector {
    ($name:literal) => {
        serde_json::from_str::<Value>(include_str!(concat!(
            "../../tests/vectors/",
            $name,
            ".json"
        )))
        .unwrap()
    };
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

#[track_caller]
fn assert_text(found: &[u8], expected: &[u8], what: &str) {
    assert_eq!(
        String::from_utf8_lossy(found),
        String::from_utf8_lossy(expected),
        "{what}"
    );
    assert_eq!(found, expected, "{what}");
}

fn reason(result: Result<StreamInfo>) -> String {
    match result {
        Err(Error::InvalidInfo(reason)) => reason,
        other => panic!("{other:?}"),
    }
}

/// Either a document of its own or the base document with another text in one field.
fn input(vector: &Value, case: &Value) -> (String, Vec<u8>) {
    let Some(field) = case["field"].as_str() else {
        return (
            case["case"].as_str().unwrap().to_owned(),
            hex(&case["xml_hex"]),
        );
    };
    let base = String::from_utf8(hex(&vector["base_hex"])).unwrap();
    let (before, rest) = base.split_once(&format!("<{field}>")).unwrap();
    let (_, after) = rest.split_once(&format!("</{field}>")).unwrap();
    let text = case["text"].as_str();
    let element = text.map_or(String::new(), |text| format!("<{field}>{text}</{field}>"));
    (
        format!("{field} {text:?}"),
        format!("{before}{element}{after}").into_bytes(),
    )
}

#[test]
fn reads_and_writes_every_document_as_liblsl_does() {
    let vector = vector!("streaminfo-from-xml");
    let cases = vector["cases"].as_array().unwrap();
    assert!(cases.len() > 150);
    for case in cases {
        let (what, input) = input(&vector, case);
        let what = what.as_str();
        let result = StreamInfo::from_xml(&input);
        if let Some(expected) = case["invalid"].as_str() {
            assert_eq!(reason(result), expected, "{what}");
            continue;
        }
        let info = result.unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!(info.name(), case["name"].as_str().unwrap(), "{what}");
        assert_eq!(
            u64::from(info.channel_count()),
            case["channel_count"],
            "{what}"
        );
        assert_eq!(
            info.channel_format() as i32,
            case["channel_format"],
            "{what}"
        );
        assert_eq!(u64::from(info.version()), case["version"], "{what}");
        for (found, expected) in [
            (info.nominal_srate(), "nominal_srate"),
            (info.created_at(), "created_at"),
        ] {
            assert_eq!(
                found.to_bits(),
                number(&case[expected]).to_bits(),
                "{what} {expected}"
            );
        }
        if !case["reserialised_hex"].is_null() {
            assert_text(&info.to_xml(), &hex(&case["reserialised_hex"]), what);
        }
    }
    let invalid = StreamInfo::invalid("why");
    assert_eq!(invalid.name(), "(invalid: why)");
    assert_text(
        &invalid.to_xml(),
        &hex(&vector["invalid_document_hex"]),
        "invalid",
    );
}

fn format(value: &Value) -> ChannelFormat {
    let number = value.as_i64().unwrap();
    let mut formats = ChannelFormat::STREAMABLE.into_iter();
    formats
        .find(|&format| format as i64 == number)
        .unwrap_or(ChannelFormat::Undefined)
}

#[test]
fn new_infos_are_written_as_liblsl_does() {
    for case in vector!("streaminfo-from-xml")["fresh"].as_array().unwrap() {
        let text = |key: &str| case[key].as_str().unwrap().as_bytes();
        let channel_count = u32::try_from(case["channel_count"].as_u64().unwrap()).unwrap();
        let srate = number(&case["nominal_srate"]);
        let format = format(&case["channel_format"]);
        let (name, source) = (text("name"), text("source_id"));
        let info =
            StreamInfo::new(name, text("type"), channel_count, srate, format, source).unwrap();
        assert_text(&info.to_xml(), &hex(&case["xml_hex"]), "fresh");
        assert_text(
            &info.to_shortinfo_xml(),
            &hex(&case["xml_hex"]),
            "fresh, short",
        );
    }
}

/// The outlet of the vector, built anew by the steps of its author.
fn rich() -> StreamInfo {
    let vector = vector!("fullinfo-rich-desc");
    let inputs = &vector["inputs"];
    let text = |key: &str| inputs[key].as_str().unwrap().as_bytes();
    let format = ChannelFormat::Double64;
    let mut info = StreamInfo::new(
        text("name"),
        text("type"),
        2,
        250.5,
        format,
        text("source_id"),
    )
    .unwrap();
    let mut desc = info.desc_mut();
    for (label, unit) in [("Céz", "microvolts"), ("<&>\"'", "µV")] {
        let mut channels = desc.child("channels");
        channels
            .append_child("channel")
            .set("label", label)
            .set("unit", unit)
            .set("type", "EEG");
    }
    desc.set("empty", "");
    desc.append_child("nochild");
    desc.set("spaces", "   ")
        .set("lead_trail", "  a b  ")
        .set("newlines", "l1\nl2\r\nl3\tt");
    desc.set("control", "a\x01b\x1fc\x7f")
        .set("emoji", "\u{1f600}");
    desc.set("cdata_like", "<![CDATA[x]]>")
        .set("entity", "&amp; &#65;");
    desc.set("näme", "v")
        .set("a.b-c:d_1", "v")
        .set("key=\"v\"", "attr-like");
    desc.child("mixed").set("x", "1");
    desc.child("l0")
        .child("l1")
        .child("l2")
        .child("l3")
        .child("l4")
        .set("leaf", "42");
    info.reset_uid("d01d793c-9227-4dd3-bb3b-6169545a0c64");
    info.set_created_at(1_397.486_383_369);
    info.set_session_id("default");
    info.set_hostname("vm");
    info.set_v4_ports(16576, 16576);
    info.set_v6_ports(16577, 16577);
    info
}

#[test]
fn the_rich_description_is_written_byte_for_byte() {
    let vector = vector!("fullinfo-rich-desc");
    let full = hex(&vector["exchange"][1]["hex"]);
    assert_text(&rich().to_xml(), &full, "full");
    assert_text(
        &rich().to_shortinfo_xml(),
        &hex(&vector["shortinfo"]["reply_hex"]),
        "short",
    );
    let reread = StreamInfo::from_xml(&full).unwrap();
    let expected = vector["after_parse_and_reserialise"]["utf8"]
        .as_str()
        .unwrap();
    assert_text(&reread.to_xml(), expected.as_bytes(), "after a round trip");
    assert_eq!(reread.name(), "Rich <&>\"' ä€");
    assert_eq!(
        (reread.v4_data_port(), reread.v6_service_port()),
        (16576, 16577)
    );
}

#[test]
fn a_document_cut_anywhere_is_read_or_refused() {
    let full = rich().to_xml();
    let fields_end = full
        .windows(19)
        .position(|part| part == b"</v6service_port>\n\t")
        .unwrap();
    for end in 0..full.len() {
        let result = StreamInfo::from_xml(&full[..end]);
        // Bytes missing behind the last digit of the last port do no harm.
        assert_eq!(result.is_ok(), end > fields_end - 5, "cut at {end}");
        if let Ok(info) = result {
            let again = StreamInfo::from_xml(&info.to_xml()).unwrap();
            assert_text(&again.to_xml(), &info.to_xml(), "cut");
        }
    }
    let tight = Limits {
        nodes: 8,
        ..Limits::default()
    };
    assert_eq!(
        reason(StreamInfo::from_xml_with(&full, &tight)),
        "XML document with more than 8 nodes"
    );
}

#[test]
fn resolver_replies_give_what_liblsl_resolved() {
    let vector = vector!("udp-resolver-replies");
    let mut checked = 0;
    for case in vector["cases"].as_array().unwrap() {
        let Some(expected) = case["resolved"].as_array().unwrap().first() else {
            continue;
        };
        // What is stored is the second reply, of which nothing was kept.
        if case["case"] == "two replies same uid: first wins" {
            continue;
        }
        let reply = hex(&case["reply_hex"]);
        let line_end = reply.iter().position(|&byte| byte == b'\n').unwrap();
        let result = StreamInfo::from_xml(&reply[line_end + 1..]);
        let name = expected["name"].as_str().unwrap();
        checked += 1;
        if name.starts_with("(invalid: ") {
            assert_eq!(
                format!("(invalid: {})", reason(result)),
                name,
                "{}",
                case["case"]
            );
            continue;
        }
        let mut info = result.unwrap();
        assert_eq!(info.name(), name);
        assert_eq!(info.uid(), expected["uid"].as_str().unwrap());
        assert_eq!(u64::from(info.version()), expected["version"]);
        assert_eq!(
            info.nominal_srate().to_bits(),
            number(&expected["srate"]).to_bits()
        );
        let kept = !info.v4_address_bytes().is_empty();
        assert_eq!(info.fill_v4_address("127.0.0.1"), !kept);
        assert_eq!(
            info.v4_address(),
            if kept { "10.9.8.7" } else { "127.0.0.1" }
        );
        assert_text(
            &info.to_xml(),
            expected["xml"].as_str().unwrap().as_bytes(),
            name,
        );
    }
    assert!(checked > 10);
}

#[test]
fn shortinfos_are_rebuilt_from_their_fields() {
    for vector in [
        vector!("feed110-double64"),
        vector!("feed100-string"),
        vector!("feed110-irregular"),
        vector!("feed110-outlet-configured-100"),
    ] {
        let sent = hex(&vector["vars"]["shortinfo_hex"]);
        let info = StreamInfo::from_xml(&sent).unwrap();
        assert_text(&info.to_shortinfo_xml(), &sent, "from the parsed fields");
        let mut fresh = StreamInfo::new(
            info.name_bytes(),
            info.stream_type_bytes(),
            info.channel_count(),
            info.nominal_srate(),
            info.channel_format(),
            info.source_id_bytes(),
        )
        .unwrap();
        fresh.reset_uid(&info.uid());
        fresh.set_version(info.version());
        fresh.set_created_at(info.created_at());
        fresh.set_session_id(info.session_id_bytes());
        fresh.set_hostname(info.hostname_bytes());
        fresh.set_v4_ports(info.v4_data_port(), info.v4_service_port());
        fresh.set_v6_ports(info.v6_data_port(), info.v6_service_port());
        assert_text(&fresh.to_xml(), &sent, "document of an outlet");
        assert_text(&fresh.to_shortinfo_xml(), &sent, "fields of an outlet");
    }
}

#[test]
fn refusals() {
    let check = |name: &str, channel_count, srate, expected: &str| {
        let result = StreamInfo::new(name, "", channel_count, srate, ChannelFormat::Int8, "");
        let error = result.unwrap_err();
        assert_eq!(
            (error.to_string().as_str(), error.kind()),
            (expected, ErrorKind::Argument)
        );
    };
    check("", 1, 0.0, "The name of a stream must be non-empty.");
    check(
        "n",
        1 << 31,
        0.0,
        "The channel_count of a stream must be nonnegative.",
    );
    check(
        "n",
        1,
        -0.1,
        "The nominal sampling rate of a stream must be nonnegative.",
    );
}

#[test]
fn fields_and_document_may_part() {
    let mut info = rich();
    let root = info.document().root();
    let top = info.document().child(root, "info").unwrap();
    info.document_mut().set_name(top, "other");
    assert_eq!(
        (info.desc(), info.name().as_ref()),
        (None, "Rich <&>\"' ä€")
    );
    // Nothing to write to: only the field changes.
    info.set_hostname("elsewhere");
    assert_eq!(info.hostname(), "elsewhere");
    assert!(!info.to_xml().windows(9).any(|part| part == b"elsewhere"));
    assert!(
        info.to_shortinfo_xml()
            .windows(9)
            .any(|part| part == b"elsewhere")
    );
    // The description comes back when somebody writes one.
    info.desc_mut().set("a", "1");
    assert_eq!(info.desc_ref().unwrap().get("a").unwrap(), "1");
}

#[test]
fn endpoints_need_address_and_ports() {
    let mut info = rich();
    assert!(info.is_unresolved());
    assert!(info.fill_v6_address("fe80::1%eth0"));
    assert_eq!(info.v4_endpoint(), None);
    let endpoint = info.v6_endpoint().unwrap();
    assert_eq!(
        (endpoint.address.as_ref(), endpoint.data_port),
        ("fe80::1%eth0", 16577)
    );
    assert!(!info.is_unresolved() && !info.fill_v6_address("::1"));
    info.set_v6_ports(16577, 0);
    assert!(info.fill_v4_address("10.0.0.1"));
    assert_eq!(info.v6_endpoint(), None);
    assert_eq!(info.v4_endpoint().unwrap().service_port, 16576);
    // The document keeps the announced text.
    assert!(!info.to_xml().windows(8).any(|part| part == b"10.0.0.1"));
}

#[test]
fn number_prefixes() {
    for (text, int, double) in [
        ("", None, None),
        ("\t\n\x0b\x0c\r 7", Some(7), Some(7.0)),
        ("-", None, None),
        ("+-1", None, None),
        ("- 1", None, None),
        ("-2147483648x", Some(i32::MIN), Some(-2_147_483_648.0)),
        ("2147483648", None, Some(2_147_483_648.0)),
        ("007.50e-1e9", Some(7), Some(0.75)),
        (".", None, None),
        ("-.5", None, Some(-0.5)),
        ("1e-999999999999", Some(1), Some(0.0)),
        ("1e999999999999", Some(1), None),
    ] {
        assert_eq!(parse_int(text.as_bytes()), int, "{text}");
        assert_eq!(parse_double(text.as_bytes()), double, "{text}");
    }
}
