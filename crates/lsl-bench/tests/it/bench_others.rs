//! `lsl bench handshake|aead|discovery|scale|net` in small: that they measure what they say and lose
//! nothing, never how fast.

use std::net::TcpListener;
use std::thread;

use lsl_core::local_clock;
use serde_json::{Value, json};

use crate::lab::{Ended, Lab, Running};
use crate::machine::Machine;

/// Runs `lsl bench` with these arguments and gives its results.
fn results(lab: &Lab, arguments: &str) -> Value {
    let output = lab.path("results");
    let mut all = vec!["bench"];
    all.extend(arguments.split_whitespace());
    all.extend(["--output", &output]);
    let ended = lab.run(&all).ok();
    assert!(!ended.stdout.is_empty(), "{ended:?}");
    read(&output)
}

fn read(output: &str) -> Value {
    let text = std::fs::read_to_string(format!("{output}/results.json")).unwrap();
    let results: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(results["schema"], "lsl-bench/1");
    results
}

fn array(value: &Value) -> &Vec<Value> {
    value.as_array().unwrap_or_else(|| panic!("{value}"))
}

/// All measurements of a subject.
fn measured<'a>(results: &'a Value, subject: &str) -> Vec<&'a Value> {
    let place = array(&results["subjects"])
        .iter()
        .position(|found| found["name"] == subject)
        .unwrap_or_else(|| panic!("{subject}: {results}"));
    let cells = array(&results["cells"]).iter();
    let rounds = cells.flat_map(|cell| array(&cell["rounds"]));
    rounds.map(|round| &round["measurements"][place]).collect()
}

fn number(measurement: &Value, metric: &str) -> f64 {
    let value = measurement["values"][metric].as_f64();
    value.unwrap_or_else(|| panic!("{metric}: {measurement}"))
}

#[test]
fn handshakes_are_done_and_every_event_is_accounted_for() {
    let lab = Lab::new();
    let arguments = "handshake --count 20 --repeat 2 --threads 1,2 --audit none,off,on,on-sync \
                     --suite chacha";
    let results = results(&lab, arguments);
    assert_eq!(array(&results["cells"]).len(), 2);
    for (subject, events) in [
        ("no events", 0.0),
        ("audit off", 0.0),
        ("audit on", 40.0),
        ("audit on-sync", 40.0),
    ] {
        let measured = measured(&results, subject);
        assert_eq!(measured.len(), 4);
        for measurement in measured {
            let sum = number(measurement, "events_written") + number(measurement, "events_dropped");
            assert!((sum - events).abs() < 0.5, "{subject}: {measurement}");
            assert!(number(measurement, "handshakes_per_s") > 0.0);
        }
    }
    assert_eq!(results["subjects"][1]["name"], "audit off");
    assert_eq!(results["baseline"], 0);
}

#[test]
fn ciphers_are_measured_at_our_sizes_too() {
    let lab = Lab::new();
    let results = results(&lab, "aead --sizes 2 --seconds 0.01 --repeat 2 --aad 0,13");
    let sizes: Vec<u64> = array(&results["cells"])
        .iter()
        .map(|cell| cell["parameters"]["bytes"].as_u64().unwrap())
        .collect();
    assert_eq!(sizes, [[2, 41, 137, 265, 521, 1033]; 2].concat());
    for subject in ["ring ChaCha20-Poly1305", "rustcrypto ChaCha20-Poly1305"] {
        for measurement in measured(&results, subject) {
            assert!(number(measurement, "seal_ns") > 0.0);
            assert!(number(measurement, "open_mb_per_s") > 0.0);
        }
    }
}

#[test]
fn all_streams_are_found_and_one_is_read() {
    let lab = Lab::new();
    let arguments = "discovery --lib core --secure off,on --streams 1,5 --repeat 1";
    let results = results(&lab, arguments);
    for subject in ["core", "core secure"] {
        let measured = measured(&results, subject);
        for (measurement, streams) in measured.into_iter().zip([1.0, 5.0]) {
            assert_eq!(measurement["failure"], Value::Null);
            assert!((number(measurement, "found_all") - streams).abs() < 0.5);
            assert!(number(measurement, "found_in_1s") <= streams);
            for metric in [
                "first_hit_ms",
                "open_ms",
                "first_sample_ms",
                "destroy_inlet_ms",
            ] {
                assert!(number(measurement, metric) >= 0.0);
            }
            // Both processes have the clock of this host.
            assert!(number(measurement, "correction_error_us") < 1e6);
        }
    }
}

/// Starts a command and waits until it has said this on stderr.
fn start_until(lab: &Lab, arguments: &[&str], says: &str) -> Running {
    let mut command = lab.command(arguments);
    let progress = lab.path(&format!("progress-{}", arguments[2]));
    command.stderr(std::fs::File::create(&progress).unwrap());
    let running = Running::start(&mut command);
    let deadline = local_clock() + 30.0;
    loop {
        let said = std::fs::read_to_string(&progress).unwrap();
        if said.contains(says) {
            return running;
        }
        assert!(local_clock() < deadline, "{said}");
        thread::yield_now();
    }
}

#[cfg(unix)]
#[test]
fn rounds_before_an_interrupt_are_kept() {
    let lab = Lab::new();
    let output = lab.path("results");
    let mut all: Vec<&str> = "bench discovery --lib core --streams 1 --repeat 1000 --output"
        .split_whitespace()
        .collect();
    all.push(&output);
    let running = start_until(&lab, &all, "round 3 of 1000");
    running.interrupt();
    let ended = running.wait().ok();
    assert!(ended.stdout.contains("core"), "{ended:?}");
    let results = read(&output);
    assert_eq!(results["benchmark"], "discovery");
    let measured = measured(&results, "core");
    assert!((2..1000).contains(&measured.len()), "{results}");
    for measurement in measured {
        assert_eq!(measurement["failure"], Value::Null);
        assert!((number(measurement, "found_all") - 1.0).abs() < 0.5);
    }
}

#[test]
fn every_inlet_of_many_delivers_every_sample() {
    let lab = Lab::new();
    let arguments =
        "scale --lib core --secure off,on --streams 4 --samples 20 --rate 200 --idle 0.1";
    let results = results(&lab, arguments);
    for subject in ["core", "core secure"] {
        for measurement in measured(&results, subject) {
            assert_eq!(measurement["failure"], Value::Null);
            assert_eq!(measurement["expected"], 80);
            assert_eq!(measurement["received"], 80);
            assert!((number(measurement, "inlets_deliver") - 4.0).abs() < 0.5);
            assert!(number(measurement, "outlet_threads") >= 1.0);
            assert!(number(measurement, "inlet_fds") >= 4.0);
        }
    }
}

/// A server for one client on a machine, and where it listens.
fn server(machine: &Machine<'_>) -> (Running, String) {
    let free = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = free.local_addr().unwrap().to_string();
    drop(free);
    let arguments = [
        "bench",
        "net",
        "server",
        "--clients",
        "1",
        "--listen",
        &address,
    ];
    (machine.start(&arguments), address)
}

/// Runs a client, as soon as the server listens.
fn client(machine: &Machine<'_>, address: &str, arguments: &str) -> Ended {
    let mut all = vec!["bench", "net", "client", address];
    all.extend(arguments.split_whitespace());
    let deadline = local_clock() + 20.0;
    loop {
        let ended = machine.run(&all);
        let is_early =
            ended.status == Some(3) && ended.stderr.contains("no `lsl bench net server`");
        if !is_early || local_clock() > deadline {
            return ended;
        }
        thread::yield_now();
    }
}

#[test]
fn two_machines_measure_with_and_without_encryption() {
    let lab = Lab::new();
    let [amp, rec] = ["amp1", "rec1"].map(|name| Machine::with_key(&lab, name));
    amp.run(&["trust", "add", "rec1", &rec.key()]).ok();
    rec.run(&["trust", "add", "amp1", &amp.key()]).ok();
    let (server, address) = server(&amp);
    let output = lab.path("results");
    let arguments = format!(
        "--channels 8 --rate 500 --duration 0.2 --iterations 2 --pings 5 --output {output}"
    );
    client(&rec, &address, &arguments).ok();
    server.wait().ok();
    let results = read(&output);
    for subject in ["plain", "secure"] {
        let measured = measured(&results, subject);
        assert_eq!(measured.len(), 2);
        for measurement in measured {
            assert_eq!(measurement["expected"], 100);
            assert_eq!(measurement["received"], 100);
            assert_eq!(array(&measurement["gaps"]).len(), 0);
            assert!(number(measurement, "half_round_trip_p50_us") > 0.0);
        }
    }
}

#[test]
fn iterations_before_the_server_was_gone_are_kept() {
    let lab = Lab::new();
    let free = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = free.local_addr().unwrap().to_string();
    drop(free);
    let offer = ["bench", "net", "server", "--listen", &address];
    let server = start_until(&lab, &offer, "waiting for");
    let output = lab.path("results");
    let line = format!(
        "bench net client {address} --secure off --channels 2 --rate 500 --duration 0.1 \
         --iterations 1000 --pings 2 --output {output}"
    );
    let all: Vec<&str> = line.split_whitespace().collect();
    let running = start_until(&lab, &all, "iteration 3 of 1000");
    server.kill();
    let ended = running.wait();
    assert!(ended.status.is_some_and(|status| status != 0), "{ended:?}");
    assert!(ended.stdout.contains("plain"), "{ended:?}");
    let results = read(&output);
    let measured = measured(&results, "plain");
    assert!((2..1000).contains(&measured.len()), "{results}");
    for measurement in measured {
        assert_eq!(measurement["expected"], measurement["received"]);
    }
}

#[test]
fn a_machine_without_a_key_is_told_what_to_do() {
    let lab = Lab::new();
    let (amp, rec) = (Machine::new(&lab, "amp1"), Machine::with_key(&lab, "rec1"));
    client(&amp, "127.0.0.1:1", "--secure on").refused(1, &["lsl key init", "lsl trust add"]);
    // And when it is the server that has none.
    let (server, address) = server(&amp);
    let ended = client(&rec, &address, "--secure on --duration 0.1 --iterations 1");
    ended.refused(1, &["the server:", "lsl key init"]);
    server.wait().ok();
}

#[test]
fn files_and_pipes_are_locked_and_unlocked_in_turns() {
    let lab = Lab::new();
    let output = lab.path("results");
    let folder = lab.path("");
    let line = format!(
        "bench atrest --json --sizes 300K,1 --repeats 2 --recipients 3,1 --folder {folder} --output {output}"
    );
    let all: Vec<&str> = line.split_whitespace().collect();
    let rows = lab.run(&all).ok().json_lines();
    let cells: Vec<Value> = rows
        .iter()
        .map(|row| json!([row["bytes"], row["recipients"], row["direction"]]))
        .collect();
    let expected = [307_200, 1].map(|bytes| {
        [(3, "lock"), (3, "unlock"), (1, "lock"), (1, "unlock")]
            .map(|(recipients, direction)| json!([bytes, recipients, direction]))
    });
    assert_eq!(cells, expected.concat());
    for row in &rows {
        assert_eq!(row["rounds"], 2);
        for name in ["file_mib_per_s", "pipe_mib_per_s", "ratio"] {
            assert!(row[name].as_f64().is_some_and(|value| value > 0.0), "{row}");
        }
        let [least, median] = ["smallest_ratio", "ratio"].map(|name| row[name].as_f64());
        assert!(least <= median, "{row}");
    }
    let results = read(&output);
    assert_eq!(results["benchmark"], "atrest");
    for subject in ["file", "pipe"] {
        for measurement in measured(&results, subject) {
            assert!(number(measurement, "mib_per_s") > 0.0);
            assert!(number(measurement, "wall_s") > 0.0);
        }
        let hashed = measured(&results, subject).into_iter();
        let hashed = hashed.filter(|it| it["values"]["hash_equal"] == 1.0);
        assert_eq!(hashed.count(), 8);
    }
    assert_eq!(measured(&results, "pipe").len(), 16);
    // Nothing of it is left.
    let left = std::fs::read_dir(&folder).unwrap();
    let left: Vec<String> = left
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with("lsl-bench-atrest"))
        .collect();
    assert_eq!(left, Vec::<String>::new());

    // As a table.
    let line = format!("bench atrest --sizes 1K --repeat 1 --folder {folder} --output {output}");
    let all: Vec<&str> = line.split_whitespace().collect();
    let table = lab.run(&all).ok().stdout;
    let lines: Vec<&str> = table.lines().collect();
    assert!(lines[0].contains("pipe/file"), "{table}");
    assert!(lines[1].starts_with("1 KiB  lock "), "{table}");
    assert!(lines[2].starts_with("1 KiB  unlock "), "{table}");
}

#[test]
fn more_than_a_disk_holds_is_refused() {
    let lab = Lab::new();
    let folder = lab.path("none");
    let all = ["bench", "atrest", "--sizes", "65G"];
    lab.run(&all).refused(2, &["64 GiB"]);
    let all = ["bench", "atrest", "--sizes", "1", "--folder", &folder];
    lab.run(&all).refused(1, &["none"]);
    let all = "bench record --streams 1024 --channels 4096 --rate 1000 --seconds 9000";
    let all: Vec<&str> = all.split_whitespace().collect();
    lab.run(&all).refused(2, &["free", "needed"]);
}

#[test]
fn a_recording_of_many_streams_is_proved_sample_by_sample() {
    for more in ["", "--encrypted --secure"] {
        let lab = Lab::new();
        let (output, folder) = (lab.path("results"), lab.path(""));
        let line = format!(
            "bench record --json --streams 3 --channels 4 --rate 500 --seconds 2 --output-dir \
             {folder} --output {output} {more}"
        );
        let all: Vec<&str> = line.split_whitespace().collect();
        let shown = lab.run(&all).ok().json();
        assert_eq!(shown["streams"], 3);
        assert_eq!(shown["status"], 0);
        for name in [
            "missing",
            "wrong",
            "gaps",
            "noted_gaps",
            "noted_missing",
            "sent_dropped",
        ] {
            assert_eq!(shown[name], 0, "{name}: {shown}");
        }
        let received = shown["received"].as_u64().unwrap();
        assert!(received > 3 * 700, "{shown}");
        let sent = shown["sent_each"].as_u64().unwrap();
        assert!(received <= 3 * sent, "{shown}");
        let results = read(&output);
        let measured = measured(&results, "lsl record");
        assert_eq!(measured[0]["expected"], received);
        #[cfg(target_os = "linux")]
        assert!(number(measured[0], "recorder_rss_max_mib") > 0.1);
        assert!(!std::fs::read_dir(&folder).unwrap().any(|entry| {
            let name = entry.unwrap().file_name().into_string().unwrap();
            name.starts_with("lsl-bench-record")
        }));
    }
}

#[test]
fn relays_pass_everything_on_and_say_what_it_took() {
    let lab = Lab::new();
    let arguments = "relay --what few,link,appear --streams 20 --seconds 1";
    let results = results(&lab, arguments);
    let all = measured(&results, "lsl relay");
    let [few, link, appear] = all[..] else {
        panic!("{results}");
    };
    for of in [few, link] {
        assert!(of["received"].as_u64() > Some(0), "{of}");
        assert_eq!(of["received"], of["expected"], "{of}");
        assert!(number(of, "near_rss_mib") > 1.0 && number(of, "far_cores") >= 0.0);
    }
    assert!(number(few, "arrival_p95_ms") > 0.0 && number(link, "link_mb_per_s") > 0.0);
    assert!(number(appear, "appear_max_s") > 0.0);
}
