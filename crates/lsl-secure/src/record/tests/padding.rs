//! Padding, exhaustively. Spec: LSS/1 §8.1.

use super::*;

const SUITE: Suite = Suite::ChaCha20Poly1305;

const PAD_TO: [u16; 9] = [16, 32, 64, 128, 256, 512, 1024, 2048, 4096];

#[test]
fn every_record_fills_a_multiple() {
    for pad_to in PAD_TO {
        let step = usize::from(pad_to);
        let near = [step, 2 * step, 8192, 12_288, 16_384];
        let mut lens: Vec<usize> = near
            .iter()
            .flat_map(|&at| at.saturating_sub(5)..=(at + 5).min(MAX_PAYLOAD - 2))
            .chain(1..40)
            .filter(|&len| len > 0)
            .collect();
        lens.sort_unstable();
        lens.dedup();
        let (mut sealer, mut opener) = direction(SUITE, Role::Inlet, pad_to);
        for len in lens {
            let (bytes, mut wire) = (vec![7; len], Vec::new());
            sealer.seal_data(&bytes, NOW, &mut wire).unwrap();
            let padded = wire.len() - RECORD_OVERHEAD;
            // The smallest multiple that holds the payload and the length of the padding.
            assert_eq!(padded % step, 0, "{len} at {pad_to}");
            assert!(
                padded >= len + 2 && padded < len + 2 + step,
                "{len} at {pad_to}"
            );
            assert!(padded <= MAX_PAYLOAD);
            let (events, received) = open(&mut opener, &wire);
            received.unwrap();
            assert_eq!(events, [Event::Data(bytes)]);
        }
    }
}

#[test]
fn longer_payloads_are_split_before_padding() {
    for pad_to in PAD_TO {
        let (mut sealer, mut opener) = direction(SUITE, Role::Inlet, pad_to);
        let (bytes, mut wire) = (vec![9; MAX_PAYLOAD], Vec::new());
        sealer.seal_data(&bytes, NOW, &mut wire).unwrap();
        let lens: Vec<_> = split_records(&wire).iter().map(Vec::len).collect();
        assert_eq!(
            lens,
            [
                MAX_PAYLOAD + RECORD_OVERHEAD,
                usize::from(pad_to) + RECORD_OVERHEAD
            ]
        );
        let (events, received) = open(&mut opener, &wire);
        received.unwrap();
        assert_eq!(
            events,
            [
                Event::Data(vec![9; MAX_PAYLOAD - 2]),
                Event::Data(vec![9; 2])
            ]
        );
    }
}

#[test]
fn impossible_settings_never_panic_and_still_open() {
    for pad_to in [1, 2, 3, 15, 17, 5000, 8192, 16_384, 40_000, u16::MAX] {
        let (mut sealer, mut opener) = direction(SUITE, Role::Inlet, pad_to);
        for len in [1, 2, 16_381, 16_382] {
            let (bytes, mut wire) = (vec![3; len], Vec::new());
            sealer.seal_data(&bytes, NOW, &mut wire).unwrap();
            let (events, received) = open(&mut opener, &wire);
            received.unwrap();
            assert_eq!(events, [Event::Data(bytes)], "{len} at {pad_to}");
        }
    }
}

/// All padding lengths that a plaintext of `len` bytes behind its type can claim.
#[test]
fn every_length_of_padding_is_checked() {
    for len in [0_usize, 1, 2, 3, 4, 5, 16, 300] {
        let most = u16::try_from(len + 3).unwrap();
        for pad_len in (0..=most).chain([0x100, 0x4000, 0x8000, u16::MAX]) {
            let mut text = vec![Kind::Data.byte() | PADDED];
            // The values of the padding bytes are ignored.
            text.extend(std::iter::repeat_n(5, len));
            let claimed = if len >= 2 {
                text.truncate(1 + len - 2);
                text.extend_from_slice(&pad_len.to_be_bytes());
                Some(usize::from(pad_len))
            } else {
                None
            };
            let (_, mut opener) = direction(SUITE, Role::Inlet, 0);
            let (events, received) = open(&mut opener, &forge(SUITE, 1, 0, &text));
            match claimed {
                Some(claimed @ 2..) if claimed < len => {
                    received.unwrap();
                    let payload = text[1..1 + len - claimed].to_vec();
                    assert_eq!(events, [Event::Data(payload)]);
                }
                // Nothing but padding is an empty DATA.
                _ => {
                    assert_eq!(
                        cause_of(received),
                        Some(Cause::UnexpectedRecord),
                        "{pad_len} of {len}"
                    );
                    assert!(events.is_empty());
                }
            }
        }
    }
}

#[test]
fn records_without_payload_may_be_all_padding() {
    let (mut sealer, mut opener) = direction(SUITE, Role::Inlet, 16);
    let mut wire = Vec::new();
    sealer.seal_key_update(&mut wire).unwrap();
    assert_eq!(wire.len(), 16 + RECORD_OVERHEAD);
    sealer.seal_close(&mut wire).unwrap();
    let (events, received) = open(&mut opener, &wire);
    received.unwrap();
    assert_eq!(events, [Event::Close]);
}
