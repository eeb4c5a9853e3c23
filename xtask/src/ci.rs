//! The gate: every check in the order a person would want to hear about it.

use std::time::{Duration, Instant};

use xshell::Shell;

use crate::Result;
use crate::ahead::Ahead;

/// A step of the gate by name.
type Step = (&'static str, fn(&Shell) -> Result);

/// The README's command comes first: it is the promise that matters most. Replaying the fuzz
/// corpora is part of it.
const STEPS: &[Step] = &[
    ("test", crate::test),
    ("lint", crate::lint),
    ("doc", crate::doc),
    ("abi", crate::abi::check),
    ("hosts", |sh| {
        crate::hosts::run(sh, None, &crate::hosts::SHORT)
    }),
    ("interop", |sh| crate::interop::run(sh, None)),
    ("xdf", crate::xdf::run),
    ("at-rest", |sh| crate::at_rest::run(sh, None)),
    ("recorder", |sh| {
        crate::recorder::run(sh, &crate::recorder::Wishes::USUAL)
    }),
    ("deploy", |sh| crate::deploy::run(sh, None)),
    ("loom", crate::loom::run),
    ("instructions", |sh| crate::instructions::run(sh, false)),
    ("dist", |sh| crate::dist::run(sh, true)),
    // Examines what `dist` left.
    ("roots", crate::roots::run),
    ("tidy", crate::tidy::run),
    ("models", crate::models::run),
    ("deny", crate::deny),
    ("msrv", crate::msrv),
    ("systems", crate::systems::run),
];

/// Run every step, stop at the first that fails, and say how long each took.
pub(crate) fn run(sh: &Shell) -> Result {
    let _ahead = Ahead::start(sh);
    let mut times = Vec::new();
    let mut failure = None;
    for (name, step) in STEPS {
        println!("\n=== {name}");
        let (result, took) = timed(|| step(sh));
        times.push((*name, took, result.is_ok()));
        if let Err(error) = result {
            failure = Some(format!("step {name} failed: {error}"));
            break;
        }
    }

    println!("\n{:<12} {:>8}", "step", "seconds");
    for (name, took, passed) in &times {
        let state = if *passed { "" } else { "  FAILED" };
        println!("{name:<12} {:>8.1}{state}", took.as_secs_f64());
    }
    for (name, _) in &STEPS[times.len()..] {
        println!("{name:<12} {:>8}", "not run");
    }
    let total: Duration = times.iter().map(|(_, took, _)| *took).sum();
    println!("{:<12} {:>8.1}", "total", total.as_secs_f64());
    match failure {
        None => {
            println!("ci: passed");
            Ok(())
        }
        Some(failure) => Err(format!("ci: {failure}").into()),
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the time a step takes is no LSL time"
)]
fn timed<T>(run: impl FnOnce() -> T) -> (T, Duration) {
    let start = Instant::now();
    let result = run();
    (result, start.elapsed())
}
