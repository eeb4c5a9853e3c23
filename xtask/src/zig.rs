//! zig as C compiler and linker for other systems: one download that knows every glibc, so that what is
//! built here runs on machines much older than this one.

use std::ffi::OsString;
use std::path::PathBuf;

use xshell::{Shell, cmd};

use crate::Result;

/// Pinned: the code a compiler makes is part of what `cargo xtask dist` promises to be the same again.
const REQUIREMENTS: &[&str] = &["cargo-zigbuild==0.24.0", "ziglang==0.17.1"];

/// Named so that other versions are other folders.
const VENV: &str = "target/tools/zig-0.17.1";

/// The search path on which `cargo-zigbuild` and its zig are.
pub(crate) fn search_path(sh: &Shell) -> Result<OsString> {
    let mut path = venv(sh)?.join("bin").into_os_string();
    path.push(":");
    path.push(sh.var_os("PATH").unwrap_or_default());
    Ok(path)
}

/// The Python whose module `ziglang` is zig.
pub(crate) fn python(sh: &Shell) -> Result<PathBuf> {
    Ok(venv(sh)?.join("bin/python"))
}

/// Where both are, installed at first use.
fn venv(sh: &Shell) -> Result<PathBuf> {
    let venv = sh.current_dir().join(VENV);
    // pip puts programs in place last, so that half an installation is none.
    if !sh.path_exists(venv.join("bin/cargo-zigbuild")) {
        cmd!(sh, "python3 -m venv {venv}").run()?;
        let python = venv.join("bin/python");
        let install = || {
            cmd!(
                sh,
                "{python} -m pip install -q --disable-pip-version-check --only-binary :all: {REQUIREMENTS...}"
            )
            .run()
        };
        // A registry may hiccup once.
        install().or_else(|_| install())?;
    }
    Ok(venv)
}

/// Fails with the command to run when rustup lacks the standard library for one of `targets`.
pub(crate) fn require_targets(sh: &Shell, targets: &[&str]) -> Result {
    let installed = cmd!(sh, "rustup target list --installed").quiet().read()?;
    let lacking: Vec<&str> = targets
        .iter()
        .copied()
        .filter(|target| !installed.lines().any(|line| line == *target))
        .collect();
    if lacking.is_empty() {
        return Ok(());
    }
    let lacking = lacking.join(" ");
    Err(format!(
        "Rust's standard library is missing for {lacking}; get it by: rustup target add {lacking}"
    )
    .into())
}
