//! Replies of a Redis server: the cuts do not matter, and what the packed layout makes of them has a length that fits.

use lsl_relay::engine::packed::batches;
use lsl_relay::engine::resp::{Malformed, Replies, Reply};

use super::split;

pub fn check(input: &[u8]) {
    let (length, bytes) = split(input);
    let whole = parse(bytes, bytes.len().max(1));
    assert_eq!(parse(bytes, length), whole, "depends on the cuts");
    let (replies, _) = whole;
    for from in [0, 1000] {
        for batch in batches(&replies, from).unwrap_or_default() {
            assert!(batch.count > 0 && batch.end() > from);
        }
    }
}

fn parse(bytes: &[u8], length: usize) -> (Vec<Reply>, Option<Malformed>) {
    let (mut replies, mut found) = (Replies::default(), Vec::new());
    for piece in bytes.chunks(length) {
        replies.feed(piece);
        loop {
            match replies.next_reply() {
                Ok(Some(reply)) => found.push(reply),
                Ok(None) => break,
                Err(error) => return (found, Some(error)),
            }
        }
    }
    (found, None)
}
