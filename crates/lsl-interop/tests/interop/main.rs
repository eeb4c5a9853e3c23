//! Interop: `lsl-core` against real liblsl, and two releases of liblsl against each other as proof
//! that the stage itself is sound.
//!
//! Run by `cargo xtask interop [FILTER]`, which provides the libraries and a private network. What
//! is missing makes cells ignored, with the reason printed; no cell ever passes without running.
#![expect(clippy::print_stdout, reason = "a test runner talks to its user")]
#![forbid(unsafe_code)]

mod capture;
mod cell;
mod command;
mod command_scenes;
mod enrolment;
mod keys;
mod lab;
mod matrix;
mod ours;
mod peer;
mod programs;
mod report;
mod scenes;
mod secrecy;
mod secure_scenes;
mod side;
mod values;

use std::process::ExitCode;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use libtest_mimic::{Arguments, Trial};

use crate::cell::Cell;
use crate::lab::Lab;
use crate::peer::locked;
use crate::report::Report;

/// Cells spend their time waiting for the other side; more threads only crowd the port range.
const THREADS: usize = 4;

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(THREADS);

    let lab = Arc::new(Lab::from_env());
    let report = Arc::new(Mutex::new(Report::default()));
    let mut reasons: Vec<String> = Vec::new();
    let mut trials = Vec::new();
    for cell in matrix::cells() {
        let place = cell.place.clone();
        let reason = lab.reason_against(&cell);
        let trial = trial(&lab, &report, cell).with_ignored_flag(reason.is_some());
        let mut report = locked(&report);
        report.list(&place);
        if let Some(reason) = reason.filter(|_| !arguments.is_filtered_out(&trial)) {
            report.ignored(&place);
            // Each reason is told once.
            if !reasons.contains(&reason) {
                reasons.push(reason);
            }
        }
        trials.push(trial);
    }
    for reason in &reasons {
        println!("interop: ignored cells: {reason}");
    }

    let conclusion = libtest_mimic::run(&arguments, trials);
    lab.close();
    // Without any cell run, the reasons above say it all.
    if conclusion.num_passed + conclusion.num_failed > 0 {
        print!("{}", locked(&report));
    }
    println!(
        "interop: {} cells, {} passed, {} failed, {} ignored",
        conclusion.num_passed + conclusion.num_failed + conclusion.num_ignored,
        conclusion.num_passed,
        conclusion.num_failed,
        conclusion.num_ignored,
    );
    conclusion.exit_code()
}

fn trial(lab: &Arc<Lab>, report: &Arc<Mutex<Report>>, cell: Cell) -> Trial {
    let lab = Arc::clone(lab);
    let report = Arc::clone(report);
    Trial::test(cell.name.clone(), move || {
        locked(&report).begun(&cell.place);
        let (sender, result) = channel();
        // In a thread of its own, so that a cell that hangs fails and the others go on.
        thread::spawn(move || {
            let deaths = lab.deaths();
            let mut outcome = (cell.run)(&lab, &cell.name);
            if outcome.is_err() {
                // A pipe breaks before its process can be seen to have ended.
                thread::sleep(Duration::from_millis(200));
            }
            if outcome.is_err() && lab.deaths() != deaths && lab.deaths() <= FORGIVEN {
                outcome = (cell.run)(&lab, &cell.name);
            }
            sender.send(outcome)
        });
        result.recv_timeout(LIMIT).map_err(|error| match error {
            RecvTimeoutError::Timeout => format!("no end after {} s", LIMIT.as_secs()),
            RecvTimeoutError::Disconnected => "panicked".to_owned(),
        })??;
        locked(&report).passed(&cell.place);
        Ok(())
    })
}

/// Deaths of real liblsl in a run after which cells are repeated. Once in some runs 1.18.0 crashes in its own
/// threads when an inlet is destroyed (libstdc++, general protection).
const FORGIVEN: u32 = 2;

/// Every wait within a cell ends earlier.
const LIMIT: Duration = Duration::from_secs(130);
