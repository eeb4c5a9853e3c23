//! The known answers through [`Connection`]: the same bytes, whoever drives them.

use super::*;
use crate::connection::{Answer, Connection, Event, Question};

/// Gives both ends, in turns, what the other has sent, until nobody sends more. Returns all bytes by
/// direction.
fn exchange(ends: &mut [(Connection, Fixed); 2]) -> [Vec<u8>; 2] {
    let (mut wires, mut read) = ([Vec::new(), Vec::new()], [PREAMBLE.len(), 0]);
    loop {
        let before = [wires[0].len(), wires[1].len()];
        for side in 0..2 {
            let (connection, random) = &mut ends[side];
            let input = &wires[1 - side];
            while read[1 - side] < input.len() && connection.max_read() > 0 {
                let start = read[1 - side];
                let end = input.len().min(start.saturating_add(connection.max_read()));
                read[1 - side] = end;
                let mut piece = input[start..end].to_vec();
                connection
                    .handle_input(&mut piece, 0.0, |_| Ok(()))
                    .unwrap();
                answer(connection, random);
            }
            wires[side].extend(flush(connection));
        }
        if before == [wires[0].len(), wires[1].len()] {
            return wires;
        }
    }
}

fn flush(connection: &mut Connection) -> Vec<u8> {
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

fn answer(connection: &mut Connection, random: &mut Fixed) {
    while let Some(Event::Question(question)) = connection.poll_event() {
        let answer = match question {
            Question::Turn => Answer::Turn(Ok(())),
            Question::Work(work) => Answer::Work(work.run(random)),
            Question::PeerKey(_) => Answer::PeerKey(Ok(String::new())),
            Question::Descriptor(said) => {
                assert_eq!(said, descriptor());
                Answer::Descriptor(Ok(()))
            }
        };
        connection.handle_answer(answer, 0.0).unwrap();
    }
}

#[test]
fn a_connection_sends_and_takes_the_reference() {
    for run in Run::all() {
        let [request, .., close] = &run.records[..] else {
            panic!("records are missing");
        };
        let payload = unhex(&request.payload);
        let random = &mut Fixed::new(run.secret("e_i"));
        let inlet = Connection::initiator(run.inlet(), &payload, 0.0, random).unwrap();
        let outlet = Connection::responder(run.outlet(), descriptor().into(), 0.0);
        let none = || Fixed(VecDeque::new());
        let mut ends = [(inlet, none()), (outlet, Fixed::new(run.secret("e_r")))];
        let wires = exchange(&mut ends);
        let flight = [run.bytes("M1"), run.bytes("M3"), unhex(&request.wire)].concat();
        assert_eq!(wires[0], flight, "{}", run.name);
        assert!(wires[1].starts_with(&run.bytes("M2")), "{}", run.name);
        ends[0].0.sender().unwrap().close();
        assert_eq!(flush(&mut ends[0].0), unhex(&close.wire), "{}", run.name);
    }
}
