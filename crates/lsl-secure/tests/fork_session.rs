//! A forked child must not use the sessions of its parent. A test binary of its own with one test, so
//! that no other thread holds a lock when the child is made. Spec: LSS/1 §8.6.
#![cfg(unix)]
#![expect(unsafe_code, reason = "fork, waitpid and _exit have no safe form")]
#![expect(
    clippy::unwrap_used,
    reason = "test code: a wrong value fails the test"
)]

use std::sync::Arc;

use lsl_secure::handshake::{Claim, Initiator, PREAMBLE, Responder};
use lsl_secure::{Cause, Descriptor, Local, OsRandom, Result, SecretKey, Session, Suites};

/// Runs `child` in a forked process; 0, or the number of the check that failed there.
fn in_child(child: impl FnOnce() -> i32) -> i32 {
    // SAFETY: this test is the only one of its binary, and the child leaves by `_exit`.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0, "fork failed");
    if pid == 0 {
        let status = child();
        // SAFETY: ends this process at once, without running what belongs to the parent.
        unsafe { libc::_exit(status) };
    }
    let mut status = 0;
    // SAFETY: our own child, and a place for its status that outlives the call.
    let waited = unsafe { libc::waitpid(pid, &raw mut status, 0) };
    assert_eq!(waited, pid);
    assert!(libc::WIFEXITED(status), "the child crashed");
    libc::WEXITSTATUS(status)
}

fn local(seed: u8) -> Arc<Local> {
    Arc::new(Local {
        key: SecretKey::from_seed(&[seed; 32]),
        psk: None,
        suites: Suites::ChaCha20Only,
        pad_to: 0,
    })
}

fn descriptor() -> Descriptor {
    Descriptor {
        uid: b"uid".to_vec(),
        name: b"name".to_vec(),
        stream_type: vec![],
        source_id: vec![],
        hostname: vec![],
        session_id: vec![],
        channel_count: 1,
        nominal_srate: 0.0,
        channel_format: 1,
        created_at: 1.0,
    }
}

/// The inlet's and the outlet's side.
fn established() -> (Session, Session) {
    let (initiator, flight) = Initiator::start(local(1), &mut OsRandom).unwrap();
    let (wait, m2) = Responder::new(local(2))
        .receive_m1(&flight[PREAMBLE.len()..], &mut OsRandom)
        .unwrap();
    let (unconfirmed, m3) = initiator.receive_m2(&m2).unwrap().accept().unwrap();
    let Claim::Verified(verified) = wait.receive_m3(&m3).unwrap() else {
        panic!("refused");
    };
    let (outlet, mut record) = verified.accept(&descriptor()).unwrap();
    let (inlet, _) = unconfirmed.receive_descriptor(&mut record).unwrap();
    (inlet, outlet)
}

fn refuses(result: Result<()>) -> bool {
    result.is_err_and(|error| error.cause() == Cause::Internal)
}

#[test]
fn a_child_cannot_use_inherited_sessions_but_its_own() {
    let (mut inlet, mut outlet) = established();
    let mut wire = Vec::new();
    outlet.sealer.seal_data(b"before", 1.0, &mut wire).unwrap();
    let (mut prober, mut responder) = {
        let (inlet, outlet) = (established(), established());
        (inlet.0.time.into_prober(), outlet.1.time.into_responder())
    };
    let probe = prober.probe(1.0).unwrap();
    let (initiator, flight) = Initiator::start(local(1), &mut OsRandom).unwrap();
    let (_, m2) = Responder::new(local(2))
        .receive_m1(&flight[PREAMBLE.len()..], &mut OsRandom)
        .unwrap();

    let mut inherited = Some(established());
    let failed = in_child(|| {
        let mut out = Vec::new();
        // Its keys are gone; what is left of it goes quietly.
        drop(inherited.take());
        // A new session of the child's own must not revive what it inherited.
        let (mut own_inlet, mut own_outlet) = established();
        let sealed = own_outlet.sealer.seal_data(b"x", 1.0, &mut out);
        let opened = own_inlet.opener.receive(&mut out, 1.0, |_| Ok(()));
        out.clear();
        let mut copy = wire.clone();
        let checks = [
            sealed.is_ok() && opened.is_ok(),
            refuses(outlet.sealer.seal_data(b"x", 1.0, &mut out)),
            refuses(outlet.sealer.seal_data(b"", 1.0, &mut out)),
            refuses(outlet.sealer.seal_key_update(&mut out)),
            refuses(outlet.sealer.seal_pong([1.0; 3], &mut out)),
            refuses(outlet.sealer.seal_alert(Cause::Internal, "", &mut out)),
            refuses(outlet.sealer.seal_close(&mut out)),
            refuses(inlet.sealer.seal_ping(1.0, &mut out)),
            refuses(inlet.opener.receive(&mut copy, 1.0, |_| panic!("opened"))),
            refuses(inlet.opener.receive(&mut [], 1.0, |_| Ok(()))),
            refuses(inlet.opener.end()),
            prober.probe(1.0).is_err(),
            responder.answer(&probe, 1.0, || 1.0).is_none(),
            initiator.receive_m2(&m2).is_err(),
            out.is_empty(),
            copy == wire,
        ];
        let failed = checks.iter().position(|passed| !passed);
        failed.map_or(0, |at| i32::try_from(at).unwrap_or(99) + 1)
    });
    assert_eq!(failed, 0, "the check of this number failed in the child");

    let (mut one, _) = inherited.unwrap();
    one.sealer.seal_data(b"x", 1.0, &mut Vec::new()).unwrap();

    // The parent goes on as if nothing had been.
    outlet.sealer.seal_data(b"after", 1.0, &mut wire).unwrap();
    let mut received = Vec::new();
    inlet
        .opener
        .receive(&mut wire, 1.0, |record| {
            received.push(format!("{record:?}"));
            Ok(())
        })
        .unwrap();
    assert_eq!(received.len(), 2);
    inlet.sealer.seal_close(&mut Vec::new()).unwrap();
}
