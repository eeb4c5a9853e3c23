//! The stage for `crates/lsl-xdf`: pyxdf judges our files, ours reads such as LabRecorder writes.

use xshell::{Shell, cmd};

use crate::Result;

const PYTHON: &str = "crates/lsl-xdf/python";

/// Made if it is not there yet, like the peers of interop.
const VENV: &str = "target/peers/pyxdf-1.17.5";

/// What is written for the other side.
const FILES: &str = "target/xdf";

pub(crate) fn run(sh: &Shell) -> Result {
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
    cmd!(sh, "cargo build --locked -p lsl-xdf --example pyxdf_peer").run()?;
    let peer = sh.current_dir().join("target/debug/examples/pyxdf_peer");
    cmd!(sh, "{peer} write {ours}").run()?;
    cmd!(sh, "{python} {script} compare {ours}").run()?;
    cmd!(sh, "{python} {script} record {theirs}").run()?;
    // The oracle must find in them what it says is there, or equality with ours proves nothing.
    cmd!(sh, "{python} {script} compare {theirs}").run()?;
    cmd!(sh, "{peer} read {theirs}").run()?;
    Ok(())
}

fn install(sh: &Shell) -> Result<String> {
    let python = format!("{VENV}/bin/python");
    if cmd!(sh, "{python} -c 'import pyxdf'")
        .quiet()
        .ignore_stderr()
        .run()
        .is_err()
    {
        sh.create_dir("target/peers")?;
        cmd!(sh, "python3 -m venv {VENV}").run()?;
        let requirements = format!("{PYTHON}/pyxdf.txt");
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
