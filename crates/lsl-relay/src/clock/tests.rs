//! Test 9 of relay §14: a source, two relays and a receiver whose clocks differ and drift.

use super::*;
use crate::book::FaceId;

const DIRECT: Way = Way::Direct(FaceId(0));

/// A clock that is set apart and drifts.
#[derive(Clone, Copy)]
struct Drifting {
    start: f64,
    rate: f64,
}

impl Drifting {
    fn at(self, time: f64) -> f64 {
        self.start + time * self.rate
    }
}

/// Small generator of numbers from 0 to 1.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> f64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        f64::from(u32::try_from(self.0 >> 33).expect("small")) / f64::from(1_u32 << 31)
    }
}

/// Message on the way to a relay, in true time.
enum Message {
    Record(SourceClock),
    Pong([f64; 3]),
    Ask,
    Measured(SourceClock),
}

/// Source, two relays, and true time. The first relay is 1, the second 2.
struct World {
    source: Drifting,
    own: [Drifting; 2],
    clocks: [Clocks; 2],
    /// Delay of the link in each direction, and its random part.
    delays: [f64; 2],
    jitter: f64,
    /// How long a record may wait behind data, which PINGs overtake.
    queue: f64,
    dice: Dice,
    wire: Vec<(f64, usize, Message)>,
    ping_secs: f64,
    next_ping: f64,
    next_measure: Option<f64>,
}

fn uid() -> Uid {
    "a".into()
}

impl World {
    fn delay(&mut self, direction: usize) -> f64 {
        self.delays[direction] + self.jitter * self.dice.next()
    }

    /// Does what the relays ask for.
    fn drain(&mut self, time: f64) {
        for of in 0..2 {
            while let Some(event) = self.clocks[of].poll_event() {
                match event {
                    ClockEvent::Measure { on, .. } => self.next_measure = on.then_some(time),
                    ClockEvent::Ask { link, .. } => {
                        assert_eq!((of, link), (1, RelayId(1)));
                        let at = time + self.delay(1);
                        self.wire.push((at, 0, Message::Ask));
                    }
                    ClockEvent::Tell { link, clock, .. } => {
                        assert_eq!((of, link), (0, RelayId(2)));
                        let queue = if time > 20.0 { self.queue } else { 0.0 };
                        let at = time + self.delay(0) + queue;
                        self.wire.push((at, 1, Message::Record(clock)));
                    }
                    ClockEvent::PingEvery(_, secs) => {
                        self.ping_secs = secs;
                        self.next_ping = time;
                    }
                }
            }
        }
    }

    fn step(&mut self, time: f64) {
        for of in 0..2 {
            let now = self.own[of].at(time);
            if self.clocks[of].poll_timeout().is_some_and(|at| at <= now) {
                self.clocks[of].handle_timeout(now);
            }
        }
        let (due, wait) = std::mem::take(&mut self.wire)
            .into_iter()
            .partition(|(at, ..)| *at <= time);
        self.wire = wait;
        let due: Vec<(f64, usize, Message)> = due;
        for (at, to, message) in due {
            let now = self.own[to].at(at);
            let clocks = &mut self.clocks[to];
            match message {
                Message::Record(clock) => clocks.told(RelayId(1), &uid(), clock, now),
                Message::Pong([t0, t1, t2]) => clocks.pong(RelayId(1), [t0, t1, t2, now], now),
                Message::Ask => clocks.asked(&uid(), Some(RelayId(2)), Some(DIRECT), now),
                Message::Measured(clock) => clocks.measured(&uid(), clock, now),
            }
        }
        if time >= self.next_ping {
            self.next_ping = time + self.ping_secs;
            let there = time + self.delay(1);
            let back = there + 0.0001 + self.delay(0);
            let [one, two] = self.own;
            let times = [two.at(time), one.at(there), one.at(there + 0.0001)];
            self.wire.push((back, 1, Message::Pong(times)));
        }
        if self.next_measure.is_some_and(|at| time >= at) {
            self.next_measure = Some(time + 2.0);
            let there = time + 0.0003 * self.dice.next();
            let back = there + 0.0003 * self.dice.next();
            let own = self.own[0];
            let measured = SourceClock {
                offset_secs: self.source.at(there) - f64::midpoint(own.at(time), own.at(back)),
                uncertainty_secs: own.at(back) - own.at(time),
                measured_at: own.at(time),
            };
            self.wire.push((back, 0, Message::Measured(measured)));
        }
        self.drain(time);
    }
}

#[test]
fn the_error_is_at_most_half_of_the_uncertainty_always() {
    for seed in 0..20_u64 {
        let mut dice = Dice(seed);
        // The extremes first, then what comes.
        let mut ppm = |bit: u64| {
            let sign = if seed >> bit & 1 == 0 { 1.0 } else { -1.0 };
            let size = if seed < 16 { 1.0 } else { dice.next() };
            1.0 + sign * size * 1e-4
        };
        let rates = [ppm(0), ppm(1), ppm(2)];
        let clock = |start, rate| Drifting { start, rate };
        let mut world = World {
            source: clock(5000.0, rates[0]),
            own: [clock(6000.0, rates[1]), clock(4000.0, rates[2])],
            clocks: [Clocks::new(), Clocks::new()],
            delays: if seed & 8 == 0 {
                [0.02, 0.0]
            } else {
                [0.0, 0.02]
            },
            jitter: if seed & 4 == 0 { 0.0 } else { 0.005 },
            queue: if seed & 2 == 0 { 0.0 } else { 10.0 },
            dice,
            wire: Vec::new(),
            ping_secs: 5.0,
            next_ping: 0.0,
            next_measure: None,
        };
        let mut answered_at = None;
        let mut widest = 0.0_f64;
        let mut asked_at = f64::NEG_INFINITY;
        let (mut time, mut tick) = (0.0, 0.002);
        while time < 230.0 {
            time += tick;
            if time > 20.0 {
                tick = 0.01;
            }
            // A receiver probes for a while; then nobody does.
            if time < 100.0 && time >= asked_at + 1.0 {
                asked_at = time;
                let now = world.own[1].at(time);
                world.clocks[1].asked(&uid(), None, Some(Way::Link(RelayId(1))), now);
                world.drain(time);
            }
            world.step(time);
            for of in 0..2 {
                let now = world.own[of].at(time);
                let Some(estimate) = world.clocks[of].estimate(&uid(), now) else {
                    continue;
                };
                let error = estimate.offset_secs - (world.source.at(time) - now);
                let uncertainty = estimate.uncertainty(now).expect("not too old");
                // A microsecond for the steps of the simulation.
                let bound = uncertainty / 2.0 + 1e-6;
                assert!(
                    error.abs() <= bound,
                    "seed {seed}, {time} s, relay {of}: {error} > {bound}"
                );
                if of == 1 {
                    answered_at.get_or_insert(time);
                    if (20.0..100.0).contains(&time) {
                        widest = widest.max(uncertainty);
                    }
                }
            }
        }
        assert!(
            answered_at.is_some_and(|at| at > 0.02 && at < 0.2),
            "{answered_at:?}"
        );
        let bound = 0.03 + 4e-4 * world.queue;
        assert!(widest < bound, "seed {seed}: {widest} > {bound}");
        // Interest ended: nothing is measured, asked or told, and nothing known.
        assert!(world.clocks.iter().all(|clocks| clocks.streams.is_empty()));
        assert_eq!((world.next_measure, world.ping_secs), (None, 5.0));
    }
}

#[test]
fn nobody_is_answered_before_an_estimate_and_after_a_minute() {
    let mut clocks = Clocks::new();
    assert_eq!(clocks.estimate(&uid(), 0.0), None);
    clocks.asked(&uid(), None, Some(DIRECT), 0.0);
    assert_eq!(
        clocks.poll_event(),
        Some(ClockEvent::Measure {
            uid: uid(),
            on: true
        })
    );
    assert_eq!(clocks.estimate(&uid(), 0.0), None);
    let measured = |offset_secs, measured_at| SourceClock {
        offset_secs,
        uncertainty_secs: 0.001,
        measured_at,
    };
    clocks.measured(&uid(), measured(f64::NAN, 1.0), 1.0);
    assert_eq!(clocks.estimate(&uid(), 1.0), None);
    clocks.measured(&uid(), measured(100.0, 1.0), 1.0);
    let estimate = clocks.estimate(&uid(), 11.0).expect("an estimate");
    let uncertainty = estimate.uncertainty(11.0).expect("not too old");
    assert!((uncertainty - 0.005).abs() < 1e-9, "{uncertainty}");
    clocks.asked(&uid(), None, Some(DIRECT), 50.0);
    assert!(clocks.estimate(&uid(), 61.0).is_some() && clocks.estimate(&uid(), 61.1).is_none());
    // Another way: what was measured holds no more, and a record of another relay does not count.
    let link = Way::Link(RelayId(1));
    clocks.measured(&uid(), measured(100.0, 62.0), 62.0);
    clocks.way_changed(&uid(), Some(link), 63.0);
    clocks.pong(RelayId(1), [63.0, 1.0, 1.0, 63.1], 63.1);
    clocks.told(RelayId(2), &uid(), measured(1.0, 1.0), 63.2);
    assert_eq!(clocks.estimate(&uid(), 63.2), None);
    clocks.told(RelayId(1), &uid(), measured(1.0, 1.0), 63.2);
    assert!(clocks.estimate(&uid(), 63.2).is_some());
    clocks.link_down(RelayId(1));
    assert_eq!(clocks.estimate(&uid(), 63.2), None);
    clocks.handle_timeout(110.0);
    assert_eq!(clocks.poll_timeout(), None);
}

#[test]
fn the_least_uncertain_of_sixteen_pongs_counts() {
    let mut pings = Pings::default();
    pings.add([10.0, 5.0, 4.0, 10.1]);
    pings.add([10.0, 5.0, 5.2, 10.1]);
    pings.add([10.0, f64::INFINITY, 5.0, 10.1]);
    assert_eq!(pings.estimate(10.1), None, "times that cannot be");
    pings.add([10.0, 5.001, 5.001, 10.002]);
    for n in 0..15_u32 {
        let t0 = 11.0 + f64::from(n);
        pings.add([t0, t0, t0, t0 + 0.02]);
    }
    let rtt = |pings: &Pings| pings.last.len();
    let best = pings.estimate(26.0).expect("an estimate");
    assert_eq!(rtt(&pings), 16);
    assert!(
        (best.offset_secs + 5.0).abs() < 1e-9,
        "{best:?}: the old one is better for 45 s"
    );
    pings.add([27.0, 27.0, 27.0, 27.02]);
    assert!(
        pings
            .estimate(27.0)
            .is_some_and(|best| best.offset_secs.abs() < 0.011)
    );
}
