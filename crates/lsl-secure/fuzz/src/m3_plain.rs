//! What C3 holds, at an outlet. Input: the edits of an honest AUTH_I, which is then sealed properly.

use lsl_secure::Cause;
use lsl_secure::handshake::{Claim, Responder};

use super::reference::Inlet;
use super::{Controls, Fixed, INLET, OUTLET, local};

pub fn check(input: &[u8]) {
    let inlet = Inlet::new(INLET);
    let (wait, m2) = Responder::new(local(OUTLET))
        .receive_m1(inlet.m1(), &mut Fixed(8))
        .expect("an honest M1");
    let (mut before, mut after) = (vec![], vec![]);
    let (m3, _) = inlet.m3(&m2, |text| {
        before.clone_from(text);
        Controls { rest: input }.edit(text);
        after.clone_from(text);
    });
    match wait.receive_m3(&m3) {
        Ok(Claim::Verified(verified)) => {
            assert!(before == after, "a change went unnoticed");
            assert_eq!(verified.peer(), local(INLET).key.public());
        }
        Ok(Claim::Refused(cause)) => {
            assert!(matches!(after[..], [2, _]), "{cause:?} from {after:?}");
            assert_eq!(cause, Cause::from_code(after[1]));
        }
        Err(failed) => {
            assert!(before != after, "{}", failed.error);
            let unsupported = failed.error.cause() == Cause::UnsupportedIdentity;
            assert_eq!(failed.last_words.is_empty(), !unsupported);
        }
    }
}
