//! Everybody who is refused is told so, exactly and in a way that arrives.

use std::net::{Ipv4Addr, Shutdown};

use lsl_core::local_clock;
use lsl_core::secure::policy::{Discovery, REFUSAL_403, REFUSAL_501};
use lsl_core::secure::trust::TrustedRole;
use lsl_core::secure::{Cause, Error, Policy};

use super::reader::{Reader, dial, dial_from, feed_request, hello, message, rest, say};
use crate::lab;
use crate::secure::people::{Place, fingerprint_of, info, trusted};

#[test]
fn plaintext_is_refused_and_held() {
    let place = Place::new();
    let amp = place.side("amp", Policy::Required, &["rec"]);
    let outlet = lab::outlet(&amp.context, info("refused"));
    let cases: [(Vec<u8>, &[u8]); 6] = [
        (feed_request(&outlet, 100), REFUSAL_403),
        (
            b"LSL:streamfeed/110 other\r\nA: b\r\n\r\n".to_vec(),
            REFUSAL_403,
        ),
        (b"LSL:streamfeed/120 \r\nA: b\r\n\r\n".to_vec(), REFUSAL_403),
        (b"LSL:fullinfo\r\n".to_vec(), b""),
        (b"LSL:streamfeed\r\n100 0\r\n".to_vec(), b""),
        (b"LSL:streamfeed/100 \r\n100 0\r\n\r\n".to_vec(), b""),
    ];
    let mut held: Vec<_> = [false, true]
        .into_iter()
        .flat_map(|half| cases.clone().map(|case| (half, case)))
        .map(|(half_close, (request, answer))| {
            let mut stream = dial(&outlet);
            let began = local_clock();
            say(&mut stream, &request);
            if half_close {
                let _ = stream.shutdown(Shutdown::Write);
            }
            (stream, began, request, answer)
        })
        .collect();
    for (stream, began, request, answer) in &mut held {
        let shown = String::from_utf8_lossy(request);
        assert_eq!(rest(stream), *answer, "{shown:?}");
        assert!(local_clock() - *began >= 1.0, "{shown:?} was not held");
    }
    assert_eq!(outlet.stats().refused, 12);
    assert!(!outlet.have_consumers());
    // More than ten lines a second are counted instead.
    lab::until("refusals are audited", || {
        let lines = amp.audited("plaintext_refused");
        let counted = |line: &serde_json::Value| 1 + line["suppressed"].as_u64().unwrap_or(0);
        lines.iter().map(counted).sum::<u64>() == 12
    });
    // Discovery is not refused: it hides nothing that UDP would not show.
    let mut stream = dial(&outlet);
    say(&mut stream, b"LSL:shortinfo\r\nname='refused'\r\n");
    let answer = String::from_utf8(rest(&mut stream)).unwrap();
    assert!(answer.contains("<name>refused</name>"));
}

#[test]
fn held_sockets_are_bounded_and_a_flood_pushes_out_itself() {
    let place = Place::new();
    let amp = place.side("amp", Policy::Required, &["rec"]);
    let outlet = lab::outlet(&amp.context, info("held"));
    // The places are the process's, and other tests hold some: a flood from an address of its own pushes
    // out none of theirs.
    let elsewhere = Ipv4Addr::new(127, 0, 0, 3).into();
    let began = local_clock();
    let mut flood: Vec<_> = (0..400)
        .map(|_| {
            let mut stream = dial_from(elsewhere, &outlet);
            say(&mut stream, b"LSL:fullinfo\r\n");
            stream
        })
        .collect();
    for stream in &mut flood {
        assert_eq!(rest(stream), b"");
    }
    assert!(local_clock() - began >= 1.0, "the last were held");
    Reader::feed(&outlet, "rec", 10);
}

#[test]
fn an_outlet_without_encryption_says_so_behind_any_input() {
    let place = Place::new();
    let off = place.side("amp", Policy::Off, &["rec"]);
    for context in [place.legacy(), off.context.clone()] {
        let outlet = lab::outlet(&context, info("off"));
        for unread in [0, 1, 59, 4096, 20_000, 60_000] {
            let mut stream = dial(&outlet);
            let mut bytes = hello("rec").1;
            bytes.resize(bytes.len() + unread, b'x');
            say(&mut stream, &bytes);
            assert_eq!(rest(&mut stream), REFUSAL_501, "{unread}");
        }
        lab::until("refusals are counted", || outlet.stats().refused == 6);
        // Without M1, too.
        let mut stream = dial(&outlet);
        say(&mut stream, b"LSL:secure/1\r\n");
        assert_eq!(rest(&mut stream), REFUSAL_501);
    }
}

#[test]
fn migrate_serves_both_and_notes_who_is_not_encrypted() {
    let place = Place::new();
    let amp = place.side("amp", Policy::Migrate, &["rec"]);
    let outlet = lab::outlet(&amp.context, info("both"));
    let mut stream = dial(&outlet);
    say(&mut stream, &feed_request(&outlet, 0));
    assert!(rest(&mut stream).starts_with(b"LSL/110 200 OK\r\n"));
    let noted = amp.await_audit("plaintext_accepted", |_| true);
    assert_eq!(noted["stream_uid"], *outlet.info().uid());
    let mut reader = Reader::feed(&outlet, "rec", 10);
    outlet.push_at(&[1.0_f32, 2.0, 3.0], 4.5).unwrap();
    assert_eq!(reader.sample(), Some((4.5, [1.0, 2.0, 3.0])));
    let consumers = outlet.consumers();
    let [consumer] = &consumers[..] else {
        panic!("{consumers:?}")
    };
    let encryption = consumer.encryption.as_ref().unwrap();
    assert_eq!(encryption.peer_name, "rec");
    assert_eq!(encryption.fingerprint, fingerprint_of("rec"));
    assert_eq!(encryption.suite, reader.session.suite.name());
    reader.close();
    assert_eq!(reader.rest(), b"");
    assert!(reader.closed);
    let ended = amp.await_audit("session_closed", |_| true);
    assert_eq!(ended["clean"], true, "{ended}");
    assert_eq!(amp.audited("handshake_ok").len(), 1);
}

#[test]
fn strangers_are_told_why_and_nothing_else() {
    let place = Place::new();
    let trusts = vec![
        trusted("rec", TrustedRole::Inlet),
        trusted("spare", TrustedRole::Outlet),
    ];
    let amp = place.side_with("amp", Policy::Required, trusts, |settings| {
        settings.discovery = Discovery::Minimal;
    });
    let outlet = lab::outlet(&amp.context, info("strangers"));
    for (who, cause) in [
        ("eve", Cause::NotAuthorised),
        ("spare", Cause::RoleNotAllowed),
    ] {
        // The request that follows M3 must not make a reset of our ALERT.
        let request = vec![b'x'; 30_000];
        match Reader::try_open(&outlet, who, &request).map(|_| ()) {
            Err(Error::Alert { cause: told, .. }) => assert_eq!(told, cause, "{who}"),
            other => panic!("{who}: {other:?}"),
        }
        let noted = amp.await_audit("policy_refused", |line| {
            line["peer_fp"] == fingerprint_of(who)
        });
        assert_eq!(noted["code"], cause.code());
    }
    let reader = Reader::feed(&outlet, "rec", 10);
    assert_eq!(reader.descriptor.name, b"strangers", "unredacted");
    assert_eq!(reader.descriptor.source_id, b"src-strangers");
    assert_eq!(reader.descriptor.uid, outlet.info().uid_bytes());
}

#[test]
fn nonsense_after_the_preamble_is_ended_without_a_word() {
    let place = Place::new();
    let amp = place.side("amp", Policy::Required, &["rec"]);
    let outlet = lab::outlet(&amp.context, info("nonsense"));
    for m1 in [&[0; 64][..], &[0xff; 600], b"\x00\x02\x01\x01"] {
        let mut stream = dial(&outlet);
        say(&mut stream, b"LSL:secure/1\r\n");
        say(&mut stream, m1);
        let _ = stream.shutdown(Shutdown::Write);
        assert_eq!(rest(&mut stream), b"");
    }
    // M3 that does not open.
    let mut stream = dial(&outlet);
    let (initiator, hello) = hello("rec");
    say(&mut stream, &hello);
    let (_, mut m3) = initiator
        .receive_m2(&message(&mut stream))
        .unwrap()
        .accept()
        .unwrap();
    *m3.last_mut().unwrap() ^= 1;
    say(&mut stream, &m3);
    assert_eq!(rest(&mut stream), b"");
    let noted = amp.await_audit("handshake_failed", |line| line["code"] == 5);
    assert_eq!(noted["role"], "outlet");
    Reader::feed(&outlet, "rec", 10);
}
