//! Header lines by which inlets ask for replay and outlets grant it. Input: how to cut, what the
//! inlet asked, then the value of a header line.

use lsl_proto::wire::negotiate::{OutletSide, Writing, negotiate};
use lsl_proto::wire::request::{FeedParams, FeedRequest, Request, RequestError, RequestParser};
use lsl_proto::wire::response::{DataProtocol, FeedError, FeedResponse, ResponseParser};
use lsl_proto::wire::sequence::{
    Generation, Granted, Position, ReplayFrom, SEQUENCE_LIMIT, parse_sequence,
};
use lsl_proto::{ByteOrder, ChannelFormat};

use super::{Controls, pieces};

const UID: &[u8] = b"39d71c4e-a901-4450-9e30-ee6f79450e0c";

pub fn check(input: &[u8]) {
    let mut controls = Controls { rest: input };
    let seed = controls.byte();
    let next = u64::from(controls.byte());
    let value = controls.rest;
    check_request(seed, value);
    let generation = Generation::parse(UID).expect("a generation");
    let position = Position { generation, next };
    for asked in [ReplayFrom::Live, ReplayFrom::At(position, None)] {
        check_reply(seed, asked, value);
    }
}

fn check_request(seed: u8, value: &[u8]) {
    let head = b"LSL:streamfeed/110\r\nMax-Buffer-Length: 9\r\nLslx-Sequence: ";
    let bytes = [head, value, b"\r\n\r\n"].concat();
    let whole = request(&[&bytes]);
    assert_eq!(request(&pieces(seed, &bytes)), whole, "depends on the cuts");
    let direct = ReplayFrom::parse(value);
    if let Ok(params) = whole {
        assert!(direct.is_none() || params.replay_from == direct);
        let outlet = OutletSide {
            version: 110,
            uid: UID,
            format: ChannelFormat::Int16,
            byte_order: ByteOrder::Big,
            writing: Writing::Queued,
            retains: true,
        };
        let granted = negotiate(&outlet, 110, UID, &params).expect("a feed");
        assert!(granted.replay_from.is_none() || granted.feed.byte_order == outlet.byte_order);
    }
    if direct.is_some() {
        let own = FeedRequest {
            version: 110,
            uid: UID,
            byte_order: ByteOrder::Big,
            format: ChannelFormat::Int16,
            max_buffer_samples: 9,
            max_chunk_samples: 0,
            hostname: b"",
            source_id: b"",
            session_id: b"",
            replay_from: direct,
        };
        let parsed = request(&[&own.to_bytes()]).expect("own request");
        // Seconds above 9 digits have no fraction, so nothing is rounded.
        assert_eq!(parsed.replay_from, direct);
    }
}

fn request(pieces: &[&[u8]]) -> Result<FeedParams, RequestError> {
    let mut parser = RequestParser::new();
    for piece in pieces {
        if let Some(Request::StreamFeed { headers, .. }) = parser.feed(piece)? {
            return Ok(headers);
        }
    }
    panic!("the request is complete")
}

fn check_reply(seed: u8, asked: ReplayFrom, value: &[u8]) {
    let head = b"LSL/110 200 OK\r\nData-Protocol-Version: 110\r\nLslx-Sequence: ";
    let bytes = [head, value, b"\r\n\r\n"].concat();
    let whole = reply(asked, &[&bytes]);
    assert_eq!(
        reply(asked, &pieces(seed, &bytes)),
        whole,
        "depends on the cuts"
    );
    let _ = parse_sequence(value);
    let Ok(FeedResponse {
        granted: Some(granted),
        ..
    }) = whole
    else {
        return;
    };
    let Granted {
        generation,
        begin,
        live,
        end,
    } = granted;
    assert!(begin <= live && live < SEQUENCE_LIMIT);
    assert!(end.is_none_or(|end| (live..SEQUENCE_LIMIT).contains(&end)));
    if let ReplayFrom::At(position, _) = asked {
        let lost = granted.lost_since(&position);
        let same = position.generation == generation;
        assert_eq!(lost, same.then(|| begin - position.next));
    }
    let response = FeedResponse {
        byte_order: ByteOrder::Little,
        suppress_subnormals: false,
        data_protocol: DataProtocol::V110,
        granted: Some(granted),
    };
    assert_eq!(reply(asked, &[&response.to_bytes(110, UID)]), Ok(response));
}

fn reply(asked: ReplayFrom, pieces: &[&[u8]]) -> Result<FeedResponse, FeedError> {
    let parser = ResponseParser::new(110, UID, ChannelFormat::Int16, ByteOrder::Little);
    let mut parser = parser.with_replay_from(Some(asked));
    for piece in pieces {
        if let Some((response, _)) = parser.feed(piece)? {
            return Ok(response);
        }
    }
    Err(parser.finish())
}
