//! Programs in C and C++ that use the library as foreign programs do, rightly and wrongly: built
//! against the installed layout, run plainly, under AddressSanitizer and under valgrind.
//!
//! Run by `cargo xtask hosts [FILTER]`, which installs the library, fetches foreign headers and makes
//! a private network. What is missing makes tests ignored, with the reason printed.
#![expect(clippy::print_stdout, reason = "a test runner talks to its user")]

mod host;
mod idioms;
mod keys;
mod package;
mod probes;
mod stack;
mod stage;

use std::process::ExitCode;
use std::sync::Arc;

use libtest_mimic::{Arguments, Trial};

use crate::stage::{Outcome, Stage};

/// A test and what it needs; without that it is ignored.
struct Test {
    name: String,
    needs: Vec<Need>,
    run: Box<dyn FnOnce(&Stage) -> Outcome + Send>,
}

/// Something a machine may lack.
#[derive(Clone, Copy)]
enum Need {
    /// A command on the path.
    Tool(&'static str),
    /// What only `cargo xtask hosts` provides, by the name of its variable.
    Variable(&'static str),
    /// That a program can be given to another user and run with his rights.
    Setuid,
}

/// Hosts count their own threads and descriptors, not each other's; more at a time only slow down the
/// ones that measure time.
const THREADS: usize = 2;

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(THREADS);
    let stage = Arc::new(Stage::from_env());
    let tests = host::tests().into_iter();
    let tests = tests
        .chain(idioms::tests())
        .chain(keys::tests())
        .chain(package::tests())
        .chain(probes::tests())
        .chain(stack::tests());
    let mut reasons: Vec<String> = Vec::new();
    let mut trials = Vec::new();
    for test in tests {
        let reason = stage.reason_against(&test.needs);
        let is_ignored = reason.is_some();
        reasons.extend(reason.filter(|reason| !reasons.contains(reason)));
        let stage = Arc::clone(&stage);
        let trial = Trial::test(test.name, move || Ok((test.run)(&stage)?));
        trials.push(trial.with_ignored_flag(is_ignored));
    }
    for reason in &reasons {
        println!("hosts: ignored: {reason}");
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}
