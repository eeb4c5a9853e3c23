//! Debian 12 for both processors in a folder each, and what a user does there: installs the package,
//! runs `lsl`, runs pylsl on our library, takes everything away again.
//!
//! The programs of an arm64 root run by qemu on a private machine (`emulate::qemu`). A check works on a
//! layer in memory above the root, so that every one finds Debian as it was made; while programs of ours
//! run, there is no network but loopback and a veth pair.

use std::path::{Path, PathBuf};

use xshell::{Shell, cmd};

use crate::emulate::qemu;
use crate::{Result, interop, missing};

/// A processor that Debian and we make packages for.
pub(crate) struct Arch {
    /// As Debian calls it.
    debian: &'static str,
    /// As Rust, Python and ELF call it.
    machine: &'static str,
}

pub(crate) const ARM64: Arch = Arch {
    debian: "arm64",
    machine: "aarch64",
};
const AMD64: Arch = Arch {
    debian: "amd64",
    machine: "x86_64",
};

const FOLDER: &str = "target/roots";
const DIST: &str = "target/dist";
const VERSION: &str = env!("CARGO_PKG_VERSION");

const SUITE: &str = "bookworm";
const MIRROR: &str = "http://deb.debian.org/debian";

/// Besides the essential packages and apt. What runs at installation runs slowly under qemu, so these
/// are few: the file system is merged while it is unpacked (`HOOKS`), not by a program in Perl; and pip
/// comes as a wheel, without ca-certificates.
const PACKAGES: &str = "usr-is-merged,python3,python3-distutils";
const HOOKS: &str = "/usr/share/mmdebstrap/hooks/merged-usr";

/// The Python of the suite, and what is installed with it. The versions of the others are in the file
/// that the interop tests use.
const PYTHON: &str = "3.11";
const PIP: &str = "pip==25.3";
const REQUIREMENTS: &str = "crates/lsl-interop/python/pylsl.txt";

/// Both roots, and in each one the life of our packages there.
pub(crate) fn run(sh: &Shell) -> Result {
    if let Some(gap) = gap(sh) {
        return missing(&gap, "apt-get install --no-install-recommends mmdebstrap");
    }
    let qemu = qemu::fetch(sh)?;
    let mut passed = 0;
    for arch in [AMD64, ARM64] {
        let root = ensure(sh, &arch, &qemu)?;
        passed += check(sh, &arch, &root, &qemu)?;
    }
    println!("roots: {passed} checks passed");
    Ok(())
}

/// What this machine lacks for making roots.
pub(crate) fn gap(sh: &Shell) -> Option<String> {
    let has = |tool: &str| {
        let found = cmd!(sh, "{tool} --version").quiet().ignore_stderr();
        found.read().is_ok()
    };
    ["mmdebstrap", "apt-get", "dpkg-deb", "unshare"]
        .into_iter()
        .find(|tool| !has(tool))
        .map(str::to_owned)
}

/// The root folder of `arch`, made if it is not there yet.
pub(crate) fn ensure(sh: &Shell, arch: &Arch, qemu: &Path) -> Result<PathBuf> {
    let folder = sh.current_dir().join(FOLDER);
    let root = folder.join(arch.debian);
    let recipe = folder.join(format!("{}.recipe", arch.debian));
    let wanted = format!("{SUITE} {MIRROR} {PACKAGES}\n");
    if sh.read_file(&recipe).is_ok_and(|made| made == wanted) && sh.path_exists(&root) {
        return Ok(root);
    }
    sh.create_dir(&folder)?;
    let enter = qemu::enter(sh, qemu);
    let (program, words) = enter.split_first().ok_or("no command")?;
    let part = folder.join(format!("{}.part", arch.debian));
    // What belongs to other users of the namespace can be removed there only.
    cmd!(sh, "{program} {words...} rm -rf {root} {part}").run()?;
    let debian = arch.debian;
    let include = format!("--include={PACKAGES}");
    let options = [
        "--mode=root",
        "--variant=apt",
        // It would look for qemu where Debian installs it.
        "--skip=check/qemu",
        "--aptopt=APT::Sandbox::User \"root\"",
        "--aptopt=Acquire::Retries \"3\"",
        "--quiet",
    ];
    let make = || {
        cmd!(
            sh,
            "{program} {words...} mmdebstrap {options...} --arch={debian} {include} --hook-dir={HOOKS} {SUITE} {part} {MIRROR}"
        )
        .run()
    };
    // So may a mirror; what is half made is no reason to go on.
    make().or_else(|_| {
        cmd!(sh, "{program} {words...} rm -rf {part}").run()?;
        make()
    })?;
    std::fs::rename(&part, &root)?;
    sh.write_file(recipe, wanted)?;
    Ok(root)
}

/// The words that start a bash in the root of this processor, with `share` in `/mnt`.
pub(crate) fn bash(sh: &Shell, share: &Path) -> Result<Vec<String>> {
    if let Some(gap) = gap(sh) {
        return Err(format!("no {gap}").into());
    }
    let qemu = qemu::fetch(sh)?;
    let root = ensure(sh, &AMD64, &qemu)?;
    let place = sh.current_dir().join(FOLDER).join("stage-bash");
    sh.create_dir(&place)?;
    let script = sh.current_dir().join("xtask/src/roots/stage.sh");
    let mut words = qemu::enter(sh, &qemu);
    words.push("sh".to_owned());
    words.extend([&script, &root, share, &place].map(|path| path.display().to_string()));
    words.extend(["env", "BASH_ENV=/mnt/debian.sh", "bash"].map(str::to_owned));
    Ok(words)
}

/// Everything in `roots/checks.sh`; how many checks that were.
fn check(sh: &Shell, arch: &Arch, root: &Path, qemu: &Path) -> Result<usize> {
    let share = sh
        .current_dir()
        .join(FOLDER)
        .join(format!("share-{}", arch.debian));
    gather(sh, arch, &share)?;
    let enter = qemu::enter(sh, qemu);
    let (program, words) = enter.split_first().ok_or("no command")?;
    let stage = sh.current_dir().join(FOLDER).join("stage");
    sh.create_dir(&stage)?;
    let machine = arch.machine;
    let said = cmd!(
        sh,
        "{program} {words...} unshare -n sh {NETWORK} sh xtask/src/roots/stage.sh {root} {share} {stage} sh /mnt/checks.sh {machine} {VERSION}"
    )
    // What went well before something failed is worth reading, too; only success says `all checks done`.
    .ignore_status()
    .read()?;
    println!("{said}");
    let lines = said.lines();
    let passed = lines.filter(|line| line.starts_with("ok: ")).count();
    if said.lines().last() == Some("all checks done") && passed > 0 {
        Ok(passed)
    } else {
        Err(format!("the checks on {machine} ended early").into())
    }
}

/// The network inside: nothing leaves.
const NETWORK: &str = "crates/lsl-interop/netns.sh";

/// One folder with all that a root gets to see: packages, wheels, checks.
fn gather(sh: &Shell, arch: &Arch, share: &Path) -> Result {
    let Arch { debian, machine } = arch;
    let wheels = share.join("wheels");
    download(sh, arch, &wheels)?;
    let ours = format!("lsl_rs-{VERSION}-py3-none-manylinux_2_28_{machine}.whl");
    let package = format!("lsl-rs_{VERSION}_{debian}.deb");
    for (from, to) in [
        (Path::new(DIST).join(&ours), wheels.join(&ours)),
        (Path::new(DIST).join(package), share.join("lsl-rs.deb")),
        ("xtask/src/roots/checks.sh".into(), share.join("checks.sh")),
        (
            "xtask/src/roots/roundtrip.py".into(),
            share.join("roundtrip.py"),
        ),
    ] {
        sh.copy_file(&from, &to)
            .map_err(|error| format!("{error}; `cargo xtask dist` makes packages"))?;
    }
    Ok(())
}

/// What pip would get from PyPI, for the Python of the root: there is no network in it.
fn download(sh: &Shell, arch: &Arch, wheels: &Path) -> Result {
    let done = wheels.join("complete");
    let wanted = format!("{PIP}\n{}", sh.read_file(REQUIREMENTS)?);
    if sh.read_file(&done).is_ok_and(|there| there == wanted) {
        return Ok(());
    }
    sh.remove_path(wheels)?;
    sh.create_dir(wheels)?;
    let python = interop::pylsl_python(sh)?;
    let platforms = ["manylinux_2_28", "manylinux_2_27", "manylinux2014"]
        .map(|tag| format!("--platform={tag}_{}", arch.machine));
    let options = [
        "--disable-pip-version-check",
        "--no-deps",
        "--only-binary=:all:",
        "--implementation=cp",
    ];
    let fetch = || {
        let platforms = &platforms;
        cmd!(
            sh,
            "{python} -m pip download -q {options...} {platforms...} --python-version={PYTHON} -d {wheels} -r {REQUIREMENTS} {PIP}"
        )
        .run()
    };
    // A registry may hiccup once.
    fetch().or_else(|_| fetch())?;
    sh.write_file(done, wanted)?;
    Ok(())
}
