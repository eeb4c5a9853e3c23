//! The Python wheel: our library in a package that points pylsl and mne-lsl at it.

use std::path::Path;

use xshell::{Shell, cmd};

use super::{DIST, Release, STAGE};
use crate::cross::{Build, GLIBC, System};
use crate::{Result, abi, macos, windows};

const PROJECT: &str = "crates/lsl-ffi/python";
const HATCHLING: &str = "hatchling==1.33.0";
/// Named so that another version is another folder.
const VENV: &str = "target/tools/hatchling-1.33.0";

/// Make the wheel of one target.
pub(crate) fn pack(sh: &Shell, release: &Release, build: &Build) -> Result {
    let python = backend(sh)?;
    let project = Path::new(STAGE).join("wheel");
    sh.remove_path(&project)?;
    sh.create_dir(project.join("lsl_rs"))?;
    for file in [
        "README.md",
        "lsl_rs.pth",
        "lsl_rs/__init__.py",
        "lsl_rs/__main__.py",
        "platform_tag.py",
        "pyproject.toml",
    ] {
        sh.copy_file(Path::new(PROJECT).join(file), project.join(file))?;
    }
    for file in ["LICENSE-APACHE", "LICENSE-MIT"] {
        sh.copy_file(file, project.join(file))?;
    }
    let (file, tag) = match build.target.system {
        System::Linux { .. } => (
            abi::SONAME,
            format!(
                "manylinux_{}_{}",
                GLIBC.replace('.', "_"),
                build.target.machine
            ),
        ),
        System::Windows => (windows::LIBRARY, "win_amd64".to_owned()),
        System::MacOs => (
            "liblsl.dylib",
            format!(
                "macosx_{}_{}",
                macos::OLDEST.replace('.', "_"),
                build.target.machine
            ),
        ),
    };
    sh.copy_file(&build.library, project.join("lsl_rs").join(file))?;
    let dist = sh.current_dir().join(DIST);
    let _inside = sh.push_dir(&project);
    cmd!(
        sh,
        "{python} -m hatchling build --target wheel --directory {dist}"
    )
    .env("LSL_RS_VERSION", &release.version)
    .env("LSL_RS_PLATFORM", tag)
    .env("SOURCE_DATE_EPOCH", &release.epoch)
    .quiet()
    .ignore_stdout()
    .ignore_stderr()
    .run()?;
    Ok(())
}

/// The Python that has the build backend.
fn backend(sh: &Shell) -> Result<std::path::PathBuf> {
    let venv = sh.current_dir().join(VENV);
    let python = venv.join("bin/python");
    if !sh.path_exists(venv.join("bin/hatchling")) {
        cmd!(sh, "python3 -m venv {venv}").run()?;
        let install = || {
            cmd!(
                sh,
                "{python} -m pip install -q --disable-pip-version-check {HATCHLING}"
            )
            .run()
        };
        // A registry may hiccup once.
        install().or_else(|_| install())?;
    }
    Ok(python)
}
