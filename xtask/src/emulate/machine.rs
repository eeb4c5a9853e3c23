//! Machines of the sessions: a home folder each, and an `lsl` for one of the processors.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use xshell::{Shell, cmd};

use super::{Stage, ZIG_TARGET};
use crate::Result;

/// What plays a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// This one.
    Native,
    /// aarch64 with instructions for AES, like a Raspberry Pi 5.
    WithAes,
    /// aarch64 without, like a Raspberry Pi 4.
    WithoutAes,
}

impl Kind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Native => "x86-64",
            Self::WithAes => "aarch64",
            Self::WithoutAes => "aarch64 without AES",
        }
    }
}

const MASK: &str = "target/emulate/mask.so";

/// Build what hides the AES instructions.
pub(super) fn mask(sh: &Shell) -> Result {
    let options = ["-O1", "-Wall", "-Wextra", "-shared", "-fPIC"];
    cmd!(
        sh,
        "python3 -m ziglang cc -target {ZIG_TARGET} {options...} xtask/src/emulate/mask.c -o {MASK}"
    )
    .run()?;
    Ok(())
}

/// A machine with a home of its own.
pub(super) struct Machine {
    kind: Kind,
    program: PathBuf,
    home: PathBuf,
    mask: PathBuf,
}

impl Machine {
    pub(super) fn new(sh: &Shell, stage: &Stage, name: &str, kind: Kind) -> Result<Self> {
        let home = stage.folder.join("homes").join(name);
        sh.remove_path(&home)?;
        sh.create_dir(&home)?;
        let program = match kind {
            Kind::Native => stage.native.clone(),
            Kind::WithAes | Kind::WithoutAes => stage.build.join("lsl"),
        };
        Ok(Self {
            kind,
            program,
            home,
            mask: sh.current_dir().join(MASK),
        })
    }

    /// `lsl` with these arguments on this machine.
    pub(super) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command
            .args(arguments)
            .current_dir(&self.home)
            .env("HOME", &self.home)
            .env_remove("LSL_SECURE_CONFIG")
            .env_remove("LSLAPICFG")
            .stdin(Stdio::null());
        if self.kind == Kind::WithoutAes {
            let preload = format!("LD_PRELOAD={}", self.mask.display());
            command.env("QEMU_SET_ENV", preload);
        }
        command
    }

    /// What a command prints, stderr last; an error unless it succeeds.
    pub(super) fn run(&self, arguments: &[&str]) -> Result<String> {
        let output = self.command(arguments).output()?;
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said).into_owned();
        if output.status.success() {
            Ok(said)
        } else {
            let command = arguments.join(" ");
            let on = self.kind.name();
            Err(format!("{on}: lsl {command}: {}\n{said}", output.status).into())
        }
    }

    /// A command that goes on while others run; its output is discarded.
    pub(super) fn start(&self, arguments: &[&str]) -> Result<Running> {
        let log = self.home.join("log");
        let file = std::fs::File::create(&log)?;
        let mut command = self.command(arguments);
        let child = command.stdout(file.try_clone()?).stderr(file).spawn()?;
        Ok(Running { child, log })
    }
}

/// A running command. Killed when dropped.
pub(super) struct Running {
    child: Child,
    log: PathBuf,
}

impl Running {
    /// Wait for its end, which must be a success; what it said.
    pub(super) fn finish(mut self) -> Result<String> {
        let status = self.child.wait()?;
        let said = read(&self.log)?;
        if status.success() {
            Ok(said)
        } else {
            Err(format!("{status}\n{said}").into())
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn read(path: &Path) -> Result<String> {
    let mut text = String::new();
    std::fs::File::open(path)?.read_to_string(&mut text)?;
    Ok(text)
}
