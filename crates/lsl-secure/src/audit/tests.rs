//! The log as a whole: what ends up in the file, whoever writes and whatever goes wrong.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicU32;

use lsl_platform::calendar::DAY_SECS;
use lsl_platform::files::{mode_of, set_mode};
use serde_json::Value;

use super::queue::{BATCH_SECS, KEPT_FOR_WARNINGS, MAX_BYTES};
use super::*;
use crate::files::scratch::says;
use crate::handshake::{Step, TimedStep};
use crate::{Cause, Policy, Role, SessionId, Suite};

mod many;

const SOON: Duration = Duration::from_secs(20);

/// A directory of one test, gone with it.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("lsl-audit-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self) -> PathBuf {
        self.0.join("audit.jsonl")
    }

    /// All lines, those of rotated files first.
    fn lines(&self) -> Vec<String> {
        let mut files = rotated(&self.file()).unwrap();
        files.push(self.file());
        let mut lines = Vec::new();
        for file in files {
            let text = fs::read_to_string(file).unwrap_or_default();
            lines.extend(text.lines().map(str::to_owned));
        }
        lines
    }

    /// What its lines say, but for those that begin a chain.
    fn values(&self) -> Vec<Value> {
        let lines = self.lines();
        let values = lines.iter().map(|line| serde_json::from_str(line).unwrap());
        values
            .filter(|it: &Value| it["event"] != "log_opened")
            .collect()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn verify(lines: &[String]) -> (Verifier, Vec<Break>) {
    let mut verifier = Verifier::default();
    let checked: Vec<_> = lines
        .iter()
        .map(|line| verifier.line(line.as_bytes()))
        .collect();
    (
        verifier,
        checked
            .into_iter()
            .filter_map(std::result::Result::err)
            .collect(),
    )
}

fn entry(detail: &str) -> Entry {
    entry_at(detail, utc_now())
}

fn entry_at(detail: &str, utc: Duration) -> Entry {
    Entry {
        event: Event::new(EventKind::HandshakeOk).detail(detail),
        utc,
        suppressed: None,
    }
}

fn step(took_us: u32) -> TimedStep {
    TimedStep {
        step: Step::Schedule,
        after_us: if took_us == u32::MAX { took_us } else { 0 },
        took_us,
    }
}

/// What waits for the disk of such an event.
fn line(entry: &Entry) -> Vec<u8> {
    [Line::new(entry).bytes(), b"\n"].concat()
}

#[test]
fn a_line_has_the_fields_of_its_event_and_no_others() {
    let scratch = Scratch::new();
    let audit = Audit::open(&scratch.file(), 0).unwrap();
    audit.record(
        Event::new(EventKind::SessionClosed)
            .span(Span::begin())
            .took(Duration::from_millis(2))
            .steps([step(41), step(60)])
            .session(SessionId([0xab; 16]))
            .peer_addr("10.1.2.3:16572".parse::<SocketAddr>().unwrap())
            .peer_name("eeg-amp-1")
            .role(Role::Inlet)
            .suite(Suite::Aes256Gcm)
            .policy(Policy::Required)
            .stream_uid("uid-1")
            .cause(Cause::Truncated)
            .detail("the cable")
            .traffic(Traffic {
                bytes: 5,
                records: 2,
                duration_secs: 1.5,
                clean: false,
            }),
    );
    audit.record(Event::new(EventKind::TrustReloaded));
    assert!(audit.flush(SOON));

    let values = scratch.values();
    let chain = values[0]["chain"].as_str().unwrap();
    assert_eq!(chain.len(), 16);
    let lines = scratch.lines();
    let hash_of = |at: usize| String::from_utf8(file::hash(lines[at].as_bytes()).to_vec()).unwrap();
    let opened: Value = serde_json::from_str(&lines[0]).unwrap();
    let exe = std::env::current_exe().unwrap();
    let mut expected = serde_json::json!({
        "ts": values[0]["ts"], "event": "log_opened", "exe": exe.file_name().unwrap().to_str().unwrap(),
        "lsl_version": env!("CARGO_PKG_VERSION"), "pid": std::process::id(),
        "chain": chain, "seq": 0, "prev": "",
    });
    if let Some(id) = lsl_platform::module::build_id() {
        let digits = id.iter().map(|byte| format!("{byte:02x}"));
        expected["build_id"] = digits.collect::<String>().into();
    }
    assert_eq!(opened, expected);
    assert_eq!(values[0]["span"].as_str().unwrap().len(), 32);
    let expected = serde_json::json!({
        "ts": values[0]["ts"], "event": "session_closed", "span": values[0]["span"], "took_us": 2000, "steps": [["schedule", 0, 41], ["schedule", 0, 60]],
        "chain": chain, "seq": 1, "prev": hash_of(0),
        "sid": "ab".repeat(16), "peer_addr": "10.1.2.3:16572", "peer_name": "eeg-amp-1",
        "role": "inlet", "suite": "AES-256-GCM", "version": 1, "policy": "required",
        "stream_uid": "uid-1", "code": 15, "cause": "truncated", "detail": "the cable",
        "bytes": 5, "records": 2, "duration_secs": 1.5, "clean": false,
    });
    assert_eq!(values[0], expected);
    let expected = serde_json::json!({
        "ts": values[1]["ts"], "event": "trust_reloaded",
        "chain": chain, "seq": 2, "prev": hash_of(1),
    });
    assert_eq!(values[1], expected);
    assert_eq!(verify(&lines).1, []);
    assert_eq!(mode_of(&scratch.file()).unwrap(), 0o600);
}

#[test]
fn hostile_text_makes_neither_lines_nor_escapes() {
    let scratch = Scratch::new();
    let audit = Audit::open(&scratch.file(), 0).unwrap();
    let megabyte = "\u{202e}\"\\\n".repeat(1 << 18);
    for text in [
        "\"}\n{\"event\":\"handshake_ok\"",
        "\0\x1b[2J\r\n",
        "\u{202e}drawkcab\u{2066}",
        "\u{1F600}\u{85}\u{2028}",
        megabyte.as_str(),
    ] {
        audit.record(
            Event::new(EventKind::PeerAlert)
                .peer_name(text)
                .stream_uid(text)
                .detail(text),
        );
    }
    assert!(audit.flush(SOON));
    let lines = scratch.lines();
    assert_eq!(lines.len(), 1 + 5);
    for line in &lines[1..] {
        assert!(line.len() < 4096, "{}", line.len());
        assert_eq!(
            &printable(line.as_bytes())[..],
            &line[..line.len().min(256)]
        );
        let value: Value = serde_json::from_str(line).unwrap();
        assert_eq!(value["event"], "peer_alert");
        assert!(value["peer_name"].as_str().unwrap().len() <= 256);
        assert!(value["detail"].as_str().unwrap().len() <= 1024);
    }
    assert_eq!(verify(&lines).1, []);
}

#[test]
fn the_longest_line_is_whole() {
    let quotes = "\"".repeat(5000);
    let quotes_again = quotes.clone();
    let event = Event::new(EventKind::TrustReloadFailed)
        .span(Span::begin())
        .took(Duration::MAX)
        .steps([step(u32::MAX); 7])
        .session(SessionId([0xff; 16]))
        .peer_addr(
            "[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff%4294967295]:65535"
                .parse::<SocketAddr>()
                .unwrap(),
        )
        .peer(crate::SecretKey::from_seed(&[7; 32]).public().fingerprint())
        .peer_name(quotes.as_str())
        .role(Role::Outlet)
        .suite(Suite::ChaCha20Poly1305)
        .policy(Policy::Required)
        .stream_uid(quotes.as_str())
        .cause(Cause::RecordAuthFailed)
        .detail(quotes)
        .traffic(Traffic {
            bytes: u64::MAX,
            records: u64::MAX,
            duration_secs: f64::MIN_POSITIVE,
            clean: false,
        })
        .with("short", vec!["a\nb".to_owned(), "\"".to_owned()])
        .with("long", quotes_again.as_str())
        .with("number", u64::MAX);
    let entry = Entry {
        event,
        utc: utc_now(),
        suppressed: Some(u64::MAX),
    };
    let scratch = Scratch::new();
    let mut writer = writer(place(&scratch, u64::MAX));
    // A loss is told by the next line, whichever that is.
    writer.write(b"", 0, utc_now()).unwrap();
    writer.write(&line(&entry), u64::MAX, utc_now()).unwrap();
    let lines = scratch.lines();
    assert!((3700..4096).contains(&lines[1].len()), "{}", lines[1].len());
    let value = &scratch.values()[0];
    assert_eq!(value["detail"].as_str().unwrap().len(), 1024);
    assert_eq!(value["stream_uid"].as_str().unwrap().len(), 256);
    assert_eq!(value["suppressed"], u64::MAX);
    assert_eq!(value["dropped"], u64::MAX);
    // There is no room for what only few events have.
    assert_eq!(value["left_out"], 3);
    assert_eq!(value.as_object().unwrap().len(), 28);
    assert_eq!(value["steps"].as_array().unwrap().len(), 5);
}

#[test]
fn what_only_few_events_have_is_written_as_it_is() {
    let scratch = Scratch::new();
    let audit = Audit::open(&scratch.file(), 0).unwrap();
    let event = Event::new(EventKind::RecordingEnded).with("samples", 5);
    let event = event.with("signed", true).with("action", "a\n\"");
    audit.record(event.with("from", vec!["10.0.0.0/8".to_owned(), "\\".to_owned()]));
    assert!(audit.flush(Duration::from_secs(20)));
    let value = &scratch.values()[0];
    assert_eq!(value["samples"], 5);
    assert_eq!(value["signed"], true);
    assert_eq!(value["action"], "a\\n\"");
    assert_eq!(value["from"], serde_json::json!(["10.0.0.0/8", "\\"]));
    assert!(value.get("left_out").is_none());
}

#[test]
fn floods_are_counted_and_their_end_is_told() {
    let scratch = Scratch::new();
    let audit = Audit::open(&scratch.file(), 0).unwrap();
    let start = local_clock();
    for tick in 0..1000 {
        let event = Event::new(EventKind::HandshakeFailed)
            .cause(Cause::Malformed)
            .role(Role::Outlet);
        audit.record_at(event, start + f64::from(tick) / 400.0, utc_now());
    }
    audit.record(Event::new(EventKind::HandshakeOk));
    assert!(audit.flush(SOON));
    let values = scratch.values();
    let failed: Vec<_> = values
        .iter()
        .filter(|value| value["event"] == "handshake_failed")
        .collect();
    let suppressed: u64 = failed
        .iter()
        .filter_map(|value| value["suppressed"].as_u64())
        .sum();
    // Three seconds of ten lines each, and the last; a slow machine sees floods end in between.
    assert!((31..50).contains(&failed.len()), "{}", failed.len());
    assert_eq!(failed.len() as u64 + suppressed, 1000);
    assert_eq!(values.len(), failed.len() + 1);
    assert_eq!(audit.dropped(), 0);
}

#[test]
fn the_end_of_a_flood_is_written_without_anybody_asking() {
    let scratch = Scratch::new();
    let audit = Audit::open(&scratch.file(), 0).unwrap();
    for _ in 0..50 {
        audit.record(Event::new(EventKind::PlaintextRefused));
    }
    let deadline = local_clock() + SOON.as_secs_f64();
    let total = || -> u64 {
        let lines = scratch.values();
        let suppressed = lines.iter().filter_map(|line| line["suppressed"].as_u64());
        lines.len() as u64 + suppressed.sum::<u64>()
    };
    while total() < 50 {
        assert!(local_clock() < deadline, "{} of 50", total());
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(total(), 50);
}

#[test]
#[cfg_attr(windows, ignore = "no folder goes there while a file in it is open")]
fn what_cannot_be_written_is_counted_and_told_later() {
    let scratch = Scratch::new();
    let audit = Audit::open(&scratch.file(), 0).unwrap();
    audit.record(Event::new(EventKind::HandshakeOk));
    assert!(audit.flush(SOON));
    fs::remove_dir_all(&scratch.0).unwrap();
    for _ in 0..3 {
        audit.record(Event::new(EventKind::HandshakeOk));
    }
    assert!(audit.flush(SOON));
    assert_eq!(audit.dropped(), 3);
    fs::create_dir(&scratch.0).unwrap();
    audit.record(Event::new(EventKind::HandshakeOk));
    audit.record(Event::new(EventKind::HandshakeOk));
    assert!(audit.flush(SOON));
    let values = scratch.values();
    assert_eq!(values[0]["dropped"], 3);
    assert_eq!(
        values[0]["seq"], 3,
        "lost lines were never part of the chain, what names the program in the new file is"
    );
    assert_eq!(values[1]["dropped"], Value::Null);
    assert_eq!(audit.dropped(), 3);
}

/// A log of one test without a time limit.
fn place(scratch: &Scratch, max_len_bytes: u64) -> LogFile {
    LogFile {
        path: scratch.file(),
        keep_days: 0,
        max_len_bytes,
    }
}

/// A chain that begins now.
fn writer(place: LogFile) -> Writer {
    Writer::new(place, utc_now())
}

/// Fills the queue with ordinary lines of about a kilobyte; returns their number.
fn fill(state: &mut AuditState) -> usize {
    let full = line(&entry(&"x".repeat(900)));
    let full = full.strip_suffix(b"\n").unwrap();
    let mut lines = 0;
    while state.queue.push(full, false, local_clock()).is_ok() {
        lines += 1;
        state.queued += 1;
    }
    assert!(lines * full.len() <= MAX_BYTES - KEPT_FOR_WARNINGS);
    lines
}

#[test]
fn a_full_queue_drops_and_never_waits() {
    let scratch = Scratch::new();
    let audit = Audit::open(&scratch.file(), 0).unwrap();
    // The thread, if it is ever that fast, waits for this lock.
    let shared = audit.shared().clone();
    let mut state = shared.lock();
    let count = fill(&mut state);
    let late = entry(&"x".repeat(900));
    for _ in 0..5 {
        let place = audit.place.as_ref().unwrap();
        shared.queue(&mut state, &late, &Line::new(&late), place, 0.0);
    }
    drop(state);
    assert_eq!(audit.dropped(), 5);
    assert!(audit.flush(SOON));
    let lines = scratch.lines();
    assert_eq!(lines.len(), 1 + count);
    let (verifier, breaks) = verify(&lines);
    assert_eq!((verifier.dropped(), breaks), (5, vec![]));
    // 7 MiB of lines, with their places in the chain, are two or three writes; a file is full once.
    assert!((2..6).contains(&audit.writes()), "{}", audit.writes());
}

#[test]
fn refusals_find_room_where_ordinary_lines_do_not() {
    let scratch = Scratch::new();
    let audit = Audit::open(&scratch.file(), 0).unwrap();
    let shared = audit.shared().clone();
    let place = audit.place.as_ref().unwrap();
    let mut state = shared.lock();
    let count = fill(&mut state);
    let mut refusal = entry(&"x".repeat(900));
    shared.queue(&mut state, &refusal, &Line::new(&refusal), place, 0.0);
    refusal.event.kind = EventKind::PolicyRefused;
    shared.queue(&mut state, &refusal, &Line::new(&refusal), place, 0.0);
    drop(state);
    assert!(audit.flush(SOON));
    let values = scratch.values();
    assert_eq!(values.len(), count + 1);
    let told = verify(&scratch.lines()).0.dropped();
    assert_eq!(told, 1, "no loss is silent");
    assert_eq!(values[count]["event"], "policy_refused");
}

#[test]
fn ordinary_lines_are_written_in_batches_and_without_anybody_asking() {
    let scratch = Scratch::new();
    let audit = Audit::open(&scratch.file(), 0).unwrap();
    let start = local_clock();
    for number in 0..100 {
        audit.record(Event::new(EventKind::KeyUpdate).detail(format!("number {number}")));
    }
    let deadline = start + SOON.as_secs_f64();
    while audit.shared().lock().done < 100 {
        assert!(local_clock() < deadline);
        std::thread::sleep(Duration::from_millis(20));
    }
    // One, unless this machine slept in between.
    let most = 1.0 + (local_clock() - start) / BATCH_SECS;
    let writes = u32::try_from(audit.writes()).unwrap();
    assert!(f64::from(writes) <= most, "{writes} > {most}");
    let lines = scratch.lines();
    assert_eq!(lines.len(), 1 + 100);
    assert_eq!(verify(&lines).1, []);
}

#[test]
fn a_flush_does_not_wait_for_what_is_recorded_after_it() {
    let scratch = Scratch::new();
    let audit = Audit::open(&scratch.file(), 0).unwrap();
    let ended = AtomicU32::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while ended.load(Ordering::Relaxed) == 0 {
                audit.record(Event::new(EventKind::KeyUpdate));
                std::thread::sleep(Duration::from_micros(100));
            }
        });
        for number in 0..20 {
            audit.record(Event::new(EventKind::SessionClosed).detail(format!("end {number}")));
            assert!(audit.flush(SOON));
            let own = format!("\"end {number}\"");
            assert!(scratch.lines().iter().any(|line| line.contains(&own)));
        }
        ended.store(1, Ordering::Relaxed);
    });
}

#[test]
fn a_log_that_is_dropped_is_whole() {
    let scratch = Scratch::new();
    let audit = Audit::open(&scratch.file(), 0).unwrap();
    for _ in 0..50 {
        audit.record(Event::new(EventKind::HandshakeOk));
    }
    drop(audit);
    assert_eq!(scratch.values().len(), 50);
}

#[test]
fn nothing_is_lost_when_the_process_exits() {
    if let Ok(directory) = std::env::var(ROLE) {
        let log = |name: &str| Audit::open(&Path::new(&directory).join(name), 0).unwrap();
        let logs = [log("audit.jsonl"), log("second"), log("closed")];
        for _ in 0..200 {
            for audit in &logs {
                audit.record(Event::new(EventKind::HandshakeOk));
                audit.record(Event::new(EventKind::PlaintextRefused));
            }
        }
        let [first, second, closed] = logs;
        drop(closed);
        // As a context that lives as long as its process.
        Box::leak(Box::new([first, second]));
        // As std's `exit`, which on Windows runs no hook of a program.
        lsl_platform::exit::leave(7);
    }
    let scratch = Scratch::new();
    let test = "nothing_is_lost_when_the_process_exits";
    let ended = another_process(test, &scratch.0, "").status().unwrap();
    assert_eq!(ended.code(), Some(7));
    for name in ["audit.jsonl", "second", "closed"] {
        let text = fs::read_to_string(scratch.0.join(name)).unwrap();
        let lines: Vec<_> = text.lines().map(str::to_owned).collect();
        assert_eq!(verify(&lines).1, []);
        let (mut whole, mut refused) = (0, 0);
        for line in &lines {
            let line: Value = serde_json::from_str(line).unwrap();
            assert_eq!(line["dropped"], Value::Null);
            match line["event"].as_str().unwrap() {
                "handshake_ok" => whole += 1,
                "log_opened" => {}
                _ => refused += 1 + line["suppressed"].as_u64().unwrap_or(0),
            }
        }
        assert_eq!((whole, refused), (200, 200), "{name}");
    }
}

#[test]
fn files_rotate_by_size_and_chains_go_on() {
    let scratch = Scratch::new();
    let place = place(&scratch, 2000);
    let mut writers: Vec<_> = (0..3).map(|_| writer(place.clone())).collect();
    // One line at a time, and as many as fit into three files.
    for count in [1, 1, 1, 1, 1, 25, 1, 29] {
        for writer in &mut writers {
            let lines = line(&entry("a line of some length")).repeat(count);
            writer.write(&lines, 0, utc_now()).unwrap();
            assert!(writer.take_trouble().is_none());
        }
    }
    let files = rotated(&scratch.file()).unwrap();
    assert!(files.len() > 10, "{files:?}");
    for (index, file) in files.iter().enumerate() {
        let name = format!("audit.jsonl.{}", index + 1);
        assert_eq!(file.file_name().unwrap().to_str().unwrap(), name);
        let len = fs::metadata(file).unwrap().len();
        assert!((2000..2500).contains(&len), "{name}: {len}");
    }
    let lines = scratch.lines();
    let (verifier, breaks) = verify(&lines);
    assert_eq!(breaks, []);
    assert_eq!(verifier.chains(), 3);
    assert_eq!(scratch.values().len(), 180);
    for file in files {
        let mut seen = Vec::new();
        for line in fs::read_to_string(&file).unwrap().lines() {
            let line: Value = serde_json::from_str(line).unwrap();
            let is_first = !seen.contains(&line["chain"]);
            assert_eq!(
                line["event"] == "log_opened",
                is_first,
                "{line} in {file:?}"
            );
            seen.push(line["chain"].clone());
        }
    }
}

#[test]
fn a_file_without_room_takes_lines_all_the_same() {
    let scratch = Scratch::new();
    let mut writer = writer(place(&scratch, 0));
    assert_eq!(
        writer
            .write(&line(&entry("")).repeat(3), 0, utc_now())
            .unwrap(),
        1
    );
    assert_eq!(scratch.values().len(), 3);
}

#[test]
fn with_a_time_limit_each_day_has_its_file_and_old_ones_go() {
    let scratch = Scratch::new();
    let keep = |keep_days| LogFile {
        path: scratch.file(),
        keep_days,
        max_len_bytes: u64::MAX,
    };
    let day = |days: u64| utc_now() + Duration::from_secs(days * DAY_SECS);
    let at = |days| line(&entry_at("", day(days)));
    let mut first = writer(keep(2));
    first.write(&at(0), 0, day(0)).unwrap();
    first.write(&at(0), 0, day(0)).unwrap();
    assert_eq!(rotated(&scratch.file()).unwrap().len(), 0);
    // The files' own times are today, whatever day the test plays.
    first.write(&at(1), 0, day(1)).unwrap();
    assert_eq!(rotated(&scratch.file()).unwrap().len(), 1);
    // Another process finds the date in the file.
    let mut other = writer(keep(2));
    other.write(&at(2), 0, day(2)).unwrap();
    let kept = rotated(&scratch.file()).unwrap().len();
    assert!(
        (1..=2).contains(&kept),
        "midnight may pass during the test: {kept}"
    );
    fs::write(scratch.0.join("audit.jsonl.backup"), "not ours").unwrap();
    if cfg!(windows) {
        // Wine keeps the name of a deleted file that is open.
        drop(first);
    }
    other.write(&at(4), 0, day(4)).unwrap();
    assert_eq!(rotated(&scratch.file()).unwrap().len(), 0);
    assert!(scratch.0.join("audit.jsonl.backup").exists());

    let mut patient = writer(keep(0));
    patient.write(&at(400), 0, day(400)).unwrap();
    assert_eq!(rotated(&scratch.file()).unwrap().len(), 0);
    assert_eq!(scratch.values().len(), 2);
}

#[test]
fn files_that_others_could_change_are_refused_at_the_start() {
    let scratch = Scratch::new();
    fs::write(scratch.file(), "").unwrap();
    set_mode(&scratch.file(), 0o666).unwrap();
    let error = Audit::open(&scratch.file(), 0).unwrap_err().to_string();
    assert!(
        error.contains("audit.jsonl") && says(&error, "chmod 600"),
        "{error}"
    );
    let error = Audit::open(&scratch.0.join("no/such"), 0).unwrap_err();
    assert!(matches!(error, Error::File { .. }), "{error}");
}

#[test]
fn without_a_file_nothing_waits_and_nothing_is_dropped() {
    let audit = Audit::default();
    for _ in 0..20 {
        audit.record(Event::new(EventKind::HandshakeFailed).detail("again"));
    }
    assert!(audit.flush(Duration::ZERO));
    assert_eq!(audit.dropped(), 0);
}

/// Set in the environment of this binary when a test starts it again.
const ROLE: &str = "LSL_AUDIT_TEST_ROLE";

/// This binary again, as another process that runs `test` in its role.
fn another_process(test: &str, directory: &Path, shell: &str) -> Command {
    let binary = std::env::current_exe().unwrap();
    let mut command = Command::new(if shell.is_empty() {
        &binary
    } else {
        Path::new("sh")
    });
    if !shell.is_empty() {
        command.args(["-c", &format!("{shell} exec \"$0\" \"$@\"")]);
        command.arg(&binary);
    }
    command
        .args(["--exact", "--test-threads=1"])
        .arg(format!("audit::tests::{test}"))
        .env(ROLE, directory)
        .stdout(Stdio::null());
    command
}

#[test]
#[cfg_attr(
    windows,
    ignore = "no process of Windows has a limit of the length of files"
)]
fn a_full_disk_tears_one_line_and_the_next_process_goes_on() {
    if let Ok(directory) = std::env::var(ROLE) {
        let audit = Audit::open(&PathBuf::from(directory).join("audit.jsonl"), 0).unwrap();
        for _ in 0..100 {
            audit.record(Event::new(EventKind::KeyUpdate).detail("x".repeat(200)));
        }
        assert!(audit.flush(SOON));
        assert!(audit.dropped() > 0);
        return;
    }
    let scratch = Scratch::new();
    let test = "a_full_disk_tears_one_line_and_the_next_process_goes_on";
    // A file that may not grow behaves like a disk that is full: the last write is a short one.
    let limits = "trap '' XFSZ; ulimit -f 16;";
    let mut child = another_process(test, &scratch.0, limits);
    assert!(child.status().unwrap().success());
    let before = fs::read(scratch.file()).unwrap();
    assert_ne!(before.last(), Some(&b'\n'), "a torn line");

    let audit = Audit::open(&scratch.file(), 0).unwrap();
    audit.record(Event::new(EventKind::HandshakeOk));
    assert!(audit.flush(SOON));
    let lines = scratch.lines();
    let (verifier, breaks) = verify(&lines);
    assert_eq!(breaks, [Break::Unreadable]);
    assert_eq!(verifier.chains(), 2);
    assert!(lines.last().unwrap().contains("handshake_ok"));
}

/// Collects level, target and fields of every event.
#[derive(Clone, Default)]
struct Collector(Arc<Mutex<Vec<(Level, String, String)>>>);

impl tracing::Subscriber for Collector {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        struct Fields(String);
        impl tracing::field::Visit for Fields {
            fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
                use std::fmt::Write;
                let _ = write!(self.0, "{field}={value:?};");
            }
        }
        let mut fields = Fields(String::new());
        event.record(&mut fields);
        let metadata = event.metadata();
        let seen = (*metadata.level(), metadata.target().to_owned(), fields.0);
        self.0.lock().unwrap().push(seen);
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

#[test]
fn programs_hear_events_through_tracing() {
    let collector = Collector::default();
    tracing::subscriber::with_default(collector.clone(), || {
        let audit = Audit::default();
        audit.record(
            Event::new(EventKind::PlaintextAccepted)
                .policy(Policy::Migrate)
                .detail("from\n10.0.0.1"),
        );
        audit.record(Event::new(EventKind::HandshakeOk).suite(Suite::ChaCha20Poly1305));
    });
    let seen = collector.0.lock().unwrap();
    let target = "lsl_secure::audit".to_owned();
    let expected = [
        (
            Level::WARN,
            target.clone(),
            r#"message=from\n10.0.0.1;event="plaintext_accepted";policy="migrate";"#.to_owned(),
        ),
        (
            Level::INFO,
            target,
            r#"message=handshake_ok;event="handshake_ok";suite="ChaCha20-Poly1305";version=1;"#
                .to_owned(),
        ),
    ];
    assert_eq!(*seen, expected);
}

/// A signal handler of the program that called the library on this thread would wait for its locks.
#[test]
#[cfg(target_os = "linux")]
fn signal_handlers_do_not_run_on_the_writing_thread() {
    let scratch = Scratch::new();
    let audit = Audit::open(&scratch.file(), 0).unwrap();
    audit.record(Event::new(EventKind::TrustReloaded));
    assert!(audit.flush(SOON));
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    let masks: Vec<_> = tasks
        .filter_map(|task| {
            // Threads of other tests may end meanwhile.
            let status = fs::read_to_string(task.ok()?.path().join("status")).ok()?;
            let field = |name| status.lines().find_map(|line| line.strip_prefix(name));
            let mask = field("SigBlk:")?.trim();
            (field("Name:")?.trim() == "lsl-audit").then(|| u64::from_str_radix(mask, 16).unwrap())
        })
        .collect();
    // SIGUSR1, SIGALRM, SIGTERM, counted from 1.
    let handled = 1 << 9 | 1 << 13 | 1 << 14;
    assert!(
        masks.iter().any(|mask| mask & handled == handled),
        "{masks:x?}"
    );
}
