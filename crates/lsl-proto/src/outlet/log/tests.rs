//! Appends, trims and reads in any order, and what a log keeps of them.

use proptest::prelude::*;

use super::*;
use crate::wire::sample110::{Encoder110, TimestampDeducer};

fn log(samples: &[&[u8]]) -> SampleLog {
    let mut log = SampleLog::new();
    for sample in samples {
        append(&mut log, sample);
    }
    log
}

fn append(log: &mut SampleLog, sample: &[u8]) {
    log.append(&mut sample.to_vec(), &mut vec![sample.len()], 0.0);
}

/// Reads for the only consumer, as a fan-out does.
fn read(log: &mut SampleLog, from: u64, to: u64, max_bytes: usize) -> (u64, Vec<u8>) {
    let mut out = Vec::new();
    let next = log.reach(from, to, max_bytes);
    let length = log.bytes_between(from, next);
    log.take(from, next, next, &mut out);
    assert_eq!(out.len(), length);
    (next, out)
}

#[test]
fn reads_whole_samples_within_the_limit_and_at_least_one() {
    let mut log = log(&[b"abc", b"de", b"f"]);
    assert_eq!(log.reach(0, 3, 5), 2);
    assert_eq!(log.reach(0, 3, 1), 1);
    assert_eq!(log.reach(0, 1, 100), 1);
    assert_eq!(read(&mut log, 0, 3, 5), (2, b"abcde".to_vec()));
    assert_eq!(read(&mut log, 2, 3, 100), (3, b"f".to_vec()));
    assert_eq!(log.len_bytes(), 0);
}

#[test]
fn what_others_need_stays() {
    let mut log = log(&[b"abc", b"de"]);
    let mut out = Vec::new();
    log.take(0, 2, 0, &mut out);
    assert_eq!((out.as_slice(), log.len_bytes()), (b"abcde".as_slice(), 5));
    out.clear();
    log.read(1, 2, |bytes| out.extend_from_slice(bytes));
    assert_eq!(out, b"de");
    assert_eq!(read(&mut log, 0, 2, 100), (2, b"abcde".to_vec()));
}

#[test]
fn trimming_keeps_sequence_numbers() {
    let mut log = log(&[b"abc", b"de"]);
    log.trim(1);
    assert_eq!((log.end(), log.len_bytes()), (2, 2));
    assert_eq!(read(&mut log, 1, 2, 100), (2, b"de".to_vec()));
    assert_eq!((log.end(), log.len_bytes()), (2, 0));
    log.skip_to(7);
    log.append(&mut b"xy".to_vec(), &mut vec![1, 2], 0.0);
    assert_eq!(log.end(), 9);
    assert_eq!(read(&mut log, 8, 9, 100), (9, b"y".to_vec()));
}

#[test]
fn memory_of_a_backlog_goes_back() {
    let mut log = SampleLog::new();
    for _ in 0..1000 {
        append(&mut log, &[7; 10_000]);
    }
    assert_eq!(log.len_bytes(), 10_000_000);
    log.trim(1000);
    let kept: usize = log.spare.iter().map(|block| block.bytes.capacity()).sum();
    assert!(log.blocks.is_empty() && kept <= 4 * BLOCK_BYTES, "{kept}");
}

#[test]
fn what_is_kept_while_others_wait_is_bounded_whatever_the_samples() {
    for (size, count) in [(1, 9_000_000), (2_000, 10_000), (40_000, 400)] {
        let mut log = SampleLog::new();
        let per_push = (BLOCK_BYTES / size).max(1);
        let mut left = count;
        while left > 0 {
            let samples = per_push.min(left);
            let mut ends: Vec<usize> = (1..=samples).map(|n| n * size).collect();
            log.append(&mut vec![7; samples * size], &mut ends, 0.0);
            left -= samples;
        }
        log.trim(count as u64 - 1);
        assert!(!log.blocks.is_empty() && log.spare.len() <= SPARE_BLOCKS_IN_USE);
        for block in &log.spare {
            let ends_bytes = block.ends.capacity() * size_of::<usize>();
            assert!(
                block.bytes.capacity().max(ends_bytes) <= 2 * BLOCK_BYTES,
                "{size}"
            );
        }
    }
}

#[test]
fn what_is_retained_is_all_that_is_held() {
    for (size, per_push) in [(2, 100), (100, 20)] {
        let mut log = SampleLog::new();
        log.append(&mut vec![7; size], &mut vec![size], 0.0);
        for _ in 0..100 {
            log.append(&mut vec![7; BLOCK_BYTES], &mut vec![BLOCK_BYTES], 0.0);
        }
        log.trim(100);
        log.retain(Restamper::new(crate::ByteOrder::NATIVE, 1.0), 1e9);
        log.trim(101);
        for _ in 0..2000 {
            let mut ends = (1..=per_push).map(|n| n * size).collect();
            log.append(&mut vec![7; size * per_push], &mut ends, 0.0);
            log.trim(log.end());
        }
        let held = |log: &SampleLog| -> usize {
            let blocks = log.blocks.iter().chain(&log.spare);
            let held = blocks.map(|it| it.bytes.len() + size_of_val(it.ends.as_slice()));
            held.sum()
        };
        for most in [1 << 20, 1 << 17] {
            log.limit(most, 0.0);
            let held = held(&log);
            assert!(
                log.retained_bytes() <= most && held <= most + BLOCK_BYTES,
                "{held}"
            );
        }
        let is_reused = |log: &SampleLog| log.spare.len() == 1;
        assert!(is_reused(&log), "{size}");
    }
}

#[test]
fn retained_chunks_keep_their_buffers_and_no_more_memory_than_their_bytes() {
    let mut log = SampleLog::new();
    log.retain(Restamper::new(crate::ByteOrder::NATIVE, 1.0), 1e9);
    let encoder = Encoder110::new(crate::ChannelFormat::Int8, 299, crate::ByteOrder::NATIVE);
    let (mut piece, mut ends) = (Vec::new(), Vec::new());
    let mut push = |log: &mut SampleLog, samples: usize| {
        let values = vec![1_i8; 299 * samples];
        let stamp = |n| {
            if n == 0 {
                1.0
            } else {
                crate::DEDUCED_TIMESTAMP
            }
        };
        assert!(encoder.encode_run(&values, stamp, 1 << 20, &mut piece, &mut ends));
        let buffer = piece.as_ptr();
        log.append(&mut piece, &mut ends, 0.0);
        log.trim(log.end());
        log.limit(1 << 20, 0.0);
        let last = log.blocks.back().unwrap();
        assert_eq!(last.bytes.as_ptr(), buffer, "copied");
        assert_eq!(last.end(), log.end());
    };
    // The first buffer is far too large for the others.
    push(&mut log, 200);
    for samples in (0..200).map(|n| 28 + n % 30) {
        push(&mut log, samples);
    }
    let blocks = log.blocks.iter().chain(&log.spare);
    let held = blocks.map(|it| it.bytes.capacity() + it.ends.capacity() * size_of::<usize>());
    let held: usize = held.sum();
    assert!(held <= 2 * log.retained_bytes(), "{held}");
    // A reader that goes through them is not sent less at a time for that.
    let (mut first, end, mut out) = (log.floor(), log.end(), Vec::new());
    while first < end {
        let next = log.reach(first, end, BLOCK_BYTES);
        log.take(first, next, end, &mut out);
        assert_eq!(out.len(), log.bytes_between(first, next));
        let is_enough = out.len() > BLOCK_BYTES - 309 && out.len() <= BLOCK_BYTES;
        assert!(is_enough || next == end, "{}", out.len());
        first = next;
    }
}

/// Samples of a push, of which those with `true` transmit their timestamps, or numbers that are skipped.
#[derive(Debug, Clone)]
enum Step {
    Push { stamped: Vec<bool>, secs: f64 },
    Skip(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let stamped = prop_oneof![
        proptest::collection::vec(proptest::bool::weighted(0.1), 1..60),
        (1usize..60).prop_map(|samples| vec![false; samples]),
    ];
    prop_oneof![
        9 => (stamped, 0.0..0.3).prop_map(|(stamped, secs)| Step::Push { stamped, secs }),
        1 => (1u64..5).prop_map(Step::Skip),
    ]
}

proptest! {
    /// Whatever is gathered, swapped or let go.
    #[test]
    fn stamps_of_retained_samples_are_those_of_a_receiver_of_all(
        steps in proptest::collection::vec(step(), 1..60),
        most_bytes in 1usize..300_000,
    ) {
        const RATE: f64 = 30.0;
        let restamper = Restamper::new(crate::ByteOrder::NATIVE, RATE);
        let encoder = Encoder110::new(crate::ChannelFormat::Int8, 399, crate::ByteOrder::NATIVE);
        let (mut log, mut deducer) = (SampleLog::new(), TimestampDeducer::new(RATE));
        log.retain(restamper, 1.0);
        let (mut expected, mut skipped, mut now) = (Vec::new(), 0, 100.0);
        for step in steps {
            match step {
                Step::Push { stamped, secs } => {
                    now += secs;
                    deducer.resume(restamper.after(deducer.last(), std::mem::take(&mut skipped)));
                    let stamp = |n: usize| if stamped[n] { now } else { crate::DEDUCED_TIMESTAMP };
                    let (mut piece, mut ends) = (Vec::new(), Vec::new());
                    let values = vec![1_i8; stamped.len() * 399];
                    encoder.encode_run(&values, stamp, 1 << 20, &mut piece, &mut ends);
                    log.append(&mut piece, &mut ends, now);
                    let known = (0..stamped.len()).map(|n| Some(deducer.next(Some(stamp(n)))));
                    expected.extend(known);
                }
                Step::Skip(samples) => {
                    log.skip_to(log.end() + samples);
                    skipped += samples;
                    expected.extend((0..samples).map(|_| None));
                }
            }
            log.trim(log.end());
            log.limit(most_bytes, now - 4.0);
            let mut sequence = log.next_stored(0);
            while sequence < log.end() {
                let mut frame = Vec::new();
                log.restamped(sequence, &mut frame);
                let pushed = expected[usize::try_from(sequence).unwrap()];
                prop_assert_eq!(restamper.transmitted(&frame), pushed);
                sequence = log.next_stored(sequence + 1);
            }
        }
    }

    /// Whatever the order of appends, trims and reads, a reader sees every sample once, whole
    /// and in order.
    #[test]
    fn a_reader_sees_every_sample(
        sizes in proptest::collection::vec(prop_oneof![1usize..40, 1000usize..30_000], 1..60),
        limits in proptest::collection::vec(1usize..40_000, 1..60),
    ) {
        let mut log = SampleLog::new();
        let (mut written, mut seen) = (Vec::new(), Vec::new());
        let mut cursor = 0;
        for (n, &size) in sizes.iter().enumerate() {
            let sample = vec![u8::try_from(n).unwrap(); size];
            written.extend_from_slice(&sample);
            append(&mut log, &sample);
            if n % 3 == 0 {
                let (next, bytes) =
                    read(&mut log, cursor, n as u64 + 1, limits[n % limits.len()]);
                cursor = next;
                seen.extend(bytes);
            }
            prop_assert_eq!(log.len_bytes() + seen.len(), written.len());
        }
        let mut rest = Vec::new();
        log.read(cursor, log.end(), |bytes| rest.extend_from_slice(bytes));
        while cursor < log.end() {
            let end = log.end();
            let (next, bytes) = read(&mut log, cursor, end, 7);
            cursor = next;
            prop_assert_eq!(&rest.drain(..bytes.len()).collect::<Vec<u8>>(), &bytes);
            seen.extend(bytes);
        }
        prop_assert!(written == seen && rest.is_empty());
        prop_assert_eq!(log.len_bytes(), 0);
    }
}
