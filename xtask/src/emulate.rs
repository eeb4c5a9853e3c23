//! Our aarch64 build, played by qemu: its tests, its C library under C programs and against real liblsl,
//! its command in encrypted sessions with the one for this machine, with and without AES instructions.
//!
//! Everything runs on a private machine (`emulate::qemu`) with a private network, where programs for
//! aarch64 run as if this were one; so this task starts itself again inside. Only what the
//! emulator cannot do is left out, by name. Emulated times say nothing about any hardware.

mod library;
mod machine;
pub(crate) mod qemu;
mod sessions;
mod suites;

use std::path::PathBuf;

use xshell::{Shell, cmd};

use crate::{Result, missing, roots, zig};

const TRIPLE: &str = "aarch64-unknown-linux-gnu";
/// As zig calls it, with the oldest glibc that the builds run on.
const ZIG_TARGET: &str = "aarch64-linux-gnu.2.28";
/// As cargo-zigbuild does.
const CARGO_TARGET: &str = "aarch64-unknown-linux-gnu.2.28";

/// Where everything lies that this task makes.
const FOLDER: &str = "target/emulate";

/// The files that the part inside works with.
struct Stage {
    folder: PathBuf,
    /// `lsl` for aarch64, and `liblsl.so` beside it.
    build: PathBuf,
    /// `lsl` for this machine.
    native: PathBuf,
}

impl Stage {
    fn of(sh: &Shell) -> Self {
        let target = sh.current_dir().join("target");
        let cross = target.join("cross").join(TRIPLE).join("dist");
        let own = target.join("emulate").join(TRIPLE).join("debug");
        let is_cross = cross.join("lsl").is_file() && cross.join("liblsl.so").is_file();
        Self {
            folder: target.join("emulate"),
            build: if is_cross { cross } else { own },
            native: target.join("debug/lsl"),
        }
    }

    /// Whether `cargo xtask cross` made what is examined.
    fn is_released(&self) -> bool {
        self.build.ends_with("dist")
    }
}

/// Build everything, then run it on a private machine.
pub(crate) fn run(sh: &Shell) -> Result {
    if let Some(gap) = roots::gap(sh) {
        return missing(&gap, "apt-get install --no-install-recommends mmdebstrap");
    }
    // Before a build of the workspace puts another file in the place of this one.
    let task = std::env::current_exe()?;
    let qemu = qemu::fetch(sh)?;
    let path = zig::search_path(sh)?;
    zig::require_targets(sh, &[TRIPLE])?;
    let root = roots::ensure(sh, &roots::ARM64, &qemu)?;

    let stage = Stage::of(sh);
    sh.create_dir(&stage.folder)?;
    let _path = sh.push_env("PATH", path);
    suites::build(sh)?;
    if !stage.is_released() {
        println!(
            "emulate: no target/cross/{TRIPLE}: with a build of its own, not the one that ships"
        );
        cmd!(
            sh,
            "cargo-zigbuild build --locked --target {CARGO_TARGET} --target-dir {FOLDER} -p lsl-cli -p lsl-ffi"
        )
        .run()?;
    }
    crate::programs(sh)?;
    machine::mask(sh)?;
    library::build(sh, &stage)?;

    let enter = qemu::enter(sh, &qemu);
    let (program, words) = enter.split_first().ok_or("no command")?;
    let in_network = ["unshare", "-n", "sh", "crates/lsl-interop/netns.sh"];
    cmd!(
        sh,
        "{program} {words...} {in_network...} {task} emulate inside"
    )
    .env("QEMU_LD_PREFIX", root)
    .env("LSL_EMULATE", "1")
    // Properties of portable code are tried with all cases where the tests run by themselves.
    .env("PROPTEST_CASES", "8")
    .run()?;
    Ok(())
}

/// The part that runs on the private machine.
pub(crate) fn inside(sh: &Shell) -> Result {
    if std::env::var_os("LSL_EMULATE").is_none() {
        return Err("only `cargo xtask emulate` starts this".into());
    }
    cmd!(sh, "python3 crates/lsl-interop/netcheck.py").run()?;
    let stage = Stage::of(sh);
    let passed = sessions::run(sh, &stage)? + library::run(sh, &stage)? + suites::run(sh)?;
    println!("emulate: {passed} checks passed");
    Ok(())
}

/// Tell of a check that passed.
fn passed(what: &str) -> usize {
    println!("emulate: ok: {what}");
    1
}
