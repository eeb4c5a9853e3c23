use proptest::prelude::*;

use super::*;
use crate::wire::discovery::tests::{hex, list, vector};

#[test]
fn probes_of_a_real_inlet_are_read_and_rewritten() {
    let file = vector("timedata-inlet-probes");
    let probes = list(&file, "probes");
    assert_eq!(probes.len(), 16);
    for (index, probe) in probes.iter().enumerate() {
        let bytes = hex(probe, "hex");
        let request = TimeRequest::parse(&bytes).unwrap();
        let wave_id = if index < 8 {
            1_804_289_383
        } else {
            846_930_886
        };
        assert_eq!(request.wave_id, wave_id);
        assert_eq!(request.to_bytes(), bytes, "{probe}");
    }
}

#[test]
fn malformed_probes_and_answers_are_refused() {
    for probe in [
        "",
        "x 1",
        "1",
        "1 x",
        "1 1x",
        "1 nan",
        "1 inf",
        "1 1e999",
        "2147483648 1",
        "1.5 1",
    ] {
        let datagram = format!("LSL:timedata\r\n{probe}\r\n");
        let parsed = TimeRequest::parse(datagram.as_bytes());
        assert_eq!(parsed, Err(DatagramError::Number), "{probe:?}");
    }
    assert_eq!(
        TimeRequest::parse(b"LSL:shortinfo\r\n1 1\r\n"),
        Err(DatagramError::Command)
    );
    for reply in ["", " 1 2 3", " x 2 3 4", " 1 2 3 nan", " 1 2 3 -inf"] {
        let parsed = TimeReply::parse(reply.as_bytes());
        assert_eq!(parsed, Err(DatagramError::Number), "{reply:?}");
    }
}

proptest! {
    #[test]
    fn any_bytes_are_survived(tail in prop::collection::vec(any::<u8>(), 0..100)) {
        let _ = TimeReply::parse(&tail);
        let probe = [b"LSL:timedata\r\n", tail.as_slice()].concat();
        if let Ok(request) = TimeRequest::parse(&probe) {
            prop_assert!(request.t0.is_finite());
        }
    }

    #[test]
    fn a_clock_reading_survives_to_a_nanosecond(wave_id in any::<i32>(), t0 in 0.0..1e6f64) {
        let parsed = TimeRequest::parse(&TimeRequest { wave_id, t0 }.to_bytes()).unwrap();
        prop_assert_eq!(parsed.wave_id, wave_id);
        prop_assert!((parsed.t0 - t0).abs() < 1e-9);
        let reply = parsed.reply(t0 + 1.0, t0 + 2.0);
        let back = TimeReply::parse(&reply.to_bytes()).unwrap();
        prop_assert!((back.t1 - reply.t1).abs() < 1e-9 && (back.t2 - reply.t2).abs() < 1e-9);
        prop_assert_eq!((back.wave_id, back.t0), (wave_id, parsed.t0));
    }
}
