//! Release builds that run on other machines: `lsl`, `lsl-bench` and `liblsl.so` for each target, for
//! glibc 2.28 (2018: Debian 10, Ubuntu 18.10, RHEL 8) or newer. Any x86-64 Linux can make them.

use std::path::PathBuf;

use xshell::{Shell, cmd};

use crate::{Result, artefact, zig};

/// The oldest glibc that the builds run on; also what the wheels' tags promise.
pub(crate) const GLIBC: &str = "2.28";

/// A machine that we ship for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Target {
    /// As Rust calls it.
    pub(crate) triple: &'static str,
    /// As wheels and ELF tools call the processor.
    pub(crate) machine: &'static str,
    /// As Debian calls it.
    pub(crate) debian: &'static str,
    /// Where Debian keeps libraries of this kind.
    pub(crate) multiarch: &'static str,
}

pub(crate) const TARGETS: &[Target] = &[
    Target {
        triple: "aarch64-unknown-linux-gnu",
        machine: "aarch64",
        debian: "arm64",
        multiarch: "aarch64-linux-gnu",
    },
    Target {
        triple: "x86_64-unknown-linux-gnu",
        machine: "x86_64",
        debian: "amd64",
        multiarch: "x86_64-linux-gnu",
    },
];

const TARGET_DIR: &str = "target/cross";

/// What one target's build leaves.
pub(crate) struct Build {
    pub(crate) target: Target,
    pub(crate) command: PathBuf,
    pub(crate) benchmarks: PathBuf,
    pub(crate) library: PathBuf,
}

/// Build and check every target, or the one called `triple`.
pub(crate) fn run(sh: &Shell, triple: Option<&str>) -> Result {
    for target in select(triple)? {
        build(sh, target)?;
    }
    Ok(())
}

/// The targets that a word on the command line means.
pub(crate) fn select(triple: Option<&str>) -> Result<Vec<Target>> {
    let Some(triple) = triple else {
        return Ok(TARGETS.to_vec());
    };
    let known = TARGETS.iter().map(|target| target.triple);
    let known = known.collect::<Vec<_>>().join(", ");
    TARGETS
        .iter()
        .find(|target| target.triple == triple)
        .map(|target| vec![*target])
        .ok_or_else(|| format!("no such target: {triple}; there are {known}").into())
}

/// Build one target and check the files themselves.
pub(crate) fn build(sh: &Shell, target: Target) -> Result<Build> {
    let Target { triple, .. } = target;
    zig::require_targets(sh, &[triple])?;
    // Programs that users run need neither symbols nor the paths of the machine that built them;
    // without the paths, every checkout builds the same bytes.
    let root = sh.current_dir();
    let cargo_home = match sh.var_os("CARGO_HOME") {
        Some(home) => PathBuf::from(home),
        None => PathBuf::from(sh.var("HOME")?).join(".cargo"),
    };
    let flags = [(&root, "/lsl-rs"), (&cargo_home, "/cargo")]
        .map(|(path, name)| format!("--remap-path-prefix={}={name}", path.display()));
    cmd!(
        sh,
        "cargo zigbuild --profile dist --locked --target {triple}.{GLIBC} --target-dir {TARGET_DIR}
            -p lsl-cli -p lsl-bench -p lsl-ffi"
    )
    .env("PATH", zig::search_path(sh)?)
    // Separated by a byte that no path has, as cargo wants it.
    .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\u{1f}"))
    .run()?;

    let folder = root.join(TARGET_DIR).join(triple).join("dist");
    let build = Build {
        target,
        command: folder.join("lsl"),
        benchmarks: folder.join("lsl-bench"),
        library: folder.join("liblsl.so"),
    };
    artefact::check(sh, &build)?;
    for file in [&build.command, &build.benchmarks, &build.library] {
        println!(
            "cross: {} bytes  {}",
            file.metadata()?.len(),
            file.display()
        );
    }
    Ok(build)
}
