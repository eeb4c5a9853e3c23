//! The recorder under remote control: LabRecorder's commands, byte for byte, and our own.

use std::fs::Permissions;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use crate::lab::{Lab, Running};
use crate::record::{Verdict, generate, nothing_is_missing, read, start, stream, until};

/// A recorder that waits for commands, and a connection to it.
pub(crate) struct Remote {
    pub(crate) recorder: Running,
    pub(crate) stream: BufReader<TcpStream>,
}

/// The token that a recorder of this lab makes by itself.
pub(crate) fn token(lab: &Lab) -> String {
    let file = lab.path(".config/lsl/rcs-token");
    let text = std::fs::read_to_string(file).unwrap();
    text.trim_end().to_owned()
}

const SELECT_ALL: &str = "--rcs-start-selects-all";

fn free_address() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().to_string()
}

impl Remote {
    /// One that has named the recorder's own token, unless another one is needed, or none.
    pub(crate) fn new(lab: &Lab, words: &[&str]) -> Self {
        let mut remote = Self::connect(lab, words);
        if !words.iter().any(|word| word.starts_with("--rcs-")) || words.contains(&SELECT_ALL) {
            remote.ok(format!("auth {}\n", token(lab)).as_bytes());
        }
        remote
    }

    pub(crate) fn connect(lab: &Lab, words: &[&str]) -> Self {
        let address = free_address();
        let rcs = format!("--rcs={address}");
        let mut all = vec![rcs.as_str()];
        all.extend(words);
        let recorder = start(lab, &all);
        let mut stream = None;
        until("remote control", || {
            stream = TcpStream::connect(&address).ok();
            stream.is_some()
        });
        let stream = stream.unwrap();
        let limit = Some(Duration::from_secs(20));
        stream.set_read_timeout(limit).unwrap();
        let stream = BufReader::new(stream);
        Self { recorder, stream }
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.stream.get_mut().write_all(bytes).unwrap();
    }

    /// A command of LabRecorder's.
    #[track_caller]
    pub(crate) fn ok(&mut self, bytes: &[u8]) {
        self.send(bytes);
        let mut answer = [0; 2];
        self.stream.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"OK");
    }

    /// One of ours.
    pub(crate) fn ask(&mut self, line: &str) -> Value {
        self.send(format!("{line}\n").as_bytes());
        let mut answer = String::new();
        self.stream.read_line(&mut answer).unwrap();
        serde_json::from_str(&answer).unwrap_or_else(|error| panic!("{error}: {answer}"))
    }

    pub(crate) fn until_samples(&mut self) {
        until("samples", || {
            self.ask("streams")[0]["samples"].as_u64() > Some(100)
        });
    }
}

#[test]
fn the_transcript_of_labrecorders_readme_records() {
    let lab = Lab::new();
    let root = lab.path("study");
    let _generator = lab.start(&generate("Amp", &[]));
    let mut remote = Remote::new(&lab, &["--root", &root, "--rcs-open"]);
    // As the README has it, letter for letter.
    remote.ok(b"select all\n");
    remote.ok(
        b"filename {root:C:\\Data\\} {template:exp%n\\%p_block_%b.xdf} {run:2} {participant:P003} \
          {task:MemoryGuided}\n",
    );
    remote.ok(b"start\n");
    remote.until_samples();
    remote.ok(b"stop\n");
    assert_eq!(remote.ask("status")["recording"], false);
    let loaded = read(&format!("{root}/exp002/P003_block_MemoryGuided.xdf"));
    nothing_is_missing(stream(&loaded, "Amp"));
    remote.recorder.interrupt();
    // The folder is none of this machine.
    remote
        .recorder
        .wait()
        .with(0, &["WHOEVER", "root 'C:\\Data\\' is not below"]);
}

#[test]
fn our_own_commands_select_mark_and_tell() {
    let lab = Lab::new();
    let root = lab.path("study");
    let _amp = lab.start(&generate("Amp", &[]));
    let _other = lab.start(&generate("Other", &[]));
    let mut remote = Remote::new(&lab, &["--root", &root, "-o", "run-%r.xdf"]);
    assert_eq!(remote.ask("select name='Amp'")["selected"][0], "name='Amp'");
    assert!(remote.ask("mark too early")["error"].is_string());
    remote.ok(b"start\n");
    remote.until_samples();
    assert_eq!(remote.ask("mark Eyes closed")["marked"], "Eyes closed");
    let status = remote.ask("status");
    assert_eq!(status["event"], "status");
    assert_eq!(status["streams"].as_array().unwrap().len(), 1);
    remote.ok(b"stop\n");
    // Runs count on, and nobody is asked.
    remote.ok(b"update\n");
    remote.ok(b"start\n");
    remote.until_samples();
    assert_eq!(remote.ask("quit")["quit"], true);
    remote.recorder.wait().ok();
    let first = read(&format!("{root}/run-001.xdf"));
    assert_eq!(first.streams.len(), 2);
    nothing_is_missing(stream(&first, "Amp"));
    let marks = stream(&first, "lsl-record");
    assert_eq!(marks.values.len(), 1);
    assert_eq!(marks.offsets[0].1.to_bits(), 0.0_f64.to_bits());
    nothing_is_missing(stream(&read(&format!("{root}/run-002.xdf")), "Amp"));
}

#[test]
fn nothing_selected_is_nothing_recorded() {
    let lab = Lab::new();
    let root = lab.path("study");
    let _generator = lab.start(&generate("Amp", &[]));
    let mut remote = Remote::new(&lab, &["--root", &root]);
    remote.ok(b"start\n");
    let status = remote.ask("status");
    assert_eq!(status["recording"], false);
    let error = status["last_error"].as_str().unwrap();
    assert!(error.contains("nothing is selected"), "{error}");
    // OK to what nobody knows, too; a line without its end is no command.
    remote.ok(b"dance\n");
    remote.ok(b"select all\n");
    remote.ok(b"select none\n");
    remote.send(b"quit");
    drop(remote.stream);
    assert!(!Path::new(&root).exists());
    remote.recorder.interrupt();
    remote.recorder.wait().with(
        0,
        &["nothing is selected", "unknown command; there are auth"],
    );
}

#[test]
fn paths_of_clients_stay_below_the_root() {
    let lab = Lab::new();
    let root = lab.path("study");
    let _generator = lab.start(&generate("Amp", &[]));
    let mut remote = Remote::new(&lab, &["--root", &root, "--rcs-start-selects-all"]);
    let outside = lab.path("outside");
    remote.ok(format!("filename {{root:{outside}}} {{template:../../x.xdf}}\n").as_bytes());
    remote.ok(b"start\n");
    let error = remote.ask("status")["last_error"].to_string();
    assert!(error.contains("below the folder"), "{error}");
    // A name that begins with dots is hidden.
    remote.ok(b"filename {root:sub} {template:%p.xdf} {participant:../../../evil}\n");
    remote.ok(b"start\n");
    let error = remote.ask("status")["last_error"].to_string();
    assert!(error.contains("begins with a dot"), "{error}");
    remote.ok(b"filename {participant:P/../../../evil}\n");
    remote.ok(b"start\n");
    remote.until_samples();
    remote.ask("quit");
    remote.recorder.wait().with(0, &["is not below"]);
    read(&format!("{root}/sub/P-..-..-..-evil.xdf"));
    assert!(!Path::new(&outside).exists());
}

#[test]
fn links_below_the_root_lead_nowhere_else() {
    let lab = Lab::new();
    let root = lab.path("data");
    std::fs::create_dir_all(&root).unwrap();
    std::fs::create_dir(lab.path("outside")).unwrap();
    std::os::unix::fs::symlink("../outside", format!("{root}/out")).unwrap();
    let _generator = lab.start(&generate("Amp", &[]));
    // A root beside the folder that it is started in.
    let up = format!("../{}/data", root.rsplit('/').nth(1).unwrap());
    let mut remote = Remote::new(&lab, &["--root", &up, "--rcs-start-selects-all"]);
    remote.ok(b"filename {template:out/escaped.xdf}\n");
    remote.ok(b"start\n");
    let status = remote.ask("status");
    assert_eq!(status["recording"], false);
    let error = status["last_error"].as_str().unwrap();
    assert!(error.contains("leads out of"), "{error}");
    remote.ok(b"filename {root:sub} {template:in.xdf}\n");
    remote.ok(b"start\n");
    remote.until_samples();
    remote.ask("quit");
    remote.recorder.wait().ok();
    nothing_is_missing(stream(&read(&format!("{root}/sub/in.xdf")), "Amp"));
    assert_eq!(std::fs::read_dir(lab.path("outside")).unwrap().count(), 0);
}

#[test]
fn web_pages_are_not_obeyed() {
    let lab = Lab::new();
    let mut remote = Remote::new(&lab, &["--root", &lab.path("study")]);
    let address = remote.stream.get_ref().peer_addr().unwrap();
    for head in ["POST / HTTP/1.1\r\n", "Host: localhost\r\n"] {
        let mut page = TcpStream::connect(address).unwrap();
        page.set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        page.write_all(format!("{head}\r\nselect all\nquit\n").as_bytes())
            .unwrap();
        let mut answer = Vec::new();
        // Closed, or reset since it had more to say.
        let _ = page.read_to_end(&mut answer);
        assert!(answer.is_empty(), "{answer:?}");
    }
    assert_eq!(
        remote.ask("status")["selected"].as_array().unwrap().len(),
        0
    );
    remote.recorder.interrupt();
    remote.recorder.wait().with(0, &["a web page tried"]);
}

#[test]
fn idle_connections_do_not_lock_the_operator_out() {
    let lab = Lab::new();
    let mut remote = Remote::new(&lab, &["--root", &lab.path("study")]);
    let auth = format!("auth {}\n", token(&lab));
    remote.ask("status");
    let address = remote.stream.get_ref().peer_addr().unwrap();
    let connect = || TcpStream::connect(address).unwrap();
    let _idle: Vec<TcpStream> = (0..40).map(|_| connect()).collect();
    let mut operator = connect();
    operator
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    operator
        .write_all(format!("{auth}update\n").as_bytes())
        .unwrap();
    let mut answer = [0; 4];
    operator.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"OKOK");
    // Whoever was obeyed before stays.
    assert_eq!(remote.ask("status")["recording"], false);
    remote.recorder.interrupt();
    remote.recorder.wait().ok();
}

#[test]
fn a_start_that_fails_is_told_at_the_end() {
    let lab = Lab::new();
    let words = ["--root", &lab.path("study"), "--timeout", "0.2"];
    let mut remote = Remote::new(&lab, &words);
    remote.ok(b"select all\n");
    remote.ok(b"start\n");
    let status = remote.ask("status");
    let error = status["last_error"].as_str().unwrap();
    assert!(error.contains("no stream answered"), "{error}");
    remote.ask("quit");
    remote.recorder.wait().with(2, &["no stream answered"]);
}

#[test]
fn others_need_a_token() {
    let lab = Lab::new();
    start(&lab, &["--rcs=0.0.0.0:0"])
        .wait()
        .with(2, &["--rcs-token-file"]);
    let token = lab.write("token", "0123456789abcdef\n");
    // Read as every other secret.
    let readable = start(&lab, &["--rcs=127.0.0.1:0", "--rcs-token-file", &token]);
    readable.wait().with(1, &[&token, "chmod"]);
    std::fs::set_permissions(&token, Permissions::from_mode(0o600)).unwrap();
    let mut remote = Remote::new(&lab, &["--rcs-token-file", &token]);
    remote.ok(b"auth 0123456789abcdef\n");
    assert_eq!(remote.ask("status")["recording"], false);
    remote.recorder.interrupt();
    remote.recorder.wait().ok();
    let mut remote = Remote::new(&lab, &["--rcs-token-file", &token]);
    assert!(remote.ask("quit")["error"].is_string());
    let mut rest = Vec::new();
    assert_eq!(remote.stream.read_to_end(&mut rest).unwrap_or(0), 0);
    remote.recorder.interrupt();
    remote.recorder.wait().ok();
}
