//! What strangers on the same machine, web pages and careless clients say to the remote control of a
//! recorder: it does no harm, and nobody is locked out.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::time::Duration;

use crate::lab::Lab;
use crate::record::{Verdict, generate, nothing_is_missing, read, stream};
use crate::record_control::{Remote, token};

fn address(remote: &Remote) -> SocketAddr {
    remote.stream.get_ref().peer_addr().unwrap()
}

/// All that comes back until the recorder closes the connection, which it must do by itself.
#[track_caller]
fn said_to(address: SocketAddr, bytes: &[u8]) -> String {
    let mut client = TcpStream::connect(address).unwrap();
    let limit = Some(Duration::from_secs(8));
    client.set_read_timeout(limit).unwrap();
    client.write_all(bytes).unwrap();
    let mut answer = Vec::new();
    match client.read_to_end(&mut answer) {
        // Closed while there was more to read.
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => {}
        read => drop(read.expect("the connection stays open")),
    }
    String::from_utf8(answer).unwrap()
}

/// The names of all files below a folder.
fn files(folder: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let text = path.to_str().unwrap().to_owned();
        if path.is_dir() && !path.is_symlink() {
            found.extend(files(&text));
        } else {
            found.push(text);
        }
    }
    found.sort();
    found
}

#[test]
fn remote_control_writes_no_file_but_a_recording() {
    let lab = Lab::new();
    let root = lab.path("study");
    fs::create_dir_all(format!("{root}/.ssh")).unwrap();
    let keys = format!("{root}/.ssh/authorized_keys");
    let aliases = format!("{root}/.bashrc");
    let notes = format!("{root}/notes.xdf");
    let script = format!("{root}/run.sh");
    let outside = lab.write("outside.xdf", "XDF: of somebody else");
    for file in [&keys, &aliases, &notes, &script] {
        fs::write(file, "precious").unwrap();
    }
    symlink(&outside, format!("{root}/link.xdf")).unwrap();
    // Like one that a crash left, whose repair would go through the link.
    fs::write(format!("{root}/link.xdf.lslj"), "").unwrap();
    let before = files(&root);
    let _generator = lab.start(&generate("Amp", &[]));
    let words = ["--root", &root, "--rcs-open"];
    let mut remote = Remote::new(&lab, &words);
    remote.ok(b"select all\n");
    for name in [
        "{template:.bashrc}",
        "{template:.ssh/authorized_keys}",
        "{template:.ssh/x.xdf}",
        "{root:.ssh} {template:x.xdf}",
        "{root:} {template:%p/authorized_keys} {participant:.ssh}",
        "{template:notes.xdf}",
        "{template:notes}",
        "{template:link.xdf}",
        "{template:../outside.xdf}",
    ] {
        remote.ok(format!("filename {name}\n").as_bytes());
        remote.ok(b"start\n");
        let status = remote.ask("status");
        assert_eq!(status["recording"], false, "{name}");
        assert!(status["last_error"].is_string(), "{name}");
        remote.ok(b"filename {root:}\n");
    }
    assert_eq!(files(&root), before);
    // What ends in anything else is a recording none the less, and in nobody's place.
    remote.ok(b"filename {template:run.sh}\n");
    remote.ok(b"start\n");
    remote.until_samples();
    remote.ok(b"stop\n");
    remote.ok(b"start\n");
    remote.until_samples();
    remote.ask("quit");
    remote.recorder.wait().with(0, &["WHOEVER", "no recording"]);
    for name in ["run.sh.xdf", "run.sh_old1.xdf"] {
        nothing_is_missing(stream(&read(&format!("{root}/{name}")), "Amp"));
    }
    for file in [&keys, &aliases, &notes, &script] {
        assert_eq!(fs::read_to_string(file).unwrap(), "precious", "{file}");
    }
    assert_eq!(
        fs::read_to_string(&outside).unwrap(),
        "XDF: of somebody else"
    );
    assert_eq!(files(&root).len(), before.len() + 2);
}

#[test]
fn remote_control_obeys_nobody_without_the_token() {
    let lab = Lab::new();
    let root = lab.path("study");
    let _generator = lab.start(&generate("Amp", &[]));
    let mut remote = Remote::new(&lab, &["--root", &root]);
    let file = lab.path(".config/lsl/rcs-token");
    let mode = fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(token(&lab).len(), 32);
    let address = address(&remote);
    for command in [
        "select all",
        "start",
        "quit",
        "streams",
        "mark x",
        "update",
        "auth 0123456789abcdef0123456789abcdef",
        "auth",
    ] {
        let line = format!("{command}\nselect all\nstart\nquit\n");
        let answer = said_to(address, line.as_bytes());
        assert_eq!(
            answer, "{\"error\":\"auth TOKEN comes first\"}\n",
            "{command}"
        );
    }
    // How it goes is no secret on this machine.
    let answer = said_to(address, b"status\nquit\n");
    let mut lines = answer.lines();
    assert!(
        lines.next().unwrap().contains("\"recording\":false"),
        "{answer}"
    );
    assert!(lines.next().unwrap().contains("auth TOKEN"), "{answer}");
    assert_eq!(
        remote.ask("status")["selected"].as_array().unwrap().len(),
        0
    );
    assert!(!Path::new(&root).exists());
    // Naming the token once more is nothing that others could read of.
    remote.ok(format!("auth {}\n", token(&lab)).as_bytes());
    let answer = said_to(address, b"status\nquit\n");
    assert!(!answer.contains(&token(&lab)), "{answer}");
    // Nor is it behind a slip, or alone.
    for word in ["auht ", ""] {
        remote.ok(format!("{word}{}\n", token(&lab)).as_bytes());
        let answer = said_to(address, b"status\nquit\n");
        assert!(answer.contains("unknown command"), "{answer}");
        assert!(!answer.contains(&token(&lab)), "{answer}");
    }
    let answer = said_to(
        address,
        format!("auth {}\nauth wrong\nselect all\n", token(&lab)).as_bytes(),
    );
    assert_eq!(answer, "OK{\"error\":\"auth TOKEN comes first\"}\n");
    assert_eq!(
        remote.ask("status")["selected"].as_array().unwrap().len(),
        0
    );
    remote.recorder.interrupt();
    let ended = remote.recorder.wait().with(0, &[&file, "--rcs-open"]);
    // Whoever connects again and again fills no terminal.
    assert!(
        ended.stderr.matches("without the token").count() < 4,
        "{ended:?}"
    );
    assert!(!ended.stderr.contains(&token(&lab)));
    // The next one has the same token.
    let before = token(&lab);
    let again = Remote::new(&lab, &["--root", &root]);
    assert_eq!(token(&lab), before);
    again.recorder.interrupt();
    again.recorder.wait().ok();
    // Others may have read it.
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
    crate::record::start(&lab, &["--rcs=127.0.0.1:0"])
        .wait()
        .with(1, &[&file]);
}

#[test]
fn remote_control_closes_what_does_not_speak_its_language() {
    let lab = Lab::new();
    let words = ["--root", &lab.path("study"), "--rcs-open"];
    let mut remote = Remote::new(&lab, &words);
    let address = address(&remote);
    for bytes in [
        // The head of a handshake, and none of these has a line's end.
        &b"\x16\x03\x01\x02\0\x01\0"[..],
        b"GET / HTTP/1.1",
        b"POST ",
        b"OPTIONS /start",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"mark \x1b[2J",
        b"mark a\0",
        b"mark a\tb",
        b"mark \xff",
        // An invalid sequence, and a control character of two bytes.
        b"mark \xe2\x28\xa1\nselect all\n",
        b"mark \xc2\x9b31m\nselect all\n",
    ] {
        assert_eq!(said_to(address, bytes), "", "{bytes:?}");
    }
    // Clients name a token whether or not it is needed.
    remote.ok(b"auth 0123456789abcdef\n");
    let status = remote.ask("status");
    assert_eq!(status["selected"].as_array().unwrap().len(), 0);
    assert!(status["last_error"].is_null(), "{status}");
    // What nobody knows is answered all the same.
    remote.ok("\u{e4}\r\n".as_bytes());
    remote.recorder.interrupt();
    let ended = remote.recorder.wait().with(0, &["remote control"]);
    assert!(!ended.stderr.contains('\u{1b}'));
}
