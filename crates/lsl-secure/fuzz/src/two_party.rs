//! Two honest ends of a session, another session of the same ends, and an attacker who has all the
//! wires. Input: what the ends send, then what the attacker does with it. Whatever that is, each end
//! gets a prefix of what the other sent, and nothing after the first change.

use lsl_secure::handshake::{Claim, Initiator, PREAMBLE, Responder};
use lsl_secure::{Opener, Record, Sealer, Session};

use super::{Controls, Fixed, INLET, OUTLET, a_descriptor, local};

pub fn check(input: &[u8]) {
    let mut controls = Controls { rest: input };
    let (mut inlet, mut outlet) = sessions();
    let (mut other_inlet, mut other_outlet) = other_sessions();
    let mut up = Direction::default();
    let mut down = Direction::default();
    let (mut other_up, mut other_down) = (Direction::default(), Direction::default());
    for _ in 0..controls.byte() % 64 {
        let to = controls.byte();
        let len = usize::from(controls.byte());
        let bytes = controls.take(len);
        let (sealer, direction, is_inlet) = match to & 3 {
            0 => (&mut inlet.sealer, &mut up, true),
            1 => (&mut outlet.sealer, &mut down, false),
            2 => (&mut other_inlet.sealer, &mut other_up, true),
            _ => (&mut other_outlet.sealer, &mut other_down, false),
        };
        direction.send(to >> 2, sealer, bytes, is_inlet);
    }
    // What is not of the direction itself, or not next, is foreign to it.
    let foreign = [
        [&other_up, &down, &up, &other_down].map(|from| from.records.clone()),
        [&other_down, &up, &down, &other_up].map(|from| from.records.clone()),
    ];
    up.deliver(&mut outlet.opener, &mut controls, &foreign[0]);
    down.deliver(&mut inlet.opener, &mut controls, &foreign[1]);
}

/// One direction of one session.
#[derive(Default)]
struct Direction {
    /// What was sealed, call by call.
    records: Vec<Vec<u8>>,
    /// The DATA of each.
    sent: Vec<Vec<u8>>,
    closed: bool,
}

impl Direction {
    fn send(&mut self, how: u8, sealer: &mut Sealer, bytes: &[u8], is_inlet: bool) {
        let mut record = Vec::new();
        let mut data = Vec::new();
        let now = 10.0;
        let sealed = match how % 8 {
            0 => sealer.seal_key_update(&mut record),
            1 if is_inlet => sealer.seal_ping(now, &mut record),
            1 => sealer.seal_pong([now; 3], &mut record),
            2 if bytes.is_empty() => sealer.seal_close(&mut record),
            _ => {
                data = bytes.to_vec();
                sealer.seal_data(bytes, now, &mut record)
            }
        };
        assert_eq!(sealed.is_err(), self.closed);
        if sealed.is_ok() && !record.is_empty() {
            self.closed = how % 8 == 2 && data.is_empty();
            self.records.push(record);
            self.sent.push(data);
        }
    }

    /// Delivers what the attacker makes of the records, and compares.
    fn deliver(&self, opener: &mut Opener, controls: &mut Controls<'_>, foreign: &[Vec<Vec<u8>>]) {
        // A peer that updates its key more often than is allowed is cut off for that.
        let updates = self.records.iter().zip(&self.sent);
        let updates = updates.filter(|(record, data)| data.is_empty() && record.len() == 19);
        let too_many_updates = updates.count() > 16;
        let (mut wire, mut honest, mut tampered) = (Vec::new(), 0, false);
        let mut next = 0;
        for _ in 0..self.records.len() + usize::from(controls.byte() % 8) {
            let step = controls.byte();
            let own = self.records.get(next);
            let before = wire.len();
            match step % 16 {
                0..10 => {
                    let Some(record) = own else { break };
                    wire.extend_from_slice(record);
                    next += 1;
                    honest += usize::from(!tampered);
                    continue;
                }
                10 => next += 1,
                11 => {
                    let Some(record) = own else { break };
                    let mut record = record.clone();
                    let at = usize::from(controls.word()) % record.len();
                    record[at] ^= 1 << (controls.byte() % 8);
                    wire.extend_from_slice(&record);
                    next += 1;
                }
                12 => {
                    let Some(record) = own else { break };
                    let len = usize::from(controls.word()) % record.len();
                    wire.extend_from_slice(&record[..len]);
                    next += 1;
                }
                13 => {
                    // Of this direction again or too early, reflected, or of the other session.
                    let from = &foreign[usize::from(controls.byte()) % foreign.len()];
                    let Some(record) = from.get(usize::from(controls.byte())) else {
                        continue;
                    };
                    if Some(record) == own {
                        continue;
                    }
                    wire.extend_from_slice(record);
                }
                14 => {
                    let len = usize::from(controls.byte());
                    wire.extend_from_slice(controls.take(len));
                }
                _ => break,
            }
            tampered |= matches!(step % 16, 10..=12) || wire.len() > before;
        }
        let expected: Vec<u8> = self.sent[..honest].concat();
        let (mut received, mut closed, mut failed) = (Vec::new(), false, false);
        let cut = 1 + usize::from(controls.word());
        for piece in wire.chunks_mut(cut) {
            let result = opener.receive(piece, 10.0, |record| {
                match record {
                    Record::Data(bytes) => received.extend_from_slice(bytes),
                    Record::Close => closed = true,
                    Record::Ping(_) | Record::Pong(_) => {}
                    other => panic!("{other:?}"),
                }
                Ok(())
            });
            if result.is_err() {
                failed = true;
                break;
            }
        }
        assert!(
            self.sent.concat().starts_with(&received),
            "not what was sent"
        );
        if too_many_updates {
            return;
        }
        // A record of several, delivered in part, is as honest as its parts.
        assert!(received.len() >= expected.len(), "honest records were lost");
        assert_eq!(received.len(), expected.len(), "a changed record passed");
        assert!(tampered || !failed, "honest records were refused");
        assert_eq!(
            opener.end().is_ok(),
            closed && !failed,
            "the end can be forged"
        );
        assert!(!closed || self.closed);
    }
}

/// The inlet's and the outlet's end of one session.
pub(super) fn sessions() -> (Session, Session) {
    handshake(7, 8)
}

/// Another one between the same devices.
fn other_sessions() -> (Session, Session) {
    handshake(9, 10)
}

fn handshake(ours: u8, theirs: u8) -> (Session, Session) {
    let (initiator, flight) =
        Initiator::start(local(INLET), &mut Fixed(ours)).expect("fixed randomness");
    let (wait, m2) = Responder::new(local(OUTLET))
        .receive_m1(&flight[PREAMBLE.len()..], &mut Fixed(theirs))
        .expect("an honest M1");
    let verified = initiator.receive_m2(&m2).expect("an honest M2");
    let (unconfirmed, m3) = verified.accept().expect("our own process");
    let Ok(Claim::Verified(verified)) = wait.receive_m3(&m3) else {
        panic!("an honest M3");
    };
    let (outlet, mut record) = verified.accept(&a_descriptor()).expect("our own process");
    let (inlet, _) = unconfirmed
        .receive_descriptor(&mut record)
        .expect("an honest DESCRIPTOR");
    (inlet, outlet)
}
