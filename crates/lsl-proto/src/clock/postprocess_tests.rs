//! Bit-exactness against the vectors, the rhythm of clocksync, and resets.

use proptest::prelude::*;
use serde::Deserialize;

use super::*;

const NEVER: fn() -> Option<ClockOffset> = || panic!("the offset was not needed");

fn processor(options: ProcessingOptions, srate: f64) -> PostProcessor {
    let mut processor = PostProcessor::new(srate, 90.0);
    processor.set_options(options);
    processor
}

fn plain(processor: &mut PostProcessor, timestamp: f64) -> f64 {
    processor.process(timestamp, 1.0, NEVER).unwrap()
}

/// `serde_json` may be one bit off when it reads a float; quoted, the numbers reach `str::parse`.
fn quote_numbers(json: &str) -> String {
    let mut quoted = String::with_capacity(json.len() * 2);
    let (mut in_string, mut in_number, mut escaped) = (false, false, false);
    for c in json.chars() {
        let numeric =
            !in_string && (c.is_ascii_digit() || c == '-' || (in_number && "+.eE".contains(c)));
        if numeric != in_number {
            quoted.push('"');
        }
        in_number = numeric;
        if c == '"' && !escaped {
            in_string = !in_string;
        }
        escaped = c == '\\' && !escaped;
        quoted.push(c);
    }
    quoted
}

#[derive(Deserialize)]
struct Vectors {
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    #[serde(rename = "case")]
    name: String,
    nominal_srate: String,
    wire_stamps: Vec<Option<String>>,
    actions: Vec<(String, String)>,
    outputs: Vec<String>,
}

#[test]
fn vectors_bit_for_bit() {
    let text = include_str!("../../tests/vectors/time-postprocessing.json");
    let vectors: Vectors = serde_json::from_str(&quote_numbers(text)).unwrap();
    assert!(vectors.cases.len() >= 12);
    for case in vectors.cases {
        let name = &case.name;
        let srate: f64 = case.nominal_srate.parse().unwrap();
        let mut last = 0.0;
        let stamps = case.wire_stamps.iter().map(|stamp| {
            last = match stamp {
                Some(text) => text.parse().unwrap(),
                // Spec: lsl-protocol §9.2.
                None => last + if srate == 0.0 { 0.0 } else { 1.0 / srate },
            };
            last
        });
        let mut stamps = stamps.collect::<Vec<f64>>().into_iter();
        let mut outputs = case.outputs.iter();
        let mut processor = PostProcessor::new(srate, 90.0);
        for (action, argument) in &case.actions {
            match action.as_str() {
                "set" => {
                    processor.set_options(ProcessingOptions::from_bits(argument.parse().unwrap()));
                }
                "half" => processor.set_halftime(argument.parse().unwrap()),
                "flush" => {
                    let count: usize = argument.parse().unwrap();
                    assert_eq!(stamps.by_ref().take(count).count(), count, "{name}");
                    processor.flush(count as u64);
                }
                "pull" => {
                    for _ in 0..argument.parse().unwrap() {
                        let output = plain(&mut processor, stamps.next().unwrap());
                        let expected: f64 = outputs.next().unwrap().parse().unwrap();
                        assert_eq!(output.to_bits(), expected.to_bits(), "{name}: {output}");
                    }
                }
                "send" => {}
                other => panic!("{name}: unknown action {other}"),
            }
        }
        assert_eq!(outputs.next(), None, "{name}");
    }
}

#[test]
fn clocksync_asks_after_fifty_stamps_and_half_a_second() {
    let check = |interval: f64, expected: &[usize]| {
        let mut processor = processor(ProcessingOptions::CLOCKSYNC, 0.0);
        let mut asked = Vec::new();
        for index in 0..400_u16 {
            let now = 10.0 + f64::from(index) * interval;
            let needed = processor.needs_offset(now);
            let before = asked.len();
            let offset = || {
                asked.push(usize::from(index));
                Some(ClockOffset {
                    offset_secs: 3.0,
                    was_reset: false,
                })
            };
            assert_eq!(processor.process(1.5, now, offset), Ok(4.5));
            assert_eq!(needed, asked.len() > before, "{index}");
        }
        assert_eq!(asked, expected, "{interval}");
    };
    // Slow: every 51 stamps. At 100 Hz fifty stamps and half a second coincide.
    check(1.0, &[0, 51, 102, 153, 204, 255, 306, 357]);
    check(0.01, &[0, 51, 102, 153, 204, 255, 306, 357]);
    check(0.005, &[0, 101, 202, 303]);
    // Fast: half a second is over after 250 stamps, before the counter of 8 bits wraps.
    check(0.002, &[0, 251]);
    // Faster: the time is over after 261 stamps, the counter has wrapped, fifty more are needed.
    check(0.001_92, &[0, 307]);
}

#[test]
fn without_an_offset_nothing_changes() {
    let mut starved = processor(ProcessingOptions::ALL, 100.0);
    for _ in 0..300 {
        assert_eq!(starved.process(5000.0, 10.0, || None), Err(NeedsOffset));
        assert!(starved.needs_offset(10.0));
    }
    let mut fresh = processor(ProcessingOptions::ALL, 100.0);
    let offset = || {
        Some(ClockOffset {
            offset_secs: -1.25,
            was_reset: false,
        })
    };
    let (a, b) = (
        starved.process(5000.1, 10.0, offset),
        fresh.process(5000.1, 10.0, offset),
    );
    assert_eq!(a, b);
    assert!((a.unwrap() - 4998.85).abs() < 1e-6);
}

#[test]
fn a_clock_reset_forgets_the_past() {
    let mut processor = processor(ProcessingOptions::ALL, 100.0);
    let offset = |offset_secs, was_reset| {
        move || {
            Some(ClockOffset {
                offset_secs,
                was_reset,
            })
        }
    };
    let first = processor.process(5000.5, 10.0, offset(0.0, false)).unwrap();
    for _ in 0..50 {
        processor.process(5000.5, 10.0, NEVER).unwrap();
    }
    let mut kept = processor.clone();
    let back = processor
        .process(5000.5, 11.0, offset(-4000.0, true))
        .unwrap();
    assert!((back - 1000.5).abs() < 1e-6, "{back}");
    let monotone = kept.process(5000.5, 11.0, offset(-4000.0, false)).unwrap();
    assert!(monotone >= first, "{monotone}");
}

#[test]
fn stamps_that_mean_nothing_pass_and_do_no_harm() {
    let options = ProcessingOptions::DEJITTER | ProcessingOptions::MONOTONIZE;
    let (mut disturbed, mut calm) = (processor(options, 100.0), processor(options, 100.0));
    for index in 0..20 {
        for odd in [0.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            assert_eq!(plain(&mut disturbed, odd).to_bits(), odd.to_bits());
        }
        let stamp = 5000.0 + f64::from(index) * 0.011;
        assert_eq!(
            plain(&mut disturbed, stamp).to_bits(),
            plain(&mut calm, stamp).to_bits()
        );
    }
    let mut absurd = processor(ProcessingOptions::DEJITTER, 1e300);
    for stamp in [1e308, -1e308, 1e308, 5000.0, 5000.0] {
        assert!(plain(&mut absurd, stamp).is_finite());
    }
}

#[test]
fn odd_rates_and_half_times_leave_stamps_alone() {
    for (srate, halftime) in [
        (0.0, 90.0),
        (-5.0, 90.0),
        (f64::NAN, 90.0),
        (100.0, 0.0),
        (100.0, f32::NAN),
    ] {
        let mut processor = PostProcessor::new(srate, halftime);
        processor.set_options(ProcessingOptions::DEJITTER);
        for stamp in [5000.1, 5000.0, 7000.25] {
            assert_eq!(
                plain(&mut processor, stamp).to_bits(),
                f64::to_bits(stamp),
                "{srate}"
            );
        }
    }
}

proptest! {
    #[test]
    fn monotonize_never_goes_back(
        stamps in prop::collection::vec(any::<f64>(), 0..60),
        dejitter: bool,
    ) {
        let bits = if dejitter { 6 } else { 4 };
        let mut processor = processor(ProcessingOptions::from_bits(bits), 100.0);
        let mut last = f64::MIN;
        for stamp in stamps.into_iter().filter(|stamp| stamp.is_finite() && *stamp != 0.0) {
            let output = plain(&mut processor, stamp);
            prop_assert!(output >= last, "{} after {}", output, last);
            last = output;
        }
    }

    #[test]
    fn dejitter_follows_a_jittered_clock(
        srate in 1.0..5000.0_f64,
        start in 1.0..1e6_f64,
        jitter in prop::collection::vec(-0.5..0.5_f64, 200),
    ) {
        let mut processor = processor(ProcessingOptions::DEJITTER, srate);
        let mut worst: f64 = 0.0;
        for (index, jitter) in (0_u32..).zip(jitter) {
            let truth = start + f64::from(index) / srate;
            let output = plain(&mut processor, truth + jitter / srate);
            if index >= 100 {
                worst = worst.max((output - truth).abs() * srate);
            }
        }
        // Half a period of jitter at most, averaged over a hundred samples.
        prop_assert!(worst < 0.35, "{} periods", worst);
    }
}
