use lsl_secure::connection::{Answer, Event, Question};
use lsl_secure::{Descriptor, Local, OsRandom, SecretKey, Suites};

use super::super::{Asked, FeedOptions};
use super::*;
use crate::wire::response::{DataProtocol, FeedResponse};
use crate::wire::sequence::{Generation, Granted, ReplayFrom};
use crate::wire::testpattern;
use crate::{ByteOrder, ChannelFormat, StreamInfo};

const PEER: ([u8; 4], u16) = ([127, 0, 0, 1], 16_572);

fn local() -> std::sync::Arc<Local> {
    std::sync::Arc::new(Local {
        key: SecretKey::from_seed(&[7; 32]),
        psk: None,
        suites: Suites::ChaCha20Only,
        pad_to: 0,
    })
}

/// Moves what `from` has to say to `to`; returns why that one ends, if it does.
fn deliver(bytes: &mut Vec<u8>, to: &mut Connection, now: f64) -> Result<(), Disconnect> {
    let mut ring = SampleRing::new(1, 0);
    loop {
        answer(to.session().unwrap(), now);
        let most = to.max_read().min(bytes.len());
        if most == 0 {
            return Ok(());
        }
        let mut piece: Vec<u8> = bytes.drain(..most).collect();
        to.handle_input(&mut piece, || now, &mut ring)?;
    }
}

/// Answers all questions, trusting everybody.
fn answer(session: &mut Session, now: f64) -> Vec<Event> {
    let mut events = Vec::new();
    while let Some(event) = session.poll_event() {
        let answer = match event {
            Event::Question(Question::Turn) => Answer::Turn(Ok(())),
            Event::Question(Question::Work(work)) => Answer::Work(work.run(&mut OsRandom)),
            Event::Question(Question::PeerKey(_)) => Answer::PeerKey(Ok("peer".to_owned())),
            Event::Question(Question::Descriptor(_)) => Answer::Descriptor(Ok(())),
            other => {
                events.push(other);
                continue;
            }
        };
        session.handle_answer(answer, now).unwrap();
    }
    events
}

fn sent(connection: &mut Connection, now: f64) -> Vec<u8> {
    let mut sent = Vec::new();
    let write = |bytes: &[u8]| {
        sent.extend_from_slice(bytes);
        Ok(bytes.len())
    };
    assert!(connection.transmit(|| now, write).unwrap());
    sent
}

fn sent_by(session: &mut Session, now: f64) -> Vec<u8> {
    let mut sent = Vec::new();
    let write = |bytes: &[u8]| {
        sent.extend_from_slice(bytes);
        Ok(bytes.len())
    };
    assert!(session.flush(|| now, write).unwrap());
    sent
}

/// An established connection for `exchange`, and the outlet's end of it.
fn pair(exchange: Exchange) -> (Connection, Session, Vec<u8>) {
    let started = Session::initiator(local(), exchange.request(), 0.0, &mut OsRandom);
    let mut inlet = Connection::secure(PEER.into(), exchange, started.unwrap());
    let descriptor = Descriptor {
        uid: b"u".to_vec(),
        channel_count: 1,
        channel_format: 1,
        created_at: 1.0,
        ..Descriptor::default()
    };
    let mut outlet = Session::responder(local(), descriptor.into(), 0.0);
    let mut request = Vec::new();
    let mut to_outlet = sent(&mut inlet, 0.0);
    // The preamble is read before there is a session.
    to_outlet.drain(..14);
    let mut to_inlet = Vec::new();
    for _ in 0..8 {
        loop {
            answer(&mut outlet, 0.0);
            let most = outlet.max_read().min(to_outlet.len());
            if most == 0 {
                break;
            }
            let mut piece: Vec<u8> = to_outlet.drain(..most).collect();
            let take = |bytes: &[u8]| {
                request.extend_from_slice(bytes);
                Ok(())
            };
            outlet.handle_input(&mut piece, 0.0, take).unwrap();
        }
        to_inlet.extend(sent_by(&mut outlet, 0.0));
        deliver(&mut to_inlet, &mut inlet, 0.0).unwrap();
        to_outlet.extend(sent(&mut inlet, 0.0));
    }
    assert!(inlet.session().unwrap().receiver().is_some());
    (inlet, outlet, request)
}

fn said(session: &mut Session, bytes: &[u8]) -> Vec<u8> {
    let mut sent = Vec::new();
    let write = |bytes: &[u8]| {
        sent.extend_from_slice(bytes);
        Ok(bytes.len())
    };
    let sender = session.sender().unwrap();
    assert_eq!(sender.send(bytes, || 0.0, write).unwrap(), bytes.len());
    sent
}

#[test]
fn a_request_is_sent_in_pieces_and_its_reply_collected_up_to_the_limit() {
    let mut connection = Connection::plain(PEER.into(), Exchange::reply(b"LSL:fullinfo\r\n", 5));
    let mut ring = SampleRing::new(1, 0);
    let mut request = Vec::new();
    let mut room = 3;
    while !connection
        .transmit(
            || 0.0,
            |bytes| {
                if std::mem::take(&mut room) == 0 {
                    room = 3;
                    return Err(io::ErrorKind::WouldBlock.into());
                }
                request.extend_from_slice(&bytes[..bytes.len().min(3)]);
                Ok(bytes.len().min(3))
            },
        )
        .unwrap()
    {}
    assert_eq!(request, b"LSL:fullinfo\r\n");
    let mut take = |bytes: &[u8]| {
        let mut bytes = bytes.to_vec();
        connection.handle_input(&mut bytes, || 0.0, &mut ring)
    };
    take(b"abc").unwrap();
    take(b"de").unwrap();
    assert!(matches!(take(b""), Err(Disconnect::Closed)));
    let Err(Disconnect::Failed(error)) = take(b"f") else {
        panic!("more than allowed");
    };
    assert!(error.to_string().contains("larger than 5 bytes"), "{error}");
    assert_eq!(
        (connection.take_reply(), connection.bytes()),
        (b"abcde".to_vec(), 6)
    );
}

#[test]
fn a_reply_in_a_session_ends_with_its_close_and_not_with_its_socket() {
    for is_closed in [true, false] {
        let (mut inlet, mut outlet, request) = pair(Exchange::reply(b"LSL:fullinfo\r\n", 100));
        assert_eq!(request, b"LSL:fullinfo\r\n");
        let mut bytes = said(&mut outlet, b"<info/>");
        deliver(&mut bytes, &mut inlet, 1.0).unwrap();
        let ended = if is_closed {
            outlet.sender().unwrap().close();
            deliver(&mut sent_by(&mut outlet, 1.0), &mut inlet, 1.0)
        } else {
            inlet.handle_input(&mut [], || 1.0, &mut SampleRing::new(1, 0))
        };
        assert_eq!(matches!(ended, Err(Disconnect::Closed)), is_closed);
        assert_eq!(matches!(ended, Err(Disconnect::Failed(_))), !is_closed);
        assert_eq!(inlet.take_reply(), b"<info/>");
    }
}

#[test]
fn nothing_comes_in_a_session_for_its_keys() {
    let (mut inlet, mut outlet, request) = pair(Exchange::TimeKeys);
    assert_eq!(request, TIMEKEYS_REQUEST);
    let ended = deliver(&mut said(&mut outlet, b"x"), &mut inlet, 1.0);
    assert!(matches!(ended, Err(Disconnect::Failed(_))), "{ended:?}");
}

/// Lets time pass until the inlet gives up or `until`; the outlet answers if it `is_alive`. Returns the
/// number of PINGs, and why it ended.
fn pass(
    inlet: &mut Connection,
    outlet: &mut Session,
    is_alive: bool,
    until: f64,
) -> (u32, Option<Disconnect>) {
    let mut pings = 0;
    while let Some(now) = inlet.poll_timeout().filter(|due| *due < until) {
        if let Err(disconnect) = inlet.handle_timeout(now) {
            return (pings, Some(disconnect));
        }
        let mut bytes = sent(inlet, now);
        pings += u32::from(!bytes.is_empty());
        if is_alive && !bytes.is_empty() {
            outlet.handle_input(&mut bytes, now, |_| Ok(())).unwrap();
            for event in answer(outlet, now) {
                if let Event::Ping { t0, t1 } = event {
                    outlet.sender().unwrap().pong(t0, t1);
                }
            }
            deliver(&mut sent_by(outlet, now), inlet, now).unwrap();
        }
    }
    (pings, None)
}

#[test]
fn an_outlet_that_is_silent_but_alive_is_pinged_and_kept() {
    let (mut inlet, mut outlet, _) = pair(Exchange::TimeKeys);
    let (pings, ended) = pass(&mut inlet, &mut outlet, true, 600.0);
    assert!(pings > 5 && ended.is_none(), "{pings} {ended:?}");
}

#[test]
fn an_outlet_that_is_gone_without_a_word_is_given_up() {
    let (mut inlet, mut outlet, _) = pair(Exchange::TimeKeys);
    let (pings, ended) = pass(&mut inlet, &mut outlet, false, 600.0);
    assert_eq!(pings, 3);
    let Some(Disconnect::Session(error)) = ended else {
        panic!("{ended:?}");
    };
    assert!(error.to_string().contains("does not answer"), "{error}");
}

#[test]
fn bytes_that_never_become_a_record_are_no_sign_of_life() {
    let (mut inlet, _, _) = pair(Exchange::TimeKeys);
    // The longest record there is.
    let mut bytes = 16_401_u16.to_be_bytes().to_vec();
    let mut ring = SampleRing::new(1, 0);
    let error = loop {
        let now = inlet.poll_timeout().unwrap();
        inlet
            .handle_input(&mut bytes, || now - 0.001, &mut ring)
            .unwrap();
        bytes = vec![0];
        match inlet.handle_timeout(now) {
            Ok(()) => drop(sent(&mut inlet, now)),
            Err(Disconnect::Session(error)) => break error,
            Err(other) => panic!("{other:?}"),
        }
    };
    assert!(error.to_string().contains("does not answer"), "{error}");
}

#[test]
fn a_session_does_not_end_before_what_was_sent_in_it_has_found_room() {
    let mut info = StreamInfo::new("n", "", 1, 10.0, ChannelFormat::Int8, "s").unwrap();
    info.reset_uid("u");
    let options = FeedOptions {
        version: 110,
        max_buffer_samples: 100,
        max_chunk_samples: 0,
    };
    let asked = Some(Asked {
        from: ReplayFrom::Oldest,
        last_stamp: 0.0,
    });
    let decoder = FeedDecoder::asking(&info, options, asked);
    let (mut connection, mut outlet, _) = pair(Exchange::Feed(Box::new(decoder)));
    let response = FeedResponse {
        byte_order: ByteOrder::NATIVE,
        suppress_subnormals: false,
        data_protocol: DataProtocol::V110,
        granted: Some(Granted {
            generation: Generation::parse(b"a").unwrap(),
            begin: 0,
            live: 3,
            end: None,
        }),
    };
    let mut bytes = response.to_bytes(110, b"u");
    testpattern::for_each(ChannelFormat::Int8, 1, |raw| {
        bytes.push(2);
        bytes.extend(testpattern::TIMESTAMP.to_ne_bytes());
        bytes.extend_from_slice(raw);
    });
    bytes.extend([1, 10, 1, 11, 1, 12]);
    let mut to_inlet = said(&mut outlet, &bytes);
    outlet.sender().unwrap().close();
    to_inlet.extend(sent_by(&mut outlet, 0.0));
    let mut ring = SampleRing::new(2, usize::MAX);
    connection
        .handle_input(&mut to_inlet, || 0.0, &mut ring)
        .unwrap();
    assert!(connection.is_closed() && ring.len() == 2);
    ring.clear();
    let ended = connection.refill(&mut ring);
    assert!(matches!(ended, Err(Disconnect::Closed)), "{ended:?}");
    assert_eq!(ring.front().unwrap().1, [12]);
}
