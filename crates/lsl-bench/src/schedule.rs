//! Runs `discovery` and `scale`: for each number of streams every library has its turn in each
//! round, and finished turns are kept however the run ends. The callers define a turn.

use std::io;

use clap::Args;
use lsl_cli::failure::{Failure, Outcome};
use lsl_cli::interrupt::Stop;
use lsl_cli::ui::notice::note;
use lsl_cli::ui::table::{Align, Table};
use lsl_cli::ui::text::count;
use serde_json::Value;

use super::child::interrupted;
use super::library::{Library, Secure, baseline, find};
use super::output::{Measured, Output};
use super::result::{Cell, Machine, Measurement, Round};
use super::rotation::order;
use super::swarm::{Pair, Values, Workplace, is_lsl};
use super::turn_error::TurnError;

/// Options that choose libraries, encryption and the output.
#[derive(Debug, Clone, Args)]
pub(super) struct Schedule {
    /// Libraries: `core` (the Rust library), or the path of one with liblsl's functions. Ratios are
    /// taken to the first; without any, to the first other liblsl that is found
    #[arg(long = "lib", value_name = "LIB", value_delimiter = ',')]
    libraries: Vec<String>,

    /// Without and with encryption, for libraries that can
    #[arg(long, value_enum, value_delimiter = ',', default_value = "off")]
    secure: Vec<Secure>,

    /// Search by multicast as on any network, which leaves this machine: for a network namespace
    #[arg(long)]
    multicast: bool,

    #[command(flatten)]
    output: Output,
}

/// Cells to measure: parameters, numbers of streams and rounds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Grid<'a> {
    pub(super) benchmark: &'static str,
    /// A cell for each of these numbers of streams.
    pub(super) streams: &'a [u32],
    pub(super) rounds: u32,
    /// Parameters that are equal in all cells.
    pub(super) parameters: &'a [(&'static str, Value)],
}

/// One library at one number of streams, measured once.
#[derive(Clone, Copy)]
pub(super) struct LibraryTurn<'a> {
    pub(super) streams: u32,
    pub(super) subject: &'a Library,
    pub(super) stop: &'a Stop,
    place: &'a Workplace,
}

impl Schedule {
    /// Measures all cells, then shows and writes the results.
    pub(super) fn run(
        &self,
        grid: &Grid<'_>,
        measure: impl Fn(&LibraryTurn<'_>) -> Outcome<Measurement>,
        show: impl Fn(&[Library], &[Cell]) -> Outcome,
    ) -> Outcome {
        let stop = Stop::install()?;
        let machine = Machine::here();
        let most = grid.streams.iter().copied().max().unwrap_or(1);
        let place = Workplace::make(most, self.multicast)?;
        let subjects = find(&self.libraries, &self.secure, place.sandbox(), &stop)?;
        if let Some(other) = subjects.iter().find(|subject| !is_lsl(subject)) {
            let name = &other.shown.name;
            return Err(Failure::Usage(format!("{name} has no streams")));
        }
        let mut cells = Vec::new();
        let done = grid.measure(subjects.len(), &mut cells, |streams, round, index| {
            let Some(subject) = subjects.get(index) else {
                return Ok(Measurement::default());
            };
            note(format_args!(
                "lsl: {}, {}, round {} of {}",
                count(streams as usize, "stream"),
                subject.shown.name,
                round + 1,
                grid.rounds
            ));
            measure(&LibraryTurn {
                streams,
                subject,
                stop: &stop,
                place: &place,
            })
        });
        // Without a reader of stdout the files are written all the same.
        let shown = if cells.is_empty() {
            Ok(())
        } else {
            show(&subjects, &cells)
        };
        let measured = Measured {
            benchmark: grid.benchmark,
            baseline: baseline(&subjects, &self.libraries),
            subjects: subjects.into_iter().map(|subject| subject.shown).collect(),
            cells,
        };
        self.output.end(machine, measured, done, &stop).and(shown)
    }
}

impl Grid<'_> {
    /// Has every subject measured in each round. An error ends it; `cells` has the rounds before.
    fn measure(
        &self,
        subjects: usize,
        cells: &mut Vec<Cell>,
        mut measure: impl FnMut(u32, usize, usize) -> Outcome<Measurement>,
    ) -> Outcome {
        for &streams in self.streams {
            let fixed = self.parameters.iter();
            let fixed = fixed.map(|(name, value)| ((*name).to_owned(), value.clone()));
            let mut cell = Cell {
                parameters: fixed
                    .chain([("streams".to_owned(), streams.into())])
                    .collect(),
                rounds: Vec::new(),
            };
            let done: Outcome = (0..self.rounds as usize).try_for_each(|round| {
                let mut measurements = vec![Measurement::default(); subjects];
                for index in order(round, subjects) {
                    let measured = measure(streams, round, index)?;
                    if let Some(slot) = measurements.get_mut(index) {
                        *slot = measured;
                    }
                }
                cell.rounds.push(Round { measurements });
                Ok(())
            });
            if !cell.rounds.is_empty() {
                cells.push(cell);
            }
            done?;
        }
        Ok(())
    }
}

impl<'a> LibraryTurn<'a> {
    /// The processes of the library.
    pub(super) fn pair(&self) -> Outcome<Pair<'a>> {
        Pair::start(self.subject, self.place, self.stop)
    }

    /// Runs `work` and returns its values: those measured before a failure stay.
    pub(super) fn measurement(
        &self,
        work: impl FnOnce(&mut Values) -> Result<(), TurnError>,
    ) -> Outcome<Measurement> {
        let mut values = Values::new();
        let done = work(&mut values);
        measurement(values, done, self.stop)
    }
}

/// A failure of a library is a result; the user's Ctrl-C is not, nor what makes the whole run wrong.
fn measurement(values: Values, done: Result<(), TurnError>, stop: &Stop) -> Outcome<Measurement> {
    let failure = match done {
        Err(_) if stop.requested() => return Err(interrupted()),
        Err(TurnError::Run(failure)) => return Err(failure),
        Err(TurnError::Turn(failure)) => {
            note(format_args!("lsl: {failure}"));
            Some(failure.to_string())
        }
        Ok(()) => None,
    };
    Ok(Measurement {
        values,
        failure,
        ..Measurement::default()
    })
}

/// Converts a count of the other process; 0 if it has none under this name.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "it was counted by the other process"
)]
pub(super) fn whole(values: &Values, name: &str) -> u64 {
    values.get(name).copied().unwrap_or(0.0) as u64
}

/// A row for each number of streams and subject.
pub(super) fn table(
    subjects: &[Library],
    cells: &[Cell],
    columns: &[(&str, &'static str, usize)],
) -> Outcome {
    let mut head = vec![("streams", Align::Right), ("", Align::Left)];
    head.extend(columns.iter().map(|(_, title, _)| (*title, Align::Right)));
    let mut table = Table::new(&head);
    for cell in cells {
        for (index, subject) in subjects.iter().enumerate() {
            let streams = cell.parameters.get("streams").map(ToString::to_string);
            let mut row = vec![streams.unwrap_or_default(), subject.shown.name.clone()];
            let values = columns.iter();
            row.extend(values.map(|(metric, _, digits)| cell.median_text(index, metric, *digits)));
            table.push(row);
        }
    }
    Ok(table.write(&mut io::stdout().lock(), "")?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_library_is_a_result_and_ctrl_c_is_not() {
        let stop = Stop::default();
        let no = || Failure::Runtime("no".into());
        let ends = |trouble| measurement(Values::new(), Err(trouble), &stop);
        let result = ends(TurnError::Turn(no())).unwrap();
        assert_eq!(result.failure.as_deref(), Some("no"));
        assert!(ends(TurnError::Run(no())).is_err());
        stop.request();
        assert!(ends(TurnError::Turn(no())).is_err());
    }

    #[test]
    fn rounds_before_the_end_are_kept() {
        let check = |turns: usize, expected: &[usize]| {
            let grid = Grid {
                benchmark: "scale",
                streams: &[1, 7],
                rounds: 3,
                parameters: &[("channels", 8.into())],
            };
            let (mut cells, mut left) = (Vec::new(), turns);
            let done = grid.measure(2, &mut cells, |streams, _, index| {
                left = left.checked_sub(1).ok_or_else(interrupted)?;
                Ok(Measurement {
                    expected: u64::from(streams),
                    received: index as u64,
                    ..Measurement::default()
                })
            });
            assert_eq!(done.is_ok(), turns >= 12, "{turns}");
            let rounds: Vec<usize> = cells.iter().map(|cell| cell.rounds.len()).collect();
            assert_eq!(rounds, expected, "{turns}");
            for (cell, streams) in cells.iter().zip(grid.streams) {
                assert_eq!(cell.parameters["streams"], *streams);
                assert_eq!(cell.parameters["channels"], 8);
                for round in &cell.rounds {
                    let seen: Vec<(u64, u64)> = round
                        .measurements
                        .iter()
                        .map(|measured| (measured.expected, measured.received))
                        .collect();
                    assert_eq!(seen, [(u64::from(*streams), 0), (u64::from(*streams), 1)]);
                }
            }
        };
        check(12, &[3, 3]);
        check(11, &[3, 2]);
        check(6, &[3]);
        check(5, &[2]);
        check(1, &[]);
    }
}
