use std::net::UdpSocket;
use std::sync::mpsc::Receiver;
use std::thread;

use lsl_core::config::Config;
use lsl_core::{Outlet, Selector};

use lsl_xdf::Values;

use super::*;
use crate::record::writer::Progress;

fn context(name: &str) -> Context {
    let mut config = Config::loopback();
    let free = UdpSocket::bind(("127.0.0.1", 0)).unwrap();
    let port = free.local_addr().unwrap().port();
    config.set_ports(port.min(u16::MAX - 24), 24);
    let session = format!("record-{name}-{}", std::process::id());
    config.set_session_id(&session).unwrap();
    Context::new(config)
}

/// Numbers that arrived at the writer, and how many are said to be missing.
fn collect(receiver: &Receiver<Job>, progress: &Progress) -> (Vec<i32>, u64) {
    let (mut numbers, mut missing) = (Vec::new(), 0);
    while let Ok(job) = receiver.recv_timeout(Duration::from_secs(20)) {
        progress.note_taken(&job);
        match job {
            Job::Samples {
                values: Values::Int32(values),
                ..
            } => numbers.extend(values),
            Job::Gap { gap, .. } => missing += gap.samples.unwrap(),
            Job::Finish => return (numbers, missing),
            _ => {}
        }
    }
    panic!("the recording did not end");
}

#[test]
fn what_no_memory_holds_is_counted_to_the_last_sample() {
    const COUNT: i32 = 5000;
    let context = context("slow");
    let info = StreamInfo::new("slow", "EEG", 1, 100.0, ChannelFormat::Int32, "").unwrap();
    let outlet = Outlet::builder(info).context(&context).open().unwrap();
    let selector = Selector::property("name", "slow").unwrap();
    let limit = Duration::from_secs(10);
    let found = context.resolve_blocking(&selector, 1, limit).unwrap();
    // Room for a single job, and nobody takes it.
    let (queue, receiver) = Queue::with_room(1);
    let (halt, halted) = watch::channel(Halt::Go);
    let common = Common {
        other_keys: OtherKeys::Refuse,
        context,
        queue: queue.clone(),
        claims: Arc::default(),
        voice: Arc::default(),
        buffer_secs: 1.0,
        stamps: Stamps::Raw,
        halt: halted,
        end: Arc::default(),
    };
    let live = Arc::new(Live::new(0, &found[0], false, false));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_time()
        .build()
        .unwrap();
    let task = runtime.spawn(record(common, Arc::clone(&live), found[0].clone()));
    assert!(outlet.blocking().wait_for_consumers(limit));
    // Far more than a second of them, in portions that the outlet's own buffer for this reader holds.
    for number in 0..COUNT {
        outlet.push(&[number]).unwrap();
        if number % 50 == 49 {
            thread::sleep(Duration::from_millis(15));
        }
    }
    halt.send(Halt::Drain(local_clock(), local_clock() + 1.0))
        .unwrap();
    let progress = Arc::clone(queue.progress());
    let waiting = progress.waiting_bytes();
    assert!(
        waiting > 0 && !task.is_finished(),
        "the queue was never full"
    );
    let collecting = thread::spawn(move || collect(&receiver, &progress));
    while !task.is_finished() {
        thread::sleep(Duration::from_millis(5));
    }
    assert!(queue.push_blocking(Job::Finish));
    let (numbers, missing) = collecting.join().unwrap();
    assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]), "disorder");
    assert_eq!(*numbers.last().unwrap(), COUNT - 1);
    assert!(missing > 0, "nothing was dropped, so nothing was tested");
    let dropped_there = outlet.stats().dropped;
    assert_eq!(
        numbers.len() as u64 + missing + dropped_there,
        u64::from(COUNT.unsigned_abs())
    );
    assert_eq!(live.reading().missing, missing);
}

#[test]
fn irregular_streams_may_burst() {
    let of = |channels, rate, secs| {
        let info = StreamInfo::new("n", "t", channels, rate, ChannelFormat::Int32, "").unwrap();
        buffer::<i32>(&info, secs).to_samples(rate)
    };
    assert_eq!(of(1, 0.0, 30.0), BURST_SAMPLES);
    // A sample of 8 kB and its stamp.
    assert_eq!(of(2000, 0.0, 30.0), BURST_BYTES / 8008);
    // Who asks for more gets it.
    assert_eq!(of(2000, 0.0, 100_000.0), 10_000_000);
    assert_eq!(of(1, 500.0, 30.0), 15_000);
}
