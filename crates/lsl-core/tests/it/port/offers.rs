//! Streams of a relay that are offered again, as outlets that anybody finds. Spec: relay §6, §7.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use lsl_core::relay::{Offer, SourceClock};
use lsl_core::secure::Policy;
use lsl_core::{Context, Error, Inlet, Outlet, Selector, StreamInfo, local_clock};

use super::{Streams, feed_request, pass, read_to};
use crate::lab::{self, SOON};
use crate::secure::people::Place;

/// Offers the stream of this name again.
fn offer(context: &Context, streams: &Streams, name: &str) -> Offer {
    let origin = format!("uid-of-{name}");
    let (outlet, clock) = streams.find(origin.as_bytes()).unwrap();
    let mut info = outlet.info().clone();
    info.set_created_at(7.25);
    info.desc_mut().append_child("subject");
    let text = String::from_utf8(info.to_xml()).unwrap();
    let mark = format!(r#"<lsl_relay v="1" origin="{origin}" path="0123456789abcdef"/></info>"#);
    let text = text
        .replace("<hostname />", "<hostname>far</hostname>")
        .replace("<session_id />", "<session_id>elsewhere</session_id>")
        .replace("</info>", &mark);
    let info = StreamInfo::from_xml(text.as_bytes()).unwrap();
    let source = (origin.as_bytes(), clock);
    Offer::open(context, info, source, Arc::new(streams.clone())).unwrap()
}

/// Finds it, as programs do that look in every session.
fn found(context: &Context, name: &str) -> StreamInfo {
    let selector = Selector::predicate(format!("name='{name}' or name='{name}'")).unwrap();
    let found = context.resolve_blocking(&selector, 1, SOON).unwrap();
    assert_eq!(found.len(), 1);
    found[0].clone()
}

fn inlet(context: &Context, info: &StreamInfo) -> Inlet {
    let inlet = Inlet::builder(info).context(context).recover(false);
    let inlet = inlet.create().unwrap();
    inlet.blocking().open(SOON).unwrap();
    inlet
}

fn expect(inlet: &Inlet, values: std::ops::Range<u8>) {
    for value in values {
        let mut sample = [0.0_f32; 3];
        let stamp = inlet.blocking().pull(&mut sample, SOON).unwrap();
        let expected = ([f32::from(value); 3], Some(f64::from(value)));
        assert_eq!((sample, stamp), expected);
    }
}

fn push(outlet: &Outlet, values: std::ops::Range<u8>) {
    for value in values {
        pass(outlet, f32::from(value), f64::from(value));
    }
}

/// What is measured of a source that is 1,000 s behind, which is known to 20 ms.
fn measures_the_source(streams: &Streams, inlet: &Inlet) {
    let clock = streams.find(b"uid-of-one").unwrap().1;
    let early = inlet.blocking().time_correction(Duration::from_millis(300));
    assert!(matches!(early, Err(Error::Timeout { .. })), "{early:?}");
    lab::until("interest in the clock", || clock.last_asked().is_some());
    let uncertainty_secs = 0.02;
    clock.set(Some(SourceClock {
        offset_secs: -1000.0,
        uncertainty_secs,
        measured_at: local_clock(),
    }));
    let known = inlet.blocking().time_correction(SOON).unwrap();
    let error = (known.offset_secs - 1000.0).abs();
    assert!(error <= known.uncertainty_secs / 2.0, "{known:?}");
    assert!(known.uncertainty_secs >= uncertainty_secs, "{known:?}");
}

#[test]
fn an_offer_is_an_outlet_with_the_samples_and_the_clock_of_its_origin() {
    let (context, streams) = (lab::context(), Streams::default());
    let outlet = streams.add(&context, "one", 5000);
    let offer = offer(&context, &streams, "one");
    let info = found(&context, "one");
    assert_eq!(info.uid(), offer.info().uid());
    assert_ne!(info.uid(), outlet.info().uid());
    let told = (info.hostname(), info.session_id(), info.created_at());
    assert_eq!(told, ("far".into(), "elsewhere".into(), 7.25));
    let mark = info.relay_advert().unwrap();
    assert_eq!(mark.origin, outlet.info().uid_bytes());
    assert!(!outlet.have_consumers());
    let reader = inlet(&context, &info);
    push(&outlet, 1..50);
    expect(&reader, 1..50);
    let full = reader.blocking().full_info(SOON).unwrap();
    assert!(
        String::from_utf8(full.to_xml())
            .unwrap()
            .contains("<subject")
    );
    measures_the_source(&streams, &reader);
    // Its way may change while it is read.
    let xml = String::from_utf8(info.to_xml()).unwrap();
    let other = xml.replace("0123456789abcdef", "0123456789abcdef fedcba9876543210");
    offer.describe(StreamInfo::from_xml(other.as_bytes()).unwrap());
    let again = found(&context, "one");
    assert_eq!(again.relay_advert().unwrap().path.len(), 2);
    assert_eq!(
        (again.uid(), again.v4_service_port()),
        (info.uid(), info.v4_service_port())
    );
    push(&outlet, 50..60);
    expect(&reader, 50..60);
    // Ordinary outlets keep our own clock, also at the sockets that all share.
    let _other = lab::outlet(
        &context,
        super::info("other", 1, 0.0, lsl_core::ChannelFormat::Int8),
    );
    let known = lab::inlet(&context, "other")
        .blocking()
        .time_correction(SOON);
    assert!(known.unwrap().offset_secs.abs() < 1.0);
    // Of two readers one has come by another way.
    let port = super::port(&context, &streams, 10);
    let stays = inlet(&context, &super::found(&port, &outlet));
    drop(offer);
    let mut sample = [0.0_f32; 3];
    let ended = reader.blocking().pull(&mut sample, SOON);
    assert!(ended.is_err(), "{ended:?}");
    push(&outlet, 60..70);
    expect(&stays, 60..70);
    let gone = Selector::property("name", "one").unwrap();
    let gone = context.resolve_blocking(&gone, 1, Duration::from_millis(300));
    assert!(gone.unwrap().is_empty());
}

#[test]
fn feeds_have_the_numbers_of_the_origin_and_the_uid_of_the_offer() {
    let (context, streams) = (lab::context(), Streams::default());
    let outlet = streams.add(&context, "one", 5000);
    let offer = offer(&context, &streams, "one");
    let (port, uid) = (offer.info().v4_data_port(), offer.info().uid());
    let ask = |request: &[u8]| {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
        stream.set_read_timeout(Some(SOON)).unwrap();
        stream.write_all(request).unwrap();
        stream
    };
    push(&outlet, 0..10);
    for asked in [&*uid, ""] {
        let mut stream = ask(&feed_request(asked, "Lslx-Sequence: 1 at 0-a 5004\r\n"));
        let head = read_to(&mut stream, b"\r\n\r\n");
        let status = format!("LSL/110 200 OK\r\nUID: {uid}\r\n");
        assert!(head.starts_with(&status), "{head}");
        assert!(
            head.contains("\r\nLslx-Sequence: 1 0-a 5004 5010\r\n"),
            "{head}"
        );
    }
    // As programs with protocol 1.00 ask.
    let mut old = ask(b"LSL:streamfeed\r\n100 0\r\n");
    let (mut said, expected) = (Vec::new(), format!("<uid>{uid}</uid>"));
    while !String::from_utf8_lossy(&said).contains(&expected) {
        let mut byte = [0];
        old.read_exact(&mut byte).unwrap();
        said.extend(byte);
    }
    let mut wrong = ask(&feed_request("uid-of-one", ""));
    let mut said = String::new();
    wrong.read_to_string(&mut said).unwrap();
    assert_eq!(said, "LSL/110 404 Not found");
    let mut port_alone = ask(b"LSL:relay-status/1\r\n");
    assert_eq!(port_alone.read(&mut [0]).unwrap_or(0), 0);
}

#[test]
fn clock_probes_at_an_offer_are_answered_in_the_clock_of_its_source_alone() {
    let (context, streams) = (lab::context(), Streams::default());
    let _outlet = streams.add(&context, "one", 0);
    let offer = offer(&context, &streams, "one");
    let clock = streams.find(b"uid-of-one").unwrap().1;
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    socket.set_read_timeout(Some(SOON)).unwrap();
    let to = (Ipv4Addr::LOCALHOST, offer.info().v4_service_port());
    let ask = |wave: i32| {
        let probe = format!("LSL:timedata\r\n{wave} 1\r\n");
        socket.send_to(probe.as_bytes(), to).unwrap();
    };
    ask(1);
    lab::until("interest in the clock", || clock.last_asked().is_some());
    let now = local_clock();
    clock.set(Some(SourceClock {
        offset_secs: 1e6,
        uncertainty_secs: 40.0,
        measured_at: now,
    }));
    ask(2);
    let mut answer = [0; 200];
    let (length, _) = socket.recv_from(&mut answer).unwrap();
    let answer = String::from_utf8(answer[..length].to_vec()).unwrap();
    let numbers: Vec<f64> = answer
        .split_whitespace()
        .map(|it| it.parse().unwrap())
        .collect();
    // The first has no answer.
    assert_eq!(numbers[..2], [2.0, 1.0]);
    let (t1, t2) = (numbers[2] - 1e6 - now, numbers[3] - 1e6 - now);
    assert!(
        (20.0..30.0).contains(&t1) && (-20.1..-10.0).contains(&t2),
        "{t1} {t2}"
    );
}

#[test]
fn an_offer_encrypts_as_the_policy_says() {
    let place = Place::new();
    let (hub, rec) = place.pair(Policy::Required, Policy::Required);
    let streams = Streams::default();
    let outlet = streams.add(&hub.context, "one", 0);
    let offer = offer(&hub.context, &streams, "one");
    let info = found(&rec.context, "one");
    assert_eq!(info.uid(), offer.info().uid());
    assert!(info.relay_advert().is_some() && info.security_advert().is_some());
    let reader = inlet(&rec.context, &info);
    push(&outlet, 1..20);
    expect(&reader, 1..20);
    assert!(outlet.consumers()[0].encryption.is_some());
    measures_the_source(&streams, &reader);
    // The clock alone, without a feed.
    let clock_alone = rec.inlet_for(&info);
    let known = clock_alone.blocking().time_correction(SOON).unwrap();
    assert!((known.offset_secs - 1000.0).abs() <= known.uncertainty_secs / 2.0);
    let mut plain = TcpStream::connect((Ipv4Addr::LOCALHOST, info.v4_data_port())).unwrap();
    plain.set_read_timeout(Some(SOON)).unwrap();
    plain.write_all(&feed_request("", "")).unwrap();
    let mut said = [0; 11];
    plain.read_exact(&mut said).unwrap();
    assert_eq!(&said, b"LSL/110 403");
    drop(offer);
    let mut sample = [0.0_f32; 3];
    let ended = reader.blocking().pull(&mut sample, SOON);
    assert!(ended.is_err(), "{ended:?}");
}
