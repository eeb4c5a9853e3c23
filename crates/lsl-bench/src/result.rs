//! What a benchmark measured: the one form that every `lsl bench` command writes as JSON and that the
//! report reads. Numbers only; what they mean for a comparison is worked out in `stats`.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use lsl_cli::failure::{Failure, Outcome};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Name and version of the form; a report refuses others.
pub(crate) const SCHEMA: &str = "lsl-bench/1";

/// One run of one benchmark.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Results {
    /// [`SCHEMA`].
    pub(crate) schema: String,
    /// `latency`, `fanout`, …
    pub(crate) benchmark: String,
    pub(crate) machine: Machine,
    /// The command line, to run it again.
    pub(crate) args: Vec<String>,
    /// What was compared, in the order given; `baseline` is what ratios are taken to.
    pub(crate) subjects: Vec<Subject>,
    pub(crate) baseline: usize,
    /// One per point of the grid.
    pub(crate) cells: Vec<Cell>,
}

impl Results {
    /// What `latency_*` and the histograms are about, for people.
    pub(crate) fn latency_title(&self) -> &'static str {
        if self.is_of_slowest() {
            "latency of the slowest reader"
        } else {
            "latency"
        }
    }

    /// Whether that is each sample once, as late as its slowest reader had it, so that `slowest_*` says
    /// the same again.
    pub(crate) fn is_of_slowest(&self) -> bool {
        self.benchmark == "fanout"
    }

    /// Writes `results.json` into this folder, which is made if it is not there; an older file is
    /// replaced as a whole.
    pub(crate) fn write(&self, folder: &Path) -> Outcome {
        let attempt = || -> Outcome {
            fs::create_dir_all(folder)?;
            let unfinished = folder.join("results.json.part");
            let mut text = serde_json::to_string_pretty(self)?;
            text.push('\n');
            fs::write(&unfinished, text)?;
            Ok(fs::rename(&unfinished, folder.join("results.json"))?)
        };
        let what = folder.display().to_string();
        attempt().map_err(|failure: Failure| failure.context(&what))
    }
}

/// Where and when it ran.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Machine {
    /// RFC 3339, UTC.
    pub(crate) started: String,
    pub(crate) host: String,
    pub(crate) cpu: String,
    pub(crate) cores: usize,
    pub(crate) kernel: String,
    /// `scaling_governor`, where there is one.
    pub(crate) governor: Option<String>,
    /// Of 1, 5 and 15 minutes, when it started.
    pub(crate) load: [f64; 3],
    /// Version of `lsl`.
    pub(crate) version: String,
}

/// One of those that are compared.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Subject {
    /// Short and unique in the run: `ours`, `ours secure`, `liblsl 1.18`, `raw:tcp`.
    pub(crate) name: String,
    /// What exactly: the path of a library and its own description of itself, the cipher.
    pub(crate) detail: String,
    pub(crate) secure: bool,
}

/// One point of the grid, such as 64 channels at 1 kHz with one inlet.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Cell {
    /// Names and values of what varies, for example `channels`: 64.
    pub(crate) parameters: BTreeMap<String, Value>,
    /// Interleaved: in each round every subject had its turn, in rotating order.
    pub(crate) rounds: Vec<Round>,
}

/// One turn of every subject.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Round {
    /// By index of the subject.
    pub(crate) measurements: Vec<Measurement>,
}

/// What one subject did in one round.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Measurement {
    /// By name of the metric, see [`METRICS`].
    pub(crate) values: BTreeMap<String, f64>,
    /// Samples that should have arrived, over all readers, and those that did. 0 of 0 where a
    /// benchmark moves no samples.
    pub(crate) expected: u64,
    pub(crate) received: u64,
    /// Numbers of the first samples missing, and how many are missing from there on.
    pub(crate) gaps: Vec<Gap>,
    /// Latencies in microseconds as (upper bound, count), for charts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) histogram: Vec<(f64, u64)>,
    /// Why there are no values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) failure: Option<String>,
}

/// Samples that never came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Gap {
    /// Which reader, from 0.
    pub(crate) reader: u32,
    pub(crate) first: u64,
    pub(crate) count: u64,
}

/// Which way a metric is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Better {
    Lower,
    Higher,
}

/// A metric that may occur in [`Measurement::values`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Metric {
    pub(crate) name: &'static str,
    /// For people.
    pub(crate) title: &'static str,
    pub(crate) unit: &'static str,
    pub(crate) better: Better,
    /// Whether it is in the first table of a report; the rest is in the details.
    pub(crate) headline: bool,
}

const fn metric(
    name: &'static str,
    title: &'static str,
    unit: &'static str,
    better: Better,
    headline: bool,
) -> Metric {
    Metric {
        name,
        title,
        unit,
        better,
        headline,
    }
}

use Better::{Higher, Lower};

/// All metrics, in the order in which a report shows them. Add to it; never change a name.
pub(crate) const METRICS: &[Metric] = &[
    metric("latency_p50_us", "latency, median", "µs", Lower, true),
    metric("latency_p95_us", "latency, p95", "µs", Lower, true),
    metric("latency_p99_us", "latency, p99", "µs", Lower, false),
    metric("latency_max_us", "latency, largest", "µs", Lower, false),
    metric("latency_mean_us", "latency, mean", "µs", Lower, false),
    metric(
        "slowest_p50_us",
        "latency of the slowest reader, median",
        "µs",
        Lower,
        false,
    ),
    metric(
        "slowest_p95_us",
        "latency of the slowest reader, p95",
        "µs",
        Lower,
        false,
    ),
    metric(
        "slowest_p99_us",
        "latency of the slowest reader, p99",
        "µs",
        Lower,
        false,
    ),
    metric(
        "slowest_mean_us",
        "latency of the slowest reader, mean",
        "µs",
        Lower,
        false,
    ),
    metric("push_mean_us", "push call, mean", "µs", Lower, false),
    metric("push_p50_us", "push call, median", "µs", Lower, false),
    metric("push_p99_us", "push call, p99", "µs", Lower, false),
    metric("samples_per_s", "throughput", "samples/s", Higher, true),
    metric(
        "rate_kept",
        "share of the rate that got through",
        "",
        Higher,
        false,
    ),
    metric("mib_per_s", "throughput", "MiB/s", Higher, false),
    metric("peak_rss_mib", "memory, peak", "MiB", Lower, true),
    metric(
        "recorder_cpu_percent",
        "CPU of the recorder, of one core",
        "%",
        Lower,
        true,
    ),
    metric(
        "generator_cpu_percent",
        "CPU of the generator, of one core",
        "%",
        Lower,
        false,
    ),
    metric(
        "recorder_rss_min_mib",
        "memory of the recorder, least",
        "MiB",
        Lower,
        false,
    ),
    metric(
        "recorder_rss_max_mib",
        "memory of the recorder, most",
        "MiB",
        Lower,
        true,
    ),
    metric(
        "recorder_rss_mib_per_min",
        "growth of the recorder's memory",
        "MiB/min",
        Lower,
        true,
    ),
    metric(
        "waiting_max_mib",
        "most that waited for the disk",
        "MiB",
        Lower,
        false,
    ),
    metric("file_mib", "recording", "MiB", Lower, false),
    metric("write_mib_per_s", "writing", "MiB/s", Higher, true),
    metric("read_mib_per_s", "reading", "MiB/s", Higher, true),
    metric(
        "cpu_us_per_sample",
        "CPU of both sides per sample",
        "µs",
        Lower,
        true,
    ),
    metric(
        "outlet_cpu_us_per_sample",
        "CPU of the outlet per sample",
        "µs",
        Lower,
        false,
    ),
    metric(
        "inlet_cpu_us_per_sample",
        "CPU of the inlets per sample",
        "µs",
        Lower,
        false,
    ),
    metric(
        "outlet_cpu_s_per_gb",
        "CPU of the outlet",
        "s/GB",
        Lower,
        false,
    ),
    metric(
        "inlet_cpu_s_per_gb",
        "CPU of the inlets",
        "s/GB",
        Lower,
        false,
    ),
    metric(
        "outlet_switches_per_sample",
        "context switches of the outlet per sample",
        "",
        Lower,
        false,
    ),
    metric(
        "inlet_switches_per_sample",
        "context switches of the inlets per sample",
        "",
        Lower,
        false,
    ),
    metric(
        "outlet_rss_mib",
        "memory of the outlet's process, peak",
        "MiB",
        Lower,
        false,
    ),
    metric(
        "inlet_rss_mib",
        "memory of the inlets' process, peak",
        "MiB",
        Lower,
        false,
    ),
    metric(
        "outlet_threads",
        "threads the library started for outlets",
        "",
        Lower,
        false,
    ),
    metric(
        "inlet_threads",
        "threads the library started for inlets",
        "",
        Lower,
        false,
    ),
    metric(
        "outlet_fds",
        "descriptors of the outlets' process",
        "",
        Lower,
        false,
    ),
    metric(
        "inlet_fds",
        "descriptors of the inlets' process",
        "",
        Lower,
        false,
    ),
    metric(
        "outlet_rss_now_mib",
        "memory of the outlets' process",
        "MiB",
        Lower,
        false,
    ),
    metric(
        "inlet_rss_now_mib",
        "memory of the inlets' process",
        "MiB",
        Lower,
        false,
    ),
    metric(
        "unread_outlet_threads",
        "threads the library started for outlets that nobody reads",
        "",
        Lower,
        false,
    ),
    metric(
        "unread_outlet_fds",
        "descriptors of the outlets' process before inlets came",
        "",
        Lower,
        false,
    ),
    metric(
        "unread_outlet_rss_mib",
        "memory of the outlets' process before inlets came",
        "MiB",
        Lower,
        false,
    ),
    metric("create_outlets_s", "making all outlets", "s", Lower, false),
    metric("create_inlets_s", "making all inlets", "s", Lower, false),
    metric(
        "open_inlets_s",
        "connecting all inlets in turn",
        "s",
        Lower,
        true,
    ),
    metric(
        "destroy_outlets_s",
        "destroying all outlets",
        "s",
        Lower,
        false,
    ),
    metric(
        "destroy_inlets_s",
        "destroying all inlets",
        "s",
        Lower,
        false,
    ),
    metric(
        "outlet_idle_cpu_percent",
        "idle CPU of the outlets, of one core",
        "%",
        Lower,
        true,
    ),
    metric(
        "inlet_idle_cpu_percent",
        "idle CPU of the inlets, of one core",
        "%",
        Lower,
        false,
    ),
    metric(
        "outlet_idle_switches_per_s",
        "idle context switches of the outlets",
        "1/s",
        Lower,
        true,
    ),
    metric(
        "inlet_idle_switches_per_s",
        "idle context switches of the inlets",
        "1/s",
        Lower,
        false,
    ),
    metric("first_hit_ms", "one found by its name", "ms", Lower, true),
    metric("find_all_s", "all found by their type", "s", Lower, true),
    metric(
        "datagrams_dropped",
        "datagrams dropped while searching",
        "",
        Lower,
        false,
    ),
    metric(
        "open_ms",
        "making and connecting an inlet",
        "ms",
        Lower,
        true,
    ),
    metric(
        "first_sample_ms",
        "making an inlet to its first sample",
        "ms",
        Lower,
        false,
    ),
    metric(
        "first_correction_s",
        "first time correction",
        "s",
        Lower,
        false,
    ),
    metric("correction_error_us", "its error", "µs", Lower, false),
    metric(
        "destroy_inlet_ms",
        "destroying an inlet",
        "ms",
        Lower,
        false,
    ),
    metric("seal_ns", "sealing", "ns", Lower, true),
    metric("open_ns", "opening", "ns", Lower, true),
    metric("wall_s", "time", "s", Lower, true),
    metric("cpu_s", "processor time", "s", Lower, true),
    metric("user_s", "processor time in the program", "s", Lower, false),
    metric(
        "system_s",
        "processor time in the kernel",
        "s",
        Lower,
        false,
    ),
    metric("switches", "context switches", "", Lower, true),
    metric(
        "voluntary_switches",
        "voluntary context switches",
        "",
        Lower,
        false,
    ),
    metric(
        "involuntary_switches",
        "involuntary context switches",
        "",
        Lower,
        false,
    ),
    metric(
        "events_dropped",
        "security events dropped and counted",
        "",
        Lower,
        false,
    ),
    metric(
        "half_round_trip_p50_us",
        "half the round trip, median",
        "µs",
        Lower,
        true,
    ),
    metric(
        "half_round_trip_p95_us",
        "half the round trip, p95",
        "µs",
        Lower,
        false,
    ),
    metric(
        "clock_error_max_us",
        "largest possible error of the clocks",
        "µs",
        Lower,
        false,
    ),
    metric("inlets_open", "inlets that connected", "", Higher, false),
    metric(
        "inlets_deliver",
        "inlets that delivered everything",
        "",
        Higher,
        true,
    ),
    metric("found_all", "streams found", "", Higher, false),
    metric(
        "found_in_1s",
        "streams found in one second",
        "",
        Higher,
        true,
    ),
    metric("seal_mb_per_s", "sealing", "MB/s", Higher, false),
    metric("open_mb_per_s", "opening", "MB/s", Higher, false),
    metric("handshakes_per_s", "handshakes", "1/s", Higher, true),
    metric(
        "events_written",
        "security events written",
        "",
        Higher,
        false,
    ),
];
