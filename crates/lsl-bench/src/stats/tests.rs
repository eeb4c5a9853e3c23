//! Known answers: published tables, textbook examples, and the worked numbers of the pages whose
//! benchmarks we reproduce.

use super::paired::cohens_d_of_summary;
use super::*;

#[track_caller]
fn close(value: f64, expected: f64, tolerance: f64) {
    assert!(
        (value - expected).abs() <= tolerance,
        "{value}, not {expected}"
    );
}

/// Cushny and Peebles' extra hours of sleep, the example of "Student" (1908); results as R prints them.
#[test]
fn sleep_of_student() {
    let first = [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0];
    let second = [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4];
    let pairs: Vec<(f64, f64)> = first.into_iter().zip(second).collect();
    let paired = Paired::of(&pairs).unwrap();
    close(paired.mean, 1.58, 1e-12);
    close(paired.t, 4.0621, 5e-5);
    close(paired.p, 0.002_833, 5e-7);
    close(paired.interval[0], 0.700_114_2, 5e-8);
    close(paired.interval[1], 2.459_885_8, 5e-8);
    close(paired.d_z, 4.0621 / 10_f64.sqrt(), 2e-5);
    close(cohens_d(&pairs).unwrap(), 0.832_181, 1e-6);
}

/// The two cross-machine rows of the secure LSL benchmark page, five pairs each: means, deviations
/// and t are printed there, all else follows.
#[test]
fn published_overheads_of_encryption() {
    struct TabledTest {
        means: [f64; 2],
        deviations: [f64; 2],
        difference: f64,
        t: f64,
        p: f64,
        d: f64,
        d_z: f64,
        interval: [f64; 2],
        equivalent: [(f64, f64); 2],
    }
    for row in [
        TabledTest {
            means: [77.38, 78.20],
            deviations: [5.00, 4.44],
            difference: 0.82,
            t: 0.81,
            p: 0.463,
            d: 0.174,
            d_z: 0.36,
            interval: [-1.99, 3.64],
            equivalent: [(0.01, 0.52), (0.05, 0.020)],
        },
        TabledTest {
            means: [78.51, 79.37],
            deviations: [2.90, 3.51],
            difference: 0.85,
            t: 2.81,
            p: 0.0485,
            d: 0.265,
            d_z: 1.25,
            interval: [0.009, 1.70],
            equivalent: [(0.01, 0.58), (0.05, 0.0003)],
        },
    ] {
        let deviation = row.difference / row.t * 5_f64.sqrt();
        let paired = Paired::from_summary(row.difference, deviation, 5).unwrap();
        close(paired.t, row.t, 1e-9);
        // What is printed is rounded, t to 0.005 and p with it.
        close(paired.p, row.p, 0.001);
        close(paired.d_z, row.d_z, 0.01);
        close(paired.t, paired.d_z * 5_f64.sqrt(), 1e-12);
        // Both the difference and the ends are rounded to 0.005, and the width scales with the former.
        close(paired.interval[0], row.interval[0], 0.015);
        close(paired.interval[1], row.interval[1], 0.015);
        let [first, second] = row.deviations;
        close(
            cohens_d_of_summary(row.difference, first, second),
            row.d,
            0.002,
        );
        for (share, p) in row.equivalent {
            let bound = share * row.means[0];
            close(paired.equivalence(-bound, bound), p, 0.006);
        }
        assert!(row.means[1] - row.means[0] - row.difference < 0.011);
    }
}

#[test]
fn pairs_for_one_percent() {
    // "To get a 95 % CI half-width < 1 % with that Ethernet noise takes ~36 pairs."
    let paired = Paired::from_summary(0.82, 0.82 / 0.81 * 5_f64.sqrt(), 5).unwrap();
    let needed = paired.pairs_needed(0.7738).unwrap();
    assert!((35..=37).contains(&needed), "{needed}");
    assert_eq!(paired.pairs_needed(0.0), None);
    assert_eq!(
        Paired::from_summary(1.0, 0.0, 5).unwrap().pairs_needed(0.0),
        Some(2)
    );
}

#[test]
fn without_scatter() {
    let same = Paired::of(&[(2.0, 2.0), (3.0, 3.0)]).unwrap();
    close(same.p, 1.0, 0.0);
    close(same.equivalence(-0.1, 0.1), 0.0, 0.0);
    let apart = Paired::of(&[(2.0, 3.0), (3.0, 4.0)]).unwrap();
    close(apart.p, 0.0, 0.0);
    close(apart.equivalence(-0.1, 0.1), 1.0, 0.0);
    assert!(Paired::of(&[(1.0, 2.0)]).is_none());
    assert!(cohens_d(&[(1.0, 2.0)]).is_none());
}

#[test]
fn means_and_quantiles() {
    let values = [9.0, 2.0, 4.0, 4.0, 5.0, 7.0, 4.0, 5.0];
    close(mean(&values).unwrap(), 5.0, 0.0);
    close(deviation(&values).unwrap(), (32.0_f64 / 7.0).sqrt(), 1e-15);
    close(median(&values).unwrap(), 4.5, 0.0);
    close(median(&[3.0, 1.0, 2.0]).unwrap(), 2.0, 0.0);
    // As `numpy.percentile(range(1, 11), 95)`.
    let ten: Vec<f64> = (1..=10).map(f64::from).collect();
    close(quantile(&ten, 0.95).unwrap(), 9.55, 1e-12);
    close(quantile(&ten, 0.0).unwrap(), 1.0, 0.0);
    close(quantile(&ten, 1.0).unwrap(), 10.0, 0.0);
    assert_eq!(
        (mean(&[]), median(&[]), deviation(&[1.0])),
        (None, None, None)
    );
}

/// The ranks are those of the published table for the sign test at 95 %.
#[test]
fn interval_of_the_median_by_rank() {
    for (n, low) in [
        (6, 1),
        (8, 1),
        (9, 2),
        (10, 2),
        (12, 3),
        (15, 4),
        (20, 6),
        (25, 8),
        (30, 10),
        (50, 18),
    ] {
        let values: Vec<f64> = (1..=n).rev().map(f64::from).collect();
        let interval = median_interval(&values).unwrap();
        close(interval[0], f64::from(low), 0.0);
        close(interval[1], f64::from(n + 1 - low), 0.0);
    }
    assert_eq!(median_interval(&[1.0, 2.0, 3.0, 4.0, 5.0]), None);
    assert_eq!(median_interval(&[]), None);
    // 2^-5000 is no number any more: the normal approximation says ranks 2431 and 2570.
    let many: Vec<f64> = (1..=5000).map(f64::from).collect();
    close(median_interval(&many).unwrap()[0], 2431.0, 1.0);
}

#[test]
fn bootstrap_is_repeatable_and_about_right() {
    // The mean of 0..100: standard error 28.87 / 10, so 49.5 plus and minus 5.66.
    let values: Vec<f64> = (0..100).map(f64::from).collect();
    let of_mean = |chosen: &[usize]| {
        mean(
            &chosen
                .iter()
                .map(|index| values[*index])
                .collect::<Vec<f64>>(),
        )
    };
    let interval = bootstrap(100, of_mean).unwrap();
    close(interval[0], 49.5 - 5.66, 0.6);
    close(interval[1], 49.5 + 5.66, 0.6);
    assert_eq!(bootstrap(100, of_mean), Some(interval));
    assert_eq!(bootstrap(2, of_mean), None);
}

/// The first outputs of the reference implementation for seed 1234567.
#[test]
fn random_numbers_are_splitmix() {
    let mut random = SplitMix(1_234_567);
    let first: Vec<u64> = (0..3).map(|_| random.next()).collect();
    assert_eq!(
        first,
        [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423
        ]
    );
}

#[test]
fn percentiles_are_ranks() {
    let hundred = sorted_latencies((1..=100).rev().map(|n| n as f32).chain([f32::NAN]));
    for (share, value) in [
        (0.0, 1.0),
        (0.5, 50.0),
        (0.95, 95.0),
        (0.99, 99.0),
        (1.0, 100.0),
    ] {
        assert_eq!(percentile(&hundred, share), Some(value));
    }
    assert_eq!(percentile(&[7.0], 0.5), Some(7.0));
    assert_eq!(percentile(&[], 0.5), None);
    assert_eq!(mean_latency(&hundred), Some(50.5));
}

#[test]
fn slope_is_that_of_a_line_through_all() {
    assert_eq!(slope(&[(0.0, 5.0), (1.0, 5.0), (2.0, 5.0)]), Some(0.0));
    assert_eq!(slope(&[(0.0, 1.0), (1.0, 3.0), (2.0, 5.0)]), Some(2.0));
    assert_eq!(slope(&[(1.0, 1.0)]), None);
    assert_eq!(slope(&[]), None);
}

#[test]
fn ratios_are_those_of_pairs() {
    let pairs = [(1.0, 2.0), (10.0, 10.0), (4.0, 5.0), (0.0, 1.0)];
    assert_eq!(median_ratio(&pairs), Some(1.25));
    assert_eq!(median_ratio(&[]), None);
}
