//! Relays that write a stream into a server which fails in every way: each sample is there, or in a gap that was
//! declared. Spec: relay §14, test 12.

mod faults;
mod jetstream;
mod server;

use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use lsl_proto::outlet::frames::{FrameCodec, Frames};
use lsl_proto::wire::sequence::Generation;
use lsl_proto::{ChannelFormat, StreamInfo};

use crate::config::EngineConfig;
use crate::engine::packed;
use crate::engine::spool::{Lane, Room, Source, Step};
use crate::engine::{Address, Engine, Meta};
use crate::id::RelayId;
use faults::{Chaos, Random};
use jetstream::SimulatedNats;
use server::Simulated;

/// A model of a server, and the engine on it.
trait Model: Clone {
    type Engine: Engine;
    fn new(seed: u64, chaos: Chaos) -> Self;
    fn engine(&self, config: &EngineConfig, relay: RelayId) -> Self::Engine;
    /// Sets the time, and returns how many appends were made up to now.
    fn go_on(&self, now: f64) -> usize;
    /// Has nothing go wrong any more.
    fn calm(&self);
}

/// What an outlet retains, for one who reads it.
#[derive(Debug, Clone)]
struct Past {
    log: Arc<Mutex<Log>>,
    next: u64,
}

#[derive(Debug)]
struct Log {
    codec: FrameCodec,
    random: Random,
    /// Ends of runs without a gap, each with its first sample.
    runs: Vec<(u64, u64)>,
    next: u64,
    retained: u64,
    has_ended: bool,
}

impl Log {
    fn new(meta: &Meta, seed: u64, retained: u64) -> Self {
        Self {
            codec: FrameCodec::new(&meta.info),
            random: Random(seed ^ 0xbeef),
            runs: Vec::new(),
            next: 0,
            retained,
            has_ended: false,
        }
    }

    fn push(&mut self, samples: u64) {
        let begin = self.next;
        self.next += samples;
        match self.runs.last_mut().filter(|(_, end)| *end == begin) {
            Some((_, end)) => *end = self.next,
            None => self.runs.push((begin, self.next)),
        }
    }

    fn frames(&self, first: u64, end: u64) -> Frames {
        #[expect(clippy::cast_precision_loss, reason = "small numbers")]
        let stamps: Vec<_> = (first..end).map(|n| n as f64 / 100.0).collect();
        let values: Vec<_> = (first..end).flat_map(u64::to_ne_bytes).collect();
        let mut frames = Frames {
            first,
            ..Frames::default()
        };
        self.codec.encode(&stamps, &values, &mut frames).unwrap();
        frames
    }

    fn has(&self, sample: u64) -> bool {
        self.runs
            .iter()
            .any(|(first, end)| (*first..*end).contains(&sample))
    }
}

impl Source for Past {
    fn next(&self) -> u64 {
        self.next
    }

    fn seek(&mut self, next: u64) {
        self.next = next;
    }

    fn read(&mut self, _most_bytes: usize, frames: &mut Frames) -> bool {
        let mut log = self.log.lock().unwrap();
        let from = self.next.max(log.next.saturating_sub(log.retained));
        let run = log.runs.iter().find(|(_, end)| from < *end);
        let Some((first, end)) = run.map(|(first, end)| (from.max(*first), *end)) else {
            return false;
        };
        let end = end.min(first + 1 + log.random.below(9));
        *frames = log.frames(first, end);
        self.next = end;
        true
    }

    fn end(&self) -> Option<u64> {
        let log = self.log.lock().unwrap();
        log.has_ended.then_some(log.next)
    }
}

/// One relay that writes the stream.
struct Writer<E> {
    engine: E,
    lane: Lane,
    past: Past,
    tended_at: f64,
}

fn meta() -> Meta {
    let info = StreamInfo::new("sim", "Test", 1, 100.0, ChannelFormat::Int64, "sim");
    let mut info = info.expect("an info");
    info.reset_uid("5eed");
    Meta {
        generation: Generation::parse(b"5eed").expect("a generation"),
        info: Arc::new(info),
    }
}

impl<E: Engine> Writer<E> {
    fn new(id: u64, meta: &Meta, server: &impl Model<Engine = E>, log: &Arc<Mutex<Log>>) -> Self {
        let config = EngineConfig::new(Address::parse("redis://simulated").expect("an address"));
        Self {
            engine: server.engine(&config, RelayId(id)),
            lane: Lane::new(&meta.info, Arc::new(Room::new(1 << 20))),
            past: Past {
                log: Arc::clone(log),
                next: 0,
            },
            tended_at: 0.0,
        }
    }

    /// Does what is to be done now. Returns whether it did something.
    fn step(&mut self, meta: &Meta, now: f64) -> bool {
        if now - self.tended_at >= 3.0 {
            self.tended_at = now;
            let _ = now_or_never(self.engine.tend(now));
            if !self.engine.holds(meta) {
                self.lane.doubt();
            }
        }
        match self.lane.poll(now) {
            Step::Open => {
                let opened = now_or_never(self.engine.open(meta));
                self.lane.opened(opened, &mut self.past, now);
            }
            Step::Append(batches) => {
                let appended = now_or_never(self.engine.append(meta, &batches));
                self.lane.appended(appended, now);
            }
            Step::Finish(end) => {
                let finished = now_or_never(self.engine.finish(meta, end));
                self.lane.finished(finished, now);
            }
            Step::Wait(_) | Step::Over => return false,
        }
        true
    }
}

/// The model answers at once.
fn now_or_never<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("the model waits for nothing"),
    }
}

/// What came out of a run.
#[derive(Debug, Default)]
struct Outcome {
    appends: usize,
    missing: u64,
    repeated: u64,
    lost: u64,
    setbacks: u64,
}

fn run<M: Model>(seed: u64, chaos: Chaos, relays: u64, retained: u64) -> Outcome {
    let meta = meta();
    let server = M::new(seed, chaos);
    let mut random = Random(seed ^ 0xfeed);
    let log = Arc::new(Mutex::new(Log::new(&meta, seed, retained)));
    let mut writers: Vec<_> = (1..=relays)
        .map(|id| Writer::new(id, &meta, &server, &log))
        .collect();
    let mut now = 0.0;
    for turn in 0..700 {
        {
            let mut log = log.lock().unwrap();
            log.push(1 + random.below(20));
            if random.below(40) == 0 {
                log.next += 1 + random.below(5);
            }
        }
        // The writer of the moment is away for longer than its lease.
        let away = (relays > 1 && turn % 200 > 150).then_some(turn / 200 % 2);
        for (writer, index) in writers.iter_mut().zip(0..) {
            if away == Some(index) {
                continue;
            }
            writer.lane.read(&mut writer.past);
            while random.below(8) > 0 && writer.step(&meta, now) {
                log.lock().unwrap().push(1 + random.below(5));
                writer.lane.read(&mut writer.past);
            }
        }
        now += if random.below(20) == 0 { 1.0 } else { 0.2 };
        server.go_on(now);
    }
    server.calm();
    log.lock().unwrap().has_ended = true;
    for turn in 0.. {
        assert!(
            turn < 10_000,
            "it does not end, seed {seed}: {:?}",
            writers[0].lane.trouble()
        );
        for writer in &mut writers {
            writer.lane.read(&mut writer.past);
            writer.step(&meta, now);
        }
        if writers
            .iter_mut()
            .all(|writer| writer.lane.poll(now) == Step::Over)
        {
            break;
        }
        now += 0.5;
        server.go_on(now);
    }
    let mut outcome = Outcome {
        appends: server.go_on(now),
        ..Outcome::default()
    };
    for writer in &writers {
        let counts = writer.lane.counts();
        outcome.lost += counts.lost;
        outcome.setbacks += counts.setbacks;
    }
    check(
        &writers[0].engine,
        &meta,
        &log.lock().unwrap(),
        &mut outcome,
        seed,
    );
    outcome
}

/// Reads all, as a reader does, and compares it with what was pushed.
fn check(engine: &impl Engine, meta: &Meta, log: &Log, outcome: &mut Outcome, seed: u64) {
    let codec = FrameCodec::new(&meta.info);
    let (mut next, mut has) = (0, Vec::new());
    loop {
        let batches = now_or_never(engine.read(meta, next, 1 << 20)).expect("batches");
        if batches.is_empty() {
            break;
        }
        for batch in batches {
            let (mut stamps, mut values) = (Vec::new(), Vec::new());
            codec
                .decode(&batch, &mut stamps, &mut values)
                .expect("frames");
            let values = values
                .as_chunks()
                .0
                .iter()
                .map(|it| u64::from_ne_bytes(*it));
            for (number, (value, stamp)) in (batch.first..).zip(values.zip(stamps)) {
                #[expect(clippy::cast_precision_loss, reason = "small numbers")]
                let expected = (number, number as f64 / 100.0);
                assert_eq!((value, stamp), expected, "seed {seed}");
                assert!(log.has(number), "nobody pushed {number}, seed {seed}");
                if number < next {
                    outcome.repeated += 1;
                } else {
                    next = number + 1;
                    has.push(number);
                }
            }
        }
    }
    let first = has.first().copied().unwrap_or(0);
    outcome.missing = (log.next - first) - has.len() as u64;
    if log.retained > log.next {
        let pushed: u64 = log.runs.iter().map(|(first, end)| end - first).sum();
        assert_eq!(has.len() as u64, pushed, "seed {seed}: {outcome:?}");
    }
}

fn ten_thousand_appends_are_stored_once<M: Model>(seeds: u64) {
    let chaos = Chaos {
        cuts: 60,
        full: 30,
        failovers: 30,
        restarts: 5,
        late: 0,
    };
    let (mut appends, mut setbacks) = (0, 0);
    for seed in 0..seeds {
        let outcome = run::<M>(seed, chaos, 1, u64::MAX);
        assert_eq!(outcome.repeated, 0, "seed {seed}");
        appends += outcome.appends;
        setbacks += outcome.setbacks;
    }
    assert!(appends > 10_000 && setbacks > 10, "{appends} {setbacks}");
}

fn two_relays_and_late_requests_leave_no_gap<M: Model>(seeds: u64) {
    let chaos = Chaos {
        cuts: 30,
        late: 30,
        full: 20,
        failovers: 5,
        restarts: 2,
    };
    let mut appends = 0;
    for seed in 100..100 + seeds {
        appends += run::<M>(seed, chaos, 2, u64::MAX).appends;
    }
    assert!(appends > 10_000, "{appends}");
}

/// The request of a relay that lost its lease comes when another one has written a part of it.
#[test]
fn a_request_that_comes_late_is_stored_whole_or_not_at_all() {
    let meta = meta();
    let server = Simulated::new(0, Chaos::default());
    let log = Arc::new(Mutex::new(Log::new(&meta, 0, u64::MAX)));
    let mut writer = Writer::new(2, &meta, &server, &log);
    let late = {
        let mut log = log.lock().unwrap();
        log.push(40);
        let batches = [(0, 20), (20, 40)].map(|(first, end)| Arc::new(log.frames(first, end)));
        log.next = 5;
        log.runs = vec![(0, 5)];
        let other = packed::Packed {
            relay: RelayId(1),
            min_replicas: 0,
            expiry_secs: None,
        };
        other.append(&meta, &batches).unwrap()
    };
    let mut now = 0.0;
    let mut steps = |writer: &mut Writer<_>| {
        for _ in 0..50 {
            now += 1.0;
            writer.lane.read(&mut writer.past);
            writer.step(&meta, now);
        }
    };
    steps(&mut writer);
    assert_eq!(writer.lane.counts().stored, 5);
    server.world().arrive(&late);
    log.lock().unwrap().push(55);
    steps(&mut writer);
    check(
        &writer.engine,
        &meta,
        &log.lock().unwrap(),
        &mut Outcome::default(),
        0,
    );
}

fn what_an_outlet_let_go_is_a_gap_of_known_size<M: Model>() {
    let chaos = Chaos {
        cuts: 30,
        full: 120,
        ..Chaos::default()
    };
    let mut lost = 0;
    for seed in 200..220 {
        let outcome = run::<M>(seed, chaos, 1, 60);
        assert_eq!(
            (outcome.missing, outcome.repeated),
            (outcome.lost, 0),
            "{seed}"
        );
        lost += outcome.lost;
    }
    assert!(lost > 500, "{lost}");
}

#[test]
fn redis_has_ten_thousand_appends_once_whatever_breaks() {
    ten_thousand_appends_are_stored_once::<Simulated>(80);
}

#[test]
fn redis_has_all_of_two_relays_and_of_requests_that_come_late() {
    two_relays_and_late_requests_leave_no_gap::<Simulated>(80);
}

#[test]
fn redis_lacks_what_an_outlet_had_to_let_go_and_no_more() {
    what_an_outlet_let_go_is_a_gap_of_known_size::<Simulated>();
}

#[test]
fn nats_has_ten_thousand_appends_once_whatever_breaks() {
    ten_thousand_appends_are_stored_once::<SimulatedNats>(20);
}

#[test]
fn nats_has_all_of_two_relays_and_of_requests_that_come_late() {
    two_relays_and_late_requests_leave_no_gap::<SimulatedNats>(20);
}

#[test]
fn nats_lacks_what_an_outlet_had_to_let_go_and_no_more() {
    what_an_outlet_let_go_is_a_gap_of_known_size::<SimulatedNats>();
}
