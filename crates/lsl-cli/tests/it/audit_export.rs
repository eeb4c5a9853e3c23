//! `lsl audit export`: what others read of a log, and what is left of it when the exporter is killed.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write as _};
use std::path::Path;
use std::process::Child;
use std::time::Duration;

use ciborium::Value;
use lsl_core::local_clock;
use lsl_core::secure::audit::{Audit, Event, EventKind, Span};

use crate::lab::Lab;

/// A line of a connection, as the library writes it.
fn line(chain: &str, seq: u64) -> String {
    let span = seq / 3 + u64::from(chain.as_bytes()[0]) * 1_000_000;
    format!(
        "{{\"ts\":\"2026-11-22T10:00:{:02}Z\",\"event\":\"handshake_ok\",\"span\":\"{span:032x}\",\
         \"peer_addr\":\"10.0.0.7:5000\",\"took_us\":300,\"steps\":[[\"generate\",0,41],[\"derive\",50,48],\
         [\"sign\",120,60],[\"verify\",190,80],[\"schedule\",280,9]],\"chain\":\"{chain}\",\"seq\":{seq}}}\n",
        seq % 60
    )
}

/// The groups of a file; none is broken.
fn groups(path: &Path) -> Vec<BTreeMap<String, Value>> {
    let bytes = fs::read(path).unwrap();
    let mut rest = &bytes[..];
    let mut groups = Vec::new();
    while !rest.is_empty() {
        let group: Value = ciborium::from_reader(&mut rest).unwrap();
        let fields = group.into_map().unwrap().into_iter();
        groups.push(fields.map(|(k, v)| (k.into_text().unwrap(), v)).collect());
    }
    groups
}

/// What the `Data` events of a group say.
fn data(group: &BTreeMap<String, Value>) -> BTreeMap<String, Value> {
    let events = group["events"].as_array().unwrap().iter();
    let data = events.filter_map(|event| {
        let (kind, value) = &event.as_map().unwrap()[0];
        let value = value.as_map().unwrap();
        (kind.as_text() == Some("Data"))
            .then(|| (value[0].1.as_text().unwrap().to_owned(), value[1].1.clone()))
    });
    data.collect()
}

/// The program that a group says wrote it: its build id, and its name.
fn program(group: &BTreeMap<String, Value>) -> (Vec<u8>, String) {
    let first = &group["events"].as_array().unwrap()[0];
    let (kind, value) = &first.as_map().unwrap()[0];
    assert_eq!(kind.as_text(), Some("NewContext"));
    let value = value.as_map().unwrap();
    let origin = value[1].1.as_bytes().unwrap().clone();
    (origin, value[2].1.as_text().unwrap().to_owned())
}

fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = local_clock() + 60.0;
    while !holds() {
        assert!(local_clock() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn follow(lab: &Lab, log: &str, out: &str) -> Child {
    let arguments = ["audit", "export", log, "--follow", "-o", out];
    lab.command(&arguments).spawn().unwrap()
}

#[test]
fn a_killed_exporter_goes_on_where_it_was() {
    // A campaign does 200.
    let kills = std::env::var("LSL_EXPORT_KILLS").map_or(8, |it| it.parse().unwrap());
    let lab = Lab::new();
    let (log, out) = (lab.path("audit.jsonl"), lab.path("audit.cbor"));
    let len = || fs::metadata(&out).map_or(0, |it| it.len());
    let (mut seqs, mut random, mut rotated) = ([0_u64; 2], u64::from(std::process::id()) | 1, 0);
    for _ in 0..kills {
        for _ in 0..2 {
            for (chain, seq) in ["aa", "bb"].into_iter().zip(&mut seqs) {
                let mut lines = String::new();
                for _ in 0..60 {
                    lines += &line(chain, *seq);
                    *seq += 1;
                }
                let mut options = fs::OpenOptions::new();
                let mut file = options.create(true).append(true).open(&log).unwrap();
                file.write_all(lines.as_bytes()).unwrap();
            }
            rotated += 1;
            fs::rename(&log, format!("{log}.{rotated}")).unwrap();
        }
        // Each line becomes some 2 KB.
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let until = len() + random % 300_000;
        let mut exporter = follow(&lab, &log, &out);
        wait_until("the exporter stands still", || len() >= until);
        exporter.kill().unwrap();
        exporter.wait().unwrap();
    }
    fs::write(&log, line("zz", 0)).unwrap();
    let all: BTreeSet<(String, u64)> = ["aa", "bb", "zz"]
        .into_iter()
        .zip(seqs.into_iter().chain([1]))
        .flat_map(|(chain, seq)| (0..seq).map(move |seq| (chain.to_owned(), seq)))
        .collect();
    let mut exporter = follow(&lab, &log, &out);
    // The last line of the log comes last; all that becomes of it is one write.
    wait_until("the rest comes", || {
        let mut file = fs::File::open(&out).unwrap();
        let mut end = Vec::new();
        file.seek(SeekFrom::Start(len().saturating_sub(16 << 10)))
            .unwrap();
        file.read_to_end(&mut end).unwrap();
        end.windows(3).any(|it| it == b"\x62zz")
    });
    exporter.kill().unwrap();
    exporter.wait().unwrap();

    let (mut found, mut sessions) = (BTreeSet::new(), BTreeSet::new());
    let mut contexts = BTreeSet::new();
    for group in &groups(Path::new(&out))[1..] {
        let data = data(group);
        let context = group["context"].as_bytes().unwrap().clone();
        assert!(contexts.insert(context.clone()), "a context is there twice");
        if data["name"].as_text() == Some("lsl::session") {
            sessions.insert(context);
        } else if let Some(seq) = data.get("lsl::seq") {
            let seq = i128::from(seq.as_integer().unwrap());
            let chain = data["lsl::chain"].as_text().unwrap().to_owned();
            found.insert((chain, u64::try_from(seq).unwrap()));
        }
    }
    assert!(found == all, "{} of {} lines", found.len(), all.len());
    assert_eq!(contexts.len(), all.len() * 9 + sessions.len());
}

#[test]
fn others_get_what_the_log_says() {
    let lab = Lab::new();
    let log = lab.path("audit.jsonl");
    let audit = Audit::open(Path::new(&log), 0).unwrap();
    let span = Span::begin();
    let address = "10.0.0.7:5000".parse::<std::net::SocketAddr>().unwrap();
    for kind in [EventKind::HandshakeOk, EventKind::SessionClosed] {
        let event = Event::new(kind).span(span).peer_addr(address);
        audit.record(event.peer_name("amp1").took(Duration::from_micros(312)));
    }
    audit.record(Event::new(EventKind::TrustReloaded).detail("amp1 is new"));
    assert!(audit.flush(Duration::from_secs(20)));
    let export = |more: &[&str]| lab.run(&[&["audit", "export", &log], more].concat());

    let out = lab.path("audit.cbor");
    export(&["-o", &out]).ok();
    let exported = groups(Path::new(&out));
    let names = |groups: &[BTreeMap<String, Value>]| -> Vec<String> {
        let names = groups
            .iter()
            .map(|it| data(it)["name"].as_text().unwrap().to_owned());
        names.collect()
    };
    let expected = ["log", "session", "handshake", "close", "trust"].map(|it| format!("lsl::{it}"));
    assert_eq!(data(&exported[0])["version"], Value::Integer(1.into()));
    assert_eq!(names(&exported[1..]), expected);
    assert_eq!(data(&exported[3])["lsl::outcome"], Value::Text("ok".into()));
    let exe = std::env::current_exe().unwrap();
    let exe = exe.file_name().unwrap().to_str().unwrap();
    let id = lsl_platform::module::build_id().unwrap_or_default();
    for group in &exported[1..] {
        assert_eq!(program(group), (id.clone(), exe.to_owned()));
    }
    // Written anew, not added to.
    export(&["-o", &out, "--where", "event=trust_reloaded"]).ok();
    let one = groups(Path::new(&out));
    assert_eq!(names(&one[1..]), ["lsl::trust"]);
    assert_eq!(program(&one[1]), (id, exe.to_owned()));
    // It goes on with everything that is not there.
    let mut follower = follow(&lab, &log, &out);
    let mut told = String::new();
    let mut stderr = BufReader::new(follower.stderr.take().unwrap());
    stderr.read_line(&mut told).unwrap();
    assert!(told.contains("Writing events"), "{told}");
    let second = export(&["-o", &out]);
    assert_eq!(second.status, Some(1), "{second:?}");
    assert!(second.stderr.contains("another program"), "{second:?}");
    follower.kill().unwrap();
    follower.wait().unwrap();

    let json = export(&["--format", "json", "--pseudonyms"]).ok();
    let text = json.stdout.clone();
    for hidden in ["amp1", "10.0.0", exe] {
        assert!(!text.contains(hidden), "{text}");
    }
    let name = |at: usize| json.json()[1]["spans"][at]["events"]["lsl::peer_name"].to_string();
    assert!(name(0).starts_with("\"h:") && name(0) == name(1), "{text}");
    let mut stacks = String::new();
    for name in ["lsl::close", "lsl::handshake"] {
        writeln!(stacks, "lsl::session;{name} 312").unwrap();
    }
    assert_eq!(export(&["--format", "folded"]).ok().stdout, stacks);
    let picture = lab.path("flame.svg");
    export(&["--format", "svg", "-o", &picture]).ok();
    let drawn = fs::read_to_string(&picture).unwrap();
    assert!(drawn.starts_with("<svg") && drawn.contains("lsl::close: 312 µs (50.0 %)"));
    let query = [
        "audit",
        "query",
        &log,
        "--svg",
        &picture,
        "--count",
        "--by",
        "peer_name",
    ];
    assert_eq!(lab.run(&query).ok().stdout, "");
    let drawn = fs::read_to_string(&picture).unwrap();
    assert!(drawn.contains("amp1: 1 ("), "{drawn}");

    // The log is never written over, nor a file of somebody else.
    let before = fs::read(&log).unwrap();
    for more in [&["-o", &log][..], &["-o", &log, "--follow"]] {
        assert_eq!(export(more).status, Some(2), "{more:?}");
    }
    let other = lab.write("notes.txt", "mine");
    assert_eq!(export(&["-o", &other, "--follow"]).status, Some(1));
    assert_eq!(fs::read_to_string(&other).unwrap(), "mine");
    assert_eq!(fs::read(&log).unwrap(), before);
}
