//! Our tests as Windows programs, played by Wine: what holds there is "tested under Wine", and nothing more.
//! Not in the gate yet.
//!
//! The stage lies in `target/wine` and is Wine's alone: no program outside sees it, and each test binary has a
//! network of its own. Only what Wine cannot do is left out, by name.

use std::path::{Path, PathBuf};

use xshell::{Shell, cmd};

use crate::{Result, missing, zig};

const TARGET: &str = "x86_64-pc-windows-gnu";
/// Builds for mingw's C runtime; what ships will be linked by zig. Finds what differs in Rust all the same.
const LINKER: &str = "x86_64-w64-mingw32-gcc";
/// Debian 12 has this one. What another can and cannot do was not looked into.
const WINE: &str = "wine-8.0";

/// Test binaries, what cargo calls them, and how many tests of them run at once: those with sockets have
/// limits of time.
const PARTS: &[(&str, &[&str], &str)] = &[
    ("lsl-platform", &["--lib"], "4"),
    ("lsl-secure", &["--lib"], "4"),
    ("lsl-proto", &["--lib"], "4"),
    ("lsl-xdf", &["--lib"], "4"),
    ("lsl-xdf", &["--test", "it"], "4"),
    ("lsl-core", &["--lib"], "4"),
    ("lsl-core", &["--test", "it"], "1"),
];

/// Tests that do not run there: of a package, the beginning of their name or all of it, and why.
const LEFT_OUT: &[(&str, &str, &str)] = &[
    (
        "lsl-core",
        "secure::",
        "lsl-secure reads no keys on Windows yet",
    ),
    (
        "lsl-core",
        "a_flush_returns_",
        "100,000 flushes take minutes",
    ),
    (
        "lsl-core",
        "an_inlet_that_is_closed_while_another_thread_pulls_can_be_used_again",
        "5,000 connections take minutes",
    ),
    (
        "lsl-core",
        "a_thousand_connects_are_counted_and_forgotten",
        "Wine's server takes a minute for them",
    ),
    (
        "lsl-core",
        "stalled_and_talkative_readers_do_not_disturb_others",
        "filling sockets takes longer than it may on a busy machine",
    ),
    (
        "lsl-core",
        "a_handshake_ends_with_its_socket",
        "the reactor tells nothing of a socket that was never connected",
    ),
    (
        "lsl-core",
        "sockets_are_registered_when_the_thread_has_lost_its_locals",
        "thread locals end in another order with mingw: the test has no such moment",
    ),
];

/// Makes the stage and runs everything on it; `filter` is part of the name of a package.
pub(crate) fn run(sh: &Shell, filter: Option<&str>) -> Result {
    let version = cmd!(sh, "wine --version").quiet().ignore_stderr().read();
    if !version.is_ok_and(|version| version.starts_with(WINE)) {
        return missing(WINE, "apt-get install --no-install-recommends wine wine64");
    }
    if cmd!(sh, "{LINKER} --version")
        .quiet()
        .ignore_stdout()
        .run()
        .is_err()
    {
        return missing(
            LINKER,
            "apt-get install --no-install-recommends gcc-mingw-w64-x86-64",
        );
    }
    zig::require_targets(sh, &[TARGET])?;
    let stage = sh.current_dir().join("target/wine");
    let runner = prepare(sh, &stage)?;
    let _settings = [
        ("CARGO_TARGET_DIR", stage.join("build")),
        ("CARGO_PROFILE_DEV_DEBUG", "0".into()),
        ("CARGO_TARGET_X86_64_PC_WINDOWS_GNU_LINKER", LINKER.into()),
        ("CARGO_TARGET_X86_64_PC_WINDOWS_GNU_RUNNER", runner),
        ("PROPTEST_CASES", "16".into()),
    ]
    .map(|(name, value)| sh.push_env(name, value));
    for &(package, part, threads) in PARTS {
        if filter.is_some_and(|filter| !package.contains(filter)) {
            continue;
        }
        let left_out = LEFT_OUT.iter().filter(|(of, ..)| *of == package);
        let skipped: Vec<&str> = left_out.flat_map(|(_, test, _)| ["--skip", test]).collect();
        cmd!(
            sh,
            "cargo test --locked --target {TARGET} -p {package} {part...} -- --test-threads {threads} {skipped...}"
        )
        .run()?;
    }
    println!("wine: tested under {WINE}, not on Windows; left out:");
    for (package, test, reason) in LEFT_OUT {
        println!("  {package} {test}: {reason}");
    }
    Ok(())
}

/// Makes what is not there yet. Returns the program that runs a test binary.
fn prepare(sh: &Shell, stage: &Path) -> Result<PathBuf> {
    sh.create_dir(stage)?;
    let prefix = stage.join("prefix");
    let library = prefix.join("drive_c/windows/system32/bcryptprimitives.dll");
    if !library.is_file() {
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
        let source = stage.join("bcryptprimitives.c");
        sh.write_file(&source, BCRYPTPRIMITIVES)?;
        cmd!(sh, "{LINKER} -shared -O2 -o {library} {source} -ladvapi32").run()?;
    }
    let runner = stage.join("runner");
    let prefix = prefix.display().to_string();
    sh.write_file(&runner, RUNNER.replace("FOLDER", &prefix))?;
    cmd!(sh, "chmod 755 {runner}").run()?;
    Ok(runner)
}

/// Rust's random numbers come from a library that Wine 8.0 lacks.
const BCRYPTPRIMITIVES: &str = "\
#include <windows.h>
BOOLEAN NTAPI SystemFunction036(PVOID, ULONG);
__declspec(dllexport) BOOL WINAPI ProcessPrng(PBYTE data, SIZE_T len) { return SystemFunction036(data, (ULONG)len); }
";

/// Starts Wine before the test, so that the list of interfaces is there, and ends with it whatever it left.
const RUNNER: &str = r#"#!/bin/sh
export WINEPREFIX='FOLDER' WINEDEBUG=-all WINEDLLOVERRIDES='mscoree,mshtml='
exec unshare --net --pid --fork --kill-child --mount-proc sh -c '
ip link set lo up multicast on && ip route add 224.0.0.0/4 dev lo
wine cmd /c exit
wine "$@"
status=$?
wineserver -k
exit $status' sh "$@"
"#;
