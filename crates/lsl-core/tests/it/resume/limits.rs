//! Readers that stall or ask too often, and what outlets retain together. Spec: resume §4.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lsl_core::{BufferLength, ChannelFormat, GapReason, Outlet, Retain, local_clock};

use super::cutting::Cutter;
use super::{Ends, OnDrop, RETAINING, in_campaign, info, rounds};
use crate::lab::{self, SOON};

const CHANNELS: u32 = 64;

/// The least that can be retained.
const LITTLE: Retain = Retain {
    seconds: 30.0,
    bytes: 65_536,
    unread: false,
};

/// Pushes a chunk of samples whose values are their number.
fn push(outlet: &Outlet, first: u32, samples: u32) -> u32 {
    let numbers = first..first + samples;
    let values: Vec<_> = (numbers.clone())
        .flat_map(|number| [f64::from(number); CHANNELS as usize])
        .collect();
    outlet.push_chunk(&values).unwrap();
    numbers.end
}

#[test]
fn a_reader_that_stalls_is_told_of_every_sample_that_it_misses() {
    let ends = Ends::plain();
    let outlet = Outlet::builder(info("stalled", CHANNELS, 0.0, ChannelFormat::Double64))
        .context(&ends.outlet)
        .buffer(BufferLength::Samples(50))
        .retain(LITTLE)
        .open()
        .unwrap();
    let cutter = Cutter::start(&lab::find(&ends.inlet, "stalled"), 1, 0);
    cutter.rest(true);
    let inlet = ends.inlet_through("stalled", &cutter);
    let mut numbers = Vec::new();
    let mut pull_to = |last: u32| {
        let mut values = [0.0; CHANNELS as usize];
        while numbers.last() != Some(&f64::from(last)) {
            let stamp = inlet.blocking().pull(&mut values, SOON).unwrap();
            assert!(stamp.is_some(), "{:?}", inlet.stats());
            assert_eq!(values, [values[0]; CHANNELS as usize]);
            numbers.push(values[0]);
        }
    };
    let mut next = push(&outlet, 0, 3);
    pull_to(next - 1);
    for round in 1..=rounds(3) {
        cutter.stall(true);
        let enough = outlet.stats().dropped + 37 * round;
        while outlet.stats().dropped < enough {
            next = push(&outlet, next, 20);
        }
        cutter.stall(false);
        next = push(&outlet, next, 1);
        pull_to(next - 1);
    }
    let dropped = outlet.stats().dropped;
    let before = inlet.stats();
    assert_eq!((before.lost_exact, before.reconnects), (dropped, 0));
    assert_eq!((before.dropped, before.lost_unknown), (0, 0));
    cutter.cut();
    lab::until("it is back", || inlet.stats().reconnects == 1);
    next = push(&outlet, next, 5);
    pull_to(next - 1);
    let stats = inlet.stats();
    assert_eq!((stats.resumed, stats.lost_exact), (1, dropped));
    // Every sample came once, or is in one of the gaps.
    let gaps = inlet.take_gaps(usize::MAX);
    assert!(gaps.len() as u64 >= rounds(3));
    assert!((gaps.iter()).all(|gap| gap.reason == GapReason::ReaderTooSlow));
    let mut expected = 0;
    let mut gaps = gaps.iter().peekable();
    for number in numbers {
        if let Some(gap) = gaps.next_if(|gap| gap.sequence == expected) {
            expected += gap.lost.unwrap();
        }
        assert_eq!(number, f64::from(u32::try_from(expected).unwrap()));
        expected += 1;
    }
    assert_eq!((gaps.next(), expected), (None, outlet.stats().samples));
    assert_eq!(inlet.position().unwrap().next, expected);
}

/// Reads all that an outlet replays to a reader that asks for the oldest sample. Returns the bytes of samples.
fn take_oldest(outlet: &Outlet, frame_bytes: usize) -> usize {
    let mut reader = TcpStream::connect(("127.0.0.1", outlet.info().v4_data_port())).unwrap();
    reader.set_read_timeout(Some(SOON)).unwrap();
    let request =
        b"LSL:streamfeed/110\r\nMax-Buffer-Length: 1000000\r\nLslx-Sequence: 1 oldest\r\n\r\n";
    reader.write_all(request).unwrap();
    let mut header = Vec::new();
    let mut byte = [0];
    while !header.ends_with(b"\r\n\r\n") {
        reader.read_exact(&mut byte).unwrap();
        header.push(byte[0]);
    }
    let header = String::from_utf8(header).unwrap();
    let granted = header.split("Lslx-Sequence: ").nth(1).unwrap();
    let mut fields = granted.split_whitespace().skip(2);
    let mut field = || fields.next().unwrap().parse::<usize>().unwrap();
    let (begin, live) = (field(), field());
    let replay = (live - begin) * frame_bytes;
    let mut received = vec![0; 2 * frame_bytes + replay];
    reader.read_exact(&mut received).unwrap();
    replay
}

#[test]
fn a_greedy_reader_is_sent_no_more_than_its_budget() {
    let context = lab::context_with(RETAINING);
    let outlet = Outlet::builder(info("greedy", 8, 0.0, ChannelFormat::Double64))
        .context(&context)
        .retain(LITTLE)
        .open()
        .unwrap();
    let frame_bytes = 9 + 8 * 8;
    let push = |number: u32| {
        let stamp = 1.0 + f64::from(number);
        outlet.push_at(&[f64::from(number); 8], stamp).unwrap();
    };
    (0..1000).for_each(push);
    let live = lab::inlet(&context, "greedy");
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let end = OnDrop(&is_over);
        let pusher = scope.spawn(|| {
            let mut next = 1000;
            while !is_over.load(Ordering::Relaxed) {
                push(next);
                next += 1;
                std::thread::sleep(Duration::from_millis(1));
            }
            next
        });
        let start = local_clock();
        let mut taken = 0;
        let requests = if in_campaign() { 2000 } else { 100 };
        for _ in 0..requests {
            taken += take_oldest(&outlet, frame_bytes);
            std::thread::sleep(Duration::from_millis(10));
        }
        let took = Duration::from_secs_f64(local_clock() - start);
        drop(end);
        // A sample that is being pushed costs nothing.
        let budget = 4 * 65_536 + took.as_millis() * 32_768 / 1000 + requests * 73;
        assert!(taken as u128 <= budget, "{taken} bytes in {took:?}");
        assert!(taken > 3 * 50_000, "{taken} bytes in {took:?}");
        let stats = outlet.stats();
        assert!(stats.replay_refused > 0, "{stats:?}");
        assert_eq!(stats.replayed, (taken / frame_bytes) as u64);
        let mut values = [0.0; 8];
        for number in 1000..pusher.join().unwrap() {
            let stamp = live.blocking().pull(&mut values, SOON).unwrap();
            assert_eq!((values[0], stamp.is_some()), (f64::from(number), true));
        }
        assert_eq!(live.stats().dropped, 0);
    });
}

#[test]
fn what_outlets_retain_together_is_bounded_and_goes_in_time() {
    let seconds = if in_campaign() { "2" } else { "30" };
    let context = lab::context_with(&[
        ("ports.IPv6", "disable"),
        ("tuning.RetainSeconds", seconds),
        ("tuning.RetainTotalBytes", "1048576"),
    ]);
    let outlets: Vec<_> = (0..16)
        .map(|number| {
            let name = format!("one-of-{number}");
            lab::outlet(
                &context,
                info(&name, CHANNELS, 0.0, ChannelFormat::Double64),
            )
        })
        .collect();
    // Whoever reads and goes leaves it armed.
    drop(lab::inlet(&context, "one-of-0"));
    for outlet in &outlets {
        let mut next = 0;
        while next < 2000 {
            next = push(outlet, next, 1 + next % 50);
        }
    }
    let retained = || -> u64 { outlets.iter().map(|it| it.stats().retained_bytes).sum() };
    let all = retained();
    assert!((500_000..=1_101_004).contains(&all), "{all}");
    if in_campaign() {
        std::thread::sleep(Duration::from_secs(12));
        lab::until("nothing is retained", || retained() == 0);
    }
}
