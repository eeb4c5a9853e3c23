//! Our tests as Windows programs, played by Wine: what holds there is "tested under Wine", and nothing more.
//! Not in the gate yet.
//!
//! The stage lies in `target/wine` and is Wine's alone: no program outside sees it, and each test binary has a
//! network of its own. Only what Wine cannot do is left out, by name.

mod cli;
mod hosts;
mod stage;

use xshell::{Shell, cmd};

use crate::windows::{LIBRARY, TRIPLE};
use crate::{Result, artefact, interop, missing, zig};

/// Compiles C for Windows.
const CC: &str = "x86_64-w64-mingw32-gcc";
/// Debian 12 has this one. What another can and cannot do was not looked into.
const WINE: &str = "wine-8.0";

/// Test binaries, what cargo calls them, and how many tests of them run at once: those with sockets have
/// limits of time.
const PARTS: &[(&str, &str, &str)] = &[
    ("lsl-platform", "--lib", "4"),
    ("lsl-secure", "--lib", "4"),
    ("lsl-proto", "--lib", "4"),
    ("lsl-xdf", "--lib", "4"),
    ("lsl-xdf", "--test=it", "4"),
    ("lsl-core", "--lib", "4"),
    ("lsl-core", "--test=it", "1"),
    ("lsl-ffi", "--lib", "4"),
];

/// Tests that do not run there: of a package, the beginning of their name or all of it, and why.
const LEFT_OUT: &[(&str, &str, &str)] = &[
    (
        "lsl-secure",
        "processes_share_a_file_and_rotate_it",
        "seen under Wine: a line that cannot be read, and a number that is missing; the cause is not known",
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

/// Makes the stage and runs everything on it; `filter` is part of the name of a package, `interop` or
/// `hosts`.
pub(crate) fn run(sh: &Shell, filter: Option<&str>) -> Result {
    let version = cmd!(sh, "wine --version").quiet().ignore_stderr().read();
    if !version.is_ok_and(|version| version.starts_with(WINE)) {
        return missing(WINE, "apt-get install --no-install-recommends wine wine64");
    }
    for (tool, package) in [(CC, "gcc-mingw-w64-x86-64"), ("mvn", "maven")] {
        if cmd!(sh, "{tool} --version")
            .quiet()
            .ignore_stdout()
            .run()
            .is_err()
        {
            return missing(
                tool,
                &format!("apt-get install --no-install-recommends {package}"),
            );
        }
    }
    zig::require_targets(sh, &[TRIPLE])?;
    let stage = stage::make(sh)?;
    let is_wanted = |part: &str| filter.is_none_or(|filter| part.contains(filter));
    if is_wanted("interop") {
        play_interop(sh, &stage)?;
    }
    if is_wanted("hosts") {
        hosts::play(sh, &stage)?;
    }
    if is_wanted("cli") {
        cli::play(sh, &stage)?;
    }
    for &(package, part, threads) in PARTS {
        if !is_wanted(package) {
            continue;
        }
        let left_out = LEFT_OUT.iter().filter(|(of, ..)| *of == package);
        let skipped: Vec<&str> = left_out.flat_map(|(_, test, _)| ["--skip", test]).collect();
        stage
            .cargo(
                sh,
                &["test", "-p", package, part, "--", "--test-threads", threads],
            )?
            .args(skipped)
            .run()?;
    }
    println!("wine: tested under {WINE}, not on Windows; left out:");
    for (package, test, reason) in LEFT_OUT {
        println!("  {package} {test}: {reason}");
    }
    Ok(())
}

/// Every format both ways between our library for Windows, liblsl for Windows and what runs on Linux.
fn play_interop(sh: &Shell, stage: &stage::Stage) -> Result {
    stage.cargo(sh, &["build", "-p", "lsl-ffi"])?.run()?;
    let ours = stage.build.join(TRIPLE).join("debug").join(LIBRARY);
    let problems = artefact::pe_problems(sh, &ours)?;
    if !problems.is_empty() {
        return Err(format!("{LIBRARY}:\n    {}", problems.join("\n    ")).into());
    }
    interop::build(sh)?;
    let variables = [
        ("LSL_INTEROP_PYTHON", interop::pylsl_python(sh)?),
        ("LSL_INTEROP_LIB_1_18_0", interop::newest_liblsl(sh)?),
        ("LSL_INTEROP_WINDOWS_PYTHON", stage.python.clone()),
        ("LSL_INTEROP_DLL_1_18_0", stage.liblsl.clone()),
        ("LSL_INTEROP_DLL_LSL_FFI", ours),
    ];
    let words = vec![stage.enter.display().to_string()];
    interop::play(sh, words, &variables, &[], Some("Windows"))
}
