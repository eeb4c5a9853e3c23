//! `liblsl.so` for aarch64: under the C programs of `lsl-ffi/tests`, and in Python for aarch64 against
//! real liblsl for this machine. Both use the harness they have here anyway, with another compiler and
//! another Python in its place.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use xshell::{Shell, cmd};

use super::{Stage, ZIG_TARGET};
use crate::{Result, interop, zig};

/// What those on the private machine are told.
const STAGE: &str = "target/emulate/library.txt";

/// The C programs that are left out, and why.
const HOSTS_LEFT_OUT: &[(&str, &str)] = &[
    (
        "churn",
        "minutes: creates and destroys a thousand objects and weighs the process",
    ),
    ("scale", "minutes: a thousand streams"),
    (
        "stress",
        "eight threads at random find the emulator's limits, not ours",
    ),
    (
        "forkbusy",
        "after a fork among busy threads the emulator waits for a lock of its own",
    ),
];

/// The cells that are played: C ABI and command against real liblsl in both roles, all formats.
/// Not over IPv6: qemu has no `IPV6_MULTICAST_IF`.
const CELLS: &[&str] = &[
    "lsl-ffi 110 to liblsl 1.18.0 110/v4/",
    "liblsl 1.18.0 110 to lsl-ffi 110/v4/",
    "lsl gen to pylsl 1.18.6/v4/",
    "lsl recv from pylsl 1.18.6/v4/",
    "secure: lsl gen to lsl-core/v4/",
    "secure: lsl recv from lsl-core/v4/",
];

/// Cells of these names contain some of those above.
const OTHERS: &[&str] = &["pylsl on lsl-ffi", "Windows"];

/// Build the harness, lay out the library, and note where things are: inside there is no network.
pub(super) fn build(sh: &Shell, stage: &Stage) -> Result {
    let hosts = harness(sh, "lsl-ffi", "hosts")?;
    let cells = harness(sh, "lsl-interop", "interop")?;
    let real = interop::newest_liblsl(sh)?;
    let python = interop::pylsl_python(sh)?;

    let prefix = stage.folder.join("prefix");
    sh.remove_path(&prefix)?;
    sh.create_dir(prefix.join("lib"))?;
    for name in ["liblsl.so", "liblsl.so.2"] {
        sh.copy_file(stage.build.join("liblsl.so"), prefix.join("lib").join(name))?;
    }
    cmd!(sh, "cp -r crates/lsl-ffi/include {prefix}").run()?;

    let compiler = zig::python(sh)?;
    script(
        sh,
        &stage.folder.join("bin/cc"),
        &format!(
            "exec '{}' -m ziglang cc -target {ZIG_TARGET} \"$@\"\n",
            compiler.display()
        ),
    )?;
    let root = "$QEMU_LD_PREFIX";
    let ours = prefix.join("lib/liblsl.so");
    // The harness knows one Python for all libraries, and only one of these is for aarch64.
    script(
        sh,
        &stage.folder.join("bin/python-for"),
        &format!(
            "for word; do\n\
             \x20   if [ \"$word\" = '{}' ]; then\n\
             \x20       exec \"{root}/usr/bin/python3.11\" \"$@\"\n\
             \x20   fi\n\
             done\n\
             exec '{}' \"$@\"\n",
            ours.display(),
            python.display()
        ),
    )?;
    let paths = [hosts, cells, real, python, prefix, ours];
    let lines: Vec<String> = paths
        .iter()
        .map(|path| path.display().to_string())
        .collect();
    sh.write_file(STAGE, lines.join("\n"))?;
    Ok(())
}

fn script(sh: &Shell, path: &Path, body: &str) -> Result {
    sh.write_file(path, format!("#!/bin/sh\n{body}"))?;
    cmd!(sh, "chmod 755 {path}").quiet().run()?;
    Ok(())
}

/// The executable of a test, built for this machine.
fn harness(sh: &Shell, package: &str, test: &str) -> Result<PathBuf> {
    let messages = cmd!(
        sh,
        "cargo test --no-run --locked --message-format json-render-diagnostics -p {package} --test {test}"
    )
    .read()?;
    messages
        .lines()
        .find_map(|message| super::suites::text_of(message, "executable"))
        .map(PathBuf::from)
        .ok_or_else(|| format!("cargo names no executable of {test}").into())
}

/// Run everything; how many checks passed.
pub(super) fn run(sh: &Shell, stage: &Stage) -> Result<usize> {
    let paths = sh.read_file(STAGE)?;
    let paths: Vec<PathBuf> = paths.lines().map(PathBuf::from).collect();
    let [hosts, cells, real, python, prefix, ours] = paths.as_slice() else {
        return Err(format!("{STAGE} is not what it should be").into());
    };
    let mut count = 0;

    let mut path = OsString::from(stage.folder.join("bin"));
    path.push(":");
    path.push(sh.var_os("PATH").unwrap_or_default());
    let mut skips = Vec::new();
    for (host, reason) in HOSTS_LEFT_OUT {
        println!("emulate: left out, {reason}: C host {host}");
        skips.extend(["--skip", host]);
    }
    {
        let _inside = sh.push_dir("crates/lsl-ffi");
        let said = cmd!(sh, "{hosts} /plain {skips...}")
            .env("PATH", path)
            .env("LSL_HOSTS_PREFIX", prefix)
            .ignore_status()
            .read()?;
        count += tests(&said, "C hosts")?;
    }

    let _inside = sh.push_dir("crates/lsl-interop");
    for filter in CELLS {
        // These have a Python for this machine, which cannot load the library.
        let skips = OTHERS.iter().flat_map(|name| ["--skip", name]);
        let said = cmd!(sh, "{cells} {filter} {skips...}")
            .env("LSL_INTEROP_STAGE", "1")
            .env("LSL_INTEROP_PYTHON", stage.folder.join("bin/python-for"))
            .env("LSL_INTEROP_PYLSL", python)
            .env("LSL_INTEROP_LIB_1_18_0", real)
            .env("LSL_INTEROP_LIB_LSL_FFI", ours)
            .env("LSL_INTEROP_COMMAND", stage.build.join("lsl"))
            .ignore_status()
            .read()?;
        count += tests(&said, filter)?;
    }
    Ok(count)
}

/// How many tests a harness ran, all of which must have passed, none ignored.
fn tests(said: &str, what: &str) -> Result<usize> {
    let result = said
        .lines()
        .find(|line| line.starts_with("test result: "))
        .unwrap_or("it did not end");
    println!("emulate: {what}: {result}");
    let passed = result
        .strip_prefix("test result: ok. ")
        .and_then(|rest| rest.split_once(" passed"))
        .and_then(|(number, _)| number.parse().ok())
        .filter(|passed| *passed > 0 && result.contains("; 0 ignored;"));
    passed.ok_or_else(|| format!("{said}\n{what} failed under qemu").into())
}
