//! `lsl lock`, `unlock`, `rotate`, `verify` and `key age`.

use std::fs;
use std::io::Write;
use std::process::Stdio;

use lsl_core::secure::SecretKey;
use lsl_platform::files::mode_of;

use crate::lab::{Lab, Running};
use crate::recordings::{SECRET, find, folder_contains, signed, signed_unreadable, whole};

fn key(lab: &Lab, name: &str) -> (String, String) {
    let path = lab.path(name);
    let made = lab.run(&["key", "age", &path]).ok();
    (path, made.stdout.trim().to_owned())
}

fn names(folder: &str) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn files_are_locked_verified_rotated_and_unlocked() {
    let lab = Lab::new();
    let ((mine, public), (theirs, other)) = (key(&lab, "key.txt"), key(&lab, "other.txt"));
    let folder = lab.path("files");
    fs::create_dir(&folder).unwrap();
    let paths = ["a.xdf", "b.xdf", "c.xdf"].map(|name| format!("{folder}/{name}"));
    for path in &paths {
        fs::write(path, whole()).unwrap();
    }
    let [a, b, c] = &paths;
    let lock = ["lock", "--json", "--remove", "-r", &public, a, b, c];
    let lines = lab.run(&lock).ok().json_lines();
    assert_eq!(lines.len(), 3);
    for line in &lines {
        assert_eq!(line["result"], "locked");
        assert_eq!(line["plain_bytes"], whole().len());
        assert_eq!(line["source_removed"], true);
    }
    assert_eq!(names(&folder), ["a.xdf.age", "b.xdf.age", "c.xdf.age"]);
    assert!(!folder_contains(folder.as_ref(), SECRET.as_bytes()));

    let locked = paths.clone().map(|path| format!("{path}.age"));
    let [a_age, b_age, c_age] = &locked;
    let verified = lab.run(&["verify", "-i", &mine, a_age, b_age, c_age]).ok();
    assert_eq!(
        verified.stdout.matches("verified").count(),
        3,
        "{verified:?}"
    );
    lab.run(&["verify", "-i", &theirs, a_age])
        .refused(1, &["none of the identities"]);

    let payload = |path: &String| fs::read(path).unwrap().split_off(400);
    let before = payload(a_age);
    lab.run(&["rotate", "-i", &mine, "-r", &other, a_age]).ok();
    assert_eq!(payload(a_age), before);
    lab.run(&["verify", "-i", &mine, a_age])
        .refused(1, &["none of the identities"]);
    lab.run(&["rotate", "-i", &mine, "-r", &other, "--rekey", b_age])
        .ok();
    lab.run(&["verify", "-i", &theirs, a_age, b_age]).ok();

    // One of them locked to others: the rest is done all the same.
    let unlocked = lab.run(&["unlock", "--json", "-i", &theirs, a_age, b_age, c_age]);
    unlocked.refused(1, &["1 of 3 files not unlocked"]);
    let failed = unlocked
        .json_lines()
        .into_iter()
        .filter(|line| line["error"].is_string());
    assert_eq!(failed.count(), 1);
    assert_eq!(
        [fs::read(a).unwrap(), fs::read(b).unwrap()],
        [whole(), whole()]
    );
    assert!(!fs::exists(c).unwrap());
    lab.run(&["unlock", "-i", &theirs, a_age])
        .refused(2, &["exists already"]);
}

#[test]
fn the_security_log_has_a_line_for_each_file() {
    let lab = Lab::new();
    let ((mine, public), (theirs, _)) = (key(&lab, "key.txt"), key(&lab, "other.txt"));
    let config = lab.write(
        "lsl-secure.toml",
        "[security]\npolicy = \"off\"\naudit_file = \"audit.jsonl\"\n",
    );
    let plain = lab.write("a.txt", SECRET);
    let locked = format!("{plain}.age");
    let logged = |args: &[&str]| {
        let mut command = lab.command(args);
        command.env("LSL_SECURE_CONFIG", &config).output().unwrap()
    };
    assert!(logged(&["lock", "-r", &public, &plain]).status.success());
    assert!(logged(&["verify", "-i", &mine, &locked]).status.success());
    assert!(!logged(&["verify", "-i", &theirs, &locked]).status.success());
    let log = fs::read_to_string(lab.path("audit.jsonl")).unwrap();
    let lines: Vec<serde_json::Value> = log
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .filter(|line: &serde_json::Value| line["event"] != "log_opened")
        .collect();
    let events: Vec<&str> = lines
        .iter()
        .filter_map(|line| line["event"].as_str())
        .collect();
    assert_eq!(events, ["file_locked", "file_verified", "file_failed"]);
    let steps = |line: &serde_json::Value| -> Vec<String> {
        let steps = line["steps"].as_array().unwrap().iter();
        steps.map(|it| it[0].as_str().unwrap().to_owned()).collect()
    };
    for (line, expected) in lines.iter().zip([
        &["wrap", "payload", "sync"][..],
        &["unwrap", "payload"],
        &["unwrap"],
    ]) {
        assert!(line["detail"].as_str().unwrap().contains("a.txt"), "{line}");
        assert_eq!(steps(line), expected);
        // Nothing is known of what cannot be opened.
        let format = (expected.len() > 1).then_some("age-v1");
        assert!(line["took_us"].is_u64(), "{line}");
        assert_eq!(line["format"].as_str(), format, "{line}");
    }
    assert_eq!(lines[0]["recipients"], serde_json::json!([public]));
    assert!(!log.contains(SECRET));
    assert!(logged(&["audit", "verify"]).status.success());
}

#[test]
fn a_cut_and_a_changed_file_are_told() {
    let lab = Lab::new();
    let (identity, public) = key(&lab, "key.txt");
    let plain = lab.path("a.bin");
    let content: Vec<u8> = (0..60_000_u32).flat_map(u32::to_le_bytes).collect();
    fs::write(&plain, &content).unwrap();
    lab.run(&["lock", "-r", &public, &plain]).ok();
    let locked = format!("{plain}.age");
    let bytes = fs::read(&locked).unwrap();
    fs::write(&locked, &bytes[..150_000]).unwrap();
    let output = lab.path("out.bin");
    lab.run(&["verify", "-i", &identity, &locked])
        .refused(1, &["cut off"]);
    let unlock = ["unlock", "-i", &identity, &locked, "-o", &output];
    lab.run(&unlock).refused(1, &["cut off"]);
    assert!(!fs::exists(&output).unwrap());
    lab.run(&[&unlock[..], &["--tolerant", "--remove"]].concat())
        .ok();
    assert_eq!(fs::read(&output).unwrap(), content[..131_072]);
    assert!(fs::exists(&locked).unwrap());
    let mut changed = bytes;
    changed[100_000] ^= 1;
    fs::write(&locked, changed).unwrap();
    lab.run(&["verify", "-i", &identity, &locked])
        .refused(1, &["changed or damaged"]);
}

#[test]
fn nobody_to_lock_for_is_refused() {
    let lab = Lab::new();
    let path = lab.write("a.txt", SECRET);
    lab.run(&["lock", &path]).refused(2, &["--recipient"]);
    lab.run(&["lock", "-r", "age1wrong", &path])
        .refused(2, &["not an age1"]);
    let (identity, _) = key(&lab, "key.txt");
    lab.run(&["lock", "-R", &identity, &path])
        .refused(2, &["SECRET"]);
    lab.run(&["lock", "-r", "x", "-", &path])
        .refused(2, &["alone"]);
    assert_eq!(fs::read_to_string(&path).unwrap(), SECRET);
    assert!(!fs::exists(format!("{path}.age")).unwrap());
}

#[test]
fn a_key_file_is_private_and_never_replaced() {
    let lab = Lab::new();
    let (path, public) = key(&lab, "key.txt");
    assert!(public.starts_with("age1"), "{public}");
    assert_eq!(mode_of(path.as_ref()).unwrap(), 0o600);
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.contains("AGE-SECRET-KEY-1") && text.contains(&public));
    lab.run(&["key", "age", &path])
        .refused(2, &["never replaced"]);
    assert_eq!(fs::read_to_string(&path).unwrap(), text);
}

#[test]
fn pipes_and_passphrases() {
    let lab = Lab::new();
    let (identity, public) = key(&lab, "key.txt");
    let locked = lab.path("piped.age");
    let mut command = lab.command(&["lock", "-r", &public, "-"]);
    command
        .stdin(Stdio::piped())
        .stdout(fs::File::create(&locked).unwrap());
    let mut child = command.spawn().unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(SECRET.as_bytes())
        .unwrap();
    assert!(child.wait().unwrap().success());
    assert!(find(&fs::read(&locked).unwrap(), SECRET.as_bytes()).is_empty());
    let mut command = lab.command(&["unlock", "-i", &identity, "-"]);
    command.stdin(fs::File::open(&locked).unwrap());
    assert_eq!(Running::start(&mut command).wait().ok().stdout, SECRET);

    let path = lab.write("b.txt", SECRET);
    let typed = |arguments: &[&str], text: &str| {
        let mut command = lab.command(arguments);
        command.stdin(Stdio::piped());
        Running::start(&mut command).type_in(text).wait()
    };
    typed(
        &["lock", "--passphrase", "--remove", &path],
        "correct horse\n",
    )
    .ok();
    let locked = format!("{path}.age");
    typed(&["unlock", &locked], "wrong\n").refused(1, &["wrong passphrase"]);
    typed(&["unlock", &locked], "correct horse\n").ok();
    assert_eq!(fs::read_to_string(&path).unwrap(), SECRET);
}

#[cfg(unix)]
#[test]
fn an_interrupt_leaves_nothing() {
    let lab = Lab::new();
    let (_, public) = key(&lab, "key.txt");
    let folder = lab.path("big");
    fs::create_dir(&folder).unwrap();
    // Sparse: long to lock, and takes no room.
    let path = format!("{folder}/big.bin");
    fs::File::create(&path).unwrap().set_len(8 << 30).unwrap();
    let locking = lab.start(&["lock", "-r", &public, &path]);
    let begun = || names(&folder).iter().any(|name| name.starts_with(".lsl-"));
    while !begun() {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    locking.interrupt();
    locking.wait().refused(1, &["nothing is left behind"]);
    assert_eq!(names(&folder), ["big.bin"]);
}

#[test]
fn a_signature_says_who_recorded_and_what_was_changed() {
    let lab = Lab::new();
    let key = SecretKey::from_seed(&[7; 32]);
    let (public, fingerprint) = (
        key.public().to_string(),
        key.public().fingerprint().to_string(),
    );
    let bytes = signed(key);
    let path = lab.path("a.xdf");
    fs::write(&path, &bytes).unwrap();
    // Nobody knows the key.
    let unknown = lab.run(&["verify", &path]);
    assert_eq!(unknown.status, Some(1), "{unknown:?}");
    assert!(
        unknown.stdout.contains("nobody that we know"),
        "{unknown:?}"
    );
    assert!(unknown.stdout.contains(&fingerprint), "{unknown:?}");
    let known = ["verify", "--signer", &public];
    let verified = lab.run(&[&known[..], &[&path]].concat()).ok();
    assert!(
        verified.stdout.contains("as they were recorded"),
        "{verified:?}"
    );
    // A peer of the trust file has a name.
    let trusting =
        |arguments: &[&str]| Running::start(&mut lab.command_on("trusting", arguments)).wait();
    trusting(&["key", "init", "--name", "reader"]).ok();
    let config = lab.path("trusting/lsl_api/lsl-secure.toml");
    let text = fs::read_to_string(&config).unwrap();
    let text = text.replace("audit_file = \"\"", "audit_file = \"audit.jsonl\"");
    fs::write(&config, text).unwrap();
    trusting(&["trust", "add", "amp1", &public, "--yes"]).ok();
    let named = trusting(&["verify", "--signed", "--json", &path])
        .ok()
        .json();
    assert_eq!(
        (&named["signer"], &named["closed"]),
        (&"amp1".into(), &true.into())
    );
    assert_eq!(named["proven_bytes"], bytes.len());
    let log = fs::read_to_string(lab.path("trusting/lsl_api/audit.jsonl")).unwrap();
    let logged: serde_json::Value = serde_json::from_str(log.lines().last().unwrap()).unwrap();
    let expected = serde_json::json!({
        "event": "file_verified", "peer_name": "amp1", "peer_fp": fingerprint, "claimed": false, "operation": "verify",
        "format": "xdf", "bytes": bytes.len(), "proven_bytes": bytes.len(), "closed": true, "detail": path,
    });
    for (key, value) in expected.as_object().unwrap() {
        assert_eq!(&logged[key], value, "{logged}");
    }

    let check = |bytes: &[u8], part: &str| {
        fs::write(&path, bytes).unwrap();
        let ended = lab.run(&[&known[..], &[&path]].concat());
        assert_eq!(ended.status, Some(1), "{ended:?}");
        assert!(ended.stdout.contains(part), "{ended:?}");
    };
    let mut changed = bytes.clone();
    changed[bytes.len() / 2] ^= 1;
    check(&changed, "changed, left out, added or moved");
    check(&bytes[..bytes.len() - 100], "was not closed");
    check(&whole(), "nobody signed it");
    check(&[&bytes[..], &bytes[200..300]].concat(), "added at its end");
    let unreadable = signed_unreadable(SecretKey::from_seed(&[7; 32]));
    check(&unreadable, "streams cannot all be read");

    // The same inside of an encrypted file.
    fs::write(&path, &bytes).unwrap();
    let (identity, recipient) = self::key(&lab, "key.txt");
    lab.run(&["lock", "--remove", "-r", &recipient, &path]).ok();
    let locked = format!("{path}.age");
    let both = lab
        .run(&["verify", "--signer", &public, "-i", &identity, &locked])
        .ok();
    // The file, the signature, and when it was recorded.
    assert_eq!(both.stdout.lines().count(), 3, "{both:?}");
}
