//! Our tests as Windows programs, played by Wine: what holds there is "tested under Wine", and nothing more.
//!
//! The stage lies in `target/wine` and is Wine's alone: no program outside sees it, and each test binary has a
//! network of its own. Only what Wine cannot do is left out, by name.

mod cli;
mod hosts;
mod stage;

use xshell::{Shell, cmd};

use crate::windows::{LIBRARY, TRIPLE};
use crate::{Result, Scope, artefact, ci, interop, missing, zig};
use stage::Stage;

/// Compiles C for Windows.
const CC: &str = "x86_64-w64-mingw32-gcc";
/// Debian 12 has this one. What another can and cannot do was not looked into.
const WINE: &str = "wine-8.0";

/// Test binaries, what cargo calls them, and how many tests of them run at once: those with sockets have
/// limits of time.
const PARTS: &[(&str, &str, &str)] = &[
    ("lsl-platform", "--lib", "4"),
    ("lsl-secure", "--lib", "2"),
    ("lsl-proto", "--lib", "4"),
    ("lsl-xdf", "--lib", "4"),
    ("lsl-xdf", "--test=it", "4"),
    ("lsl-core", "--lib", "4"),
    ("lsl-core", "--test=it", "4"),
    ("lsl-ffi", "--lib", "4"),
    ("lsl-record", "--lib", "4"),
    ("lsl-record", "--test=it", "4"),
    ("lsl-doctor", "--lib", "4"),
];

/// Test binaries of the campaign alone.
const LONG_PARTS: &[(&str, &str, &str)] = &[("lsl-cli", "--test=it", "1")];

/// A part that brings programs of its own.
type Play = fn(&Shell, &Stage, Scope) -> Result;

const PLAYS: &[(&str, Play)] = &[
    ("interop", play_interop),
    ("hosts", hosts::play),
    ("cli", cli::play),
];

/// Tests that run in the campaign alone, as [`LEFT_OUT`] names them.
const LONG: &[(&str, &str, &str)] = &[
    (
        "lsl-core",
        "secure::",
        "the gate has encrypted sessions on Linux",
    ),
    ("lsl-core", "a_flush_returns_", "10,000 flushes"),
    (
        "lsl-core",
        "an_inlet_that_is_closed_while_another_thread_pulls_can_be_used_again",
        "5,000 connections",
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
];

/// Tests that do not run there: of a package, the beginning of their name or all of it, and why. docs/windows.md
/// has the same list.
const LEFT_OUT: &[(&str, &str, &str)] = &[
    (
        "lsl-secure",
        "processes_share_a_file_and_rotate_it",
        "seen under Wine: a line that cannot be read, and a number that is missing; the cause is not known",
    ),
    (
        "lsl-secure",
        "a_flush_does_not_wait_for_what_is_recorded_after_it",
        "700 lines a second are written there: it takes minutes",
    ),
    (
        "lsl-secure",
        "nothing_is_lost_when_the_process_exits",
        "700 lines a second are written there, so that half a second is too short",
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
    (
        "lsl-cli",
        "streams::a_killed_sender_ends_the_stream_too",
        "of a process that is killed within `send` Wine's server keeps the socket open, so that its peer hears nothing",
    ),
    (
        "lsl-cli",
        "doctor::a_stream_that_is_nowhere_has_no_cause",
        "it has one there, as Wine has no network: `net.none`",
    ),
];

/// Makes the stage and runs everything on it, as much as `scope` says; `filter` is part of the name of a package
/// or of one of [`PLAYS`].
pub(crate) fn run(sh: &Shell, filter: Option<&str>, scope: Scope) -> Result {
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
    let longer = if scope == Scope::Gate { LONG } else { &[] };
    let left_out = || LEFT_OUT.iter().chain(longer);
    let mut times = Vec::new();
    let long_parts = if scope == Scope::Gate {
        &[][..]
    } else {
        LONG_PARTS
    };
    let parts = PARTS.iter().chain(long_parts);
    for &(package, part, most) in parts.filter(|(package, ..)| is_wanted(package)) {
        let of_it = left_out().filter(|(of, ..)| *of == package);
        let skipped: Vec<&str> = of_it.flat_map(|(_, test, _)| ["--skip", test]).collect();
        // With nobody waiting, limits of time mean more than time.
        let threads = if scope == Scope::Gate { most } else { "1" };
        let words = ["test", "-p", package, part, "--", "--test-threads", threads];
        let tests = stage.cargo(sh, &words)?.args(skipped);
        let (result, took) = ci::timed(|| tests.run());
        result?;
        times.push((format!("{package} {part}"), took));
    }
    for (name, play) in PLAYS.iter().filter(|(name, _)| is_wanted(name)) {
        let (result, took) = ci::timed(|| play(sh, &stage, scope));
        result?;
        times.push(((*name).to_owned(), took));
    }
    if times.is_empty() {
        return Err(format!("no part is called {}", filter.unwrap_or_default()).into());
    }
    for (part, took) in times {
        println!("{part:<24} {:>6.1} s", took.as_secs_f64());
    }
    println!("wine: tested under {WINE}, not on Windows; left out:");
    for (package, test, reason) in left_out().filter(|(package, ..)| is_wanted(package)) {
        println!("  {package} {test}: {reason}");
    }
    Ok(())
}

/// Every format both ways between our library for Windows, liblsl for Windows and what runs on Linux; and Python
/// packages on ours.
fn play_interop(sh: &Shell, stage: &Stage, scope: Scope) -> Result {
    stage.cargo(sh, &["build", "-p", "lsl-ffi"])?.run()?;
    let ours = stage.build.join(TRIPLE).join("debug").join(LIBRARY);
    let problems = artefact::pe_problems(sh, &ours)?;
    if !problems.is_empty() {
        return Err(format!("{LIBRARY}:\n    {}", problems.join("\n    ")).into());
    }
    interop::build(sh)?;
    let mut variables = vec![
        ("LSL_INTEROP_PYTHON", interop::pylsl_python(sh)?),
        ("LSL_INTEROP_LIB_1_18_0", interop::newest_liblsl(sh)?),
        ("LSL_INTEROP_WINDOWS_PYTHON", stage.python.clone()),
        ("LSL_INTEROP_DLL_1_18_0", stage.liblsl.clone()),
        ("LSL_INTEROP_DLL_LSL_FFI", ours),
    ];
    let mut gaps = Vec::new();
    if scope == Scope::Gate {
        gaps.push("mne-lsl is for `cargo xtask wine --all`".to_owned());
    } else {
        stage::add_mne_lsl(sh, stage)?;
        variables.push(("LSL_INTEROP_WINDOWS_MNE_LSL", stage.python.clone()));
    }
    let words = vec![stage.enter.display().to_string()];
    interop::play(sh, words, &variables, &gaps, Some("Windows"))
}

#[cfg(test)]
mod tests {
    use super::LEFT_OUT;

    #[test]
    fn the_page_lists_every_test_that_is_left_out() {
        let page = include_str!("../../docs/windows.md");
        let (_, table) = page.split_once("\n## Tests that are left out\n").unwrap();
        let rows = table.lines().filter(|line| line.starts_with("| `"));
        let expected = LEFT_OUT
            .iter()
            .map(|(package, test, reason)| format!("| `{test}` | {package} | {reason} |"));
        assert_eq!(rows.collect::<Vec<_>>(), expected.collect::<Vec<_>>());
    }
}
