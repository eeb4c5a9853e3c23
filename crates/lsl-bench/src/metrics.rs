//! The metrics that benchmarks measure, as a report shows them.

/// Which way a metric is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Better {
    Lower,
    Higher,
}

/// A metric that may occur in [`Measurement::values`](crate::result::Measurement::values).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Metric {
    pub(crate) name: &'static str,
    /// Title in tables and figures, without the unit.
    pub(crate) title: &'static str,
    pub(crate) unit: &'static str,
    pub(crate) better: Better,
    /// Whether it is in the first table of a report; the rest is in the details.
    pub(crate) headline: bool,
}

/// Makes one [`Metric`] of each line.
macro_rules! metrics {
    (@) => { false };
    (@ headline) => { true };
    ($($name:ident: $title:literal, $unit:literal, $better:ident $(, $headline:ident)?;)+) => {
        &[$(Metric {
            name: stringify!($name),
            title: $title,
            unit: $unit,
            better: Better::$better,
            headline: metrics!(@ $($headline)?),
        }),+]
    };
}

/// All metrics, in the order in which a report shows them. Add to it; never change a name.
pub(crate) const METRICS: &[Metric] = metrics! {
    latency_p50_us: "latency, median", "µs", Lower, headline;
    latency_p95_us: "latency, p95", "µs", Lower, headline;
    latency_p99_us: "latency, p99", "µs", Lower;
    latency_max_us: "latency, largest", "µs", Lower;
    latency_mean_us: "latency, mean", "µs", Lower;
    slowest_p50_us: "latency of the slowest reader, median", "µs", Lower;
    slowest_p95_us: "latency of the slowest reader, p95", "µs", Lower;
    slowest_p99_us: "latency of the slowest reader, p99", "µs", Lower;
    slowest_mean_us: "latency of the slowest reader, mean", "µs", Lower;
    push_mean_us: "push call, mean", "µs", Lower;
    push_p50_us: "push call, median", "µs", Lower;
    push_p99_us: "push call, p99", "µs", Lower;
    samples_per_s: "throughput", "samples/s", Higher, headline;
    rate_kept: "share of the rate that got through", "", Higher;
    mib_per_s: "throughput", "MiB/s", Higher;
    peak_rss_mib: "memory, peak", "MiB", Lower, headline;
    recorder_cpu_percent: "CPU of the recorder, of one core", "%", Lower, headline;
    generator_cpu_percent: "CPU of the generator, of one core", "%", Lower;
    recorder_rss_min_mib: "memory of the recorder, least", "MiB", Lower;
    recorder_rss_max_mib: "memory of the recorder, most", "MiB", Lower, headline;
    recorder_rss_mib_per_min: "growth of the recorder's memory", "MiB/min", Lower, headline;
    waiting_max_mib: "most that waited for the disk", "MiB", Lower;
    file_mib: "recording", "MiB", Lower;
    write_mib_per_s: "writing", "MiB/s", Higher, headline;
    read_mib_per_s: "reading", "MiB/s", Higher, headline;
    cpu_us_per_sample: "CPU of both sides per sample", "µs", Lower, headline;
    outlet_cpu_us_per_sample: "CPU of the outlet per sample", "µs", Lower;
    inlet_cpu_us_per_sample: "CPU of the inlets per sample", "µs", Lower;
    outlet_cpu_s_per_gb: "CPU of the outlet", "s/GB", Lower;
    inlet_cpu_s_per_gb: "CPU of the inlets", "s/GB", Lower;
    outlet_cpu_percent: "CPU of the outlet, of one core", "%", Lower;
    inlet_cpu_percent: "CPU of the inlets, of one core", "%", Lower;
    outlet_cpu_peak_percent: "CPU of the outlet, busiest second", "%", Lower;
    inlet_cpu_peak_percent: "CPU of the inlets, busiest second", "%", Lower;
    outlet_switches_per_sample: "context switches of the outlet per sample", "", Lower;
    inlet_switches_per_sample: "context switches of the inlets per sample", "", Lower;
    outlet_rss_mib: "memory of the outlet's process, peak", "MiB", Lower;
    inlet_rss_mib: "memory of the inlets' process, peak", "MiB", Lower;
    outlet_threads: "threads the library started for outlets", "", Lower;
    inlet_threads: "threads the library started for inlets", "", Lower;
    outlet_fds: "descriptors of the outlets' process", "", Lower;
    inlet_fds: "descriptors of the inlets' process", "", Lower;
    outlet_rss_now_mib: "memory of the outlets' process", "MiB", Lower;
    inlet_rss_now_mib: "memory of the inlets' process", "MiB", Lower;
    unread_outlet_threads: "threads the library started for outlets that nobody reads", "", Lower;
    unread_outlet_fds: "descriptors of the outlets' process before inlets came", "", Lower;
    unread_outlet_rss_mib: "memory of the outlets' process before inlets came", "MiB", Lower;
    create_outlets_s: "making all outlets", "s", Lower;
    create_inlets_s: "making all inlets", "s", Lower;
    open_inlets_s: "connecting all inlets in turn", "s", Lower, headline;
    destroy_outlets_s: "destroying all outlets", "s", Lower;
    destroy_inlets_s: "destroying all inlets", "s", Lower;
    outlet_idle_cpu_percent: "idle CPU of the outlets, of one core", "%", Lower, headline;
    inlet_idle_cpu_percent: "idle CPU of the inlets, of one core", "%", Lower;
    outlet_idle_switches_per_s: "idle context switches of the outlets", "1/s", Lower, headline;
    inlet_idle_switches_per_s: "idle context switches of the inlets", "1/s", Lower;
    first_hit_ms: "one found by its name", "ms", Lower, headline;
    find_all_s: "all found by their type", "s", Lower, headline;
    datagrams_dropped: "datagrams dropped while searching", "", Lower;
    open_ms: "making and connecting an inlet", "ms", Lower, headline;
    first_sample_ms: "making an inlet to its first sample", "ms", Lower;
    first_correction_s: "first time correction", "s", Lower;
    correction_error_us: "its error", "µs", Lower;
    destroy_inlet_ms: "destroying an inlet", "ms", Lower;
    seal_ns: "sealing", "ns", Lower, headline;
    open_ns: "opening", "ns", Lower, headline;
    instructions: "instructions of a handshake", "", Lower, headline;
    wall_s: "time", "s", Lower, headline;
    cpu_s: "processor time", "s", Lower, headline;
    user_s: "processor time in the program", "s", Lower;
    system_s: "processor time in the kernel", "s", Lower;
    switches: "context switches", "", Lower, headline;
    voluntary_switches: "voluntary context switches", "", Lower;
    involuntary_switches: "involuntary context switches", "", Lower;
    events_dropped: "security events dropped and counted", "", Lower;
    half_round_trip_p50_us: "half the round trip, median", "µs", Lower, headline;
    half_round_trip_p95_us: "half the round trip, p95", "µs", Lower;
    clock_error_max_us: "largest possible error of the clocks", "µs", Lower;
    inlets_open: "inlets that connected", "", Higher;
    inlets_deliver: "inlets that delivered everything", "", Higher, headline;
    found_all: "streams found", "", Higher;
    found_in_1s: "streams found in one second", "", Higher, headline;
    seal_mb_per_s: "sealing", "MB/s", Higher;
    open_mb_per_s: "opening", "MB/s", Higher;
    handshakes_per_s: "handshakes", "1/s", Higher, headline;
    hop_p50_ms: "added by two relays and a link, median", "ms", Lower, headline;
    hop_p95_ms: "added by two relays and a link, p95", "ms", Lower, headline;
    relay_p50_ms: "added by one relay, median", "ms", Lower;
    relay_p95_ms: "added by one relay, p95", "ms", Lower;
    direct_p50_ms: "latency without a relay, median", "ms", Lower;
    direct_p95_ms: "latency without a relay, p95", "ms", Lower;
    arrival_p50_ms: "latency over a link, median", "ms", Lower;
    arrival_p95_ms: "latency over a link, p95", "ms", Lower, headline;
    near_cores: "processors of the relay with the outlets", "", Lower, headline;
    far_cores: "processors of the relay with the readers", "", Lower, headline;
    near_rss_mib: "memory of the relay with the outlets", "MiB", Lower, headline;
    far_rss_mib: "memory of the relay with the readers", "MiB", Lower, headline;
    near_switches_per_s: "context switches of the relay with the outlets", "1/s", Lower, headline;
    far_switches_per_s: "context switches of the relay with the readers", "1/s", Lower, headline;
    link_mb_per_s: "throughput of a link", "MB/s", Higher, headline;
    near_cpu_s_per_gb: "CPU of the relay with the outlets", "s/GB", Lower;
    far_cpu_s_per_gb: "CPU of the relay with the readers", "s/GB", Lower;
    appear_p50_s: "a stream appears at the other site, median", "s", Lower, headline;
    appear_max_s: "the last stream appears at the other site", "s", Lower, headline;
    hash_equal: "what comes out has the hash of what went in", "", Higher;
    log_lines: "lines of the security log", "", Lower;
    log_writes: "writes of the security log", "", Lower;
    events_written: "security events written", "", Higher;
};
