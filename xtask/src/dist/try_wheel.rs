//! The wheel as its users have it: installed next to pylsl and mne-lsl into a clean environment, then
//! removed again.

use std::path::Path;

use xshell::{Shell, cmd};

use super::{DIST, Release};
use crate::Result;

const VENV: &str = "target/dist-venv";

/// What prints the file that pylsl and mne-lsl loaded.
const LOADED: &str = "
import pylsl, mne_lsl.lsl
lines = open('/proc/self/maps').read().splitlines()
files = {line.split(None, 5)[5] for line in lines if '/liblsl' in line and '.so' in line}
print('\\n'.join(sorted(files)))
";

/// Install, ask, remove, ask again.
pub(crate) fn run(sh: &Shell, release: &Release) -> Result {
    let machine = std::env::consts::ARCH;
    let wheel = sh
        .read_dir(DIST)?
        .into_iter()
        .find(|file| {
            let name = file.to_string_lossy();
            name.contains("linux") && name.contains(machine) && name.ends_with(".whl")
        })
        .ok_or("no wheel for this machine")?;
    let venv = sh.current_dir().join(VENV);
    sh.remove_path(&venv)?;
    cmd!(sh, "python3 -m venv {venv}").run()?;
    let python = venv.join("bin/python");
    let pip = ["-m", "pip", "--disable-pip-version-check", "--quiet"];
    // The file of mne-lsl pins all that both need.
    let pylsl = sh.read_file("crates/lsl-interop/python/pylsl.txt")?;
    let pylsl = pylsl
        .lines()
        .find(|line| line.starts_with("pylsl=="))
        .ok_or("pylsl.txt does not pin pylsl")?;
    let install = || {
        cmd!(
            sh,
            "{python} {pip...} install --no-deps --only-binary :all:
                -r crates/lsl-interop/python/mne-lsl.txt {pylsl}"
        )
        .run()
    };
    // A registry may hiccup once.
    install().or_else(|_| install())?;

    let before = loaded(sh, &python)?;
    expect(before.len() == 2, "two libraries of others", &before)?;

    cmd!(sh, "{python} {pip...} install --no-index --no-deps {wheel}").run()?;
    let with = loaded(sh, &python)?;
    let ours = |file: &String| file.ends_with("/site-packages/lsl_rs/liblsl.so.2");
    expect(
        with.len() == 1 && with.iter().all(ours),
        "ours alone",
        &with,
    )?;
    let doctor = cmd!(sh, "{python} -m lsl_rs doctor").read()?;
    println!("{doctor}");
    if doctor.matches("uses lsl-rs").count() != 2 {
        return Err("wheel: the doctor does not say that both packages use lsl-rs".into());
    }

    // Who chose a library keeps it, and the doctor says so by its status too.
    let chosen = before.first().ok_or("no library")?;
    let kept = loaded_with(sh, &python, "PYLSL_LIB", chosen)?;
    expect(kept == [chosen.clone()], "the one in PYLSL_LIB", &kept)?;
    if cmd!(sh, "{python} -m lsl_rs doctor")
        .env("PYLSL_LIB", chosen)
        .ignore_stdout()
        .ignore_stderr()
        .quiet()
        .run()
        .is_ok()
    {
        return Err("wheel: the doctor is content with somebody else's library".into());
    }
    let off = loaded_with(sh, &python, "LSL_RS", "off")?;
    expect(off == before, "with LSL_RS=off what was before", &off)?;

    cmd!(sh, "{python} {pip...} uninstall --yes lsl-rs").run()?;
    let after = loaded(sh, &python)?;
    expect(after == before, "what was before", &after)?;
    let left = cmd!(sh, "find {venv} -iname *lsl_rs*").quiet().read()?;
    if !left.is_empty() {
        return Err(format!("wheel: left behind: {left}").into());
    }
    sh.remove_path(&venv)?;
    println!(
        "wheel: {} {}: installs, is used, is removed",
        super::NAME,
        release.version
    );
    Ok(())
}

fn loaded(sh: &Shell, python: &Path) -> Result<Vec<String>> {
    loaded_with(sh, python, "LSL_RS", "")
}

fn loaded_with(sh: &Shell, python: &Path, name: &str, value: &str) -> Result<Vec<String>> {
    let text = cmd!(sh, "{python} -W ignore -c {LOADED}")
        .env_remove("PYLSL_LIB")
        .env_remove("MNE_LSL_LIB")
        .env(name, value)
        .quiet()
        .read()?;
    Ok(text.lines().map(str::to_owned).collect())
}

fn expect(holds: bool, what: &str, files: &[String]) -> Result {
    if holds {
        return Ok(());
    }
    Err(format!("wheel: expected {what}, loaded were {files:?}").into())
}
