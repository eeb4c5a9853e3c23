//! Whatever reaches a responder, and whatever answers a resolver. Input: one datagram.

use lsl_proto::wire::discovery::{
    MAX_QUERY_BYTES, MAX_QUERY_ID_BYTES, QueryDatagram, ReplyDatagram, Request, parse_datagram,
    query_id,
};

pub fn check(input: &[u8]) {
    let parsed = parse_datagram(input);
    if let Ok(Request::Discovery(query)) = parsed {
        assert!(query.query.len() <= MAX_QUERY_BYTES);
        assert!(query.id.len() <= MAX_QUERY_ID_BYTES);
        assert_ne!(query.return_port, 0);
        let bytes = query.to_bytes();
        let again = QueryDatagram::parse(&bytes).expect("own query");
        // A CR inside a query cannot be sent; it becomes a blank.
        let sendable: Vec<u8> = query
            .query
            .iter()
            .map(|&byte| if byte == b'\r' { b' ' } else { byte })
            .collect();
        assert_eq!(again.query, sendable);
        assert_eq!((again.return_port, again.id), (query.return_port, query.id));
    }
    // Both ways to the same parser agree.
    if let Ok(query) = QueryDatagram::parse(input) {
        assert_eq!(parsed, Ok(Request::Discovery(query)));
    }
    if let Ok(reply) = ReplyDatagram::parse(input) {
        assert!(!reply.id.contains(&b'\n'));
        let bytes = reply.to_bytes();
        assert_eq!(ReplyDatagram::parse(&bytes), Ok(reply));
    }
    // Hashing has no edge at a multiple of its word.
    let _ = query_id(input);
}
