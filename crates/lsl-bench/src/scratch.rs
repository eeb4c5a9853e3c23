//! A place for large files that are gone afterwards, and processes that are gone afterwards.

use std::fs;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus};

use lsl_cli::failure::{Failure, Outcome};
use lsl_platform::disk::free_space;
use lsl_platform::files::{Who, create_directory, create_new};
use lsl_platform::process::separate;

use super::size;

/// Refuses to fill a disk.
pub(super) fn require(place: &Path, bytes: u64) -> Outcome {
    let needed = bytes.saturating_add(RESERVE);
    match free_space(&place.join("x")) {
        Some(free) if free < needed => Err(Failure::Usage(format!(
            "{} has {} free, and {} are needed there; choose another folder or less to measure",
            place.display(),
            size::shown(free),
            size::shown(needed)
        ))),
        _ => Ok(()),
    }
}

/// A folder of this run; removed with everything in it when dropped.
#[derive(Debug)]
pub(super) struct Folder(PathBuf);

impl Folder {
    /// Makes the folder in `place`, for this user alone.
    pub(super) fn make(place: &Path, what: &str) -> Outcome<Self> {
        let own = format!("lsl-bench-{what}-{}", std::process::id());
        let mut folder = place.join(&own);
        let mut number = 0;
        while let Err(error) = create_directory(&folder, Who::Owner) {
            // Of a run that was killed: in a namespace of its own each has the same process id.
            if error.kind() != ErrorKind::AlreadyExists || number == MOST_LEFT {
                return Err(Failure::from(error).context(&folder.display().to_string()));
            }
            number += 1;
            folder = place.join(format!("{own}.{number}"));
        }
        Ok(Self(folder))
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // Remaining files are left; the folder's name tells their owner.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Writes a file that only this user may read.
pub(super) fn write_private(path: &Path, content: &[u8]) -> Outcome {
    Ok(create_new(path, Who::Owner)?.write_all(content)?)
}

/// A process that is killed when dropped. Ctrl-C at the terminal does not reach it.
#[derive(Debug)]
pub(super) struct KilledOnDrop(Child);

impl KilledOnDrop {
    pub(super) fn spawn(command: &mut Command) -> Outcome<Self> {
        separate(command);
        Ok(Self(command.spawn()?))
    }

    pub(super) fn id(&self) -> u32 {
        self.0.id()
    }

    pub(super) fn take_output(&mut self) -> Option<ChildStdout> {
        self.0.stdout.take()
    }

    /// Returns the exit status once the process has ended.
    pub(super) fn ended(&mut self) -> Outcome<Option<ExitStatus>> {
        Ok(self.0.try_wait()?)
    }
}

impl Drop for KilledOnDrop {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Bytes that stay free for other programs.
const RESERVE: u64 = 1 << 30;

/// Folders of others that are passed by: no one leaves so many.
const MOST_LEFT: u32 = 1000;
