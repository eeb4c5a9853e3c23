//! `demo`, `list`, `info`, `time`.

use serde_json::json;

use crate::lab::Lab;

#[test]
fn the_demo_ends_by_itself_and_loses_nothing() {
    let lab = Lab::new();
    let demo = lab.start(&["demo", "--duration", "1.5"]);
    let json = lab.run(&["demo", "--duration", "1", "--json"]).ok().json();
    assert_eq!(json["lost"], 0);
    let streams = json["streams"].as_array().unwrap();
    let counts: Vec<_> = streams
        .iter()
        .map(|s| (&s["sent"], &s["received"], &s["lost"]))
        .collect();
    assert_eq!(
        counts,
        [
            (&json!(500), &json!(500), &json!(0)),
            (&json!(2), &json!(2), &json!(0))
        ]
    );
    let latency = &streams[0]["latency_ms"];
    assert!(latency["p50"].as_f64().unwrap() <= latency["p99"].as_f64().unwrap());

    let text = demo.wait().ok().stdout;
    for part in [
        "Demo-EEG",
        "Demo-Markers",
        "RATE/NOMINAL",
        "Nothing was lost",
        "750",
        "lsl gen",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
    assert!(
        !text.contains('\x1b'),
        "no terminal, no escape sequences: {text}"
    );
}

#[test]
fn listing_finds_streams_and_marks_duplicates() {
    let lab = Lab::new();
    let twin = ["gen", "--name", "Twin", "--source-id", "same"];
    let _running = [
        lab.start(&twin),
        lab.start(&twin),
        lab.start(&["gen", "--name", "Solo", "--markers"]),
    ];
    for name in ["Twin", "Solo", "Solo-Markers"] {
        lab.run(&["info", name, "--first"]).ok();
    }
    let list = lab.run(&["list", "--json", "--timeout", "0.5"]).ok().json();
    let seen: Vec<_> = list
        .as_array()
        .unwrap()
        .iter()
        .map(|row| (&row["name"], &row["duplicate"]))
        .collect();
    let expected = [
        ("Solo", false),
        ("Solo-Markers", false),
        ("Twin", true),
        ("Twin", true),
    ];
    let expected = expected.map(|(name, duplicate)| (json!(name), json!(duplicate)));
    assert_eq!(
        seen,
        expected
            .each_ref()
            .map(|(name, duplicate)| (name, duplicate))
    );
    assert!(list[0]["age_secs"].as_f64().is_some_and(|age| age < 40.0));

    let table = lab
        .run(&["list", "--timeout", "0.5", "type='EEG'"])
        .ok()
        .stdout;
    assert!(
        table.starts_with("NAME") && table.contains("Twin"),
        "{table}"
    );
    assert!(
        table.contains("250 Hz") && table.contains("duplicate"),
        "{table}"
    );
    assert!(!table.contains("Solo-Markers"), "{table}");

    let ambiguous = lab.run(&["info", "Twin"]);
    assert_eq!(ambiguous.status, Some(2));
    assert!(ambiguous.stderr.contains("--first"), "{ambiguous:?}");
    let uid = format!("uid={}", list[2]["uid"].as_str().unwrap());
    let chosen = lab.run(&["info", &uid, "--json"]).ok().json();
    assert_eq!(
        (&chosen["name"], &chosen["uid"]),
        (&json!("Twin"), &list[2]["uid"])
    );
}

#[test]
fn watching_reports_what_comes_and_goes() {
    use std::io::{BufRead, BufReader};
    use std::process::Stdio;

    let lab = Lab::new();
    let mut watch = lab
        .command(&["list", "--watch", "--json", "--timeout", "3"])
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines();
    let mut next = |wanted: &str| {
        lines
            .by_ref()
            .map(|line| serde_json::from_str::<serde_json::Value>(&line.unwrap()).unwrap())
            .find(|change| change["event"] == wanted)
            .unwrap_or_else(|| panic!("no event {wanted}"))
    };
    let generator = lab.start(&["gen", "--name", "Guest"]);
    assert_eq!(next("appeared")["stream"]["name"], "Guest");
    generator.kill();
    assert_eq!(next("lost")["stream"]["name"], "Guest");
    watch.kill().unwrap();
    watch.wait().unwrap();
}

#[test]
fn metadata_in_all_forms() {
    let lab = Lab::new();
    let _generator = lab.start(&[
        "gen",
        "--name",
        "Cap (left)",
        "--channels",
        "2",
        "--desc",
        "manufacturer=Acme & Sons",
    ]);
    let text = lab.run(&["info", "Cap (left)"]).ok().stdout;
    for part in [
        "2 x float32",
        "manufacturer: Acme & Sons",
        "label Fp2, unit microvolts",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
    let xml = lab
        .run(&["info", "desc/manufacturer='Acme & Sons'", "--xml"])
        .ok()
        .stdout;
    assert!(xml.starts_with("<?xml version=\"1.0\"?>\n<info>"), "{xml}");
    assert!(
        xml.contains("<manufacturer>Acme &amp; Sons</manufacturer>"),
        "{xml}"
    );
    let json = lab
        .run(&["info", "nominal_srate=250", "--json"])
        .ok()
        .json();
    assert_eq!(json["desc"]["channels"]["channel"][1]["label"], "Fp2");
    assert_eq!(json["v4_address"], "127.0.0.1");
}

#[test]
fn the_clock_of_this_host_is_our_own() {
    let lab = Lab::new();
    let _generator = lab.start(&["gen", "--name", "Amp"]);
    let measured = lab
        .run(&["time", "Amp", "--count", "2", "--json"])
        .ok()
        .json_lines();
    assert_eq!(measured.len(), 2);
    for one in &measured {
        let [offset, round_trip] =
            ["offset_secs", "round_trip_secs"].map(|name| one[name].as_f64().unwrap());
        assert!(offset.abs() <= round_trip, "{one}");
    }
    assert!(measured[0]["remote_time"].as_f64() < measured[1]["remote_time"].as_f64());
}
