//! The other machine, and what the tests ask of it behind the back of `lsl deploy`.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::thread::sleep;
use std::time::Duration;

/// How a command ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl From<Output> for Ended {
    fn from(output: Output) -> Self {
        Self {
            status: output.status.code(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

impl Ended {
    /// Fails the test unless it ended with `status` and wrote all of `parts`, whatever the line breaks.
    #[track_caller]
    pub(crate) fn says(self, status: i32, parts: &[&str]) -> Self {
        assert_eq!(self.status, Some(status), "{self:#?}");
        let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        let said = words(&format!("{} {}", self.stdout, self.stderr));
        for part in parts {
            assert!(said.contains(&words(part)), "'{part}' in {self:#?}");
        }
        self
    }

    #[track_caller]
    pub(crate) fn lacks(self, part: &str) -> Self {
        assert!(!self.stdout.contains(part), "'{part}' in {self:#?}");
        self
    }
}

pub(crate) fn stage(name: &str) -> PathBuf {
    Path::new(&std::env::var_os(crate::VARIABLE).unwrap()).join(name)
}

/// The program under test, without what only debuggers read: it is copied many times.
pub(crate) fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let program = stage("lsl");
        let mut strip = Command::new("strip");
        let stripped = strip.arg("-o").arg(&program).arg(env!("CARGO_BIN_EXE_lsl"));
        assert!(stripped.status().unwrap().success());
        program
    })
}

/// `lsl` on this machine.
pub(crate) fn lsl(arguments: &[&str]) -> Ended {
    let mut command = Command::new(program());
    let output = command
        .args(arguments)
        .env_remove("LSLAPICFG")
        .env_remove("LSL_SECURE_CONFIG")
        .env_remove("SUDO_USER")
        .env("HOME", stage("."))
        .stdin(Stdio::null())
        .output();
    output.unwrap().into()
}

/// Options of ssh that reach the machine, its port and key left out.
fn known(hosts: &str) -> Vec<String> {
    let hosts = format!("UserKnownHostsFile={}", stage(hosts).display());
    [
        "IdentitiesOnly=yes",
        "GlobalKnownHostsFile=/dev/null",
        &hosts,
    ]
    .iter()
    .flat_map(|option| ["-o".to_owned(), (*option).to_owned()])
    .collect()
}

/// How a test logs in.
#[derive(Clone, Copy)]
pub(crate) struct Way {
    pub(crate) host: &'static str,
    pub(crate) port: &'static str,
    pub(crate) key: &'static str,
    pub(crate) hosts: &'static str,
}

/// The right one.
pub(crate) const WAY: Way = Way {
    host: "lab@127.0.0.1",
    port: "2222",
    key: "key",
    hosts: "known_hosts",
};

/// `lsl deploy` on a way of its own.
pub(crate) fn deploy_by(way: Way, arguments: &[&str]) -> Ended {
    let options = known(way.hosts);
    let key = stage(way.key);
    let mut words = vec![
        "deploy",
        "--port",
        way.port,
        "--identity",
        key.to_str().unwrap(),
    ];
    words.extend(options.iter().map(String::as_str));
    words.push(way.host);
    words.extend(arguments);
    lsl(&words)
}

pub(crate) fn deploy(arguments: &[&str]) -> Ended {
    deploy_by(WAY, arguments)
}

/// A line for the shell of the user over there.
pub(crate) fn there(line: &str) -> String {
    let ended: Ended = Command::new("ssh")
        .args(known(WAY.hosts))
        .args(["-p", WAY.port, "-T", "-i"])
        .arg(stage(WAY.key))
        .args([WAY.host, "export XDG_RUNTIME_DIR=/run/user/$(id -u);", line])
        .stdin(Stdio::null())
        .output()
        .unwrap()
        .into();
    assert_eq!(ended.status, Some(0), "{line}: {ended:#?}");
    ended.stdout.trim().to_owned()
}

/// Every file of the user, with what it contains.
pub(crate) fn home() -> String {
    there(
        "cd; find . ! -path './.local/share/*' -type f -exec sha256sum {} + | sort -k 2; find . -type l",
    )
}

/// Every folder of the user.
pub(crate) fn folders() -> String {
    there("cd; find . -type d | sort")
}

/// The process of a service that runs; 0 if none does.
pub(crate) fn process(instance: &str) -> u32 {
    there(&format!(
        "systemctl --user show --property=MainPID --value lsl@{instance}.service"
    ))
    .parse()
    .unwrap()
}

/// What the kernel says of a process; both machines are one.
pub(crate) fn kernel_says(process: u32, file: &str) -> String {
    std::fs::read_to_string(format!("/proc/{process}/{file}")).unwrap()
}

/// Waits for a condition.
#[track_caller]
pub(crate) fn until(what: &str, is_so: impl Fn() -> bool) {
    for _ in 0..LONGEST_WAIT_TENTHS {
        if is_so() {
            return;
        }
        sleep(Duration::from_millis(100));
    }
    panic!("{what}: not within {} s", LONGEST_WAIT_TENTHS / 10);
}

const LONGEST_WAIT_TENTHS: u32 = 300;
