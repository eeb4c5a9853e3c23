use super::*;

#[test]
fn chunks_are_stamped_backwards_from_the_last_sample() {
    let stamps = |stamps, samples, rate| -> Vec<f64> {
        let stamper = Stamper::new(stamps, samples, rate, 50.0);
        (0..samples).map(|n| stamper.stamp(n)).collect()
    };
    assert_eq!(stamps(Stamps::Now, 1, 100.0), [50.0]);
    assert_eq!(stamps(Stamps::Last(0.0), 1, 100.0), [50.0]);
    assert_eq!(stamps(Stamps::Last(-1.0), 1, 100.0), [-1.0]);
    assert_eq!(
        stamps(Stamps::Last(2000.0), 3, 100.0),
        [1999.98, -1.0, -1.0]
    );
    assert_eq!(stamps(Stamps::Last(-1.0), 2, 10.0), [-1.1, -1.0]);
    assert_eq!(stamps(Stamps::Last(7.0), 2, 0.0), [7.0, -1.0]);
    assert_eq!(
        stamps(Stamps::Each(&[1.0, 0.0, -1.0]), 3, 10.0),
        [1.0, 50.0, -1.0]
    );
}

/// The outlet's readers may be in several lanes, and a large chunk comes in pieces.
#[test]
fn whoever_sends_the_first_piece_of_a_push_sends_the_small_last_one() {
    let mut turn = Turn {
        encoders: VARIANTS.map(|_| Encoder::V100(Encoder100::new(ChannelFormat::Float32, 1))),
        scratch: vec![0; 100],
        ends: Vec::new(),
        last_inline: f64::NEG_INFINITY,
    };
    assert_eq!(turn.who_sends(2, 50.0), SendBy::Pusher);
    assert_eq!(turn.who_sends(2, 50.0), SendBy::Pusher);
    let soon = 50.0 + INLINE_INTERVAL_SECS / 2.0;
    assert_eq!(turn.who_sends(2, soon), SendBy::Courier);
    assert_eq!(turn.who_sends(2, soon), SendBy::Courier);
    assert_eq!(turn.who_sends(INLINE_READERS + 1, 60.0), SendBy::Courier);
    assert_eq!(turn.who_sends(2, 60.0), SendBy::Pusher);
}
