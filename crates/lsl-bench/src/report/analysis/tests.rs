use super::*;
use crate::report::encryption::JUDGED;
use crate::report::figures;
use crate::report::tests::made_up;

fn compare(metric: &str, pairs: &[(f64, f64)]) -> (Comparison, Tone) {
    let results = made_up();
    Analysis::of(&results)
        .measure(metric)
        .unwrap()
        .compare(pairs)
}

#[test]
fn verdicts() {
    let check = |ratios: &[f64], words: &str, tone: Tone| {
        let pairs: Vec<(f64, f64)> = ratios.iter().map(|ratio| (50.0, 50.0 * ratio)).collect();
        let found = compare("latency_p50_us", &pairs);
        assert_eq!(
            (found.0.verdict.as_deref(), found.1),
            (Some(words), tone),
            "{ratios:?}"
        );
    };
    check(&[0.4], "too few rounds", Tone::Muted);
    check(&[1.0, 1.0], "the same", Tone::Plain);
    check(&[0.39, 0.41, 0.40], "faster", Tone::Good);
    check(
        &[1.2, 1.3, 1.25, 1.22, 1.27, 1.31, 1.21],
        "slower",
        Tone::Bad,
    );
    check(
        &[1.02, 1.021, 1.019, 1.02, 1.02, 1.018, 1.022],
        "slower, within 5 %",
        Tone::Plain,
    );
    check(
        &[0.99, 1.01, 1.0, 1.012, 0.988, 1.003, 0.998],
        "equivalent within 5 %",
        Tone::Plain,
    );
    check(
        &[0.7, 1.5, 0.9, 1.2, 1.0, 0.8, 1.4],
        "no difference shown",
        Tone::Muted,
    );
    // An outlier in one round does not turn six rounds around, but takes the certainty.
    check(
        &[0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 3.0],
        "no difference shown",
        Tone::Muted,
    );
    check(
        &[0.5, 0.51, 0.5, 0.5, 0.49, 0.5, 0.5, 0.5, 3.0],
        "faster",
        Tone::Good,
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
    let (lower, _) = compare("latency_p50_us", &pairs);
    assert_eq!((lower.ratio, lower.ratio_best), (Some(0.5), Some(0.5)));
    assert_eq!(lower.ratio_interval, Some([14.0 / 30.0, 0.525]));
    let (higher, _) = compare("samples_per_s", &[(10.0, 30.0), (20.0, 40.0)]);
    assert_eq!((higher.ratio, higher.ratio_best), (Some(2.5), Some(2.0)));
}

#[test]
fn zeros_have_differences_but_no_ratio() {
    let (comparison, _) = compare("latency_p50_us", &[(0.0, 2.0), (0.0, 2.1), (0.0, 1.9)]);
    assert_eq!((comparison.ratio, comparison.ratio_best), (None, None));
    assert_eq!(comparison.verdict.as_deref(), Some("slower"));
    let (same, _) = compare("latency_p50_us", &[(0.0, 0.0), (0.0, 0.0)]);
    assert_eq!(same.verdict.as_deref(), Some("the same"));
    assert!(compare("latency_p50_us", &[]).0.verdict.is_none());
}

#[test]
fn words_suit_the_metric() {
    let results = made_up();
    let analysis = Analysis::of(&results);
    for (metric, words, tone) in [
        ("latency_p50_us", "slower", Tone::Bad),
        ("samples_per_s", "faster", Tone::Good),
        ("cpu_us_per_sample", "more", Tone::Bad),
        ("from_the_future", "higher", Tone::Plain),
    ] {
        let measure = analysis.measure(metric).unwrap();
        let (more, shown) = measure.compare(&[(1.0, 2.0), (1.0, 2.1), (1.0, 1.9)]);
        assert_eq!(
            (more.verdict.as_deref(), shown),
            (Some(words), tone),
            "{metric}"
        );
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
    let figures = figures::draw(&analysis).unwrap();
    let files = figures
        .iter()
        .filter(|figure| figure.file.starts_with("distribution-"));
    let titles: Vec<&str> = files.map(|figure| figure.title.as_str()).collect();
    assert!(!titles.is_empty());
    for title in titles {
        assert!(
            title.starts_with("latency of the slowest reader: "),
            "{title}"
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
    let overheads = |results: &Results| {
        let mut analysis = Analysis::of(results);
        analysis.encryption.remove(0).summary.cells
    };
    let added = overheads(&results);
    let within: Vec<Option<bool>> = added.iter().map(|added| added.within_limit).collect();
    assert_eq!(within, [Some(true), None, Some(false)]);
    // The limit is 2 µs up to 40 µs, 5 % above.
    assert!((added[0].limit_us - 2.0).abs() < 1e-12);
    for round in &mut results.cells[0].rounds {
        for measurement in &mut round.measurements {
            *measurement.values.get_mut(JUDGED).unwrap() = 100.0;
        }
    }
    let same = &overheads(&results)[0];
    assert!((same.limit_us - 5.0).abs() < 1e-12);
    assert_eq!((same.added_us, same.within_limit), (0.0, Some(true)));
    results.cells[0].rounds.truncate(1);
    assert_eq!(overheads(&results)[0].within_limit, None);
}
