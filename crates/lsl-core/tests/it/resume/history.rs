//! The past that inlets ask for, and losses that are told exactly.

use std::time::Duration;

use lsl_core::{
    BufferLength, ChannelFormat, Context, GapReason, History, Inlet, Outlet, Position, Retain,
};

use super::cutting::Cutter;
use super::{Ends, RETAINING, info};
use crate::lab::{self, SOON};

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
        generation: lsl_core::Generation::parse(b"0123-abc").unwrap(),
        next: 1_000,
    };
    let third = resume_at(other);
    assert_eq!(pull_to(&third, 24).len(), 25);
    assert_eq!(third.stats().lost_unknown, 1);
    assert_eq!(third.take_gaps()[0].lost, None);
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
    for round in 1..4 {
        cutter.close(true);
        lab::until("nobody reads", || !outlet.have_consumers());
        push(&outlet, next..next + 20_000);
        next += 20_000;
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
    let gaps = inlet.take_gaps();
    let lost: u64 = gaps.iter().filter_map(|gap| gap.lost).sum();
    assert_eq!((gaps.len(), lost), (3, inlet.stats().lost_exact));
    assert_eq!(gaps[0].reason, GapReason::NotRetained);
    assert_eq!((gaps[0].sequence, gaps[0].stamp_before), (10, Some(19.0)));
    // The program knows that its device lost some.
    outlet.skip(5).unwrap();
    push(&outlet, next..next + 1);
    pull_to(&inlet, next);
    let gap = inlet.take_gaps();
    assert_eq!((gap[0].lost, gap[0].reason), (Some(5), GapReason::Skipped));
}

#[test]
fn a_restarted_outlet_gives_everything_since_its_start() {
    let context = lab::context_with(RETAINING);
    let restart = || lab::outlet(&context, info("again", 1, 0.0, ChannelFormat::Int32));
    let mut outlet = restart();
    let inlet = lab::inlet(&context, "again");
    for round in 1..3 {
        push(&outlet, 2..10);
        assert_eq!(pull_to(&inlet, 9), (2..10).collect::<Vec<_>>());
        drop(outlet);
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
    }
}
