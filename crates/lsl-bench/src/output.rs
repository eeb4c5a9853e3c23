//! Writes and shows results, for actions that do not run the grid of `driver`.

use std::path::PathBuf;

use clap::Args;
use lsl_cli::failure::Outcome;
use lsl_cli::interrupt::Stop;
use lsl_cli::ui::notice::note;

use super::driver::finish;
use super::result::{Cell, Machine, Results, SCHEMA, Subject};
use super::summary;

/// Options that choose the folder of results.
#[derive(Debug, Clone, Args)]
pub(super) struct Output {
    /// Folder for the results [default: lsl-bench/BENCHMARK-TIME]
    #[arg(long, short, value_name = "DIR")]
    output: Option<PathBuf>,
}

/// Cells of a finished run, with the subjects they compare.
pub(super) struct Measured {
    pub(super) benchmark: &'static str,
    pub(super) subjects: Vec<Subject>,
    /// Index of the subject that ratios refer to.
    pub(super) baseline: usize,
    pub(super) cells: Vec<Cell>,
}

impl Output {
    /// Works as [`write`](Self::write) with the outcome of the work: rounds that were finished
    /// before Ctrl-C or a failure count.
    pub(super) fn end(
        &self,
        machine: Machine,
        measured: Measured,
        done: Outcome,
        stop: &Stop,
    ) -> Outcome {
        let written = if measured.cells.is_empty() {
            Ok(())
        } else {
            self.write(machine, measured)
        };
        match done {
            // As every command that Ctrl-C ends.
            Err(_) if stop.requested() => {
                note("interrupted: the rounds before that count");
                written
            }
            Err(failure) => Err(failure),
            Ok(()) => written,
        }
    }

    /// Writes it. Ends as every comparison does: with an error if samples are missing.
    pub(super) fn write(&self, machine: Machine, measured: Measured) -> Outcome {
        let results = Results {
            schema: SCHEMA.into(),
            benchmark: measured.benchmark.into(),
            machine,
            args: std::env::args().collect(),
            subjects: measured.subjects,
            baseline: measured.baseline,
            cells: measured.cells,
        };
        let folder = results.folder(self.output.as_deref());
        results.write(&folder)?;
        finish(&results, &folder)?;
        summary::verdict(&results)
    }
}
