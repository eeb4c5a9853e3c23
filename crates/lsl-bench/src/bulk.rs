//! `lsl bench bulk`: a fast, wide stream such as 384 channels at 32 kHz, pushed in batches of all
//! sizes: who keeps up, and how late samples are.

use std::collections::BTreeMap;

use clap::Args;
use lsl_cli::failure::{Failure, Outcome};
use serde_json::json;

use super::driver::{Benchmark, Comparison, Point, Sides, number};
use super::fanout::or;
use super::job::{Extent, Job, Speed};
use super::latency::{samples, whole_batches};
use super::summary::Table;

#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(super) struct Bulk {
    #[command(flatten)]
    comparison: Comparison,

    /// Bytes of a sample: half as many int16 channels
    #[arg(long, value_delimiter = ',', default_value = "768", value_name = "N,…")]
    bytes: Vec<u32>,

    /// Samples per second
    #[arg(long, default_value_t = 32_000.0, value_name = "HZ")]
    rate: f64,

    /// Samples per push [default: 1,16,32,64,128,256,512,1024, with --quick 1,64]
    #[arg(long, value_delimiter = ',', value_name = "N,…")]
    batch: Vec<u64>,

    /// Seconds of each measurement [default: 20, with --quick 1]
    #[arg(long, value_name = "N")]
    seconds: Option<f64>,

    /// Inlets, in one process
    #[arg(long, value_delimiter = ',', default_value = "1", value_name = "N,…")]
    readers: Vec<u32>,
}

const HELP: &str = "\
Examples:
  lsl bench bulk --quick
  lsl bench bulk --batch 1,32 --lib target/release/liblsl.so --lib /usr/lib/liblsl.so
  lsl bench bulk --bytes 76800,307200,1228800 --rate 120 --batch 1

A batch is pushed when its last sample is due; latency counts from that push. With batch 1, samples
that are due while the pushing thread sleeps are pushed one after the other. Rate kept is the share of
the rate that arrived from the first push to the last pull: below 0.984 the subject falls behind. Memory
is that of the whole process, with a few MiB of the benchmark's own.";

impl Bulk {
    pub(super) fn run(&self) -> Outcome {
        self.comparison.run(&Benchmark {
            name: "bulk",
            points: self.points()?,
            finish: rate_kept,
            table: Table {
                parameters: &["bytes", "batch", "readers"],
                columns: &[
                    "latency_p50_us",
                    "latency_p95_us",
                    "samples_per_s",
                    "rate_kept",
                    "cpu_us_per_sample",
                    "outlet_rss_mib",
                    "inlet_rss_mib",
                ],
                ratios: &[
                    "latency_p95_us",
                    "cpu_us_per_sample",
                    "outlet_rss_mib",
                    "inlet_rss_mib",
                ],
            },
        })
    }

    fn points(&self) -> Outcome<Vec<Point>> {
        let quick = self.comparison.quick;
        let all = [1, 16, 32, 64, 128, 256, 512, 1024];
        let batches = or(&self.batch, if quick { &[1, 64] } else { &all });
        let seconds = self.seconds.unwrap_or(if quick { 1.0 } else { 20.0 });
        if self.bytes.iter().any(|bytes| *bytes == 0 || bytes % 2 == 1) {
            let text = "--bytes is even and above 0: two for each channel";
            return Err(Failure::Usage(text.into()));
        }
        if batches.contains(&0) || self.readers.contains(&0) || !(self.rate > 0.0 && seconds > 0.0)
        {
            let text = "--rate, --batch, --seconds and --readers are above 0";
            return Err(Failure::Usage(text.into()));
        }
        Ok(points(
            &self.bytes,
            &batches,
            &self.readers,
            [self.rate, seconds],
        ))
    }
}

/// Returns a point for each size, batch and number of readers, at this rate and so long.
pub(super) fn points(
    bytes: &[u32],
    batches: &[u64],
    readers: &[u32],
    [rate, seconds]: [f64; 2],
) -> Vec<Point> {
    let mut points = Vec::new();
    for &bytes in bytes {
        for &batch in batches {
            for &readers in readers {
                points.push(Point {
                    parameters: vec![
                        ("bytes", json!(bytes)),
                        ("batch", json!(batch)),
                        ("readers", json!(readers)),
                        ("rate", number(rate)),
                    ],
                    job: Job {
                        speed: Speed::Paced(rate),
                        warm_up: whole_batches(samples(WARM_UP_SECS, rate), batch),
                        extent: Extent::Samples(whole_batches(samples(seconds, rate), batch)),
                        readers,
                        ..Job::new("int16", bytes / 2, batch)
                    },
                    cannot: |_| None,
                });
            }
        }
    }
    points
}

/// Makes the share of the rate that got through.
pub(super) fn rate_kept(job: &Job, _: &Sides, values: &mut BTreeMap<String, f64>) {
    if let (Some(rate), Speed::Paced(wanted)) = (values.get("samples_per_s").copied(), job.speed) {
        values.insert("rate_kept".into(), rate / wanted);
    }
}

/// Longer than a relay takes to see how a stream comes.
const WARM_UP_SECS: f64 = 0.5;
