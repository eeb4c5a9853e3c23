//! The test binaries of the crates that know processors, sockets or C, built for aarch64.

use std::path::Path;

use xshell::{Shell, cmd};

use super::{CARGO_TARGET, FOLDER};
use crate::Result;

/// What is built, in cargo's words: unit and vector tests, and streams over loopback.
const SELECTION: &str = "-p lsl-core -p lsl-proto -p lsl-secure -p lsl-platform \
                         -p lsl-ffi --lib --test it";

/// The executables by package, as found at the build.
const LIST: &str = "target/emulate/suites.txt";

/// Tests that do not run here. Most measure a clock over round trips that must be quick, 5 to 30 ms: how
/// quick the emulator is says nothing about any machine. The pages of keys are left out because qemu takes
/// MADV_DONTDUMP and does nothing; the last three because it does not know the socket options SO_MEMINFO,
/// SO_BINDTOIFINDEX and IP_MTU.
const LEFT_OUT: &[&str] = &[
    "locked::tests::pages_of_keys_are_locked_wiped_and_not_dumped",
    "anywhere::a_foreign_executor_can_do_everything",
    "streaming::clocks_on_one_host_agree",
    "streaming::a_clock_is_measured_again_however_rarely_that_is_wanted",
    "socket::tests::a_socket_knows_what_it_lost",
    "socket::prepare::tests::a_socket_of_loopback_reaches_nobody_else",
    "routes::tests::this_host_is_reached_by_loopback",
];

/// Build the tests and note where they are.
pub(super) fn build(sh: &Shell) -> Result {
    let selection = SELECTION.split_whitespace();
    // Emulated, code without optimisation costs more time than optimisation costs the compiler, and
    // passes the deadlines that tests have for sockets and processes.
    let _optimised = sh.push_env("CARGO_PROFILE_DEV_OPT_LEVEL", "1");
    let _lean = sh.push_env("CARGO_PROFILE_DEV_DEBUG", "0");
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
    for test in LEFT_OUT.iter().filter(|test| tests.contains(test)) {
        println!("emulate: left out, a matter of the emulator: {package} {name} {test}");
        skips.extend(["--skip", test]);
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
