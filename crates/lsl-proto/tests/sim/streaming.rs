//! Samples on their way from outlets to inlets, over connections good and bad.

use lsl_proto::inlet::SampleRing;
use lsl_proto::outlet::Pushthrough;

use crate::dice::seeds;
use crate::peers::Identity;
use crate::programs::{InletId, OutletId};
use crate::tcp::{Fault, FaultKind, Side};
use crate::world::{HostId, World};

/// An outlet on a host of its own, in a network of any speed.
fn outlet(world: &mut World, capacity: usize) -> OutletId {
    world.network.window = 1 << (9 + world.dice.below(9));
    world.network.tcp_delay = (20e-6, 10_f64.powf(-4.0 + 3.0 * world.dice.share()));
    let host = world.add_host();
    world.open_outlet(host, "stream", Identity::off(), capacity)
}

/// An open inlet for it on another host.
fn inlet(world: &mut World, outlet: OutletId) -> InletId {
    let host = world.add_host();
    let inlet = world.open_inlet(host, outlet, Identity::off());
    world.await_open(inlet);
    inlet
}

/// A reader in the hands of the test.
fn raw_reader(world: &mut World, host: HostId, outlet: OutletId) -> usize {
    let peer = world.dial(host, outlet);
    world.say(
        peer,
        b"LSL:streamfeed/110\r\nMax-Buffer-Length: 1000000\r\n\r\n",
    );
    peer
}

/// Pushes chunks of all sizes with pauses of all lengths.
fn push_at_random(world: &mut World, outlet: OutletId, chunks: u32) {
    for _ in 0..chunks {
        let samples = 1 + u32::try_from(world.dice.below(40)).unwrap();
        world.push(outlet, samples);
        let pause = 10_f64.powf(-6.0 + 5.0 * world.dice.share());
        world.run_for(pause);
    }
}

/// Returns the samples that no connection carried, and nobody counted as dropped.
fn uncounted(world: &mut World, outlet: OutletId, inlet: InletId, from: u32) -> i64 {
    let pushed = i64::from(world.outlet(outlet).pushed - from);
    let dropped = world.outlet(outlet).fanout.totals().1 + world.inlet(inlet).feed.ring.dropped();
    let pulled = world.inlet(inlet).pulled.len();
    pushed - i64::try_from(dropped).unwrap() - i64::try_from(pulled).unwrap()
}

#[test]
fn everything_arrives_once_and_in_order() {
    seeds(|seed| {
        let mut world = World::new(seed);
        let outlet = outlet(&mut world, 1 << 20);
        let inlet = inlet(&mut world, outlet);
        push_at_random(&mut world, outlet, 50);
        world.await_samples(inlet, outlet);
        let pushed = world.outlet(outlet).pushed;
        assert!(world.inlet(inlet).pulled.iter().copied().eq(0..pushed));
        assert_eq!(world.inlet(inlet).feed.counts().reconnects, 0);
    });
}

#[test]
fn protocol_1_00_carries_the_same_samples_beside_1_10() {
    seeds(|seed| {
        let mut world = World::new(seed);
        let outlet = outlet(&mut world, 1 << 20);
        let new = inlet(&mut world, outlet);
        let host = world.add_host();
        let old = world.open_inlet(host, outlet, Identity::off());
        world.inlet(old).options.version = 100;
        world.await_open(old);
        push_at_random(&mut world, outlet, 20);
        for inlet in [old, new] {
            world.await_samples(inlet, outlet);
            assert_eq!(uncounted(&mut world, outlet, inlet, 0), 0);
        }
    });
}

#[test]
fn a_slow_reader_loses_the_oldest_and_both_sides_count_it() {
    seeds(|seed| {
        let mut world = World::new(seed);
        let outlet = outlet(&mut world, 50);
        let inlet = inlet(&mut world, outlet);
        world.inlet(inlet).feed.ring = SampleRing::new(10, usize::MAX);
        world.inlet(inlet).set_pulls(None);
        for _ in 0..300 {
            world.push(outlet, 1);
            if world.dice.happens(0.1) {
                world.run_for(1e-3);
            }
        }
        let is_settled = |it: &mut World| {
            let dropped = it.outlet(outlet).fanout.totals().1;
            dropped + it.inlet(inlet).feed.counts().samples == 300
        };
        let deadline = world.now + 20.0;
        assert!(world.run_until(deadline, is_settled));
        let feed = &world.inlet(inlet).feed;
        assert_eq!(feed.ring.len(), 10);
        assert_eq!(feed.ring.dropped() + 10, feed.counts().samples);
        world.inlet(inlet).set_pulls(Some(1e-3));
        world.drive_inlet(inlet);
        world.await_samples(inlet, outlet);
        assert!(world.inlet(inlet).pulled.iter().copied().eq(290..300));
    });
}

#[test]
fn held_samples_wait_for_a_flush_and_a_chunk_size_flushes() {
    seeds(|seed| {
        let mut world = World::new(seed);
        let outlet = outlet(&mut world, 100);
        let host = world.add_host();
        let inlet = world.open_inlet(host, outlet, Identity::off());
        world.inlet(inlet).options.max_chunk_samples = 4;
        world.await_open(inlet);
        let received = |world: &mut World| {
            world.run_for(1.0);
            world.inlet(inlet).pulled.len()
        };
        for _ in 0..3 {
            world.push_with(outlet, 1, Pushthrough::Hold);
        }
        assert_eq!(received(&mut world), 0);
        world.push_with(outlet, 1, Pushthrough::Hold);
        assert_eq!(received(&mut world), 4);
        world.push_with(outlet, 1, Pushthrough::Hold);
        assert_eq!(received(&mut world), 4);
        world.push(outlet, 1);
        assert_eq!(received(&mut world), 6);
        world.push_with(outlet, 1, Pushthrough::Hold);
        let now = world.now;
        world.outlet(outlet).flush(now);
        world.drive_outlet(outlet);
        assert_eq!(received(&mut world), 7);
    });
}

#[test]
fn readers_come_and_go_and_each_begins_with_a_push() {
    seeds(|seed| {
        let mut world = World::new(seed);
        let outlet = outlet(&mut world, 1 << 20);
        let first = inlet(&mut world, outlet);
        push_at_random(&mut world, outlet, 10);
        let begin = world.outlet(outlet).pushed;
        let second = inlet(&mut world, outlet);
        push_at_random(&mut world, outlet, 10);
        let now = world.now;
        world.inlet(first).close(now);
        world.drive_inlet(first);
        push_at_random(&mut world, outlet, 10);
        world.await_samples(second, outlet);
        assert_eq!(world.inlet(second).pulled.first(), Some(&begin));
        assert_eq!(uncounted(&mut world, outlet, second, begin), 0);
        assert_eq!(world.outlet(outlet).fanout.len(), 1);
        assert_eq!(world.outlet(outlet).consumers_seen, 2);
    });
}

#[test]
fn stalled_and_talkative_readers_do_not_disturb_others() {
    seeds(|seed| {
        let mut world = World::new(seed);
        let outlet = outlet(&mut world, 500);
        let stranger = world.add_host();
        let peers: Vec<_> = (0..10)
            .map(|_| raw_reader(&mut world, stranger, outlet))
            .collect();
        for peer in &peers {
            world.peers[*peer].reads = false;
        }
        let good = inlet(&mut world, outlet);
        let mut chunks = 0;
        while world.outlet(outlet).fanout.totals().1 == 0 {
            for peer in &peers[..3] {
                world.say(*peer, b"more! more! more!");
            }
            world.push(outlet, 100);
            world.await_samples(good, outlet);
            chunks += 1;
            assert!(chunks < 1000, "nothing is dropped of anybody");
        }
        assert_eq!(world.inlet(good).pulled.len(), chunks * 100);
        assert!(world.outlet(outlet).fanout.backlog_bytes() < 1 << 20);
    });
}

#[test]
fn a_program_that_never_pulls_does_not_hold_up_its_outlet() {
    seeds(|seed| {
        let mut world = World::new(seed);
        let outlet = outlet(&mut world, 1 << 20);
        let inlet = inlet(&mut world, outlet);
        world.inlet(inlet).set_pulls(None);
        push_at_random(&mut world, outlet, 50);
        world.run_for(5.0);
        assert!(world.outlet(outlet).fanout.is_flushed());
        let pushed = world.outlet(outlet).pushed;
        assert_eq!(world.inlet(inlet).feed.ring.len(), pushed as usize);
    });
}

#[test]
fn what_was_pushed_before_the_end_arrives() {
    seeds(|seed| {
        let mut world = World::new(seed);
        let outlet = outlet(&mut world, 1 << 20);
        world.network.tcp_delay = (20e-6, 1e-3);
        world.recovers = false;
        let inlet = inlet(&mut world, outlet);
        push_at_random(&mut world, outlet, 20);
        world.push_with(outlet, 3, Pushthrough::Hold);
        world.close_outlet(outlet);
        world.run_for(5.0);
        assert_eq!(uncounted(&mut world, outlet, inlet, 0), 0);
        assert!(world.inlet(inlet).is_lost());
        assert!(world.outlet(outlet).connections.is_empty());
    });
}

#[test]
fn a_connection_that_breaks_anywhere_is_made_again() {
    seeds(|seed| {
        let mut world = World::new(seed);
        let outlet = outlet(&mut world, 1 << 20);
        let host = world.add_host();
        let inlet = world.open_inlet(host, outlet, Identity::off());
        let to = if world.dice.happens(0.2) {
            Side::Outlet
        } else {
            Side::Inlet
        };
        let at = usize::try_from(world.dice.below(3000)).unwrap();
        let kind = if world.dice.happens(0.5) {
            FaultKind::Cut
        } else {
            FaultKind::Reset
        };
        world.inlets[inlet].fault = Some(Fault { to, at, kind });
        for _ in 0..20 {
            push_at_random(&mut world, outlet, 5);
            world.run_for(0.5);
        }
        world.await_open(inlet);
        push_at_random(&mut world, outlet, 5);
        world.await_samples(inlet, outlet);
        // What nobody counted fell between two connections, and is less than was pushed in that time.
        assert!(uncounted(&mut world, outlet, inlet, 0) < 1000);
        assert!(
            world.inlet(inlet).errors.len() <= 1,
            "{:?}",
            world.inlet(inlet).errors
        );
    });
}
