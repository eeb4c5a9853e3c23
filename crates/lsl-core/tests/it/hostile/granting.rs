//! Outlets that grant numbered feeds in ways of their own. Spec: resume §2.2, §2.4, §9 (tests 10 and 12).

use std::time::Duration;

use lsl_core::{GapReason, Generation, Inlet};
use lsl_proto::ByteOrder;
use lsl_proto::wire::response::{DataProtocol, FeedResponse};
use lsl_proto::wire::sample110::Encoder110;
use lsl_proto::wire::sequence::{Gap, Granted};

use super::CHANNELS;
use super::responder::{Claim, EvilOutlet, EvilResponder};
use crate::lab::{self, SOON};

/// The byte order that this machine does not have.
const FOREIGN: ByteOrder = match ByteOrder::NATIVE {
    ByteOrder::Little => ByteOrder::Big,
    ByteOrder::Big => ByteOrder::Little,
};

/// A response that grants samples from a number on, and the test patterns.
fn preamble(claim: &Claim, begin: u64, live: u64) -> Vec<u8> {
    let granted = Granted {
        generation: Generation::parse(b"0e-0f").unwrap(),
        begin,
        live,
        end: None,
    };
    let response = FeedResponse {
        byte_order: FOREIGN,
        suppress_subnormals: false,
        data_protocol: DataProtocol::V110,
        granted: Some(granted),
    };
    let mut bytes = response.to_bytes(110, claim.uid.as_bytes());
    encoder(claim).encode_test_patterns(&mut bytes);
    bytes
}

fn encoder(claim: &Claim) -> Encoder110 {
    Encoder110::new(claim.format, CHANNELS as u32, FOREIGN)
}

fn sample(claim: &Claim, number: f32) -> Vec<u8> {
    let mut bytes = Vec::new();
    let values = [number; CHANNELS];
    let stamp = 10.0 + f64::from(number);
    encoder(claim)
        .encode_sample(&mut bytes, stamp, &values)
        .unwrap();
    bytes
}

fn gap(to: u64) -> Vec<u8> {
    let reason = GapReason::ReaderTooSlow;
    Gap { reason, to }.to_bytes(FOREIGN).to_vec()
}

/// An inlet, and the outlet that it reads and always finds again.
type Pair = (Inlet, EvilOutlet, EvilResponder);

/// The outlet sends what `script` says to each connection, by its number, and then hangs up, but for the last.
fn inlet(claim: &Claim, script: Vec<Vec<u8>>) -> Pair {
    let next = std::sync::atomic::AtomicUsize::new(0);
    let outlet = EvilOutlet::open(move |victim| {
        let number = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let last = script.len() - 1;
        victim.send(&script[number.min(last)])?;
        if number < last {
            return Ok(());
        }
        victim.wait_for_its_end()
    });
    let claim = Claim {
        port: outlet.port(),
        ..claim.clone()
    };
    let context = lab::context();
    let responder = EvilResponder::open(&context, vec![claim.xml().into_bytes()]);
    let inlet = Inlet::builder(&claim.info()).context(&context);
    (inlet.create().unwrap(), outlet, responder)
}

fn pull(inlet: &Inlet) -> f32 {
    let mut values = [0.0; CHANNELS];
    let stamp = inlet.blocking().pull(&mut values, SOON).unwrap();
    assert_eq!(stamp, Some(10.0 + f64::from(values[0])));
    assert_eq!(values, [values[0]; CHANNELS]);
    values[0]
}

#[test]
fn a_granted_feed_in_the_other_byte_order_is_read() {
    let claim = Claim::of("foreign");
    let script = [
        preamble(&claim, 3, 4),
        sample(&claim, 3.0),
        gap(7),
        sample(&claim, 7.0),
    ];
    let (inlet, ..) = &inlet(&claim, vec![script.concat()]);
    assert_eq!([pull(inlet), pull(inlet)], [3.0, 7.0]);
    assert_eq!(inlet.position().unwrap().next, 8);
    let gaps = inlet.take_gaps(usize::MAX);
    assert_eq!((gaps[0].sequence, gaps[0].lost), (4, Some(3)));
    assert_eq!(gaps[0].reason, GapReason::ReaderTooSlow);
}

#[test]
fn an_outlet_that_contradicts_itself_is_left_and_begun_with_anew() {
    let claim = Claim::of("contrary");
    let begun = [preamble(&claim, 3, 4), sample(&claim, 3.0)].concat();
    let mistakes = [gap(4), gap(3), gap(1 << 63), gap(u64::MAX), [4; 9].to_vec()];
    for (number, mistake) in mistakes.into_iter().enumerate() {
        let script = vec![
            [&begun[..], &mistake, &sample(&claim, 4.0)].concat(),
            [preamble(&claim, 90, 90), sample(&claim, 90.0)].concat(),
        ];
        let (inlet, outlet, _) = &inlet(&claim, script);
        assert_eq!([pull(inlet), pull(inlet)], [3.0, 90.0], "{number}");
        let stats = inlet.stats();
        assert_eq!((stats.lost_exact, stats.lost_unknown), (0, 1), "{number}");
        assert_eq!((stats.samples, stats.reconnects), (2, 1), "{number}");
        assert_eq!(inlet.position().unwrap().next, 91);
        assert_eq!(outlet.served(), 1);
    }
    // The same in the reply.
    let script = vec![
        preamble(&claim, 5, 4),
        [preamble(&claim, 90, 90), sample(&claim, 90.0)].concat(),
    ];
    let (inlet, ..) = &inlet(&claim, script);
    assert_eq!(pull(inlet), 90.0);
    assert_eq!(inlet.stats().lost_exact, 0);
}

#[test]
fn an_outlet_that_repeats_what_was_received_gives_nothing_twice() {
    let claim = Claim::of("repeating");
    let script = vec![
        [preamble(&claim, 3, 4), sample(&claim, 3.0)].concat(),
        // It was asked for the one after.
        [
            preamble(&claim, 3, 5),
            sample(&claim, 3.0),
            sample(&claim, 4.0),
        ]
        .concat(),
        [preamble(&claim, 9, 9), sample(&claim, 9.0)].concat(),
    ];
    let (inlet, ..) = &inlet(&claim, script);
    assert_eq!([pull(inlet), pull(inlet)], [3.0, 9.0]);
}

#[test]
fn an_outlet_that_hangs_up_at_once_is_not_dialled_all_the_time() {
    let claim = Claim::of("hasty");
    let mut script = vec![preamble(&claim, 3, 4); 1000];
    script.push(Vec::new());
    let (inlet, outlet, _) = &inlet(&claim, script);
    let _ = inlet.blocking().open(SOON);
    std::thread::sleep(Duration::from_millis(500));
    let dialled = outlet.served();
    assert!((1..=8).contains(&dialled), "{dialled}");
}
