//! Requests of HTTP: the cuts do not matter, and what was read can be written and read again.

use lsl_relay::http::{Request, RequestParser, Status};

use super::split;

pub fn check(input: &[u8]) {
    let (length, bytes) = split(input);
    let whole = parse(bytes, bytes.len().max(1));
    assert_eq!(parse(bytes, length), whole, "depends on the cuts");
    if let Ok(Some(request)) = whole {
        let _ = request.is_for_address();
        let method = if request.wants_body { "GET" } else { "HEAD" };
        let query = request.query.iter().map(|query| format!("?{query}"));
        let target = [request.path.clone()].into_iter().chain(query);
        let target: String = target.collect();
        let written = format!(
            "{method} {target} HTTP/1.1\r\nHost: {}\r\n\r\n",
            request.host
        );
        assert_eq!(parse(written.as_bytes(), length), Ok(Some(request)));
    }
}

fn parse(bytes: &[u8], length: usize) -> Result<Option<Request>, Status> {
    let mut parser = RequestParser::default();
    for piece in bytes.chunks(length) {
        let parsed = parser.feed(piece)?;
        if parsed.is_some() {
            return Ok(parsed);
        }
    }
    Ok(None)
}
