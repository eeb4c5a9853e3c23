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
