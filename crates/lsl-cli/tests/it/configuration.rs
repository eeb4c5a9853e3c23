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
