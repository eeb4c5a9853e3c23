//! Requests on the data port. Input: how to cut, then the bytes of a connection.

use lsl_proto::wire::discovery::MAX_QUERY_BYTES;
use lsl_proto::wire::negotiate::{OutletSide, Writing, negotiate, negotiate_100};
use lsl_proto::wire::request::{FeedRequest, PortRequest, Request, RequestError, RequestParser};
use lsl_proto::{ByteOrder, ChannelFormat};

use super::{Controls, pieces};

pub fn check(input: &[u8]) {
    let mut controls = Controls { rest: input };
    let seed = controls.byte();
    let bytes = controls.rest;
    let whole = parse(&[bytes]);
    assert_eq!(parse(&pieces(seed, bytes)), whole, "depends on the cuts");
    let to_port = parse_for_port(&[bytes]);
    let cut = parse_for_port(&pieces(seed, bytes));
    assert_eq!(cut, to_port, "depends on the cuts");
    match &whole {
        // Only what means nothing to an outlet, or means one stream, may mean something else.
        Ok(Some(Request::Unknown | Request::FullInfo)) => {}
        Ok(Some(Request::Port(request))) => panic!("an outlet is no port: {request:?}"),
        _ => assert_eq!(
            to_port.as_ref().map(|it| it.as_ref().map(|it| &it.0)),
            whole.as_ref().map(Option::as_ref)
        ),
    }
    if let Ok(Some((Request::Port(request), _))) = to_port {
        match request {
            PortRequest::Watch { query, .. } => assert!(query.len() <= MAX_QUERY_BYTES),
            PortRequest::FullInfo { uid } | PortRequest::TimeKeys { uid } => {
                assert!(!uid.is_empty() && !uid.iter().any(u8::is_ascii_whitespace));
            }
            PortRequest::Link { headers } => assert!(headers.ends_with(b"\r\n\r\n")),
            PortRequest::Status => {}
        }
    }
    match whole {
        Ok(Some(Request::ShortInfo { query })) => assert!(query.len() <= MAX_QUERY_BYTES),
        Ok(Some(Request::StreamFeed {
            version,
            uid,
            headers,
        })) => {
            assert!(!uid.iter().any(u8::is_ascii_whitespace));
            answer(|outlet| {
                if let Ok(granted) = negotiate(&outlet, version, &uid, &headers) {
                    assert!(granted.max_buffer_samples != Some(0));
                    let _ = granted.preface_bytes(&outlet);
                }
            });
        }
        Ok(Some(Request::StreamFeed100 {
            max_buffer,
            max_chunk,
        })) => answer(|outlet| {
            let granted = negotiate_100(&outlet, max_buffer, max_chunk);
            assert!(granted.is_ok_and(|granted| granted.max_buffer_samples != Some(0)));
        }),
        _ => {}
    }
    round_trip(bytes);
}

fn parse(pieces: &[&[u8]]) -> Result<Option<Request>, RequestError> {
    let mut parser = RequestParser::new();
    for piece in pieces {
        if let Some(request) = parser.feed(piece)? {
            return Ok(Some(request));
        }
    }
    Ok(None)
}

/// Parses a request to the port of a relay, with what comes after one that goes on.
fn parse_for_port(pieces: &[&[u8]]) -> Result<Option<(Request, Vec<u8>)>, RequestError> {
    let mut parser = RequestParser::for_port();
    let mut pieces = pieces.iter();
    while let Some(piece) = pieces.next() {
        if let Some(request) = parser.feed(piece)? {
            let mut rest = parser.take_rest();
            if matches!(request, Request::Port(_)) {
                pieces.for_each(|piece| rest.extend_from_slice(piece));
            }
            return Ok(Some((request, rest)));
        }
    }
    Ok(None)
}

fn answer(decide: impl Fn(OutletSide<'_>)) {
    for format in ChannelFormat::STREAMABLE {
        decide(OutletSide {
            version: 110,
            uid: b"39d71c4e-a901-4450-9e30-ee6f79450e0c",
            format,
            byte_order: ByteOrder::Little,
            writing: Writing::Queued,
            retains: false,
        });
    }
}

/// What our inlets write is read as it was meant, whatever the names of the stream.
fn round_trip(text: &[u8]) {
    let (hostname, rest) = text.split_at(text.len().min(40));
    let (source_id, session_id) = rest.split_at(rest.len().min(40));
    let own = FeedRequest {
        version: 110,
        uid: b"39d71c4e-a901-4450-9e30-ee6f79450e0c",
        byte_order: ByteOrder::Big,
        format: ChannelFormat::Int16,
        max_buffer_samples: 36_000,
        max_chunk_samples: 7,
        hostname,
        source_id,
        session_id: &session_id[..session_id.len().min(40)],
        replay_from: None,
    };
    let parsed = parse(&[&own.to_bytes()]).expect("own request");
    let Some(Request::StreamFeed {
        version,
        uid,
        headers,
    }) = parsed
    else {
        panic!("own request became {parsed:?}");
    };
    assert_eq!((version, uid.as_slice()), (own.version, own.uid));
    assert_eq!(headers.native_byte_order, own.byte_order.code());
    assert_eq!(headers.value_size, Some(2));
    assert_eq!(headers.max_buffer_length, 36_000);
    assert_eq!(headers.max_chunk_length, 7);
    assert!(!headers.supports_subnormals);
}
