//! M1 at an outlet. Input: M1 with its length field.

use lsl_secure::Cause;
use lsl_secure::handshake::{MAX_M1_LEN, Responder};

use super::{Fixed, OUTLET, local};

pub fn check(input: &[u8]) {
    match Responder::new(local(OUTLET)).receive_m1(input, &mut Fixed(8)) {
        Ok((wait, m2)) => {
            // Filled exactly, for an inlet that knows version 1 and ChaCha20.
            let len = usize::from(u16::from_be_bytes([input[0], input[1]]));
            assert_eq!(len + 2, input.len());
            assert!(len <= MAX_M1_LEN);
            assert_eq!((input[2], input[5]), (1, 1));
            assert!((input[3]..=input[4]).contains(&1));
            assert_eq!(m2.len(), 188);
            assert!(wait.receive_m3(input).is_err());
        }
        Err(error) => assert!(
            matches!(
                error.cause(),
                Cause::Malformed | Cause::Version | Cause::NoCommonSuite | Cause::BadKeyShare
            ),
            "{error}"
        ),
    }
}
