//! `lsl deploy` against a real sshd and a real systemd, on a machine that `stage.sh` makes of
//! namespaces. Run by `cargo xtask deploy`; plain `cargo test` has no such machine, and says so.
#![expect(clippy::print_stdout, reason = "a test runner talks to its user")]
#![cfg_attr(
    target_os = "linux",
    expect(
        clippy::unwrap_used,
        reason = "a test that cannot run is a failed test"
    )
)]
#![forbid(unsafe_code)]

#[cfg(target_os = "linux")]
mod machine;
#[cfg(target_os = "linux")]
mod tests;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};

/// The folder of the stage; only `stage.sh` sets it.
const VARIABLE: &str = "LSL_DEPLOY_STAGE";

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // There is one machine.
    arguments.test_threads = Some(1);
    let is_staged = std::env::var_os(VARIABLE).is_some();
    if !is_staged {
        println!("deploy: ignored: no machine to deploy to; `cargo xtask deploy` makes one");
    }
    libtest_mimic::run(&arguments, trials(is_staged)).exit_code()
}

#[cfg(target_os = "linux")]
fn trials(is_staged: bool) -> Vec<Trial> {
    let trial = |(name, run): &(&str, fn())| {
        let run = *run;
        let test = move || {
            run();
            Ok(())
        };
        Trial::test(*name, test).with_ignored_flag(!is_staged)
    };
    tests::ALL.iter().map(trial).collect()
}

#[cfg(not(target_os = "linux"))]
fn trials(_is_staged: bool) -> Vec<Trial> {
    Vec::new()
}
