//! Hello of either side: the cuts do not matter, and what was read can be written and read again.

use lsl_relay::hello::{Hello, HelloError, HelloParser};

use super::split;

pub fn check(input: &[u8]) {
    let (length, bytes) = split(input);
    for parser in [HelloParser::of_request, HelloParser::of_reply] {
        let whole = parse(parser(), bytes, bytes.len().max(1));
        assert_eq!(parse(parser(), bytes, length), whole, "depends on the cuts");
        if let Some(Ok((hello, taken))) = whole {
            assert!(taken <= bytes.len());
            let written = hello.request();
            let again = parse(HelloParser::of_request(), &written, length);
            assert_eq!(again, Some(Ok((hello.clone(), written.len()))));
            let written = hello.reply();
            let again = parse(HelloParser::of_reply(), &written, length);
            assert_eq!(again, Some(Ok((hello, written.len()))));
        }
    }
}

/// The hello and the bytes that it takes, if it is complete.
fn parse(
    mut parser: HelloParser,
    bytes: &[u8],
    length: usize,
) -> Option<Result<(Hello, usize), HelloError>> {
    let mut before = 0;
    for piece in bytes.chunks(length) {
        match parser.feed(piece) {
            Ok(None) => before += piece.len(),
            Ok(Some((hello, taken))) => return Some(Ok((hello, before + taken))),
            Err(error) => return Some(Err(error)),
        }
    }
    None
}
