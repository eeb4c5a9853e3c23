//! What outlets retain together, and what one source is sent again. Spec: resume §4.1, §4.3.

use std::net::IpAddr;
use std::sync::Arc;

use super::*;
use crate::limits::Host;
use crate::outlet::retention::{Retain, Share};
use crate::wire::sequence::{Generation, ReplayFrom};

const RETAINED: Variant = Fanout::<Sender>::RETAINED;

/// The defaults of the configuration.
const LIMITS: Retain = Retain {
    seconds: 30.0,
    bytes: 8 << 20,
    unread: false,
};
const TOTAL_BYTES: usize = 128 << 20;

fn retaining(share: &Arc<Share>) -> Fanout<Sender> {
    let mut fanout = Fanout::default();
    fanout.retain(Retention::new(LIMITS, Arc::clone(share), 0.0), 0.0);
    fanout
}

/// Publishes samples of 1,000 bytes.
fn publish(fanout: &mut Fanout<Sender>, samples: usize, now: f64) {
    publish_as(RETAINED, fanout, samples, now);
}

fn publish_as(variant: Variant, fanout: &mut Fanout<Sender>, samples: usize, now: f64) {
    let mut piece = Piece {
        bytes: vec![1; 1000 * samples],
        ends: (1..=samples).map(|it| it * 1000).collect(),
    };
    let at = Position {
        variant,
        first: fanout.logs[variant.index()].end(),
    };
    fanout.publish(&mut piece, at, Pushthrough::Flush, Inline::Budget, now);
}

#[test]
fn outlets_retain_no_more_than_the_total_and_nothing_after_their_time() {
    let outlets = 2000;
    let share = Arc::new(Share::new(TOTAL_BYTES));
    let mut fanouts: Vec<_> = (0..outlets).map(|_| retaining(&share)).collect();
    let retained = |fanouts: &[Fanout<Sender>]| -> usize {
        let bytes = fanouts.iter().map(|it| it.retained().0);
        bytes.sum()
    };
    for (number, fanout) in fanouts.iter_mut().enumerate() {
        // Alone, each would retain all of it.
        let samples = 1 + number % 64;
        for _ in 0..1000_usize.div_ceil(samples) {
            publish(fanout, samples, 10.0);
        }
    }
    let all = retained(&fanouts);
    assert!(all <= TOTAL_BYTES + TOTAL_BYTES / 20, "{all}");
    assert!(all > TOTAL_BYTES / 4, "{all}");
    for fanout in &mut fanouts {
        fanout.look_after_retention(30.0);
    }
    assert_eq!(retained(&fanouts), all);
    for fanout in &mut fanouts {
        fanout.look_after_retention(40.1);
    }
    assert_eq!(retained(&fanouts), 0);
    // Those that are left have all of the room.
    fanouts.truncate(4);
    let generation = Generation::parse(b"a-1").unwrap();
    let live = Live {
        edge: 1000,
        generation: &generation,
        nominal_srate: 0.0,
    };
    let fanout = &mut fanouts[0];
    fanout.replay(&ReplayFrom::Live, live, host(1), 50.0);
    publish(fanout, 9000, 50.0);
    publish(fanout, 1, 50.0);
    assert!(fanout.retained().0 <= 8 << 20);
    for _ in 0..9000 {
        publish(fanout, 1, 50.0);
    }
    assert!((7 << 20..=8 << 20).contains(&fanout.retained().0));
}

/// A stalled reader that asked for a long queue has the log of a relay grow no further.
#[test]
fn readers_that_lag_hold_no_more_than_may_be_retained_where_they_are_bounded() {
    let limits = FeedLimits {
        capacity: 1_000_000,
        ..LAZY
    };
    for (variant, is_granted) in [(RETAINED, true), (RETAINED, false), (VARIANT, false)] {
        let limits = FeedLimits {
            is_granted,
            ..limits
        };
        let held = |is_bounded: bool| {
            let share = Arc::new(Share::new(TOTAL_BYTES));
            let mut retention = Retention::new(LIMITS, share, 0.0);
            if is_bounded {
                retention.bound_readers();
            }
            let mut fanout = Fanout::default();
            fanout.retain(retention, 0.0);
            let socket = Sockets::default();
            let sender = Sender::new(&socket);
            fanout.join(sender, Rc::clone(&socket), variant, limits, 0..0);
            for second in 0..300 {
                publish_as(variant, &mut fanout, 64, f64::from(second));
            }
            let (_, _, progress) = fanout.consumers().next().unwrap();
            assert_eq!(progress.dropped + progress.behind, 300 * 64);
            fanout.logs[variant.index()].len_bytes()
        };
        assert_eq!(held(false), 300 * 64_000);
        let most = LIMITS.bytes;
        let bounded = held(true);
        assert!((most - (256 << 10)..=most).contains(&bounded), "{bounded}");
    }
}

fn host(number: u8) -> Host {
    Host::from(IpAddr::from([10, 0, 0, number]))
}

#[test]
fn a_source_that_asks_again_and_again_is_sent_no_more_than_its_budget() {
    let mut fanout = retaining(&Arc::new(Share::new(TOTAL_BYTES)));
    let samples = 10_000;
    for _ in 0..samples / 50 {
        publish(&mut fanout, 50, 10.0);
    }
    let generation = Generation::parse(b"a-1").unwrap();
    let live = Live {
        edge: samples,
        generation: &generation,
        nominal_srate: 0.0,
    };
    let mut ask = |from, host, now| {
        let replay = fanout.replay(&from, live, host, now);
        assert_eq!(replay.end, samples);
        1000 * (replay.end - replay.start)
    };
    let mut sent = 0;
    // For 20 s, a hundred times a second.
    for turn in 0..2000 {
        let now = 10.0 + f64::from(turn) / 100.0;
        sent += ask(ReplayFrom::Oldest, host(1), now);
        if turn % 500 == 0 {
            // Others have budgets of their own.
            assert!(ask(ReplayFrom::LastSamples(5000), host(2), now) >= 5_000_000);
        }
    }
    let budget = (4 * 8 + 20 * 4) << 20;
    assert!((budget - (16 << 20)..=budget).contains(&sent), "{sent}");
    let (_, _, refused) = fanout.retained();
    assert!(refused > 1900, "{refused}");
    // Nothing but what is sent again costs anything.
    let mut ask = |from, now| fanout.replay(&from, live, host(1), now);
    assert_eq!(ask(ReplayFrom::Live, 29.99), samples..samples);
    let position = crate::wire::sequence::Position {
        generation,
        next: samples,
    };
    assert_eq!(ask(ReplayFrom::At(position, None), 29.99), samples..samples);
    assert_eq!(fanout.retained().2, refused);
}

/// A connection that breaks while it catches up, and one that asks for more than any budget.
#[test]
fn a_reader_pays_for_what_it_was_sent_and_gets_the_newest_that_it_can_pay() {
    let mut fanout = retaining(&Arc::new(Share::new(TOTAL_BYTES)));
    publish(&mut fanout, 10, 10.0);
    // It waits for all.
    let (_, stalled) = join_granted(&mut fanout, 10..10);
    stalled.room.set(0);
    for _ in 0..1000 {
        publish(&mut fanout, 50, 10.0);
    }
    let generation = Generation::parse(b"a-1").unwrap();
    let live = Live {
        edge: 50_010,
        generation: &generation,
        nominal_srate: 0.0,
    };
    let from = ReplayFrom::At(
        crate::wire::sequence::Position {
            generation,
            next: 30_000,
        },
        None,
    );
    for _ in 0..20 {
        let replay = fanout.replay(&from, live, host(1), 10.0);
        assert_eq!(replay, 30_000..50_010);
        let (id, socket) = join_granted(&mut fanout, replay);
        socket.room.set(0);
        fanout.refund_replay(id, host(1), 10.0);
        fanout.refund_replay(id, host(1), 10.0);
        assert!(fanout.leave(id).is_ready());
    }
    let replay = fanout.replay(&ReplayFrom::Oldest, live, host(1), 10.0);
    let sent = 1000 * (replay.end - replay.start);
    assert!((31 << 20..=32 << 20).contains(&sent), "{replay:?}");
    assert_eq!(fanout.retained().2, 1);
}

fn join_granted(fanout: &mut Fanout<Sender>, replay: Range<u64>) -> (ConsumerId, Rc<Socket>) {
    let socket = Rc::new(Socket::default());
    let limits = FeedLimits {
        capacity: usize::MAX,
        is_granted: true,
        ..super::LIMITS
    };
    let sender = Sender::new(&socket);
    let id = fanout.join(sender, Rc::clone(&socket), RETAINED, limits, replay);
    (id, socket)
}

#[test]
fn a_reader_of_the_instance_before_gets_all_of_one_that_was_made_after_its_last_sample() {
    let mut fanout = retaining(&Arc::new(Share::new(TOTAL_BYTES)));
    publish(&mut fanout, 50, 1.0);
    let live = Live {
        edge: 50,
        generation: &Generation::parse(b"a-1").unwrap(),
        nominal_srate: 0.0,
    };
    let position = crate::wire::sequence::Position {
        generation: Generation::parse(b"a-0").unwrap(),
        next: 7,
    };
    let mut first = |silent_millis| {
        let from = ReplayFrom::At(position, silent_millis);
        fanout.replay(&from, live, host(1), 5.0).start
    };
    // It was made 5 s ago.
    assert_eq!(first(None), 0);
    assert_eq!(first(Some(5_500)), 0);
    assert_eq!(first(Some(4_500)), 50);
}

#[test]
fn an_outlet_that_is_closed_with_nothing_in_it_takes_no_share() {
    let share = Arc::new(Share::new(1 << 20));
    let most = || {
        let other = Retention::new(LIMITS, Arc::clone(&share), 0.0);
        other.most_bytes()
    };
    let mut fanouts = [(); 3].map(|()| retaining(&share));
    publish(&mut fanouts[0], 1, 1.0);
    assert_eq!(most(), 1 << 18);
    for fanout in &mut fanouts {
        fanout.close();
    }
    assert_eq!(most(), 1 << 19);
    // A reader that comes now changes that as little.
    let generation = Generation::parse(b"a-1").unwrap();
    let live = Live {
        edge: 1000,
        generation: &generation,
        nominal_srate: 0.0,
    };
    let replay = fanouts[1].replay(&ReplayFrom::Oldest, live, host(1), 2.0);
    assert_eq!((replay, most()), (1000..1000, 1 << 19));
}
