//! Hostile inlets and strangers against our outlet.

use lsl_core::Outlet;

use super::peer::{Peer, Stranger};
use super::{assert_delivers, assert_serves, info};
use crate::lab;

/// How a peer goes on after its bytes.
#[derive(Debug, Clone, Copy)]
enum Then {
    /// Waits for the outlet to end it.
    Wait,
    /// Sends its own end first.
    HalfClose,
}

/// Sends `request` and checks that the outlet ends the connection with a reply that begins so, and
/// counts it.
fn refuses(outlet: &Outlet, request: &[u8], then: Then, reply: &str) {
    let shown = String::from_utf8_lossy(&request[..request.len().min(60)]).into_owned();
    let before = outlet.stats().refused;
    let mut peer = Peer::connect(outlet);
    peer.send(request);
    if let Then::HalfClose = then {
        peer.half_close();
    }
    let ending = peer.ending();
    if reply.is_empty() {
        assert_eq!(ending.bytes, b"", "{shown:?}");
    } else {
        assert!(ending.bytes.starts_with(reply.as_bytes()), "{shown:?}");
    }
    lab::until("the refusal is counted", || {
        outlet.stats().refused == before + 1
    });
}

#[test]
fn refuses_what_is_no_request() {
    let context = lab::context();
    let outlet = lab::outlet(&context, info("requests"));
    let check = |request: &[u8], then, reply| refuses(&outlet, request, then, reply);
    let garbage: Vec<u8> = (0..=255).cycle().take(100_000).collect();
    let feed = |version: &str, uid: &str, headers: &str| {
        format!("LSL:streamfeed/{version} {uid}\r\n{headers}\r\n\r\n").into_bytes()
    };

    check(b"", Then::HalfClose, "");
    check(b"L", Then::HalfClose, "");
    check(b"\r\n", Then::Wait, "");
    check(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", Then::Wait, "");
    check(b"lsl:fullinfo\r\n", Then::Wait, "");
    check(&garbage, Then::Wait, "");
    check(&vec![b'A'; 1 << 20], Then::Wait, "");
    check(&vec![0; 1 << 20], Then::Wait, "");
    // Cut anywhere.
    check(b"LSL:shortinfo\r\n", Then::HalfClose, "");
    check(b"LSL:streamfeed\r\n1000", Then::HalfClose, "");
    check(b"LSL:streamfeed/110\r\n", Then::HalfClose, "");
    check(
        b"LSL:streamfeed/110\r\nMax-Buffer-Length: 5\r\n",
        Then::HalfClose,
        "",
    );
    // Versions and identities.
    check(&feed("", "", ""), Then::Wait, "");
    check(&feed("x", "", ""), Then::Wait, "");
    check(&feed("-110", "", ""), Then::Wait, "");
    check(&feed("99999999999999999999", "", ""), Then::Wait, "");
    check(&feed("200", "", "A: b"), Then::Wait, "LSL/110 505");
    check(&feed("2147483647", "", "A: b"), Then::Wait, "LSL/110 505");
    check(
        &feed("110", "somebody-else", "A: b"),
        Then::Wait,
        "LSL/110 404",
    );
    // Headers that must be numbers.
    for header in [
        "Max-Buffer-Length: many",
        "Max-Buffer-Length: 99999999999999999999",
        "Max-Chunk-Length:",
        "Native-Byte-Order: little",
        "Value-Size: -99999999999",
        "Endian-Performance: fast",
        "Protocol-Version: new",
        "; Max-Buffer-Length: 5",
    ] {
        check(&feed("110", "", header), Then::Wait, "");
    }
    // Headers without end.
    let endless = b"A: b\r\n".repeat(50_000);
    check(
        &[b"LSL:streamfeed/110\r\n", endless.as_slice()].concat(),
        Then::Wait,
        "",
    );
    // Queries that are none, or too much of one.
    for query in [
        "[",
        "name=",
        "'",
        "$x",
        "f()",
        &"(".repeat(4000),
        &"a".repeat(5000),
    ] {
        check(
            format!("LSL:shortinfo\r\n{query}\r\n").as_bytes(),
            Then::Wait,
            "",
        );
    }
    assert_serves(&context, &outlet);
}

/// Requests that are odd but allowed: the feed ends after the test patterns.
#[test]
fn absurd_lengths_are_harmless() {
    let context = lab::context();
    let outlet = lab::outlet(&context, info("lengths"));
    for headers in [
        "Max-Buffer-Length: -1",
        "Max-Buffer-Length: -2147483648",
        "Max-Buffer-Length: 0\r\nMax-Chunk-Length: -5",
        "Max-Buffer-Length: -7\r\nValue-Size: -1",
    ] {
        let mut peer = Peer::connect(&outlet);
        peer.send(format!("LSL:streamfeed/110\r\n{headers}\r\n\r\n").as_bytes());
        peer.half_close();
        let ending = peer.ending();
        assert!(ending.bytes.starts_with(b"LSL/110 200 OK\r\n"), "{headers}");
    }
    // The largest lengths must not be allocated.
    let mut greedy = Peer::connect(&outlet);
    greedy.send(
        b"LSL:streamfeed/110\r\nMax-Buffer-Length: 2147483647\r\n\
          Max-Chunk-Length: 2147483647\r\nEndian-Performance: nan\r\n\r\n",
    );
    greedy.receive(17);
    assert_serves(&context, &outlet);
}

/// Idle connections are given up in favour of new ones.
#[test]
fn slow_requests_keep_nobody_out() {
    let context = lab::context();
    let outlet = lab::outlet(&context, info("slow"));
    let mut idle: Vec<Peer> = (0..400).map(|_| Peer::connect(&outlet)).collect();
    for (n, byte) in b"LSL:streamfeed/110\r\n".iter().enumerate() {
        for peer in idle.iter_mut().skip(n % 7).step_by(7) {
            peer.send(&[*byte]);
        }
    }
    assert_serves(&context, &outlet);
    lab::until("connections too many are counted", || {
        outlet.stats().refused >= 100
    });
    // Whoever still waits for its request may finish it.
    let mut patient = Peer::connect(&outlet);
    for byte in b"LSL:fullinfo\r\n" {
        patient.send(&[*byte]);
    }
    assert!(patient.ending().bytes.starts_with(b"<?xml"));
    drop(idle);
    assert_serves(&context, &outlet);
}

#[test]
fn a_thousand_connects_are_counted_and_forgotten() {
    let context = lab::context();
    let outlet = lab::outlet(&context, info("connects"));
    let inlet = lab::inlet(&context, "connects");
    for _ in 0..1000 {
        drop(Peer::connect(&outlet));
    }
    assert_delivers(&outlet, &inlet);
    lab::until("all are counted", || outlet.stats().refused == 1000);
    assert_serves(&context, &outlet);
}

/// Spec: lsl-protocol §6, the end that a reader sends ends its feed at once.
#[test]
fn a_reader_that_closes_its_side_is_gone() {
    let context = lab::context();
    let outlet = lab::outlet(&context, info("half"));
    let mut peer = Peer::connect(&outlet);
    peer.send(b"LSL:streamfeed/110\r\nMax-Buffer-Length: 100\r\n\r\n");
    lab::until("it is a consumer", || outlet.have_consumers());
    peer.half_close();
    lab::until("it is none any more", || !outlet.have_consumers());
    assert!(peer.ending().bytes.starts_with(b"LSL/110 200 OK\r\n"));
    assert_serves(&context, &outlet);
}

#[test]
fn datagrams_of_strangers_change_nothing() {
    let context = lab::context();
    let mut described = info("datagrams");
    let mut channels = described.desc_mut().into_child("channels");
    for n in 0..500 {
        channels
            .append_child("channel")
            .set("label", format!("C{n}"));
    }
    let outlet = lab::outlet(&context, described);
    let stranger = Stranger::of(&outlet);
    let port = stranger.port();
    let queries = [
        String::new(),
        "count(//*[count(//*[count(//*)>1])>1])>0".to_owned(),
        "//*[//*[//*[//*]]]".to_owned(),
        format!("{}1{}", "(".repeat(2000), ")".repeat(2000)),
        format!("concat({}'a')", "'a',".repeat(900)),
        format!("1{}", "+1".repeat(2000)),
        "translate(string(/),string(/),string(/))=string(//*)".to_owned(),
        "[".to_owned(),
        "\u{0}\u{1}".to_owned(),
        "x".repeat(60_000),
    ];
    for round in 0..5 {
        for query in &queries {
            // A new id each time, or it would count as a repetition.
            stranger.send(format!("LSL:shortinfo\r\n{query}\r\n{port} {round}\r\n").as_bytes());
        }
        for datagram in [
            "",
            "LSL:shortinfo",
            "LSL:shortinfo\r\n\r\n",
            "LSL:shortinfo\r\n\r\n0 1\r\n",
            "LSL:shortinfo\r\n\r\n22 1\r\n",
            "LSL:shortinfo\r\n\r\n99999 1\r\n",
            "LSL:timedata\r\n",
            "LSL:timedata\r\nnan nan\r\n",
            "LSL:timedata\r\n99999999999 1\r\n",
            "LSL:timedata\r\n1 inf\r\n",
            "LSL:timedata\r\n1 1e999\r\n",
            "\u{0}\u{0}\u{0}",
        ] {
            stranger.send(datagram.as_bytes());
        }
    }
    let probe = Stranger::of(&outlet);
    let is_answer = |reply: &[u8]| reply.starts_with(b" 77 1.5 ");
    let waited = probe.ask(b"LSL:timedata\r\n77 1.5\r\n", is_answer);
    assert!(waited < 5.0, "a clock probe took {waited} s");
    assert_serves(&context, &outlet);
}
