//! Peers that mean harm: whatever they do, they cost bounded memory, and readers notice nothing.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::Ordering;

use lsl_core::Context;
use lsl_core::relay::{Port, PortOptions};
use lsl_core::secure::Policy;

use super::{Streams, WAITING, dial, feed_request, pass, port, read_to};
use crate::lab;
use crate::secure::people::Place;

/// Reads until the port ends the connection.
fn ending(mut stream: TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    // A reset is an end, too.
    if let Err(error) = stream.read_to_end(&mut bytes) {
        assert_ne!(error.kind(), std::io::ErrorKind::WouldBlock, "not closed");
    }
    bytes
}

#[test]
fn garbage_and_endless_lines_end_their_own_connections_alone() {
    let (context, streams) = (lab::context(), Streams::default());
    let outlet = streams.add(&context, "one", 0);
    let port = port(&context, &streams, 100);
    let mut reader = dial(&port);
    reader.write_all(&feed_request("uid-of-one", "")).unwrap();
    read_to(&mut reader, b"\r\n\r\n");
    reader.read_exact(&mut [0; 2 * 21]).unwrap();
    let long = vec![b'x'; 40_000];
    let line = |head: &str, length: usize| [head.as_bytes(), &long[..length], b"\r\n\r\n"].concat();
    for bytes in [
        long.clone(),
        line("", 10_000),
        line("LSL:watch/1\r\n", 10_000),
        line("LSL:watch/1 ", 10_000),
        line("LSL:relay/1\r\n", 39_000),
        line("LSL:timekeys/1 ", 10_000),
        b"\0\xff\r\n".to_vec(),
    ] {
        let mut stranger = dial(&port);
        let _ = stranger.write_all(&bytes);
        assert_eq!(ending(stranger), b"");
    }
    for length in [10_000, 30_000] {
        let mut stranger = dial(&port);
        stranger.write_all(&line("LSL:fullinfo ", length)).unwrap();
        assert_eq!(ending(stranger), b"LSL/110 404 Not found");
    }
    pass(&outlet, 1.0, 2.0);
    let mut frame = [0; 21];
    reader.read_exact(&mut frame).unwrap();
    assert_eq!(frame[..9], [&[2][..], &2.0_f64.to_ne_bytes()].concat());
}

#[test]
fn so_many_connections_are_served_and_no_more() {
    let (context, streams) = (lab::context(), Streams::default());
    let port = port(&context, &streams, 3);
    let watch = || {
        let mut stream = dial(&port);
        stream.write_all(b"LSL:watch/1\r\n\r\n").unwrap();
        stream
    };
    let mut served: Vec<_> = (0..3).map(|_| watch()).collect();
    for stream in &mut served {
        read_to(stream, b"\n");
    }
    let limit = b"LSL/110 503 Relay limit reached, try again";
    assert_eq!(ending(watch()), limit);
    let mut waits = dial(&port);
    waits.write_all(&feed_request("never", "")).unwrap();
    assert_eq!(ending(waits), limit);
    // Whoever leaves makes room.
    drop(served.pop());
    lab::until("a place", || {
        let mut stream = watch();
        let mut first = [0];
        stream.read_exact(&mut first).unwrap();
        first == *b" "
    });
}

#[test]
fn who_waits_for_a_stream_and_leaves_makes_room() {
    let (context, streams) = (lab::context(), Streams::default());
    let port = port(&context, &streams, 1);
    let mut waits = dial(&port);
    waits.write_all(&feed_request("never", "")).unwrap();
    let busy = || {
        let mut stream = dial(&port);
        stream.write_all(b"LSL:shortinfo\r\n\r\n").unwrap();
        ending(stream).starts_with(b"LSL/110 503")
    };
    lab::until("the place is taken", || WAITING.load(Ordering::Relaxed) > 0);
    assert!(busy());
    drop(waits);
    lab::until("the place is free", || !busy());
}

#[test]
fn silent_strangers_keep_nobody_out() {
    let (context, streams) = (lab::context(), Streams::default());
    let port = port(&context, &streams, 1);
    let silent: Vec<_> = (0..300).map(|_| dial(&port)).collect();
    let mut asks = dial(&port);
    asks.write_all(b"LSL:shortinfo\r\n\r\n").unwrap();
    assert_eq!(ending(asks), b"<info>");
    drop(silent);
}

#[test]
fn no_relay_listens_beyond_this_machine_without_a_key() {
    let everywhere = |insecure: bool| {
        let any = vec![([0, 0, 0, 0], 0).into()];
        let (listen, insecure) = if insecure {
            (Vec::new(), any)
        } else {
            (any, Vec::new())
        };
        PortOptions {
            listen,
            insecure,
            id: "0123456789abcdef".into(),
            name: "hub".into(),
            most_connections: 1,
        }
    };
    let refused = |context: &Context, insecure| {
        let opened = Port::open(context, &everywhere(insecure), Streams::default());
        opened.unwrap_err().to_string()
    };
    assert!(refused(&lab::context(), false).contains("no device key"));
    let place = Place::new();
    let hub = place.side("hub", Policy::Required, &[]);
    assert!(refused(&hub.context, true).contains("required"));
}
