//! One-way latency of our implementation and of a liblsl, taken in turns on this host.
//!
//! Every case is two processes, an outlet and an inlet of one implementation, on whatever network
//! they find (run it in a network namespace to have it alone). The outlet stamps each sample with
//! the host's clock when it pushes; the inlet reads the same clock when its blocking pull returns.
//! Machines drift, so only the ratio of two cases of one round means anything.
//!
//! ```text
//! latency --lib LIBLSL.so [--rounds 5] [--seconds 10] [--channels 64] [--rate 1000]
//! ```
#![expect(clippy::print_stdout, reason = "a command-line program")]
#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "counts and times of a benchmark are small and positive"
)]

use std::error::Error;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use lsl_core::{ChannelFormat, Context, Inlet, Outlet, Selector, StreamInfo, local_clock};
use lsl_dl::Lsl;
use serde_json::{Value, json};

type Result<T, E = Box<dyn Error>> = std::result::Result<T, E>;

fn main() -> ExitCode {
    match Options::parse().and_then(|options| options.run()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("latency: {error}");
            ExitCode::FAILURE
        }
    }
}

/// What this process is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    Driver,
    Outlet,
    Inlet,
}

#[derive(Debug, Clone)]
struct Options {
    role: Role,
    /// The other implementation; none in the processes of our own.
    library: Option<PathBuf>,
    rounds: usize,
    seconds: f64,
    channels: u16,
    rate: f64,
    stream: String,
}

impl Options {
    fn parse() -> Result<Self> {
        use lexopt::prelude::*;
        let mut options = Self {
            role: Role::Driver,
            library: None,
            rounds: 5,
            seconds: 10.0,
            channels: 64,
            rate: 1000.0,
            stream: format!("latency-{}", std::process::id()),
        };
        let mut arguments = lexopt::Parser::from_env();
        while let Some(argument) = arguments.next()? {
            match argument {
                Long("lib") => options.library = Some(arguments.value()?.into()),
                Long("rounds") => options.rounds = arguments.value()?.parse()?,
                Long("seconds") => options.seconds = arguments.value()?.parse()?,
                Long("channels") => options.channels = arguments.value()?.parse()?,
                Long("rate") => options.rate = arguments.value()?.parse()?,
                Long("stream") => options.stream = arguments.value()?.string()?,
                Value(role) if role == "outlet" => options.role = Role::Outlet,
                Value(role) if role == "inlet" => options.role = Role::Inlet,
                other => return Err(other.unexpected().into()),
            }
        }
        Ok(options)
    }

    fn run(&self) -> Result<()> {
        match (self.role, &self.library) {
            (Role::Outlet, library) => send(self, library.as_deref()),
            (Role::Inlet, library) => receive(self, library.as_deref()),
            (Role::Driver, Some(library)) => compare(self, library),
            (Role::Driver, None) => Err("--lib LIBLSL.so says what to compare with".into()),
        }
    }

    fn samples(&self) -> usize {
        (self.seconds * self.rate) as usize
    }
}

/// Both implementations in turns, the order changing from round to round.
fn compare(options: &Options, library: &Path) -> Result<()> {
    let mut rounds = Vec::new();
    let mut ratios: [Vec<f64>; 3] = Default::default();
    for round in 0..options.rounds {
        let order = if round % 2 == 0 {
            [None, Some(library)]
        } else {
            [Some(library), None]
        };
        let mut ours = Value::Null;
        let mut theirs = Value::Null;
        for library in order {
            let result = one_case(options, library, round)?;
            *(if library.is_none() {
                &mut ours
            } else {
                &mut theirs
            }) = result;
        }
        println!("round {round}: ours {ours}\n         theirs {theirs}");
        for (key, ratios) in ["p50_us", "p95_us", "cpu_us_per_sample"]
            .iter()
            .zip(&mut ratios)
        {
            if let (Some(ours), Some(theirs)) = (ours[key].as_f64(), theirs[key].as_f64()) {
                ratios.push(ours / theirs);
            }
        }
        rounds.push(json!({ "ours": ours, "theirs": theirs }));
    }
    let [p50, p95, cpu] = ratios.map(median);
    let version = Lsl::load(library)?.library_version();
    let report = json!({
        "schema": "lsl-latency/1",
        "liblsl": version,
        "channels": options.channels,
        "rate": options.rate,
        "seconds": options.seconds,
        "rounds": rounds,
        "median_ratio": { "p50": p50, "p95": p95, "cpu": cpu },
    });
    println!("{}", serde_json::to_string_pretty(&report)?);
    println!(
        "ours / liblsl {version}: p50 {p50:.3}, p95 {p95:.3}, cpu {cpu:.3} (medians of paired ratios)"
    );
    Ok(())
}

/// One outlet process and one inlet process; gives what they measured.
fn one_case(options: &Options, library: Option<&Path>, round: usize) -> Result<Value> {
    let name = library.map_or("ours", |_| "theirs");
    let stream = format!("{}-{round}-{name}", options.stream);
    let spawn = |role: &str| -> Result<Child> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg(role).args(["--stream", &stream]);
        command.args(["--seconds", &options.seconds.to_string()]);
        command.args(["--channels", &options.channels.to_string()]);
        command.args(["--rate", &options.rate.to_string()]);
        if let Some(library) = library {
            command.arg("--lib").arg(library);
        }
        // Open input tells the outlet that it is still needed.
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        Ok(command.spawn()?)
    };
    let mut outlet = spawn("outlet")?;
    let inlet = spawn("inlet")?.wait_with_output()?;
    drop(outlet.stdin.take());
    let outlet = outlet.wait_with_output()?;
    let read = |output: &[u8]| -> Result<Value> {
        serde_json::from_slice(output)
            .map_err(|_| format!("{name}: {}", String::from_utf8_lossy(output)).into())
    };
    let (mut result, sent) = (read(&inlet.stdout)?, read(&outlet.stdout)?);
    result["push_p50_us"] = sent["push_p50_us"].clone();
    let cpu = [&result, &sent].map(|side| side["cpu_secs"].as_f64().unwrap_or(0.0));
    let samples = options.samples() as f64;
    result["cpu_us_per_sample"] = (1e6 * (cpu[0] + cpu[1]) / samples).into();
    result["outlet_cpu_secs"] = cpu[1].into();
    Ok(result)
}

enum Sender {
    Ours(Outlet),
    Theirs(lsl_dl::Outlet),
}

fn send(options: &Options, library: Option<&Path>) -> Result<()> {
    let sender = match library {
        None => Sender::Ours(Outlet::new(StreamInfo::new(
            options.stream.as_str(),
            "Latency",
            options.channels.into(),
            options.rate,
            ChannelFormat::Float32,
            options.stream.as_str(),
        )?)?),
        Some(library) => {
            let lsl = Lsl::load(library)?;
            let stream = &options.stream;
            let info =
                lsl.stream_info(stream, "Latency", options.channels, options.rate, stream)?;
            Sender::Theirs(lsl_dl::Outlet::open(&info, BUFFER_SECS)?)
        }
    };
    let read = match &sender {
        Sender::Ours(outlet) => outlet.blocking().wait_for_consumers(PATIENCE),
        Sender::Theirs(outlet) => outlet.wait_for_consumers(PATIENCE.as_secs_f64()),
    };
    if !read {
        return Err("no inlet came".into());
    }
    let values = vec![1.5_f32; options.channels.into()];
    let mut took = Vec::with_capacity(options.samples());
    let begin = local_clock() + 0.05;
    for n in 0..WARM_UP + options.samples() {
        let due = begin + n as f64 / options.rate;
        pause_until(due);
        let now = local_clock();
        match &sender {
            Sender::Ours(outlet) => outlet.push_at(&values, now)?,
            Sender::Theirs(outlet) => outlet.push(&values, now)?,
        }
        took.push(1e6 * (local_clock() - now));
    }
    let cpu = cpu_secs();
    // The inlet may still be reading: stay until the driver says that it is done.
    std::io::stdin().read_to_end(&mut Vec::new())?;
    println!(
        "{}",
        json!({ "push_p50_us": percentile(&mut took, 0.5), "cpu_secs": cpu })
    );
    Ok(())
}

enum Receiver {
    Ours(Inlet),
    Theirs(lsl_dl::Inlet),
}

fn receive(options: &Options, library: Option<&Path>) -> Result<()> {
    let receiver = match library {
        None => {
            let selector = Selector::property("name", &options.stream)?;
            let found = Context::global().resolve_blocking(&selector, 1, PATIENCE)?;
            let inlet = Inlet::new(found.first().ok_or("the stream was not found")?)?;
            inlet.blocking().open(PATIENCE)?;
            Receiver::Ours(inlet)
        }
        Some(library) => {
            let patience = PATIENCE.as_secs_f64();
            let found = Lsl::load(library)?.resolve_one(
                "name",
                &options.stream,
                options.channels,
                patience,
            )?;
            let inlet = lsl_dl::Inlet::new(&found.ok_or("the stream was not found")?, BUFFER_SECS)?;
            inlet.open_stream(patience)?;
            Receiver::Theirs(inlet)
        }
    };
    let mut values = vec![0.0_f32; options.channels.into()];
    let mut latencies = Vec::with_capacity(options.samples());
    let expected = WARM_UP + options.samples();
    for n in 0..expected {
        let pulled = match &receiver {
            Receiver::Ours(inlet) => inlet.blocking().pull(&mut values, GAP)?,
            Receiver::Theirs(inlet) => inlet.pull(&mut values, GAP.as_secs_f64())?,
        };
        let now = local_clock();
        let Some(stamp) = pulled else { break };
        if n >= WARM_UP {
            latencies.push(1e6 * (now - stamp));
        }
    }
    let received = latencies.len();
    println!(
        "{}",
        json!({
            "p50_us": percentile(&mut latencies, 0.5),
            "p95_us": percentile(&mut latencies, 0.95),
            "p99_us": percentile(&mut latencies, 0.99),
            "max_us": percentile(&mut latencies, 1.0),
            "received": received,
            "lost": options.samples() - received,
            "cpu_secs": cpu_secs(),
        })
    );
    Ok(())
}

fn pause_until(due: f64) {
    let left = due - local_clock();
    if left > 0.0 {
        std::thread::sleep(Duration::from_secs_f64(left));
    }
}

/// Processor time of this process so far, user and system; `None` where the system does not tell.
fn cpu_secs() -> Option<f64> {
    /// What the kernel counts in, for user programs, on every architecture.
    const TICKS_PER_SEC: f64 = 100.0;
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The name of the program, in parentheses, may hold blanks.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = |n: usize| fields.get(n)?.parse::<f64>().ok();
    Some((ticks(11)? + ticks(12)?) / TICKS_PER_SEC)
}

/// The smallest value that is not smaller than this part of them; `None` of nothing.
fn percentile(values: &mut [f64], part: f64) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let rank = (part * values.len() as f64).ceil() as usize;
    values.get(rank.max(1) - 1).copied()
}

/// The middle value, or the mean of the two in the middle.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = |n: usize| values.get(n).copied().unwrap_or(f64::NAN);
    let half = values.len() / 2;
    if values.len().is_multiple_of(2) {
        f64::midpoint(middle(half.wrapping_sub(1)), middle(half))
    } else {
        middle(half)
    }
}

/// Samples before anything is measured.
const WARM_UP: usize = 200;

/// Seconds of data the two sides keep.
const BUFFER_SECS: i32 = 60;

/// Time for finding and connecting.
const PATIENCE: Duration = Duration::from_secs(20);

/// A pause this long in the stream ends it.
const GAP: Duration = Duration::from_secs(2);
