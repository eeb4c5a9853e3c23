//! Release builds that run on other machines: `lsl`, `lsl-bench` and `liblsl.so` for each target, for
//! glibc 2.28 (2018: Debian 10, Ubuntu 18.10, RHEL 8) or newer; `lsl.exe` and `lsl.dll` for Windows; `lsl` and
//! `liblsl.dylib` for macOS, for both processors in one file. Any x86-64 Linux can make them.

use std::path::PathBuf;

use xshell::{Shell, cmd};

use crate::{Result, artefact, macos, windows, zig};

/// The oldest glibc that the builds run on; also what the wheels' tags promise.
pub(crate) const GLIBC: &str = "2.28";

/// Operating system that a target runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum System {
    Linux {
        /// As Debian calls the machine.
        debian: &'static str,
        /// Where Debian keeps libraries of this kind.
        multiarch: &'static str,
    },
    Windows,
    MacOs,
}

/// A machine that we ship for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Target {
    /// As Rust calls it.
    pub(crate) triple: &'static str,
    /// As wheels and ELF tools call the processor.
    pub(crate) machine: &'static str,
    pub(crate) system: System,
}

pub(crate) const TARGETS: &[Target] = &[
    Target {
        triple: "aarch64-unknown-linux-gnu",
        machine: "aarch64",
        system: System::Linux {
            debian: "arm64",
            multiarch: "aarch64-linux-gnu",
        },
    },
    Target {
        triple: "x86_64-unknown-linux-gnu",
        machine: "x86_64",
        system: System::Linux {
            debian: "amd64",
            multiarch: "x86_64-linux-gnu",
        },
    },
    Target {
        triple: windows::TRIPLE,
        machine: "x86_64",
        system: System::Windows,
    },
    Target {
        triple: macos::TRIPLE,
        machine: "universal2",
        system: System::MacOs,
    },
];

const TARGET_DIR: &str = "target/cross";

/// What one target's build leaves.
pub(crate) struct Build {
    pub(crate) target: Target,
    /// `lsl`, and where it is offered `lsl-bench`.
    pub(crate) programs: Vec<PathBuf>,
    pub(crate) library: PathBuf,
}

impl System {
    /// As people call it.
    fn name(self) -> &'static str {
        match self {
            Self::Linux { .. } => "linux",
            Self::Windows => "windows",
            Self::MacOs => "macos",
        }
    }
}

/// Build and check every target, or those that `word` means.
pub(crate) fn run(sh: &Shell, word: Option<&str>) -> Result {
    for target in select(word)? {
        build(sh, target)?;
    }
    Ok(())
}

/// The targets that a word on the command line means: a system or a target; without it all.
pub(crate) fn select(word: Option<&str>) -> Result<Vec<Target>> {
    let mut targets = TARGETS.to_vec();
    let Some(word) = word else {
        return Ok(targets);
    };
    targets.retain(|target| [target.triple, target.system.name()].contains(&word));
    if targets.is_empty() {
        let known = TARGETS.iter().map(|target| target.triple);
        let known = known.collect::<Vec<_>>().join(", ");
        return Err(
            format!("no such target: {word}; there are linux, windows, macos, {known}").into(),
        );
    }
    Ok(targets)
}

/// Build one target and check the files themselves.
pub(crate) fn build(sh: &Shell, target: Target) -> Result<Build> {
    let Target { triple, .. } = target;
    match target.system {
        System::MacOs => zig::require_targets(sh, &macos::HALVES)?,
        _ => zig::require_targets(sh, &[triple])?,
    }
    let root = sh.current_dir();
    // Programs that users run need neither symbols nor the paths of the machine that built them;
    // without the paths, every checkout builds the same bytes.
    let paths = machine_paths(sh)?;
    let paths = paths.map(|(path, name)| format!("--remap-path-prefix={path}={name}"));
    let mut flags = Vec::from(paths);
    if let System::Linux { .. } = target.system {
        // Security logs name the build that wrote them; zig gives it none by itself.
        flags.push("-Clink-arg=-Wl,--build-id=sha1".to_owned());
    }
    let (for_system, packages, files, resources) = match target.system {
        System::Linux { .. } => (
            format!("{triple}.{GLIBC}"),
            &["lsl-cli", "lsl-bench", "lsl-ffi"][..],
            &["lsl", "lsl-bench", "liblsl.so"][..],
            None,
        ),
        System::Windows => (
            triple.to_owned(),
            &["lsl-cli", "lsl-ffi"][..],
            &["lsl.exe", "lsl.dll"][..],
            Some(windows::resources(sh, &root.join(TARGET_DIR))?),
        ),
        System::MacOs => (
            triple.to_owned(),
            &["lsl-cli", "lsl-ffi"][..],
            &["lsl", "liblsl.dylib"][..],
            Some(macos::frameworks(sh, &root.join(TARGET_DIR))?),
        ),
    };
    let packages = packages.iter().flat_map(|package| ["-p", package]);
    cmd!(
        sh,
        "cargo zigbuild --profile dist --locked --target {for_system} --target-dir {TARGET_DIR} {packages...}"
    )
    .env("PATH", zig::search_path(sh)?)
    // Separated by a byte that no path has, as cargo wants it.
    .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\u{1f}"))
    .env("SOURCE_DATE_EPOCH", epoch(sh)?)
    .env("MACOSX_DEPLOYMENT_TARGET", macos::OLDEST)
    .envs(resources.map(|folder| ("LSL_RESOURCES", folder)))
    .run()?;

    let folder = root.join(TARGET_DIR).join(triple).join("dist");
    let mut files: Vec<PathBuf> = files.iter().map(|file| folder.join(file)).collect();
    let library = files.pop().ok_or("no files")?;
    let build = Build {
        target,
        programs: files,
        library,
    };
    artefact::check(sh, &build)?;
    for file in build.files() {
        println!(
            "cross: {} bytes  {}",
            file.metadata()?.len(),
            file.display()
        );
    }
    Ok(build)
}

impl Build {
    /// All that was built.
    pub(crate) fn files(&self) -> impl Iterator<Item = &PathBuf> {
        self.programs.iter().chain([&self.library])
    }
}

/// Folders of the building machine, and what files that leave it say instead.
pub(crate) fn machine_paths(sh: &Shell) -> Result<[(String, &'static str); 2]> {
    let cargo_home = match sh.var_os("CARGO_HOME") {
        Some(home) => PathBuf::from(home),
        None => PathBuf::from(sh.var("HOME")?).join(".cargo"),
    };
    let paths = [(sh.current_dir(), "/lsl-rs"), (cargo_home, "/cargo")];
    Ok(paths.map(|(path, name)| (path.display().to_string(), name)))
}

/// The time of the commit, or what `SOURCE_DATE_EPOCH` says where there is no history.
pub(crate) fn epoch(sh: &Shell) -> Result<String> {
    if let Ok(epoch) = sh.var("SOURCE_DATE_EPOCH") {
        return Ok(epoch);
    }
    cmd!(sh, "git log -1 --format=%ct")
        .quiet()
        .read()
        .map_err(|_| "no git history: set SOURCE_DATE_EPOCH to the time of the release".into())
}

/// Version of all crates.
pub(crate) fn version(sh: &Shell) -> Result<String> {
    let manifest = sh.read_file("Cargo.toml")?;
    let line = manifest
        .lines()
        .find_map(|line| line.strip_prefix("version = \""));
    let version = line.and_then(|rest| rest.strip_suffix('"'));
    Ok(version.ok_or("Cargo.toml names no version")?.to_owned())
}
