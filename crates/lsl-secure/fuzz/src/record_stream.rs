//! Records of any content, authentic or not, at either side. Input: how to cut, which side; then
//! records: their plaintext, or raw bytes that end the sealing.

use lsl_secure::handshake::{Claim, Initiator, Responder};
use lsl_secure::{Opener, Record, Result};

use super::reference::{self, Inlet, Outlet};
use super::{Controls, Fixed, INLET, OUTLET, a_descriptor, local, pieces};

/// Longest plaintext that still fits a record's length field.
const MOST_TEXT: usize = 17_000;

pub fn check(input: &[u8]) {
    let mut controls = Controls { rest: input };
    let seed = controls.byte();
    let at_outlet = controls.byte().is_multiple_of(2);
    let (_, mut secret) = opener(at_outlet);
    // The outlet's DESCRIPTOR took the first counter of its direction.
    let mut counter = u64::from(!at_outlet);
    let (mut wire, mut texts) = (Vec::new(), Vec::new());
    while !controls.rest.is_empty() {
        let len = usize::from(controls.word());
        if len > MOST_TEXT {
            wire.extend_from_slice(controls.rest);
            texts.clear();
            break;
        }
        let text = controls.take(len);
        wire.extend_from_slice(&reference::record(&secret, counter, text));
        texts.push(text);
        counter += 1;
        // Padded or not; a wrong one ends the session anyway.
        if text.first().is_some_and(|kind| kind & 0x7f == 3) {
            secret = reference::next(&secret);
            counter = 0;
        }
    }

    let whole = receive(opener(at_outlet).0, &[&wire]);
    let cut = receive(opener(at_outlet).0, &pieces(seed, &wire));
    assert_eq!(whole, cut, "depends on the cuts");
    let (events, ended) = whole;
    for (at, event) in events.iter().enumerate() {
        let last = at + 1 == events.len();
        match event {
            Event::Data(bytes) => assert!((1..=16_384).contains(&bytes.len())),
            Event::Ping => assert!(at_outlet),
            Event::Pong => assert!(!at_outlet),
            Event::Close => assert!(last, "something after CLOSE"),
            Event::Alert => assert!(last && ended.is_err(), "something after ALERT"),
        }
    }
    // Plain data in, the same data out.
    if !texts.is_empty()
        && texts.len() <= 1000
        && texts
            .iter()
            .all(|text| matches!(text, [1, _, ..]) && text.len() <= 16_385)
    {
        let sent: Vec<_> = texts
            .iter()
            .map(|text| Event::Data(text[1..].to_vec()))
            .collect();
        assert_eq!((events, ended), (sent, Ok(())));
    }
}

#[derive(Debug, PartialEq)]
enum Event {
    Data(Vec<u8>),
    Ping,
    Pong,
    Close,
    Alert,
}

fn receive(mut opener: Opener, pieces: &[&[u8]]) -> (Vec<Event>, Result<(), String>) {
    let mut events = Vec::new();
    for piece in pieces {
        let mut piece = piece.to_vec();
        let received = opener.receive(&mut piece, 1.0, |record| {
            events.push(match record {
                Record::Data(bytes) => Event::Data(bytes.to_vec()),
                Record::Ping(_) => Event::Ping,
                Record::Pong(_) => Event::Pong,
                Record::Close => Event::Close,
                Record::Alert(_, text) => {
                    assert!(text.len() <= 3 * 255);
                    Event::Alert
                }
                other => panic!("{other:?}"),
            });
            Ok(())
        });
        if let Err(error) = received {
            let before = events.len();
            let cause = error.cause();
            let again = opener.receive(&mut [0; 40], 9.0, |_| panic!("after the end"));
            assert_eq!(again.expect_err("final").cause(), cause);
            assert_eq!(opener.end().expect_err("final").cause(), cause);
            assert_eq!(events.len(), before);
            return (events, Err(cause.name().to_owned()));
        }
    }
    let closed = matches!(events.last(), Some(Event::Close));
    assert_eq!(opener.end().is_ok(), closed);
    (events, Ok(()))
}

/// An opener after its handshake (and DESCRIPTOR), and the secret of what it opens.
fn opener(at_outlet: bool) -> (Opener, reference::Key) {
    if at_outlet {
        let inlet = Inlet::new(INLET);
        let (wait, m2) = Responder::new(local(OUTLET))
            .receive_m1(inlet.m1(), &mut Fixed(8))
            .expect("an honest M1");
        let (m3, traffic) = inlet.m3(&m2, |_| ());
        let Ok(Claim::Verified(verified)) = wait.receive_m3(&m3) else {
            panic!("an honest M3");
        };
        let (session, _) = verified.accept(&a_descriptor()).expect("our own process");
        (session.opener, traffic.inlet)
    } else {
        let (initiator, flight) =
            Initiator::start(local(INLET), &mut Fixed(7)).expect("fixed randomness");
        let (outlet, m2) = Outlet::answer(OUTLET, &flight, |_| (), |_| ());
        let verified = initiator.receive_m2(&m2).expect("an honest M2");
        let (unconfirmed, m3) = verified.accept().expect("our own process");
        let secret = outlet.traffic(&m3).outlet;
        let text = [&[2], a_descriptor().to_bytes().as_slice()].concat();
        let mut record = reference::record(&secret, 0, &text);
        let (session, _) = unconfirmed
            .receive_descriptor(&mut record)
            .expect("an honest DESCRIPTOR");
        (session.opener, secret)
    }
}
