use serde_json::json;

use super::*;
use crate::report::pictures;
use crate::report::tests::made_up;

fn compare(pairs: &[(f64, f64)], better: Better) -> Comparison {
    Comparison::of(pairs, Some(better)).unwrap()
}

#[test]
fn verdicts() {
    let check = |ratios: &[f64], expected: Verdict| {
        let pairs: Vec<(f64, f64)> = ratios.iter().map(|ratio| (50.0, 50.0 * ratio)).collect();
        assert_eq!(
            compare(&pairs, Better::Lower).verdict,
            expected,
            "{ratios:?}"
        );
    };
    check(&[0.4], Verdict::TooFew);
    check(&[1.0, 1.0], Verdict::Same);
    check(&[0.39, 0.41, 0.40], Verdict::Lower { slight: false });
    check(
        &[1.2, 1.3, 1.25, 1.22, 1.27, 1.31, 1.21],
        Verdict::Higher { slight: false },
    );
    check(
        &[1.02, 1.021, 1.019, 1.02, 1.02, 1.018, 1.022],
        Verdict::Higher { slight: true },
    );
    check(
        &[0.99, 1.01, 1.0, 1.012, 0.988, 1.003, 0.998],
        Verdict::Equivalent,
    );
    check(&[0.7, 1.5, 0.9, 1.2, 1.0, 0.8, 1.4], Verdict::NotShown);
    // An outlier in one round does not turn six rounds around, but takes the certainty.
    check(&[0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 3.0], Verdict::NotShown);
    check(
        &[0.5, 0.51, 0.5, 0.5, 0.49, 0.5, 0.5, 0.5, 3.0],
        Verdict::Lower { slight: false },
    );
}

#[test]
fn ratios_are_paired_and_of_the_best() {
    // The machine drifts by ten; the ratio stays.
    let pairs = [
        (10.0, 5.0),
        (100.0, 50.0),
        (40.0, 21.0),
        (12.0, 6.0),
        (30.0, 14.0),
        (11.0, 5.5),
    ];
    let lower = compare(&pairs, Better::Lower);
    assert_eq!(lower.ratio, Some(0.5));
    assert_eq!(lower.best, Some(0.5));
    assert_eq!(
        lower.interval.map(|it| (it.low, it.high)),
        Some((14.0 / 30.0, 0.525))
    );
    let higher = compare(&[(10.0, 30.0), (20.0, 40.0)], Better::Higher);
    assert_eq!((higher.ratio, higher.best), (Some(2.5), Some(2.0)));
}

#[test]
fn zeros_have_differences_but_no_ratio() {
    let comparison = compare(&[(0.0, 2.0), (0.0, 2.1), (0.0, 1.9)], Better::Lower);
    assert_eq!((comparison.ratio, comparison.best), (None, None));
    assert_eq!(comparison.verdict, Verdict::Higher { slight: false });
    assert_eq!(
        compare(&[(0.0, 0.0), (0.0, 0.0)], Better::Lower).verdict,
        Verdict::Same
    );
    assert!(Comparison::of(&[], None).is_none());
}

#[test]
fn words_suit_the_metric() {
    let results = made_up();
    let analysis = Analysis::of(&results);
    let more = Verdict::Higher { slight: false };
    for (metric, words, tone) in [
        ("latency_p50_us", "slower", Tone::Bad),
        ("samples_per_s", "faster", Tone::Good),
        ("cpu_us_per_sample", "more", Tone::Bad),
        ("from_the_future", "higher", Tone::Plain),
    ] {
        let measure = analysis.measure(metric).unwrap();
        assert_eq!(measure.words(more), words, "{metric}");
        assert_eq!(measure.tone(more), tone, "{metric}");
    }
    // Unknown ones come last, whatever their name.
    assert_eq!(analysis.measures.last().unwrap().name, "from_the_future");
    assert_eq!(analysis.labels, ["8 ch", "64 ch", "256 ch"]);
    assert_eq!(analysis.common, ["1 kHz"]);
}

#[test]
fn fanout_says_whose_latency_it_shows() {
    let mut results = made_up();
    for turn in results
        .cells
        .iter_mut()
        .flat_map(|cell| &mut cell.rounds)
        .flat_map(|round| &mut round.measurements)
    {
        let p50 = turn.values["latency_p50_us"];
        turn.values.insert("slowest_p50_us".into(), p50);
    }
    let titles = |results: &Results| {
        let analysis = Analysis::of(results);
        ["latency_p50_us", "slowest_p50_us"].map(|name| {
            let measure = analysis.measure(name);
            measure.map(|measure| measure.title.clone())
        })
    };
    let slowest = Some("latency of the slowest reader, median".to_owned());
    assert_eq!(
        titles(&results),
        [Some("latency, median".into()), slowest.clone()]
    );
    results.benchmark = "fanout".into();
    // Not the same under two names.
    assert_eq!(titles(&results), [slowest, None]);
    let analysis = Analysis::of(&results);
    let charts = pictures::distributions(&analysis, &pictures::looks(&analysis));
    assert!(!charts.is_empty());
    for chart in charts {
        assert!(
            chart.title.starts_with("latency of the slowest reader: "),
            "{}",
            chart.title
        );
    }
}

#[test]
fn twins_by_name() {
    let check = |names: &[(&str, bool)], expected: &[(usize, usize)]| {
        let mut results = made_up();
        results.subjects = names
            .iter()
            .map(|(name, secure)| crate::result::Subject {
                name: (*name).into(),
                detail: String::new(),
                secure: *secure,
            })
            .collect();
        assert_eq!(twins(&results), expected, "{names:?}");
    };
    check(&[("ours", false), ("ours secure", true)], &[(0, 1)]);
    check(&[("ours secure", true), ("ours", false)], &[(1, 0)]);
    check(&[("raw:tcp", false), ("raw:tcp-aesgcm", true)], &[(0, 1)]);
    check(
        &[("a", false), ("a b", false), ("a b secure chacha", true)],
        &[(1, 2)],
    );
    check(&[("our", false), ("ours", true)], &[]);
    check(&[("ours", false), ("liblsl", false)], &[]);
}

#[test]
fn added_by_encryption() {
    let mut results = made_up();
    let overheads = Overhead::of(&results, 1, 2);
    let within: Vec<Within> = overheads.iter().map(Overhead::within).collect();
    assert_eq!(within, [Within::Yes, Within::Unsure, Within::No]);
    // The limit is 2 µs up to 40 µs, 5 % above.
    assert!((overheads[0].limit - 2.0).abs() < 1e-12);
    results.cells[0]
        .parameters
        .insert("channels".into(), json!(9));
    for round in &mut results.cells[0].rounds {
        for measurement in &mut round.measurements {
            *measurement.values.get_mut(JUDGED).unwrap() = 100.0;
        }
    }
    let same = &Overhead::of(&results, 1, 2)[0];
    assert!((same.limit - 5.0).abs() < 1e-12);
    assert_eq!((same.added, same.within()), (0.0, Within::Yes));
    results.cells[0].rounds.truncate(1);
    assert_eq!(Overhead::of(&results, 1, 2)[0].within(), Within::Unsure);
}
