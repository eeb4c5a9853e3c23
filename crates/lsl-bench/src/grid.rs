//! `lsl bench grid`: what the performance page of River measures, by every way of the samples, into one result. It
//! goes on where it was: what the result has already is not measured again. Spec: relay §15.

use std::path::Path;

use clap::{Args, ValueEnum};
use lsl_cli::failure::{Failure, Outcome};
use lsl_cli::ui::notice::note;
use serde_json::json;

use super::bulk;
use super::driver::{Benchmark, Comparison, Finish, Point};
use super::fanout;
use super::machine::load;
use super::max;
use super::report;
use super::result::{Cell, Results};
use super::summary::Table;

#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(super) struct Grid {
    /// Parts to measure
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "events,stream,max",
        value_name = "PART,…"
    )]
    what: Vec<Part>,

    /// Samples of each cell of `events`, and of `max` [default: 10000, with --quick 1000; 128000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=300_000))]
    samples: Option<u64>,

    /// Seconds of each cell of `stream` [default: 10, with --quick 2]
    #[arg(long, value_name = "N")]
    seconds: Option<f64>,

    #[command(flatten)]
    comparison: Comparison,
}

/// A part of the grid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Latency of the slowest reader: 8 to 128 B a millisecond, 1 to 32 readers
    Events,
    /// Latency at 32 kHz x 768 B, in batches of 32 to 1024
    Stream,
    /// Throughput of 31 MiB in samples of 256 B, in batches of 1 to 128: written, and read then
    Max,
}

const HELP: &str = "\
Examples:
  lsl bench grid --quick --output look
  lsl bench grid --what events                23 minutes
  lsl bench grid --what stream,max            7 minutes, into the same result
  lsl bench grid --what max --rounds 5        and four more rounds of this part
  lsl bench grid --via direct --secure off,on --output lsl-bench/grid-secure
                                              encrypted and plain in turns: 15 minutes
  lsl bench report lsl-bench/grid lsl-bench/grid-secure --output docs

By default each way is measured once in each cell, all four in turns, and the result is in lsl-bench/grid. An interrupted
run goes on where it was; rounds in which something failed or was lost are measured again. The page with River's figures
beside it is river.md, in the same folder.

River's layout is written at once (`flush_ms = 0`), chunks too where single events are measured; else chunks are gathered
for 8 ms. Written is what the relay has, or the server has acknowledged.";

impl Grid {
    pub(super) fn run(&self) -> Outcome {
        let comparison = self.comparison.of_all_ways(Path::new(FOLDER))?;
        comparison.record("grid", &TABLE, |driver, results, save| {
            go_on(results, &comparison)?;
            for part in &self.what {
                let measured = driver.run_all(&self.part(*part), results, save);
                for cell in &mut results.cells {
                    let rounds = cell.rounds.iter_mut();
                    let all = rounds.flat_map(|round| &mut round.measurements);
                    // The page shows none, and they are most of a file.
                    all.for_each(|measurement| measurement.histogram.clear());
                }
                measured?;
            }
            Ok(())
        })
    }

    fn part(&self, part: Part) -> Benchmark {
        let quick = self.comparison.quick;
        let (points, finish): (_, Finish) = match part {
            Part::Events => {
                let samples = self.samples.unwrap_or(if quick { 1000 } else { 10_000 });
                let (readers, bytes): (&[u32], &[u32]) = if quick {
                    (&[1, 16], &[64])
                } else {
                    (&[1, 2, 4, 8, 16, 32], &[8, 16, 32, 64, 128])
                };
                let points = fanout::points(readers, bytes, 1000.0, [samples, 100]);
                (points, |_, _, values| keep(values, "latency_p"))
            }
            Part::Stream => {
                let seconds = self.seconds.unwrap_or(if quick { 2.0 } else { 10.0 });
                let batches: &[u64] = if quick {
                    &[32, 1024]
                } else {
                    &[32, 64, 128, 256, 512, 1024]
                };
                let points = bulk::points(&[768], batches, &[1], [32_000.0, seconds]);
                (points, |job, sides, values| {
                    bulk::rate_kept(job, sides, values);
                    keep(values, "latency_p");
                })
            }
            Part::Max => {
                let batches: &[u64] = if quick {
                    &[1, 128]
                } else {
                    &[1, 2, 4, 8, 16, 32, 64, 128]
                };
                let points =
                    max::written_first(256, self.samples.unwrap_or(128_000), batches, None);
                (points, |job, sides, values| {
                    max::both_speeds(job, sides, values);
                    keep(values, "mib_per_s");
                })
            }
        };
        let name = part.to_possible_value();
        let name = name.map_or_else(String::new, |name| name.get_name().to_owned());
        let named = |point: Point| {
            let parameters = std::iter::once(("part", json!(name))).chain(point.parameters);
            Point {
                parameters: parameters.collect(),
                ..point
            }
        };
        Benchmark {
            name: "grid",
            points: points.into_iter().map(named).collect(),
            finish,
            table: TABLE,
        }
    }
}

/// Takes over what an earlier run measured of the same ways, but for rounds that are worth nothing.
fn go_on(results: &mut Results, comparison: &Comparison) -> Outcome {
    let file = results.folder(comparison.output()).join("results.json");
    if !file.exists() {
        return Ok(());
    }
    let before = report::read(&file)?;
    if before.benchmark != results.benchmark || before.subjects != results.subjects {
        let text = format!("{} has other ways: choose another --output", file.display());
        return Err(Failure::Usage(text));
    }
    *results = before;
    let is_whole = |cell: &mut Cell| {
        cell.rounds.retain(|round| {
            let mut all = round.measurements.iter();
            all.all(|it| it.failure.is_none() && it.received == it.expected)
        });
        !cell.rounds.is_empty()
    };
    results.cells.retain_mut(is_whole);
    note(format_args!("going on with {}", file.display()));
    Ok(())
}

/// Leaves what the page shows, and what tells a disturbed round from others.
fn keep(values: &mut Values, what: &str) {
    let also = [
        "rate_kept",
        "cpu_us_per_sample",
        "relay_cpu_us_per_sample",
        "redis_cpu_us_per_sample",
    ];
    values.retain(|name, _| name.contains(what) || also.contains(&name.as_str()));
    values.insert("load".into(), load()[0]);
}

type Values = std::collections::BTreeMap<String, f64>;

const TABLE: Table = Table {
    parameters: &["part", "readers", "bytes", "batch"],
    columns: &[
        "latency_p50_us",
        "latency_p95_us",
        "write_mib_per_s",
        "read_mib_per_s",
        "rate_kept",
        "cpu_us_per_sample",
    ],
    ratios: &["latency_p95_us", "write_mib_per_s", "read_mib_per_s"],
};

/// Always the same, so that a run goes on.
const FOLDER: &str = "lsl-bench/grid";

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Alone {
        #[command(flatten)]
        grid: Grid,
    }

    #[test]
    fn the_grid_is_that_of_the_page() {
        let points = |arguments: &[&str]| {
            let grid = Alone::parse_from(arguments).grid;
            let all = [Part::Events, Part::Stream, Part::Max];
            all.map(|part| grid.part(part).points)
        };
        let [events, stream, max] = points(&["grid"]);
        assert_eq!([events.len(), stream.len(), max.len()], [30, 6, 8]);
        for point in &events {
            let job = &point.job;
            assert_eq!(
                (job.warm_up, job.total(), job.flush_ms),
                (100, Some(10_100), 0)
            );
        }
        let mib =
            |point: &Point| (point.job.total().unwrap() * u64::from(point.job.channels)) >> 20;
        assert!(
            max.iter()
                .all(|point| point.job.read_last && mib(point) == 31)
        );
        assert_eq!(stream[5].parameters[0], ("part", json!("stream")));
        assert_eq!((stream[5].job.channels, stream[5].job.batch), (384, 1024));
        let quick = points(&["grid", "--quick"]);
        assert_eq!(quick.map(|part| part.len()), [2, 2, 2]);
    }
}
