//! Whatever an outlet says in place of M2. Input: how to cut, then the bytes, after which it closes.

use lsl_secure::connection::{Answer, Event, Question};
use lsl_secure::{Cause, Connection, Error, Result};

use super::{Controls, Fixed, INLET, local, pieces};

pub fn check(input: &[u8]) {
    let mut controls = Controls { rest: input };
    let seed = controls.byte();
    let bytes = controls.rest;
    let started = Connection::initiator(local(INLET), b"LSL:fullinfo\r\n", 0.0, &mut Fixed(7));
    let mut inlet = started.expect("fixed randomness");
    let mut taken = 0;
    let mut ended = Ok(());
    for mut piece in pieces(seed, bytes) {
        while ended.is_ok() && !piece.is_empty() && inlet.max_read() > 0 {
            let (head, rest) = piece.split_at(piece.len().min(inlet.max_read()));
            piece = rest;
            taken += head.len();
            ended = give(&mut inlet, head);
        }
    }
    let error = ended
        .and_then(|()| give(&mut inlet, &[]))
        .expect_err("no AEAD is forged");
    match (&error, bytes) {
        (Error::Refused { status, text }, [b'L', b'S', ..]) => {
            assert!(matches!(status, 0 | 403 | 404 | 501 | 503 | 505));
            assert!(text.len() <= 256);
            assert!(!text.chars().any(char::is_control), "{text:?}");
        }
        (Error::Refused { .. }, _) | (_, [b'L', b'S', ..]) => panic!("{error}"),
        (_, []) => assert_eq!(error.cause(), Cause::PeerNotSecure),
        _ => assert_ne!(error.cause(), Cause::PeerNotSecure),
    }
    assert!(taken <= bytes.len().min(2 + 2048));
}

fn give(inlet: &mut Connection, bytes: &[u8]) -> Result<()> {
    inlet.handle_input(&mut bytes.to_vec(), 0.0, |_| panic!("no session"))?;
    while let Some(event) = inlet.poll_event() {
        let Event::Question(Question::Work(work)) = event else {
            panic!("nobody has proved anything: {event:?}");
        };
        inlet.handle_answer(Answer::Work(work.run(&mut Fixed(8))), 0.0)?;
    }
    Ok(())
}
