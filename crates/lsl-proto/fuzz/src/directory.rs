//! Directory of a relay: its records, and the request for them. Input: how to cut, then the bytes.

use lsl_proto::wire::directory::{
    MAX_DOCUMENT_BYTES, Record, RecordError, RecordParser, WatchRequest, is_uid,
};

use super::{Controls, pieces};

pub fn check(input: &[u8]) {
    let mut controls = Controls { rest: input };
    let seed = controls.byte();
    let bytes = controls.rest;
    let whole = read(&[bytes]);
    assert_eq!(read(&pieces(seed, bytes)), whole, "depends on the cuts");
    // What was read and is written again means the same.
    let (written, _) = whole;
    assert_eq!(read(&[&written]), (written.clone(), None));
    if let Some(request) = WatchRequest::parse(bytes) {
        // A line end alone becomes a blank.
        let written = request.to_bytes();
        let again = WatchRequest::parse(&written).map(|request| request.to_bytes());
        assert_eq!(again, Some(written));
    }
}

/// Returns the records as they are written, and the mistake that ended them.
fn read(pieces: &[&[u8]]) -> (Vec<u8>, Option<RecordError>) {
    let mut parser = RecordParser::new();
    let mut written = Vec::new();
    for mut piece in pieces.iter().copied() {
        loop {
            match parser.next(&mut piece) {
                Ok(Some(record)) => {
                    check_record(record);
                    record.append_to(&mut written).expect("it was read");
                }
                Ok(None) => break,
                Err(error) => return (written, Some(error)),
            }
        }
        assert!(piece.is_empty());
    }
    (written, None)
}

fn check_record(record: Record<'_>) {
    match record {
        Record::Stream { uid, xml } => assert!(is_uid(uid) && xml.len() <= MAX_DOCUMENT_BYTES),
        Record::Gone { uid, .. } => assert!(is_uid(uid)),
        Record::Clock { uid, clock } => {
            assert!(is_uid(uid) && clock.is_sound());
        }
        Record::Known => {}
    }
}
