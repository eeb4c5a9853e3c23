//! The stage for `crates/lsl-xdf`: pyxdf judges our files, ours reads such as LabRecorder writes;
//! recorders are killed and run out of disk.

use std::path::{Path, PathBuf};

use xshell::{Shell, cmd};

use crate::{Result, Scope};

const PYTHON: &str = "crates/lsl-xdf/python";

/// Made if it is not there yet, like the peers of interop.
const VENV: &str = "target/peers/pyxdf-1.17.5";

/// What is written for the other side.
const FILES: &str = "target/xdf";

pub(crate) fn run(sh: &Shell, scope: Scope) -> Result {
    let python = match install(sh) {
        Ok(python) => python,
        Err(error) if crate::is_gate() => return Err(error),
        Err(error) => {
            println!("xdf: SKIPPED, no pyxdf: {error}");
            return Ok(());
        }
    };
    let script = format!("{PYTHON}/check_xdf.py");
    let (ours, theirs) = (format!("{FILES}/ours"), format!("{FILES}/theirs"));
    for folder in [&ours, &theirs] {
        sh.remove_path(folder)?;
        sh.create_dir(folder)?;
    }
    let examples = crate::programs(sh)?.join("examples");
    let peer = examples.join("pyxdf_peer");
    cmd!(sh, "{peer} write {ours}").run()?;
    cmd!(sh, "{python} {script} compare {ours}").run()?;
    cmd!(sh, "{python} {script} record {theirs}").run()?;
    // The oracle must find in them what it says is there, or equality with ours proves nothing.
    cmd!(sh, "{python} {script} compare {theirs}").run()?;
    cmd!(sh, "{peer} read {theirs}").run()?;
    survive(sh, &examples.join("survive"), scope.kills())
}

/// Recorders that are killed, and one whose disk is full.
fn survive(sh: &Shell, survive: &Path, kills: &str) -> Result {
    let killed = format!("{FILES}/killed");
    sh.remove_path(&killed)?;
    sh.create_dir(&killed)?;
    cmd!(sh, "{survive} kill {killed} {kills}").run()?;
    // A mount of its own, seen by nobody else and gone with the process.
    let small = format!("{FILES}/small");
    sh.create_dir(&small)?;
    let is_root = cmd!(sh, "id -u").quiet().read()? == "0";
    let flags = if is_root { "-m" } else { "-rm" };
    let mount = "mount -t tmpfs -o size=1m tmpfs \"$1\"";
    if cmd!(sh, "unshare {flags} sh -c {mount} sh {small}")
        .quiet()
        .ignore_stderr()
        .run()
        .is_err()
    {
        return crate::missing("a mount namespace", "running as root");
    }
    let script = format!("{mount} && \"$2\" full \"$1\"");
    cmd!(sh, "unshare {flags} sh -c {script} sh {small} {survive}").run()?;
    Ok(())
}

/// Where pyxdf is.
pub(crate) fn site_packages(sh: &Shell) -> Result<PathBuf> {
    let python = install(sh)?;
    let ask = "import sysconfig; print(sysconfig.get_path('purelib'))";
    Ok(cmd!(sh, "{python} -c {ask}").quiet().read()?.into())
}

/// A Python with pyxdf.
pub(crate) fn install(sh: &Shell) -> Result<String> {
    venv(sh, VENV, "pyxdf", &format!("{PYTHON}/pyxdf.txt"))
}

/// The Python of a venv that can import `module`, made by `requirements` if it is not there yet.
pub(crate) fn venv(sh: &Shell, venv: &str, module: &str, requirements: &str) -> Result<String> {
    let python = format!("{venv}/bin/python");
    let import = format!("import {module}");
    if cmd!(sh, "{python} -c {import}")
        .quiet()
        .ignore_stderr()
        .run()
        .is_err()
    {
        sh.create_dir("target/peers")?;
        cmd!(sh, "python3 -m venv {venv}").run()?;
        // The file names everything with its version; nothing else is wanted.
        let options = [
            "--disable-pip-version-check",
            "--no-deps",
            "--only-binary",
            ":all:",
        ];
        let install = || {
            cmd!(
                sh,
                "{python} -m pip install -q {options...} -r {requirements}"
            )
            .run()
        };
        // A registry may hiccup once.
        install().or_else(|_| install())?;
    }
    Ok(python)
}
