use lsl_proto::ChannelFormat;
use lsl_proto::outlet::frames::FrameCodec;

use super::*;

fn meta() -> Meta {
    let mut info = StreamInfo::new("é", "EEG", 1, 100.0, ChannelFormat::Int16, "x").unwrap();
    info.reset_uid("5eed");
    Meta {
        generation: Generation::parse(b"5eed").unwrap(),
        info: info.into(),
    }
}

#[test]
fn samples_are_laid_out_as_the_specification_says_and_read_back() {
    let meta = meta();
    let (codec, mut frames) = (FrameCodec::new(&meta.info), Frames::default());
    codec
        .encode(&[1.5, 1.51], &[1, 0, 2, 0], &mut frames)
        .unwrap();
    frames.first = 0x0102;
    let request = append(&meta, RelayId(0xbeef), &frames, 7).unwrap();
    assert_eq!(request.subject, "lsl.d.5eed");
    let writer = "000000000000beef".to_owned();
    assert_eq!(
        request.headers,
        [
            ("Nats-Expected-Last-Subject-Sequence", "7".to_owned()),
            ("Lsl-Relay", writer)
        ]
    );
    let (head, payload) = request.payload.split_at(21);
    let expected = [
        0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 2, 0x3f, 0xf8, 0, 0, 0, 0, 0, 0, FLAGS,
    ];
    assert_eq!((head, payload), (&expected[..], &*frames.bytes));
    assert_eq!(samples(&request.payload), Ok(frames));
    for cut in 0..21 {
        assert!(samples(&request.payload[..cut]).is_err(), "{cut}");
    }
    for (at, byte) in [(20, 1 - FLAGS), (11, 0)] {
        let mut other = request.payload.clone();
        other[at] = byte;
        assert_eq!(samples(&other).unwrap_err().kind, ErrorKind::Corrupt);
    }
    let mut high = request.payload;
    high[..8].fill(0xff);
    assert!(samples(&high).is_err());
}

#[test]
fn a_description_is_that_of_one_stream_and_keeps_who_writes_it() {
    let meta = meta();
    let described = Described::new(&meta.info, RelayId(1));
    let settings = Settings {
        max_age_secs: 0.0,
        allows_rollup: true,
    };
    // As the server gives it back.
    let again = |it: &Described| {
        let Request {
            headers, payload, ..
        } = it.store(&meta.generation, settings, 7);
        let headers = headers
            .iter()
            .map(|(name, value)| format!("{name}: {value}\r\n"));
        Message {
            place: 1,
            headers: headers.collect(),
            payload,
        }
    };
    assert!(
        again(&described)
            .headers
            .ends_with("\nNats-Rollup: sub\r\n")
    );
    let found = Described::of(again(&described)).unwrap();
    assert_eq!(found.check(&meta.info), Ok(()));
    assert_eq!(Described::of(again(&found)), Ok(found.clone()));
    let left = Described::of(again(&found.left(Some(9)))).unwrap();
    assert!(left.is_left() && !described.is_left());
    let stored = left.stored(meta.generation).unwrap();
    assert_eq!(&*stored.meta.info.name(), "é");
    assert_eq!((stored.end, stored.written), (Some(9), Some(7.0)));
    let mut other = StreamInfo::new("é", "EEG", 2, 100.0, ChannelFormat::Int16, "x").unwrap();
    other.reset_uid("5eed");
    assert_eq!(left.check(&other).unwrap_err().kind, ErrorKind::Conflict);
    let mut later = again(&described);
    later.headers = later.headers.replace("Layout: 1", "Layout: 2");
    assert_eq!(Described::of(later).unwrap_err().kind, ErrorKind::Corrupt);
    assert_eq!(super::described("lsl.m.5eed"), Some(meta.generation));
    assert_eq!(super::described("lsl.m.X"), None);
}

/// Replies of nats-server 2.9.10.
#[test]
fn replies_mean_what_servers_say() {
    let reply = br#"{"type":"io.nats.jetstream.api.v1.stream_msg_get_response","message":{"subject":"lsl.d.a",
        "seq":2,"hdrs":"TkFUUy8xLjANCkxzbC1SZWxheTogMDAwMDAwMDAwMDAwYmVlZg0KDQo=","data":"eXk=","time":"t"}}"#;
    let found = message(reply).unwrap().unwrap();
    assert_eq!((found.place, &*found.payload), (2, &b"yy"[..]));
    assert_eq!(found.writer(), Some(RelayId(0xbeef)));
    assert_eq!(stored(br#"{"stream":"LSL", "seq":3}"#), Ok(Some(3)));
    assert!(message(br#"{"message":{"seq":2,"data":"!"}}"#).is_err() && stored(b"{}").is_err());
    assert!(message(b"[]").is_err() && listed(b"").is_err());
    let error = |code: u64, number: u64| {
        json!({"error": {"code": code, "err_code": number, "description": "why"}}).to_string()
    };
    assert_eq!(message(error(404, 10037).as_bytes()), Ok(None));
    assert_eq!(stored(error(400, 10071).as_bytes()), Ok(None));
    assert_eq!(settings(error(404, 10059).as_bytes()), Ok(None));
    assert_eq!(made(error(400, 10058).as_bytes()), Ok(()));
    for (code, number, kind) in [
        (503, 10077, ErrorKind::Full),
        (500, 10047, ErrorKind::Full),
        (503, 10008, ErrorKind::Retry),
        (404, 10059, ErrorKind::Retry),
        (503, 10076, ErrorKind::Denied),
        (400, 10054, ErrorKind::Denied),
    ] {
        let refused = stored(error(code, number).as_bytes()).unwrap_err();
        assert_eq!((refused.kind, &*refused.text), (kind, "why"), "{number}");
    }
    let of = |retention: &str| {
        json!({"config": {"retention": retention, "max_age": 3_000_000_000_u64}}).to_string()
    };
    let found = settings(of("limits").as_bytes()).unwrap().unwrap();
    let expected = Settings {
        max_age_secs: 3.0,
        allows_rollup: false,
    };
    assert_eq!(found, expected);
    let refused = settings(of("workqueue").as_bytes()).unwrap_err();
    assert!(refused.kind == ErrorKind::Denied && refused.text.contains("make it limits"));
    let subjects = br#"{"state":{"subjects":{"lsl.m.a":1}}}"#;
    assert_eq!(listed(subjects), Ok(vec!["lsl.m.a".to_owned()]));
    assert_eq!(listed(br#"{"state":{}}"#), Ok(vec![]));
    assert!(check_payload(393_216).is_ok());
    assert!(
        check_payload(393_215)
            .unwrap_err()
            .text
            .contains("set 393216")
    );
}
