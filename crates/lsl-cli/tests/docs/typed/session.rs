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

use super::Outcome;
use super::expected::{Manner, agree};
use super::page::{Block, Command, Page};
use super::shell::Shell;

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
    /// A stage beyond loopback is made by `cargo xtask book`, which then says how it is entered: lines
    /// `VARIABLE=value` (of PATH only what comes in front), then the words that start a bash.
    fn entrance(name: &str) -> Option<String> {
        std::env::var(format!("LSL_DOCS_{}", name.to_uppercase())).ok()
    }

    /// Whether this run is for the sessions of a stage. `cargo xtask book` is for what plain tests cannot
    /// do; in the gate it leaves nothing out, so that a stage nobody made is a failure.
    fn is_there(name: &str) -> bool {
        let is_prepared = std::env::var_os("LSL_DOCS_PREPARED").is_some();
        let is_gate = std::env::var("CI").is_ok_and(|value| value == "true");
        if PLAIN.contains(&name) {
            !is_prepared
        } else {
            is_prepared && (is_gate || Self::entrance(name).is_some())
        }
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
        // The others are in a network of their own, where nothing has to be held back.
        let options = if self.is_plain() { "--loopback" } else { "" };
        let lsl = bin.join("lsl");
        let binary = env!("CARGO_BIN_EXE_lsl");
        fs::write(
            &lsl,
            format!("#!/bin/sh\nexec '{binary}' {options} \"$@\"\n"),
        )?;
        fs::set_permissions(&lsl, fs::Permissions::from_mode(0o755))
    }

    fn is_plain(&self) -> bool {
        PLAIN.contains(&self.name.as_str())
    }

    /// Whether commands are typed in a clone of the repository, not in a home directory.
    fn is_clone(&self) -> bool {
        ["build", "bench"].contains(&self.name.as_str())
    }

    /// A shell in the home directory of a machine.
    fn shell(&self, machine: &str) -> Result<Shell, String> {
        let home = self.home(machine);
        fs::create_dir_all(&home).map_err(|error| error.to_string())?;
        let entrance = match Self::entrance(&self.name) {
            Some(entrance) => entrance,
            None if self.is_plain() => "bash".into(),
            None => return Err(format!("`cargo xtask book` made no stage {}", self.name)),
        };
        let mut words = entrance.lines().peekable();
        let mut variables = Vec::new();
        while let Some((name, value)) = words.peek().and_then(|line| line.split_once('=')) {
            variables.push((name, value));
            words.next();
        }
        let mut process = Process::new(words.next().ok_or("no shell")?);
        process
            .args(words)
            .env("HOME", &home)
            .env("LSLAPICFG", self.directory.join("lsl_api.cfg"));
        for name in ["LSL_SECURE_CONFIG", "SUDO_USER", "COLUMNS"] {
            process.env_remove(name);
        }
        // What cargo tells its tests is not in a user's shell, and would make a cargo in it build anew.
        for (name, _) in std::env::vars_os() {
            let is_of_cargo = name.to_str().is_some_and(|name| {
                name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST")
            });
            if is_of_cargo {
                process.env_remove(name);
            }
        }
        let mut path = std::env::var("PATH").unwrap_or_default();
        if !self.is_clone() {
            path = format!("{}:{path}", self.directory.join("bin").display());
        }
        for (name, value) in variables {
            match name {
                "PATH" => path = format!("{value}:{path}"),
                _ => drop(process.env(name, value)),
            }
        }
        process.env("PATH", path);
        if self.is_clone() {
            return Shell::start(process, &super::repository());
        }
        self.offer_packages(&home)
            .map_err(|error| error.to_string())?;
        Shell::start(process, &home)
    }

    /// What `cargo xtask dist` made lies where the commands are typed.
    fn offer_packages(&self, home: &Path) -> std::io::Result<()> {
        let dist = super::repository().join("target/dist");
        if self.is_plain() || !dist.is_dir() {
            return Ok(());
        }
        for entry in fs::read_dir(dist)? {
            let entry = entry?;
            let link = home.join(entry.file_name());
            if !link.exists() {
                std::os::unix::fs::symlink(entry.path(), link)?;
            }
        }
        Ok(())
    }

    /// Machines of the stage `ssh` are reached from the only one that has a shell of ours.
    fn here(&self, command: &Command) -> Command {
        let mut command = command.clone();
        if self.name == "ssh" && !command.machine.is_empty() {
            // A login on a machine that was not made for a test sets that variable.
            command.text = format!(
                "ssh {HOST} sh -s <<'@typed@'\nexport XDG_RUNTIME_DIR=/run/user/$(id -u)\n{}\n@typed@",
                command.text
            );
            command.machine.clear();
        }
        command
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
            let command = &stage.here(command);
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
    let failed: String = shells.values().map(Shell::background_failures).collect();
    if played.is_ok() && !failed.is_empty() {
        return Err(format!("{path}: failed in the background:\n{failed}"));
    }
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
    if until.is_some() && !typed.is_interrupted {
        return Err(format!(
            "`{text}` ended before Ctrl-C; the page shows\n{}\nand it printed\n{}",
            shown.join("\n"),
            typed.output
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

/// The other machine of the stage `ssh`.
const HOST: &str = "lab@raspberrypi.local";

/// The stages that need nothing but this machine's loopback interface.
const PLAIN: [&str; 2] = ["lab", "two"];
