//! Clocks of outlets, measured over UDP and through sessions, by honest networks and others.

use lsl_proto::clock::TimeAlarm;
use lsl_secure::{Policy, TIME_PACKET_LEN, TIME_PREFIX};

use crate::dice::seeds;
use crate::network::ClockFault;
use crate::peers::Identity;
use crate::programs::{InletId, OutletId};
use crate::tcp::Side;
use crate::world::World;

/// An open pair whose outlet has a clock of its own, which the inlet measures.
fn pair(world: &mut World, is_sealed: bool) -> (OutletId, InletId) {
    let (near, far) = (world.add_host(), world.add_host());
    world.hosts[near].ahead = 2000.0 * world.dice.share();
    world.hosts[near].drift = 200e-6 * (world.dice.share() - 0.5);
    let identity = |name, trusted| {
        if is_sealed {
            Identity::new(name, Policy::Required, &[trusted])
        } else {
            Identity::off()
        }
    };
    let outlet = world.open_outlet(near, "clock", identity("amp", "rec"), 1000);
    let inlet = world.open_inlet(far, outlet, identity("rec", "amp"));
    world.await_open(inlet);
    let now = world.local(far);
    world.inlet(inlet).measure(is_sealed, now);
    world.drive_inlet(inlet);
    (outlet, inlet)
}

/// Waits for an estimate.
fn await_estimate(world: &mut World, inlet: InletId, is_wanted: fn(&mut World, InletId) -> bool) {
    let deadline = world.now + 60.0;
    assert!(world.run_until(deadline, |it| is_wanted(it, inlet)));
}

/// Checks that the error of the estimate is not larger than it says. Returns the bound.
fn check_bound(world: &mut World, outlet: OutletId, inlet: InletId) -> f64 {
    let correction = world.inlet(inlet).correction.unwrap();
    let host = world.outlets[outlet].host;
    // What the outlet's clock said then, and ours.
    let drifted = world.hosts[host].drift.abs() * (world.local(host) - correction.remote_time);
    let ahead = world.local(host) - world.now;
    let (error, bound) = (
        (correction.offset_secs + ahead).abs(),
        correction.max_error_secs(),
    );
    assert!(
        error <= bound + drifted.abs() + 1e-9,
        "{error} > {bound} + {drifted}"
    );
    bound
}

fn is_known(world: &mut World, inlet: InletId) -> bool {
    world.inlet(inlet).correction.is_some()
}

fn is_low(world: &mut World, inlet: InletId) -> bool {
    let correction = world.inlet(inlet).correction;
    correction.is_some_and(|it| it.is_low_quality())
}

fn is_high(world: &mut World, inlet: InletId) -> bool {
    is_known(world, inlet) && !is_low(world, inlet)
}

#[test]
fn estimates_of_drifting_clocks_err_within_what_they_say() {
    for is_sealed in [false, true] {
        seeds(|seed| {
            let mut world = World::new(seed);
            world.network.delay = (1e-4, 0.05 * world.dice.share());
            world.network.loss = 0.3 * world.dice.share();
            let (outlet, inlet) = pair(&mut world, is_sealed);
            await_estimate(&mut world, inlet, is_known);
            for _ in 0..20 {
                check_bound(&mut world, outlet, inlet);
                world.run_for(3.0);
            }
            // Slow networks are uncertain, and no honest clock contradicts itself.
            let alarms = &world.inlet(inlet).alarms;
            let has_step = alarms.iter().any(|it| matches!(it, TimeAlarm::Step { .. }));
            assert!(!has_step, "{alarms:?}");
        });
    }
}

#[test]
fn what_others_answer_does_not_count() {
    seeds(|seed| {
        let mut world = World::new(seed);
        world.network.clocks = ClockFault::Forged;
        let (outlet, inlet) = pair(&mut world, true);
        await_estimate(&mut world, inlet, is_known);
        for _ in 0..10 {
            check_bound(&mut world, outlet, inlet);
            world.run_for(2.0);
        }
        assert!(world.network.heard_time.len() > 30);
        let is_sealed =
            |packet: &Vec<u8>| packet.starts_with(TIME_PREFIX) && packet.len() == TIME_PACKET_LEN;
        assert!(world.network.heard_time.iter().all(is_sealed));
        assert_eq!(world.inlet(inlet).alarms, []);
    });
}

#[test]
fn delays_are_reported_and_long_ones_discarded() {
    for (max_rtt_secs, is_measured) in [(0.128, true), (0.005, false)] {
        seeds(|seed| {
            let mut world = World::new(seed);
            world.network.delay = (0.01, 0.02);
            let (outlet, inlet) = pair(&mut world, true);
            let now = world.now;
            world.inlet(inlet).limits.max_rtt_secs = max_rtt_secs;
            world.inlet(inlet).measure(true, now);
            world.run_for(10.0);
            assert_eq!(is_high(&mut world, inlet), is_measured);
            if is_measured {
                let bound = check_bound(&mut world, outlet, inlet);
                assert!(bound >= 0.009, "20 ms went unnoticed: {bound}");
            }
            assert!(world.network.heard_time.len() > 16, "nobody asked");
        });
    }
}

#[test]
fn where_udp_is_filtered_the_session_is_asked() {
    seeds(|seed| {
        let mut world = World::new(seed);
        world.network.clocks = ClockFault::Filtered;
        let (outlet, inlet) = pair(&mut world, true);
        await_estimate(&mut world, inlet, is_low);
        check_bound(&mut world, outlet, inlet);
        let heard = world.network.heard_time.len();
        assert!(heard >= 8, "UDP was asked only {heard} times");
        // UDP is tried all the while, left and taken up again.
        for _ in 0..2 {
            world.network.clocks = ClockFault::None;
            await_estimate(&mut world, inlet, is_high);
            check_bound(&mut world, outlet, inlet);
            world.network.clocks = ClockFault::Filtered;
            await_estimate(&mut world, inlet, is_low);
            check_bound(&mut world, outlet, inlet);
        }
        assert_eq!(world.connects, 1, "the feed alone was asked");
        assert_eq!(world.inlet(inlet).alarms, []);
    });
}

#[test]
fn nobody_is_pinged_who_answers_over_udp() {
    seeds(|seed| {
        let mut world = World::new(seed);
        let (outlet, inlet) = pair(&mut world, true);
        await_estimate(&mut world, inlet, is_known);
        world.run_for(20.0);
        assert!(is_high(&mut world, inlet));
        check_bound(&mut world, outlet, inlet);
        assert_eq!(world.inlet(inlet).pings, 0);
    });
}

#[test]
fn a_session_that_is_held_up_one_way_errs_within_half_the_round_trip() {
    for held_up in [Side::Inlet, Side::Outlet] {
        seeds(|seed| {
            let mut world = World::new(seed);
            world.network.clocks = ClockFault::Filtered;
            world.network.holds_up = Some((held_up, 0.02));
            let (outlet, inlet) = pair(&mut world, true);
            // Samples under way hold it up even more.
            world.push(outlet, 50);
            await_estimate(&mut world, inlet, is_low);
            check_bound(&mut world, outlet, inlet);
            let rtt = world.inlet(inlet).correction.unwrap().uncertainty_secs;
            assert!(rtt >= 0.02, "{rtt}");
        });
    }
}

#[test]
fn jumps_rises_and_uncertainty_are_told() {
    seeds(|seed| {
        let mut world = World::new(seed);
        let (outlet, inlet) = pair(&mut world, true);
        await_estimate(&mut world, inlet, is_known);
        world.run_for(20.0);
        assert_eq!(world.inlet(inlet).alarms, []);
        let host = world.outlets[outlet].host;
        world.hosts[host].ahead += 3.0;
        world.run_for(20.0);
        let alarms = &world.inlet(inlet).alarms;
        assert!(matches!(alarms[..], [TimeAlarm::Step { .. }]), "{alarms:?}");
        world.network.delay = (0.0125, 0.02);
        world.run_for(30.0);
        let alarms = &world.inlet(inlet).alarms[1..];
        let has_rise = alarms
            .iter()
            .any(|it| matches!(it, TimeAlarm::RttRise { .. }));
        let is_uncertain = alarms
            .iter()
            .any(|it| matches!(it, TimeAlarm::Uncertain { .. }));
        assert!(has_rise && is_uncertain, "{alarms:?}");
    });
}

#[test]
fn a_clock_is_measured_again_however_rarely_that_is_wanted() {
    seeds(|seed| {
        let mut world = World::new(seed);
        let (_, inlet) = pair(&mut world, false);
        let config = &mut world.inlet(inlet).config;
        config.set("tuning.TimeUpdateInterval", "2.0").unwrap();
        config.set("tuning.WatchdogTimeThreshold", "0.1").unwrap();
        let host = world.inlets[inlet].host;
        let now = world.local(host);
        world.inlet(inlet).measure(false, now);
        await_estimate(&mut world, inlet, is_known);
        let first = world.inlet(inlet).correction.unwrap().remote_time;
        world.run_for(30.0);
        assert!(world.inlet(inlet).correction.unwrap().remote_time > first + 25.0);
        assert_eq!(world.inlet(inlet).silences, 0);
    });
}

/// Somebody who answers probes in plaintext with nonsense gives no time rather than a wrong one.
#[test]
fn a_lying_clock_is_not_believed() {
    seeds(|seed| {
        let mut world = World::new(seed);
        world.network.clocks = ClockFault::Lies;
        let (_, inlet) = pair(&mut world, false);
        world.run_for(30.0);
        assert_eq!(world.inlet(inlet).correction, None);
        assert!(world.network.heard_time.len() > 8, "nobody asked");
        world.network.clocks = ClockFault::None;
        await_estimate(&mut world, inlet, is_known);
    });
}

#[test]
fn an_outlet_that_takes_the_place_of_another_has_another_clock() {
    seeds(|seed| {
        let mut world = World::new(seed);
        let (outlet, inlet) = pair(&mut world, false);
        await_estimate(&mut world, inlet, is_known);
        world.kill_outlet(outlet);
        world.run_for(1.0);
        assert!(!world.inlet(inlet).is_open());
        let host = world.add_host();
        world.hosts[host].ahead = -500.0;
        let next = world.open_outlet(host, "clock", Identity::off(), 100);
        world.await_open(inlet);
        await_estimate(&mut world, inlet, is_known);
        check_bound(&mut world, next, inlet);
        world.run_for(10.0);
        check_bound(&mut world, next, inlet);
        let clock = world.inlet(inlet).clock.as_mut().unwrap();
        assert!(clock.take_was_reset());
    });
}
