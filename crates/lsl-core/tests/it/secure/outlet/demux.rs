//! What a connection is, is decided by its first bytes and never again.

use std::io::Write;
use std::net::Shutdown;

use lsl_core::secure::Policy;
use lsl_core::secure::handshake::PREAMBLE;
use lsl_core::{Outlet, local_clock};

use super::reader::{Reader, dial, feed_request, hello, rest, say};
use crate::lab;
use crate::secure::people::{Place, info};

fn requests(outlet: &Outlet) -> Vec<(Vec<u8>, &'static [u8])> {
    vec![
        (b"LSL:shortinfo\r\n\r\n".to_vec(), b"<?xml"),
        (b"LSL:shortinfo\r\nname='other'\r\n".to_vec(), b""),
        (b"LSL:fullinfo\r\n".to_vec(), b"<?xml"),
        (feed_request(outlet, 0), b"LSL/110 200 OK\r\n"),
        (
            b"LSL:streamfeed/110 other\r\nA: b\r\n\r\n".to_vec(),
            b"LSL/110 404",
        ),
        // Archives begin so.
        (b"LSL:streamfeed\r\n0 0\r\n".to_vec(), b"\x7f"),
        (b"LSL:secrets\r\n".to_vec(), b""),
        (b"LSL:secure/2\r\n".to_vec(), b""),
        (b"\r\n".to_vec(), b""),
    ]
}

#[test]
fn a_second_preamble_changes_nothing() {
    let place = Place::new();
    let amp = place.side("amp", Policy::Migrate, &["rec"]);
    let outlet = lab::outlet(&amp.context, info("second"));
    // In plaintext, behind a request.
    let mut stream = dial(&outlet);
    say(
        &mut stream,
        &[b"LSL:fullinfo\r\n".as_slice(), &hello("rec").1].concat(),
    );
    assert_eq!(rest(&mut stream), outlet.info().to_xml());
    // In plaintext, inside one.
    let mut stream = dial(&outlet);
    let inside = [b"LSL:shortinfo\r\n".as_slice(), &hello("rec").1].concat();
    say(&mut stream, &inside);
    let _ = stream.shutdown(Shutdown::Write);
    assert_eq!(rest(&mut stream), b"");
    // Inside the session.
    let mut reader = Reader::open(&outlet, "rec", &hello("rec").1);
    assert_eq!(reader.rest(), b"");
    assert!(reader.closed, "an unknown method is answered with CLOSE");
}

#[test]
fn requests_inside_the_session_are_the_usual_ones() {
    let place = Place::new();
    let amp = place.side("amp", Policy::Required, &["rec"]);
    let outlet = lab::outlet(&amp.context, info("inside"));
    for (request, answer) in requests(&outlet) {
        let mut reader = Reader::open(&outlet, "rec", &request);
        let bytes = reader.rest();
        let shown = String::from_utf8_lossy(&request);
        assert!(bytes.starts_with(answer), "{shown:?}");
        assert_eq!(bytes.is_empty(), answer.is_empty(), "{shown:?}");
        assert!(reader.closed, "{shown:?}");
    }
    let mut reader = Reader::open(&outlet, "rec", b"LSL:fullinfo\r\n");
    assert_eq!(reader.rest(), outlet.info().to_xml());
    // A request in many records.
    let mut reader = Reader::open(&outlet, "rec", b"LSL:");
    for part in [b"full".as_slice(), b"info", b"\r", b"\n"] {
        reader.seal(|session, out| session.sealer.seal_data(part, local_clock(), out));
    }
    assert_eq!(reader.rest(), outlet.info().to_xml());
}

#[test]
fn one_byte_and_silence_is_ended() {
    let place = Place::new();
    let amp = place.side("amp", Policy::Required, &["rec"]);
    let outlet = lab::outlet(&amp.context, info("silence"));
    let mut silent: Vec<_> = [&b""[..], b"L", &PREAMBLE[..13], &PREAMBLE[..]]
        .into_iter()
        .map(|bytes| {
            let mut stream = dial(&outlet);
            stream.write_all(bytes).unwrap();
            stream
        })
        .collect();
    for stream in &mut silent {
        assert_eq!(rest(stream), b"");
    }
    lab::until("all are counted", || outlet.stats().refused == 4);
    Reader::feed(&outlet, "rec", 10);
}
