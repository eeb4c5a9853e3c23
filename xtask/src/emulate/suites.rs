//! The test binaries of the crates that know processors, sockets or C, built for aarch64.

use std::path::Path;

use xshell::{Shell, cmd};

use super::{CARGO_TARGET, FOLDER};
use crate::Result;

/// What is built, in cargo's words: unit and vector tests, and streams over loopback.
const SELECTION: &str = "-p lsl-core -p lsl-secure -p lsl-platform -p lsl-ffi \
                         --lib --test it";

/// The executables by package, as found at the build.
const LIST: &str = "target/emulate/suites.txt";

/// A test that does not run here.
struct LeftOut {
    package: &'static str,
    /// The whole name, or the beginning of several, ending in `::`.
    test: &'static str,
    reason: &'static str,
}

/// By module where one reason holds for all of it.
const LEFT_OUT: &[LeftOut] = &[
    LeftOut {
        package: "lsl-core",
        test: "query::tests::hostile::",
        reason: EXHAUSTIVE,
    },
    LeftOut {
        package: "lsl-core",
        test: "session::custody::tests::nothing_is_lost_and_one_leads_in_any_order_of_events",
        reason: EXHAUSTIVE,
    },
    LeftOut {
        package: "lsl-core",
        test: "session::fanout::tests::every_sample_arrives_or_is_counted",
        reason: EXHAUSTIVE,
    },
    LeftOut {
        package: "lsl-core",
        test: "wire::sample110::tests::hostile_bytes_neither_panic_nor_fill_the_memory",
        reason: EXHAUSTIVE,
    },
    LeftOut {
        package: "lsl-core",
        test: "xml::tests::hostile_documents_stay_within_the_default_limits",
        reason: EXHAUSTIVE,
    },
    LeftOut {
        package: "lsl-core",
        test: "corpus::",
        reason: EXHAUSTIVE,
    },
    LeftOut {
        package: "lsl-core",
        test: "hostile::",
        reason: PATIENCE,
    },
    LeftOut {
        package: "lsl-core",
        test: "secure::",
        reason: PATIENCE,
    },
    LeftOut {
        package: "lsl-secure",
        test: "admission::",
        reason: EXHAUSTIVE,
    },
    LeftOut {
        package: "lsl-secure",
        test: "handshake::tests::mutation::",
        reason: EXHAUSTIVE,
    },
    LeftOut {
        package: "lsl-secure",
        test: "audit::",
        reason: PATIENCE,
    },
];

const EXHAUSTIVE: &str = "tries thousands of inputs on portable code, minutes when emulated";
const PATIENCE: &str = "its deadlines on sockets and processes are meant for real machines; the \
                        sessions and cells below take its place";

/// Build the tests and note where they are.
pub(super) fn build(sh: &Shell) -> Result {
    let selection = SELECTION.split_whitespace();
    let messages = cmd!(
        sh,
        "cargo-zigbuild test --no-run --locked --message-format json-render-diagnostics --target {CARGO_TARGET} --target-dir {FOLDER} {selection...}"
    )
    .read()?;
    let mut list = String::new();
    for message in messages.lines() {
        let (Some(manifest), Some(executable)) = (
            text_of(message, "manifest_path"),
            text_of(message, "executable"),
        ) else {
            continue;
        };
        list.extend([manifest, "\t", executable, "\n"]);
    }
    sh.write_file(LIST, list)?;
    Ok(())
}

/// The text of a field that contains neither quotes nor backslashes, as paths do.
pub(super) fn text_of<'a>(message: &'a str, field: &str) -> Option<&'a str> {
    let (_, rest) = message.split_once(&format!("\"{field}\":\""))?;
    rest.split('"').next()
}

/// Run them all; how many tests passed.
pub(super) fn run(sh: &Shell) -> Result<usize> {
    let list = sh.read_file(LIST)?;
    let mut passed = 0;
    let mut suites = 0;
    for line in list.lines() {
        let (manifest, executable) = line.split_once('\t').ok_or("no list of tests")?;
        passed += suite(sh, Path::new(manifest), Path::new(executable))?;
        suites += 1;
    }
    if suites == 0 {
        return Err("there are no test binaries".into());
    }
    Ok(passed)
}

fn suite(sh: &Shell, manifest: &Path, executable: &Path) -> Result<usize> {
    let folder = manifest.parent().ok_or("a manifest in no folder")?;
    let package = folder.file_name().unwrap_or_default().to_string_lossy();
    let name = executable.file_name().unwrap_or_default().to_string_lossy();
    let name = name.rsplit_once('-').map_or(&*name, |(name, _)| name);
    // Tests open files relative to their crate.
    let _inside = sh.push_dir(folder);

    let listed = cmd!(sh, "{executable} --list --format terse")
        .quiet()
        .read()?;
    let tests: Vec<&str> = listed
        .lines()
        .filter_map(|line| line.strip_suffix(": test"))
        .collect();
    let mut skips = Vec::new();
    for left_out in LEFT_OUT.iter().filter(|it| it.package == package) {
        let whole = left_out.test;
        let those: Vec<&str> = tests
            .iter()
            .copied()
            .filter(|test| *test == whole || whole.ends_with("::") && test.starts_with(whole))
            .collect();
        if those.is_empty() {
            continue;
        }
        println!(
            "emulate: left out, {}: {package} {name} {whole} ({})",
            left_out.reason,
            those.len()
        );
        skips.extend(those.into_iter().flat_map(|test| ["--skip", test]));
    }
    let left_out = skips.len() / 2;
    let said = cmd!(sh, "{executable} --exact --test-threads 4 {skips...}")
        .quiet()
        .ignore_status()
        .read()?;
    let result = said
        .lines()
        // Tests of a crate may run others in processes of their own, which come first.
        .rfind(|line| line.starts_with("test result: "))
        .unwrap_or("it did not end");
    println!("emulate: {package} {name}: {result}");
    let passed = result
        .strip_prefix("test result: ok. ")
        .and_then(|rest| rest.split_once(" passed"))
        .and_then(|(number, _)| number.parse().ok())
        .filter(|passed| passed + left_out == tests.len());
    passed.ok_or_else(|| format!("{said}\n{package} {name} failed under qemu").into())
}
