//! `lsl bench` end to end, tiny: what is asserted is that everything sent arrived and was measured,
//! never how fast.

use lsl_core::local_clock;
use serde_json::Value;

use crate::lab::{Lab, Running};

/// Runs it; gives its results and what it wrote to stdout.
fn bench(arguments: &[&str]) -> (Value, String) {
    let lab = Lab::new();
    let output = lab.path("results");
    let mut all = vec!["bench"];
    all.extend(arguments);
    all.extend(["--output", &output]);
    let ended = lab.run(&all).ok();
    let text = std::fs::read_to_string(lab.path("results/results.json")).unwrap();
    (serde_json::from_str(&text).unwrap(), ended.stdout)
}

/// Every measurement, by subject, of results in which nothing may be missing.
#[track_caller]
fn complete(results: &Value, cells: usize, rounds: usize, subjects: &[&str], metrics: &[&str]) {
    assert_eq!(results["schema"], "lsl-bench/1");
    let names: Vec<&Value> = array(&results["subjects"])
        .iter()
        .map(|subject| &subject["name"])
        .collect();
    assert_eq!(names, subjects);
    assert_eq!(array(&results["cells"]).len(), cells);
    for cell in array(&results["cells"]) {
        assert_eq!(array(&cell["rounds"]).len(), rounds);
        for round in array(&cell["rounds"]) {
            let measurements = array(&round["measurements"]);
            assert_eq!(measurements.len(), subjects.len());
            for measurement in measurements {
                assert_eq!(measurement.get("failure"), None, "{measurement}");
                assert!(measurement["expected"].as_u64() > Some(0));
                assert_eq!(measurement["expected"], measurement["received"]);
                assert_eq!(measurement["gaps"], Value::Array(Vec::new()));
                for metric in metrics {
                    let value = measurement["values"][metric].as_f64();
                    assert!(value > Some(0.0), "{metric}: {measurement}");
                }
            }
        }
    }
}

#[track_caller]
fn array(value: &Value) -> &Vec<Value> {
    value.as_array().unwrap()
}

#[test]
fn latency_of_all_carriers_and_readers() {
    let (results, table) = bench(&[
        "latency",
        "--lib",
        "core",
        "--lib",
        "raw:tcp",
        "--lib",
        "raw:tcp-aesgcm",
        "--secure",
        "off,on",
        "--channels",
        "3",
        "--rate",
        "500",
        "--inlets",
        "1,3",
        "--seconds",
        "0.2",
        "--rounds",
        "1",
        "--format",
        "int16",
    ]);
    let subjects = ["core", "core secure", "raw:tcp", "raw:tcp-aesgcm"];
    let metrics = [
        "latency_p50_us",
        "latency_p95_us",
        "latency_max_us",
        "slowest_p50_us",
        "push_p50_us",
        "samples_per_s",
    ];
    complete(&results, 2, 1, &subjects, &metrics);
    let cell = &results["cells"][1];
    assert_eq!(cell["parameters"]["inlets"], 3);
    let measurement = &cell["rounds"][0]["measurements"][0];
    assert_eq!(measurement["expected"], 300);
    let counted: u64 = array(&measurement["histogram"])
        .iter()
        .map(|bucket| bucket[1].as_u64().unwrap())
        .sum();
    // Every sample in every inlet, as the percentiles.
    assert_eq!(counted, 300);
    median_is_in_histogram(measurement);
    let secure = array(&results["subjects"])
        .iter()
        .map(|subject| subject["secure"].as_bool().unwrap());
    assert_eq!(
        secure.collect::<Vec<bool>>(),
        [false, true, false, true],
        "{results}"
    );
    for name in subjects {
        assert!(table.contains(name), "{table}");
    }
    assert_eq!(table.matches("100.000 %").count(), 8, "{table}");
}

/// Half of the samples are in the buckets up to the one that holds the median.
#[track_caller]
fn median_is_in_histogram(measurement: &Value) {
    let median = measurement["values"]["latency_p50_us"].as_f64().unwrap();
    let buckets = array(&measurement["histogram"])
        .iter()
        .map(|bucket| (bucket[0].as_f64().unwrap(), bucket[1].as_u64().unwrap()));
    let buckets: Vec<(f64, u64)> = buckets.collect();
    let all: u64 = buckets.iter().map(|(_, count)| count).sum();
    let mut sum = 0;
    let half = buckets.iter().find(|(_, count)| {
        sum += count;
        2 * sum >= all
    });
    let (bound, _) = half.unwrap();
    // Buckets grow by a tenth.
    assert!(
        (bound / 1.11..=bound * 1.001).contains(&median),
        "{median} {bound} {measurement}"
    );
}

#[test]
fn a_report_pairs_sealed_sockets_with_plain_ones() {
    let lab = Lab::new();
    let output = lab.path("results");
    let libraries = ["--lib", "raw:tcp-aesgcm", "--lib", "raw:tcp"];
    let few = [
        "--seconds",
        "0.1",
        "--rounds",
        "3",
        "--rate",
        "500",
        "--output",
        &output,
    ];
    lab.run(&[&["bench", "latency"], &libraries[..], &few].concat())
        .ok();
    let report = lab.run(&["bench", "report", &output, "--json"]).ok().json();
    let encryption = array(&report[0]["encryption"]);
    assert_eq!(encryption.len(), 1, "{report}");
    assert_eq!(encryption[0]["plain"], "raw:tcp");
    assert_eq!(encryption[0]["secure"], "raw:tcp-aesgcm");
    let cell = &encryption[0]["cells"][0];
    assert!(cell["added_us_interval"][1].is_number(), "{report}");
}

/// What the driver made for itself in this folder.
#[cfg(unix)]
fn corner(folder: &str) -> std::path::PathBuf {
    let deadline = local_clock() + 30.0;
    loop {
        let found = std::fs::read_dir(folder).unwrap().flatten();
        let ready = found.map(|entry| entry.path()).find(|path| {
            let file = path.join("secure/lsl-secure.toml");
            // All of it.
            std::fs::read_to_string(file).is_ok_and(|text| text.contains("trusted_peers"))
        });
        if let Some(path) = ready {
            return path;
        }
        assert!(local_clock() < deadline, "no folder was made");
        std::thread::yield_now();
    }
}

/// Replaces the configuration of a run under way, so that its turns are not as they should be.
#[cfg(unix)]
fn ends_for(arguments: &str, change: impl Fn(&std::path::Path), says: &str) {
    let lab = Lab::new();
    let (output, temporary) = (lab.path("results"), lab.path("tmp"));
    std::fs::create_dir(&temporary).unwrap();
    let mut all = vec!["bench"];
    all.extend(arguments.split_whitespace());
    all.extend(["--lib", "core", "--output", &output]);
    let mut command = lab.command(&all);
    let running = Running::start(command.env("TMPDIR", &temporary));
    change(&corner(&temporary));
    // It would take hours if it were one failed turn among others.
    let ended = running.wait();
    assert_eq!(ended.status, Some(1), "{ended:?}");
    assert!(ended.stderr.contains(says), "{ended:?}");
}

#[cfg(unix)]
#[test]
fn a_run_ends_whose_subject_does_not_encrypt_as_it_must() {
    let latency = "latency --seconds 0.02 --rate 500 --rounds 100000 --secure";
    let policy = |file: &std::path::Path, from: &str, to: &str| {
        let text = std::fs::read_to_string(file).unwrap();
        assert!(text.contains(from), "{text}");
        std::fs::write(file.with_extension("new"), text.replace(from, to)).unwrap();
        std::fs::rename(file.with_extension("new"), file).unwrap();
    };
    ends_for(
        &format!("{latency} on"),
        |corner| {
            let file = corner.join("secure/lsl-secure.toml");
            policy(&file, "\"required\"", "\"off\"");
        },
        "core secure: 1 of 1 connections are in plaintext",
    );
    ends_for(
        &format!("{latency} off"),
        |corner| {
            std::os::unix::fs::symlink(corner.join("secure"), corner.join("home/lsl_api")).unwrap();
        },
        "core: 1 of 1 connections are encrypted",
    );
    ends_for(
        "scale --streams 3 --samples 2 --idle 0.01 --repeat 1000 --secure on",
        |corner| {
            let file = corner.join("secure/lsl-secure.toml");
            policy(&file, "\"required\"", "\"off\"");
        },
        "core secure: 3 of 3 connections are in plaintext",
    );
}

#[test]
fn batches_keep_their_numbers() {
    let (results, _) = bench(&[
        "bulk",
        "--lib",
        "raw:tcp",
        "--lib",
        "core",
        "--baseline",
        "core",
        "--bytes",
        "6",
        "--rate",
        "2000",
        "--batch",
        "1,16",
        "--seconds",
        "0.2",
        "--rounds",
        "2",
        "--readers",
        "2",
    ]);
    complete(
        &results,
        2,
        2,
        &["raw:tcp", "core"],
        &["latency_p95_us", "rate_kept"],
    );
    assert_eq!(results["baseline"], 1);
}

#[test]
fn the_slowest_reader_is_what_fanout_shows() {
    let (results, table) = bench(&[
        "fanout",
        "--lib",
        "core",
        "--readers",
        "4",
        "--bytes",
        "1",
        "--samples",
        "100",
        "--rounds",
        "1",
    ]);
    complete(&results, 1, 1, &["core"], &["latency_p95_us"]);
    let values = &results["cells"][0]["rounds"][0]["measurements"][0]["values"];
    for part in ["p50", "p95", "p99", "mean"] {
        let [latency, slowest] =
            ["latency", "slowest"].map(|whose| &values[&format!("{whose}_{part}_us")]);
        assert_eq!(latency, slowest);
    }
    let measurement = &results["cells"][0]["rounds"][0]["measurements"][0];
    let counted = array(&measurement["histogram"]).iter();
    let counted: u64 = counted.map(|bucket| bucket[1].as_u64().unwrap()).sum();
    assert_eq!(counted, 100);
    median_is_in_histogram(measurement);
    assert!(table.contains("slowest p50 µs"), "{table}");
}

#[test]
fn nothing_is_lost_at_full_speed() {
    let libraries = ["max", "--lib", "core", "--lib", "raw:tcp", "--rounds", "1"];
    let with = |more: &[&'static str]| bench(&[&libraries, more].concat());
    let (results, _) = with(&["--seconds", "0.2", "--batch", "1,40", "--window", "100"]);
    complete(
        &results,
        2,
        1,
        &["core", "raw:tcp"],
        &["samples_per_s", "mib_per_s"],
    );
}

#[test]
fn what_is_written_first_is_read_then() {
    let (results, _) = bench(&[
        "max",
        "--lib",
        "core",
        "--rounds",
        "1",
        "--write-then-read",
        "--samples",
        "5000",
        "--batch",
        "1,128",
    ]);
    let metrics = ["write_mib_per_s", "read_mib_per_s"];
    complete(&results, 2, 1, &["core"], &metrics);
}

#[test]
fn mistakes_are_explained() {
    let lab = Lab::new();
    for (arguments, status, says) in [
        (["--lib", "/no/such/liblsl.so"], 3, "raw:tcp"),
        (["--lib", "raw:udp"], 2, "raw:tcp-aesgcm"),
        (["--format", "float"], 2, "give float32"),
        (["--channels", "0"], 2, "above 0"),
    ] {
        let mut all = vec!["bench", "latency", "--lib", "core", "--seconds", "0.1"];
        all.extend(["--rounds", "1", "--output"]);
        let output = lab.path("mistakes");
        all.push(&output);
        all.extend(arguments);
        let ended = lab.run(&all);
        assert_eq!(ended.status, Some(status), "{arguments:?} {ended:?}");
        assert!(ended.stderr.contains(says), "{arguments:?} {ended:?}");
    }
}
