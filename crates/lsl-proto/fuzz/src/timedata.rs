//! Clock probes and their answers. Input: one datagram.

use lsl_proto::wire::timedata::{TimeReply, TimeRequest};

pub fn check(input: &[u8]) {
    if let Ok(request) = TimeRequest::parse(input) {
        assert!(request.t0.is_finite());
        if is_far_from_overflow(request.t0) {
            let again = TimeRequest::parse(&request.to_bytes()).expect("own probe");
            assert_eq!(again.wave_id, request.wave_id);
            assert_same_digits(again.t0, request.t0);
        }
        if let Ok(reply) = TimeReply::parse(&request.reply(1.5, 2.5).to_bytes()) {
            assert_eq!(
                (reply.wave_id, reply.t1, reply.t2),
                (request.wave_id, 1.5, 2.5)
            );
        }
    }
    if let Ok(reply) = TimeReply::parse(input) {
        let times = [reply.t0, reply.t1, reply.t2];
        assert!(times.iter().all(|time| time.is_finite()));
        if times.into_iter().all(is_far_from_overflow) {
            let again = TimeReply::parse(&reply.to_bytes()).expect("own reply");
            assert_eq!(again.wave_id, reply.wave_id);
            for (again, time) in [again.t0, again.t1, again.t2].into_iter().zip(times) {
                assert_same_digits(again, time);
            }
        }
    }
}

/// The largest doubles round up to infinity when they are written with 16 digits.
fn is_far_from_overflow(time: f64) -> bool {
    time.abs() < 1e308
}

/// The wire has 16 significant digits, one less than a double needs.
fn assert_same_digits(again: f64, time: f64) {
    let tolerance = time.abs() * 1e-15 + f64::from_bits(1);
    assert!(
        (again - time).abs() <= tolerance,
        "{time:?} became {again:?}"
    );
}
