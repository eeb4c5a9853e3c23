//! The schedule against liblsl's captured probes, the choice of the best answer, and refusals.

use proptest::prelude::*;

use super::*;
use crate::config::Config;

fn estimator() -> OffsetEstimator {
    OffsetEstimator::new(ProbeSchedule::from(Config::default().tuning()), 1)
}

/// Creates an estimator whose first wave is like all others: liblsl's schedule.
fn without_opening() -> OffsetEstimator {
    let schedule = ProbeSchedule {
        opening_count: 1,
        ..ProbeSchedule::from(Config::default().tuning())
    };
    OffsetEstimator::new(schedule, 1)
}

/// Polls at the asked times until `until`; every probe is shown to `reply` together with the
/// estimator, which may answer it.
fn run(
    estimator: &mut OffsetEstimator,
    mut now: f64,
    until: f64,
    mut reply: impl FnMut(&mut OffsetEstimator, i32, f64),
) {
    while now < until {
        match estimator.poll(now) {
            Action::SendProbe { wave_id, t0 } => reply(estimator, wave_id, t0),
            Action::WaitUntil(next) => {
                assert!(next > now, "would spin at {now}");
                now = next;
            }
        }
    }
}

/// A peer whose clock shows `ahead` more, with this delay each way.
fn answer(
    estimator: &mut OffsetEstimator,
    wave_id: i32,
    t0: f64,
    ahead: f64,
    there: f64,
    back: f64,
) -> Result<(), RejectedReply> {
    let arrived = t0 + there + ahead;
    estimator.on_reply(t0 + there + back, wave_id, t0, arrived, arrived)
}

#[test]
fn probes_follow_the_captured_schedule() {
    let text = include_str!("../../tests/vectors/timedata-inlet-probes.json");
    let vector: serde_json::Value = serde_json::from_str(text).unwrap();
    let mut estimator = without_opening();
    let mut ids: Vec<(i32, i32)> = Vec::new();
    let mut due = None;
    let probes = vector["probes"].as_array().unwrap();
    assert!(probes.len() >= 16);
    for probe in probes {
        let numbers = probe["text"].as_str().unwrap().lines().nth(1).unwrap();
        let (id, t0) = numbers.split_once(' ').unwrap();
        let (id, t0): (i32, f64) = (id.parse().unwrap(), t0.parse().unwrap());
        // liblsl is never early and less than a millisecond late. Deadlines of ours before that
        // are ends of waves, at which nothing is sent.
        let mut ours = due.unwrap_or(t0);
        while ours + 0.001 < t0 {
            let Action::WaitUntil(next) = estimator.poll(ours) else {
                panic!("early: {ours}")
            };
            ours = next;
        }
        assert!(ours <= t0, "late: {ours} {t0}");
        let Action::SendProbe { wave_id, t0: sent } = estimator.poll(t0) else {
            panic!("no probe at {t0}");
        };
        assert_eq!(sent.to_bits(), t0.to_bits());
        ids.push((id, wave_id));
        let Action::WaitUntil(next) = estimator.poll(t0) else {
            panic!("two at {t0}")
        };
        due = Some(next);
    }
    for ((theirs, ours), (their_next, our_next)) in ids.iter().zip(ids.iter().skip(1)) {
        assert_eq!(theirs == their_next, ours == our_next, "{ids:?}");
        assert!(*ours >= 0);
    }
}

/// When the probes of the first wave leave: the burst, then liblsl's schedule.
const FIRST_WAVE_MS: [f64; 15] = [
    0.0, 4.0, 8.0, 12.0, 16.0, 20.0, 24.0, 28.0, 64.0, 128.0, 192.0, 256.0, 320.0, 384.0, 448.0,
];

#[test]
fn the_first_wave_begins_with_a_burst_and_ends_after_640_ms_and_the_next_starts_after_2_s() {
    let mut estimator = estimator();
    let mut sent = Vec::new();
    run(&mut estimator, 100.0, 100.63, |_, _, t0| {
        sent.push(((t0 - 100.0) * 1000.0).round());
    });
    assert_eq!(sent, FIRST_WAVE_MS);
    assert_eq!(estimator.poll(100.63), Action::WaitUntil(100.64));
    assert_eq!(estimator.poll(100.64), Action::WaitUntil(102.0));
    assert!(matches!(estimator.poll(102.0), Action::SendProbe { .. }));
    assert_eq!(estimator.poll(102.0), Action::WaitUntil(102.064));
}

/// Answers at once with the given round trips in ms, `None` for a lost probe. Checks the time and the
/// round trip of the first value, and the round trip of the last one, in ms.
#[track_caller]
fn check_first_value(
    round_trips_ms: &[Option<u32>],
    expected_ms: Option<(f64, f64)>,
    settled_ms: Option<f64>,
) {
    let mut estimator = estimator();
    let mut next = round_trips_ms.iter();
    let mut first = None;
    let worth = |estimate: TimeCorrection| (estimate.uncertainty_secs * 1000.0).round();
    run(&mut estimator, 100.0, 100.63, |estimator, id, t0| {
        let Some(rtt) = next.next().copied().flatten() else {
            return;
        };
        let way = f64::from(rtt) / 2000.0;
        answer(estimator, id, t0, 5.0, way, way).unwrap();
        if let (None, Some(estimate)) = (first, estimator.estimate()) {
            assert!((estimate.offset_secs + 5.0).abs() < 1e-9, "{estimate:?}");
            let at = (t0 - 100.0) * 1000.0;
            first = Some((at.round(), worth(estimate)));
        }
        assert_eq!(estimator.settled_estimate(), None);
    });
    assert_eq!(first, expected_ms, "{round_trips_ms:?}");
    estimator.poll(100.64);
    assert_eq!(estimator.settled_estimate(), estimator.estimate());
    assert_eq!(estimator.estimate().map(worth), settled_ms);
}

#[test]
fn a_waves_worth_of_answers_gives_a_first_value_that_the_rest_of_the_wave_refines() {
    let all = |rtt| [Some(rtt); 15];
    check_first_value(&all(2), Some((28.0, 2.0)), Some(2.0));
    check_first_value(
        &[&[Some(9); 7][..], &[Some(3), Some(7), Some(2)], &[None; 5]].concat(),
        Some((28.0, 3.0)),
        Some(2.0),
    );
    // Lost ones are made up for by the probes that follow.
    check_first_value(
        &[&[None, Some(4)][..], &all(5)[2..]].concat(),
        Some((64.0, 4.0)),
        Some(4.0),
    );
    check_first_value(&[&[Some(4); 7][..], &[None; 8]].concat(), None, Some(4.0));
    check_first_value(&[&[Some(4); 5][..], &[None; 10]].concat(), None, None);
}

#[test]
fn a_later_wave_counts_when_it_is_over() {
    let mut estimator = estimator();
    run(&mut estimator, 100.0, 101.9, |estimator, id, t0| {
        answer(estimator, id, t0, 5.0, 0.010, 0.010).unwrap();
    });
    let first = estimator.estimate().unwrap();
    let mut sent = 0;
    run(&mut estimator, 101.9, 102.6, |estimator, id, t0| {
        sent += 1;
        answer(estimator, id, t0, 5.0, 0.001, 0.001).unwrap();
        assert_eq!(estimator.estimate(), Some(first));
    });
    assert_eq!(sent, 8);
    estimator.poll(102.64);
    let second = estimator.estimate().unwrap();
    assert!((second.uncertainty_secs - 0.002).abs() < 1e-9, "{second:?}");
    assert!((second.remote_time - 107.001).abs() < 1e-9, "{second:?}");
}

#[test]
fn a_wave_with_too_few_answers_keeps_the_old_value() {
    for (answered, known) in [(5, false), (6, true), (8, true)] {
        let mut estimator = estimator();
        let mut count = 0;
        run(&mut estimator, 0.0, 1.0, |estimator, id, t0| {
            count += 1;
            if count <= answered {
                answer(estimator, id, t0, 1.0, 0.001, 0.001).unwrap();
            }
        });
        assert_eq!(estimator.estimate().is_some(), known, "{answered}");
        let before = estimator.estimate();
        run(&mut estimator, 1.0, 9.0, |_, _, _| {});
        assert_eq!(estimator.estimate(), before);
    }
}

#[test]
fn late_polls_neither_bunch_nor_overrun() {
    let mut estimator = without_opening();
    assert!(matches!(estimator.poll(0.0), Action::SendProbe { .. }));
    assert!(matches!(estimator.poll(0.5), Action::SendProbe { .. }));
    assert_eq!(estimator.poll(0.5), Action::WaitUntil(0.5 + 0.064));
    assert_eq!(estimator.poll(0.7), Action::WaitUntil(2.0));
    // After hours of sleep one wave starts, at its proper pace.
    assert!(matches!(estimator.poll(9000.0), Action::SendProbe { .. }));
    assert_eq!(estimator.poll(9000.0), Action::WaitUntil(9000.064));
}

#[test]
fn late_polls_do_not_bunch_the_burst_with_the_rest() {
    let mut estimator = estimator();
    for n in 0..8 {
        let now = 0.1 + 0.02 * f64::from(n);
        assert!(matches!(estimator.poll(now), Action::SendProbe { .. }));
        assert_eq!(estimator.poll(now), Action::WaitUntil(now + 0.004));
    }
}

#[test]
fn odd_settings_do_not_spin() {
    for secs in [0.0, -1.0, 1e-9, f64::NAN] {
        let schedule = ProbeSchedule {
            probe_count: 0,
            probe_interval_secs: secs,
            max_rtt_secs: secs,
            update_interval_secs: secs,
            min_replies: 0,
            opening_count: 0,
            opening_interval_secs: secs,
        };
        let mut estimator = OffsetEstimator::new(schedule, 0);
        run(&mut estimator, 0.0, 0.1, |estimator, id, t0| {
            answer(estimator, id, t0, 1.0, 0.0, 0.0).unwrap();
        });
        assert!(estimator.estimate().is_some(), "{secs}");
    }
}

#[test]
fn only_answers_to_our_probes_count() {
    use RejectedReply::{Duplicate, NegativeRoundTrip, NotFinite, OtherWave, UnknownProbe};
    let mut estimator = estimator();
    let Action::SendProbe { wave_id: id, t0 } = estimator.poll(10.000_000_1) else {
        panic!()
    };
    let mut check = |now, id, t0, t1, t2, expected| {
        assert_eq!(
            estimator.on_reply(now, id, t0, t1, t2),
            expected,
            "{now} {id} {t0} {t1} {t2}"
        );
    };
    check(10.1, id ^ 1, t0, 1.0, 1.0, Err(OtherWave));
    check(10.1, id, 10.05, 1.0, 1.0, Err(UnknownProbe));
    check(10.1, id, f64::NAN, 1.0, 1.0, Err(NotFinite));
    check(10.1, id, t0, f64::INFINITY, 1.0, Err(NotFinite));
    check(10.1, id, t0, 1.0, f64::NAN, Err(NotFinite));
    check(10.1, id, t0, f64::MAX, -f64::MAX, Err(NotFinite));
    check(10.1, id, t0, 1.0, 1.2, Err(NegativeRoundTrip));
    check(10.1, id, t0, 1.0, 1.0, Ok(()));
    check(10.1, id, t0, 1.0, 1.0, Err(Duplicate));
    estimator.poll(10.7);
    assert_eq!(
        estimator.on_reply(10.8, id, t0, 1.0, 1.0),
        Err(OtherWave),
        "the wave is over"
    );
}

#[test]
fn another_outlet_starts_anew_and_is_reported_once() {
    let mut estimator = estimator();
    estimator.invalidate();
    assert!(!estimator.take_was_reset(), "nothing was known");
    let mut old = None;
    run(&mut estimator, 0.0, 1.0, |estimator, id, t0| {
        old = Some((id, t0));
        answer(estimator, id, t0, 1.0, 0.0, 0.0).unwrap();
    });
    assert!(estimator.estimate().is_some());
    assert!(!estimator.take_was_reset(), "first outlet");
    estimator.invalidate();
    assert_eq!(estimator.estimate(), None);
    let (id, t0) = old.unwrap();
    assert_eq!(
        estimator.on_reply(1.1, id, t0, 1.0, 1.0),
        Err(RejectedReply::OtherWave)
    );
    run(&mut estimator, 1.1, 2.0, |estimator, id, t0| {
        answer(estimator, id, t0, 7.0, 0.0, 0.0).unwrap();
    });
    let estimate = estimator.estimate().unwrap();
    assert!((estimate.offset_secs + 7.0).abs() < 1e-9, "{estimate:?}");
    assert!(estimator.take_was_reset() && !estimator.take_was_reset());
}

#[test]
fn sixteen_digits() {
    for (t0, text) in [
        (1_234.567_890_123_456_7, 1_234.567_890_123_457),
        (0.1 + 0.2, 0.3),
        (1e-7, 1e-7),
    ] {
        assert_eq!(as_sent(t0).to_bits(), f64::to_bits(text), "{t0}");
    }
}

proptest! {
    #[test]
    fn rounding_is_done_once(bits: u64) {
        let value = f64::from_bits(bits);
        prop_assume!(value.is_finite());
        prop_assert_eq!(as_sent(as_sent(value)).to_bits(), as_sent(value).to_bits());
    }

    #[test]
    fn the_shortest_round_trip_wins(
        ahead in -1e6_f64..1e6,
        delays in prop::collection::vec((0.0..0.05_f64, 0.0..0.05_f64), 15),
    ) {
        let mut estimator = estimator();
        let mut next = delays.iter();
        run(&mut estimator, 50.0, 51.0, |estimator, id, t0| {
            let (there, back) = *next.next().unwrap();
            answer(estimator, id, t0, ahead, there, back).unwrap();
            // An estimate before the end of the wave is as honest.
            if let Some(early) = estimator.estimate() {
                let error = (early.offset_secs + ahead).abs();
                assert!(error <= early.max_error_secs() + 1e-8, "{error} {early:?}");
            }
        });
        let estimate = estimator.estimate().unwrap();
        let shortest = delays.iter().map(|(a, b)| a + b).fold(f64::INFINITY, f64::min);
        prop_assert!((estimate.uncertainty_secs - shortest).abs() < 1e-8);
        let error = (estimate.offset_secs + ahead).abs();
        prop_assert!(error <= estimate.uncertainty_secs / 2.0 + 1e-8, "{} {:?}", error, estimate);
    }
}

fn is_silent(estimator: &OffsetEstimator) -> bool {
    estimator.unanswered_from() < f64::INFINITY
}

/// Answers these of the 8 probes of each wave. Checks from when on, after the start, another way of
/// asking is due at the end.
#[track_caller]
fn check_silence(waves: &[&[u32]], expected: Option<f64>) {
    let mut estimator = without_opening();
    let mut sent = 0;
    let end = 100.0 + waves.iter().map(|_| 2.0).sum::<f64>();
    run(&mut estimator, 100.0, end, |estimator, id, t0| {
        let (wave, probe) = (sent / 8, sent % 8);
        sent += 1;
        if waves[wave as usize].contains(&probe) {
            answer(estimator, id, t0, 1.0, 0.001, 0.001).unwrap();
        }
    });
    let from = estimator.unanswered_from();
    let seen = is_silent(&estimator).then(|| (from - 100.0).max(0.0));
    assert_eq!(seen, expected, "{waves:?}");
}

#[test]
fn whole_waves_without_an_answer_are_silence() {
    const ALL: &[u32] = &[0, 1, 2, 3, 4, 5, 6, 7];
    const NONE: &[u32] = &[];
    check_silence(&[], None);
    check_silence(&[NONE], Some(1.5));
    check_silence(&[NONE, NONE], Some(0.0));
    check_silence(&[ALL], None);
    check_silence(&[ALL, NONE], None);
    check_silence(&[ALL, NONE, NONE], Some(0.0));
    check_silence(&[ALL, NONE, ALL, NONE], None);
    // One answer is not silence, though it is not enough to measure with.
    check_silence(&[&[7]], None);
    check_silence(&[NONE, &[3]], None);
    check_silence(&[&[7], NONE], Some(3.5));
    check_silence(&[NONE, NONE, &[0]], None);
}

#[test]
fn what_was_measured_in_another_way_counts_until_there_are_answers() {
    let mut estimator = estimator();
    run(&mut estimator, 100.0, 101.5, |_, _, _| {});
    assert!((estimator.unanswered_from() - 101.5).abs() < 1e-9);
    let other = TimeCorrection {
        is_low_quality: true,
        ..TimeCorrection::measured([101.0, 51.5, 51.6, 102.0])
    };
    estimator.adopt(other);
    assert_eq!(estimator.estimate(), Some(other));
    assert!(other.is_low_quality());
    // It is no answer of the kind that ends the silence.
    assert!((estimator.unanswered_from() - 101.5).abs() < 1e-9);
    let mut count = 0;
    run(&mut estimator, 102.0, 104.0, |estimator, id, t0| {
        count += 1;
        if count == 3 {
            answer(estimator, id, t0, -50.0, 0.01, 0.01).unwrap();
            assert!(!is_silent(estimator), "at once");
        }
    });
    assert_eq!(estimator.estimate(), Some(other), "one is not enough");
    run(&mut estimator, 104.0, 106.0, |estimator, id, t0| {
        answer(estimator, id, t0, -50.0, 0.01, 0.01).unwrap();
    });
    let estimate = estimator.estimate().unwrap();
    assert!(!estimate.is_low_quality(), "{estimate:?}");
    estimator.invalidate();
    assert!(!is_silent(&estimator));
}

/// Its owner was stopped, or had no keys: nobody could have answered.
#[test]
fn a_wave_that_was_cut_short_is_not_silence() {
    let mut estimator = estimator();
    for start in [0.0, 10.0, 20.0] {
        run(&mut estimator, start, start + 0.3, |_, _, _| {});
    }
    assert!(!is_silent(&estimator));
}
