//! A place to run `lsl` in: configuration file, session and ports of its own; every process has a
//! deadline and none outlives its test.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::UdpSocket;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use lsl_core::config::{Bind, Config};
use lsl_core::secure::Security;
use lsl_core::{Context, Outlet, StreamInfo, local_clock};
use serde_json::Value;

/// Runs commands that see each other and nobody else.
pub(crate) struct Lab {
    directory: PathBuf,
}

/// How a command ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// A running command; killed when dropped.
pub(crate) struct Running {
    child: Child,
    stdout: Option<JoinHandle<String>>,
    stderr: Option<JoinHandle<String>>,
}

impl Lab {
    pub(crate) fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("lab-{}-{number}", std::process::id());
        let directory = std::path::absolute(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let directory = directory.join(&name);
        std::fs::create_dir_all(&directory).unwrap();
        let free = UdpSocket::bind(("127.0.0.1", 0))
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let base_port = free.min(u16::MAX - PORT_RANGE);
        let lab = Self { directory };
        lab.write(
            "lsl_api.cfg",
            &format!(
                "[ports]\nBasePort = {base_port}\nPortRange = {PORT_RANGE}\n\n\
                 [lab]\nSessionID = {name}\n"
            ),
        );
        lab
    }

    /// An outlet of this process, in plaintext.
    #[cfg_attr(not(unix), expect(dead_code, reason = "its users press Ctrl-C, too"))]
    pub(crate) fn outlet(&self, info: StreamInfo) -> Outlet {
        let text = std::fs::read_to_string(self.path("lsl_api.cfg")).unwrap();
        let mut config = Config::from_text(&text).unwrap();
        config.set_bind(Bind::Loopback);
        let off = Arc::new(Security::off(Vec::new()).unwrap());
        let context = Context::with_security(config, off);
        Outlet::builder(info).context(&context).open().unwrap()
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.directory.join(name).to_str().unwrap().to_owned()
    }

    pub(crate) fn write(&self, name: &str, content: &str) -> String {
        std::fs::write(self.directory.join(name), content).unwrap();
        self.path(name)
    }

    /// A command on the only machine of a lab without encryption, whatever this one is set up for.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        self.command_on("", arguments)
    }

    /// A command with a home directory of its own in place of this machine's.
    pub(crate) fn command_on(&self, machine: &str, arguments: &[&str]) -> Command {
        let home = self.directory.join(machine);
        std::fs::create_dir_all(&home).unwrap();
        let (program, first) = crate::COMMAND.split_first().unwrap();
        let mut command = Command::new(program);
        command
            .args(first)
            .arg("--loopback")
            .args(arguments)
            .current_dir(&home)
            .env("HOME", &home)
            .env("USERPROFILE", &home)
            .env_remove("LSL_SECURE_CONFIG")
            .env_remove("SUDO_USER")
            .env("LSLAPICFG", self.path("lsl_api.cfg"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// Starts a command.
    pub(crate) fn start(&self, arguments: &[&str]) -> Running {
        Running::start(&mut self.command(arguments))
    }

    /// Runs a command to its end.
    pub(crate) fn run(&self, arguments: &[&str]) -> Ended {
        self.start(arguments).wait()
    }

    /// Runs a command and closes its output after the first line, which is returned.
    pub(crate) fn run_until_first_line(&self, arguments: &[&str]) -> (String, Ended) {
        let mut child = self.command(arguments).spawn().unwrap();
        let mut line = String::new();
        let stdout: ChildStdout = child.stdout.take().unwrap();
        BufReader::new(stdout).read_line(&mut line).unwrap();
        let stderr = child.stderr.take().map(collect);
        (
            line,
            Running {
                child,
                stdout: None,
                stderr,
            }
            .wait(),
        )
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

impl Running {
    /// Starts a command of a lab.
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut child = command.spawn().unwrap();
        let stdout = child.stdout.take().map(collect);
        let stderr = child.stderr.take().map(collect);
        Self {
            child,
            stdout,
            stderr,
        }
    }

    /// Types a line and ends the input.
    pub(crate) fn type_in(mut self, text: &str) -> Self {
        let mut stdin = self.child.stdin.take().unwrap();
        // A command that refuses before it reads closes the pipe.
        let _ = stdin.write_all(text.as_bytes());
        self
    }

    /// Starts a command and returns once it has written a line; what it writes later is thrown away.
    pub(crate) fn start_until_first_line(command: &mut Command) -> Self {
        let mut child = command.spawn().unwrap();
        let stderr = child.stderr.take().map(collect);
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        stdout.read_line(&mut String::new()).unwrap();
        Self {
            child,
            stdout: Some(collect(stdout)),
            stderr,
        }
    }

    /// Waits for the end. A command that does not end by itself fails the test.
    pub(crate) fn wait(mut self) -> Ended {
        let deadline = local_clock() + LIMIT_SECS;
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            if local_clock() > deadline {
                self.child.kill().unwrap();
                let text = [self.stdout.take(), self.stderr.take()].map(text_of);
                panic!("the command did not end within {LIMIT_SECS} s: {text:?}");
            }
            thread::sleep(Duration::from_millis(5));
        };
        Ended {
            status: status.code(),
            stdout: text_of(self.stdout.take()),
            stderr: text_of(self.stderr.take()),
        }
    }

    /// Its number on this machine.
    #[cfg(target_os = "linux")]
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Presses Ctrl-C.
    #[cfg(unix)]
    pub(crate) fn interrupt(&self) {
        self.signal("INT");
    }

    /// Sends a signal.
    #[cfg(unix)]
    pub(crate) fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        assert!(
            Command::new("kill")
                .args([&format!("-{name}"), &id])
                .status()
                .unwrap()
                .success()
        );
    }

    /// Ends it without warning.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Ended {
    #[track_caller]
    pub(crate) fn ok(self) -> Self {
        assert_eq!(self.status, Some(0), "{self:?}");
        self
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    pub(crate) fn json_lines(&self) -> Vec<Value> {
        let read = |line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
        self.stdout.lines().map(read).collect()
    }
}

fn collect(mut pipe: impl Read + Send + 'static) -> JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        // A killed process leaves what it wrote.
        let _ = pipe.read_to_end(&mut bytes);
        String::from_utf8(bytes).unwrap()
    })
}

fn text_of(thread: Option<JoinHandle<String>>) -> String {
    thread.map_or_else(String::new, |thread| thread.join().unwrap())
}

const PORT_RANGE: u16 = 24;
const LIMIT_SECS: f64 = 40.0;
