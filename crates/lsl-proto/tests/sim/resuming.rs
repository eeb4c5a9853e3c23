//! Feeds that break and go on where they broke, and the past that inlets ask for. Spec: resume.

use std::cell::Cell;

use lsl_proto::inlet::{LostSamples, SampleRing};
use lsl_proto::outlet::retention::Retain;
use lsl_proto::wire::sequence::{GapReason, ReplayFrom};
use lsl_secure::Policy;

use crate::dice::seeds;
use crate::peers::Identity;
use crate::programs::{InletId, OutletId};
use crate::tcp::{FaultKind, Side};
use crate::world::World;

/// Far longer than any of the outages here.
const HOURS: Retain = Retain {
    seconds: 1e5,
    bytes: 8 << 20,
    unread: false,
};

/// An outlet that retains its samples, in a network of any speed.
fn outlet(world: &mut World, identity: Identity, retain: Retain) -> OutletId {
    world.network.window = 1 << (10 + world.dice.below(8));
    world.network.tcp_delay = (20e-6, 10_f64.powf(-4.0 + 3.0 * world.dice.share()));
    let host = world.add_host();
    let outlet = world.open_outlet(host, "stream", identity, 1 << 20);
    let now = world.local(host);
    world.outlet(outlet).retain(retain, now);
    outlet
}

/// An inlet that asks for what came before, with a ring of so many samples.
fn asking(
    world: &mut World,
    outlet: OutletId,
    identity: Identity,
    from: ReplayFrom,
    ring: usize,
) -> InletId {
    let host = world.add_host();
    let inlet = world.open_inlet(host, outlet, identity);
    world.inlet(inlet).feed.ring = SampleRing::new(ring, usize::MAX);
    world.inlet(inlet).feed.ask_for(from);
    world.await_open(inlet);
    inlet
}

fn plain(world: &mut World, outlet: OutletId) -> InletId {
    asking(world, outlet, Identity::off(), ReplayFrom::Live, 1 << 20)
}

fn push_at_random(world: &mut World, outlet: OutletId, chunks: u32) {
    for _ in 0..chunks {
        let samples = 1 + u32::try_from(world.dice.below(40)).unwrap();
        world.push(outlet, samples);
        let pause = 10_f64.powf(-6.0 + 5.0 * world.dice.share());
        world.run_for(pause);
    }
}

/// Cuts the present connection of an inlet at some byte that follows.
fn cut(world: &mut World, inlet: InletId, most: u64) {
    let to = if world.dice.happens(0.1) {
        Side::Outlet
    } else {
        Side::Inlet
    };
    let kind = if world.dice.happens(0.5) {
        FaultKind::Cut
    } else {
        FaultKind::Reset
    };
    let bytes = usize::try_from(world.dice.below(most)).unwrap();
    if let Some(connection) = world.connections.get(&world.inlets[inlet].connection) {
        connection.link.break_after(to, bytes, kind);
    }
}

/// Checks that every sample came once, as one connection after the other went on with it.
fn check_whole(world: &mut World, outlet: OutletId, inlet: InletId) {
    world.await_samples(inlet, outlet);
    let pushed = world.outlet(outlet).pushed;
    let inlet = world.inlet(inlet);
    assert!(inlet.pulled.iter().copied().eq(0..pushed));
    let (counts, resumed) = (inlet.feed.counts(), inlet.feed.resume_counts());
    assert_eq!((resumed.lost_exact, resumed.lost_unknown), (0, 0));
    assert_eq!(
        (resumed.resumed, resumed.generations),
        (counts.reconnects, 1)
    );
    assert_eq!(inlet.feed.position().unwrap().next, u64::from(pushed));
}

#[test]
fn a_feed_that_breaks_at_any_byte_again_and_again_loses_nothing() {
    seeds(|seed| {
        let mut world = World::new(seed);
        let outlet = outlet(&mut world, Identity::off(), HOURS);
        let inlet = plain(&mut world, outlet);
        for _ in 0..10 {
            cut(&mut world, inlet, 2000);
            push_at_random(&mut world, outlet, 10);
            let pause = world.dice.share();
            world.run_for(pause);
        }
        check_whole(&mut world, outlet, inlet);
        assert!(world.inlet(inlet).feed.counts().reconnects > 2);
        assert!(world.inlet(inlet).feed.resume_counts().replayed > 0);
    });
}

#[test]
fn a_session_that_breaks_between_its_keys_loses_nothing() {
    seeds(|seed| {
        let mut world = World::new(seed);
        let amp = Identity::new("amp", Policy::Required, &["rec"]);
        let rec = Identity::new("rec", Policy::Required, &["amp"]);
        let outlet = outlet(&mut world, amp, HOURS);
        let inlet = asking(&mut world, outlet, rec, ReplayFrom::Live, 1 << 20);
        for round in 1..=3 {
            push_at_random(&mut world, outlet, 5);
            world.run_for(3700.0);
            // Its first record changes the key.
            push_at_random(&mut world, outlet, 5);
            world.run_for(1.0);
            assert_eq!(u64::from(world.inlet(inlet).key_updates), round);
            cut(&mut world, inlet, 200);
            push_at_random(&mut world, outlet, 20);
            // What goes to the outlet are PINGs.
            let deadline = world.now + 600.0;
            let is_back = |it: &mut World| it.inlet(inlet).feed.counts().reconnects == round;
            assert!(world.run_until(deadline, is_back));
        }
        check_whole(&mut world, outlet, inlet);
    });
}

/// Checks that the inlet knows of every sample that it did not get.
fn check_gaps(world: &mut World, outlet: OutletId, inlet: InletId) -> Vec<LostSamples> {
    world.await_samples(inlet, outlet);
    let pushed = u64::from(world.outlet(outlet).pushed);
    let inlet = world.inlet(inlet);
    let gaps = inlet.feed.take_gaps(usize::MAX);
    let mut next = 0;
    let mut told = gaps.iter().peekable();
    for number in &inlet.pulled {
        if let Some(gap) = told.next_if(|gap| gap.sequence == next) {
            next += gap.lost.unwrap();
        }
        assert_eq!(u64::from(*number), next);
        next += 1;
    }
    assert_eq!((told.next(), next), (None, pushed));
    let lost: u64 = gaps.iter().filter_map(|gap| gap.lost).sum();
    assert_eq!(inlet.feed.resume_counts().lost_exact, lost);
    gaps
}

#[test]
fn what_is_not_retained_any_more_is_lost_to_the_sample() {
    // Nothing is, if the outlet hears of the cut only after the inlet is back.
    let losses = Cell::new(0);
    seeds(|seed| {
        let mut world = World::new(seed);
        let little = Retain {
            bytes: 64 * 1024,
            ..HOURS
        };
        let outlet = outlet(&mut world, Identity::off(), little);
        let inlet = plain(&mut world, outlet);
        push_at_random(&mut world, outlet, 5);
        let connection = &world.connections[&world.inlets[inlet].connection];
        (connection.link).break_after(Side::Inlet, 100, FaultKind::Cut);
        for _ in 0..200 {
            let samples = 1 + u32::try_from(world.dice.below(100)).unwrap();
            world.push(outlet, samples);
        }
        world.run_for(5.0);
        push_at_random(&mut world, outlet, 5);
        let gaps = check_gaps(&mut world, outlet, inlet);
        let reasons = [GapReason::NotRetained, GapReason::ReaderTooSlow];
        assert!(gaps.iter().all(|gap| reasons.contains(&gap.reason)));
        losses.set(losses.get() + gaps.len());
    });
    assert!(losses.get() > 0);
}

#[test]
fn a_reader_that_is_too_slow_is_told_what_was_dropped_also_over_a_cut() {
    seeds(|seed| {
        let mut world = World::new(seed);
        let little = Retain {
            bytes: 64 * 1024,
            ..HOURS
        };
        let outlet = outlet(&mut world, Identity::off(), little);
        world.outlet(outlet).options.capacity_samples = 50;
        let inlet = plain(&mut world, outlet);
        for _ in 0..5 {
            let dropped = world.outlet(outlet).fanout.totals().1;
            // Faster than any network here.
            while world.outlet(outlet).fanout.totals().1 == dropped {
                world.push(outlet, 40);
            }
            world.run_for(1.0);
        }
        let gaps = check_gaps(&mut world, outlet, inlet);
        let lost: u64 = gaps.iter().filter_map(|gap| gap.lost).sum();
        assert_eq!(lost, world.outlet(outlet).fanout.totals().1);
        assert!(
            gaps.iter()
                .all(|gap| gap.reason == GapReason::ReaderTooSlow)
        );
        for _ in 0..5 {
            cut(&mut world, inlet, 5000);
            for _ in 0..20 {
                world.push(outlet, 40);
            }
            push_at_random(&mut world, outlet, 2);
            world.run_for(2.0);
        }
        world.await_samples(inlet, outlet);
        let resumed = *world.inlet(inlet).feed.resume_counts();
        assert_eq!(resumed.lost_unknown, 0);
        // The identity of §6.
        let pulled = world.inlet(inlet).pulled.len() as u64;
        assert_eq!(
            pulled + resumed.lost_exact,
            u64::from(world.outlet(outlet).pushed)
        );
    });
}

#[test]
fn a_ring_smaller_than_the_past_holds_the_outlet_back() {
    seeds(|seed| {
        let mut world = World::new(seed);
        let outlet = outlet(&mut world, Identity::off(), HOURS);
        push_at_random(&mut world, outlet, 50);
        let pushed = world.outlet(outlet).pushed;
        let past = 1 + u32::try_from(world.dice.below(u64::from(pushed))).unwrap();
        let from = if past == pushed {
            ReplayFrom::Oldest
        } else {
            ReplayFrom::LastSamples(past.into())
        };
        let ring = 1 + usize::try_from(world.dice.below(50)).unwrap();
        let inlet = asking(&mut world, outlet, Identity::off(), from, ring);
        world.await_samples(inlet, outlet);
        let inlet = world.inlet(inlet);
        assert_eq!(inlet.feed.ring.dropped(), 0);
        assert!(inlet.pulled.iter().copied().eq(pushed - past..pushed));
        assert_eq!(inlet.feed.resume_counts().replayed, u64::from(past));
    });
}

#[test]
fn an_outlet_that_restarts_gives_all_of_itself() {
    seeds(|seed| {
        let mut world = World::new(seed);
        let mut present = outlet(&mut world, Identity::off(), HOURS);
        let inlet = plain(&mut world, present);
        for round in 1..4 {
            push_at_random(&mut world, present, 5);
            world.await_samples(inlet, present);
            let (host, before) = (world.outlets[present].host, present);
            world.kill_outlet(present);
            // A program takes a moment to start; what was there before the end counts as a spare.
            world.run_for(0.5);
            present = world.open_outlet(host, "stream", Identity::off(), 1 << 20);
            let (origin, now) = (world.outlet(before).pushed, world.local(host));
            let outlet = world.outlet(present);
            (outlet.pushed, outlet.origin) = (origin, origin);
            outlet.retain(HOURS, now);
            // Before the inlet has found it.
            push_at_random(&mut world, present, 5);
            world.run_for(5.0);
            world.await_samples(inlet, present);
            let pushed = world.outlet(present).pushed;
            let inlet = world.inlet(inlet);
            assert!(inlet.pulled.iter().copied().eq(0..pushed));
            let resumed = inlet.feed.resume_counts();
            assert_eq!(
                (resumed.lost_unknown, resumed.generations),
                (round, round + 1)
            );
            assert_eq!(resumed.lost_exact, 0);
        }
    });
}
