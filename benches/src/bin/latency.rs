//! One-way latency of our implementation and of a liblsl, or of ours encrypted and in plaintext, taken
//! in turns on this host.
//!
//! Every case is two processes, an outlet and an inlet of one implementation, on whatever network
//! they find (run it in a network namespace to have it alone). The outlet stamps each sample with
//! the host's clock when it pushes; the inlet reads the same clock when its blocking pull returns.
//! Machines drift, so only the ratio of two cases of one round means anything.
//!
//! ```text
//! latency --lib LIBLSL.so [--rounds 5] [--seconds 10] [--channels 64,…] [--rate 1000]
//! latency --secure        [the same]
//! ```
//!
//! With `--secure` both ends are one device with a key that was made for the run.
#![expect(clippy::print_stdout, reason = "a command-line program")]
#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "counts and times of a benchmark are small and positive"
)]

use std::error::Error;
use std::fmt::Write as _;
use std::fs::{DirBuilder, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use lsl_core::secure::{OsRandom, SecretKey, keyfile};
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
    /// Whether ours is compared with itself, encrypted.
    is_secure: bool,
    rounds: usize,
    seconds: f64,
    /// One after the other; one only in the processes of the driver.
    channels: Vec<u16>,
    rate: f64,
    stream: String,
}

impl Options {
    fn parse() -> Result<Self> {
        use lexopt::prelude::*;
        let mut options = Self {
            role: Role::Driver,
            library: None,
            is_secure: false,
            rounds: 5,
            seconds: 10.0,
            channels: vec![64],
            rate: 1000.0,
            stream: format!("latency-{}", std::process::id()),
        };
        let mut arguments = lexopt::Parser::from_env();
        while let Some(argument) = arguments.next()? {
            match argument {
                Long("lib") => options.library = Some(arguments.value()?.into()),
                Long("secure") => options.is_secure = true,
                Long("rounds") => options.rounds = arguments.value()?.parse()?,
                Long("seconds") => options.seconds = arguments.value()?.parse()?,
                Long("channels") => {
                    let list = arguments.value()?.string()?;
                    let counts = list.split(',').map(str::parse);
                    options.channels = counts.collect::<Result<_, _>>()?;
                }
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
        let channels = *self.channels.first().ok_or("how many --channels?")?;
        match (self.role, &self.library, self.is_secure) {
            (Role::Outlet, library, _) => send(self, channels, library.as_deref()),
            (Role::Inlet, library, _) => receive(self, channels, library.as_deref()),
            (Role::Driver, Some(library), false) => {
                let version = Lsl::load(library)?.library_version();
                let theirs = Case {
                    name: "theirs",
                    kind: Kind::Theirs(library.clone()),
                };
                compare_all(
                    self,
                    &[plain("ours")?, theirs],
                    &format!("liblsl {version}"),
                )
            }
            (Role::Driver, None, true) => {
                let cases = [secure()?, plain("plaintext")?];
                compare_all(self, &cases, "ours in plaintext")
            }
            (Role::Driver, ..) => {
                Err("--lib LIBLSL.so or --secure says what to compare with".into())
            }
        }
    }

    fn samples(&self) -> usize {
        (self.seconds * self.rate) as usize
    }
}

/// One of the two that are compared.
#[derive(Debug)]
struct Case {
    name: &'static str,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    /// Ours, with the home directory in which it finds no keys.
    Plain(PathBuf),
    /// Ours, with this security configuration.
    Secure(PathBuf),
    /// This library.
    Theirs(PathBuf),
}

fn plain(name: &'static str) -> Result<Case> {
    let kind = Kind::Plain(new_folder("plain")?);
    Ok(Case { name, kind })
}

/// A new device that trusts nobody but itself.
fn secure() -> Result<Case> {
    let folder = new_folder("secure")?;
    let key = SecretKey::generate(&mut OsRandom)?;
    keyfile::write_new_key(&folder.join("device_key.pem"), &key, None)?;
    let files = [
        ("trusted_peers.toml", String::new()),
        ("lsl-secure.toml", SECURE_CONFIG.to_owned()),
    ];
    for (name, text) in files {
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o600);
        options
            .open(folder.join(name))?
            .write_all(text.as_bytes())?;
    }
    let kind = Kind::Secure(folder.join("lsl-secure.toml"));
    Ok(Case {
        name: "secure",
        kind,
    })
}

/// An empty folder of this process.
fn new_folder(name: &str) -> Result<PathBuf> {
    let name = format!("lsl-latency-{}-{name}", std::process::id());
    let folder = std::env::temp_dir().join(name);
    DirBuilder::new().mode(0o700).create(&folder)?;
    Ok(folder)
}

impl Drop for Case {
    fn drop(&mut self) {
        let folder = match &self.kind {
            Kind::Plain(folder) => Some(folder.as_path()),
            Kind::Secure(file) => file.parent(),
            Kind::Theirs(_) => None,
        };
        // What cannot be removed is left in the folder for such things.
        folder.map(std::fs::remove_dir_all);
    }
}

/// Compares for one number of channels after the other.
fn compare_all(options: &Options, cases: &[Case; 2], against: &str) -> Result<()> {
    let mut runs = Vec::new();
    let mut table = format!(
        "{:>8}  {:>6} {:>6} {:>6}   medians of paired ratios, {} / {against}\n",
        "channels", "p50", "p95", "cpu", cases[0].name,
    );
    for &channels in &options.channels {
        let (rounds, [p50, p95, cpu]) = compare(options, channels, cases)?;
        writeln!(table, "{channels:>8}  {p50:>6.3} {p95:>6.3} {cpu:>6.3}")?;
        runs.push(json!({
            "channels": channels,
            "rounds": rounds,
            "median_ratio": { "p50": p50, "p95": p95, "cpu": cpu },
        }));
    }
    let report = json!({
        "schema": "lsl-latency/2",
        "against": against,
        "rate": options.rate,
        "seconds": options.seconds,
        "runs": runs,
    });
    println!("{}", serde_json::to_string_pretty(&report)?);
    print!("{table}");
    Ok(())
}

/// Both cases in turns, the order changing from round to round.
fn compare(options: &Options, channels: u16, cases: &[Case; 2]) -> Result<(Vec<Value>, [f64; 3])> {
    let mut rounds = Vec::new();
    let mut ratios: [Vec<f64>; 3] = Default::default();
    for round in 0..options.rounds {
        let order = if round % 2 == 0 { [0, 1] } else { [1, 0] };
        let mut results = [Value::Null, Value::Null];
        for index in order {
            results[index] = one_case(options, channels, &cases[index], round)?;
        }
        let [first, second] = &results;
        println!(
            "{channels} channels, round {round}: {} {first}\n    {} {second}",
            cases[0].name, cases[1].name
        );
        for (key, ratios) in ["p50_us", "p95_us", "cpu_us_per_sample"]
            .iter()
            .zip(&mut ratios)
        {
            if let (Some(first), Some(second)) = (first[key].as_f64(), second[key].as_f64()) {
                ratios.push(first / second);
            }
        }
        rounds.push(json!({ (cases[0].name): first, (cases[1].name): second }));
    }
    Ok((rounds, ratios.map(median)))
}

/// One outlet process and one inlet process; gives what they measured.
fn one_case(options: &Options, channels: u16, case: &Case, round: usize) -> Result<Value> {
    let name = case.name;
    let stream = format!("{}-{channels}-{round}-{name}", options.stream);
    let spawn = |role: &str| -> Result<Child> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg(role).args(["--stream", &stream]);
        command.args(["--seconds", &options.seconds.to_string()]);
        command.args(["--channels", &channels.to_string()]);
        command.args(["--rate", &options.rate.to_string()]);
        match &case.kind {
            Kind::Theirs(library) => command.arg("--lib").arg(library),
            Kind::Plain(home) => command.env_remove(SECURE_VARIABLE).env("HOME", home),
            Kind::Secure(file) => command.arg("--secure").env(SECURE_VARIABLE, file),
        };
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

fn send(options: &Options, channels: u16, library: Option<&Path>) -> Result<()> {
    let sender = match library {
        None => Sender::Ours(Outlet::new(StreamInfo::new(
            options.stream.as_str(),
            "Latency",
            channels.into(),
            options.rate,
            ChannelFormat::Float32,
            options.stream.as_str(),
        )?)?),
        Some(library) => {
            let lsl = Lsl::load(library)?;
            let stream = &options.stream;
            let info = lsl.stream_info(
                stream,
                "Latency",
                channels.into(),
                options.rate,
                lsl_dl::Format::Float32,
                stream,
            )?;
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
    let values = vec![1.5_f32; channels.into()];
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

fn receive(options: &Options, channels: u16, library: Option<&Path>) -> Result<()> {
    let receiver = match library {
        None => {
            let selector = Selector::property("name", &options.stream)?;
            let found = Context::global().resolve_blocking(&selector, 1, PATIENCE)?;
            let inlet = Inlet::new(found.first().ok_or("the stream was not found")?)?;
            inlet.blocking().open(PATIENCE)?;
            if inlet.encryption().is_some() != options.is_secure {
                return Err(format!("not as it should be: {:?}", inlet.encryption()).into());
            }
            Receiver::Ours(inlet)
        }
        Some(library) => {
            let patience = PATIENCE.as_secs_f64();
            let found = Lsl::load(library)?.resolve_one("name", &options.stream, patience)?;
            let inlet = lsl_dl::Inlet::new(&found.ok_or("the stream was not found")?, BUFFER_SECS)?;
            inlet.open_stream(patience)?;
            Receiver::Theirs(inlet)
        }
    };
    let mut values = vec![0.0_f32; channels.into()];
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
    let cipher = match &receiver {
        Receiver::Ours(inlet) => inlet.encryption().map(|found| found.suite),
        Receiver::Theirs(_) => None,
    };
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
            "cipher": cipher,
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

/// Names the security configuration of a process.
const SECURE_VARIABLE: &str = "LSL_SECURE_CONFIG";

const SECURE_CONFIG: &str = "[security]\nname = \"latency\"\npolicy = \"required\"\n\
                             key_file = \"device_key.pem\"\n\
                             trusted_peers = \"trusted_peers.toml\"\n";

/// Samples before anything is measured.
const WARM_UP: usize = 200;

/// Seconds of data the two sides keep.
const BUFFER_SECS: i32 = 60;

/// Time for finding and connecting.
const PATIENCE: Duration = Duration::from_secs(20);

/// A pause this long in the stream ends it.
const GAP: Duration = Duration::from_secs(2);
