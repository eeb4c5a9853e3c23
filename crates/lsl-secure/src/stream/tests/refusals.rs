//! Lines in place of M2, in both directions.

use super::*;
use crate::policy::{REFUSAL_403, REFUSAL_501};

/// What an inlet makes of `answer`, which comes in pieces of one byte.
fn answered(answer: &[u8]) -> Error {
    let (answer, found) = (answer.to_vec(), Arc::new(std::sync::Mutex::new(None)));
    let result = Arc::clone(&found);
    run(async move {
        let (mut near, mut far) = duplex(4096);
        let answering = tokio::spawn(async move {
            for byte in answer {
                // The inlet may have heard enough.
                let _ = far.write_all(&[byte]).await;
                sleep(Duration::from_millis(1)).await;
            }
            let _ = far.shutdown().await;
            far
        });
        *result.lock().unwrap() = connect_any(&mut near).await.err();
        answering.abort();
    });
    let error = found.lock().unwrap().take();
    error.expect("no refusal opens a session")
}

fn check(answer: &[u8], expected: u16, expected_text: &str) {
    match answered(answer) {
        Error::Refused { status, text } => {
            assert_eq!((status, text.as_str()), (expected, expected_text));
        }
        other => panic!("{other} for {answer:?}"),
    }
}

#[test]
fn known_lines() {
    check(
        REFUSAL_403,
        403,
        "LSL/110 403 Encryption required: this outlet only accepts lsl-secure sessions",
    );
    check(
        REFUSAL_501,
        501,
        "LSL/110 501 Secure sessions are not enabled on this outlet",
    );
    check(
        REFUSAL_503,
        503,
        "LSL/110 503 Secure session limit reached, try again",
    );
    check(
        REFUSAL_505,
        505,
        "LSL/110 505 Secure session version not supported",
    );
    check(
        b"LSL/110 404 Not found\r\n\r\n",
        404,
        "LSL/110 404 Not found",
    );
    check(b"LSL/200 503\r\n", 503, "LSL/200 503");
}

#[test]
fn other_lines() {
    check(b"LSL/110 200 OK\r\n\r\n", 0, "LSL/110 200 OK");
    check(b"LSL/110\r\n", 0, "LSL/110");
    check(b"LSL/ 503 x\r\n", 0, "LSL/ 503 x");
    check(b"LSL/1a0 503 x\r\n", 0, "LSL/1a0 503 x");
    check(b"LS\r\n", 0, "LS");
    check(b"LS\n", 0, "LS");
    check(b"LS", 0, "LS");
    check(b"LSL/110 503", 503, "LSL/110 503");
    check(b"LSL/110 5033 x\r\n", 0, "LSL/110 5033 x");
}

#[test]
fn control_characters_are_shown_and_not_obeyed() {
    let Error::Refused { status, text } = answered(b"LSL/110 503 \x1b[2J\x07\xff\xe2\x80\xae!\r\n")
    else {
        panic!("not a refusal");
    };
    assert_eq!(status, 503);
    assert!(
        text.starts_with("LSL/110 503 ") && text.ends_with('!'),
        "{text}"
    );
    assert!(!text.contains(['\u{1b}', '\u{7}', '\u{202e}']), "{text:?}");
}

#[test]
fn a_line_without_end_is_cut_and_never_followed_by_m2() {
    // 257 bytes of line, then what would be M2.
    let mut answer = b"LSL/110 503 ".to_vec();
    answer.resize(257, b'x');
    answer.extend_from_slice(&[0, 5, 2, 1, 0, 1, 0]);
    let Error::Refused { status, text } = answered(&answer) else {
        panic!("not a refusal");
    };
    assert_eq!(status, 503);
    assert_eq!(text.len(), 256);
}

#[test]
fn a_line_that_never_ends_in_time_is_a_timeout() {
    run(async {
        let (mut near, mut far) = duplex(4096);
        let loris = tokio::spawn(async move {
            for byte in b"LSL/110 503 one byte in a second".iter().cycle() {
                far.write_all(&[*byte]).await.unwrap();
                sleep(Duration::from_secs(1)).await;
            }
        });
        assert_eq!(cause(connect_any(&mut near).await), Cause::Timeout);
        loris.abort();
    });
}

#[test]
fn a_full_outlet_says_so() {
    run(async {
        let (mut near, mut far) = duplex(4096);
        let accepting = tokio::spawn(async move {
            let accepted = accept_any(&mut far, &mut Full).await;
            close(&mut far).await;
            accepted
        });
        let connected = connect_any(&mut near).await;
        assert!(matches!(connected, Err(Error::Refused { status: 503, .. })));
        drop(near);
        assert_eq!(cause(accepting.await.unwrap()), Cause::Busy);
    });
}

#[test]
fn a_turn_that_does_not_come_is_a_full_outlet() {
    struct Queue;

    impl Gate for Queue {
        async fn admit(&mut self) -> Result<(), Cause> {
            pending().await
        }

        fn decide(&mut self, _peer: PublicKey) -> Result<(), Cause> {
            panic!("nobody was admitted");
        }
    }

    run(async {
        let (mut near, mut far) = duplex(4096);
        let start = Instant::now();
        let accepting = tokio::spawn(async move { accept_any(&mut far, &mut Queue).await });
        let connected = connect_any(&mut near).await;
        assert!(matches!(connected, Err(Error::Refused { status: 503, .. })));
        assert_eq!(cause(accepting.await.unwrap()), Cause::Busy);
        assert_eq!(start.elapsed().as_secs(), 3);
    });
}

#[test]
fn no_common_version_or_suite_is_505() {
    let hello = |change: fn(&mut Vec<u8>)| {
        let (_, flight) = Initiator::start(inlet(), &mut OsRandom).unwrap();
        let mut m1 = flight[PREAMBLE.len()..].to_vec();
        change(&mut m1);
        m1
    };
    let check = |m1: Vec<u8>, expected: Cause, answer: &'static [u8]| {
        run(async move {
            let (mut near, mut far) = duplex(4096);
            near.write_all(&m1).await.unwrap();
            let accepted = accept(&mut far, outlet(), &descriptor(), &mut Open).await;
            assert_eq!(cause(accepted), expected);
            drop(far);
            let mut line = Vec::new();
            near.read_to_end(&mut line).await.unwrap();
            assert_eq!(line, answer);
        });
    };
    // len, type, ver_min, ver_max, role, n_suites, suites…
    check(
        hello(|m1| (m1[3], m1[4]) = (2, 9)),
        Cause::Version,
        REFUSAL_505,
    );
    check(hello(|m1| m1[8] = 77), Cause::NoCommonSuite, REFUSAL_505);
    check(hello(|m1| m1[5] = 2), Cause::Malformed, b"");
    check(hello(|m1| m1[2] = 9), Cause::Malformed, b"");
    check(hello(|m1| m1[9..41].fill(0)), Cause::BadKeyShare, b"");
}
