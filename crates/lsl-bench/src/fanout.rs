//! `lsl bench fanout`: one stream read by many; what counts is when the last reader has a sample.

use clap::Args;
use lsl_cli::failure::{Failure, Outcome};
use serde_json::json;

use super::driver::{Benchmark, Comparison, Point, number};
use super::job::{Counted, Extent, Job, Speed};
use super::latency::whole_batches;
use super::summary::Table;

#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(super) struct Fanout {
    #[command(flatten)]
    comparison: Comparison,

    /// Inlets, in one process, with one pulling thread each [default: 1,2,4,8,16,32, with --quick 4]
    #[arg(long, value_delimiter = ',', value_name = "N,…")]
    readers: Vec<u32>,

    /// Bytes of a sample: so many int8 channels [default: 8,16,32,64,128, with --quick 64]
    #[arg(long, value_delimiter = ',', value_name = "N,…")]
    bytes: Vec<u32>,

    /// Samples per second
    #[arg(long, default_value_t = 1000.0, value_name = "HZ")]
    rate: f64,

    /// Samples of each measurement [default: 10000, with --quick 2000]
    #[arg(long, value_name = "N")]
    samples: Option<u64>,

    /// Samples before those, which are not counted
    #[arg(long, default_value_t = 100, value_name = "N")]
    prime: u64,
}

const HELP: &str = "\
Examples:
  lsl bench fanout --quick
  lsl bench fanout --readers 1,4,16 --bytes 64 --rounds 3
  lsl bench fanout --lib target/release/liblsl.so --lib /usr/lib/liblsl.so --secure off,on

Latencies, and their distribution in the report, are those of the slowest reader of each sample. The
whole default grid has 30 cells of 10 s for each subject and round: choose less, or take your time.";

impl Fanout {
    pub(super) fn run(&self) -> Outcome {
        self.comparison.run(&Benchmark {
            name: "fanout",
            points: self.points()?,
            finish: |_, _, _| (),
            table: Table {
                parameters: &["readers", "bytes"],
                columns: &[
                    "slowest_p50_us",
                    "slowest_p95_us",
                    "slowest_p99_us",
                    "push_mean_us",
                    "push_p99_us",
                    "cpu_us_per_sample",
                ],
                ratios: &[
                    "slowest_p50_us",
                    "slowest_p95_us",
                    "push_mean_us",
                    "cpu_us_per_sample",
                ],
            },
        })
    }

    fn points(&self) -> Outcome<Vec<Point>> {
        let quick = self.comparison.quick;
        let readers = or(
            &self.readers,
            if quick { &[4] } else { &[1, 2, 4, 8, 16, 32] },
        );
        let bytes = or(
            &self.bytes,
            if quick { &[64] } else { &[8, 16, 32, 64, 128] },
        );
        let samples = self.samples.unwrap_or(if quick { 2000 } else { 10_000 });
        let is_zero = readers.contains(&0) || bytes.contains(&0) || samples == 0;
        if is_zero || self.rate.is_nan() || self.rate <= 0.0 {
            let text = "--readers, --bytes, --rate and --samples are above 0";
            return Err(Failure::Usage(text.into()));
        }
        Ok(points(&readers, &bytes, self.rate, [samples, self.prime]))
    }
}

/// Returns a point for each number of readers and size, with so many samples, and so many before that are not counted.
pub(super) fn points(
    readers: &[u32],
    bytes: &[u32],
    rate: f64,
    [samples, prime]: [u64; 2],
) -> Vec<Point> {
    let point = |readers: u32, bytes: u32| Point {
        parameters: vec![
            ("readers", json!(readers)),
            ("bytes", json!(bytes)),
            ("rate", number(rate)),
        ],
        job: Job {
            speed: Speed::Paced(rate),
            warm_up: whole_batches(prime, 1),
            extent: Extent::Samples(samples),
            readers,
            counted: Counted::Slowest,
            // A single sample waits for no other.
            flush_ms: 0,
            ..Job::new("int8", bytes, 1)
        },
        cannot: |_| None,
    };
    let of = |readers: &u32| {
        let readers = *readers;
        bytes.iter().map(move |bytes| point(readers, *bytes))
    };
    readers.iter().flat_map(of).collect()
}

/// Returns the values given, or the default if there are none.
pub(super) fn or<T: Clone>(given: &[T], default: &[T]) -> Vec<T> {
    if given.is_empty() { default } else { given }.to_vec()
}
