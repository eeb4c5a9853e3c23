//! What strangers may ask about a stream, and what they see of it.

use std::net::{Ipv4Addr, UdpSocket};
use std::time::Duration;

use lsl_core::secure::Policy;
use lsl_core::secure::policy::Discovery;
use lsl_core::secure::trust::TrustedRole;
use lsl_core::{Outlet, StreamInfo};
use sha2::{Digest, Sha256};

use super::reader::{Reader, dial, rest, say};
use crate::lab::{self, SOON};
use crate::secure::people::{Place, Side, fingerprint_of, info, trusted};

fn with_subject(name: &str) -> StreamInfo {
    let mut info = info(name);
    info.desc_mut().set("subject", "Anna");
    info
}

fn side(place: &Place, policy: Policy, discovery: Discovery) -> Side {
    let trusts = vec![trusted("rec", TrustedRole::Both)];
    place.side_with("amp", policy, trusts, |settings| {
        settings.discovery = discovery;
    })
}

/// The answer over TCP; empty for no match.
fn over_tcp(outlet: &Outlet, query: &str) -> String {
    let mut stream = dial(outlet);
    say(
        &mut stream,
        format!("LSL:shortinfo\r\n{query}\r\n").as_bytes(),
    );
    String::from_utf8(rest(&mut stream)).unwrap()
}

/// The answer over UDP; empty for no match. A match of everything follows, so that "no" is certain.
fn over_udp(outlet: &Outlet, query: &str) -> String {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = outlet.info().v4_service_port();
    socket.connect((Ipv4Addr::LOCALHOST, port)).unwrap();
    socket
        .set_read_timeout(Some(Duration::from_millis(500)))
        .unwrap();
    let here = socket.local_addr().unwrap().port();
    let ask = |query: &str, id: u32| {
        let datagram = format!("LSL:shortinfo\r\n{query}\r\n{here} {id}\r\n");
        socket.send(datagram.as_bytes()).unwrap();
    };
    let deadline = lsl_core::local_clock() + SOON.as_secs_f64();
    let mut buffer = vec![0; 65_536];
    while lsl_core::local_clock() < deadline {
        ask(query, 1);
        ask("", 2);
        let Ok(length) = socket.recv(&mut buffer) else {
            continue;
        };
        let reply = String::from_utf8_lossy(&buffer[..length]).into_owned();
        let (id, xml) = reply.split_once("\r\n").unwrap();
        return match id.trim() {
            "1" => xml.to_owned(),
            _ => String::new(),
        };
    }
    panic!("no answer");
}

/// The answer inside a session; empty for no match.
fn inside(outlet: &Outlet, query: &str) -> String {
    let request = format!("LSL:shortinfo\r\n{query}\r\n");
    let mut reader = Reader::open(outlet, "rec", request.as_bytes());
    String::from_utf8(reader.rest()).unwrap()
}

#[test]
fn nobody_reads_the_description_by_asking() {
    let place = Place::new();
    for discovery in [Discovery::Open, Discovery::Minimal] {
        let amp = side(&place, Policy::Required, discovery);
        let outlet = lab::outlet(&amp.context, with_subject("asked"));
        for query in [
            "starts-with(desc/subject,'A')",
            "//subject",
            "desc/*",
            "count(desc/subject)=1",
            "contains(.,'Anna')",
        ] {
            assert_eq!(over_tcp(&outlet, query), "", "{query}");
            assert_eq!(over_udp(&outlet, query), "", "{query}");
            let answer = inside(&outlet, query);
            assert!(answer.contains("<name>asked</name>"), "{query}: {answer}");
        }
        // The negation tells nothing either.
        assert_ne!(over_tcp(&outlet, "not(desc/subject)"), "");
        assert_ne!(over_udp(&outlet, "not(desc/subject)"), "");
        assert_eq!(inside(&outlet, "not(desc/subject)"), "");
        assert_eq!(inside(&outlet, "name='other'"), "");
    }
    // While anybody may read the full info, anybody may ask.
    let amp = side(&place, Policy::Migrate, Discovery::Open);
    let outlet = lab::outlet(&amp.context, with_subject("asked"));
    assert_ne!(over_tcp(&outlet, "starts-with(desc/subject,'A')"), "");
    assert_ne!(over_udp(&outlet, "starts-with(desc/subject,'A')"), "");
}

#[test]
fn minimal_discovery_shows_shape_and_ports_only() {
    let place = Place::new();
    let amp = side(&place, Policy::Required, Discovery::Minimal);
    let outlet = lab::outlet(&amp.context, with_subject("hidden"));
    let digest = Sha256::digest(outlet.info().uid_bytes());
    let &[a, b, c, d, ..] = digest.as_slice() else {
        panic!("32 bytes")
    };
    let name = format!("lss-{a:02x}{b:02x}{c:02x}{d:02x}");
    for answer in [
        over_tcp(&outlet, ""),
        over_udp(&outlet, ""),
        over_udp(&outlet, &format!("name='{name}'")),
        over_udp(&outlet, "session_id=''"),
        over_udp(&outlet, "source_id='' and channel_count=3"),
    ] {
        let shown = StreamInfo::from_xml(answer.as_bytes()).unwrap();
        assert_eq!(shown.name(), name);
        for hidden in [
            shown.stream_type(),
            shown.source_id(),
            shown.hostname(),
            shown.session_id(),
        ] {
            assert_eq!(hidden, "");
        }
        let full = outlet.info();
        assert_eq!(shown.uid(), full.uid());
        assert_eq!(shown.channel_count(), 3);
        assert_eq!(shown.channel_format(), full.channel_format());
        assert_eq!(shown.nominal_srate(), 100.0);
        assert_eq!(shown.v4_data_port(), full.v4_data_port());
        assert_eq!(shown.v4_service_port(), full.v4_service_port());
        let advert = "<lsl_secure v=\"1\" policy=\"required\" mode=\"minimal\" />";
        assert!(answer.contains(advert), "{answer}");
        for secret in ["hidden", "SHA256", "Anna", &*full.hostname()] {
            assert!(!answer.contains(secret), "{secret} in {answer}");
        }
    }
    let session = outlet.info().session_id().into_owned();
    for query in [
        "name='hidden'",
        "type='Test'",
        "source_id='src-hidden'",
        &format!("session_id='{session}'"),
        "session_id='default'",
    ] {
        assert_eq!(over_tcp(&outlet, query), "", "{query}");
        assert_eq!(over_udp(&outlet, query), "", "{query}");
    }
    let answer = inside(&outlet, "name='hidden' and desc/subject='Anna'");
    let shown = StreamInfo::from_xml(answer.as_bytes()).unwrap();
    assert_eq!(shown.source_id(), "src-hidden");
    assert_eq!(shown.session_id(), session);
}

#[test]
fn the_advert_is_the_last_child_and_ours() {
    let place = Place::new();
    let amp = side(&place, Policy::Required, Discovery::Open);
    // Made from a document that somebody else announced.
    let mut received = with_subject("advert");
    received.reset_uid("11111111-1111-4111-8111-111111111111");
    let xml = String::from_utf8(received.to_xml()).unwrap();
    let foreign = "<lsl_secure v=\"1\" policy=\"migrate\" fp=\"SHA256:forged\"/>";
    let xml = xml.replace("</info>", &format!("{foreign}{foreign}</info>"));
    let received = StreamInfo::from_xml(xml.as_bytes()).unwrap();
    let outlet = lab::outlet(&amp.context, received.clone());
    let fp = fingerprint_of("amp");
    let advert = format!("<lsl_secure v=\"1\" policy=\"required\" fp=\"{fp}\" />");
    for answer in [
        over_tcp(&outlet, ""),
        over_udp(&outlet, ""),
        inside(&outlet, ""),
        String::from_utf8(outlet.info().to_xml()).unwrap(),
    ] {
        assert_eq!(answer.matches("lsl_secure").count(), 1, "{answer}");
        let rest = answer.split_once(&advert).unwrap().1;
        assert_eq!(rest.trim(), "</info>");
    }
    // One can find encrypted outlets, and those without.
    assert_ne!(over_udp(&outlet, "lsl_secure/@policy='required'"), "");
    assert_eq!(over_udp(&outlet, "not(lsl_secure)"), "");
    // Without encryption there is none at all.
    let outlet = lab::outlet(&place.legacy(), received);
    let shown = String::from_utf8(outlet.info().to_xml()).unwrap();
    assert!(!shown.contains("lsl_secure"));
    assert!(!over_tcp(&outlet, "").contains("lsl_secure"));
}
