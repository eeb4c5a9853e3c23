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
