//! What a peer says to a doctor: lines and datagrams. The first byte says how long the pieces are.

use lsl_doctor::pair::{Account, Counts, Event, Hello, Pair, Probe, Side};

/// Whatever is said, the answer is short, and a datagram is read as it was written.
pub fn check(input: &[u8]) {
    if let Some(probe) = Probe::parse(input) {
        assert_eq!(Probe::parse(&probe.to_bytes()), Some(probe));
    }
    let (piece, rest) = input.split_first().unwrap_or((&1, input));
    let hello = Hello {
        v: 1,
        ..Hello::default()
    };
    for side in [Side::Dials, Side::Accepts] {
        let mut pair = Pair::new(side, hello.clone(), 0.0);
        let mut said = 0;
        for bytes in rest.chunks(usize::from(*piece).max(1)) {
            let is_going_on = pair.handle_input(bytes, 0.0).is_ok();
            while let Some(event) = pair.poll_event() {
                match event {
                    Event::Hello(_) => drop(pair.plan(Vec::new())),
                    Event::Begin(_) => pair.counted(Counts::default()),
                    Event::Counts(_) => pair.report(Account::default()),
                    _ => {}
                }
            }
            said += pair.take_output().len();
            if !is_going_on {
                break;
            }
        }
        assert!(said < 4096, "{said} bytes said");
    }
}
