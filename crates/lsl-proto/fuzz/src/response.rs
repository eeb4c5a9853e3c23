//! Responses to feed requests. Input: how to cut, the format, then the bytes of a connection.

use lsl_proto::wire::response::{FeedError, FeedResponse, MAX_RESPONSE_BYTES, ResponseParser};
use lsl_proto::{ByteOrder, ChannelFormat};

use super::{Controls, pieces};

const UID: &[u8] = b"39d71c4e-a901-4450-9e30-ee6f79450e0c";

pub fn check(input: &[u8]) {
    let mut controls = Controls { rest: input };
    let seed = controls.byte();
    let format = controls.choose(ChannelFormat::STREAMABLE);
    let bytes = controls.rest;
    let whole = parse(format, &[bytes]);
    assert_eq!(
        parse(format, &pieces(seed, bytes)),
        whole,
        "depends on the cuts"
    );
    if let Ok((response, consumed)) = whole {
        assert!(consumed <= MAX_RESPONSE_BYTES.min(bytes.len()));
        let header = response.to_bytes(110, UID);
        let followed = [header.as_slice(), b"samples"].concat();
        assert_eq!(parse(format, &[&followed]), Ok((response, header.len())));
    }
}

/// The response and the length of its header, or why there is none if the connection ends here.
fn parse(format: ChannelFormat, pieces: &[&[u8]]) -> Result<(FeedResponse, usize), FeedError> {
    let mut parser = ResponseParser::new(110, UID, format, ByteOrder::Little);
    let mut before = 0;
    for piece in pieces {
        if let Some((response, consumed)) = parser.feed(piece)? {
            return Ok((response, before + consumed));
        }
        before += piece.len();
    }
    Err(parser.finish())
}
