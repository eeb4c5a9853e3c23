//! What a person does with `lsl deploy`, rightly and wrongly.

use std::fs;
use std::process::Command;

use crate::machine::{
    WAY, Way, deploy, deploy_by, folders, home, kernel_says, lsl, process, program, stage, there,
    until,
};

/// The tests by name, in the order in which they run; each leaves the machine without services.
pub(crate) const ALL: &[(&str, fn())] = &[
    ("the_stage_is_no_whole_system", the_stage_is_no_whole_system),
    ("a_dry_run_changes_nothing", a_dry_run_changes_nothing),
    ("deployed_changed_and_removed", deployed_changed_and_removed),
    ("the_unit_is_valid_and_tight", the_unit_is_valid_and_tight),
    ("a_killed_service_returns", a_killed_service_returns),
    (
        "the_key_of_the_machine_is_used",
        the_key_of_the_machine_is_used,
    ),
    (
        "the_key_of_the_whole_system_is_used",
        the_key_of_the_whole_system_is_used,
    ),
    ("a_first_word_with_a_blank", a_first_word_with_a_blank),
    (
        "what_a_person_changed_or_removed",
        what_a_person_changed_or_removed,
    ),
    (
        "a_copy_that_fails_leaves_nothing",
        a_copy_that_fails_leaves_nothing,
    ),
    (
        "configurations_and_greetings_of_others",
        configurations_and_greetings_of_others,
    ),
    (
        "a_service_that_fails_is_reported",
        a_service_that_fails_is_reported,
    ),
    (
        "a_stream_that_is_not_seen_from_here",
        a_stream_that_is_not_seen_from_here,
    ),
    ("unreachable_machines", unreachable_machines),
    ("unfit_machines", unfit_machines),
];

/// What `systemd-analyze security` may say of the unit; systemd 252 says 6.3. It said 1.9 while the
/// unit asked for namespaces, with which it could not read a configuration of root's.
const MOST_EXPOSED: f64 = 6.3;

/// What sshd runs at each login.
const GREETER: &str = "/run/lab/.ssh/rc";

/// A name that would do harm wherever it is not quoted.
const NAME: &str = r#"My "Amp"; touch pwned $(touch pwned) `touch pwned` 'x' \ \n %i $HOME # é"#;

/// Elsewhere the stage would unmount what the system needs and kill everything.
fn the_stage_is_no_whole_system() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/deploy/stage.sh");
    for arguments in [&["true"][..], &["--inside", "true"]] {
        let ended = Command::new("sh").arg(script).args(arguments).output();
        let ended = ended.unwrap();
        assert_eq!(ended.status.code(), Some(1), "{ended:?}");
        let said = String::from_utf8_lossy(&ended.stderr);
        assert!(said.contains("only as the first process"), "{said}");
    }
}

fn a_dry_run_changes_nothing() {
    let before = (home(), folders());
    deploy(&["--linger", "--", "gen", "--name", NAME]).says(
        0,
        &[
            "systemd 2",
            "no lsl yet",
            "Would do this, by `ssh ",
            "1. Copy lsl (",
            "to ~/.local/bin/lsl",
            "cat > .config/lsl/gen.conf.new",
            "loginctl enable-linger",
            "systemctl --user restart lsl@gen.service",
            "Nothing was changed. Add --yes",
        ],
    );
    assert_eq!((home(), folders()), before);
    assert_eq!(process("gen"), 0);
    // A mistake in the command is told before anybody connects.
    let nowhere = Way { port: "1", ..WAY };
    deploy_by(nowhere, &["--yes", "--", "gen", "--rate", "fast"]).says(2, &["not a number"]);
    deploy_by(nowhere, &["--yes", "--", "rekord"]).says(2, &["unrecognized subcommand"]);
}

fn deployed_changed_and_removed() {
    let command = [
        "gen", "--name", NAME, "--rate", "250", "--desc", "a=", "--type", "x y",
    ];
    let arguments = [&["--yes", "--"][..], &command].concat();
    deploy(&arguments).says(
        0,
        &[
            "1. Copy lsl (",
            "lsl@gen.service runs.",
            "is found on ",
            "is found from here. Try: lsl recv ",
            "WARNING: the service ends when lab logs out",
            "sudo loginctl enable-linger lab",
        ],
    );
    let first = process("gen");
    let words: Vec<String> = kernel_says(first, "cmdline")
        .split_terminator('\0')
        .map(ToOwned::to_owned)
        .collect();
    assert_eq!(words[0], there("echo ~/.local/bin/lsl"));
    assert_eq!(&words[1..], command);
    let status = kernel_says(first, "status");
    for line in [
        "Uid:\t4242",
        "NoNewPrivs:\t1",
        "Seccomp:\t2",
        // The bounding set cannot be emptied by a user; NoNewPrivs makes it mean nothing.
        "CapInh:\t0000000000000000",
        "CapPrm:\t0000000000000000",
        "CapEff:\t0000000000000000",
        "CapAmb:\t0000000000000000",
    ] {
        assert!(status.contains(line), "{line} in {status}");
    }
    assert_eq!(there("find . -name pwned"), "");
    assert!(!std::path::Path::new("pwned").exists());
    let name = format!("name={NAME}");
    let received = lsl(&["recv", &name, "--count", "500", "--timeout", "10"]).says(0, &[]);
    assert_eq!(received.stdout.lines().count(), 500, "{received:#?}");

    // Again, with other arguments: what is the same is not copied again.
    deploy(&["--", "gen", "--name", "Two"])
        .says(0, &["Replace the arguments", "Restart lsl@gen.service"])
        .lacks("Copy lsl");
    assert_eq!(process("gen"), first);
    deploy(&["--yes", "--", "gen", "--name", "Two"])
        .says(0, &["'Two' is found from here"])
        .lacks("Copy lsl");
    let second = process("gen");
    assert_ne!(first, second);
    lsl(&["list", "name='Two'"]).says(0, &["Two"]);
    lsl(&["list", "--timeout", "3"]).says(0, &[]).lacks("pwned");

    // A second service beside it; then which one is to go must be said.
    deploy(&[
        "--yes",
        "--instance",
        "beside",
        "--",
        "gen",
        "--name",
        "Three",
    ])
    .says(0, &["'Three' is found from here"])
    .lacks("Install the unit");
    deploy(&["--remove", "--yes"]).says(2, &["Say --instance NAME", "beside, gen"]);
    deploy(&["--remove", "--yes", "--instance", "none"]).says(2, &["there is no service none"]);
    deploy(&["--remove", "--instance", "gen"]).says(0, &["Would do", "Stop lsl@gen.service"]);
    assert_eq!(process("gen"), second);
    deploy(&["--remove", "--yes", "--instance", "gen"])
        .says(0, &["Stop lsl@gen.service"])
        .lacks("Remove the unit");
    assert_eq!(process("gen"), 0);
    assert_ne!(process("beside"), 0);
    deploy(&["--remove", "--yes"]).says(0, &["Stop lsl@beside.service", "Remove the unit"]);
    assert_eq!(process("beside"), 0);
    let left = home();
    assert!(
        left.ends_with("./.local/bin/lsl") && left.lines().count() == 1,
        "{left}"
    );
    deploy(&["--remove"]).says(3, &["no service of `lsl deploy` is there"]);
}

fn the_unit_is_valid_and_tight() {
    deploy(&["--yes"])
        .says(0, &["Install the unit"])
        .lacks("Start");
    deploy(&["--yes"]).says(0, &["Nothing to do"]);
    let unit = ".config/systemd/user/lsl@.service";
    let verified = there(&format!("systemd-analyze --user verify {unit} 2>&1"));
    assert_eq!(verified, "", "no remarks");
    // Of 10. Most of what is left are the views of the file system that need namespaces.
    let said = there(&format!(
        "cp {unit} /run/user/4242/lsl@x.service; systemd-analyze security --user --offline=true \
         /run/user/4242/lsl@x.service | tail -n 1"
    ));
    println!("deploy: systemd-analyze {said}");
    let (_, score) = said.split_once("Overall exposure level for").unwrap();
    let (_, score) = score.split_once(": ").unwrap();
    let score: f64 = score.split_whitespace().next().unwrap().parse().unwrap();
    assert!(score <= MOST_EXPOSED, "{said}");
    there(&format!("rm {unit}"));
}

fn a_killed_service_returns() {
    deploy(&["--yes", "--", "gen", "--name", "Phoenix"]).says(0, &["found from here"]);
    let before = process("gen");
    there(&format!("kill -KILL {before}"));
    until("a new process", || ![0, before].contains(&process("gen")));
    lsl(&["recv", "Phoenix", "--count", "10", "--timeout", "10"]).says(0, &[]);
    // It ends as by Ctrl-C: with its summary and success.
    there("systemctl --user stop lsl@gen.service");
    let result = there("systemctl --user show --property=Result,ActiveState lsl@gen.service");
    let mut result: Vec<&str> = result.lines().collect();
    result.sort_unstable();
    assert_eq!(result, ["ActiveState=inactive", "Result=success"]);
    deploy(&["--remove", "--yes"]).says(0, &[]);
}

fn the_key_of_the_machine_is_used() {
    deploy(&["--yes"]).says(0, &[]);
    there(".local/bin/lsl key init --name amp1 >/dev/null");
    deploy(&["--yes", "--", "gen", "--name", "Secret"]).says(0, &["found from here"]);
    lsl(&["list", "name='Secret'"]).says(0, &["required"]);
    // Nobody is trusted there: without a key of its own this machine reads nothing.
    let refused = lsl(&["recv", "Secret", "--count", "1", "--timeout", "3"]);
    assert_ne!(refused.status, Some(0), "{refused:#?}");
    assert_eq!(refused.stdout, "");
    deploy(&["--remove", "--yes"]).says(0, &[]);
    there("rm -r lsl_api");
}

fn the_key_of_the_whole_system_is_used() {
    lsl(&[
        "key", "init", "--system", "--owner", "lab", "--name", "amp1",
    ])
    .says(0, &[]);
    let owners =
        there("cd /etc/lsl_api; stat -c '%n %U' lsl-secure.toml trusted_peers.toml device_key.pem");
    assert_eq!(
        owners,
        "lsl-secure.toml root\ntrusted_peers.toml root\ndevice_key.pem lab"
    );
    deploy(&["--yes", "--", "gen", "--name", "System"]).says(0, &["found from here"]);
    there(".local/bin/lsl list --json \"name='System'\" | grep -q required");
    let samples = there(".local/bin/lsl recv System --count 10 --timeout 10");
    assert_eq!(samples.lines().count(), 10, "{samples}");
    deploy(&["--remove", "--yes"]).says(0, &[]);
    fs::remove_dir_all("/etc/lsl_api").unwrap();
}

fn a_first_word_with_a_blank() {
    let command = ["--session=my lab", "gen", "--name", "Quoted"];
    let arguments = [&["--yes", "--"][..], &command].concat();
    deploy(&arguments).says(0, &["'Quoted' is found from here"]);
    let words = kernel_says(process("gen"), "cmdline");
    let words: Vec<&str> = words.split_terminator('\0').skip(1).collect();
    assert_eq!(words, command);
    deploy(&["--remove", "--yes"]).says(0, &[]);
}

fn what_a_person_changed_or_removed() {
    let unit = ".config/systemd/user/lsl@.service";
    deploy(&["--yes", "--", "gen", "--name", "Gone"]).says(0, &["found from here"]);
    there(&format!("rm {unit}; systemctl --user daemon-reload"));
    deploy(&["--remove", "--yes"])
        .says(0, &["Stop lsl@gen.service"])
        .lacks("Remove the unit");
    assert_eq!(process("gen"), 0);
    deploy(&["--yes"]).says(0, &["Install the unit"]);
    // An instance that was never started will do.
    there(&format!(
        "mkdir -p .config/lsl; echo LSL_ARGS=gen > .config/lsl/gen.conf; echo '# Mine' >> {unit}"
    ));
    deploy(&["--remove", "--yes"])
        .says(0, &["stays: it is not as this version"])
        .lacks("Remove the unit");
    assert_eq!(process("gen"), 0);
    let left = there("find .config ! -type d");
    assert_eq!(left, unit);
    there(&format!("rm {unit}"));
}

fn a_copy_that_fails_leaves_nothing() {
    there("rm -f .local/bin/lsl");
    let folder = "/run/lab/.local/bin";
    let done = |command: &mut Command| assert!(command.status().unwrap().success(), "{command:?}");
    let options = "size=64k,uid=4242";
    done(Command::new("mount").args(["-t", "tmpfs", "-o", options, "tmpfs", folder]));
    deploy(&["--yes"]).says(1, &["No space left", "did not arrive whole"]);
    let left = there("ls -A .local/bin");
    done(Command::new("umount").arg(folder));
    assert_eq!(left, "");
}

/// What people set for their own sessions, and what machines say at each login.
fn configurations_and_greetings_of_others() {
    let configuration = stage("ssh_config");
    let socket = stage("theirs");
    let text = format!(
        "RemoteCommand echo theirs\nRequestTTY force\nControlMaster auto\nControlPersist yes\n\
         ControlPath {}\n",
        socket.display()
    );
    let own = fs::read("/etc/ssh/ssh_config").unwrap();
    there("mkdir .ssh");
    fs::write(GREETER, "printf '[ OK ] Gr\\374\\337e\\n'\n").unwrap();
    let greeting = Command::new("sh").arg(GREETER).output().unwrap();
    assert_eq!(greeting.stdout, b"[ OK ] Gr\xfc\xdfe\n");
    fs::write(&configuration, text).unwrap();
    fs::copy(&configuration, "/etc/ssh/ssh_config").unwrap();
    let ended = deploy(&["--yes", "--", "gen", "--name", "Greeted"]);
    let removed = deploy(&["--remove", "--yes"]);
    fs::write("/etc/ssh/ssh_config", own).unwrap();
    fs::remove_dir_all("/run/lab/.ssh").unwrap();
    ended.says(
        0,
        &["'Greeted' is found on", "'Greeted' is found from here"],
    );
    removed.says(0, &["Stop lsl@gen.service"]);
    assert!(!socket.exists());
}

fn a_service_that_fails_is_reported() {
    deploy(&["--yes", "--", "--config", "nowhere.cfg", "gen"])
        .says(1, &["lsl@gen.service does not run (status 1)"]);
    deploy(&["--yes", "--", "gen", "--count", "1"]).says(1, &["has ended by itself"]);
    deploy(&["--remove", "--yes"]).says(0, &[]);
}

fn a_stream_that_is_not_seen_from_here() {
    // Without multicast, and on ports of which this machine does not know.
    there("printf '[ports]\\nMulticastPort = 17571\\nBasePort = 17572\\n' > other.cfg");
    deploy(&[
        "--yes",
        "--",
        "--config",
        "other.cfg",
        "gen",
        "--name",
        "Hidden",
    ])
    .says(
        3,
        &[
            "its stream is found on",
            "but not from here (127.0.0.1",
            "ufw allow",
        ],
    );
    deploy(&["--remove", "--yes"]).says(0, &[]);
    deploy(&["--yes", "--", "--loopback", "gen", "--name", "Inside"])
        .says(0, &["nothing to see from here"]);
    deploy(&["--remove", "--yes"]).says(0, &[]);
    there("rm other.cfg");
}

fn unreachable_machines() {
    let check = |way: Way, part: &str| {
        deploy_by(way, &["--yes", "--", "gen"]).says(1, &[part]);
    };
    check(
        Way {
            port: "2299",
            ..WAY
        },
        "Connection refused",
    );
    check(
        Way {
            host: "nobody.invalid",
            ..WAY
        },
        "the address works always",
    );
    check(
        Way {
            key: "stranger",
            ..WAY
        },
        "ssh-copy-id lab@127.0.0.1",
    );
    check(
        Way {
            hosts: "absent",
            ..WAY
        },
        "Run `ssh lab@127.0.0.1` once",
    );
    check(
        Way {
            hosts: "known_otherwise",
            ..WAY
        },
        "find out who answers",
    );
    lsl(&["deploy", "-oProxyCommand=touch pwned"]).says(2, &["required arguments"]);
    let linger = deploy(&["--yes", "--linger"]);
    // There is no logind on the stage: somebody must be told, and what to do.
    linger.says(1, &["run there: sudo loginctl enable-linger"]);
    there("rm .config/systemd/user/lsl@.service");
    assert!(!std::path::Path::new("pwned").exists());
}

fn unfit_machines() {
    let other = Way {
        port: "2223",
        ..WAY
    };
    let this = program().to_str().unwrap();
    deploy_by(other, &["--yes"]).says(2, &["the machine is aarch64", "--from target/cross"]);
    deploy_by(other, &["--yes", "--from", this])
        .says(2, &["is for x86_64, the machine is aarch64"]);
    deploy_by(other, &["--yes", "--from", "/etc/passwd"]).says(2, &["is no Linux program"]);
    let without = Way {
        port: "2224",
        ..WAY
    };
    deploy_by(without, &["--yes"]).says(1, &["there is no systemd on it"]);
}
