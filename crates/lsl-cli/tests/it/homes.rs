//! A3: homes of services and containers, in which no configuration can lie, stop no stream.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::{Command, Stdio};

use crate::lab::{Ended, Lab, Running};

/// Runs a command with this HOME, without the rights that let root in everywhere.
fn run(lab: &Lab, home: &str, arguments: &[&str]) -> Ended {
    let lsl = env!("CARGO_BIN_EXE_lsl");
    let is_root = fs::metadata("/proc/self").unwrap().uid() == 0;
    let mut command = if is_root {
        let mut command = Command::new("setpriv");
        command.args(["--bounding-set=-dac_override,-dac_read_search", lsl]);
        command
    } else {
        Command::new(lsl)
    };
    command
        .arg("--loopback")
        .args(arguments)
        .current_dir(lab.path(""))
        .env("HOME", home)
        .env_remove("LSL_SECURE_CONFIG")
        .env("LSLAPICFG", lab.path("lsl_api.cfg"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    Running::start(&mut command).wait()
}

#[test]
fn a_home_that_is_empty_or_relative_counts_as_unset() {
    let lab = Lab::new();
    // What lies where a relative one would lead decides nothing.
    fs::create_dir_all(lab.path("data/lsl_api")).unwrap();
    lab.write("data/lsl_api/lsl-secure.toml", "broken");
    for home in ["", "data"] {
        let ended = run(
            &lab,
            home,
            &["security", "status", "--json", "--timeout", "0"],
        )
        .ok();
        assert_eq!(ended.json()["errors"], serde_json::json!([]), "{ended:?}");
        assert!(!ended.stderr.contains("HOME"), "{ended:?}");
    }
}

#[test]
fn a_home_that_may_not_be_entered_counts_as_absent_with_one_warning() {
    let lab = Lab::new();
    let home = lab.path("closed");
    fs::create_dir(&home).unwrap();
    let set_mode = |mode| fs::set_permissions(&home, fs::Permissions::from_mode(mode)).unwrap();
    set_mode(0);
    let generated = run(&lab, &home, &["gen", "--name", "Amp", "--duration", "0.2"]);
    let status = run(
        &lab,
        &home,
        &["security", "status", "--json", "--timeout", "0"],
    );
    set_mode(0o700);
    for ended in [generated.ok(), status.ok()] {
        let told = ended.stderr.lines().filter(|line| line.contains(&home));
        assert_eq!(told.count(), 1, "{ended:?}");
        assert_eq!(
            ended.stderr.matches("may not enter").count(),
            1,
            "{ended:?}"
        );
    }
}
