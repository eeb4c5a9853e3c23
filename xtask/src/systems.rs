//! Type-checks the workspace for other systems than this one: Windows and macOS. That says that
//! every call exists there and that no other system's code is in the way; it says nothing of how it
//! behaves: how far each is proved stands in [`PROVED`], what is missing on which in ARCHITECTURE.md under
//! "Other systems".
//!
//! `cargo-zigbuild`, because ring compiles some C whose compiler must know the target.

use xshell::{Shell, cmd};

use crate::{Result, zig};

/// How far each system is proved, in the words of pages and `lsl --version`: `tidy` compares them. Who proves
/// more, or has a report from there, changes the words here first.
pub(crate) const PROVED: &[(&str, &str)] = &[
    ("Linux", "tested"),
    ("Windows", "tested under Wine 8.0, not on Windows"),
    ("macOS", "linked, never run"),
];

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
    println!("systems: type-checked: {}", TARGETS.join(", "));
    Ok(())
}
