//! B5, log injection: what strangers call their streams, and what they answer, steers no terminal and makes
//! no line of its own, in whatever is shown or logged of them.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::thread;
use std::time::Duration;

use lsl_core::config::Config;
use lsl_core::{ChannelFormat, Outlet, StreamInfo, local_clock};

use crate::lab::{Ended, Lab, Running};
use crate::machine::Machine;

/// A line feed with a forged line, escape sequences of both kinds, an override, marks and separators.
const HOSTILE: &str =
    "Amp\nWARN forged: all is well\r\x1b[2J\u{9b}31m\u{202e}\u{200f}\u{61c}\u{2028}\u{feff}x";

/// An outlet of that name, in the lab.
fn outlet(lab: &Lab, source_id: &str) -> Outlet {
    lab.outlet(StreamInfo::new(HOSTILE, HOSTILE, 1, 0.0, ChannelFormat::String, source_id).unwrap())
}

/// Fails unless every line is one that we wrote: the name's second line never begins one.
#[track_caller]
fn harmless(text: &str) {
    let steers = |c: char| {
        c.is_control() && c != '\n' || "\u{202e}\u{200f}\u{61c}\u{2028}\u{feff}".contains(c)
    };
    assert!(!text.chars().any(steers), "{text:?}");
    let forged = text
        .lines()
        .find(|line| line.trim_start().starts_with("WARN forged"));
    assert_eq!(forged, None, "{text}");
}

#[track_caller]
fn all_harmless(ended: &Ended) {
    harmless(&ended.stdout);
    harmless(&ended.stderr);
}

#[test]
fn log_injection_by_names() {
    let lab = Lab::new();
    let first = outlet(&lab, "evil1");
    let pushing = {
        let second = outlet(&lab, "evil2");
        let listed = lab.run(&["list"]).ok();
        assert!(listed.stdout.contains(r"Amp\nWARN forged"), "{listed:?}");
        all_harmless(&listed);
        let ambiguous = lab.run(&["recv", "channel_count=1", "--timeout", "3"]);
        assert_eq!(ambiguous.status, Some(2), "{ambiguous:?}");
        all_harmless(&ambiguous);
        second
    };
    all_harmless(&lab.run(&["info", "source_id=evil1"]).ok());
    all_harmless(&lab.run(&["time", "source_id=evil1", "--count", "1"]));

    let end = local_clock() + 2.5;
    thread::scope(|scope| {
        scope.spawn(|| {
            while local_clock() < end {
                pushing.push(&[HOSTILE]).unwrap();
                thread::sleep(Duration::from_millis(20));
            }
            // Goes away while it is received and recorded.
            drop(pushing);
        });
        let receiving = lab.start(&["-vvv", "recv", "source_id=evil2", "--no-recover"]);
        let file = lab.path("evil.xdf");
        let recorded = lab.run(&["-vvv", "record", "-o", &file, "--duration", "4"]);
        // Not on a terminal: JSON, in which names are data.
        assert!(!recorded.json_lines().is_empty(), "{recorded:?}");
        harmless(&recorded.stderr);
        let received = receiving.wait();
        assert!(
            received.stdout.contains(r"Amp\nWARN forged"),
            "{received:?}"
        );
        // The log tells which stream went.
        assert!(received.stderr.contains("WARN forged"), "{received:?}");
        all_harmless(&received);
        all_harmless(&lab.run(&["xdf", "info", &file]));
    });
    drop(first);
}

/// An outlet that refuses with this line.
#[test]
fn log_injection_by_answers() {
    let lab = Lab::new();
    let text = std::fs::read_to_string(lab.path("lsl_api.cfg")).unwrap();
    let config = Config::from_text(&text).unwrap();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || {
                let mut stream = stream;
                let _ = stream.read(&mut [0; 4096]);
                let _ = stream.write_all(format!("LSL/110 403 {HOSTILE}\r\n\r\n").as_bytes());
            });
        }
    });
    let mut ports = config.ports().base_port..;
    let service = ports
        .find_map(|port| UdpSocket::bind((Ipv4Addr::LOCALHOST, port)).ok())
        .unwrap();
    let session = config.lab().session_id.clone();
    thread::spawn(move || {
        let info = format!(
            "<?xml version=\"1.0\"?><info><name>{HOSTILE}</name><type>EEG</type>\
             <channel_count>1</channel_count><channel_format>float32</channel_format>\
             <source_id>evil</source_id><nominal_srate>10</nominal_srate><version>1.1</version>\
             <created_at>1</created_at><uid>7c9a1c1e-0000-4000-8000-000000000001</uid>\
             <session_id>{session}</session_id><hostname>{HOSTILE}</hostname>\
             <v4address></v4address><v4data_port>{port}</v4data_port>\
             <v4service_port>{port}</v4service_port><v6address></v6address>\
             <v6data_port>0</v6data_port><v6service_port>0</v6service_port></info>"
        );
        let mut query = [0; 2048];
        while let Ok((length, from)) = service.recv_from(&mut query) {
            let query = String::from_utf8_lossy(&query[..length]).into_owned();
            // Ports of labs may overlap.
            if !query.contains(&session) {
                continue;
            }
            let Some(last) = query.lines().nth(2) else {
                continue;
            };
            let Some((back, id)) = last.trim().split_once(' ') else {
                continue;
            };
            let to = (from.ip(), back.parse().unwrap());
            let _ = service.send_to(format!("{id}\r\n{info}").as_bytes(), to);
        }
    });
    let listed = lab.run(&["list"]).ok();
    assert!(listed.stdout.contains(r"Amp\nWARN forged"), "{listed:?}");
    all_harmless(&listed);
    for command in [
        &["-vvv", "info", "source_id=evil", "--timeout", "2"][..],
        &[
            "-vvv",
            "recv",
            "source_id=evil",
            "--timeout",
            "2",
            "--duration",
            "2",
        ],
        &[
            "-vvv",
            "time",
            "source_id=evil",
            "--timeout",
            "2",
            "--count",
            "1",
        ],
        &[
            "-vvv",
            "record",
            "-o",
            &lab.path("x.xdf"),
            "--timeout",
            "2",
            "--duration",
            "2",
        ],
    ] {
        let ended = lab.run(command);
        assert_ne!(ended.status, Some(0), "{command:?}: {ended:?}");
        harmless(&ended.stderr);
        if command[1] == "record" {
            assert!(!ended.json_lines().is_empty(), "{ended:?}");
        } else {
            harmless(&ended.stdout);
        }
    }
}

/// What the recorder draws for people, on a terminal that `script` makes.
#[test]
fn log_injection_into_the_display_of_the_recorder() {
    let lab = Lab::new();
    let evil = outlet(&lab, "evil");
    let command = lab.command(&[]);
    let lsl = env!("CARGO_BIN_EXE_lsl");
    let line = format!("{lsl} --loopback record -o shown.xdf --duration 1.5");
    let directory = command.get_current_dir().unwrap().to_owned();
    let mut on_terminal = std::process::Command::new("script");
    on_terminal
        .args(["-q", "-e", "-c", &line, "/dev/null"])
        .current_dir(directory)
        .envs(
            command
                .get_envs()
                .filter_map(|(name, value)| Some((name, value?))),
        )
        .env_remove("LSL_SECURE_CONFIG")
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped());
    let shown = Running::start(&mut on_terminal).wait().ok().stdout;
    drop(evil);
    assert!(shown.contains(r"Amp\nWARN forged"), "{shown:?}");
    assert!(
        shown.contains(r"\u{1b}[2J\u{9b}31m\u{202e}\u{200f}"),
        "{shown:?}"
    );
    for raw in [
        "\x1b[2J",
        "\u{9b}",
        "\u{202e}",
        "\u{2028}",
        "\nWARN forged",
        "\rWARN forged",
    ] {
        assert!(!shown.contains(raw), "{raw:?} in {shown:?}");
    }
}

#[test]
fn log_injection_into_the_audit_file() {
    let lab = Lab::new();
    let machine = Machine::with_key(&lab, "rec1");
    machine.configure("audit_file = \"\"", "audit_file = \"audit.jsonl\"");
    let evil = outlet(&lab, "evil");
    let refused = machine.run(&["-vvv", "recv", "source_id=evil", "--timeout", "3"]);
    assert_ne!(refused.status, Some(0), "{refused:?}");
    all_harmless(&refused);
    drop(evil);
    let audit = machine.read("audit.jsonl");
    assert!(audit.contains("Amp"), "{audit}");
    harmless(&audit);
    for line in audit.lines() {
        let event: serde_json::Value = serde_json::from_str(line).unwrap();
        assert!(event["event"].is_string(), "{line}");
    }
    let shown = Running::start(&mut lab.command_on("rec1", &["audit", "tail", "-n", "20"])).wait();
    all_harmless(&shown);
}
