//! Everything that programs of Windows need here: Wine's folder, a Python of Windows with pylsl, and a
//! network without anybody else. All of it lies in `target/wine`; what is no package of Debian is checked
//! against its checksum.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use xshell::{Cmd, Shell, cmd};

use super::CC;
use crate::windows::TRIPLE;
use crate::{Result, artefact, zig};

/// What was made.
pub(super) struct Stage {
    /// Runs the program that it is given inside: Wine is up there, and ends with it.
    pub(super) enter: PathBuf,
    /// Starts the Python of Windows; only inside.
    pub(super) python: PathBuf,
    /// The library in pylsl's wheel.
    pub(super) liblsl: PathBuf,
    /// What cargo builds for Windows.
    pub(super) build: PathBuf,
    runner: PathBuf,
}

/// Archives by name with their checksums (SHA-256) and the folders they are unpacked into.
const ARCHIVES: &[(&str, &str, &str)] = &[
    (
        "cpython-3.11.3-1.5.9-windows-x86_64.jar",
        "3263a50b256447bb7b9e604d6587627e419891370fc33b94469e6a06ff4de834",
        "python",
    ),
    (
        "pylsl-1.18.6-py3-none-win_amd64.whl",
        "2ea0d831cc38653a2fc69a6242ffeb2315b82ab31719c255330afe3d6b7421dc",
        "packages",
    ),
    (
        "numpy-1.26.4-cp311-cp311-win_amd64.whl",
        "cd25bcecc4974d09257ffcd1f098ee778f7834c3ad767fe5db785be9a4aa9cb2",
        "packages",
    ),
];

/// Maven's client, and the Python that it knows.
const MAVEN_COPY: &str = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy";
const PYTHON: &str = "org.bytedeco:cpython:3.11.3-1.5.9:jar:windows-x86_64";
const WHEELS: [&str; 2] = ["pylsl==1.18.6", "numpy==1.26.4"];
/// mne-lsl and what it imports, with checksums.
const MNE_LSL: &str = "crates/lsl-interop/python/mne-lsl-windows.txt";

/// Packages for that Python, whatever this one is.
const PIP_OPTIONS: [&str; 8] = [
    "-q",
    "--disable-pip-version-check",
    "--no-deps",
    "--only-binary",
    ":all:",
    "--platform",
    "win_amd64",
    "--python-version=3.11",
];
const PYTHON_HOME: &str = "python/org/bytedeco/cpython/windows-x86_64";

/// Makes what is not there yet.
pub(super) fn make(sh: &Shell) -> Result<Stage> {
    let folder = sh.current_dir().join("target/wine");
    sh.create_dir(&folder)?;
    prefix(sh, &folder)?;
    unpack(sh, &folder)?;
    let script = |name: &str, text: &str| -> Result<PathBuf> {
        let file = folder.join(name);
        let text = text.replace("PYTHON_HOME", PYTHON_HOME);
        let text = text.replace("FOLDER", &folder.display().to_string());
        sh.write_file(&file, text)?;
        cmd!(sh, "chmod 755 {file}").quiet().run()?;
        Ok(file)
    };
    Ok(Stage {
        enter: script("enter", ENTER)?,
        runner: script("runner", "#!/bin/sh\nexec 'FOLDER/enter' wine \"$@\"\n")?,
        python: script("start-python", START_PYTHON)?,
        liblsl: folder.join("packages/pylsl/lib/lsl.dll"),
        build: folder.join("build"),
    })
}

impl Stage {
    /// Cargo for Windows, linked as what ships is; its tests run inside.
    pub(super) fn cargo<'sh>(&self, sh: &'sh Shell, words: &[&str]) -> Result<Cmd<'sh>> {
        let (verb, words) = words.split_first().ok_or("cargo what?")?;
        Ok(cmd!(
            sh,
            "cargo-zigbuild {verb} --locked --target {TRIPLE} {words...}"
        )
        .env("PATH", zig::search_path(sh)?)
        .env("CARGO_TARGET_DIR", &self.build)
        .env("CARGO_PROFILE_DEV_DEBUG", "0")
        .env("CARGO_TARGET_X86_64_PC_WINDOWS_GNU_RUNNER", &self.runner)
        .env("PROPTEST_CASES", "16"))
    }
}

/// Adds mne-lsl to the Python of Windows, and compiles what it imports: else each program of it takes twice as long.
pub(super) fn add_mne_lsl(sh: &Shell, stage: &Stage) -> Result {
    let folder = sh.current_dir().join("target/wine/mne-lsl");
    // Written last, so that half of it is none.
    let sign = folder.join("unpacked");
    let wanted = sh.read_file(MNE_LSL)?;
    if sh.read_file(&sign).is_ok_and(|text| text == wanted) {
        return Ok(());
    }
    sh.remove_path(&folder)?;
    let wheels = folder.join("wheels");
    let python = zig::python(sh)?;
    let download = || {
        cmd!(
            sh,
            "{python} -m pip download {PIP_OPTIONS...} --require-hashes --dest {wheels} -r {MNE_LSL}"
        )
        .run()
    };
    download().or_else(|_| download())?;
    for wheel in sh.read_dir(&wheels)? {
        cmd!(sh, "python3 -m zipfile -e {wheel} {folder}").run()?;
    }
    add_stable_python(sh)?;
    sh.remove_path(&wheels)?;
    let (enter, python) = (&stage.enter, &stage.python);
    let imports = "import mne_lsl.player, mne_lsl.stream";
    cmd!(sh, "{enter} {python} -c {imports}")
        .env("MNE_LSL_LIB", &stage.liblsl)
        .env_remove("PYTHONDONTWRITEBYTECODE")
        .run()?;
    Ok(sh.write_file(sign, wanted)?)
}

/// Makes `python3.dll`, which psutil wants and the archive lacks: it passes calls on to the Python of this version.
fn add_stable_python(sh: &Shell) -> Result {
    let home = sh.current_dir().join("target/wine").join(PYTHON_HOME);
    let mut text = "LIBRARY python3.dll\nEXPORTS\n".to_owned();
    for name in artefact::pe_exports(sh, &home.join("python311.dll"))? {
        writeln!(text, "{name}=python311.{name}")?;
    }
    let (list, library) = (home.join("python3.def"), home.join("python3.dll"));
    sh.write_file(&list, text)?;
    Ok(cmd!(
        sh,
        "{CC} -shared -nostdlib -Wl,--entry=0 -o {library} {list}"
    )
    .run()?)
}

/// What Wine takes for the disk of Windows.
fn prefix(sh: &Shell, folder: &Path) -> Result {
    let prefix = folder.join("prefix");
    let library = prefix.join("drive_c/windows/system32/bcryptprimitives.dll");
    if library.is_file() {
        return Ok(());
    }
    sh.remove_path(&prefix)?;
    let _settings = [
        ("WINEPREFIX", prefix.as_os_str()),
        ("WINEARCH", "win64".as_ref()),
        ("WINEDLLOVERRIDES", "mscoree,mshtml=".as_ref()),
        ("WINEDEBUG", "-all".as_ref()),
    ]
    .map(|(name, value)| sh.push_env(name, value));
    cmd!(sh, "wineboot -i").run()?;
    cmd!(sh, "wineserver -w").run()?;
    let source = folder.join("bcryptprimitives.c");
    sh.write_file(&source, BCRYPTPRIMITIVES)?;
    cmd!(sh, "{CC} -shared -O2 -o {library} {source} -ladvapi32").run()?;
    Ok(())
}

/// Fetches, checks and unpacks the archives.
fn unpack(sh: &Shell, folder: &Path) -> Result {
    let fetched = folder.join("fetched");
    // Written last, so that half of it is none.
    let sign = folder.join("packages/unpacked");
    let wanted = format!("{ARCHIVES:?}");
    if sh.read_file(&sign).is_ok_and(|text| text == wanted) {
        return Ok(());
    }
    for (name, _, into) in ARCHIVES {
        sh.remove_path(folder.join(into))?;
        sh.remove_path(fetched.join(name))?;
    }
    let repository = folder.join("maven");
    let maven = || {
        cmd!(
            sh,
            "mvn --batch-mode --quiet -Dmaven.repo.local={repository} {MAVEN_COPY}
                -Dartifact={PYTHON} -DoutputDirectory={fetched}"
        )
        .run()
    };
    let python = zig::python(sh)?;
    let pip = || {
        cmd!(
            sh,
            "{python} -m pip download {PIP_OPTIONS...} --dest {fetched} {WHEELS...}"
        )
        .run()
    };
    // A registry may hiccup once.
    maven().or_else(|_| maven())?;
    pip().or_else(|_| pip())?;
    sh.remove_path(&repository)?;
    for (name, sum, into) in ARCHIVES {
        let archive = fetched.join(name);
        let into = folder.join(into);
        let said = cmd!(sh, "sha256sum {archive}").quiet().read()?;
        if !said.starts_with(sum) {
            return Err(format!("{name} is not what it was: {said}").into());
        }
        cmd!(sh, "python3 -m zipfile -e {archive} {into}").run()?;
    }
    Ok(sh.write_file(sign, wanted)?)
}

/// Rust's random numbers come from a library that Wine 8.0 lacks.
const BCRYPTPRIMITIVES: &str = "\
#include <windows.h>
BOOLEAN NTAPI SystemFunction036(PVOID, ULONG);
__declspec(dllexport) BOOL WINAPI ProcessPrng(PBYTE data, SIZE_T len) { return SystemFunction036(data, (ULONG)len); }
";

/// Starts Wine before the program, so that the list of interfaces is there, and ends with it whatever it left.
/// Temporary files go first: they are named by process ids, which repeat.
const ENTER: &str = r#"#!/bin/sh
export WINEPREFIX='FOLDER/prefix' WINEDEBUG=-all WINEDLLOVERRIDES='mscoree,mshtml='
rm -rf "$WINEPREFIX"/drive_c/users/*/Temp/*
exec unshare --net --pid --fork --kill-child --mount-proc sh -c '
ip link set lo up multicast on && ip route add 224.0.0.0/4 dev lo
wine cmd /c exit
"$@"
status=$?
wineserver -k
exit $status' sh "$@"
"#;

/// Speaks UTF-8 on pipes, as Pythons elsewhere do. A file of Linux for its output or errors ends it ("Invalid
/// handle"): it gets pipes.
const START_PYTHON: &str = r#"#!/bin/bash
export PYTHONHOME='FOLDER/PYTHON_HOME' PYTHONPATH='FOLDER/packages;FOLDER/mne-lsl' PYTHONUTF8=1
[ -f /dev/stdout ] && exec > >(cat)
exec wine "$PYTHONHOME/python.exe" "$@" 2> >(cat >&2)
"#;
