//! `lsl bench latency`: how long a sample takes from the push to the pull, by channels, rate and
//! number of inlets.

use clap::Args;
use lsl_cli::failure::{Failure, Outcome};
use serde_json::json;

use super::driver::{Benchmark, Comparison, Point, bytes_of, number};
use super::job::{Extent, Job, Speed};
use super::summary::Table;

#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(super) struct Latency {
    #[command(flatten)]
    comparison: Comparison,

    /// Channels of the stream
    #[arg(long, value_delimiter = ',', default_value = "64", value_name = "N,…")]
    channels: Vec<u32>,

    /// Samples per second
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "1000",
        value_name = "HZ,…"
    )]
    rate: Vec<f64>,

    /// Inlets that read the stream, in one process, with one pulling thread each
    #[arg(long, value_delimiter = ',', default_value = "1", value_name = "N,…")]
    inlets: Vec<u32>,

    /// Samples per push
    #[arg(long, value_delimiter = ',', default_value = "1", value_name = "N,…")]
    batch: Vec<u64>,

    /// Seconds of each measurement [default: 10, with --quick 2]
    #[arg(long, value_name = "N")]
    seconds: Option<f64>,

    /// What a channel's value is: float32, double64, int8, int16, int32 or int64
    #[arg(long, default_value = "float32")]
    format: String,
}

const HELP: &str = "\
Examples:
  lsl bench latency --quick
  lsl bench latency --lib /usr/lib/liblsl.so --lib target/release/liblsl.so
  lsl bench latency --channels 8,32,64 --rate 250,1000 --inlets 1,2,4 --secure off,on
  lsl bench latency --lib core --lib raw:tcp --lib raw:tcp-aesgcm --baseline raw:tcp

A sample is stamped before it is pushed and is there when the blocking pull returns; both sides are
on this host and read one clock. With several inlets the latencies are those of every sample in every
inlet, \"slowest\" those of each sample in the inlet that had it last. Only ratios of one run mean
anything: machines drift.";

impl Latency {
    pub(super) fn run(&self) -> Outcome {
        self.comparison.run(&Benchmark {
            name: "latency",
            points: self.points()?,
            finish: |_, _, _| (),
            table: Table {
                parameters: &["channels", "rate", "inlets", "batch"],
                columns: &[
                    "latency_p50_us",
                    "latency_p95_us",
                    "latency_p99_us",
                    "slowest_p50_us",
                    "push_p50_us",
                    "cpu_us_per_sample",
                ],
                ratios: &["latency_p50_us", "latency_p95_us", "cpu_us_per_sample"],
            },
        })
    }

    fn points(&self) -> Outcome<Vec<Point>> {
        if bytes_of(&self.format) == 0.0 {
            return Err(Failure::Usage(format!(
                "--format {}: give float32, double64, int8, int16, int32 or int64",
                self.format
            )));
        }
        let mut points = Vec::new();
        for &channels in &self.channels {
            for &rate in &self.rate {
                for &inlets in &self.inlets {
                    for &batch in &self.batch {
                        points.push(self.point(channels, rate, inlets, batch)?);
                    }
                }
            }
        }
        Ok(points)
    }

    fn point(&self, channels: u32, rate: f64, inlets: u32, batch: u64) -> Outcome<Point> {
        let seconds = self
            .seconds
            .unwrap_or(if self.comparison.quick { 2.0 } else { 10.0 });
        if channels == 0 || inlets == 0 || batch == 0 || !(rate > 0.0 && seconds > 0.0) {
            let text = "--channels, --rate, --inlets, --batch and --seconds are above 0";
            return Err(Failure::Usage(text.into()));
        }
        Ok(Point {
            parameters: vec![
                ("channels", json!(channels)),
                ("rate", number(rate)),
                ("inlets", json!(inlets)),
                ("batch", json!(batch)),
            ],
            job: Job {
                speed: Speed::Paced(rate),
                warm_up: whole_batches(WARM_UP.max(samples(WARM_UP_SECS, rate)), batch),
                extent: Extent::Samples(whole_batches(samples(seconds, rate), batch)),
                readers: inlets,
                ..Job::new(&self.format, channels, batch)
            },
            cannot: |_| None,
        })
    }
}

/// Rounds a number of samples up to whole batches.
pub(super) fn whole_batches(samples: u64, batch: u64) -> u64 {
    samples.max(1).next_multiple_of(batch.max(1))
}

/// Samples of so many seconds.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "it saturates, and nobody waits for that many"
)]
pub(super) fn samples(secs: f64, rate: f64) -> u64 {
    (secs * rate).round() as u64
}

/// Samples before anything is measured.
const WARM_UP: u64 = 200;
const WARM_UP_SECS: f64 = 0.2;

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::super::job::Pull;
    use super::*;

    #[derive(Debug, Parser)]
    struct Alone {
        #[command(flatten)]
        latency: Latency,
    }

    fn points(arguments: &str) -> Outcome<Vec<Point>> {
        let arguments = ["latency"].into_iter().chain(arguments.split_whitespace());
        Alone::try_parse_from(arguments).unwrap().latency.points()
    }

    #[test]
    fn the_grid_is_the_product() {
        let grid = "--channels 8,32 --rate 250,1000 --inlets 1,2,4 --batch 1,64 --seconds 2";
        let grid = points(grid).unwrap();
        assert_eq!(grid.len(), 24);
        let jobs: Vec<&Job> = grid.iter().map(|point| &point.job).collect();
        assert_eq!(
            (jobs[0].channels, jobs[0].readers, jobs[0].batch),
            (8, 1, 1)
        );
        assert_eq!((jobs[0].warm_up, jobs[0].total()), (200, Some(700)));
        assert_eq!(jobs[0].pull, Pull::Sample);
        let last = jobs[23];
        assert_eq!((last.channels, last.readers, last.batch), (32, 4, 64));
        assert_eq!(last.pull, Pull::Chunk);
        assert!(last.warm_up.is_multiple_of(64) && last.total().unwrap().is_multiple_of(64));
        let names: Vec<&str> = grid[5].parameters.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, ["channels", "rate", "inlets", "batch"]);
    }

    #[test]
    fn what_cannot_be_measured_is_refused() {
        for wrong in [
            "--format string",
            "--format float",
            "--channels 0",
            "--rate 0",
            "--rate=-5",
            "--inlets 0",
            "--batch 0",
        ] {
            assert!(matches!(points(wrong), Err(Failure::Usage(_))), "{wrong}");
        }
    }

    #[test]
    fn batches_are_whole() {
        for (samples, batch, expected) in [(0, 4, 4), (1, 1, 1), (5, 4, 8), (8, 4, 8)] {
            assert_eq!(whole_batches(samples, batch), expected);
        }
    }
}
