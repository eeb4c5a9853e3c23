//! Streams that are lost and found again.

use crate::dice::seeds;
use crate::peers::Identity;
use crate::programs::{InletId, OutletId};
use crate::world::World;

/// An outlet and an open inlet on two hosts.
fn pair(world: &mut World) -> (OutletId, InletId) {
    let (near, far) = (world.add_host(), world.add_host());
    let outlet = world.open_outlet(near, "lost", Identity::off(), 1000);
    let inlet = world.open_inlet(far, outlet, Identity::off());
    world.await_open(inlet);
    world.push(outlet, 5);
    world.await_samples(inlet, outlet);
    (outlet, inlet)
}

/// Opens an outlet that goes on with the stream of another one.
fn successor(world: &mut World, of: OutletId, host: usize) -> OutletId {
    let outlet = world.open_outlet(host, "lost", Identity::off(), 1000);
    world.outlet(outlet).pushed = world.outlet(of).pushed;
    outlet
}

/// Pushes until the inlet has the newest sample.
fn delivers(world: &mut World, outlet: OutletId, inlet: InletId) {
    for _ in 0..200 {
        world.push(outlet, 1);
        world.run_for(0.5);
        let last = world.outlet(outlet).pushed - 1;
        if world.inlet(inlet).pulled.last() == Some(&last) {
            return;
        }
    }
    panic!("nothing arrives: {:?}", world.inlet(inlet).errors);
}

#[test]
fn an_inlet_follows_its_stream_to_a_new_outlet() {
    seeds(|seed| {
        let mut world = World::new(seed);
        let (outlet, inlet) = pair(&mut world);
        let host = world.outlets[outlet].host;
        if world.dice.happens(0.5) {
            world.close_outlet(outlet);
        } else {
            world.kill_outlet(outlet);
        }
        let away = world.dice.share() * 20.0;
        world.run_for(away);
        let host = if world.dice.happens(0.5) {
            host
        } else {
            world.add_host()
        };
        let next = successor(&mut world, outlet, host);
        delivers(&mut world, next, inlet);
        assert_eq!(world.inlet(inlet).feed.counts().reconnects, 1);
        assert_eq!(
            world.inlet(inlet).recovery.info().uid(),
            format!("uid-{next}")
        );
    });
}

#[test]
fn of_several_successors_none_is_taken_until_one_is_left() {
    seeds(|seed| {
        let mut world = World::new(seed);
        let (outlet, inlet) = pair(&mut world);
        let hosts = [world.add_host(), world.add_host()];
        world.kill_outlet(outlet);
        let rivals = hosts.map(|host| successor(&mut world, outlet, host));
        let connects = world.connects;
        let waited = 2.0 + world.dice.share() * 10.0;
        world.run_for(waited);
        assert_eq!(world.connects, connects, "nobody knows which one it is");
        world.kill_outlet(rivals[0]);
        delivers(&mut world, rivals[1], inlet);
    });
}

#[test]
fn a_host_that_moves_to_another_network_is_followed() {
    seeds(|seed| {
        let mut world = World::new(seed);
        let (outlet, inlet) = pair(&mut world);
        let host = world.outlets[outlet].host;
        let before = world.hosts[host].address;
        // Nobody is told: what is under way goes nowhere.
        world.network.set_cut(before, true);
        world.move_host(host);
        delivers(&mut world, outlet, inlet);
        let after = world.hosts[host].address.to_string();
        assert_eq!(world.inlet(inlet).recovery.info().v4_address(), after);
    });
}

#[test]
fn a_partition_that_heals_costs_at_most_what_was_pushed_meanwhile() {
    seeds(|seed| {
        let mut world = World::new(seed);
        let (outlet, inlet) = pair(&mut world);
        let host = world.outlets[outlet].host;
        let address = world.hosts[host].address;
        let before = world.inlet(inlet).pulled.len();
        world.network.set_cut(address, true);
        let cut_for = world.dice.share() * 60.0;
        let end = world.now + cut_for;
        while world.now < end {
            world.push(outlet, 1);
            world.run_for(0.5);
        }
        world.network.set_cut(address, false);
        world.run_for(2.0);
        delivers(&mut world, outlet, inlet);
        if cut_for < 14.0 {
            // TCP sends again what was under way: nothing is lost at all.
            let pushed = world.outlet(outlet).pushed as usize;
            assert_eq!(world.inlet(inlet).pulled.len(), pushed);
        }
        assert!(world.inlet(inlet).pulled.len() > before);
    });
}

#[test]
fn a_successor_of_another_shape_is_not_adopted() {
    seeds(|seed| {
        let mut world = World::new(seed);
        let (outlet, inlet) = pair(&mut world);
        let host = world.add_host();
        world.kill_outlet(outlet);
        // The same name and source id, and `float32` instead of `int64`.
        world.announce(host, "wide", "lost");
        let connects = world.connects;
        world.run_for(10.0);
        assert_eq!(world.connects, connects);
        world.withdraw(host, "wide");
        let next = successor(&mut world, outlet, host);
        delivers(&mut world, next, inlet);
    });
}

#[test]
fn an_inlet_finds_a_stream_it_only_knows_by_description() {
    seeds(|seed| {
        let mut world = World::new(seed);
        let (host, far) = (world.add_host(), world.add_host());
        let format = lsl_proto::ChannelFormat::Int64;
        let info = lsl_proto::StreamInfo::new("lost", "Test", 2, 0.0, format, "lost");
        let inlet = world.open_inlet_for(far, &info.unwrap(), Identity::off());
        let waited = world.dice.share() * 10.0;
        world.run_for(waited);
        let outlet = world.open_outlet(host, "lost", Identity::off(), 1000);
        delivers(&mut world, outlet, inlet);
    });
}

#[test]
fn a_stream_that_is_not_recovered_is_lost_with_its_reason() {
    seeds(|seed| {
        let mut world = World::new(seed);
        world.recovers = false;
        let (outlet, inlet) = pair(&mut world);
        world.close_outlet(outlet);
        world.run_for(3.0);
        assert!(world.inlet(inlet).is_lost());
        let reason = world.inlet(inlet).feed.lost().unwrap().to_owned();
        assert!(
            reason.contains("the outlet closed the connection"),
            "{reason}"
        );
        let host = world.outlets[outlet].host;
        successor(&mut world, outlet, host);
        let connects = world.connects;
        world.run_for(30.0);
        assert_eq!(world.connects, connects);
    });
}
