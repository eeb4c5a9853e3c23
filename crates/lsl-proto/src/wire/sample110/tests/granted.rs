//! Granted feeds: samples and gap records. Spec: resume §2.4.

use super::*;
use crate::wire::sequence::{GapReason, SEQUENCE_LIMIT};
use crate::wire::testpattern::PatternCheck;

/// Part of a granted feed; timestamps are bits, so that NaN compares.
#[derive(Debug, Clone, PartialEq)]
enum FeedItem {
    Sample(Option<u64>, Vec<u8>),
    Gap(Gap),
}

/// Collects samples and gaps in their order.
#[derive(Debug, Default)]
struct Items(Vec<FeedItem>);

impl SampleSink for Items {
    fn sample(&mut self, timestamp: Option<f64>, raw: &[u8]) {
        let bits = timestamp.map(f64::to_bits);
        self.0.push(FeedItem::Sample(bits, raw.to_vec()));
    }

    fn gap(&mut self, gap: Gap) -> Result<()> {
        self.0.push(FeedItem::Gap(gap));
        Ok(())
    }
}

/// Numbers the samples as an inlet does.
#[derive(Debug, Default)]
struct Numbered {
    next: u64,
    lost: u64,
    numbers: Vec<u64>,
}

impl SampleSink for Numbered {
    fn sample(&mut self, _timestamp: Option<f64>, _raw: &[u8]) {
        self.numbers.push(self.next);
        self.next += 1;
    }

    fn gap(&mut self, gap: Gap) -> Result<()> {
        self.lost += gap.lost(self.next)?;
        self.next = gap.to;
        Ok(())
    }
}

fn granted(format: ChannelFormat, channels: u32, order: ByteOrder) -> Decoder110 {
    Decoder110::new(format, channels, order).with_gaps(true)
}

fn gap(to: u64) -> Gap {
    let reason = GapReason::ReaderTooSlow;
    Gap { reason, to }
}

/// The beginnings of feeds with one channel, one of numbers and one of strings, and one sample each.
const SHAPES: [(ChannelFormat, &[u8]); 2] = [
    (ChannelFormat::Int8, &[1, 7]),
    (ChannelFormat::String, &[1, 1, 1, b'a']),
];

fn any_items() -> impl Strategy<Value = (ChannelFormat, u32, Vec<FeedItem>)> {
    (any_stream(), any::<[Option<(u8, u64)>; 9]>()).prop_map(
        |((format, channels, samples), gaps)| {
            let samples = samples.into_iter().map(Some).chain([None]);
            let items = samples.zip(gaps).flat_map(|(sample, gap)| {
                let gap = gap.map(|(code, to)| {
                    FeedItem::Gap(Gap {
                        reason: GapReason::from_code(code),
                        to: to % SEQUENCE_LIMIT,
                    })
                });
                let sample =
                    sample.map(|(stamp, raw)| FeedItem::Sample(stamp.map(f64::to_bits), raw));
                [gap, sample]
            });
            (format, channels, items.flatten().collect())
        },
    )
}

proptest! {
    #[test]
    fn gaps_cut_anywhere_arrive_where_they_were(
        (format, channels, items) in any_items(),
        big in any::<bool>(),
        cuts in proptest::collection::vec(any::<usize>(), 0..40),
    ) {
        let order = if big { ByteOrder::Big } else { ByteOrder::Little };
        let encoder = Encoder110::new(format, channels, order);
        let mut bytes = Vec::new();
        for item in &items {
            match item {
                FeedItem::Gap(gap) => bytes.extend(gap.to_bytes(order)),
                FeedItem::Sample(bits, raw) => {
                    let stamp = bits.map_or(DEDUCED_TIMESTAMP, f64::from_bits);
                    encoder.encode_raw(&mut bytes, stamp, raw).unwrap();
                }
            }
        }
        let samples = items.iter().filter(|item| matches!(item, FeedItem::Sample(..))).count();
        let mut decoder = granted(format, channels, order);
        let (mut got, mut counted) = (Items::default(), 0);
        for piece in pieces(&bytes, &cuts) {
            counted += decoder.decode(piece, &mut got).unwrap();
        }
        prop_assert_eq!(&got.0, &items);
        prop_assert_eq!(counted, samples);
        prop_assert!(decoder.is_between_samples());
        // One sample a call, and the gap behind the last one with the call after it.
        let (mut input, mut got) = (bytes.as_slice(), Items::default());
        for _ in 0..samples {
            prop_assert_eq!(decoder.decode_up_to(1, &mut input, &mut got).unwrap(), 1);
            prop_assert!(matches!(got.0.last(), Some(FeedItem::Sample(..))));
        }
        prop_assert_eq!(decoder.decode_up_to(1, &mut input, &mut got).unwrap(), 0);
        prop_assert_eq!(got.0, items);
    }
}

#[test]
fn samples_are_numbered_across_gaps() {
    for (format, sample) in SHAPES {
        let mut decoder = granted(format, 1, ByteOrder::Big);
        let (first, second) = (
            gap(5).to_bytes(ByteOrder::Big),
            gap(9).to_bytes(ByteOrder::Big),
        );
        let bytes = [sample, sample, &first, &second, sample].concat();
        let mut numbered = Numbered::default();
        assert_eq!(decoder.decode(&bytes, &mut numbered).unwrap(), 3);
        assert_eq!((numbered.numbers, numbered.lost), (vec![0, 1, 9], 7));
    }
}

#[test]
fn a_gap_that_does_not_lead_forward_ends_the_feed() {
    for (format, sample) in SHAPES {
        for (to, accepted) in [(0, false), (1, false), (2, true), (1 << 62, true)] {
            let mut decoder = granted(format, 1, ByteOrder::Little);
            let bytes = [sample, &gap(to).to_bytes(ByteOrder::Little), sample].concat();
            let mut numbered = Numbered::default();
            let result = decoder.decode(&bytes, &mut numbered);
            assert_eq!(result.is_ok(), accepted, "{to}: {result:?}");
            assert_eq!(numbered.numbers.len(), 1 + usize::from(accepted));
        }
        let beyond = gap(SEQUENCE_LIMIT).to_bytes(ByteOrder::Little);
        let mut decoder = granted(format, 1, ByteOrder::Little);
        assert!(
            decoder
                .decode(&beyond[..9], &mut Numbered::default())
                .is_ok()
        );
        assert!(
            decoder
                .decode(&beyond[9..], &mut Numbered::default())
                .is_err()
        );
    }
}

#[test]
fn unknown_tags_are_an_error_in_granted_feeds_only() {
    for (format, sample) in SHAPES {
        for tag in (0..=255).filter(|tag| ![1, 2].contains(tag)) {
            let stamped = [&[tag], &5.0_f64.to_le_bytes()[..], &sample[1..]].concat();
            let mut got = Items::default();
            let mut decoder = granted(format, 1, ByteOrder::Little);
            // The tag alone is enough.
            let result = decoder.decode(&stamped[..1], &mut got);
            assert_eq!(result.is_ok(), tag == Gap::TAG, "{tag}");
            assert_eq!(got.0, []);
            let mut decoder = Decoder110::new(format, 1, ByteOrder::Little);
            assert_eq!(decoder.decode(&stamped, &mut got).unwrap(), 1);
            assert!(decoder.is_between_samples());
            assert!(
                matches!(&got.0[..], [FeedItem::Sample(Some(bits), _)] if *bits == 5.0_f64.to_bits()),
                "{tag}: {got:?}"
            );
        }
    }
}

#[test]
fn a_cut_gap_record_is_no_place_to_end() {
    for (format, sample) in SHAPES {
        let record = gap(3).to_bytes(ByteOrder::NATIVE);
        for cut in 1..Gap::LEN {
            let mut decoder = granted(format, 1, ByteOrder::NATIVE);
            let mut got = Items::default();
            decoder.decode(&record[..cut], &mut got).unwrap();
            assert!(!decoder.is_between_samples() && got.0.is_empty(), "{cut}");
            assert!(decoder.held_bytes() <= 64, "{}", decoder.held_bytes());
            let rest = [&record[cut..], sample].concat();
            assert_eq!(decoder.decode(&rest, &mut got).unwrap(), 1);
            assert_eq!(got.0[0], FeedItem::Gap(gap(3)));
            assert!(decoder.is_between_samples());
        }
    }
}

#[test]
fn test_patterns_have_no_gaps() {
    for (format, _) in SHAPES {
        let mut bytes = Vec::new();
        Encoder110::new(format, 1, ByteOrder::NATIVE).encode_test_patterns(&mut bytes);
        let record = gap(3).to_bytes(ByteOrder::NATIVE);
        for (bytes, matched) in [
            ([&bytes[..], &record].concat(), true),
            ([&record, &bytes[..]].concat(), false),
        ] {
            let mut patterns = PatternCheck::new(format, 1);
            let mut decoder = granted(format, 1, ByteOrder::NATIVE);
            let mut input = bytes.as_slice();
            let samples = decoder.decode_up_to(2, &mut input, &mut patterns).unwrap();
            assert_eq!((samples, patterns.matched()), (2, matched));
            assert_eq!(input.is_empty(), !matched);
        }
    }
}
