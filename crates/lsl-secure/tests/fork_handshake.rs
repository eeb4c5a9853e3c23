//! What a real `fork` does to a running handshake: the child can do nothing with it, since it would
//! seal other messages under its parent's nonces, and the parent goes on. Spec: LSS/1 §8.6.
//!
//! A test binary of its own, because the child of a threaded process may do next to nothing.
#![cfg(unix)]
#![expect(unsafe_code, reason = "fork, waitpid and _exit have no safe form")]
#![expect(clippy::unwrap_used, reason = "a test")]

use std::sync::Arc;

use lsl_secure::handshake::{
    Claim, Initiator, PREAMBLE, Responder, Unconfirmed, VerifiedInitiator, VerifiedResponder,
    WaitM3,
};
use lsl_secure::{Cause, Descriptor, Error, Local, OsRandom, Record, SecretKey, Session, Suites};

/// Runs `child` in a forked process; true if it returned true there.
fn in_child(child: impl FnOnce() -> bool) -> bool {
    // SAFETY: this process has no other thread that holds a lock the child needs (the test harness
    // waits in a join), and the child leaves by `_exit`.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0, "fork failed");
    if pid == 0 {
        let status = i32::from(!child());
        // SAFETY: ends this process at once, without running what belongs to the parent.
        unsafe { libc::_exit(status) };
    }
    let mut status = 0;
    // SAFETY: our own child, and a place for its status that outlives the call.
    let waited = unsafe { libc::waitpid(pid, &raw mut status, 0) };
    assert_eq!(waited, pid);
    libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0
}

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

// One test, so that no other thread runs while this one forks.
#[test]
fn a_child_can_do_nothing_with_its_parents_handshake_and_all_with_its_own() {
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
