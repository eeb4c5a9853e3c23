//! Samples that are passed on as they came. Spec: relay §6.

use lsl_core::{ChannelFormat, GapReason, Inlet, Outlet};

use super::info;
use crate::lab::{self, SOON};

fn pull<T: lsl_core::PullElement + Default + Clone>(
    inlet: &Inlet,
    channels: usize,
) -> (Vec<T>, f64) {
    let mut values = vec![T::default(); channels];
    let stamp = inlet.blocking().pull(&mut values, SOON).unwrap();
    (values, stamp.expect("a sample in time"))
}

/// Pushes runs of different lengths to a reader, who gets these bits.
fn passes(outlet: &Outlet, inlet: &Inlet, samples: &[(Vec<u64>, f64)]) {
    for length in [1, 2, samples.len()] {
        for run in samples.chunks(length) {
            let raw: Vec<u8> = (run.iter().flat_map(|(values, _)| values))
                .flat_map(|value| value.to_ne_bytes())
                .collect();
            let stamps: Vec<_> = run.iter().map(|(_, stamp)| *stamp).collect();
            outlet.push_run(&raw, &stamps).unwrap();
        }
        for (values, stamp) in samples {
            let (pulled, at) = pull::<f64>(inlet, values.len());
            let pulled: Vec<_> = pulled.iter().map(|value| value.to_bits()).collect();
            assert_eq!((&pulled, at.to_bits()), (values, stamp.to_bits()));
        }
    }
}

#[test]
fn samples_are_passed_on_to_the_last_bit() {
    let context = lab::context_with(&[("tuning.ForceDefaultTimestamps", "1")]);
    let outlet = lab::outlet(&context, info("bits", 2, 3.0, ChannelFormat::Double64));
    let inlet = lab::inlet(&context, "bits");
    let third = 1.0 / 3.0;
    let values = [1, (-0.0_f64).to_bits(), 0x7ff0_0000_dead_beef, u64::MAX];
    let stamps = [
        0.0,
        -0.0,
        5e-324,
        third,
        third + third,
        -7.5,
        1e300,
        f64::MAX,
    ];
    let samples = stamps.iter().enumerate();
    let samples = samples.map(|(n, &stamp)| (vec![values[n % 4], values[n / 2]], stamp));
    passes(&outlet, &inlet, &samples.collect::<Vec<_>>());
    assert!(outlet.push_run(&[0; 15], &[1.0]).is_err());
    assert!(outlet.push_run(&[0; 16], &[1.0, 2.0]).is_err());
    assert_eq!(outlet.stats().samples, 3 * 8);
}

#[test]
fn texts_are_passed_on_to_the_last_byte() {
    let context = lab::context();
    let outlet = lab::outlet(&context, info("texts", 2, 0.0, ChannelFormat::String));
    let inlet = lab::inlet(&context, "texts");
    let long = vec![0xfe; 100_000];
    let texts = [&b""[..], b"a\0\xff\r\n", &long, b"3", b"", b""];
    let mut raw = Vec::new();
    for text in texts {
        raw.extend(text.len().to_ne_bytes());
        raw.extend(text);
    }
    outlet.push_run(&raw, &[1.0, 1.0, 2.0]).unwrap();
    for (pair, stamp) in texts.chunks(2).zip([1.0, 1.0, 2.0]) {
        assert_eq!(
            pull::<Vec<u8>>(&inlet, 2),
            (vec![pair[0].to_vec(), pair[1].to_vec()], stamp)
        );
    }
}

#[test]
fn what_was_lost_before_is_passed_on_with_its_reason() {
    let context = lab::context_with(&[("tuning.RetainSeconds", "30")]);
    let outlet = lab::outlet(&context, info("gaps", 1, 100.0, ChannelFormat::Int8));
    let inlet = lab::inlet(&context, "gaps");
    let mut expected = Vec::new();
    let mut next = 0;
    for (lost, reason) in [
        (0, None),
        (7, Some(GapReason::LostBefore)),
        (1, Some(GapReason::Skipped)),
    ] {
        if let Some(reason) = reason {
            outlet.lose(lost, reason).unwrap();
            expected.push((next, Some(lost), reason));
        }
        let stamp = 1.0 + f64::from(u32::try_from(next + lost).unwrap()) / 100.0;
        outlet.push_run(&[1, 2], &[stamp, stamp + 0.01]).unwrap();
        for (value, stamp) in [(1, stamp), (2, stamp + 0.01)] {
            assert_eq!(pull::<i8>(&inlet, 1), (vec![value], stamp));
        }
        next += lost + 2;
    }
    let gaps = inlet.take_gaps(usize::MAX);
    let gaps: Vec<_> = gaps
        .iter()
        .map(|gap| (gap.sequence, gap.lost, gap.reason))
        .collect();
    assert_eq!(gaps, expected);
    assert_eq!(inlet.position().unwrap().next, next);
}
