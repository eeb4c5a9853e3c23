//! `lsl config` and the options that change the configuration.

use crate::lab::Lab;

#[test]
fn show_says_where_values_come_from() {
    let lab = Lab::new();
    let shown = lab
        .run(&["config", "show", "--origin", "--session", "other"])
        .ok()
        .stdout;
    let line = |key: &str| {
        let found = shown.lines().find(|line| line.starts_with(key));
        found
            .unwrap_or_else(|| panic!("{key} in {shown}"))
            .to_owned()
    };
    assert!(
        shown.starts_with("in use: ") && shown.contains("(LSLAPICFG)"),
        "{shown}"
    );
    assert!(line("ports.BasePort").ends_with("lsl_api.cfg:2"), "{shown}");
    assert!(
        line("lab.SessionID").contains("other") && line("lab.SessionID").contains("command line")
    );
    assert!(line("ports.MulticastPort").ends_with("default"), "{shown}");

    let json = lab.run(&[
        "config",
        "show",
        "--json",
        "--known-peer",
        "a:1",
        "--known-peer",
        "b",
    ]);
    let json = json.ok().json();
    let peers = json
        .as_array()
        .unwrap()
        .iter()
        .find(|row| row["key"] == "lab.KnownPeers")
        .unwrap();
    assert_eq!(peers["value"], "{a:1, b}");
}

#[test]
fn a_file_on_the_command_line_wins() {
    let lab = Lab::new();
    let file = lab.write("mine.cfg", "[lab]\nSessionID = mine\n");
    let shown = lab
        .run(&["config", "show", "--origin", "--config", &file])
        .ok()
        .stdout;
    assert!(shown.contains("mine.cfg:2"), "{shown}");
    assert!(!shown.contains("LSLAPICFG"), "{shown}");
}

#[test]
fn check_finds_mistakes_and_their_lines() {
    let lab = Lab::new();
    let check = |content: &str, status: i32, parts: &[&str]| {
        let file = lab.write("checked.cfg", content);
        let ended = lab.run(&["config", "check", &file]);
        assert_eq!(ended.status, Some(status), "{content}: {ended:?}");
        for part in parts {
            assert!(ended.stdout.contains(part), "{part} in {ended:?}");
        }
    };
    check("", 0, &["no problems"]);
    check("; comment\n[lab]\nSessionID = x\n", 0, &["no problems"]);
    check(
        "[lab]\nSesionID = x\n",
        1,
        &["line 2", "did you mean 'lab.SessionID'?"],
    );
    check("[ports]\nBasePort = abc\n", 1, &["line 2", "warning"]);
    check("[ports\n", 1, &["error", "line 1"]);
    check("[ports]\n\nIPv6\n", 1, &["error", "line 3"]);
    check(
        "[ports]\nBasePort = 1\nBasePort = 2\n",
        1,
        &["error", "line 3", "line 2"],
    );

    assert_eq!(
        lab.run(&["config", "check", &lab.path("absent.cfg")])
            .status,
        Some(1)
    );
    let used = lab.run(&["config", "check"]).ok().stdout;
    assert!(
        used.contains("lsl_api.cfg") && used.contains("no problems"),
        "{used}"
    );
}

#[test]
fn the_sample_is_a_valid_file() {
    let lab = Lab::new();
    let sample = lab.run(&["config", "sample"]).ok().stdout;
    assert!(
        sample.contains("[lab]") && sample.contains(";SessionID = default"),
        "{sample}"
    );
    let file = lab.write("sample.cfg", &sample);
    lab.run(&["config", "check", &file]).ok();
}

#[test]
fn sessions_do_not_see_each_other() {
    let lab = Lab::new();
    let _generator = lab.start(&["gen", "--name", "Amp", "--session", "other"]);
    lab.run(&["info", "Amp", "--session", "other"]).ok();
    let blind = lab.run(&["info", "Amp", "--timeout", "0.3"]);
    assert_eq!(blind.status, Some(3));
    assert!(
        blind.stderr.contains("only streams of session"),
        "{blind:?}"
    );
}

#[test]
fn keys_are_set_and_the_rest_of_the_file_stays() {
    let lab = Lab::new();
    let file = lab.write(
        "mine.cfg",
        "; ours\n[lab]\nSessionID = a\n; peers come here\n",
    );
    let run = |words: &[&str], status: i32, part: &str| {
        let ended = lab.run(&[&["config"], words, &["--config", &file]].concat());
        assert_eq!(ended.status, Some(status), "{words:?}: {ended:?}");
        let said = format!("{}{}", ended.stdout, ended.stderr);
        assert!(said.contains(part), "{words:?}: {part} in {said}");
    };
    run(
        &["add", "lab.KnownPeers", "10.50.0.1"],
        0,
        "KnownPeers = {10.50.0.1}",
    );
    run(&["add", "lab.KnownPeers", "amp:7"], 0, "{10.50.0.1, amp:7}");
    run(&["add", "lab.KnownPeers", "amp:7"], 0, "already");
    run(&["set", "lab.SessionID", "b c"], 0, "must be started again");
    let expected =
        "; ours\n[lab]\nSessionID = b c\nKnownPeers = {10.50.0.1, amp:7}\n; peers come here\n";
    assert_eq!(std::fs::read_to_string(&file).unwrap(), expected);
    // What cannot be used changes nothing.
    run(
        &["set", "lab.SesionID", "x"],
        2,
        "did you mean 'lab.SessionID'?",
    );
    run(&["set", "ports.BasePort", "abc"], 2, "not a decimal number");
    run(&["set", "lab.SessionID", "a\nb"], 2, "");
    run(&["add", "lab.SessionID", "x"], 2, "no key with a set");
    run(&["add", "lab.KnownPeers", "a:99999"], 2, "KnownPeers");
    run(&["remove", "lab.KnownPeers", "gone"], 3, "has no gone");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), expected);
    run(&["remove", "lab.KnownPeers", "10.50.0.1"], 0, "{amp:7}");
    run(&["remove", "lab.KnownPeers", "amp:7"], 0, "default again");
    run(&["remove", "lab.SessionID"], 0, "default again: default");
    assert_eq!(
        std::fs::read_to_string(&file).unwrap(),
        "; ours\n[lab]\n; peers come here\n"
    );
    let broken = lab.write("mine.cfg", "words\n");
    run(&["set", "lab.SessionID", "x"], 1, "line 1");
    assert_eq!(std::fs::read_to_string(broken).unwrap(), "words\n");
}

#[test]
fn without_a_home_no_file_is_made_that_nobody_reads() {
    let lab = Lab::new();
    let mut command = lab.command_on("pc", &["config", "set", "lab.SessionID", "lab2"]);
    for name in ["LSLAPICFG", "HOME", "USERPROFILE", "HOMEDRIVE", "HOMEPATH"] {
        command.env_remove(name);
    }
    let ended = crate::lab::Running::start(&mut command).wait();
    assert_eq!(ended.status, Some(1), "{ended:?}");
    assert!(ended.stderr.contains("--config FILE"), "{ended:?}");
}

#[test]
fn without_a_file_one_is_made_in_the_home() {
    let lab = Lab::new();
    let mut command = lab.command_on("pc", &["config", "set", "lab.SessionID", "lab2"]);
    command.env_remove("LSLAPICFG");
    let ended = crate::lab::Running::start(&mut command).wait();
    assert!(ended.ok().stdout.contains("SessionID = lab2"));
    let made = lab.path("pc/lsl_api/lsl_api.cfg");
    assert_eq!(
        std::fs::read_to_string(made).unwrap(),
        "[lab]\nSessionID = lab2\n"
    );
}
