//! Type-checks the workspace for systems that nothing here can run: Windows and macOS. That says that
//! every call exists there and that no other system's code is in the way; it says nothing of how it
//! behaves. What is missing on which system is in ARCHITECTURE.md under "Other systems".
//!
//! `cargo-zigbuild`, because ring compiles some C whose compiler must know the target.

use std::env;
use std::ffi::OsString;
use std::path::Path;

use xshell::{Shell, cmd};

use crate::{Result, missing};

/// One of each family, on the architecture most people have.
const TARGETS: [&str; 2] = ["x86_64-pc-windows-gnu", "aarch64-apple-darwin"];

/// Where `.ci/run` puts the compiler unless the machine has one.
const TOOLS: &str = "target/tools/zig/bin";

/// Lints every target of every crate for each system, warnings denied.
pub(crate) fn run(sh: &Shell) -> Result {
    let path = search_path(&sh.current_dir().join(TOOLS))?;
    let version = cmd!(sh, "cargo-zigbuild --version").env("PATH", &path);
    if version.quiet().ignore_stderr().read().is_err() {
        return missing("cargo-zigbuild", INSTALL);
    }
    let installed = cmd!(sh, "rustup target list --installed").quiet().read()?;
    if let Some(target) = absent(&installed) {
        let targets = TARGETS.join(" ");
        return missing(
            &format!("std for {target}"),
            &format!("rustup target add {targets}"),
        );
    }
    for target in TARGETS {
        // A target directory of its own, as everything here has other flags.
        cmd!(
            sh,
            "cargo-zigbuild clippy --workspace --all-targets --locked --target {target} --target-dir target/systems -- -D warnings"
        )
        .env("PATH", &path)
        .run()?;
    }
    println!(
        "systems: {} were type-checked, none was run",
        TARGETS.join(" and ")
    );
    Ok(())
}

/// The path with `tools` before everything else: cargo-zigbuild looks for zig there.
fn search_path(tools: &Path) -> Result<OsString> {
    let own = env::var_os("PATH").unwrap_or_default();
    let all = std::iter::once(tools.to_owned()).chain(env::split_paths(&own));
    Ok(env::join_paths(all)?)
}

/// The first target that rustup does not list.
fn absent(installed: &str) -> Option<&'static str> {
    let has = |target: &&str| installed.lines().any(|line| line.trim() == *target);
    TARGETS.into_iter().find(|target| !has(target))
}

/// zig brings the C headers of all systems.
const INSTALL: &str = "python3 -m venv target/tools/zig && target/tools/zig/bin/pip install ziglang==0.17.1 cargo-zigbuild==0.24.0";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_that_is_not_there_is_named() {
        let both = TARGETS.join("\n");
        assert_eq!(absent(&both), None);
        assert_eq!(absent(""), Some(TARGETS[0]));
        assert_eq!(
            absent(&format!("{}\nx86_64-unknown-linux-gnu\n", TARGETS[0])),
            Some(TARGETS[1])
        );
        // Not a part of a longer name.
        assert_eq!(
            absent(&both.replace("darwin", "darwin-sim")),
            Some(TARGETS[1])
        );
    }
}
