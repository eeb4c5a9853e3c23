//! M2 at an inlet. Input: raw or not; then M2, or the edits of an honest M2's head and of the
//! plaintext that is sealed into it.

use lsl_secure::Cause;
use lsl_secure::handshake::Initiator;

use super::reference::Outlet;
use super::{Controls, Fixed, INLET, OUTLET, local};

pub fn check(input: &[u8]) {
    let mut controls = Controls { rest: input };
    let (initiator, flight) =
        Initiator::start(local(INLET), &mut Fixed(7)).expect("fixed randomness");
    if controls.byte().is_multiple_of(2) {
        let failed = initiator
            .receive_m2(controls.rest)
            .expect_err("no AEAD is forged");
        assert!(failed.last_words.is_empty(), "nobody has proved anything");
        return;
    }
    let (mut heads, mut texts) = ((vec![], vec![]), (vec![], vec![]));
    let controls = std::cell::RefCell::new(controls);
    let (_, m2) = Outlet::answer(
        OUTLET,
        &flight,
        |head| {
            heads.0.clone_from(head);
            controls.borrow_mut().edit(head);
            // The length field is made to fit.
            head.resize(head.len().max(2), 0);
            head[..2].fill(0);
            heads.1.clone_from(head);
        },
        |text| {
            texts.0.clone_from(text);
            controls.borrow_mut().edit(text);
            texts.1.clone_from(text);
        },
    );
    let honest = heads.0 == heads.1 && texts.0 == texts.1;
    match initiator.receive_m2(&m2) {
        Ok(verified) => {
            assert!(honest, "a change went unnoticed");
            assert_eq!(verified.peer(), local(OUTLET).key.public());
        }
        Err(failed) => {
            assert!(!honest, "{}", failed.error);
            let unsupported = failed.error.cause() == Cause::UnsupportedIdentity;
            assert_eq!(failed.last_words.is_empty(), !unsupported);
        }
    }
}
