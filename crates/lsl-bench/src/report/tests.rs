//! A small run made up for these tests, and the report of it. Nothing here was measured.

use std::collections::BTreeMap;
use std::fs;

use serde_json::json;

use super::*;
use crate::result::{Cell, Gap, Machine, Measurement, Round, SCHEMA, Subject};

/// Seven rounds of four subjects; encryption adds about a microsecond, which is within
/// its limit in every round, in most, and with 256 channels in none.
pub(super) fn made_up() -> Results {
    let subject = |name: &str, secure| Subject {
        name: name.into(),
        detail: format!("detail of {name}"),
        secure,
    };
    let cell = |channels: u32, added: f64| Cell {
        parameters: BTreeMap::from([
            ("channels".into(), json!(channels)),
            ("rate".into(), json!(1000)),
        ]),
        rounds: (0..7)
            .map(|round| {
                // Noise of a shared machine, the same for all that run in the round.
                let drift = [1.0, 1.3, 0.9, 1.1, 2.0, 1.05, 0.95][round];
                let own =
                    |turn: usize| [0.0, 0.004, -0.006, 0.008, 0.002, -0.003][(round + turn) % 6];
                let base = 55.0 + f64::from(channels) * 0.1;
                let turn = |index: usize, p50: f64| {
                    measurement(p50 * drift * (1.0 + own(index)), channels)
                };
                Round {
                    measurements: vec![
                        turn(0, base),
                        turn(1, base * 0.4),
                        turn(2, base * 0.4 + added),
                        turn(3, base * 0.98),
                    ],
                }
            })
            .collect(),
    };
    Results {
        schema: SCHEMA.into(),
        benchmark: "latency".into(),
        machine: Machine {
            started: "2026-01-02T03:04:05Z".into(),
            host: "made-up".into(),
            cpu: "no CPU at all".into(),
            cores: 4,
            kernel: "Linux 0.0".into(),
            governor: Some("performance".into()),
            load: [0.25, 0.5, 0.75],
            version: "0.1.0".into(),
            busy: None,
        },
        args: ["lsl", "bench", "latency", "--channels", "8,64,256"]
            .map(Into::into)
            .into(),
        subjects: vec![
            subject("liblsl 1.18", false),
            subject("ours", false),
            subject("ours secure", true),
            subject("other", false),
        ],
        baseline: 0,
        cells: vec![cell(8, 0.8), cell(64, 1.1), cell(256, 6.0)],
    }
}

fn measurement(p50: f64, channels: u32) -> Measurement {
    let values = [
        ("latency_p50_us", p50),
        ("latency_p95_us", p50 * 2.5),
        ("cpu_us_per_sample", p50 * 1.4),
        ("samples_per_s", 1.0e9 / p50 / f64::from(channels)),
        ("from_the_future", 3.0),
    ];
    let share = |factor: f64, count| (p50 * factor, count);
    Measurement {
        values: values.map(|(name, value)| (name.to_owned(), value)).into(),
        expected: 1000,
        received: 1000,
        gaps: Vec::new(),
        histogram: vec![
            share(0.7, 10),
            share(0.85, 190),
            share(1.0, 300),
            share(1.3, 300),
            share(1.9, 150),
            share(2.5, 40),
            share(12.0, 10),
        ],
        failure: None,
    }
}

/// One cell, two rounds, with a loss and a failure: small enough to be read in full.
fn tiny() -> Results {
    let mut results = made_up();
    results.subjects.truncate(2);
    results.subjects[1].name = "o|urs <b>".into();
    results.cells.truncate(1);
    let cell = &mut results.cells[0];
    cell.rounds.truncate(3);
    for (index, round) in cell.rounds.iter_mut().enumerate() {
        round.measurements.truncate(2);
        for (subject, measurement) in round.measurements.iter_mut().enumerate() {
            let value = [[10.0, 5.0], [12.0, 6.6], [11.0, 0.0]][index][subject];
            measurement.values = BTreeMap::from([("latency_p50_us".into(), value)]);
            measurement.histogram.clear();
        }
    }
    cell.rounds[1].measurements[1].received = 998;
    cell.rounds[1].measurements[1].gaps = vec![Gap {
        reader: 0,
        first: 17,
        count: 2,
    }];
    cell.rounds[2].measurements[1] = Measurement {
        failure: Some("it `died`".into()),
        ..Measurement::default()
    };
    results
}

fn temporary(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("lsl-report-{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&path);
    path
}

fn markdown(results: &Results) -> String {
    let analysis = Analysis::of(results);
    let figures = figures::draw(&analysis).unwrap();
    let [_, markdown] = page::render(&analysis, &[Run::of(results)], &figures).unwrap();
    markdown
}

#[test]
fn markdown_of_a_small_run() {
    let results = tiny();
    let text = markdown(&results);
    let (text, _) = text.split_once("## How to read this").unwrap();
    assert_eq!(text, TINY);
}

const TINY: &str = r"# lsl bench latency

o\|urs &lt;b&gt; against liblsl 1.18: 3 rounds in 1 cell.

> ⚠ **1 turn failed, see below.**

> ⚠ **2 samples did not arrive, see below.**

> ⚠ **Few rounds: an interval this wide hides all but large differences. Use 7 or more.**

## Result

![latency, median: ratio to liblsl 1.18](charts/ratio-latency-p50-us.svg)

*Dashed: 1, as liblsl 1.18. Left of it is better. An arrow means that an interval goes on.*

latency, median, µs

|  | liblsl 1.18 (baseline) | o\|urs &lt;b&gt; |
|---|---:|---:|
| 8 ch, 1 kHz | 11 (best 10, n=3) | 5.8 · ×0.525 \[0.286, 0.961\] faster, loses samples |

## Latency

![latency, median](charts/bars-latency-p50-us.svg)

*Shorter is better.*

## Delivery

> ⚠ **99.960 % altogether: 4998 of 5000 samples.**

|  | subject | delivered | received | expected |
|---|---|---:|---:|---:|
| 8 ch, 1 kHz | o\|urs &lt;b&gt; | 99.900 % | 1998 | 2000 |

- 8 ch, 1 kHz, o\|urs &lt;b&gt;, round 2, reader 0: 2 samples missing from number 17 on

## Failures

- 8 ch, 1 kHz, o\|urs &lt;b&gt;, round 3: it \`died\`

";

#[test]
fn report_is_written_with_its_figures() {
    let directory = temporary("written");
    let rendered = render(&made_up(), &directory).unwrap();
    assert!(rendered.files[0].ends_with("report.html"));
    let mut charts = 0;
    for file in &rendered.files {
        let text = fs::read_to_string(file).unwrap();
        match file.extension().and_then(|end| end.to_str()) {
            Some("svg") => {
                charts += 1;
                assert!(
                    !text.contains("NaN") && !text.contains("inf"),
                    "{}",
                    file.display()
                );
            }
            Some("html") => {
                for foreign in ["<script", "src=", "href=", "url(", "@import"] {
                    assert!(!text.contains(foreign), "{foreign}");
                }
            }
            _ => {
                for chart in text.split("](charts/").skip(1) {
                    let name = chart.split_once(')').unwrap().0;
                    assert!(directory.join("charts").join(name).is_file(), "{name}");
                }
            }
        }
    }
    // Four ratios, one overhead, two lines, two bars, three distributions.
    assert_eq!(charts, 12);
    let mut names = rendered.files.clone();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), rendered.files.len(), "two charts share a name");
    fs::remove_dir_all(directory).unwrap();
}

/// Names from outside, and numbers that break arithmetic, break nothing.
#[test]
fn hostile_results_are_harmless() {
    let mut results = made_up();
    results.subjects[1].name = "</text><script>alert(1)</script>\u{1b}[2J".into();
    results.subjects[2].detail = "\"'><img src=x onerror=alert(1)>|\n# h".into();
    results.machine.host = "<svg onload=x>".into();
    results.args.push("$(reboot) `x` </pre>".into());
    results.cells[0]
        .parameters
        .insert("<i>".into(), json!({"a": "<b>"}));
    let hostile = [0.0, -1.0, 1e308, 5e-324, f64::INFINITY, f64::NAN];
    for (round, value) in results.cells[1].rounds.iter_mut().zip(hostile) {
        for measurement in &mut round.measurements {
            for metric in measurement.values.values_mut() {
                *metric = value;
            }
            measurement.histogram = vec![(value, u64::MAX), (f64::INFINITY, 3), (-value, 0)];
            measurement.expected = u64::MAX;
        }
        round.measurements.pop();
    }
    results.cells[2].rounds.clear();
    let directory = temporary("hostile");
    let rendered = render(&results, &directory).unwrap();
    for file in &rendered.files {
        let text = fs::read_to_string(file).unwrap();
        for foreign in ["<script", "<img", "<i>", "<svg onload", "\u{1b}"] {
            assert!(!text.contains(foreign), "{foreign} in {}", file.display());
        }
        if file.extension().is_some_and(|end| end == "svg") {
            assert!(!text.contains("NaN"), "{}", file.display());
        }
    }
    fs::remove_dir_all(directory).unwrap();
}

#[test]
fn who_never_finishes_fails() {
    let mut results = tiny();
    for round in &mut results.cells[0].rounds {
        round.measurements[1] = Measurement {
            failure: Some("no".into()),
            ..Measurement::default()
        };
    }
    let text = markdown(&results);
    assert!(text.contains("| 11 (best 10, n=3) | fails |"), "{text}");
    assert!(text.contains("**3 turns failed, see below.**"), "{text}");
    let all_of_the_rest = "arrived in the turns that did not fail; 3 turns did, below.";
    assert!(text.contains(all_of_the_rest), "{text}");
}

/// Where a benchmark has no latency, encryption is still compared.
#[test]
fn encryption_of_a_run_without_latency() {
    let mut results = made_up();
    for round in results.cells.iter_mut().flat_map(|cell| &mut cell.rounds) {
        for measurement in &mut round.measurements {
            measurement.values.retain(|name, _| name == "samples_per_s");
        }
    }
    let text = markdown(&results);
    let (_, after) = text
        .split_once("ours secure against ours: everything else")
        .unwrap();
    let row = after
        .lines()
        .find(|line| line.starts_with("| 256 ch |"))
        .unwrap();
    assert!(
        row.ends_with("| slower |") && row.contains("| 0.84"),
        "{row}"
    );
    assert!(!text.contains("within 5 % or 2 µs in"), "{text}");
}

#[test]
fn nothing_measured_is_said_so() {
    let mut results = made_up();
    results.cells.clear();
    assert!(markdown(&results).contains("Nothing was measured."));
    assert_eq!(figures::draw(&Analysis::of(&results)).unwrap().len(), 0);
}

#[test]
fn runs_of_the_same_are_more_rounds() {
    let one = made_up();
    let mut two = made_up();
    two.machine.started = "2026-01-03T00:00:00Z".into();
    // The same subjects in another order; the baseline is the first run's.
    two.subjects.reverse();
    two.cells.reverse();
    for round in two.cells.iter_mut().flat_map(|cell| &mut cell.rounds) {
        round.measurements.reverse();
    }
    let mut elsewhere = made_up();
    elsewhere.machine.host = "another".into();
    let runs = vec![one.clone(), two, one.clone(), elsewhere];
    let (groups, copies) = load::merge(runs);
    assert_eq!((groups.len(), copies), (2, 1));
    let merged = &groups[0].results;
    assert_eq!(groups[0].runs.len(), 2);
    for (cell, before) in merged.cells.iter().zip(&one.cells) {
        assert_eq!(cell.rounds.len(), 14);
        for (round, before) in cell.rounds.iter().skip(7).zip(&before.rounds) {
            for (now, then) in round.measurements.iter().zip(&before.measurements) {
                assert_eq!(now.values, then.values);
            }
        }
    }
    assert_eq!(
        directories(&groups, Path::new("r"))[1],
        Path::new("r/report-latency-2")
    );
}

#[test]
fn other_forms_are_refused() {
    let check = |text: &str, expected: &str| {
        let failure = load::parse(text.as_bytes()).unwrap_err();
        assert!(failure.to_string().contains(expected), "{failure}");
    };
    check("", "not JSON");
    check(
        "{\"schema\": \"lsl-bench/2\"}",
        "\"lsl-bench/2\", this lsl reads \"lsl-bench/1\"",
    );
    check("[1]", "not written by `lsl bench`");
    check(
        "{\"schema\": \"lsl-bench/1\"}",
        "damaged results: missing field",
    );
    let mut results = made_up();
    results.baseline = 4;
    check(
        &serde_json::to_string(&results).unwrap(),
        "baseline 4 of 4 subjects",
    );
    results.baseline = 0;
    results.subjects[3].name = "ours".into();
    check(
        &serde_json::to_string(&results).unwrap(),
        "two subjects are called \"ours\"",
    );
}

#[test]
fn baseline_by_name() {
    let mut results = made_up();
    load::set_baseline(&mut results, "other").unwrap();
    assert_eq!(results.baseline, 3);
    let failure = load::set_baseline(&mut results, "nobody").unwrap_err();
    assert_eq!(failure.status(), 2);
    assert!(failure.to_string().contains("\"ours secure\""), "{failure}");
}

#[test]
fn files_are_found_once() {
    let root = temporary("found");
    let below = root.join("monday");
    fs::create_dir_all(&below).unwrap();
    for name in [
        "results.json",
        "results-2.json",
        "other.json",
        "results.txt",
    ] {
        fs::write(below.join(name), "{}").unwrap();
    }
    let found = load::find(&[root.clone(), below.join("results.json")]).unwrap();
    assert_eq!(
        found,
        [below.join("results-2.json"), below.join("results.json")]
    );
    let empty = root.join("empty");
    fs::create_dir(&empty).unwrap();
    assert_eq!(load::find(&[empty]).unwrap_err().status(), 3);
    fs::remove_dir_all(root).unwrap();
}

#[test]
fn headline_and_json() {
    let directory = temporary("headline");
    let rendered = render(&made_up(), &directory).unwrap();
    let mut text = Vec::new();
    rendered.write_headline(&mut text).unwrap();
    let text = String::from_utf8(text).unwrap();
    assert!(text.contains("×0.401  [0.396, 0.406]  faster"), "{text}");
    assert!(text.contains("baseline"), "{text}");
    assert!(
        text.contains("ours secure against ours: at most +6"),
        "{text}"
    );
    let json = serde_json::to_value(&rendered.summary).unwrap();
    assert_eq!(
        json["encryption"][0]["cells"][2]["within_limit"],
        json!(false)
    );
    assert_eq!(
        json["encryption"][0]["cells"][0]["within_limit"],
        json!(true)
    );
    assert_eq!(json["comparisons"][1]["verdict"], json!("faster"));
    assert_eq!(json["comparisons"][0]["verdict"], json!(null));
    fs::remove_dir_all(directory).unwrap();
}
