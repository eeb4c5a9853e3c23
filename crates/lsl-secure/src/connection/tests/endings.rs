//! Peers that say nothing, too little or too much.

use super::*;
use crate::policy::REFUSAL_503;

/// How a connection ends that gets `bytes` and then the end of the stream, or nothing any more.
fn assert_ends(
    mut connection: Connection,
    bytes: &[u8],
    closes: bool,
    expected: Cause,
    after: f64,
) {
    let fed = give(&mut connection, bytes, 0.0).and_then(|_| {
        take(&mut connection);
        if closes {
            return end(&mut connection);
        }
        let due = connection.poll_timeout().unwrap();
        assert_eq!(due.to_bits(), after.to_bits(), "{bytes:?}");
        connection.handle_timeout(due - 0.001)?;
        connection.handle_timeout(due)
    });
    assert_eq!(cause(fed), expected, "{bytes:?}");
}

#[test]
fn an_outlet_that_closes_or_hangs() {
    let check = |bytes: &[u8], closes, expected, after| {
        assert_ends(inlet(), bytes, closes, expected, after);
    };
    check(b"", true, Cause::PeerNotSecure, 0.0);
    check(b"\0", true, Cause::Truncated, 0.0);
    check(b"\0\x20abc", true, Cause::Truncated, 0.0);
    check(b"", false, Cause::Timeout, 10.0);
    check(b"\0", false, Cause::Timeout, 10.0);
    check(b"\0\x20abc", false, Cause::Timeout, 10.0);
    check(b"\x08\x01", false, Cause::Malformed, 0.0);
    check(b"\xff\xff", false, Cause::Malformed, 0.0);
    check(b"\0\0", false, Cause::Malformed, 0.0);
}

#[test]
fn an_inlet_that_closes_or_hangs() {
    let check = |bytes: &[u8], closes, expected, after| {
        assert_ends(outlet(), bytes, closes, expected, after);
    };
    let (_, flight) = Initiator::start(local(3), &mut OsRandom).unwrap();
    let m1 = &flight[PREAMBLE.len()..];
    check(b"", true, Cause::Truncated, 0.0);
    check(b"", false, Cause::Timeout, 3.0);
    check(&m1[..m1.len() - 1], true, Cause::Truncated, 0.0);
    check(&m1[..m1.len() - 1], false, Cause::Timeout, 3.0);
    check(m1, true, Cause::Truncated, 0.0);
    check(m1, false, Cause::Timeout, 5.0);
    check(&[2, 1], false, Cause::Malformed, 0.0);
    check(PREAMBLE, false, Cause::Malformed, 0.0);
    let with = |rest: &[u8]| [m1, rest].concat();
    check(&with(&[0, 1]), true, Cause::Truncated, 0.0);
    check(&with(&[8, 1]), false, Cause::Malformed, 0.0);
    check(&with(&[0, 0]), false, Cause::Malformed, 0.0);
    let m3 = [[0, 20, 3].as_slice(), &[0; 19]].concat();
    check(&with(&m3), false, Cause::DecryptFailed, 0.0);
}

#[test]
fn anything_but_a_descriptor() {
    let check = |bytes: &[u8], closes, expected, after| {
        let mut inlet = inlet();
        greeted(&mut inlet);
        assert_ends(inlet, bytes, closes, expected, after);
    };
    check(b"", true, Cause::Truncated, 0.0);
    check(b"\0", true, Cause::Truncated, 0.0);
    check(b"", false, Cause::Timeout, 10.0);
    check(b"\0\x40abc", false, Cause::Timeout, 10.0);
    check(b"\x40\x12", false, Cause::RecordOverflow, 0.0);
    check(b"\0\x10", true, Cause::Truncated, 0.0);
    let record = [[0, 20].as_slice(), &[7; 20]].concat();
    check(&record, true, Cause::RecordAuthFailed, 0.0);
    // No second chance for a textual refusal, nor for plaintext.
    check(b"LSL/110 200 OK\r\n", true, Cause::RecordOverflow, 0.0);
}

#[test]
fn one_byte_a_second_is_too_slow() {
    let mut outlet = outlet();
    let (_, flight) = Initiator::start(local(3), &mut OsRandom).unwrap();
    for (byte, now) in flight[PREAMBLE.len()..].iter().zip([0.0, 1.0, 2.0]) {
        give(&mut outlet, &[*byte], now).unwrap();
        outlet.handle_timeout(now).unwrap();
    }
    assert_eq!(cause(outlet.handle_timeout(3.0)), Cause::Timeout);
}

#[test]
fn a_peer_that_takes_nothing_holds_nobody() {
    let full = |_: &[u8]| Err(io::ErrorKind::WouldBlock.into());
    let mut inlet = inlet();
    assert!(!inlet.flush(|| 0.0, full).unwrap());
    assert_eq!(cause(inlet.handle_timeout(10.0)), Cause::Timeout);

    // Its DESCRIPTOR, which M3 was answered with.
    let mut outlet = outlet();
    let mut other = super::inlet();
    give(&mut outlet, &take(&mut other)[PREAMBLE.len()..], 0.0).unwrap();
    give(&mut other, &take(&mut outlet), 0.0).unwrap();
    give(&mut outlet, &take(&mut other), 1.0).unwrap();
    assert!(!outlet.flush(|| 1.0, full).unwrap());
    assert_eq!((outlet.max_read(), outlet.poll_timeout()), (0, Some(6.0)));
    assert_eq!(cause(outlet.handle_timeout(6.0)), Cause::Timeout);
    assert!(take(&mut outlet).is_empty() && outlet.sender().is_none());
}

#[test]
fn an_error_of_the_socket_ends_a_handshake_without_a_word_more() {
    let broken = |_: &[u8]| Err(io::ErrorKind::OutOfMemory.into());
    let assert_broken = |connection: &mut Connection| {
        let flushed = connection.flush(|| 0.0, broken);
        assert_eq!(flushed.unwrap_err().kind(), io::ErrorKind::OutOfMemory);
        assert!(take(connection).is_empty() && connection.sender().is_none());
        assert_eq!(
            (connection.max_read(), connection.poll_timeout()),
            (0, None)
        );
    };
    // M3, which says who we are, and the request.
    let mut inlet = inlet();
    greeted(&mut inlet);
    assert_broken(&mut inlet);
    // The DESCRIPTOR.
    let (mut inlet, mut outlet) = (super::inlet(), outlet());
    give(&mut outlet, &take(&mut inlet)[PREAMBLE.len()..], 0.0).unwrap();
    give(&mut inlet, &take(&mut outlet), 0.0).unwrap();
    give(&mut outlet, &take(&mut inlet), 0.0).unwrap();
    assert_broken(&mut outlet);
    // One that only the caller has seen, which takes no last words back.
    let error = Error::session(Cause::Internal, "reading");
    let mut inlet = super::inlet();
    greeted(&mut inlet);
    inlet.fail(&error);
    assert!(take(&mut inlet).is_empty());
    inlet = super::inlet();
    accepted(&mut inlet);
    assert!(give(&mut inlet, b"\x40\x12", 0.0).is_err());
    inlet.fail(&error);
    assert!(!take(&mut inlet).is_empty());
}

#[test]
fn an_answer_counts_until_somebody_says_that_it_is_late() {
    let (_, flight) = Initiator::start(local(3), &mut OsRandom).unwrap();
    let m1 = &flight[PREAMBLE.len()..];
    let asked = || {
        let mut outlet = outlet();
        for bytes in [&m1[..2], &m1[2..]] {
            let taken = outlet.handle_input(&mut bytes.to_vec(), 0.0, |_| Ok(()));
            taken.unwrap();
        }
        let question = outlet.poll_event();
        assert!(matches!(question, Some(Event::Question(Question::Turn))));
        outlet
    };
    let mut outlet = asked();
    outlet.handle_answer(Answer::Turn(Ok(())), 4.0).unwrap();
    answer(&mut outlet, 4.0).unwrap();
    assert_eq!(outlet.poll_timeout(), Some(9.0));

    let mut outlet = asked();
    assert_eq!(cause(outlet.handle_timeout(3.0)), Cause::Busy);
    let late = outlet.handle_answer(Answer::Turn(Ok(())), 3.0);
    assert_eq!(cause(late), Cause::Internal);
    assert!(outlet.poll_event().is_none());
    assert_eq!(take(&mut outlet), REFUSAL_503);

    // What comes with a question open was not asked for.
    for bytes in [&b"more"[..], b""] {
        let mut outlet = asked();
        assert_eq!(outlet.max_read(), 0);
        let early = outlet.handle_input(&mut bytes.to_vec(), 0.0, |_| Ok(()));
        assert!(early.is_err());
        assert!(outlet.handle_answer(Answer::Turn(Ok(())), 0.0).is_err());
        assert!(take(&mut outlet).is_empty());
    }
}

#[test]
fn a_request_that_is_not_taken_is_late_by_its_name() {
    // The outlet reads M3, and the request stays.
    let (mut inlet, mut outlet) = (inlet(), outlet());
    give(&mut outlet, &take(&mut inlet)[PREAMBLE.len()..], 0.0).unwrap();
    give(&mut inlet, &take(&mut outlet), 0.0).unwrap();
    let mut m3 = Vec::new();
    let flushed = inlet.flush(
        || 0.0,
        |bytes| match m3.len() {
            0 => {
                m3.extend_from_slice(&bytes[..153]);
                Ok(153)
            }
            _ => Err(io::ErrorKind::WouldBlock.into()),
        },
    );
    assert!(!flushed.unwrap());
    give(&mut outlet, &m3, 0.0).unwrap();
    give(&mut inlet, &take(&mut outlet), 0.0).unwrap();
    let late = inlet.handle_timeout(10.0).unwrap_err();
    assert_eq!(late.cause(), Cause::Timeout);
    assert!(late.to_string().contains("the request"), "{late}");
}

#[test]
fn a_peer_that_is_gone_is_still_read() {
    let mut inlet = inlet();
    let gone = |_: &[u8]| Err(io::ErrorKind::BrokenPipe.into());
    assert!(inlet.flush(|| 0.0, gone).unwrap());
    let refused = give(&mut inlet, REFUSAL_503, 0.0);
    assert!(matches!(refused, Err(Error::Refused { status: 503, .. })));
}

#[test]
fn last_words_have_their_time_and_no_more() {
    let mut outlet = outlet();
    let (_, flight) = Initiator::start(local(3), &mut OsRandom).unwrap();
    let mut m1 = flight[PREAMBLE.len()..].to_vec();
    m1[3] = 9;
    m1[4] = 9;
    assert_eq!(cause(give(&mut outlet, &m1, 2.0)), Cause::Version);
    assert_eq!(outlet.poll_timeout(), Some(3.0));
    outlet.handle_timeout(2.9).unwrap();
    assert_eq!(outlet.poll_timeout(), Some(3.0));
    outlet.handle_timeout(3.0).unwrap();
    assert!(take(&mut outlet).is_empty());
}

#[test]
fn an_outlet_that_is_silent_is_asked_three_times() {
    let [mut inlet, mut outlet] = established();
    // A record puts it off, a part of one does not.
    outlet.sender().unwrap().pong(1.0, 1.0);
    let pong = take(&mut outlet);
    give(&mut inlet, &pong[..9], 10.0).unwrap();
    assert_eq!(inlet.poll_timeout(), Some(30.0));
    give(&mut inlet, &pong[9..], 20.0).unwrap();
    let mut asked = Vec::new();
    let ended = loop {
        let due = inlet.poll_timeout().unwrap();
        asked.push(due);
        if let Err(error) = inlet.handle_timeout(due) {
            break error;
        }
        let mut pings = Vec::new();
        let mut wire = take(&mut inlet);
        outlet.handle_input(&mut wire, due, |_| Ok(())).unwrap();
        while let Some(event) = outlet.poll_event() {
            pings.push(format!("{event:?}"));
        }
        assert_eq!(pings, [format!("Ping {{ t0: {due:?}, t1: {due:?} }}")]);
    };
    assert_eq!(ended.cause(), Cause::Timeout);
    assert_eq!(asked, [50.0, 80.0, 110.0, 140.0]);
    assert!(take(&mut inlet).is_empty(), "nobody is there to be told");
}
