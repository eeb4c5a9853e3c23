//! HTTP/1.1 as much as pages and numbers for people need it: one GET or HEAD per connection, which ends with the
//! answer. Knows nothing of relays. Spec: relay §13, RFC 9112.

use std::net::IpAddr;

/// Most bytes of a request line and headers.
pub const MAX_HEAD_BYTES: usize = 8192;

/// What a client asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Whether the body of the answer is wanted: GET, not HEAD.
    pub wants_body: bool,
    /// Path as sent, from its `/`, without the query.
    pub path: String,
    /// Text behind the `?`, as sent.
    pub query: Option<String>,
    /// Name under which the client knows this server; empty if a client of HTTP/1.0 does not say.
    pub host: String,
}

impl Request {
    /// Whether the client calls this server by an address or `localhost`. What answers on this machine alone asks
    /// for it: a web page elsewhere can have its own name lead here, and a browser then lets it read the answer.
    pub fn is_for_address(&self) -> bool {
        if self.host.is_empty() {
            return true;
        }
        let (name, port) = match self.host.rsplit_once(':') {
            // The colons of an address of IPv6 stand in brackets.
            Some((name, port)) if !port.ends_with(']') => (name, port),
            _ => (&*self.host, ""),
        };
        let bare = name.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
        port.bytes().all(|byte| byte.is_ascii_digit())
            && (name.eq_ignore_ascii_case("localhost")
                || bare.unwrap_or(name).parse::<IpAddr>().is_ok())
    }
}

/// Status of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "names of RFC 9110")]
pub enum Status {
    Ok,
    BadRequest,
    Forbidden,
    NotFound,
    MethodNotAllowed,
    HeaderFieldsTooLarge,
    VersionNotSupported,
}

impl Status {
    fn line(self) -> &'static str {
        match self {
            Self::Ok => "200 OK",
            Self::BadRequest => "400 Bad Request",
            Self::Forbidden => "403 Forbidden",
            Self::NotFound => "404 Not Found",
            Self::MethodNotAllowed => "405 Method Not Allowed",
            Self::HeaderFieldsTooLarge => "431 Request Header Fields Too Large",
            Self::VersionNotSupported => "505 HTTP Version Not Supported",
        }
    }
}

/// Answer, after which the connection ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response {
    /// Status.
    pub status: Status,
    /// Media type of the body.
    pub media_type: &'static str,
    /// Body.
    pub body: Vec<u8>,
}

impl Response {
    /// Answers with a body of this media type.
    pub fn ok(media_type: &'static str, body: impl Into<Vec<u8>>) -> Self {
        Self {
            status: Status::Ok,
            media_type,
            body: body.into(),
        }
    }

    /// Answers with the words of the status alone.
    pub fn refusal(status: Status) -> Self {
        Self {
            status,
            media_type: TEXT,
            body: format!("{}\n", status.line()).into(),
        }
    }

    /// Writes the answer. Without its body it still says how long that is.
    pub fn to_bytes(&self, with_body: bool) -> Vec<u8> {
        let allow = match self.status {
            Status::MethodNotAllowed => "Allow: GET, HEAD\r\n",
            _ => "",
        };
        let head = format!(
            "HTTP/1.1 {}\r\nContent-Type: {}\r\nContent-Length: {}\r\n{allow}Cache-Control: no-store\r\n\
             X-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n",
            self.status.line(),
            self.media_type,
            self.body.len(),
        );
        let mut bytes = head.into_bytes();
        if with_body {
            bytes.extend_from_slice(&self.body);
        }
        bytes
    }
}

/// Reads the request of a connection.
#[derive(Debug, Default)]
pub struct RequestParser {
    head: Vec<u8>,
}

impl RequestParser {
    /// Takes bytes in the order they came. Returns `None` if more are needed. The parser is done after a request or
    /// an error; a body, or another request, is not read.
    ///
    /// # Errors
    /// Status of the answer to what is no such request.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<Option<Request>, Status> {
        // The end may lie across the cut.
        let from = self.head.len().saturating_sub(2);
        let room = MAX_HEAD_BYTES - self.head.len();
        self.head
            .extend_from_slice(bytes.get(..room).unwrap_or(bytes));
        match end_of_head(&self.head, from) {
            Some(end) => parse(self.head.get(..end).unwrap_or_default()).map(Some),
            None if self.head.len() < MAX_HEAD_BYTES => Ok(None),
            None => Err(Status::HeaderFieldsTooLarge),
        }
    }
}

/// Returns where the last line feed before an empty line stands, looking from here.
fn end_of_head(head: &[u8], from: usize) -> Option<usize> {
    let tail = head.get(from..).unwrap_or_default();
    (0..tail.len())
        .find(|&at| {
            let rest = tail.get(at..).unwrap_or_default();
            rest.starts_with(b"\n\n") || rest.starts_with(b"\n\r\n")
        })
        .map(|at| from + at)
}

fn parse(head: &[u8]) -> Result<Request, Status> {
    let head = std::str::from_utf8(head).map_err(|_| Status::BadRequest)?;
    let mut lines = head
        .split('\n')
        .map(|it| it.strip_suffix('\r').unwrap_or(it));
    let mut words = lines.next().unwrap_or_default().split(' ');
    let (Some(method), Some(target), Some(version), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return Err(Status::BadRequest);
    };
    let is_visible = target.bytes().all(|byte| byte.is_ascii_graphic());
    if !is_token(method) || !target.starts_with('/') || !is_visible {
        return Err(Status::BadRequest);
    }
    let needs_host = match version {
        "HTTP/1.1" => true,
        "HTTP/1.0" => false,
        other if other.starts_with("HTTP/") => return Err(Status::VersionNotSupported),
        _ => return Err(Status::BadRequest),
    };
    let mut host = None;
    for line in lines {
        let (name, value) = line.split_once(':').ok_or(Status::BadRequest)?;
        let value = value.trim_matches([' ', '\t']);
        if !is_token(name) || value.bytes().any(|it| it.is_ascii_control() && it != b'\t') {
            return Err(Status::BadRequest);
        }
        let is_host = name.eq_ignore_ascii_case("host");
        if is_host && host.replace(value).is_some() {
            return Err(Status::BadRequest);
        }
    }
    if needs_host && host.is_none() {
        return Err(Status::BadRequest);
    }
    let wants_body = match method {
        "GET" => true,
        "HEAD" => false,
        _ => return Err(Status::MethodNotAllowed),
    };
    let (path, query) = match target.split_once('?') {
        Some((path, query)) => (path, Some(query.to_owned())),
        None => (target, None),
    };
    Ok(Request {
        wants_body,
        path: path.to_owned(),
        query,
        host: host.unwrap_or_default().to_owned(),
    })
}

/// Whether this can be a method, or the name of a header.
fn is_token(text: &str) -> bool {
    let is_mark = |byte| b"!#$%&'*+-.^_`|~".contains(&byte);
    !text.is_empty()
        && text
            .bytes()
            .all(|it| it.is_ascii_alphanumeric() || is_mark(it))
}

/// Media type of plain text.
pub const TEXT: &str = "text/plain; charset=utf-8";

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &[u8], length: usize) -> Result<Option<Request>, Status> {
        let mut parser = RequestParser::default();
        for piece in text.chunks(length) {
            match parser.feed(piece) {
                Ok(None) => {}
                done => return done,
            }
        }
        Ok(None)
    }

    #[test]
    fn a_request_is_the_same_however_it_is_cut() {
        let text =
            b"GET /a/b?c=%20&d HTTP/1.1\r\nhOST:\t localhost:9570 \r\nAccept: */*\r\n\r\nrest";
        let expected = Request {
            wants_body: true,
            path: "/a/b".into(),
            query: Some("c=%20&d".into()),
            host: "localhost:9570".into(),
        };
        for length in 1..=text.len() {
            assert_eq!(read(text, length), Ok(Some(expected.clone())), "{length}");
        }
        for end in 0..text.len() - 4 {
            assert_eq!(read(&text[..end], 7), Ok(None), "{end}");
        }
        // As people type it.
        let typed = read(b"HEAD / HTTP/1.0\n\n", 3).unwrap().unwrap();
        assert_eq!(
            (typed.wants_body, &*typed.path, &*typed.host),
            (false, "/", "")
        );
    }

    #[test]
    fn what_is_no_such_request_has_a_status() {
        let check = |text: &str, status| {
            for length in [1, 5, text.len()] {
                assert_eq!(read(text.as_bytes(), length), Err(status), "{text:?}");
            }
        };
        let bad = Status::BadRequest;
        check("\r\n\r\n", bad);
        check("GET /\r\n\r\n", bad);
        check("GET / HTTP/1.1 x\r\nHost: a\r\n\r\n", bad);
        check("GET  / HTTP/1.1\r\nHost: a\r\n\r\n", bad);
        check("G(T / HTTP/1.1\r\nHost: a\r\n\r\n", bad);
        check("GET http://a/ HTTP/1.1\r\nHost: a\r\n\r\n", bad);
        check("GET /\u{e9} HTTP/1.1\r\nHost: a\r\n\r\n", bad);
        check("GET / RTSP/1.0\r\nHost: a\r\n\r\n", bad);
        check("GET / HTTP/1.1\r\n\r\n", bad);
        check("GET / HTTP/1.1\r\nHost: a\r\nhost: b\r\n\r\n", bad);
        check("GET / HTTP/1.1\r\nHost: a\r\n folded\r\n\r\n", bad);
        check("GET / HTTP/1.1\r\nHost : a\r\n\r\n", bad);
        check("GET / HTTP/1.1\r\nHost: a\r\nX: \0\r\n\r\n", bad);
        check("GET / HTTP/1.1\rHost: a\n\n", bad);
        check("PRI * HTTP/2.0\r\n\r\n", bad);
        check("GET / HTTP/3\r\n\r\n", Status::VersionNotSupported);
        check(
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc",
            Status::MethodNotAllowed,
        );
        assert_eq!(read(b"GET /\xff HTTP/1.0\r\n\r\n", 4), Err(bad));
        let endless = [&b"GET / HTTP/1.1\r\nX: "[..], &[b'a'; 2 * MAX_HEAD_BYTES]].concat();
        for length in [1, 1000, endless.len()] {
            let (mut parser, mut taken) = (RequestParser::default(), 0);
            let refused = endless.chunks(length).find_map(|piece| {
                taken += piece.len();
                parser.feed(piece).err()
            });
            assert_eq!(refused, Some(Status::HeaderFieldsTooLarge));
            assert!(taken < MAX_HEAD_BYTES + length && parser.head.len() == MAX_HEAD_BYTES);
        }
    }

    #[test]
    fn addresses_are_told_from_names_of_others() {
        let is_for_address = |host: &str| {
            let text = format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n");
            let request = read(text.as_bytes(), 99).unwrap().unwrap();
            request.is_for_address()
        };
        for host in [
            "127.0.0.1",
            "127.0.0.1:9570",
            "[::1]:9570",
            "[::1]",
            "LocalHost:1",
            "",
        ] {
            assert!(is_for_address(host), "{host}");
        }
        for host in [
            "evil.example:9570",
            "localhost.evil.example",
            "127.0.0.1.x",
            "a:b",
            ":1",
        ] {
            assert!(!is_for_address(host), "{host}");
        }
    }

    #[test]
    fn answers_say_how_long_they_are_and_that_they_are_the_last() {
        let text = |response: &Response, with_body| {
            String::from_utf8(response.to_bytes(with_body)).unwrap()
        };
        let page = Response::ok(TEXT, "hello\n");
        let (whole, head) = (text(&page, true), text(&page, false));
        assert_eq!(whole, format!("{head}hello\n"));
        assert!(
            whole.starts_with("HTTP/1.1 200 OK\r\n") && head.ends_with("\r\n\r\n"),
            "{head}"
        );
        for line in ["Content-Length: 6", "Connection: close"] {
            assert!(head.contains(&format!("\r\n{line}\r\n")), "{head}");
        }
        let refused = text(&Response::refusal(Status::MethodNotAllowed), true);
        assert!(refused.contains("\r\nAllow: GET, HEAD\r\n"), "{refused}");
        assert!(
            refused.ends_with("\r\n\r\n405 Method Not Allowed\n"),
            "{refused}"
        );
    }
}
