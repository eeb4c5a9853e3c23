//! Reaches the other machine by the system's `ssh`, which knows the user's keys, agents, jump hosts
//! and known hosts. It alone asks for passwords and passphrases, on the terminal, and once: all
//! commands share one connection where the system can do that.
//!
//! No text of the user becomes part of a command for a login shell, whichever it is: scripts go to
//! `sh` through its standard input, and copies to names that this program chooses.

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Output, Stdio};

use lsl_platform::files::{Who, create_directory};
use lsl_platform::remedy::word;

use crate::failure::{Failure, Outcome};
use crate::ui::notice::note;
use crate::ui::text::printable;

/// Connection to a machine by `ssh`.
#[derive(Debug)]
pub(super) struct Ssh {
    host: String,
    options: Vec<String>,
    shared: Option<MasterConnection>,
}

/// The connection that all commands share; closed when dropped.
#[derive(Debug)]
struct MasterConnection {
    master: Child,
    folder: PathBuf,
}

impl Ssh {
    /// Connects. `options` are words for `ssh`, ahead of ours, which are defaults.
    pub(super) fn connect(host: &str, options: Vec<String>) -> Outcome<Self> {
        let mut ssh = Self {
            host: host.into(),
            options,
            shared: None,
        };
        ssh.options.extend(DEFAULTS.map(ToOwned::to_owned));
        ssh.share()?;
        Ok(ssh)
    }

    /// Returns the command line that reaches the machine, for people.
    pub(super) fn shown(&self) -> String {
        let ours = self.options.len() - DEFAULTS.len();
        let options = self.options.iter().take(ours).map(|option| word(option));
        let words = std::iter::once("ssh".to_owned()).chain(options);
        let words: Vec<String> = words.chain([word(&self.host)]).collect();
        words.join(" ")
    }

    /// Returns the name or address behind HOST, which may be an alias in the user's configuration.
    pub(super) fn address(&self) -> String {
        let output = self.base().args(["-G", "--", &self.host]).output();
        let text = output.map_or_else(|_| Vec::new(), |output| output.stdout);
        let text = String::from_utf8_lossy(&text);
        let found = text.lines().find_map(|line| line.strip_prefix("hostname "));
        found.unwrap_or(&self.host).to_owned()
    }

    /// Runs `script` by `sh`; returns its standard output.
    pub(super) fn run(&self, script: &str) -> Outcome<String> {
        let output = self.send("exec sh -s", script.as_bytes())?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Writes `bytes` to a path that needs no quotes, below the home directory: all of them or none.
    pub(super) fn upload(&self, bytes: &[u8], to: &str) -> Outcome {
        self.send(&receive(bytes.len(), to), bytes).map(drop)
    }

    fn send(&self, command: &str, input: &[u8]) -> Outcome<Output> {
        let mut ssh = self.base();
        if let Some(shared) = &self.shared {
            ssh.arg("-S").arg(shared.socket());
        }
        // Never a connection that stays behind, with our pipes, as the user's configuration may want.
        ssh.args(["-o", "ControlMaster=no"]);
        let mut child = ssh
            .args(["-T", "--", &self.host, command])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| no_ssh(&error))?;
        // The input is more than a pipe holds, but the other side says little until it has it all.
        // It closes the pipe where it failed; its own words tell why.
        if let Some(mut stdin) = child.stdin.take() {
            let _ = stdin.write_all(input);
        }
        let output = child.wait_with_output()?;
        if output.status.success() {
            return Ok(output);
        }
        Err(self.failure(output.status, &output.stderr))
    }

    fn base(&self) -> Command {
        let mut command = Command::new("ssh");
        command.args(&self.options);
        command
    }

    fn failure(&self, status: ExitStatus, stderr: &[u8]) -> Failure {
        let said = String::from_utf8_lossy(stderr);
        let said = said.trim();
        if status.code() == Some(SSH_FAILED) {
            return Failure::Runtime(explain(&self.host, said));
        }
        Failure::Runtime(if said.is_empty() {
            format!("ended with {status}")
        } else {
            said.lines().map(printable).collect::<Vec<_>>().join("\n")
        })
    }

    /// Opens the connection that the commands share, so that a password is asked for once. The ssh of Windows
    /// shares none.
    fn share(&mut self) -> Outcome {
        if !cfg!(unix) {
            return Ok(());
        }
        let folder = std::env::temp_dir().join(format!(
            "lsl-{}-{:x}",
            std::process::id(),
            lsl_core::local_clock().to_bits()
        ));
        // Fails if another user made it, who could put a socket of his into it.
        create_directory(&folder, Who::Owner)
            .map_err(|error| Failure::Runtime(format!("{}: {error}", folder.display())))?;
        // A command that never ends, rather than none: its output says that the way is open.
        let spawned = self
            .base()
            .args(["-o", "ControlMaster=yes", "-o", "ControlPersist=no", "-S"])
            .arg(folder.join(SOCKET))
            .args(["-T", "--", &self.host, OPEN])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let mut master = match spawned {
            Ok(master) => master,
            Err(error) => {
                let _ = std::fs::remove_dir(&folder);
                return Err(no_ssh(&error));
            }
        };
        let stdout = master.stdout.take();
        let mut shared = MasterConnection { master, folder };
        let is_open = stdout.is_some_and(|stdout| {
            BufReader::new(stdout)
                .split(b'\n')
                .map_while(Result::ok)
                .any(|line| line.trim_ascii_end().ends_with(IS_OPEN.as_bytes()))
        });
        if !is_open {
            let status = shared.master.wait()?;
            let mut said = Vec::new();
            if let Some(mut stderr) = shared.master.stderr.take() {
                std::io::Read::read_to_end(&mut stderr, &mut said)?;
            }
            return Err(self.failure(status, &said));
        }
        self.shared = Some(shared);
        Ok(())
    }
}

impl MasterConnection {
    fn socket(&self) -> PathBuf {
        self.folder.join(SOCKET)
    }
}

impl Drop for MasterConnection {
    fn drop(&mut self) {
        // The end of its input ends the command there, and with it the connection.
        drop(self.master.stdin.take());
        if self.master.wait().is_err() {
            note("lsl: the connection did not end; `ps` shows an ssh that you may end");
        }
        let _ = std::fs::remove_file(self.socket());
        let _ = std::fs::remove_dir(&self.folder);
    }
}

/// Returns the command that keeps its input only if it is all there: where the link is lost, input
/// just ends. For every login shell; there is no single quote within the outer ones.
fn receive(length: usize, to: &str) -> String {
    format!(
        "exec sh -c 'cd && trap \"rm -f {to}; exit 1\" HUP INT TERM && {{ cat > {to} && test $(wc -c < \
         {to}) -eq {length} || {{ rm -f {to}; echo \"the copy did not arrive whole\" >&2; exit 1; }}; }}'"
    )
}

/// Reads HOST: it must be no option of `ssh`, and one word.
pub(super) fn host(text: &str) -> Result<String, String> {
    if text.starts_with('-') {
        return Err("a host does not begin with '-'".into());
    }
    if text.is_empty() || text.chars().any(|c| c.is_whitespace() || c.is_control()) {
        return Err("write HOST, USER@HOST or a name from ~/.ssh/config".into());
    }
    Ok(text.into())
}

/// Adds advice to the words of `ssh` about its own failures.
fn explain(host: &str, said: &str) -> String {
    let shown = word(host);
    let advice = ADVICE
        .iter()
        .find(|(sign, _)| said.contains(sign))
        .map_or_else(
            || format!("try: ssh -v {shown} true"),
            |(_, advice)| advice.replace("HOST", &shown),
        );
    let said: Vec<String> = said
        .lines()
        .filter(|line| !line.trim().is_empty())
        .map(printable)
        .collect();
    format!("{}\n{advice}", said.join("\n"))
}

fn no_ssh(error: &std::io::Error) -> Failure {
    Failure::Runtime(format!(
        "cannot run `ssh`: {error}; install it (Debian: openssh-client)"
    ))
}

/// Advice by the words of `ssh`; the first that fits counts.
const ADVICE: &[(&str, &str)] = &[
    (
        "Could not resolve hostname",
        "Nobody knows this name. Check its spelling; names in .local need mDNS on both machines \
         (avahi-daemon); the address works always.",
    ),
    (
        "Connection refused",
        "The machine is there, but no ssh server answers. On it: sudo systemctl enable --now ssh (on a \
         Raspberry Pi: sudo raspi-config, Interface Options, SSH); or give its --port.",
    ),
    (
        "Connection timed out",
        "Nothing answers. Is it switched on and in this network? Does a firewall drop port 22?",
    ),
    (
        "No route to host",
        "Nothing answers. Is it switched on and in this network?",
    ),
    (
        "Network is unreachable",
        "This machine is not in a network that leads there.",
    ),
    (
        "IDENTIFICATION HAS CHANGED",
        "Another key than before: if the machine was installed anew, forget the old one by \
         `ssh-keygen -R HOST` (the name without USER@); if not, find out who answers.",
    ),
    (
        "Host key verification failed",
        "This machine does not know that one's key yet. Run `ssh HOST` once, compare the fingerprint, \
         and answer yes.",
    ),
    (
        "Permission denied",
        "It lets nobody in with these keys. Is the user right (USER@HOST)? Give it your key by \
         `ssh-copy-id HOST`, or name one with --identity FILE.",
    ),
    (
        "Too many authentication failures",
        "Your agent offers too many keys; name the right one with --identity FILE and \
         --ssh-option IdentitiesOnly=yes.",
    ),
];

/// Our options, behind the user's, of which ssh takes the first. They come before the user's
/// configuration file: other values need --ssh-option.
const DEFAULTS: [&str; 12] = [
    "-o",
    "ConnectTimeout=10",
    "-o",
    "ServerAliveInterval=5",
    "-o",
    "ServerAliveCountMax=3",
    "-o",
    "ClearAllForwardings=yes",
    "-o",
    "RemoteCommand=none",
    "-a",
    "-x",
];
const SOCKET: &str = "s";
const IS_OPEN: &str = "lsl-is-open";
const OPEN: &str = "echo lsl-is-open; exec cat";
const SSH_FAILED: i32 = 255;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_no_options() {
        for good in [
            "amp1.local",
            "pi@amp1",
            "[::1]",
            "10.0.0.7",
            "ssh://pi@amp1:2222",
        ] {
            assert_eq!(host(good).as_deref(), Ok(good));
        }
        for wrong in ["", "-oProxyCommand=reboot", "a b", "a\nb", "-"] {
            assert!(host(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn failures_say_what_to_do() {
        let check = |said: &str, part: &str| {
            let text = explain("pi@amp1", said);
            assert!(text.starts_with(said), "{text}");
            assert!(text.contains(part), "{part} in {text}");
        };
        check(
            "ssh: Could not resolve hostname amp1: Name or service not known",
            "avahi",
        );
        check(
            "ssh: connect to host amp1 port 22: Connection refused",
            "--port",
        );
        check("Host key verification failed.", "Run `ssh pi@amp1` once");
        check(
            "pi@amp1: Permission denied (publickey).",
            "ssh-copy-id pi@amp1",
        );
        check(
            "kex_exchange_identification: read: reset",
            "ssh -v pi@amp1 true",
        );
        let changed =
            "@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\nHost key verification failed.";
        check(changed, "ssh-keygen -R");
    }

    /// A lost link ends the input; a part of the file must not stay.
    #[test]
    #[cfg(unix)]
    fn copies_stay_only_if_they_are_whole() {
        let home = std::env::temp_dir().join(format!("lsl-receive-{}", std::process::id()));
        std::fs::create_dir_all(&home).unwrap();
        let run = |to: &str, length: usize| {
            let mut child = Command::new("sh")
                .args(["-c", &receive(length, to)])
                .env("HOME", &home)
                .stdin(Stdio::piped())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            let mut stdin = child.stdin.take().unwrap();
            // It may have ended already.
            let _ = stdin.write_all(b"program");
            drop(stdin);
            child.wait().unwrap().success()
        };
        assert!(run("whole", 7));
        assert_eq!(std::fs::read(home.join("whole")).unwrap(), b"program");
        assert!(!run("part", 8));
        assert!(!run("absent/file", 7));
        let entries = std::fs::read_dir(&home).unwrap().count();
        assert_eq!(entries, 1, "only what is whole");
        std::fs::remove_dir_all(&home).unwrap();
    }

    #[test]
    fn people_see_their_own_options() {
        let ssh = Ssh {
            host: "pi@amp1".into(),
            options: ["-p", "2222", "-i", "my key"]
                .into_iter()
                .chain(DEFAULTS)
                .map(ToOwned::to_owned)
                .collect(),
            shared: None,
        };
        assert_eq!(ssh.shown(), "ssh -p 2222 -i 'my key' pi@amp1");
    }
}
