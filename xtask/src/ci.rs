//! The gate: what every submission has to pass within 25 minutes on two cores; what costs seconds comes
//! first. Everything longer is in `campaign`.

use std::time::{Duration, Instant};

use xshell::Shell;

use crate::recorder::Wishes;
use crate::{Result, Scope};

/// A step of the gate by name.
type Step = (&'static str, fn(&Shell) -> Result);

/// Replaying the fuzz corpora is part of `test`.
const STEPS: &[Step] = &[
    ("fmt", crate::fmt),
    ("tidy", crate::tidy::run),
    ("abi", crate::abi::check),
    ("test", crate::test),
    ("lint", crate::lint),
    ("doc", crate::doc),
    ("hosts", |sh| {
        crate::hosts::run(sh, None, &crate::hosts::SHORT, Scope::Gate)
    }),
    ("interop", |sh| crate::interop::run(sh, None, Scope::Gate)),
    ("wine", |sh| crate::wine::run(sh, None, Scope::Gate)),
    ("xdf", |sh| crate::xdf::run(sh, Scope::Gate)),
    ("at-rest", |sh| crate::at_rest::run(sh, None)),
    ("recorder", |sh| {
        crate::recorder::run(sh, &Wishes::of(Scope::Gate))
    }),
    ("relay", |sh| crate::relay::run(sh, None, Scope::Gate)),
    ("river", |sh| crate::river::run(sh, None, Scope::Gate)),
    ("wire", crate::evidence::wire),
    ("loom", crate::loom::run),
    ("instructions", |sh| crate::instructions::run(sh, false)),
    ("msrv", crate::msrv),
];

/// Run every step, stop at the first that fails, and say how long each took.
pub(crate) fn run(sh: &Shell) -> Result {
    let mut times = Vec::new();
    let mut failure = None;
    for (name, step) in STEPS {
        println!("\n=== {name}");
        let before = processor_time(sh);
        let (result, took) = timed(|| step(sh));
        times.push((*name, took, processor_time(sh) - before, result.is_ok()));
        if let Err(error) = result {
            failure = Some(format!("step {name} failed: {error}"));
            break;
        }
    }

    println!("\n{:<12} {:>8} {:>12}", "step", "seconds", "of processor");
    for (name, took, used, passed) in &times {
        let state = if *passed { "" } else { "  FAILED" };
        println!("{name:<12} {:>8.1} {used:>12.1}{state}", took.as_secs_f64());
    }
    for (name, _) in &STEPS[times.len()..] {
        println!("{name:<12} {:>8}", "not run");
    }
    let total: Duration = times.iter().map(|(_, took, ..)| *took).sum();
    let used: f64 = times.iter().map(|(_, _, used, _)| *used).sum();
    println!("{:<12} {:>8.1} {used:>12.1}", "total", total.as_secs_f64());
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
pub(crate) fn timed<T>(run: impl FnOnce() -> T) -> (T, Duration) {
    let start = Instant::now();
    let result = run();
    (result, start.elapsed())
}

/// Processor seconds of all programs that ended here: what a step costs, whoever else uses the machine.
fn processor_time(sh: &Shell) -> f64 {
    let stat = sh.read_file("/proc/self/stat").unwrap_or_default();
    // After the name in brackets; cutime and cstime (proc(5)), in hundredths.
    let fields = stat.rsplit(") ").next().unwrap_or_default().split(' ');
    let ticks = fields
        .skip(13)
        .take(2)
        .filter_map(|field| field.parse::<f64>().ok());
    ticks.sum::<f64>() / 100.0
}
