//! Stream infos off the wire. Input: the XML.

use lsl_proto::StreamInfo;

pub fn check(input: &[u8]) {
    let Ok(info) = StreamInfo::from_xml(input) else {
        return;
    };
    assert!(!info.name_bytes().is_empty() && !info.uid_bytes().is_empty());
    assert!(info.version() > 0);
    assert!(info.nominal_srate().is_finite() && info.created_at().is_finite());

    // The short form is made of the fields, so it says what they say.
    if is_writable(&info) {
        let short = StreamInfo::from_xml(&info.to_shortinfo_xml()).expect("own short info");
        assert_same(&info, &short);
        assert!(short.desc().is_some());
    }
    // The full form is the document. It may read differently, as a text cut in two by a comment is
    // one text when it is written, but from then on it stays.
    if let Ok(once) = StreamInfo::from_xml(&info.to_xml())
        && is_writable(&once)
    {
        let twice = StreamInfo::from_xml(&once.to_xml()).expect("own full info");
        assert_same(&once, &twice);
    }
}

/// Whether the form peers use can carry it: numbers that round up, or lose their exponent, become
/// unreadable, and text of nothing but blanks is lost.
fn is_writable(info: &StreamInfo) -> bool {
    let blank = |text: &[u8]| text.iter().all(u8::is_ascii_whitespace);
    info.nominal_srate() < f64::from(i32::MAX)
        && info.created_at().abs() < 1e308
        && !blank(info.name_bytes())
        && !blank(info.uid_bytes())
}

fn assert_same(info: &StreamInfo, other: &StreamInfo) {
    for (text, other) in [
        (info.name_bytes(), other.name_bytes()),
        (info.stream_type_bytes(), other.stream_type_bytes()),
        (info.source_id_bytes(), other.source_id_bytes()),
        (info.uid_bytes(), other.uid_bytes()),
        (info.session_id_bytes(), other.session_id_bytes()),
        (info.hostname_bytes(), other.hostname_bytes()),
        (info.v4_address_bytes(), other.v4_address_bytes()),
        (info.v6_address_bytes(), other.v6_address_bytes()),
    ] {
        assert_eq!(as_read(text), as_read(other));
    }
    assert_eq!(info.channel_count(), other.channel_count());
    assert_eq!(info.channel_format(), other.channel_format());
    // Every peer truncates, and 1.14 is a little less than that: 114 is written, 113 read.
    assert!((info.version() - 1..=info.version()).contains(&other.version()));
    for (port, other) in [
        (info.v4_data_port(), other.v4_data_port()),
        (info.v4_service_port(), other.v4_service_port()),
        (info.v6_data_port(), other.v6_data_port()),
        (info.v6_service_port(), other.v6_service_port()),
    ] {
        assert_eq!(port, other);
    }
    let same = |number: f64, other: f64| {
        (number - other).abs() <= number.abs() * 1e-15 + f64::from_bits(1)
    };
    assert!(same(info.nominal_srate(), other.nominal_srate()));
    assert!(same(info.created_at(), other.created_at()));
}

/// Line ends are one LF and blanks alone are nothing, once text has been through XML.
fn as_read(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text).replace("\r\n", "\n");
    let text = text.replace('\r', "\n");
    if text.bytes().all(|byte| byte.is_ascii_whitespace()) {
        String::new()
    } else {
        text
    }
}
