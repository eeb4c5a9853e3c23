//! Runs a grid of measurements: all subjects in each round, in rotating order, so that whatever else
//! the machine does meets all of them alike. An action makes the cells; everything else is here.

mod exchange;
mod progress;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use lsl_cli::failure::{Failure, Outcome};
use lsl_cli::interrupt::Stop;
use lsl_cli::ui::notice::note;
use serde_json::Value;

pub(super) use self::exchange::{Sides, wrong_order};
use self::exchange::{exchange, measurement};
pub(super) use self::progress::Progress;
use super::child::{Child, interrupted};
use super::job::{Job, Task};
use super::library::{self, ENDPOINT, Library, Secure};
use super::report;
use super::result::{Cell, Machine, Measurement, Results, Round, SCHEMA};
use super::sandbox::Sandbox;
use super::summary::{self, Table};
use super::turn_error::TurnError;
use super::via::{self, Via};

/// Options that all comparisons of libraries share.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Comparison")]
pub(super) struct Comparison {
    /// What to measure: the path of a liblsl (any library with its functions), core (our Rust
    /// library), raw:tcp or raw:tcp-aesgcm (sockets without LSL); may be repeated [default: our
    /// liblsl if it is beside this program, else core; and the first other liblsl there is]
    #[arg(long = "lib", value_name = "LIB")]
    libraries: Vec<String>,

    /// Ways of the samples, of our Rust library, in place of --lib: to readers directly, through a relay, or
    /// through a Redis server that a relay writes to and that is started here
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        conflicts_with = "libraries",
        value_name = "WAY,…"
    )]
    via: Vec<Via>,

    /// Name of the one that ratios are taken to, as in the table [default: the first other liblsl
    /// that was found, or the first --lib]
    #[arg(long, value_name = "NAME")]
    baseline: Option<String>,

    /// Without encryption, with it, or both (with a comma); those that cannot encrypt take part in
    /// plaintext
    #[arg(long, value_enum, value_delimiter = ',', value_name = "off,on")]
    secure: Vec<Secure>,

    /// How often each is measured, in turns [default: 7, with --quick 3]
    #[arg(long, value_name = "N")]
    rounds: Option<usize>,

    /// Busy processes to run beside everything
    #[arg(long, default_value_t = 0, value_name = "N")]
    hogs: usize,

    /// Folder for the results [default: lsl-bench/BENCHMARK-TIME]
    #[arg(long, short, value_name = "DIR")]
    output: Option<PathBuf>,

    /// A look of about 20 seconds: fewer cells, shorter, fewer rounds
    #[arg(long)]
    pub(super) quick: bool,
}

/// One point of the grid.
#[derive(Debug, Clone)]
pub(super) struct Point {
    /// Names and values of what varies.
    pub(super) parameters: Vec<(&'static str, Value)>,
    /// The job of every subject; the driver fills in backend, stream and addresses.
    pub(super) job: Job,
    /// Returns the reason for which a subject cannot run this benchmark.
    pub(super) cannot: fn(&Library) -> Option<&'static str>,
}

/// Makes metrics of what both sides of a job report.
pub(super) type Finish = fn(&Job, &Sides, &mut BTreeMap<String, f64>);

/// A benchmark made of measurements by two processes.
pub(super) struct Benchmark {
    pub(super) name: &'static str,
    pub(super) points: Vec<Point>,
    /// Makes metrics of its own from what both sides report.
    pub(super) finish: Finish,
    pub(super) table: Table,
}

/// Subjects, processes and settings of one comparison.
pub(super) struct Driver {
    pub(super) subjects: Vec<Library>,
    pub(super) sandbox: Sandbox,
    pub(super) stop: Stop,
    baseline: usize,
    rounds: usize,
    hogs: usize,
    has_redis: bool,
    run: usize,
}

impl Comparison {
    /// Finds the subjects and describes them on stderr.
    pub(super) fn driver(&self) -> Outcome<Driver> {
        let stop = Stop::install()?;
        let sandbox = Sandbox::make(PORTS)?;
        let subjects = if self.via.is_empty() {
            library::find(&self.libraries, &self.secure, &sandbox, &stop)?
        } else {
            library::by_ways(&self.via, &self.secure)
        };
        let has_redis = via::has_redis();
        if !has_redis && subjects.iter().any(|subject| subject.via.is_stored()) {
            note("there is no redis-server on this machine: packed and river are not measured");
        }
        let name_of = |subject: &Library| subject.shown.name.clone();
        let baseline = match &self.baseline {
            None if !self.via.is_empty() => 0,
            None => library::baseline(&subjects, &self.libraries),
            Some(name) => subjects
                .iter()
                .position(|subject| subject.shown.name == *name)
                .ok_or_else(|| {
                    let names: Vec<String> = subjects.iter().map(name_of).collect();
                    let names = names.join("', '");
                    Failure::Usage(format!("--baseline {name}: there are '{names}'"))
                })?,
        };
        for (index, subject) in subjects.iter().enumerate() {
            let mark = if index == baseline && subjects.len() > 1 {
                ", the baseline"
            } else {
                ""
            };
            note(format_args!(
                "{}: {}{mark}",
                subject.shown.name, subject.shown.detail
            ));
        }
        Ok(Driver {
            subjects,
            sandbox,
            stop,
            baseline,
            rounds: self.rounds(),
            hogs: self.hogs,
            has_redis,
            run: 0,
        })
    }

    /// Returns the same for all ways, if none is named: one round, into this folder.
    pub(super) fn of_all_ways(&self, folder: &Path) -> Outcome<Self> {
        if !self.libraries.is_empty() {
            let text = "--lib: this compares ways of our own library; see --via";
            return Err(Failure::Usage(text.into()));
        }
        let mut all = self.clone();
        if all.via.is_empty() {
            all.via = Via::value_variants().to_vec();
        }
        all.rounds = all.rounds.or(Some(1));
        all.output = all.output.or_else(|| Some(folder.to_owned()));
        Ok(all)
    }

    pub(super) fn output(&self) -> Option<&Path> {
        self.output.as_deref()
    }

    pub(super) fn rounds(&self) -> usize {
        let default = if self.quick { 3 } else { 7 };
        self.rounds.unwrap_or(default).max(1)
    }

    /// Measures the grid of a benchmark.
    pub(super) fn run(&self, benchmark: &Benchmark) -> Outcome {
        self.record(benchmark.name, &benchmark.table, |driver, results, save| {
            driver.run_all(benchmark, results, save)
        })
    }

    /// Lets `work` fill in the cells, beside busy processes if wanted. Then writes the results,
    /// shows a table and makes the report, also of partial results when the user interrupts. `work`
    /// may save its cells early, in case the run is killed.
    pub(super) fn record(
        &self,
        benchmark: &str,
        table: &Table,
        work: impl FnOnce(&mut Driver, &mut Results, Save<'_>) -> Outcome,
    ) -> Outcome {
        let mut driver = self.driver()?;
        let mut results = driver.results(benchmark);
        let folder = results.folder(self.output.as_deref());
        let hogs = driver.hogs(self.hogs)?;
        let done = work(&mut driver, &mut results, &|results| results.write(&folder));
        drop(hogs);
        results.cells.retain(|cell| !cell.rounds.is_empty());
        if !results.cells.is_empty() {
            results.write(&folder)?;
            summary::show(&results, table, &mut std::io::stdout().lock())?;
            finish(&results, &folder)?;
        }
        match done {
            // As every command that Ctrl-C ends.
            Err(_) if driver.stop.requested() => {
                note("interrupted: the rounds before that count");
                summary::verdict(&results)
            }
            Err(failure) => Err(failure),
            Ok(()) => summary::verdict(&results),
        }
    }
}

/// Writes what there is so far.
pub(super) type Save<'a> = &'a dyn Fn(&Results) -> Outcome;

/// Makes the report of results that were written; all benchmarks end here.
pub(super) fn finish(results: &Results, folder: &Path) -> Outcome {
    report::render(results, folder)?;
    note(format_args!(
        "results: {}",
        folder.join("results.json").display()
    ));
    Ok(())
}

impl Driver {
    /// Results of these subjects on this machine, still without cells.
    pub(super) fn results(&self, benchmark: &str) -> Results {
        Results {
            schema: SCHEMA.into(),
            benchmark: benchmark.into(),
            machine: Machine::here(),
            args: std::env::args().collect(),
            subjects: self
                .subjects
                .iter()
                .map(|subject| subject.shown.clone())
                .collect(),
            baseline: self.baseline,
            cells: Vec::new(),
        }
    }

    /// Starts busy processes, which end when they are dropped.
    pub(super) fn hogs(&self, number: usize) -> Outcome<Vec<Child>> {
        let start = |_| {
            let mut hog = Child::spawn(ENDPOINT, &self.sandbox.environment(false))?;
            hog.say(&Task::Hog)?;
            Ok(hog)
        };
        (0..number).map(start).collect()
    }

    /// Measures the rounds that cells of a grid do not have yet.
    pub(super) fn run_all(
        &mut self,
        benchmark: &Benchmark,
        results: &mut Results,
        save: Save<'_>,
    ) -> Outcome {
        let places: Vec<usize> = benchmark
            .points
            .iter()
            .map(|point| self.place(point, results))
            .collect();
        let missing = |place: &usize| {
            let cell = results.cells.get(*place);
            self.rounds
                .saturating_sub(cell.map_or(0, |it| it.rounds.len()))
        };
        let mut progress = Progress::new(places.iter().map(missing).sum());
        for (number, (point, place)) in benchmark.points.iter().zip(places).enumerate() {
            let title = title(&point.parameters);
            while let Some(cell) = results.cells.get(place)
                && cell.rounds.len() < self.rounds
            {
                let round = cell.rounds.len();
                progress.show(format_args!(
                    "cell {} of {} ({title}), round {} of {}",
                    number + 1,
                    benchmark.points.len(),
                    round + 1,
                    self.rounds,
                ));
                let round = self.round(benchmark, point, round + number)?;
                if let Some(cell) = results.cells.get_mut(place) {
                    cell.rounds.push(round);
                }
                progress.step();
            }
            save(results)?;
        }
        progress.end();
        Ok(())
    }

    /// Returns which cell of the results is that of a point: a new one if there is none.
    fn place(&self, point: &Point, results: &mut Results) -> usize {
        let parameters = point.parameters.iter();
        let mut parameters: BTreeMap<String, Value> = parameters
            .map(|(name, value)| ((*name).into(), value.clone()))
            .collect();
        if self.hogs > 0 {
            // Reports merge equal parameters, and runs with and without hogs differ.
            parameters.insert("hogs".into(), self.hogs.into());
        }
        let mut cells = results.cells.iter();
        if let Some(place) = cells.position(|cell| cell.parameters == parameters) {
            return place;
        }
        results.cells.push(Cell {
            parameters,
            rounds: Vec::new(),
        });
        results.cells.len() - 1
    }

    /// One turn of every subject.
    fn round(&mut self, benchmark: &Benchmark, point: &Point, turn: usize) -> Outcome<Round> {
        let count = self.subjects.len();
        let mut measurements = vec![Measurement::default(); count];
        for step in 0..count {
            let index = (turn + step) % count;
            let (Some(subject), Some(slot)) = (
                self.subjects.get(index).cloned(),
                measurements.get_mut(index),
            ) else {
                continue;
            };
            *slot = self.measure(benchmark, point, &subject)?;
            if let Some(failure) = &slot.failure {
                note(format_args!("\n{}: {failure}", subject.shown.name));
            }
        }
        Ok(Round { measurements })
    }

    /// One measurement. Only an interruption and what makes the whole run wrong are errors: other
    /// failures are results too.
    fn measure(
        &mut self,
        benchmark: &Benchmark,
        point: &Point,
        subject: &Library,
    ) -> Outcome<Measurement> {
        let no_server = || {
            let is_missing = subject.via.is_stored() && !self.has_redis;
            is_missing.then_some("there is no redis-server on this machine")
        };
        if let Some(reason) = (point.cannot)(subject).or_else(no_server) {
            return Ok(Measurement {
                failure: Some(reason.into()),
                ..Measurement::default()
            });
        }
        self.run += 1;
        let job = Job {
            backend: subject.backend.clone(),
            secure: subject.secure(),
            via: subject.via,
            stream: format!("bench-{}-{}", std::process::id(), self.run),
            ..point.job.clone()
        };
        let done = exchange(&self.sandbox, &self.stop, &job, subject);
        if self.stop.requested() {
            return Err(interrupted());
        }
        match done {
            Ok(sides) => Ok(measurement(benchmark, &job, sides)),
            Err(TurnError::Turn(failure)) => Ok(Measurement {
                failure: Some(failure.to_string()),
                ..Measurement::default()
            }),
            Err(TurnError::Run(failure)) => Err(failure),
        }
    }
}

/// Returns the bytes of one value, 0 for an unknown format.
pub(super) fn bytes_of(format: &str) -> f64 {
    let format = format.parse::<lsl_core::ChannelFormat>();
    format.map_or(0.0, |format| format.value_size() as f64)
}

/// Joins parameters as in `channels 64, rate 1000`.
pub(super) fn title(parameters: &[(&'static str, Value)]) -> String {
    let shown: Vec<String> = parameters
        .iter()
        .map(|(name, value)| format!("{name} {}", plain(value)))
        .collect();
    shown.join(", ")
}

/// A rate or a time as JSON: whole numbers without a point.
#[expect(
    clippy::cast_possible_truncation,
    reason = "whole numbers below 2^53 are exact"
)]
pub(super) fn number(value: f64) -> Value {
    if value.fract() == 0.0 && value.abs() < 1e15 {
        Value::from(value as i64)
    } else {
        Value::from(value)
    }
}

/// Shows a JSON value, strings without their quotes.
pub(super) fn plain(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}

pub(super) const MIB: f64 = 1024.0 * 1024.0;

/// One outlet at a time, of which liblsl's takes two.
const PORTS: u16 = 16;
