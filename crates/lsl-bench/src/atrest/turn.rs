//! One command, once: from file to file or in a pipe.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use lsl_cli::failure::{Failure, Outcome};
use lsl_cli::interrupt::Stop;
use lsl_core::local_clock;

use super::ends;
use crate::child::interrupted;
use crate::process_usage::Used;
use crate::scratch::KilledOnDrop;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    Lock,
    Unlock,
}

impl Direction {
    /// The name of the command.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Lock => "lock",
            Self::Unlock => "unlock",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FileOrPipe {
    File,
    Pipe,
}

/// Files and keys of one turn.
pub(super) struct AtrestTurn<'a> {
    pub(super) direction: Direction,
    pub(super) recipients: &'a [&'a str],
    pub(super) identity: &'a Path,
    pub(super) plain: &'a Path,
    pub(super) locked: &'a Path,
    pub(super) output: &'a Path,
    pub(super) stop: &'a Stop,
}

impl AtrestTurn<'_> {
    pub(super) fn measure(&self, way: FileOrPipe) -> Outcome<BTreeMap<String, f64>> {
        let plain_bytes = fs::metadata(self.plain)?.len();
        let (secs, used) = match way {
            FileOrPipe::File => self.file()?,
            FileOrPipe::Pipe => {
                let (secs, used, _) = self.pipe(&[])?;
                (secs, used)
            }
        };
        let mut values = BTreeMap::new();
        values.insert("wall_s".into(), secs);
        if self.direction == Direction::Unlock {
            // Or there were no rounds.
            values.insert("hash_equal".into(), 1.0);
        }
        values.insert(super::SPEED.into(), plain_bytes as f64 / MIB / secs);
        if let Some(used) = used {
            values.insert(super::PEAK.into(), used.peak_mib);
        }
        Ok(values)
    }

    /// The locked file, for the turns that unlock it.
    pub(super) fn keep_locked(&self) -> Outcome {
        self.file_to(self.locked)?;
        Ok(())
    }

    /// Fails unless what was locked comes out as it went in, both ways.
    pub(super) fn check_hashes(&self) -> Outcome {
        let expected = ends::sha256(&mut File::open(self.plain)?)?.1;
        self.file_to(self.output)?;
        let by_file = ends::sha256(&mut File::open(self.output)?)?.1;
        fs::remove_file(self.output)?;
        let (_, _, by_pipe) = self.pipe(&["--hash"])?;
        if by_file == expected && by_pipe == expected {
            return Ok(());
        }
        Err(Failure::Lost(format!(
            "what went in has the SHA-256 {expected}, what lsl unlock gave {by_file}, and in a pipe {by_pipe}"
        )))
    }

    fn file(&self) -> Outcome<(f64, Option<Used>)> {
        let done = self.file_to(self.output)?;
        self.check(fs::metadata(self.output)?.len())?;
        fs::remove_file(self.output)?;
        Ok(done)
    }

    fn file_to(&self, output: &Path) -> Outcome<(f64, Option<Used>)> {
        let mut command = self.command()?;
        command.arg(self.input()).arg("--output").arg(output);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let start = local_clock();
        let mut process = KilledOnDrop::spawn(&mut command)?;
        let used = self.attend(&mut process)?;
        Ok((local_clock() - start, used))
    }

    /// Returns time, memory, and the hash if `take` asks for it.
    fn pipe(&self, take: &[&str]) -> Outcome<(f64, Option<Used>, String)> {
        let end = |arguments: &[&str]| -> Outcome<Command> {
            let mut command = Command::new(std::env::current_exe()?);
            command.args(["atrest-end"]).args(arguments);
            command.stdout(Stdio::piped());
            Ok(command)
        };
        let gone = || Failure::Runtime("a process has no output".into());
        let mut command = end(&["give"])?;
        command.arg(self.input()).stdin(Stdio::null());
        let mut give = KilledOnDrop::spawn(&mut command)?;
        let start = local_clock();
        let mut command = self.command()?;
        command.arg("-");
        command.stdin(give.take_output().ok_or_else(gone)?);
        command.stdout(Stdio::piped());
        let mut process = KilledOnDrop::spawn(&mut command)?;
        // The command holds the reading end; held here too, who gives would not see it end.
        drop(command);
        let mut command = end(&["take"])?;
        command.args(take);
        command.stdin(process.take_output().ok_or_else(gone)?);
        let mut take = KilledOnDrop::spawn(&mut command)?;
        drop(command);
        let used = self.attend(&mut process)?;
        let mut text = String::new();
        let mut output = take.take_output().ok_or_else(gone)?;
        output.read_to_string(&mut text)?;
        let secs = local_clock() - start;
        let (taken, hash) = text.trim().split_once(' ').ok_or_else(gone)?;
        self.check(taken.parse().map_err(|_| gone())?)?;
        Ok((secs, used, hash.to_owned()))
    }

    /// Waits for the end and looks at the memory meanwhile.
    fn attend(&self, process: &mut KilledOnDrop) -> Outcome<Option<Used>> {
        let mut used = None;
        let mut nap = SHORTEST_NAP;
        loop {
            used = Used::of(process.id()).or(used);
            if let Some(status) = process.ended()? {
                return if status.success() {
                    Ok(used)
                } else {
                    let name = self.direction.name();
                    Err(Failure::Runtime(format!("lsl {name} failed ({status})")))
                };
            }
            if self.stop.requested() {
                return Err(interrupted());
            }
            // Looking must not take part in long turns, nor miss short ones.
            thread::sleep(nap);
            nap = (nap * 2).min(LONGEST_NAP);
        }
    }

    /// Whether as many bytes came as must.
    fn check(&self, bytes: u64) -> Outcome {
        let plain = fs::metadata(self.plain)?.len();
        let chunks = plain.div_ceil(CHUNK).max(1);
        let is_right = match self.direction {
            Direction::Unlock => bytes == plain,
            // The header has a stanza for each recipient.
            Direction::Lock => {
                let bare = plain + chunks * TAG;
                let header = STANZA * (self.recipients.len() as u64 + 1);
                (bare + 1..bare + header).contains(&bytes)
            }
        };
        if is_right {
            return Ok(());
        }
        let name = self.direction.name();
        Err(Failure::Lost(format!(
            "lsl {name} gave {bytes} bytes for {plain}"
        )))
    }

    fn input(&self) -> &Path {
        match self.direction {
            Direction::Lock => self.plain,
            Direction::Unlock => self.locked,
        }
    }

    fn command(&self) -> Outcome<Command> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["lsl", self.direction.name()]);
        match self.direction {
            Direction::Lock => {
                for recipient in self.recipients {
                    command.args(["--recipient", recipient]);
                }
            }
            Direction::Unlock => {
                command.arg("--identity").arg(self.identity);
            }
        }
        Ok(command)
    }
}

const MIB: f64 = (1 << 20) as f64;
/// Bytes of a chunk in the age format.
const CHUNK: u64 = 64 << 10;
const TAG: u64 = 16;
/// More than a recipient takes.
const STANZA: u64 = 512;
const SHORTEST_NAP: Duration = Duration::from_millis(1);
const LONGEST_NAP: Duration = Duration::from_millis(8);
