//! Type-checks the workspace for systems that nothing here can run: Windows and macOS. That says that
//! every call exists there and that no other system's code is in the way; it says nothing of how it
//! behaves. What is missing on which system is in ARCHITECTURE.md under "Other systems".
//!
//! `cargo-zigbuild`, because ring compiles some C whose compiler must know the target.

use xshell::{Shell, cmd};

use crate::{Result, zig};

/// One of each family, on the architecture most people have.
const TARGETS: &[&str] = &["x86_64-pc-windows-gnu", "aarch64-apple-darwin"];

/// Lints all code of every crate for each system, warnings denied.
pub(crate) fn run(sh: &Shell) -> Result {
    zig::require_targets(sh, TARGETS)?;
    let path = zig::search_path(sh)?;
    let targets = TARGETS.iter().flat_map(|target| ["--target", target]);
    // Checked here and built elsewhere, so that the two never wait for each other's lock.
    cmd!(
        sh,
        "cargo-zigbuild clippy --workspace --all-targets --locked {targets...} --target-dir target/systems -- -D warnings"
    )
    .env("PATH", path)
    .run()?;
    println!("systems: type-checked, never run: {}", TARGETS.join(", "));
    Ok(())
}
