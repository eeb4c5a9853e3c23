//! The stages on which commands run, and what happens there.

use std::collections::BTreeMap;
use std::fs;
use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command as Process;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use libtest_mimic::{Failed, Trial};

use crate::Outcome;
use crate::expected::{Manner, agree};
use crate::page::{Block, Command, Page};
use crate::shell::Shell;

/// The sessions of a page, each with the files and hidden commands in front of it.
pub(crate) fn trials(page: &Page) -> Vec<Trial> {
    let mut sessions: Vec<Vec<Block>> = Vec::new();
    let mut pending: Vec<Block> = Vec::new();
    for block in &page.blocks {
        if block.value("file").is_some() || block.is_hidden {
            pending.push(block.clone());
        } else if block.stage().is_some() {
            if !block.is("more") {
                sessions.push(Vec::new());
            }
            if let Some(session) = sessions.last_mut() {
                session.append(&mut pending);
                session.push(block.clone());
            }
        }
    }
    // What is left takes the end of the last session.
    if let Some(session) = sessions.last_mut() {
        session.append(&mut pending);
    }
    sessions
        .into_iter()
        .filter_map(|blocks| {
            let first = blocks.iter().find(|block| block.stage().is_some())?;
            let stage = first.stage()?.to_owned();
            let name = format!("{stage}: {}:{}", page.path, first.line);
            let path = page.path.clone();
            let is_there = Stage::is_there(&stage);
            let run = move || play(&path, &stage, &blocks).map_err(Failed::from);
            Some(Trial::test(name, run).with_ignored_flag(!is_there))
        })
        .collect()
}

/// Where the commands of a session run.
struct Stage {
    name: String,
    directory: PathBuf,
}

impl Stage {
    /// A stage beyond loopback is made by `cargo xtask book`, which then says how to start a bash there.
    fn shell_of(name: &str) -> Option<String> {
        std::env::var(format!("LSL_DOCS_{}", name.to_uppercase())).ok()
    }

    fn is_there(name: &str) -> bool {
        let is_plain = ["lab", "two"].contains(&name);
        // That run is for what plain tests cannot do.
        let is_prepared = std::env::var_os("LSL_DOCS_PREPARED").is_some();
        is_plain != is_prepared && (is_plain || Self::shell_of(name).is_some())
    }

    fn new(name: &str) -> Result<Self, String> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let id = format!("docs-{}-{number}", std::process::id());
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(&id);
        let stage = Self {
            name: name.to_owned(),
            directory,
        };
        stage.lay_out(&id).map_err(|error| error.to_string())?;
        Ok(stage)
    }

    /// A configuration with ports and a session of its own, and a `lsl` that stays on loopback: the
    /// user's commands stand in the page as they are, and yet this network sees nothing of them.
    fn lay_out(&self, id: &str) -> std::io::Result<()> {
        let bin = self.directory.join("bin");
        fs::create_dir_all(&bin)?;
        let free = UdpSocket::bind(("127.0.0.1", 0))?.local_addr()?.port();
        let base = free.min(u16::MAX - PORT_RANGE);
        fs::write(
            self.directory.join("lsl_api.cfg"),
            format!(
                "[ports]\nBasePort = {base}\nPortRange = {PORT_RANGE}\n\n[lab]\nSessionID = {id}\n"
            ),
        )?;
        if self.is_plain() {
            let lsl = bin.join("lsl");
            let binary = env!("CARGO_BIN_EXE_lsl");
            fs::write(
                &lsl,
                format!("#!/bin/sh\nexec '{binary}' --loopback \"$@\"\n"),
            )?;
            fs::set_permissions(&lsl, fs::Permissions::from_mode(0o755))?;
        }
        Ok(())
    }

    fn is_plain(&self) -> bool {
        ["lab", "two"].contains(&self.name.as_str())
    }

    /// A shell in the home directory of a machine.
    fn shell(&self, machine: &str) -> Result<Shell, String> {
        let home = self.home(machine);
        fs::create_dir_all(&home).map_err(|error| error.to_string())?;
        let words = Self::shell_of(&self.name).unwrap_or_else(|| "bash".into());
        let mut words = words.split_whitespace();
        let mut process = Process::new(words.next().ok_or("no shell")?);
        process.args(words);
        process
            .env("HOME", &home)
            .env_remove("LSL_SECURE_CONFIG")
            .env_remove("LSLAPICFG")
            .env_remove("SUDO_USER")
            .env_remove("COLUMNS")
            // A test run by cargo knows much that a user's shell does not.
            .env_remove("CARGO_MANIFEST_DIR");
        if self.name == "build" {
            // These commands are typed in a clone of the repository.
            return Shell::start(process, &crate::repository());
        }
        process.env("LSLAPICFG", self.directory.join("lsl_api.cfg"));
        if self.is_plain() {
            let path = std::env::var("PATH").unwrap_or_default();
            let bin = self.directory.join("bin");
            process.env("PATH", format!("{}:{path}", bin.display()));
        }
        Shell::start(process, &home)
    }

    fn home(&self, machine: &str) -> PathBuf {
        self.directory
            .join(if machine.is_empty() { "home" } else { machine })
    }

    /// A large compilation may take long, other commands may not.
    fn limit(&self) -> Duration {
        Duration::from_secs(match self.name.as_str() {
            "build" | "debian" | "bench" => 1500,
            "python" | "ssh" => 180,
            _ => 40,
        })
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// Types the commands of a session.
fn play(path: &str, stage: &str, blocks: &[Block]) -> Outcome {
    let stage = Stage::new(stage)?;
    let mut shells: BTreeMap<String, Shell> = BTreeMap::new();
    let mut printed = String::new();
    let played = blocks.iter().try_for_each(|block| {
        if let Some(name) = block.value("file") {
            let home = stage.home("");
            let file = home.join(name);
            return fs::create_dir_all(&home)
                .and_then(|()| fs::write(&file, &block.text))
                .map_err(|error| format!("{}: {error}", file.display()));
        }
        let commands = block.commands();
        let last = commands.len().saturating_sub(1);
        for (index, command) in commands.iter().enumerate() {
            let shell = match shells.entry(command.machine.clone()) {
                std::collections::btree_map::Entry::Occupied(entry) => entry.into_mut(),
                std::collections::btree_map::Entry::Vacant(entry) => {
                    entry.insert(stage.shell(&command.machine)?)
                }
            };
            let status = match block.value("exit") {
                Some(status) if index == last => status.parse().map_err(|_| "exit=NUMBER")?,
                _ => 0,
            };
            let manner = if block.is("like") {
                Manner::Like
            } else {
                Manner::Exact
            };
            type_in(shell, command, &mut printed, status, manner, stage.limit())
                .map_err(|error| format!("{path}:{}: {error}", command.line))?;
        }
        Ok(())
    });
    played.map_err(|error: String| {
        let background: String = shells.values().map(Shell::background_output).collect();
        format!("{error}\n\nin the background:\n{background}\nbefore:\n{printed}")
    })
}

/// Types one command and compares.
fn type_in(
    shell: &mut Shell,
    command: &Command,
    printed: &mut String,
    status: i32,
    manner: Manner,
    limit: Duration,
) -> Outcome {
    let text = complete(&command.text, printed)?;
    let (shown, until) = match command.output.split_last() {
        Some((last, before)) if last == "^C" => (before, Some((before, manner))),
        _ => (command.output.as_slice(), None),
    };
    let typed = shell.run(&text, until, limit)?;
    *printed += &typed.output;
    if typed.status != status {
        return Err(format!(
            "`{text}` ended with {} instead of {status}:\n{}",
            typed.status, typed.output
        ));
    }
    // After Ctrl-C what counts is what came before it.
    if until.is_none() && !agree(shown, &typed.output, manner) {
        return Err(format!(
            "`{text}` printed\n{}\nand the page shows\n{}",
            typed.output,
            shown.join("\n")
        ));
    }
    Ok(())
}

/// Dots in a command stand for what an earlier one printed after the same words, such as a key.
fn complete(command: &str, printed: &str) -> Result<String, String> {
    let Some((before, after)) = command.split_once("...") else {
        return Ok(command.to_owned());
    };
    let line = printed
        .lines()
        .rev()
        .find_map(|line| line.split_once(before))
        .ok_or_else(|| format!("nothing printed so far completes `{command}`"))?;
    let word = line.1.split_whitespace().next().unwrap_or_default();
    Ok(format!("{before}{word}{after}"))
}

const PORT_RANGE: u16 = 24;
