//! Interop: `lsl-core` against real liblsl, and two releases of liblsl against each other as proof
//! that the stage itself is sound.
//!
//! Run by `cargo xtask interop [FILTER]`, which provides the libraries and a private network. What
//! is missing makes cells ignored, with the reason printed; no cell ever passes without running.
#![expect(clippy::print_stdout, reason = "a test runner talks to its user")]
#![forbid(unsafe_code)]

mod cell;
mod lab;
mod matrix;
mod peer;
mod values;

use std::process::ExitCode;
use std::sync::Arc;

use libtest_mimic::{Arguments, Trial};

use crate::cell::Cell;
use crate::lab::Lab;

/// Cells spend their time waiting for the other side; more threads only crowd the port range.
const THREADS: usize = 4;

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(THREADS);

    let lab = Arc::new(Lab::from_env());
    let cells = matrix::cells();
    let mut reasons: Vec<String> = Vec::new();
    let trials = cells
        .into_iter()
        .map(|cell| trial(&lab, cell, &mut reasons))
        .collect();
    for reason in &reasons {
        println!("interop: ignored cells: {reason}");
    }

    let conclusion = libtest_mimic::run(&arguments, trials);
    lab.close();
    println!(
        "interop: {} cells, {} passed, {} failed, {} ignored",
        conclusion.num_passed + conclusion.num_failed + conclusion.num_ignored,
        conclusion.num_passed,
        conclusion.num_failed,
        conclusion.num_ignored,
    );
    conclusion.exit_code()
}

/// A cell as a test; ignored if the lab lacks something it needs. Each reason is kept once.
fn trial(lab: &Arc<Lab>, cell: Cell, reasons: &mut Vec<String>) -> Trial {
    let reason = cell.needs.iter().find_map(|library| lab.lacks(*library));
    let is_ignored = reason.is_some();
    if let Some(reason) = reason.filter(|reason| !reasons.contains(reason)) {
        reasons.push(reason);
    }
    let lab = Arc::clone(lab);
    let name = cell.name;
    let source_id = name.clone();
    let run = cell.run;
    Trial::test(name, move || run(&lab, &source_id).map_err(Into::into))
        .with_ignored_flag(is_ignored)
}
