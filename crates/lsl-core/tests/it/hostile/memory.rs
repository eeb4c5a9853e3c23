//! What hostile peers cost in memory.
//!
//! Other tests of this binary would be counted too, so each measurement runs in a process of its
//! own: the test starts its own binary again for nothing but itself.

use std::process::Command;
use std::time::Duration;

use lsl_core::{BufferLength, ChannelFormat, ContinuousResolver, Inlet, Outlet, Selector};
use lsl_proto::wire::response::DataProtocol;

use super::peer::{Peer, Stranger};
use super::responder::{Claim, EvilOutlet, EvilResponder};
use super::{CHANNELS, assert_serves, info};
use crate::lab::{self, SOON};

/// Peers of each kind that are measured.
const PEERS: usize = 50;

/// What one of them may cost on average.
const BYTES_PER_PEER: usize = 2 << 20;

/// Runs `measure` in a process of its own. `test` is the name of the calling test in this module.
fn alone(test: &str, measure: fn()) {
    const MARK: &str = "LSL_TEST_ALONE";
    if std::env::var_os(MARK).is_some() {
        measure();
        return;
    }
    let binary = std::env::current_exe().expect("a test binary");
    let output = Command::new(binary)
        .args([
            "--exact",
            &format!("hostile::memory::{test}"),
            "--nocapture",
            "--include-ignored",
        ])
        .env(MARK, "1")
        .output()
        .expect("starts itself");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{text}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(
        text.contains("1 passed"),
        "the measurement did not run:\n{text}"
    );
}

/// Memory of this process that is in use, where the system tells.
fn resident_bytes() -> Option<usize> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: usize = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib << 10)
}

/// Checks what the `peers` made by `make` cost while they are all there.
fn assert_cheap<P>(what: &str, mut make: impl FnMut(usize) -> P, settled: impl FnOnce(&mut [P])) {
    // The first ones pay for threads, buffers and caches that later ones share.
    let warm: Vec<P> = (0..3).map(&mut make).collect();
    let Some(before) = resident_bytes() else {
        return;
    };
    let mut peers: Vec<P> = (0..PEERS).map(|n| make(n + 3)).collect();
    settled(&mut peers);
    let after = resident_bytes().unwrap_or(usize::MAX);
    let growth = after.saturating_sub(before);
    assert!(
        growth <= PEERS * BYTES_PER_PEER,
        "{what}: {PEERS} peers cost {growth} bytes"
    );
    drop(warm);
}

#[test]
fn hostile_inlets_are_cheap() {
    alone("hostile_inlets_are_cheap", || {
        let context = lab::context();
        let outlet = Outlet::builder(info("cheap"))
            .context(&context)
            .buffer(BufferLength::Samples(2000))
            .open()
            .unwrap();
        assert_serves(&context, &outlet);
        assert_cheap(
            "requests without end",
            |_| {
                let mut peer = Peer::connect(&outlet);
                peer.send(b"LSL:streamfeed/110\r\n");
                peer.send(&b"A: b\r\n".repeat(5000));
                peer
            },
            |_| assert_serves(&context, &outlet),
        );
        assert_cheap(
            "readers that do not read",
            |_| {
                let mut peer = Peer::connect(&outlet);
                peer.send(
                    b"LSL:streamfeed/110\r\nMax-Buffer-Length: 2147483647\r\n\
                      Max-Chunk-Length: 2147483647\r\n\r\n",
                );
                peer
            },
            |peers| {
                lab::until("all are consumers", || {
                    outlet.consumers().len() >= peers.len()
                });
                let chunk = [0.5_f32; 1000 * CHANNELS];
                lab::until("samples are dropped", || {
                    outlet.push_chunk(&chunk).unwrap();
                    outlet.stats().dropped > 0
                });
                assert!(outlet.stats().backlog_bytes < 4 << 20);
            },
        );
        let stranger = Stranger::of(&outlet);
        assert_cheap(
            "queries of strangers",
            |n| {
                let bomb = "concat(name,".repeat(60) + "name" + &")".repeat(60);
                stranger.send(format!("LSL:shortinfo\r\n{n}={bomb}\r\n9999 {n}\r\n").as_bytes());
                let filler = "x".repeat(60_000);
                stranger.send(format!("LSL:shortinfo\r\n{filler}{n}\r\n9999 {n}\r\n").as_bytes());
            },
            |_| assert_serves(&context, &outlet),
        );
    });
}

#[test]
fn hostile_outlets_are_cheap() {
    alone("hostile_outlets_are_cheap", || {
        let context = lab::context();
        let victim = |claim: Claim, bytes: fn(&Claim) -> Vec<u8>| {
            let scripted = claim.clone();
            let outlet = EvilOutlet::open(move |victim| {
                victim.send(&bytes(&scripted))?;
                victim.wait_for_its_end()
            });
            let claim = Claim {
                port: outlet.port(),
                ..claim
            };
            let inlet = Inlet::builder(&claim.info())
                .context(&context)
                .recover(false)
                .create()
                .unwrap();
            // Lost or waiting: either is an answer. What counts is what was allocated.
            let _ = inlet.blocking().open(Duration::from_millis(50));
            (inlet, outlet)
        };
        let text = |name: String| Claim {
            format: ChannelFormat::String,
            channels: "1".to_owned(),
            ..Claim::of(&name)
        };
        assert_cheap(
            "announced strings",
            // 250 MiB that do not come.
            |n| {
                victim(text(format!("giant-{n}")), |claim| {
                    [
                        claim.preamble(),
                        vec![1, 4, 0, 0, 0xa0, 0x0f],
                        vec![b'x'; 1000],
                    ]
                    .concat()
                })
            },
            |_| {},
        );
        assert_cheap(
            "announced stream infos",
            // 60 MiB that do not come.
            |n| {
                victim(Claim::of(&format!("huge-{n}")), |claim| {
                    let head = [0x7f, 1, 9, 4, 0, 0, 0xc0, 0x03];
                    let archive = claim.response(DataProtocol::V100);
                    [archive.as_slice(), &head, &[b'<'; 1000]].concat()
                })
            },
            |_| {},
        );
        assert_cheap(
            "wide and fast streams",
            |n| {
                let claim = Claim {
                    channels: "100000000".to_owned(),
                    srate: "2147483647.0".to_owned(),
                    ..Claim::of(&format!("wide-{n}"))
                };
                victim(claim, |claim| {
                    [claim.response(DataProtocol::V110), vec![2; 1000]].concat()
                })
            },
            |_| {},
        );
    });
}

#[test]
fn hostile_responders_are_cheap() {
    alone("hostile_responders_are_cheap", || {
        let context = lab::context();
        let outlet = lab::outlet(&context, info("amid"));
        let resolver = ContinuousResolver::in_context(&context, &Selector::all(), SOON).unwrap();
        assert_eq!(resolver.wait_blocking(1, SOON).len(), 1);
        // Each claims to be a stream, as large as a datagram can make it.
        let replies: Vec<Vec<u8>> = (0..PEERS)
            .map(|n| {
                let claim = Claim {
                    uid: format!("uid-{n}"),
                    desc: "<a/>".repeat(14_000),
                    ..Claim::of("flood")
                };
                claim.xml().into_bytes()
            })
            .collect();
        let Some(before) = resident_bytes() else {
            return;
        };
        let flood = EvilResponder::open(&context, replies);
        // Not all of a burst gets through; after some waves many have.
        lab::until("the resolver has asked again", || flood.answered() >= 4);
        // It answers whatever is asked, also a search for another stream.
        drop(flood);
        assert_serves(&context, &outlet);
        let known = resolver.results().len();
        let growth = resident_bytes()
            .unwrap_or(usize::MAX)
            .saturating_sub(before);
        // What is not known must not cost anything, but the buffers are paid for once.
        assert!(
            growth <= known.max(10) * BYTES_PER_PEER,
            "{known} streams cost {growth} bytes"
        );
    });
}
