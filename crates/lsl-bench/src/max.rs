//! `lsl bench max`: as many samples as go through without losing one; or everything written first
//! and read then.

use std::collections::BTreeMap;

use clap::Args;
use lsl_cli::failure::{Failure, Outcome};
use serde_json::json;

use super::driver::{Benchmark, Comparison, MIB, Point, Sides, bytes_of};
use super::fanout::or;
use super::job::{Backend, Extent, Job, Pull};
use super::latency::whole_batches;
use super::summary::Table;

#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(super) struct Max {
    #[command(flatten)]
    comparison: Comparison,

    /// float32 channels of the stream
    #[arg(long, value_delimiter = ',', default_value = "64", value_name = "N,…")]
    channels: Vec<u32>,

    /// Samples per push [default: 1,64,1024; with --write-then-read 1,2,4,8,16,32,64,128]
    #[arg(long, value_delimiter = ',', value_name = "N,…")]
    batch: Vec<u64>,

    /// At most so many samples are pushed and not yet pulled
    #[arg(
        long,
        default_value_t = 100_000,
        value_name = "N",
        conflicts_with = "write_then_read"
    )]
    window: u64,

    /// Seconds of each measurement [default: 5, with --quick 1]
    #[arg(long, value_name = "N", conflicts_with = "write_then_read")]
    seconds: Option<f64>,

    /// How to pull [default: sample with batch 1, else chunk]
    #[arg(long, value_enum)]
    pull: Option<Pull>,

    /// Push everything, and pull only then
    #[arg(long)]
    write_then_read: bool,

    /// Bytes of a sample to write and then read: so many int8 channels
    #[arg(
        long,
        default_value_t = 256,
        value_name = "N",
        requires = "write_then_read"
    )]
    bytes: u32,

    /// Samples to write and then read
    #[arg(
        long,
        default_value_t = 128_000,
        value_name = "N",
        requires = "write_then_read"
    )]
    samples: u64,
}

const HELP: &str = "\
Examples:
  lsl bench max --quick
  lsl bench max --lib target/release/liblsl.so --lib /usr/lib/liblsl.so --lib raw:tcp
  lsl bench max --batch 64 --window 256
  lsl bench max --write-then-read --bytes 256 --samples 128000

The inlet says over a connection of its own how far it is, and the outlet never has more than the
window under way: LSL drops the oldest samples of a reader that is too slow, and this counts only what
arrives. The default is large, so that waiting for the inlet costs nothing, and well below the 360,000
samples that both sides keep. A chunk is pulled with the size of a batch, in one call that waits until
all of it is there.

Writing first: a push is done when it returns. The inlet is connected, but nobody pulls until the
last one has returned; where the samples are meanwhile is the library's choice. A socket alone cannot
keep them, so raw transports have no part in it.";

impl Max {
    pub(super) fn run(&self) -> Outcome {
        if self.write_then_read {
            self.comparison.run(&Benchmark {
                name: "write-then-read",
                points: self.writing_first()?,
                finish: both_speeds,
                table: Table {
                    parameters: &["bytes", "batch"],
                    columns: &["write_mib_per_s", "read_mib_per_s", "outlet_rss_mib"],
                    ratios: &["write_mib_per_s", "read_mib_per_s"],
                },
            })
        } else {
            self.comparison.run(&Benchmark {
                name: "max",
                points: self.unpaced()?,
                finish: |_, _, _| (),
                table: Table {
                    parameters: &["channels", "batch", "window"],
                    columns: &[
                        "samples_per_s",
                        "mib_per_s",
                        "outlet_cpu_s_per_gb",
                        "inlet_cpu_s_per_gb",
                    ],
                    ratios: &["samples_per_s", "outlet_cpu_s_per_gb", "inlet_cpu_s_per_gb"],
                },
            })
        }
    }

    fn batches(&self, default: &[u64]) -> Outcome<Vec<u64>> {
        let batches = or(&self.batch, default);
        if batches.contains(&0) {
            return Err(Failure::Usage("--batch is above 0".into()));
        }
        Ok(batches)
    }

    fn unpaced(&self) -> Outcome<Vec<Point>> {
        let quick = self.comparison.quick;
        let seconds = self.seconds.unwrap_or(if quick { 1.0 } else { 5.0 });
        if self.channels.contains(&0) || seconds.is_nan() || seconds <= 0.0 {
            let text = "--channels and --seconds are above 0";
            return Err(Failure::Usage(text.into()));
        }
        let mut points = Vec::new();
        for &channels in &self.channels {
            for batch in self.batches(&[1, 64, 1024])? {
                if self.window < batch || self.window > LARGEST_WINDOW {
                    return Err(Failure::Usage(format!(
                        "--window is at least the batch ({batch}) and at most {LARGEST_WINDOW}: \
                         more could be lost in the buffers"
                    )));
                }
                let job = Job::new("float32", channels, batch);
                points.push(Point {
                    parameters: vec![
                        ("channels", json!(channels)),
                        ("batch", json!(batch)),
                        ("window", json!(self.window)),
                    ],
                    job: Job {
                        warm_up: whole_batches(WARM_UP, batch),
                        extent: Extent::Seconds(seconds),
                        pull: self.pull.unwrap_or(job.pull),
                        window: Some(self.window),
                        ..job
                    },
                    cannot: |_| None,
                });
            }
        }
        Ok(points)
    }

    fn writing_first(&self) -> Outcome<Vec<Point>> {
        let most = LARGEST_WINDOW;
        if self.bytes == 0 || self.samples == 0 || self.samples > most {
            return Err(Failure::Usage(format!(
                "--bytes and --samples are above 0, --samples at most {most}: more would be lost in \
                 the buffers"
            )));
        }
        let all = [1, 2, 4, 8, 16, 32, 64, 128];
        let quick = [1, 128];
        let default: &[u64] = if self.comparison.quick { &quick } else { &all };
        let batches = self.batches(default)?;
        Ok(written_first(self.bytes, self.samples, &batches, self.pull))
    }
}

/// Returns a point for each batch, of so many samples that are written first and read then.
pub(super) fn written_first(
    bytes: u32,
    samples: u64,
    batches: &[u64],
    pull: Option<Pull>,
) -> Vec<Point> {
    let point = |&batch: &u64| {
        let job = Job::new("int8", bytes, batch);
        Point {
            parameters: vec![("bytes", json!(bytes)), ("batch", json!(batch))],
            job: Job {
                extent: Extent::Samples(whole_batches(samples, batch)),
                pull: pull.unwrap_or(job.pull),
                read_last: true,
                ..job
            },
            cannot: |subject| {
                let is_raw = matches!(subject.backend, Backend::Tcp | Backend::TcpAesGcm);
                is_raw.then_some("a socket alone cannot keep what is written first")
            },
        }
    };
    batches.iter().map(point).collect()
}

/// Makes the throughput of writing, and of reading after that.
pub(super) fn both_speeds(job: &Job, sides: &Sides, values: &mut BTreeMap<String, f64>) {
    let bytes = f64::from(job.channels) * bytes_of(&job.format);
    let mib = sides.samples as f64 * bytes / MIB;
    for (name, side) in [("write", &sides.outlet), ("read", &sides.inlet)] {
        values.insert(format!("{name}_mib_per_s"), mib / (side.end - side.begin));
    }
}

/// Samples before anything is measured.
const WARM_UP: u64 = 1000;

/// Both sides keep 360 s, and the streams say 1 kHz; some room is left.
const LARGEST_WINDOW: u64 = 300_000;
