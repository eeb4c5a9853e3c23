//! Connections whose peer is a script, in virtual time.

use std::io;
use std::sync::Arc;

use super::*;
use crate::handshake::{Claim, Initiator, PREAMBLE, Responder};
use crate::{Opener, OsRandom, Record, SecretKey, Suites};

mod endings;
mod halves;
mod refusals;

fn local(seed: u8) -> Arc<Local> {
    Arc::new(Local {
        key: SecretKey::from_seed(&[seed; 32]),
        psk: None,
        suites: Suites::ChaCha20Only,
        pad_to: 0,
    })
}

fn inlet() -> Connection {
    Connection::initiator(local(3), b"request", 0.0, &mut OsRandom).unwrap()
}

fn outlet() -> Connection {
    Connection::responder(local(4), descriptor().into(), 0.0)
}

fn descriptor() -> Descriptor {
    Descriptor {
        name: b"name".to_vec(),
        channel_count: 8,
        channel_format: 1,
        ..Descriptor::default()
    }
}

/// Gives a connection bytes as it asks for them, and says yes to its questions. Returns how many it
/// took.
fn give(connection: &mut Connection, bytes: &[u8], now: f64) -> Result<usize> {
    let mut taken = 0;
    while taken < bytes.len() && connection.max_read() > 0 {
        let length = connection.max_read().min(bytes.len() - taken);
        let mut piece = bytes[taken..taken + length].to_vec();
        connection.handle_input(&mut piece, now, |_| Ok(()))?;
        taken += length;
        answer(connection, now)?;
    }
    Ok(taken)
}

fn answer(connection: &mut Connection, now: f64) -> Result<()> {
    while let Some(Event::Question(question)) = connection.poll_event() {
        let answer = match question {
            Question::Turn => Answer::Turn(Ok(())),
            Question::Work(work) => Answer::Work(work.run(&mut OsRandom)),
            Question::PeerKey(_) => Answer::PeerKey(Ok("peer".to_owned())),
            Question::Descriptor(said) => {
                assert_eq!(said, descriptor(), "not as it was given");
                Answer::Descriptor(Ok(()))
            }
        };
        connection.handle_answer(answer, now)?;
    }
    Ok(())
}

/// The end of the stream.
fn end(connection: &mut Connection) -> Result<()> {
    connection.handle_input(&mut [], 0.0, |_| Ok(()))
}

/// All that a connection has to send.
fn take(connection: &mut Connection) -> Vec<u8> {
    let mut wire = Vec::new();
    let flushed = connection.flush(
        || 0.0,
        |bytes| {
            wire.extend_from_slice(bytes);
            Ok(bytes.len())
        },
    );
    assert!(flushed.unwrap());
    wire
}

/// Both ends of a session, which have taken the request and nothing else.
fn established() -> [Connection; 2] {
    let (mut inlet, mut outlet) = (inlet(), outlet());
    let hello = take(&mut inlet);
    give(&mut outlet, &hello[PREAMBLE.len()..], 0.0).unwrap();
    give(&mut inlet, &take(&mut outlet), 0.0).unwrap();
    let flight = take(&mut inlet);
    let taken = give(&mut outlet, &flight, 0.0).unwrap();
    give(&mut inlet, &take(&mut outlet), 0.0).unwrap();
    let mut request = Vec::new();
    let mut rest = flight[taken..].to_vec();
    assert!(matches!(outlet.poll_event(), Some(Event::Established(_))));
    assert!(outlet.poll_event().is_none());
    outlet
        .handle_input(&mut rest, 0.0, |data| {
            request.extend_from_slice(data);
            Ok(())
        })
        .unwrap();
    assert_eq!(request, b"request");
    [inlet, outlet]
}

/// An outlet by hand, up to M2.
fn greeted(inlet: &mut Connection) -> crate::handshake::WaitM3 {
    let hello = take(inlet);
    let responder = Responder::new(local(4));
    let (wait, m2) = responder
        .receive_m1(&hello[PREAMBLE.len()..], &mut OsRandom)
        .unwrap();
    give(inlet, &m2, 0.0).unwrap();
    wait
}

/// The same up to its session and DESCRIPTOR, which is still to be sent.
fn accepted(inlet: &mut Connection) -> (Session, Vec<u8>) {
    let wait = greeted(inlet);
    let flight = take(inlet);
    let length = 2 + usize::from(u16::from_be_bytes([flight[0], flight[1]]));
    let Ok(Claim::Verified(verified)) = wait.receive_m3(&flight[..length]) else {
        panic!("M3 is good");
    };
    let (mut session, record) = verified.accept(&descriptor()).unwrap();
    let mut request = flight[length..].to_vec();
    assert_eq!(
        records(&mut session.opener, &mut request),
        [format!("{:?}", Record::Data(b"request"))]
    );
    (session, record)
}

/// The records that `bytes` hold, printed.
fn records(opener: &mut Opener, bytes: &mut [u8]) -> Vec<String> {
    let mut records = Vec::new();
    let received = opener.receive(bytes, 0.0, |record| {
        records.push(format!("{record:?}"));
        Ok(())
    });
    let alerted = records.last().is_some_and(|last| last.starts_with("Alert"));
    assert_eq!(received.is_err(), alerted, "{received:?}");
    records
}

fn cause<T>(result: Result<T>) -> Cause {
    match result {
        Ok(_) => panic!("it should have failed"),
        Err(error) => error.cause(),
    }
}

#[test]
fn an_inlet_that_refuses_says_why_and_not_who_it_is() {
    let mut inlet = inlet();
    let wait = {
        let hello = take(&mut inlet);
        let responder = Responder::new(local(4));
        let m1 = &hello[PREAMBLE.len()..];
        let (wait, m2) = responder.receive_m1(m1, &mut OsRandom).unwrap();
        for bytes in [&m2[..2], &m2[2..]] {
            let received = inlet.handle_input(&mut bytes.to_vec(), 0.0, |_| Ok(()));
            received.unwrap();
        }
        wait
    };
    let Some(Event::Question(Question::Work(work))) = inlet.poll_event() else {
        panic!("M2 is work");
    };
    inlet
        .handle_answer(Answer::Work(work.run(&mut OsRandom)), 0.0)
        .unwrap();
    let asked = inlet.poll_event();
    assert!(
        matches!(asked, Some(Event::Question(Question::PeerKey(key))) if key == local(4).key.public())
    );
    let refused = inlet.handle_answer(Answer::PeerKey(Err(Cause::RoleNotAllowed)), 7.0);
    assert_eq!(cause(refused), Cause::RoleNotAllowed);
    assert_eq!(inlet.poll_timeout(), Some(8.0), "time for the last words");
    let told = wait.receive_m3(&take(&mut inlet));
    assert!(matches!(told, Ok(Claim::Refused(Cause::RoleNotAllowed))));
    assert_eq!(inlet.poll_timeout(), None);
}

#[test]
fn an_outlet_that_does_not_introduce_itself_is_told() {
    let mut inlet = inlet();
    let (mut session, _) = accepted(&mut inlet);
    session.sealer.skip_descriptor();
    let mut sealed = Vec::new();
    session.sealer.seal_data(b"x", 0.0, &mut sealed).unwrap();
    assert_eq!(
        cause(give(&mut inlet, &sealed, 0.0)),
        Cause::UnexpectedRecord
    );
    let told = records(&mut session.opener, &mut take(&mut inlet));
    assert_eq!(told, ["Alert(UnexpectedRecord, \"\")"]);
}

#[test]
fn an_outlet_whose_first_record_is_too_long_is_told() {
    let mut inlet = inlet();
    let (mut session, _) = accepted(&mut inlet);
    let ended = give(&mut inlet, b"\x40\x12", 0.0);
    assert_eq!(cause(ended), Cause::RecordOverflow);
    let told = records(&mut session.opener, &mut take(&mut inlet));
    // Of two causes with one code the first of the table.
    assert_eq!(told, ["Alert(UnexpectedRecord, \"\")"]);
}

#[test]
fn another_psk_is_a_silent_end() {
    let psk = Arc::new(Local {
        psk: Some(crate::Psk::from_bytes([9; 32]).unwrap()),
        ..Arc::into_inner(local(3)).unwrap()
    });
    let mut inlet = Connection::initiator(psk, b"", 0.0, &mut OsRandom).unwrap();
    let mut outlet = outlet();
    give(&mut outlet, &take(&mut inlet)[PREAMBLE.len()..], 0.0).unwrap();
    let ended = give(&mut inlet, &take(&mut outlet), 0.0);
    assert_eq!(cause(ended), Cause::DecryptFailed);
    assert!(take(&mut inlet).is_empty());
}

#[test]
fn answers_belong_to_questions() {
    let mut outlet = outlet();
    let answered = outlet.handle_answer(Answer::Turn(Ok(())), 0.0);
    assert_eq!(cause(answered), Cause::Internal);
    let mut inlet = inlet();
    assert_eq!(inlet.max_read(), 2);
    let received = inlet.handle_input(&mut [0; 3], 0.0, |_| Ok(()));
    assert_eq!(cause(received), Cause::Internal, "more than it asked for");
    assert!(inlet.sender().is_none() && inlet.take_time_keys().is_none());
    assert!(inlet.split().is_none());
}
