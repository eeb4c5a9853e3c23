//! What handshakes leave in memory that they give back, and what a session allocates. A test binary of its
//! own, because its allocator looks into every block. Spec: LSS/1 §5.6, §8.4, §8.6.
#![expect(unsafe_code, reason = "an allocator has no safe form")]
#![expect(clippy::unwrap_used, reason = "a test")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use lsl_secure::connection::{Answer, Connection, Event, Question};
use lsl_secure::handshake::PREAMBLE;
use lsl_secure::{Descriptor, Local, OsRandom, Psk, Random, Result, SecretKey, Suites};

/// Counts blocks, and looks for secrets in those that are given back.
struct Watching;

#[global_allocator]
static ALLOCATOR: Watching = Watching;

// SAFETY: all memory is the system's.
unsafe impl GlobalAlloc for Watching {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = ALLOCATED.try_with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's promise.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // Nothing of a handshake is that long, and the texts of a panic are.
        if IS_WATCHING.load(Ordering::Relaxed) && layout.size() <= 1 << 14 {
            // SAFETY: a block of this length, which was zeroed when it was made.
            look(unsafe { std::slice::from_raw_parts(block, layout.size()) });
        }
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(block, layout) }
    }
}

fn look(block: &[u8]) {
    for (number, (_, secret)) in SECRETS.get().into_iter().flatten().enumerate() {
        // The first half is enough, and survives what an allocator writes at the front of a block.
        let parts = [&secret[..16], &secret[16..]];
        if parts
            .iter()
            .any(|part| block.windows(16).any(|it| it == *part))
        {
            FOUND.fetch_or(1 << number, Ordering::Relaxed);
        }
    }
}

thread_local! {
    static ALLOCATED: Cell<usize> = const { Cell::new(0) };
}
static IS_WATCHING: AtomicBool = AtomicBool::new(false);
/// A bit per secret.
static FOUND: AtomicU64 = AtomicU64::new(0);
static SECRETS: OnceLock<Vec<(&str, [u8; 32])>> = OnceLock::new();

const NAMES: [&str; 12] = [
    "e_i", "e_r", "dh", "prk", "hs_i", "hs_r", "master", "ap_i", "ap_r", "time_i", "time_r",
    "exporter",
];

/// One run of the known answers.
struct Run(serde_json::Value);

impl Run {
    fn secret(&self, name: &str) -> [u8; 32] {
        let text = self.0[name].as_str().unwrap();
        let mut bytes = [0; 32];
        for (at, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).unwrap();
        }
        bytes
    }

    fn local(&self, seed: &str) -> Arc<Local> {
        Arc::new(Local {
            key: SecretKey::from_seed(&self.secret(seed)),
            psk: Psk::from_bytes(self.secret("psk")).ok(),
            suites: Suites::ChaCha20Only,
            pad_to: 0,
        })
    }
}

/// Gives out what it was given.
struct Fixed([u8; 32]);

impl Random for Fixed {
    fn fill(&mut self, bytes: &mut [u8]) -> Result<()> {
        bytes.copy_from_slice(&self.0);
        Ok(())
    }
}

fn flush(connection: &mut Connection) -> Vec<u8> {
    let mut wire = Vec::new();
    let flushed = connection.flush(
        || 0.0,
        |bytes| {
            wire.extend_from_slice(bytes);
            Ok(bytes.len())
        },
    );
    assert!(flushed.unwrap());
    wire
}

/// Gives `bytes` as they are asked for, and says yes. Returns the rest.
fn give<'a>(to: &mut Connection, mut bytes: &'a [u8], random: &mut impl Random) -> &'a [u8] {
    while !bytes.is_empty() && (1..=2048).contains(&to.max_read()) {
        let (piece, rest) = bytes.split_at(bytes.len().min(to.max_read()));
        bytes = rest;
        to.handle_input(&mut piece.to_vec(), 0.0, |_| Ok(()))
            .unwrap();
        while let Some(Event::Question(question)) = to.poll_event() {
            let answer = match question {
                Question::Turn => Answer::Turn(Ok(())),
                // As a task of a runtime, which lies on the heap.
                Question::Work(work) => Answer::Work((*Box::new(work)).run(random)),
                Question::PeerKey(_) => Answer::PeerKey(Ok(String::new())),
                Question::Descriptor(_) => Answer::Descriptor(Ok(())),
            };
            to.handle_answer(answer, 0.0).unwrap();
        }
    }
    bytes
}

/// An inlet and an outlet with a session.
fn established(locals: [Arc<Local>; 2], mut random: [impl Random; 2]) -> [Connection; 2] {
    let [inlet, outlet] = locals;
    let mut inlet = Connection::initiator(inlet, b"?", 0.0, &mut random[0]).unwrap();
    let descriptor = Descriptor {
        channel_count: 1,
        channel_format: 1,
        ..Descriptor::default()
    };
    let mut outlet = Connection::responder(outlet, Arc::new(descriptor), 0.0);
    give(
        &mut outlet,
        &flush(&mut inlet)[PREAMBLE.len()..],
        &mut random[1],
    );
    give(&mut inlet, &flush(&mut outlet), &mut random[0]);
    give(&mut outlet, &flush(&mut inlet), &mut random[1]);
    give(&mut inlet, &flush(&mut outlet), &mut random[0]);
    [inlet, outlet]
}

#[test]
fn no_secret_of_a_handshake_is_left_in_memory_that_was_given_back() {
    let text = include_str!("vectors/secure-session-vectors.json");
    let mut file: serde_json::Value = serde_json::from_str(text).unwrap();
    let mut runs = file["vectors"].as_array_mut().unwrap().drain(..).map(Run);
    let run = runs.find(|run| run.0["name"] == "with-psk").unwrap();
    SECRETS
        .set(NAMES.map(|name| (name, run.secret(name))).to_vec())
        .unwrap();
    let locals = ["seed_i", "seed_r"].map(|seed| run.local(seed));
    let random = ["e_i", "e_r"].map(|name| Fixed(run.secret(name)));
    IS_WATCHING.store(true, Ordering::Relaxed);
    let [mut inlet, outlet] = established(locals, random);
    let info = Arc::clone(inlet.sender().unwrap().info());
    drop((inlet, outlet));
    IS_WATCHING.store(false, Ordering::Relaxed);
    assert_eq!(info.id.to_string(), run.0["session_id"], "other secrets");
    let found = FOUND.load(Ordering::Relaxed);
    let found = NAMES
        .iter()
        .enumerate()
        .filter(|(at, _)| found >> at & 1 == 1);
    let found: Vec<_> = found.map(|(_, name)| name).collect();
    assert!(found.is_empty(), "{found:?}");

    // And what is left is found.
    let copy = Box::new((7_u64, run.secret("prk")));
    IS_WATCHING.store(true, Ordering::Relaxed);
    drop(std::hint::black_box(copy));
    IS_WATCHING.store(false, Ordering::Relaxed);
    assert_eq!(FOUND.load(Ordering::Relaxed), 1 << 3);
}

#[test]
fn a_warm_session_allocates_nothing() {
    let local = |seed| {
        Arc::new(Local {
            key: SecretKey::from_seed(&[seed; 32]),
            psk: None,
            suites: Suites::of_this_cpu(),
            pad_to: 0,
        })
    };
    let [mut inlet, mut outlet] = established([local(1), local(2)], [OsRandom; 2]);
    while inlet.poll_event().is_some() {}
    let (data, mut wire) = ([7; 4096], vec![0; 5000]);
    let mut carry = |length: usize| {
        let mut written = 0;
        let sender = outlet.sender().unwrap();
        let sent = sender.send(
            &data[..length],
            || 0.0,
            |bytes| {
                wire[..bytes.len()].copy_from_slice(bytes);
                written = bytes.len();
                Ok(written)
            },
        );
        assert_eq!(sent.unwrap(), length);
        let mut received = 0;
        // In two pieces, so that the first has to be kept.
        let (first, rest) = wire[..written].split_at_mut(written / 2);
        for piece in [first, rest] {
            let opened = inlet.handle_input(piece, 0.0, |data| {
                received += data.len();
                Ok(())
            });
            opened.unwrap();
        }
        assert_eq!(received, length);
    };
    carry(4096);
    let before = ALLOCATED.get();
    for length in (1..=4096).step_by(13) {
        carry(length);
    }
    assert_eq!(ALLOCATED.get() - before, 0);
}
