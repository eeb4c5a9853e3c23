//! The past that inlets ask for, and losses that are told exactly.

use std::time::Duration;

use lsl_core::{
    BufferLength, ChannelFormat, Context, Error, GapReason, Generation, History, Inlet, Outlet,
    Position, ProcessingOptions, Retain, StreamInfo,
};

use lsl_core::relay::Run;

use super::cutting::Cutter;
use super::{Ends, RETAINING, info, rounds};
use crate::lab::{self, SOON};
use crate::pulling::block_on;

/// Pushes samples with these numbers.
fn push(outlet: &Outlet, numbers: std::ops::Range<i32>) {
    for number in numbers {
        outlet.push_at(&[number], 10.0 + f64::from(number)).unwrap();
    }
}

/// Pulls until the sample with this number. Returns all numbers.
fn pull_to(inlet: &Inlet, last: i32) -> Vec<i32> {
    let mut numbers = Vec::new();
    let mut value = [0];
    while numbers.last() != Some(&last) {
        let stamp = inlet.blocking().pull(&mut value, SOON).unwrap();
        assert_eq!(stamp, Some(10.0 + f64::from(value[0])));
        numbers.push(value[0]);
    }
    numbers
}

fn open(context: &Context, name: &str, from: History, buffer: BufferLength) -> Inlet {
    let builder = Inlet::builder(&lab::find(context, name));
    let inlet = builder.context(context).history(from).buffer(buffer);
    inlet.create().unwrap()
}

#[test]
fn late_readers_get_the_past_that_they_ask_for() {
    let context = lab::context_with(RETAINING);
    for srate in [0.0, 100.0] {
        let name = format!("past-{srate}");
        let outlet = lab::outlet(&context, info(&name, 1, srate, ChannelFormat::Int32));
        push(&outlet, 0..300);
        std::thread::sleep(Duration::from_millis(600));
        push(&outlet, 300..400);
        let first_of = |from, samples| {
            // A ring smaller than the past, and a program that is slow to pull: nothing is dropped.
            let inlet = open(&context, &name, from, BufferLength::Samples(16));
            inlet.blocking().open(SOON).unwrap();
            std::thread::sleep(Duration::from_millis(30));
            assert!(inlet.samples_available() <= 16);
            let numbers = pull_to(&inlet, 399);
            let stats = inlet.stats();
            assert_eq!(
                (stats.dropped, stats.replayed),
                (0, samples),
                "{from:?} {stats:?}"
            );
            assert_eq!(numbers.len() as u64, samples, "{from:?}");
            assert!(numbers.is_sorted_by(|one, next| next - one == 1));
            numbers[0]
        };
        assert_eq!(first_of(History::Oldest, 400), 0);
        assert_eq!(first_of(History::Samples(150), 150), 250);
        assert_eq!(first_of(History::Seconds(3600.0), 400), 0);
        if srate > 0.0 {
            // By the rate.
            assert_eq!(first_of(History::Seconds(0.2), 20), 380);
        }
        let live = open(&context, &name, History::Live, BufferLength::Samples(16));
        live.blocking().open(SOON).unwrap();
        push(&outlet, 400..402);
        assert_eq!(pull_to(&live, 401), [400, 401]);
    }
}

#[test]
fn a_second_inlet_goes_on_where_the_first_one_ended() {
    let context = lab::context_with(RETAINING);
    let outlet = lab::outlet(&context, info("handover", 1, 0.0, ChannelFormat::Int32));
    let first = lab::inlet(&context, "handover");
    assert_eq!(first.position().unwrap().next, 0);
    push(&outlet, 0..10);
    assert_eq!(pull_to(&first, 9).len(), 10);
    let position = first.position().unwrap();
    assert_eq!(position.generation.as_str(), outlet.info().uid());
    assert_eq!(position.next, 10);
    drop(first);
    push(&outlet, 10..20);
    let resume_at = |position| {
        let builder = Inlet::builder(&lab::find(&context, "handover"));
        builder
            .context(&context)
            .resume_at(position)
            .create()
            .unwrap()
    };
    let second = resume_at(position);
    push(&outlet, 20..25);
    assert_eq!(pull_to(&second, 24), (10..25).collect::<Vec<_>>());
    assert_eq!((second.stats().resumed, second.stats().lost_exact), (1, 0));
    assert!(
        second.ask_history(History::Oldest).is_err(),
        "it was opened"
    );
    // Another numbering: a young outlet gives all of itself.
    let other = Position {
        generation: Generation::parse(b"0123-abc").unwrap(),
        next: 1_000,
    };
    let third = resume_at(other);
    assert_eq!(pull_to(&third, 24).len(), 25);
    assert_eq!(third.stats().lost_unknown, 1);
    assert_eq!(third.take_gaps(usize::MAX)[0].lost, None);
}

#[test]
fn what_is_retained_is_told_to_who_does_not_read() {
    let context = lab::context_with(RETAINING);
    let ask = |context: &Context, name: &str| {
        let inlet = Inlet::builder(&lab::find(context, name)).context(context);
        let inlet = inlet.create().unwrap();
        let numbers = inlet.retained_blocking(SOON).unwrap();
        numbers.map(|it| (it.generation.to_string(), it.first, it.live))
    };
    for format in [ChannelFormat::Int32, ChannelFormat::String] {
        let outlet = lab::outlet(&context, info(format.name(), 3, 100.0, format));
        let uid = outlet.info().uid().into_owned();
        assert_eq!(ask(&context, format.name()), Some((uid.clone(), 0, 0)));
        outlet.skip(5).unwrap();
        for _ in 0..40 {
            outlet.push(&[1, 2, 3]).unwrap();
        }
        assert_eq!(ask(&context, format.name()), Some((uid, 5, 45)));
        assert_eq!(
            (outlet.have_consumers(), outlet.stats().consumers_seen),
            (false, 0)
        );
        assert_eq!(outlet.stats().replayed, 0);
    }
    let plain = lab::context_with(&[("tuning.RetainSeconds", "0")]);
    let _outlet = lab::outlet(&plain, info("plain", 1, 0.0, ChannelFormat::Int8));
    assert_eq!(ask(&plain, "plain"), None);
    let short = Retain {
        seconds: 0.05,
        bytes: 65_536,
        unread: false,
    };
    let info = info("old", 1, 0.0, ChannelFormat::Int32);
    let outlet = Outlet::builder(info).context(&context).retain(short);
    let outlet = outlet.open().unwrap();
    push(&outlet, 0..9);
    lab::until("end of the retention", || {
        ask(&context, "old").is_some_and(|(_, first, live)| (first, live) == (9, 9))
    });
}

#[test]
fn losses_are_told_to_the_sample() {
    let ends = Ends::plain();
    let retain = Retain {
        seconds: 30.0,
        bytes: 65_536,
        unread: false,
    };
    let info = info("exact", 1, 0.0, ChannelFormat::Int32);
    let outlet = Outlet::builder(info)
        .context(&ends.outlet)
        .retain(retain)
        .open()
        .unwrap();
    let cutter = Cutter::start(&lab::find(&ends.inlet, "exact"), 1, 0);
    cutter.rest(true);
    let inlet = ends.inlet_through("exact", &cutter);
    push(&outlet, 0..10);
    let mut pulled = pull_to(&inlet, 9).len();
    // Longer than what is retained.
    let mut next = 10;
    let rounds = rounds(3);
    for round in 1..=rounds {
        cutter.close(true);
        lab::until("nobody reads", || !outlet.have_consumers());
        let samples = 12_000 + i32::try_from(round * 7919 % 10_000).unwrap();
        push(&outlet, next..next + samples);
        next += samples;
        cutter.close(false);
        lab::until("it is back", || inlet.stats().reconnects == round);
        push(&outlet, next..next + 1);
        next += 1;
        pulled += pull_to(&inlet, next - 1).len();
        let stats = inlet.stats();
        assert_eq!(
            stats.lost_exact + pulled as u64,
            u64::try_from(next).unwrap(),
            "{stats:?}"
        );
        assert!(stats.lost_exact > 0);
    }
    let gaps = inlet.take_gaps(usize::MAX);
    let lost: u64 = gaps.iter().filter_map(|gap| gap.lost).sum();
    assert_eq!(
        (gaps.len() as u64, lost),
        (rounds, inlet.stats().lost_exact)
    );
    assert_eq!(gaps[0].reason, GapReason::NotRetained);
    assert_eq!((gaps[0].sequence, gaps[0].stamp_before), (10, Some(19.0)));
    // The program knows that its device lost some.
    outlet.skip(5).unwrap();
    push(&outlet, next..next + 1);
    pull_to(&inlet, next);
    let gap = inlet.take_gaps(usize::MAX);
    assert_eq!((gap[0].lost, gap[0].reason), (Some(5), GapReason::Skipped));
}

#[test]
fn a_restarted_outlet_gives_everything_since_its_start() {
    let context = lab::context_with(RETAINING);
    let restart = || lab::outlet(&context, info("again", 1, 0.0, ChannelFormat::Int32));
    let mut outlet = restart();
    let inlet = lab::inlet(&context, "again");
    for round in 1..=rounds(2) {
        push(&outlet, 2..10);
        assert_eq!(pull_to(&inlet, 9), (2..10).collect::<Vec<_>>());
        drop(outlet);
        // A program takes a moment to start; what was there before the end counts as a spare.
        std::thread::sleep(Duration::from_millis(100));
        outlet = restart();
        // Before the inlet has found it.
        push(&outlet, 0..1);
        assert_eq!(pull_to(&inlet, 0), [0]);
        let stats = inlet.stats();
        assert_eq!((stats.generations, stats.lost_unknown), (round + 1, round));
        push(&outlet, 1..2);
        pull_to(&inlet, 1);
    }
}

#[test]
fn without_numbers_everything_is_as_before() {
    for settings in [
        &[("tuning.RetainSeconds", "0")][..],
        &[("tuning.Resume", "0")],
        &[("tuning.UseProtocolVersion", "100")],
    ] {
        let settings = [RETAINING, settings].concat();
        let context = lab::context_with(&settings);
        let outlet = lab::outlet(&context, info("plain", 1, 0.0, ChannelFormat::Int32));
        let cutter = Cutter::start(&lab::find(&context, "plain"), 1, 0);
        cutter.rest(true);
        let described = cutter.in_place_of(&lab::find(&context, "plain"));
        let inlet = Inlet::builder(&described)
            .context(&context)
            .create()
            .unwrap();
        inlet.blocking().open(SOON).unwrap();
        push(&outlet, 0..3);
        assert_eq!(pull_to(&inlet, 2), [0, 1, 2]);
        assert_eq!(inlet.position(), None);
        cutter.close(true);
        lab::until("nobody reads", || !outlet.have_consumers());
        push(&outlet, 3..6);
        cutter.close(false);
        lab::until("it is back", || {
            outlet.have_consumers() && inlet.stats().reconnects == 1
        });
        push(&outlet, 6..7);
        assert_eq!(pull_to(&inlet, 6), [6]);
        let asks = !settings.contains(&("tuning.Resume", "0"));
        assert_eq!(inlet.stats().lost_unknown, u64::from(asks), "{settings:?}");
        let past = |from| {
            let builder = Inlet::builder(&described).context(&context);
            builder.history(from).create().is_ok()
        };
        assert_eq!((past(History::Live), past(History::Oldest)), (true, asks));
    }
}

/// As programs that wait for `lslx_inlet_fd`: they never block in a pull.
#[test]
fn event_loops_get_a_past_that_is_larger_than_the_ring() {
    let context = lab::context_with(RETAINING);
    let outlet = lab::outlet(&context, info("events", 1, 0.0, ChannelFormat::Int32));
    push(&outlet, 0..400);
    let inlet = open(
        &context,
        "events",
        History::Oldest,
        BufferLength::Samples(16),
    );
    let (told, news) = std::sync::mpsc::channel();
    inlet.set_notifier(move || {
        let _ = told.send(());
    });
    inlet.blocking().open(SOON).unwrap();
    let (mut pulled, mut value) = (0, [0]);
    loop {
        while inlet.try_pull(&mut value).unwrap().is_some() {
            assert_eq!(value, [pulled]);
            pulled += 1;
        }
        if pulled == 400 {
            break;
        }
        let told = news.recv_timeout(Duration::from_secs(5));
        assert!(told.is_ok(), "after {pulled} samples: {:?}", inlet.stats());
    }
}

/// UDP is filtered, and the answer of the outlet's clock lies behind a past that has no room in the ring.
#[test]
fn a_past_that_is_larger_than_the_ring_does_not_keep_the_clock_waiting() {
    let ends = Ends::encrypted();
    let outlet = Outlet::builder(info("clock", 1, 0.0, ChannelFormat::Int32));
    let outlet = outlet.context(&ends.outlet).open().unwrap();
    push(&outlet, 0..40_000);
    let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut info = lab::find(&ends.inlet, "clock");
    info.set_v4_ports(info.v4_data_port(), silent.local_addr().unwrap().port());
    let inlet = Inlet::builder(&info)
        .context(&ends.inlet)
        .history(History::Oldest)
        .buffer(BufferLength::Samples(16))
        .processing(ProcessingOptions::CLOCKSYNC)
        .create()
        .unwrap();
    for number in 0..40_000 {
        let mut value = [0];
        let stamp = inlet.blocking().pull(&mut value, SOON).unwrap();
        assert!(stamp.is_some());
        assert_eq!(value, [number]);
    }
}

#[test]
fn runs_are_pulled_as_they_came_with_their_numbers_and_end_before_losses() {
    let context = lab::context_with(RETAINING);
    let outlet = lab::outlet(&context, info("runs", 1, 0.0, ChannelFormat::Int32));
    push(&outlet, 0..3);
    outlet.skip(4).unwrap();
    push(&outlet, 7..9);
    let inlet = open(&context, "runs", History::Oldest, BufferLength::default());
    let mut runs = Vec::new();
    let mut total = 0;
    while total < 5 {
        let mut run = Run::default();
        let pulling = inlet.pull_run(100, &mut run, Duration::from_secs(20));
        assert!(block_on(pulling).unwrap());
        total += run.stamps.len();
        runs.push(run);
    }
    let numbers = |run: &Run| -> Vec<i32> {
        let (values, _) = run.values.as_chunks();
        values.iter().copied().map(i32::from_ne_bytes).collect()
    };
    let all: Vec<_> = runs.iter().flat_map(numbers).collect();
    assert_eq!(all, [0, 1, 2, 7, 8]);
    for run in &runs {
        let first = run.first.map(|position| position.next);
        assert_eq!(first, u64::try_from(numbers(run)[0]).ok());
        let stamps = numbers(run).into_iter().map(|it| 10.0 + f64::from(it));
        assert!(run.stamps.iter().copied().eq(stamps));
    }
    let losses: Vec<_> = runs.iter().flat_map(|run| &run.losses).collect();
    let [loss] = losses[..] else {
        panic!("{losses:?}");
    };
    assert_eq!(
        (loss.lost, loss.reason, loss.received),
        (Some(4), GapReason::Skipped, 3)
    );
    let mut run = Run::default();
    let none = block_on(inlet.pull_run(1, &mut run, Duration::from_millis(10)));
    assert!(!none.unwrap());
}

#[test]
fn who_comes_with_foreign_numbers_reads_on_with_those_of_the_outlet() {
    let context = lab::context_with(RETAINING);
    let outlet = lab::outlet(&context, info("foreign", 1, 0.0, ChannelFormat::Int32));
    let generation = Generation::parse(b"0-0").unwrap();
    let next = 5000;
    let builder = Inlet::builder(&lab::find(&context, "foreign")).context(&context);
    let inlet = builder.resume_at(Position { generation, next });
    let inlet = inlet.create().unwrap();
    inlet.blocking().open(SOON).unwrap();
    let first = inlet.next_run().unwrap();
    assert_eq!(
        (first.generation.to_string(), first.next),
        (outlet.info().uid().into_owned(), 0)
    );
    push(&outlet, 0..3);
    let mut run = Run::default();
    let pulling = inlet.pull_run(100, &mut run, Duration::from_secs(20));
    assert!(block_on(pulling).unwrap());
    assert_eq!(run.first, Some(first));
    assert_eq!(run.losses[0].lost, None);
}

/// Streams without source id are lost if nothing goes on at once.
#[test]
fn a_stream_that_cannot_be_recovered_goes_on_after_a_cut_in_its_next_handshake() {
    for ends in [Ends::plain(), Ends::encrypted()] {
        let nameless = StreamInfo::new("nameless", "Test", 1, 0.0, ChannelFormat::Int32, "");
        let outlet = Outlet::builder(nameless.unwrap()).context(&ends.outlet);
        let outlet = outlet.open().unwrap();
        let cutter = Cutter::start(&lab::find(&ends.inlet, "nameless"), 1, 0);
        cutter.rest(true);
        let inlet = ends.inlet_through("nameless", &cutter);
        push(&outlet, 0..10);
        assert_eq!(pull_to(&inlet, 9).len(), 10);
        cutter.turn_away();
        push(&outlet, 10..20);
        assert_eq!(pull_to(&inlet, 19), (10..20).collect::<Vec<_>>());
        let stats = inlet.stats();
        assert_eq!((stats.resumed, stats.lost_unknown), (1, 0), "{stats:?}");
    }
}

#[test]
fn a_number_that_the_outlet_has_not_given_yet_begins_live() {
    let context = lab::context_with(RETAINING);
    let nameless = StreamInfo::new("future", "Test", 1, 0.0, ChannelFormat::Int32, "");
    let outlet = lab::outlet(&context, nameless.unwrap());
    push(&outlet, 0..5);
    let resume_at = |next| {
        let position = Position {
            generation: Generation::parse(outlet.info().uid().as_bytes()).unwrap(),
            next,
        };
        let builder = Inlet::builder(&lab::find(&context, "future"));
        builder.context(&context).resume_at(position).create()
    };
    assert!(matches!(resume_at(1 << 63), Err(Error::Argument(_))));
    for secs in [-1.0, f64::NAN] {
        let builder = Inlet::builder(&lab::find(&context, "future")).context(&context);
        let refused = builder.history(History::Seconds(secs)).create();
        assert!(matches!(refused, Err(Error::Argument(_))));
    }
    let inlet = resume_at(100).unwrap();
    assert_eq!(inlet.position(), None, "it was not opened");
    inlet.blocking().open(SOON).unwrap();
    assert_eq!(inlet.position().unwrap().next, 5);
    push(&outlet, 5..7);
    assert_eq!(pull_to(&inlet, 6), [5, 6]);
    assert_eq!(inlet.stats().lost_unknown, 1);
    assert_eq!(inlet.take_gaps(usize::MAX)[0].lost, None);
}
