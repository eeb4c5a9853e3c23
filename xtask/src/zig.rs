//! zig as C compiler and linker for other systems: one download that knows every glibc, so that what is
//! built here runs on machines much older than this one.

use std::ffi::OsString;

use xshell::{Shell, cmd};

use crate::Result;

/// Pinned: the code a compiler makes is part of what `cargo xtask dist` promises to be the same again.
const REQUIREMENTS: &[&str] = &["cargo-zigbuild==0.24.0", "ziglang==0.17.1"];

const VENV: &str = "target/tools/zig";

/// The search path on which `cargo-zigbuild` and its zig are, made at first use below `target/tools`.
pub(crate) fn search_path(sh: &Shell) -> Result<OsString> {
    let venv = sh.current_dir().join(VENV);
    let program = venv.join("bin/cargo-zigbuild");
    // pip puts programs in place last, so that half an installation is none.
    if !sh.path_exists(&program) {
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
    let mut path = venv.join("bin").into_os_string();
    path.push(":");
    path.push(sh.var_os("PATH").unwrap_or_default());
    Ok(path)
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
