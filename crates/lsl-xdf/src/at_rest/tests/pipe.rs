use std::cell::RefCell;

use super::*;
use crate::at_rest::payload::SEALED_LEN;
use crate::at_rest::{Cancel, Work, lock_stream, unlock_stream};

#[test]
fn threads_change_nothing() {
    let (recipients, identities) = pair();
    let mut lengths = lengths();
    lengths.extend([16 * CHUNK_LEN, 40 * CHUNK_LEN + 1, 41 * CHUNK_LEN - 1]);
    for len in lengths {
        let plain = bytes(len);
        for threads in [0, 1, 2, 3, 100] {
            let work = Work {
                threads,
                ..Work::quiet()
            };
            let mut file = Vec::new();
            let passed = lock_stream(&plain[..], &mut file, &recipients, &work).unwrap();
            assert_eq!((passed.plain_bytes, passed.end), (len as u64, End::Whole));
            assert_eq!(
                decrypt(&file, &identities).unwrap(),
                (plain.clone(), End::Whole)
            );

            let file = encrypt(&plain, &recipients);
            let mut read = Vec::new();
            let passed =
                unlock_stream(&file[..], &mut read, &identities, Ending::Strict, &work).unwrap();
            assert_eq!((passed.plain_bytes, passed.end), (len as u64, End::Whole));
            assert!(read == plain, "{len} bytes, {threads} threads");
        }
    }
}

#[test]
fn trickling_and_failing_ends_are_handled() {
    let (recipients, identities) = pair();
    let plain = bytes(9 * CHUNK_LEN + 5);
    for threads in [0, 2] {
        let work = Work {
            threads,
            ..Work::quiet()
        };
        let mut slow = Fussy {
            room: usize::MAX,
            ..Fussy::default()
        };
        lock_stream(Trickle(&plain, false), &mut slow, &recipients, &work).unwrap();
        let mut read = Vec::new();
        let input = Trickle(&slow.taken, false);
        unlock_stream(input, &mut read, &identities, Ending::Strict, &work).unwrap();
        assert!(read == plain);

        // The output fills up: its content is a cut off file.
        let mut full = Fussy {
            room: 3 * SEALED_LEN,
            ..Fussy::default()
        };
        let error = lock_stream(&plain[..], &mut full, &recipients, &work).unwrap_err();
        assert!(matches!(&error, Error::Io(error) if error.kind() == io::ErrorKind::StorageFull));
        let (read, end) = decrypt(&full.taken, &identities).unwrap();
        assert_eq!((read.len(), end), (2 * CHUNK_LEN, End::CutOff));

        // The input breaks: no end is written, so that the file does not seem whole.
        let broken = (&plain[..]).chain(Broken);
        let mut file = Vec::new();
        let error = lock_stream(broken, &mut file, &recipients, &work).unwrap_err();
        assert!(
            matches!(&error, Error::Io(error) if error.kind() == io::ErrorKind::ConnectionReset)
        );
        assert_eq!(decrypt(&file, &identities).unwrap().1, End::CutOff);
    }
}

#[test]
fn one_stream_feeds_the_next() {
    // As in `rotate`: errors of the first keep their kind.
    let (recipients, identities) = pair();
    let mut file = encrypt(&bytes(6 * CHUNK_LEN), &recipients);
    file.truncate(file.len() - 1);
    let reader = Decrypting::new(&file[..], &identities, Ending::Strict).unwrap();
    let error = lock_stream(reader, io::sink(), &recipients, &Work::quiet()).unwrap_err();
    assert!(matches!(error, Error::CutOff { plain_bytes } if plain_bytes == 5 * CHUNK_LEN as u64));
}

#[test]
fn progress_and_the_request_to_stop() {
    let (recipients, _) = pair();
    let plain = bytes(20 * CHUNK_LEN + 3);
    let seen = RefCell::new(Vec::new());
    let cancel = Cancel::default();
    let note = |done| seen.borrow_mut().push(done);
    let work = Work {
        threads: 2,
        cancel: Some(&cancel),
        progress: Some(&note),
    };
    lock_stream(&plain[..], io::sink(), &recipients, &work).unwrap();
    assert!(seen.borrow().is_sorted());
    assert_eq!(seen.borrow().last(), Some(&(plain.len() as u64)));

    // Asked for while it runs.
    let stop = |done| {
        if done > 6 * CHUNK_LEN as u64 {
            cancel.cancel();
        }
    };
    let work = Work {
        progress: Some(&stop),
        ..work
    };
    let mut file = Vec::new();
    let error = lock_stream(&plain[..], &mut file, &recipients, &work).unwrap_err();
    assert!(matches!(error, Error::Cancelled));
    assert!(file.len() < 10 * SEALED_LEN);
}

struct Broken;

impl Read for Broken {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        Err(io::ErrorKind::ConnectionReset.into())
    }
}
