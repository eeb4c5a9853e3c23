//! Fuzzing: each target of the `fuzz` directories for a while. What it finds joins the corpora that
//! `cargo test` replays.

use xshell::{Shell, cmd};

use crate::Result;

/// Long enough to notice a parser that was just broken.
pub(crate) const DEFAULT_SECONDS: u32 = 30;

const FUZZ_DIRS: [&str; 5] = [
    "crates/lsl-doctor/fuzz",
    "crates/lsl-proto/fuzz",
    "crates/lsl-relay/fuzz",
    "crates/lsl-secure/fuzz",
    "crates/lsl-xdf/fuzz",
];

/// Run all targets, or the one called `only`, for `seconds` each.
pub(crate) fn run(sh: &Shell, seconds: u32, only: Option<&str>) -> Result {
    if cmd!(sh, "cargo +nightly fuzz --version")
        .quiet()
        .ignore_stderr()
        .read()
        .is_err()
    {
        return crate::missing(
            "cargo-fuzz on a nightly compiler",
            "rustup toolchain install nightly; cargo install --locked cargo-fuzz",
        );
    }
    let targets = targets(sh, only)?;
    for (dir, target) in &targets {
        let limit = format!("-max_total_time={seconds}");
        cmd!(
            sh,
            "cargo +nightly fuzz run --fuzz-dir {dir} {target} -- {limit}"
        )
        .run()?;
    }
    println!(
        "fuzz: {} targets, {seconds} s each, no finding",
        targets.len()
    );
    Ok(())
}

/// All targets, or the one called `only`, each with its directory.
pub(crate) fn targets(sh: &Shell, only: Option<&str>) -> Result<Vec<(&'static str, String)>> {
    let mut targets = Vec::new();
    for dir in FUZZ_DIRS {
        for path in sh
            .read_dir(format!("{dir}/fuzz_targets"))
            .unwrap_or_default()
        {
            let name = path
                .file_stem()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            if path.extension().is_some_and(|extension| extension == "rs")
                && only.is_none_or(|only| only == name)
            {
                targets.push((dir, name));
            }
        }
    }
    if targets.is_empty() {
        return Err(format!("no fuzz target in {}", FUZZ_DIRS.join(", ")).into());
    }
    Ok(targets)
}
