//! What a real `fork` does to a running handshake: the child can do nothing with it, since it would
//! seal other messages under its parent's nonces, and the parent goes on. Spec: LSS/1 §8.6.
//!
//! A test binary of its own, because the child of a threaded process may do next to nothing.
#![cfg(unix)]
#![expect(unsafe_code, reason = "fork, waitpid and _exit have no safe form")]
#![expect(clippy::unwrap_used, reason = "a test")]

#[path = "../../lsl-platform/tests/forked/mod.rs"]
mod forked;

use std::io;
use std::sync::Arc;

use lsl_secure::connection::{Answer, Connection, Event, Question};
use lsl_secure::handshake::{
    Claim, Initiator, PREAMBLE, Responder, Unconfirmed, VerifiedInitiator, VerifiedResponder,
    WaitM3,
};
use lsl_secure::{Cause, Descriptor, Error, Local, OsRandom, Record, SecretKey, Session, Suites};

use forked::in_child;

fn local() -> Arc<Local> {
    Arc::new(Local {
        key: SecretKey::generate(&mut OsRandom).unwrap(),
        psk: None,
        suites: Suites::ChaCha20Only,
        pad_to: 0,
    })
}

fn descriptor() -> Descriptor {
    Descriptor {
        uid: b"uid".to_vec(),
        name: b"name".to_vec(),
        stream_type: b"EEG".to_vec(),
        source_id: Vec::new(),
        hostname: Vec::new(),
        session_id: Vec::new(),
        channel_count: 1,
        nominal_srate: 0.0,
        channel_format: 1,
        created_at: 0.0,
    }
}

fn internal<T, E: Into<Error>>(result: Result<T, E>) -> bool {
    result.is_err_and(|error| error.into().cause() == Cause::Internal)
}

fn started() -> (Initiator, Vec<u8>) {
    let (initiator, flight) = Initiator::start(local(), &mut OsRandom).unwrap();
    (initiator, flight[PREAMBLE.len()..].to_vec())
}

fn answered() -> (Initiator, WaitM3, Vec<u8>) {
    let (initiator, m1) = started();
    let (wait, m2) = Responder::new(local())
        .receive_m1(&m1, &mut OsRandom)
        .unwrap();
    (initiator, wait, m2)
}

fn offered() -> (VerifiedResponder, WaitM3) {
    let (initiator, wait, m2) = answered();
    (initiator.receive_m2(&m2).unwrap(), wait)
}

fn claimed() -> (Unconfirmed, Box<VerifiedInitiator>) {
    let (verified, wait) = offered();
    let (unconfirmed, m3) = verified.accept().unwrap();
    match wait.receive_m3(&m3).unwrap() {
        Claim::Verified(verified) => (unconfirmed, verified),
        Claim::Refused(cause) => panic!("refused: {cause:?}"),
    }
}

fn confirmed() -> (Session, Session) {
    let (unconfirmed, verified) = claimed();
    let (outlet, mut record) = verified.accept(&descriptor()).unwrap();
    let (inlet, _) = unconfirmed.receive_descriptor(&mut record).unwrap();
    (inlet, outlet)
}

/// Gives a connection what it asks for of `bytes`, and says yes.
fn give(connection: &mut Connection, mut bytes: &[u8]) -> lsl_secure::Result<()> {
    while !bytes.is_empty() && connection.max_read() > 0 {
        let (piece, rest) = bytes.split_at(bytes.len().min(connection.max_read()));
        bytes = rest;
        connection.handle_input(&mut piece.to_vec(), 0.0, |_| Ok(()))?;
        while let Some(Event::Question(question)) = connection.poll_event() {
            let answer = match question {
                Question::Turn => Answer::Turn(Ok(())),
                Question::Work(work) => Answer::Work(work.run(&mut OsRandom)),
                Question::PeerKey(_) => Answer::PeerKey(Ok(String::new())),
                Question::Descriptor(_) => Answer::Descriptor(Ok(())),
            };
            connection.handle_answer(answer, 0.0)?;
        }
    }
    Ok(())
}

fn flush(connection: &mut Connection) -> (io::Result<bool>, Vec<u8>) {
    let mut wire = Vec::new();
    let flushed = connection.flush(
        || 0.0,
        |bytes| {
            wire.extend_from_slice(bytes);
            Ok(bytes.len())
        },
    );
    (flushed, wire)
}

/// What the parent sends of what waits, which the child cannot send.
fn sent_by_parent(connection: &mut Connection) -> Vec<u8> {
    assert!(in_child(|| {
        let (flushed, wire) = flush(connection);
        flushed.is_err_and(|error| error.kind() == io::ErrorKind::NotConnected)
            && wire.is_empty()
            && connection.sender().is_none()
            && flush(connection).1.is_empty()
    }));
    let (flushed, wire) = flush(connection);
    assert!(flushed.unwrap() && !wire.is_empty());
    wire
}

/// Connections whose next message waits, in each state that can wait.
fn a_child_sends_nothing_of_its_parents_connection() {
    let inlet = || Connection::initiator(local(), b"?", 0.0, &mut OsRandom).unwrap();
    let outlet = || Connection::responder(local(), Arc::new(descriptor()), 0.0);
    let (mut near, mut far) = (inlet(), outlet());
    let m1 = sent_by_parent(&mut near);
    give(&mut far, &m1[PREAMBLE.len()..]).unwrap();
    give(&mut near, &sent_by_parent(&mut far)).unwrap();
    give(&mut far, &sent_by_parent(&mut near)).unwrap();
    give(&mut near, &sent_by_parent(&mut far)).unwrap();
    assert!(near.sender().is_some() && far.sender().is_some());
    // Last words.
    let mut other = m1[PREAMBLE.len()..].to_vec();
    (other[3], other[4]) = (9, 9);
    let mut far = outlet();
    assert_eq!(give(&mut far, &other).unwrap_err().cause(), Cause::Version);
    sent_by_parent(&mut far);
}

// One test, so that no other thread runs while this one forks.
#[test]
fn a_child_can_do_nothing_with_its_parents_handshake_and_all_with_its_own() {
    a_child_sends_nothing_of_its_parents_connection();

    let (responder, (_, m1)) = (Responder::new(local()), started());
    assert!(in_child(|| internal(
        responder.receive_m1(&m1, &mut OsRandom)
    )));

    let (initiator, _, m2) = answered();
    assert!(in_child(|| internal(initiator.receive_m2(&m2))));

    let (verified, _) = offered();
    assert!(in_child(|| internal(verified.accept())));
    let (verified, _) = offered();
    assert!(in_child(|| verified
        .refuse(Cause::NotAuthorised)
        .is_empty()));

    let (verified, wait) = offered();
    let (_, m3) = verified.accept().unwrap();
    assert!(in_child(|| internal(wait.receive_m3(&m3))));

    let (_, verified) = claimed();
    assert!(in_child(|| internal(verified.accept(&descriptor()))));
    let (_, verified) = claimed();
    assert!(in_child(|| verified
        .refuse(Cause::NotAuthorised, "")
        .is_empty()));

    let (mut unconfirmed, verified) = claimed();
    let (_, mut record) = verified.accept(&descriptor()).unwrap();
    assert!(in_child(|| {
        let mut request = Vec::new();
        let sealed = unconfirmed.sealer().seal_data(b"x", 0.0, &mut request);
        internal(sealed)
            && request.is_empty()
            && internal(unconfirmed.receive_descriptor(&mut record))
    }));

    // A session of the parent is dead in the child and goes on in the parent.
    let mut session = confirmed();
    assert!(in_child(|| {
        let mut record = Vec::new();
        let inlet = &mut session.0;
        internal(inlet.sealer.seal_data(b"x", 0.0, &mut record))
            && internal(inlet.sealer.seal_close(&mut record))
            && record.is_empty()
            && talk(&mut confirmed())
    }));
    assert!(talk(&mut session));
}

/// Whether what one side says reaches the other.
fn talk((inlet, outlet): &mut (Session, Session)) -> bool {
    let (mut record, mut heard) = (Vec::new(), Vec::new());
    inlet.sealer.seal_data(b"hello", 0.0, &mut record).unwrap();
    let received = outlet.opener.receive(&mut record, 0.0, |record| {
        if let Record::Data(bytes) = record {
            heard.extend_from_slice(bytes);
        }
        Ok(())
    });
    received.is_ok() && heard == b"hello"
}
