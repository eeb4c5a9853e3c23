//! Streams and requests behind one port.

use std::io::{Read, Write};

use lsl_core::relay::SourceClock;
use lsl_core::secure::trust::TrustedRole;
use lsl_core::secure::{Cause, Policy};
use lsl_core::{History, Inlet, local_clock};

use super::{Streams, dial, feed_request, found, pass, port, read_to};
use crate::lab::{self, SOON};
use crate::secure::outlet::reader::Reader;
use crate::secure::people::{Place, key_of, trusted};

#[test]
fn two_streams_behind_one_port_are_told_apart() {
    let (context, streams) = (lab::context(), Streams::default());
    let outlets = ["one", "two"].map(|name| streams.add(&context, name, 0));
    let port = port(&context, &streams, 100);
    let inlets = outlets.each_ref().map(|outlet| {
        let inlet = Inlet::builder(&found(&port, outlet)).context(&context);
        let inlet = inlet.create().unwrap();
        inlet.blocking().open(SOON).unwrap();
        inlet
    });
    for n in 0..20_u8 {
        for (outlet, offset) in outlets.iter().zip([0.0, 0.5]) {
            pass(outlet, f32::from(n) + offset, f64::from(n));
        }
    }
    for (inlet, offset) in inlets.iter().zip([0.0, 0.5]) {
        for n in 0..20_u8 {
            let mut values = [0.0_f32; 3];
            let stamp = inlet.blocking().pull(&mut values, SOON).unwrap();
            assert_eq!(
                (values, stamp),
                ([f32::from(n) + offset; 3], Some(f64::from(n)))
            );
        }
    }
    assert_eq!(outlets[1].consumers().len(), 1);
}

#[test]
fn questions_about_one_of_many_streams_are_answered() {
    let (context, streams) = (lab::context(), Streams::default());
    let outlet = streams.add(&context, "one", 0);
    let port = port(&context, &streams, 100);
    let ask = |request: &[u8]| {
        let mut stream = dial(&port);
        stream.write_all(request).unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8(answer).unwrap()
    };
    let xml = String::from_utf8(outlet.info().to_xml()).unwrap();
    assert_eq!(ask(b"LSL:fullinfo uid-of-one\r\n"), xml);
    assert_eq!(ask(b"LSL:shortinfo\r\nname='x'\r\n"), "<info>name='x'");
    let unknown = "LSL/110 404 Not found";
    assert_eq!(ask(b"LSL:fullinfo uid-of-two\r\n"), unknown);
    for uid in ["uid-of-two", "secret"] {
        assert_eq!(ask(&feed_request(uid, "")), unknown);
    }
    let busy = "LSL/110 503 Relay limit reached, try again";
    assert_eq!(ask(&feed_request("busy", "")), busy);
    let closed: [&[u8]; 6] = [
        b"LSL:fullinfo\r\n",
        b"LSL:streamfeed\r\n1 0\r\n",
        b"LSL:streamfeed/100 uid-of-one\r\n1 0\r\n\r\n",
        b"LSL:timekeys/1 uid-of-one\r\n",
        b"LSL:sealed/1 uid-of-one\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
    ];
    for request in closed {
        assert_eq!(ask(request), "", "{}", String::from_utf8_lossy(request));
    }
    assert_eq!(ask(&feed_request("", "")), "");
}

#[test]
fn a_feed_goes_on_at_the_numbers_of_the_origin() {
    let (context, streams) = (lab::context(), Streams::default());
    let outlet = streams.add(&context, "one", 5000);
    for n in 0..10_u8 {
        pass(&outlet, f32::from(n), f64::from(n));
    }
    let port = port(&context, &streams, 100);
    for (from, begin, value) in [
        ("at 0-a 5004", 5004, 4.0),
        ("at 0-a 0", 5000, 0.0),
        ("oldest", 5000, 0.0),
        // Its beginning is somewhere else.
        ("at 0-b 7", 5010, 10.0),
        ("live", 5010, 10.0),
    ] {
        let mut stream = dial(&port);
        let header = format!("Lslx-Sequence: 1 {from}\r\n");
        stream
            .write_all(&feed_request("uid-of-one", &header))
            .unwrap();
        let head = read_to(&mut stream, b"\r\n\r\n");
        assert!(
            head.starts_with("LSL/110 200 OK\r\nUID: uid-of-one\r\n"),
            "{head}"
        );
        let granted = format!("\r\nLslx-Sequence: 1 0-a {begin} 5010\r\n");
        assert!(head.contains(&granted), "{from}: {head}");
        if begin == 5010 {
            continue;
        }
        let mut frames = [0; 3 * 21];
        stream.read_exact(&mut frames).unwrap();
        let first = f32::from_ne_bytes(frames[2 * 21 + 9..][..4].try_into().unwrap());
        assert_eq!((frames[2 * 21], first), (2, value), "{from}");
    }
    let inlet = Inlet::builder(&found(&port, &outlet)).context(&context);
    let inlet = inlet.history(History::Samples(3)).create().unwrap();
    let mut values = [0.0_f32; 3];
    let stamp = inlet.blocking().pull(&mut values, SOON).unwrap();
    assert_eq!((values, stamp), ([7.0; 3], Some(7.0)));
    let position = inlet.position().unwrap();
    assert_eq!(position.generation.as_str(), "0-a");
    assert!((5008..=5010).contains(&position.next), "{position:?}");
    assert_eq!((outlet.stats().samples, outlet.stats().resumed), (10, 2));
}

#[test]
fn who_has_a_key_is_served_in_a_session_whatever_the_policy() {
    for policy in [Policy::Off, Policy::Migrate, Policy::Required] {
        let place = Place::new();
        let hub = place.side("hub", policy, &["rec"]);
        let streams = Streams::default();
        let outlet = streams.add(&hub.context, "one", 0);
        let port = port(&hub.context, &streams, 100);
        let request = feed_request("uid-of-one", "");
        let mut reader = Reader::over(dial(&port), "rec", &request).unwrap();
        let said = &reader.descriptor;
        assert_eq!(
            (said.uid.as_slice(), said.stream_type.as_slice()),
            (&b"0123456789abcdef"[..], &b"lsl-relay"[..])
        );
        assert_eq!(
            (said.channel_count, said.channel_format, said.nominal_srate),
            (0, 3, 0.0)
        );
        reader.skip_preamble();
        pass(&outlet, 1.5, 7.0);
        assert_eq!(reader.sample(), Some((7.0, [1.5; 3])));
        outlet.close();
        assert_eq!((reader.rest(), reader.closed), (Vec::new(), true));
        let ask = |request: &[u8]| Reader::over(dial(&port), "rec", request).unwrap().rest();
        assert_eq!(
            ask(&feed_request("uid-of-two", "")),
            b"LSL/110 404 Not found"
        );
        assert_eq!(ask(b"LSL:fullinfo uid-of-one\r\n"), outlet.info().to_xml());
        // Loopback needs no key.
        let mut plain = dial(&port);
        plain.write_all(b"LSL:relay-status/1\r\n").unwrap();
        assert_eq!(read_to(&mut plain, b"\n"), " Status\n");
        assert!(Reader::over(dial(&port), "thief", &request).is_err());
        hub.await_audit("policy_refused", |line| line["cause"] == "not_authorised");
    }
}

#[test]
fn what_the_trust_file_keeps_from_a_peer_no_relay_gives_it() {
    let place = Place::new();
    let mut rec = trusted("rec", TrustedRole::Both);
    rec.streams = vec!["type='lsl-relay'".into(), "name='one'".into()];
    let hub = place.side_with("hub", Policy::Required, vec![rec], |_| {});
    let streams = Streams::default();
    let outlets = ["one", "two"].map(|name| streams.add(&hub.context, name, 0));
    let port = port(&hub.context, &streams, 100);
    let ask = |uid| Reader::over(dial(&port), "rec", &feed_request(uid, "")).unwrap();
    ask("uid-of-one").skip_preamble();
    assert_eq!(ask("uid-of-two").rest(), b"LSL/110 404 Not found");
    drop(outlets);
}

#[test]
fn requests_that_go_on_are_served_in_both_directions() {
    let (context, streams) = (lab::context(), Streams::default());
    let plain = port(&context, &streams, 100);
    let mut stream = dial(&plain);
    // What comes with the request is not lost.
    stream
        .write_all(b"LSL:watch/1 once\r\nname='x'\r\nearly")
        .unwrap();
    let greeting = read_to(&mut stream, b"\n");
    assert_eq!(
        greeting,
        format!(
            " Watch {{ once: true, past: false, query: {:?} }}\n",
            b"name='x'"
        )
    );
    assert_eq!(read_to(&mut stream, b"early"), "early");
    let bytes: Vec<u8> = (0..1 << 21).map(|n: u32| b'a' + (n % 23) as u8).collect();
    std::thread::scope(|scope| {
        let (mut writer, bytes) = (stream.try_clone().unwrap(), &bytes);
        scope.spawn(move || writer.write_all(bytes).unwrap());
        let mut echoed = vec![0; bytes.len()];
        stream.read_exact(&mut echoed).unwrap();
        assert!(echoed == *bytes);
    });
    drop(plain);
    assert_eq!(stream.read(&mut [0]).unwrap_or(0), 0, "ends with the port");
}

#[test]
fn requests_that_go_on_in_a_session_hear_why_it_ends() {
    let place = Place::new();
    let hub = place.side("hub", Policy::Required, &["rec"]);
    let port = port(&hub.context, &Streams::default(), 100);
    let link = b"LSL:relay/1\r\nFrames: 1\r\n\r\nearly";
    let mut reader = Reader::over(dial(&port), "rec", link).unwrap();
    reader.seal(|session, out| session.sealer.seal_data(&[b'.'; 9000], 0.0, out));
    reader.seal(|session, out| session.sealer.seal_ping(7.0, out));
    let mut said = Vec::new();
    while said.len() < 9000 || !said.ends_with(b".") || reader.pongs.is_empty() {
        assert!(reader.step(), "ended");
        said.extend(reader.take_data());
    }
    let said = String::from_utf8(said).unwrap();
    assert!(said.starts_with("rec Link { headers: ["), "{}", &said[..60]);
    assert!(
        said.contains("]\n") || said.contains("] }\nearly."),
        "{}",
        &said[..60]
    );
    assert_eq!(reader.pongs[0][0], 7.0);
    reader.seal(|session, out| session.sealer.seal_data(b"!", 0.0, out));
    reader.rest();
    assert_eq!(reader.alert, Some(Cause::RoleNotAllowed));
    let mut left = Reader::over(dial(&port), "rec", link).unwrap();
    left.close();
    left.rest();
    assert_eq!((left.alert, left.closed), (None, true));
}

#[test]
fn clocks_are_those_of_the_source_or_none() {
    let place = Place::new();
    let hub = place.side("hub", Policy::Required, &["rec"]);
    let streams = Streams::default();
    let _outlet = streams.add(&hub.context, "one", 0);
    let clock = streams.find(b"uid-of-one").unwrap().1;
    let port = port(&hub.context, &streams, 100);
    let keys = |uid| {
        let request = format!("LSL:timekeys/1 {uid}\r\n");
        Reader::over(dial(&port), "rec", request.as_bytes()).unwrap()
    };
    assert_eq!(keys("uid-of-two").rest(), b"LSL/110 404 Not found");
    let mut keys = keys("uid-of-one");
    let mut feed = Reader::over(dial(&port), "rec", &feed_request("uid-of-one", "")).unwrap();
    feed.skip_preamble();
    let ask = |reader: &mut Reader, t0| {
        reader.seal(|session, out| session.sealer.seal_ping(t0, out));
    };
    assert_eq!(clock.last_asked(), None);
    ask(&mut keys, 1.0);
    lab::until("somebody asks", || clock.last_asked().is_some());
    let asked = clock.last_asked();
    ask(&mut feed, 2.0);
    lab::until("a reader asks", || clock.last_asked() != asked);
    let now = local_clock();
    clock.set(Some(SourceClock {
        offset_secs: -500_000.0,
        uncertainty_secs: 0.25,
        measured_at: now,
    }));
    for reader in [&mut keys, &mut feed] {
        ask(reader, 3.0);
        while reader.pongs.is_empty() {
            assert!(reader.step(), "ended");
        }
        // Those before the first estimate have no answer.
        let [t0, t1, t2] = reader.pongs[0];
        assert_eq!(t0, 3.0);
        let [t1, t2] = [t1 + 500_000.0 - now, t2 + 500_000.0 - now];
        assert!((0.12..10.0).contains(&t1), "{t1}");
        // The uncertainty, and no more than it takes to answer.
        assert!(
            (-0.26..10.0).contains(&(t2 - t1)) && t2 - t1 < 5.0,
            "{t1} {t2}"
        );
    }
    // Who asks for nothing else is gone then.
    clock.take_back();
    ask(&mut keys, 4.0);
    keys.rest();
    drop(port);
    assert_eq!((keys.pongs.len(), feed.pongs.len()), (1, 1));
}

#[test]
fn readers_are_ended_whom_the_rules_let_read_no_more() {
    let place = Place::new();
    let hub = place.side("hub", Policy::Required, &["rec"]);
    let streams = Streams::default();
    let outlet = streams.add(&hub.context, "one", 0);
    let port = port(&hub.context, &streams, 100);
    let request = feed_request("uid-of-one", "");
    let mut sealed = Reader::over(dial(&port), "rec", &request).unwrap();
    sealed.skip_preamble();
    let mut plain = [dial(&port), dial(&port)];
    for stream in &mut plain {
        stream.write_all(&request).unwrap();
        read_to(stream, b"\r\n\r\n");
        stream.read_exact(&mut [0; 2 * 21]).unwrap();
    }
    let [mut ended, mut stays] = plain;
    let (gone, rec) = (ended.local_addr().unwrap(), key_of("rec").public());
    outlet.end_readers(|address, key| address == gone || key == Some(rec));
    assert_eq!(
        (sealed.rest(), sealed.alert),
        (Vec::new(), Some(Cause::NotAuthorised))
    );
    pass(&outlet, 1.0, 2.0);
    stays.read_exact(&mut [0; 21]).unwrap();
    assert_eq!(ended.read(&mut [0]).unwrap_or(0), 0);
}
