//! Lines in place of M2, in both directions.

use super::*;
use crate::policy::{REFUSAL_403, REFUSAL_501, REFUSAL_503, REFUSAL_505};

/// What an inlet makes of `answer`, which comes in pieces of one byte.
fn answered(answer: &[u8]) -> Error {
    let mut inlet = inlet();
    let mut bytes = answer.chunks(1);
    let failed = bytes.find_map(|byte| give(&mut inlet, byte, 0.0).err());
    failed.unwrap_or_else(|| end(&mut inlet).expect_err("no refusal opens a session"))
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
    let mut inlet = inlet();
    give(&mut inlet, b"LSL/110 503 one byte in a sec", 9.0).unwrap();
    assert_eq!(cause(inlet.handle_timeout(10.0)), Cause::Timeout);
}

/// How an outlet ends a handshake that begins so, and what it says.
fn refused(m1: &[u8], answer: impl FnOnce(&mut Connection) -> Result<()>) -> (Cause, Vec<u8>) {
    let mut outlet = outlet();
    for bytes in [&m1[..2], &m1[2..]] {
        outlet
            .handle_input(&mut bytes.to_vec(), 0.0, |_| Ok(()))
            .unwrap();
    }
    let asked = outlet.poll_event();
    assert!(matches!(asked, Some(Event::Question(Question::Turn))));
    let ended = answer(&mut outlet);
    (cause(ended), take(&mut outlet))
}

fn hello(change: fn(&mut Vec<u8>)) -> Vec<u8> {
    let (_, flight) = Initiator::start(local(3), &mut OsRandom).unwrap();
    let mut m1 = flight[PREAMBLE.len()..].to_vec();
    change(&mut m1);
    m1
}

#[test]
fn a_full_outlet_says_so() {
    let full = (Cause::Busy, REFUSAL_503.to_vec());
    let refusal =
        |outlet: &mut Connection| outlet.handle_answer(Answer::Turn(Err(Cause::Busy)), 0.0);
    assert_eq!(refused(&hello(|_| {}), refusal), full);
    // A turn that does not come within 3 s of the connection.
    let silence = |outlet: &mut Connection| {
        assert_eq!(outlet.poll_timeout(), Some(3.0));
        outlet.handle_timeout(3.0)
    };
    assert_eq!(refused(&hello(|_| {}), silence), full);
}

#[test]
fn no_common_version_or_suite_is_505_whosever_turn_it_is() {
    let check = |change: fn(&mut Vec<u8>), expected: Cause, answer: &[u8]| {
        let (m1, mut outlet) = (hello(change), outlet());
        let mut input = |bytes: &[u8]| outlet.handle_input(&mut bytes.to_vec(), 0.0, |_| Ok(()));
        input(&m1[..2]).unwrap();
        assert_eq!(cause(input(&m1[2..])), expected);
        assert!(outlet.poll_event().is_none(), "nobody's turn");
        assert_eq!(take(&mut outlet), answer);
    };
    // len, type, ver_min, ver_max, role, n_suites, suites…
    check(|m1| (m1[3], m1[4]) = (2, 9), Cause::Version, REFUSAL_505);
    check(|m1| m1[8] = 77, Cause::NoCommonSuite, REFUSAL_505);
    check(|m1| m1[5] = 2, Cause::Malformed, b"");
    check(|m1| m1[2] = 9, Cause::Malformed, b"");
    let accept = |outlet: &mut Connection| {
        outlet.handle_answer(Answer::Turn(Ok(())), 0.0)?;
        answer(outlet, 0.0)
    };
    let zeros = hello(|m1| m1[9..41].fill(0));
    assert_eq!(refused(&zeros, accept), (Cause::BadKeyShare, Vec::new()));
}
