//! What is sealed is sent or the session ends; what is not may be dropped, whole and counted.

use std::time::Duration;

use lsl_core::secure::Policy;
use lsl_core::secure::trust::TrustedRole;
use lsl_core::{Outlet, Pushthrough, Stamps, local_clock};

use super::reader::Reader;
use crate::lab;
use crate::secure::people::{Place, info, trusted};

const CAPACITY: usize = 500;

fn push(outlet: &Outlet, from: usize, count: usize) {
    let values: Vec<f32> = (from..from + count).flat_map(|n| [n as f32; 3]).collect();
    let stamps: Vec<f64> = (from..from + count).map(|n| 1.0 + n as f64).collect();
    outlet
        .push_chunk_with(&values, Stamps::Each(&stamps), Pushthrough::Flush)
        .unwrap();
}

fn number((stamp, values): (f64, [f32; 3])) -> usize {
    let number = (stamp - 1.0) as usize;
    assert_eq!(values, [number as f32; 3], "a whole sample");
    number
}

#[test]
fn a_reader_that_stalls_loses_its_own_samples_only() {
    // A small socket buffer, so that it is full soon.
    let place = Place::with(&[("tuning.SendSocketBufferSize", "4096")]);
    let amp = place.side("amp", Policy::Required, &["rec"]);
    let outlet = lab::outlet(&amp.context, info("slow"));
    let mut slow = Reader::feed(&outlet, "rec", CAPACITY);
    let slow_port = slow.stream.local_addr().unwrap();
    let mut others: Vec<Reader> = (0..3)
        .map(|_| Reader::feed(&outlet, "rec", CAPACITY))
        .collect();
    let dropped = |outlet: &Outlet| {
        let consumers = outlet.consumers();
        let slow = consumers.iter().find(|each| each.peer == slow_port);
        let others = consumers.iter().filter(|each| each.peer != slow_port);
        assert_eq!(others.map(|each| each.dropped).sum::<u64>(), 0);
        slow.unwrap().dropped
    };
    let mut pushed = 0;
    // Long after the socket, the sealed bytes and the ring are full.
    while dropped(&outlet) < 2000 {
        push(&outlet, pushed, 100);
        pushed += 100;
        for reader in &mut others {
            for expected in pushed - 100..pushed {
                assert_eq!(number(reader.sample().unwrap()), expected);
            }
        }
        assert!(pushed < 1_000_000, "nothing is dropped");
    }
    // It resumes: what was sealed comes whole, then there are gaps, then the newest.
    let mut received = 0;
    let mut last = None;
    while last != Some(pushed - 1) {
        let next = number(slow.sample().expect("the session goes on"));
        assert!(last.is_none_or(|last| next > last), "in order");
        last = Some(next);
        received += 1;
    }
    assert_eq!(
        received + dropped(&outlet) as usize,
        pushed,
        "every drop is counted"
    );
    assert_eq!(outlet.stats().dropped, dropped(&outlet));
    push(&outlet, pushed, 1);
    for reader in others.iter_mut().chain([&mut slow]) {
        assert_eq!(number(reader.sample().unwrap()), pushed);
    }
}

#[test]
fn a_ping_is_answered_by_a_stalled_session_and_only_the_newest() {
    let place = Place::with(&[("tuning.SendSocketBufferSize", "4096")]);
    let amp = place.side("amp", Policy::Required, &["rec"]);
    let outlet = lab::outlet(&amp.context, info("ping"));
    let mut reader = Reader::feed(&outlet, "rec", CAPACITY);
    reader.seal(|session, out| session.sealer.seal_ping(7.0, out));
    while reader.pongs.is_empty() {
        assert!(reader.step());
    }
    let [t0, t1, t2] = reader.pongs[0];
    assert!(t0 == 7.0 && t1 <= t2 && t2 <= local_clock());
    // Stall it: its socket is full once nothing of a push finds room for a while. Then ask often.
    let (mut pushed, mut stalled) = (0, 0);
    while stalled < 20 {
        let before = outlet.stats().dropped;
        push(&outlet, pushed, 400);
        pushed += 400;
        std::thread::sleep(Duration::from_millis(1));
        let is_stalled = outlet.stats().dropped == before + 400;
        stalled = if is_stalled { stalled + 1 } else { 0 };
    }
    for n in 0..1000 {
        reader.seal(|session, out| session.sealer.seal_ping(f64::from(n), out));
    }
    // Behind them, so that all have arrived when the outlet has taken this in.
    reader.seal(|session, out| session.sealer.seal_ping(-1.0, out));
    // A reader that goes on at once is stalled no more, and may be answered while they still come.
    std::thread::sleep(Duration::from_millis(200));
    let mut last = 0;
    while last != pushed - 1 {
        last = number(reader.sample().unwrap());
    }
    while reader.pongs.last().unwrap()[0] != -1.0 {
        assert!(reader.step());
    }
    assert!(reader.pongs.len() < 500, "{}", reader.pongs.len());
}

/// Pushing threads, the reader's task and answers to pings take turns at one socket that is nearly always
/// full: every burst arrives whole and in order, and its end without another push behind it.
#[test]
fn bursts_between_pings_arrive_without_another_push() {
    let place = Place::with(&[("tuning.SendSocketBufferSize", "4096")]);
    let amp = place.side("amp", Policy::Required, &["rec"]);
    let outlet = lab::outlet(&amp.context, info("bursts"));
    let mut reader = Reader::feed(&outlet, "rec", 1_000_000);
    let (mut pushed, mut received) = (0, 0);
    for round in 0..150 {
        std::thread::scope(|scope| {
            let from = pushed;
            pushed += 1 + round * 37 % 2000;
            let (outlet, until) = (&outlet, pushed);
            scope.spawn(move || {
                let mut next = from;
                while next < until {
                    let count = (1 + next % 90).min(until - next);
                    push(outlet, next, count);
                    next += count;
                }
            });
            while received < pushed {
                if received % 64 == 0 {
                    let t0 = local_clock();
                    reader.seal(|session, out| session.sealer.seal_ping(t0, out));
                }
                assert_eq!(
                    number(reader.sample().expect("the session goes on")),
                    received
                );
                received += 1;
            }
        });
    }
    assert!(reader.pongs.len() > 10);
    assert_eq!(outlet.stats().dropped, 0);
}

#[test]
fn a_flush_waits_for_what_is_sealed_and_an_end_is_said() {
    let place = Place::with(&[("tuning.SendSocketBufferSize", "4096")]);
    let amp = place.side("amp", Policy::Required, &["rec"]);
    let outlet = lab::outlet(&amp.context, info("end"));
    let mut reader = Reader::feed(&outlet, "rec", 100_000);
    let reading = std::thread::spawn(move || {
        let mut received = 0;
        while reader.sample().is_some() {
            received += 1;
        }
        while reader.step() {}
        (received, reader.closed)
    });
    for n in 0..20 {
        push(&outlet, n * 1000, 1000);
    }
    assert!(outlet.blocking().flush(lab::SOON));
    drop(outlet);
    assert_eq!(reading.join().unwrap(), (20_000, true));
    let ended = amp.await_audit("session_closed", |_| true);
    assert_eq!(ended["clean"], true, "{ended}");
}

#[test]
fn a_synchronous_outlet_seals_too() {
    let place = Place::new();
    let amp = place.side("amp", Policy::Required, &["rec"]);
    let outlet = Outlet::builder(info("sync"))
        .context(&amp.context)
        .synchronous(true)
        .open()
        .unwrap();
    let mut readers: Vec<_> = (0..2).map(|_| Reader::feed(&outlet, "rec", 10)).collect();
    for n in 0..200 {
        push(&outlet, n, 1);
        for reader in &mut readers {
            if n % 50 == 0 {
                reader.seal(|session, out| session.sealer.seal_ping(1.0, out));
                while reader.pongs.pop().is_none() {
                    assert!(reader.step());
                }
            }
            assert_eq!(number(reader.sample().unwrap()), n);
        }
    }
    let mut leaving = readers.pop().unwrap();
    leaving.close();
    assert_eq!(leaving.rest(), b"");
    assert!(leaving.closed);
    lab::until("the reader is gone", || outlet.consumers().len() == 1);
    drop(outlet);
    assert_eq!(readers[0].rest(), b"");
    assert!(readers[0].closed);
}

/// By default nobody waits; who wants fewer records than samples can have it.
#[test]
fn small_records_wait_for_more_if_asked_to() {
    let place = Place::new();
    let trusts = vec![trusted("rec", TrustedRole::Both)];
    let amp = place.side_with("amp", Policy::Required, trusts, |settings| {
        settings.coalesce_us = 50_000;
        settings.pad_to = 256;
    });
    let outlet = lab::outlet(&amp.context, info("coalesce"));
    let mut reader = Reader::feed(&outlet, "rec", 1000);
    let before = reader.session.opener.totals().records;
    for n in 0..500 {
        push(&outlet, n, 1);
    }
    for n in 0..500 {
        assert_eq!(number(reader.sample().unwrap()), n);
    }
    let records = reader.session.opener.totals().records - before;
    assert!(records < 250, "{records}");
}

/// A reader that breaks its records is ended, counted in the audit, and nobody else notices.
#[test]
fn broken_records_end_their_session_only() {
    let place = Place::new();
    let amp = place.side("amp", Policy::Required, &["rec"]);
    let outlet = lab::outlet(&amp.context, info("broken"));
    let mut sound = Reader::feed(&outlet, "rec", CAPACITY);
    let mut forged = Reader::feed(&outlet, "rec", CAPACITY);
    let mut record = Vec::new();
    forged.session.sealer.seal_ping(1.0, &mut record).unwrap();
    *record.last_mut().unwrap() ^= 1;
    std::io::Write::write_all(&mut forged.stream, &record).unwrap();
    assert_eq!(forged.rest(), b"");
    assert!(!forged.closed && forged.alert.is_none(), "not a word more");
    amp.await_audit("record_auth_failed", |line| line["code"] == 14);
    let cut = Reader::feed(&outlet, "rec", CAPACITY);
    drop(cut);
    let ended = amp.await_audit("session_closed", |line| line["code"] == 15);
    assert_eq!(ended["clean"], false);
    lab::until("they are gone", || outlet.consumers().len() == 1);
    push(&outlet, 0, 3);
    for n in 0..3 {
        assert_eq!(number(sound.sample().unwrap()), n);
    }
    sound.seal(|session, out| session.sealer.seal_key_update(out));
    sound.seal(|session, out| session.sealer.seal_ping(2.0, out));
    while sound.pongs.is_empty() {
        assert!(sound.step());
    }
    amp.await_audit("key_update", |_| true);
}
