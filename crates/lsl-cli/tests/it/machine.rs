//! Machines of one lab: each has a home directory, so a key and a trust file, of its own.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use lsl_platform::files::{mode_of, set_mode};

use crate::lab::{Ended, Lab, Running};

/// A machine, in which commands run.
pub(crate) struct Machine<'a> {
    pub(crate) lab: &'a Lab,
    pub(crate) name: &'static str,
}

impl<'a> Machine<'a> {
    /// One without a key.
    pub(crate) fn new(lab: &'a Lab, name: &'static str) -> Self {
        Self { lab, name }
    }

    /// One with a key, called like the machine.
    pub(crate) fn with_key(lab: &'a Lab, name: &'static str) -> Self {
        let machine = Self::new(lab, name);
        machine.run(&["key", "init", "--name", name]).ok();
        machine
    }

    /// Two with keys: the second one may read the first one's streams.
    pub(crate) fn pair(lab: &'a Lab) -> [Self; 2] {
        let [amp, rec] = ["amp1", "rec1"].map(|name| Self::with_key(lab, name));
        amp.run(&["trust", "add", "rec1", &rec.key(), "--role", "inlet"])
            .ok();
        rec.run(&["trust", "add", "amp1", &amp.key(), "--role", "outlet"])
            .ok();
        [amp, rec]
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Ended {
        self.start(arguments).wait()
    }

    pub(crate) fn start(&self, arguments: &[&str]) -> Running {
        Running::start(&mut self.lab.command_on(self.name, arguments))
    }

    /// Starts a command and waits until it has written something.
    pub(crate) fn start_until_first_line(&self, arguments: &[&str]) -> Running {
        Running::start_until_first_line(&mut self.lab.command_on(self.name, arguments))
    }

    /// Runs a command with this standard input.
    pub(crate) fn run_typing(&self, arguments: &[&str], input: &str) -> Ended {
        let mut command = self.lab.command_on(self.name, arguments);
        Running::start(command.stdin(Stdio::piped()))
            .type_in(input)
            .wait()
    }

    /// Runs a line as people type it, without quotes in it.
    pub(crate) fn shell(&self, line: &str) -> Ended {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (program, arguments) = words.split_first().unwrap();
        assert_eq!(*program, "lsl", "{line}");
        self.run(arguments)
    }

    /// The public key.
    pub(crate) fn key(&self) -> String {
        let shown = self.run(&["key", "show", "--public"]).ok().stdout;
        shown.trim().to_owned()
    }

    pub(crate) fn fingerprint(&self) -> String {
        let shown = self.run(&["key", "show", "--json"]).ok().json();
        shown["fingerprint"].as_str().unwrap().to_owned()
    }

    /// A file of this machine's configuration.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        Path::new(&self.lab.path(self.name))
            .join("lsl_api")
            .join(name)
    }

    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.file(name)).unwrap()
    }

    /// Changes a line of lsl-secure.toml.
    #[track_caller]
    pub(crate) fn configure(&self, before: &str, after: &str) {
        let text = self.read("lsl-secure.toml");
        assert_eq!(text.matches(before).count(), 1, "{before} in {text}");
        std::fs::write(self.file("lsl-secure.toml"), text.replace(before, after)).unwrap();
    }

    pub(crate) fn mode(&self, name: &str) -> u32 {
        let file = self.file(name);
        // Windows has no such bits of folders.
        let enter = if cfg!(windows) && file.is_dir() {
            0o100
        } else {
            0
        };
        mode_of(&file).unwrap() | enter
    }

    pub(crate) fn set_mode(&self, name: &str, mode: u32) {
        set_mode(&self.file(name), mode).unwrap();
    }
}

impl Ended {
    /// Fails the test unless it ended with `status` and says all of `parts` on stderr.
    #[track_caller]
    pub(crate) fn refused(&self, status: i32, parts: &[&str]) {
        assert_eq!(self.status, Some(status), "{self:?}");
        self.says(parts);
    }

    /// Fails the test unless stderr has all of `parts`, whatever the line breaks.
    #[track_caller]
    pub(crate) fn says(&self, parts: &[&str]) {
        let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        for part in parts {
            assert!(
                is_said(&words(&self.stderr), &words(part)),
                "'{part}' in {self:?}"
            );
        }
    }
}

/// Whether a message says `words`. Modes of Unix are lists on Windows, and paths have other signs there.
pub(crate) fn is_said(message: &str, words: &str) -> bool {
    if cfg!(unix) {
        return message.contains(words);
    }
    let is_of_modes = ["chmod", "mode "].iter().any(|of| words.contains(of));
    let words = if is_of_modes { "icacls" } else { words };
    message
        .replace('\\', "/")
        .contains(&words.replace('\\', "/"))
}
