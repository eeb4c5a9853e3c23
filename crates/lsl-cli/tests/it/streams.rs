//! Generate and receive: exact values in every format, restarts, interrupts, closed pipes.

use serde_json::{Value, json};

use crate::lab::{Ended, Lab};

const COUNT: usize = 300;

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_precision_loss,
    reason = "this is what the command documents"
)]
/// What sample `n` of `--pattern counter` carries.
fn counter(format: &str, n: usize) -> Value {
    match format {
        "float32" | "double64" => json!(n as f64),
        "string" => json!(n.to_string()),
        "int8" => json!(n as i8),
        "int16" => json!(n as i16),
        _ => json!(n),
    }
}

fn samples(ended: &Ended) -> Vec<Value> {
    ended
        .json_lines()
        .into_iter()
        .map(|line| line["v"].clone())
        .collect()
}

#[test]
fn every_format_arrives_complete_and_exact() {
    for format in [
        "float32", "double64", "string", "int32", "int16", "int8", "int64",
    ] {
        let lab = Lab::new();
        let generator = lab.start(&[
            "gen",
            "--name",
            "Count",
            "--format",
            format,
            "--channels",
            "3",
            "--rate",
            "1000",
            "--pattern",
            "counter",
            "--count",
            "300",
            "--wait",
        ]);
        let received = lab
            .run(&["recv", "Count", "-o", "jsonl", "--count", "300"])
            .ok();
        let expected: Vec<Value> = (0..COUNT)
            .map(|n| Value::from(vec![counter(format, n); 3]))
            .collect();
        assert_eq!(samples(&received), expected, "{format}");
        let summary = &received.stderr;
        assert!(summary.contains("Received 300 samples"), "{summary}");
        assert!(
            summary.contains("0 dropped here, 0 reconnects"),
            "{summary}"
        );

        // Stamps are exactly one period apart.
        let lines = received.json_lines();
        let stamp = |n: usize| lines[n]["t"].as_f64().unwrap();
        let error = stamp(COUNT - 1) - stamp(0) - 0.299;
        assert!(error.abs() < 1e-6, "{error}");

        let generated = generator.wait().ok();
        assert!(
            generated.stderr.contains("Sent 300 samples"),
            "{generated:?}"
        );
        assert!(
            generated
                .stderr
                .contains("1 receivers seen, 0 samples dropped"),
            "{generated:?}"
        );
    }
}

#[test]
fn chunks_and_fast_streams_lose_nothing() {
    let lab = Lab::new();
    let generator = lab.start(&[
        "gen",
        "--name",
        "Fast",
        "--format",
        "int32",
        "--channels",
        "2",
        "--rate",
        "20000",
        "--pattern",
        "counter",
        "--chunk",
        "64",
        "--count",
        "20000",
        "--wait",
    ]);
    let received = lab
        .run(&["recv", "Fast", "-o", "jsonl", "--count", "20000"])
        .ok();
    let expected: Vec<Value> = (0..20_000).map(|n| json!([n, n])).collect();
    assert!(
        samples(&received) == expected,
        "other samples than those sent"
    );
    generator.wait().ok();
}

#[test]
fn markers_come_beside_the_signal() {
    let lab = Lab::new();
    let _generator = lab.start(&["gen", "--name", "Amp", "--markers"]);
    let received = lab.run(&["recv", "type=Markers", "-o", "jsonl", "-n", "1"]);
    let marker = samples(&received.ok());
    assert!(
        marker[0][0].as_str().unwrap().starts_with("marker "),
        "{marker:?}"
    );
}

#[test]
fn csv_has_labels_and_text_has_columns() {
    let lab = Lab::new();
    let _generator = lab.start(&["gen", "--name", "Cap", "--channels", "2", "--rate", "100"]);
    let csv = lab
        .run(&["recv", "Cap", "--output", "csv", "-n", "3"])
        .ok()
        .stdout;
    let lines: Vec<&str> = csv.lines().collect();
    assert_eq!((lines.len(), lines[0]), (4, "time,Fp1,Fp2"));
    assert!(
        lines[1..]
            .iter()
            .all(|line| line.split(',').all(|cell| cell.parse::<f64>().is_ok()))
    );
    let text = lab
        .run(&["recv", "Cap", "-n", "2", "--clocksync"])
        .ok()
        .stdout;
    assert!(
        text.lines()
            .all(|line| line.split_whitespace().count() == 3),
        "{text}"
    );
    assert_eq!(text.lines().count(), 2);
}

#[test]
fn receiving_survives_a_restart_of_the_sender() {
    let lab = Lab::new();
    let generate = [
        "gen",
        "--name",
        "Amp",
        "--rate",
        "200",
        "--format",
        "int32",
        "--pattern",
        "counter",
        "--source-id",
        "amp-1",
    ];
    let first = lab.start(&[&generate[..], &["--count", "50", "--wait"]].concat());
    let receiver = lab.start(&["recv", "Amp", "-o", "jsonl", "-n", "60"]);
    first.wait().ok();
    let _second = lab.start(&[&generate[..], &["--wait"]].concat());
    let received = receiver.wait().ok();
    let numbers: Vec<u64> = samples(&received)
        .iter()
        .map(|sample| sample[0].as_u64().unwrap())
        .collect();
    let expected: Vec<u64> = (0..50).chain(0..10).collect();
    assert_eq!(numbers, expected);
    assert!(
        received.stderr.contains("lost and found again"),
        "{}",
        received.stderr
    );
    assert!(
        received.stderr.contains("1 reconnects"),
        "{}",
        received.stderr
    );
}

#[test]
fn a_stream_lost_for_good_ends_with_its_status() {
    let lab = Lab::new();
    let generator = lab.start(&["gen", "--name", "Amp", "--count", "20", "--wait"]);
    let received = lab.run(&["recv", "Amp", "-o", "jsonl", "--no-recover"]);
    assert_eq!(
        (received.status, received.stdout.lines().count()),
        (Some(4), 20),
        "{received:?}"
    );
    assert!(
        received.stderr.contains("Received 20 samples"),
        "{received:?}"
    );
    generator.wait().ok();
}

#[test]
fn a_killed_sender_ends_the_stream_too() {
    let lab = Lab::new();
    let generator = lab.start(&["gen", "--name", "Amp", "--source-id", ""]);
    lab.run(&["recv", "Amp", "-n", "1"]).ok();
    let receiver = lab.start(&["recv", "Amp", "-o", "jsonl"]);
    // The receiver is connected once the generator says so; that takes no longer than a search.
    lab.run(&["recv", "Amp", "-n", "100"]).ok();
    generator.kill();
    assert_eq!(receiver.wait().status, Some(4));
}

#[cfg(unix)]
#[test]
fn an_interrupt_ends_with_the_summary() {
    let lab = Lab::new();
    let generator = lab.start(&["gen", "--name", "Amp"]);
    lab.run(&["recv", "Amp", "-n", "1"]).ok();
    let receiver = lab.start(&["recv", "Amp", "-o", "jsonl"]);
    lab.run(&["recv", "Amp", "-n", "100"]).ok();
    receiver.interrupt();
    let received = receiver.wait().ok();
    assert!(received.stderr.contains("Received "), "{received:?}");
    assert_eq!(received.json_lines().len(), received.stdout.lines().count());
    generator.interrupt();
    let generated = generator.wait().ok();
    assert!(generated.stderr.contains("Sent "), "{generated:?}");
}

#[test]
fn a_reader_that_has_enough_is_no_error() {
    let lab = Lab::new();
    let _generator = lab.start(&["gen", "--name", "Amp"]);
    let (line, ended) = lab.run_until_first_line(&["recv", "Amp", "-o", "jsonl"]);
    assert!(line.starts_with("{\"t\":"), "{line}");
    assert_eq!(ended.status, Some(0), "{ended:?}");
    assert!(!ended.stderr.contains("lsl:"), "{ended:?}");
}

#[test]
fn several_streams_carry_the_same_samples_at_the_same_times() {
    let lab = Lab::new();
    let generator = lab.start(&[
        "gen",
        "--name",
        "Many",
        "--streams",
        "3",
        "--source-id",
        "rig",
        "--format",
        "int32",
        "--channels",
        "2",
        "--rate",
        "1000",
        "--chunk",
        "10",
        "--pattern",
        "counter",
        "--count",
        "300",
        "--wait",
    ]);
    let readers = ["Many-1", "source_id=rig-2", "Many-3"]
        .map(|stream| lab.start(&["recv", stream, "-o", "jsonl", "--count", "300"]));
    let received = readers.map(|reader| reader.wait().ok());
    let expected: Vec<Value> = (0..COUNT).map(|n| json!([n, n])).collect();
    for ended in &received {
        assert!(samples(ended) == expected, "other samples than those sent");
        assert_eq!(ended.json_lines()[0]["t"], received[0].json_lines()[0]["t"]);
    }
    let ended = generator.wait().ok();
    for part in [
        "'Many-1' to 'Many-3'",
        "receives 'Many-2'",
        "Sent 300 samples on each of 3 streams",
        "3 receivers seen, 0 samples dropped",
    ] {
        assert!(ended.stderr.contains(part), "{part}: {ended:?}");
    }
}
