//! Help texts and exit statuses.

use crate::lab::Lab;

#[test]
fn every_help_text_has_an_example() {
    let lab = Lab::new();
    for command in [
        &[][..],
        &["demo"],
        &["list"],
        &["info"],
        &["gen"],
        &["recv"],
        &["time"],
        &["config"],
        &["config", "show"],
        &["config", "check"],
        &["config", "sample"],
        &["key"],
        &["key", "init"],
        &["key", "show"],
        &["key", "passwd"],
        &["key", "psk"],
        &["trust"],
        &["trust", "add"],
        &["trust", "list"],
        &["trust", "remove"],
        &["trust", "check"],
        &["trust", "export"],
        &["security"],
        &["security", "status"],
        &["audit"],
        &["audit", "tail"],
        &["audit", "verify"],
        &["audit", "summary"],
        &["completions"],
        &["deploy"],
        &["man"],
    ] {
        let help = lab.run(&[command, &["--help"]].concat()).ok().stdout;
        let example = format!("  {}", [&["lsl"], command].concat().join(" "));
        let examples = help
            .split_once("Examples:\n")
            .map_or("", |(_, examples)| examples);
        assert!(examples.starts_with(&example), "{example} in {help}");
        assert!(help.contains("--loopback"), "{help}");
        assert!(
            help.lines().all(|line| line.chars().count() <= 100),
            "{help}"
        );
    }
    let version = lab.run(&["--version"]).ok().stdout;
    assert!(version.starts_with("lsl "));
    // How far this system is proved.
    assert_eq!(version.lines().count(), 2, "{version}");
}

#[test]
fn exit_statuses() {
    let lab = Lab::new();
    let check = |arguments: &[&str], status: i32, part: &str| {
        let ended = lab.run(arguments);
        assert_eq!(ended.status, Some(status), "{arguments:?}: {ended:?}");
        assert!(
            ended.stderr.contains(part),
            "{arguments:?}: {part} in {ended:?}"
        );
    };
    check(&[], 2, "Usage");
    check(&["frobnicate"], 2, "unrecognized");
    check(&["recv"], 2, "STREAM");
    check(&["recv", "type='x"], 2, "XPath");
    check(&["recv", "channel_count=many"], 2, "not a number");
    check(&["list", "name=='x'"], 2, "Invalid query");
    check(&["list", "--timeout", "soon"], 2, "seconds");
    check(&["gen", "--format", "float16"], 2, "float16");
    check(&["gen", "--name", ""], 2, "non-empty");
    check(&["list", "--known-peer", "lab2:99999"], 2, "--known-peer");
    check(&["list", "--session", "a\nb"], 2, "--session");
    check(
        &["list", "--config", &lab.path("absent.cfg")],
        1,
        "absent.cfg",
    );
    check(
        &["recv", "Nobody", "--timeout", "0.2"],
        3,
        "no stream named 'Nobody'",
    );
    check(
        &["info", "type=None", "--timeout", "0.2"],
        3,
        "What to check",
    );
    check(&["time", "Nobody", "--timeout", "0.2"], 3, "--session");
    check(&["list", "--timeout", "0.2"], 3, "What to check");
}

#[test]
fn an_empty_list_is_still_json() {
    let lab = Lab::new();
    let ended = lab.run(&["list", "--json", "--timeout", "0.2"]);
    assert_eq!(
        (ended.status, ended.json()),
        (Some(3), serde_json::json!([]))
    );
}
