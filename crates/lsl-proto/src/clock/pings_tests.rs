//! The pace of PINGs, the answers that count, and the result of a wave.

use proptest::prelude::*;

use super::*;
use crate::config::Config;

const MAX_RTT: f64 = 0.128;

fn waves() -> PingWaves {
    PingWaves::new(ProbeSchedule::from(Config::default().tuning()))
}

/// An outlet whose clock shows `ahead` more, and the time each PING needs there and its PONG back;
/// infinite for one that does not come.
#[derive(Clone, Copy)]
struct Way {
    ahead: f64,
    there: f64,
    back: f64,
}

/// Runs until `until`. Returns the times of sending, and the corrections with the times of their waves.
fn run(
    waves: &mut PingWaves,
    mut now: f64,
    until: f64,
    from: f64,
    way: impl Fn(usize) -> Way,
) -> (Vec<f64>, Vec<(f64, TimeCorrection)>) {
    let (mut sent, mut measured) = (Vec::new(), Vec::new());
    let mut under_way: Vec<(f64, [f64; 3])> = Vec::new();
    while now < until {
        let wait_until = match waves.poll(now, from) {
            PingAction::Send { t0 } => {
                assert_eq!(t0.to_bits(), now.to_bits());
                let Way { ahead, there, back } = way(sent.len());
                let there_at = t0 + there + ahead;
                under_way.push((t0 + there + back, [t0, there_at, there_at]));
                sent.push(t0);
                continue;
            }
            PingAction::Measured(correction) => {
                measured.push((now, correction));
                continue;
            }
            PingAction::WaitUntil(at) => at,
        };
        under_way.sort_by(|one, other| one.0.total_cmp(&other.0));
        match under_way.first().copied() {
            Some((at, times)) if at <= wait_until => {
                under_way.remove(0);
                now = at;
                waves.on_pong(now, times, MAX_RTT);
            }
            _ => {
                assert!(wait_until > now, "would spin at {now}");
                now = wait_until;
            }
        }
    }
    (sent, measured)
}

fn steady(there: f64, back: f64) -> impl Fn(usize) -> Way {
    move |_| Way {
        ahead: 40.0,
        there,
        back,
    }
}

/// When the first wave sends with this round trip, and when it has measured.
#[track_caller]
fn check_pace(rtt: f64, spacing: f64, measured_at: Option<f64>) {
    let (sent, measured) = run(&mut waves(), 0.0, 20.0, 0.0, steady(rtt / 2.0, rtt / 2.0));
    for (number, pair) in sent[..8].windows(2).enumerate() {
        let gap = pair[1] - pair[0];
        assert!((gap - spacing).abs() < 1e-9, "{rtt}: {number}: {gap}");
    }
    let first = measured.first().map(|&(at, _)| at);
    match (first, measured_at) {
        (Some(seen), Some(expected)) => assert!((seen - expected).abs() < 1e-9, "{rtt}: {seen}"),
        (None, None) => {}
        other => panic!("{rtt}: {other:?}"),
    }
    for (_, one) in measured {
        assert!(one.is_low_quality());
        assert!((one.offset_secs + 40.0).abs() < 1e-9, "{one:?}");
        assert!((one.uncertainty_secs - rtt).abs() < 1e-9, "{one:?}");
    }
}

#[test]
fn one_ping_is_under_way_at_a_time() {
    check_pace(0.001, 0.064, Some(7.0 * 0.064 + 0.001));
    check_pace(0.063, 0.064, Some(7.0 * 0.064 + 0.063));
    check_pace(0.127, 0.127, Some(8.0 * 0.127));
    // Too long to count, and waited for all the same.
    check_pace(0.2, 0.2, None);
    check_pace(0.999, 0.999, None);
    check_pace(f64::INFINITY, 1.0, None);
}

#[test]
fn nothing_is_sent_between_waves_and_before_it_is_wanted() {
    let mut waves = waves();
    let (sent, measured) = run(&mut waves, 0.0, 10.0, 3.0, steady(0.001, 0.001));
    assert_eq!((sent.len(), measured.len()), (32, 4));
    for (number, &at) in (0_u32..).zip(&sent) {
        let (wave, ping) = (f64::from(number / 8), f64::from(number % 8));
        let expected = 3.0 + 2.0 * wave + 0.064 * ping;
        assert!((at - expected).abs() < 1e-9, "{at}");
    }
    assert_eq!(
        waves.poll(20.0, f64::INFINITY),
        PingAction::WaitUntil(f64::INFINITY)
    );
}

#[test]
fn a_wave_that_is_not_wanted_any_more_gives_nothing() {
    let mut waves = waves();
    // All but the last are answered.
    let (sent, _) = run(&mut waves, 0.0, 0.4, 0.0, steady(0.001, 0.001));
    assert_eq!(sent.len(), 7);
    assert_eq!(waves.poll(0.45, 99.0), PingAction::WaitUntil(99.0));
    assert!(!waves.on_pong(0.45, [sent[6], 1.0, 1.0], MAX_RTT));
    // The next begins in its time, and from nothing.
    assert_eq!(waves.poll(0.5, 0.0), PingAction::WaitUntil(2.0));
    let (sent, measured) = run(&mut waves, 2.0, 4.0, 0.0, steady(0.001, 0.001));
    assert_eq!((sent.len(), measured.len()), (8, 1));
    // Of another outlet it begins at once.
    assert!(matches!(waves.poll(4.0, 0.0), PingAction::Send { .. }));
    waves.reset();
    assert!(matches!(waves.poll(4.1, 0.0), PingAction::Send { .. }));
}

#[test]
fn six_answers_are_needed_and_the_shortest_counts() {
    for (answered, known) in [(5, false), (6, true), (8, true)] {
        let way = |number| Way {
            ahead: -3.0,
            there: match number {
                n if n >= answered => f64::INFINITY,
                2 => 0.001,
                _ => 0.02,
            },
            back: 0.001,
        };
        let (_, measured) = run(&mut waves(), 0.0, 1.9 + 3.0, 0.0, way);
        assert_eq!(measured.is_empty(), !known, "{answered}");
        if let Some((_, one)) = measured.first() {
            assert!((one.uncertainty_secs - 0.002).abs() < 1e-9, "{one:?}");
            assert!((one.offset_secs - 3.0).abs() < 1e-9, "{one:?}");
        }
    }
}

/// An answer to the PING at 5 s that is opened at 5.01 s.
#[track_caller]
fn check_pong(now: f64, times: [f64; 3], counts: bool) {
    let mut waves = waves();
    assert_eq!(waves.poll(5.0, 0.0), PingAction::Send { t0: 5.0 });
    assert_eq!(waves.on_pong(now, times, MAX_RTT), counts, "{times:?}");
    // Neither twice nor a better one later, unless what came was of another PING.
    let was_ours = times[0].to_bits() == 5.0_f64.to_bits();
    assert_eq!(waves.on_pong(5.02, [5.0, 9.0, 9.0], MAX_RTT), !was_ours);
}

#[test]
fn a_relay_answers_in_another_clock_and_adds_its_own_uncertainty() {
    for is_relayed in [false, true] {
        let mut waves = waves();
        waves.set_relayed(is_relayed);
        assert_eq!(waves.poll(5.0, 0.0), PingAction::Send { t0: 5.0 });
        // As a relay answers that knows the offset of 4 s to 10 ms: t1 + u/2, t2 - u/2.
        let times = [5.0, 9.001 + 0.005, 9.001 - 0.005];
        assert_eq!(waves.on_pong(5.002, times, MAX_RTT), is_relayed);
    }
}

#[test]
fn what_is_no_sound_answer_does_not_count() {
    check_pong(5.01, [5.0, 9.0, 9.005], true);
    check_pong(5.128 - 1e-9, [5.0, 9.0, 9.0], true);
    check_pong(5.129, [5.0, 9.0, 9.0], false);
    check_pong(5.129, [5.0, 9.0, 9.002], true);
    check_pong(5.01, [5.000_000_000_000_001, 9.0, 9.0], false);
    check_pong(5.01, [-5.0, 9.0, 9.0], false);
    check_pong(5.01, [f64::NAN, 9.0, 9.0], false);
    check_pong(5.01, [5.0, 9.0, 8.999], false);
    check_pong(5.01, [5.0, 9.0, 9.0101], false);
    check_pong(5.01, [5.0, f64::NAN, 9.0], false);
    check_pong(5.01, [5.0, 9.0, f64::NAN], false);
    check_pong(5.01, [5.0, f64::NEG_INFINITY, f64::NEG_INFINITY], false);
    check_pong(5.01, [5.0, f64::INFINITY, f64::INFINITY], false);
    check_pong(5.01, [5.0, f64::MIN, f64::MAX], false);
    assert!(!waves().on_pong(1.0, [1.0; 3], MAX_RTT), "nobody asked");
}

proptest! {
    /// Whatever delays somebody adds, and however unlike the two ways are.
    #[test]
    fn the_error_is_within_half_the_round_trip(
        delays in proptest::collection::vec((0.0..0.2_f64, 0.0..0.2_f64), 1..40),
        ahead in -1e6..1e6_f64,
    ) {
        let way = |number: usize| {
            let (there, back) = delays[number % delays.len()];
            Way { ahead, there, back }
        };
        let (_, measured) = run(&mut waves(), 1000.0, 1030.0, 0.0, way);
        for (_, one) in measured {
            let error = (one.offset_secs + ahead).abs();
            prop_assert!(error <= one.max_error_secs() + 1e-9, "{error} {one:?}");
            prop_assert!(one.uncertainty_secs <= MAX_RTT);
        }
    }
}
