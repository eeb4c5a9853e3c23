//! Recordings that are killed or run out of disk, in real processes and file systems. Run by
//! `cargo xtask xdf`.
//!
//!     survive kill DIR TIMES    kill -9 a recorder, repair, count
//!     survive full DIR          record until the disk is full, finish, count (DIR: a small one)
//!     survive victim FILE       what is killed
#![forbid(unsafe_code)]
#![expect(
    clippy::print_stdout,
    clippy::cast_precision_loss,
    reason = "a tool for a person, with numbered samples"
)]

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use lsl_proto::ChannelFormat;
use lsl_xdf::repair::{check, repair_in_place};
use lsl_xdf::{
    ErrorKind, FileHeader, FileSink, Loaded, Recording, StreamHeader, Strings, Values, load,
};

type Result<T = (), E = Box<dyn std::error::Error>> = std::result::Result<T, E>;

const RATE: f64 = 1000.0;

/// Samples per chunk: few and many.
const SIZES: [u64; 4] = [1, 20, 3, 400];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    let done = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [_, "victim", file] => victim(Path::new(file)),
        [_, "kill", dir, times] => kill(Path::new(dir), times),
        [_, "full", dir] => full(Path::new(dir)),
        _ => Err("survive kill DIR TIMES | full DIR".into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("survive: {error}");
            ExitCode::FAILURE
        }
    }
}

/// A recording of two streams whose values are the numbers of their samples.
struct Numbered {
    recording: Recording<FileSink>,
    next: u64,
    chunks: usize,
}

impl Numbered {
    fn begin(path: &Path) -> Result<Self> {
        let mut recording = Recording::create(path, &FileHeader::new("2026-11-22"), 0.0)?;
        for format in [ChannelFormat::Int64, ChannelFormat::String] {
            let header = StreamHeader::new(format.name(), "count", 1, RATE, format)?;
            recording.add_stream(&header, 0.0)?;
        }
        Ok(Self {
            recording,
            next: 0,
            chunks: 0,
        })
    }

    /// One chunk of each stream and a clock offset.
    fn round(&mut self) -> Result<(), lsl_xdf::Error> {
        let numbers = self.next..self.next + SIZES[self.chunks % SIZES.len()];
        let now = self.next as f64 / RATE;
        let stamps: Vec<f64> = numbers.clone().map(|n| n as f64 / RATE).collect();
        let texts: Strings = numbers.clone().map(|n| n.to_string()).collect();
        let values: Vec<i64> = numbers.clone().map(u64::cast_signed).collect();
        self.recording.samples(1, &stamps, &values.into(), now)?;
        self.recording
            .samples(2, &stamps, &Values::String(texts), now)?;
        self.recording.clock_offset(1, now, 0.5, now)?;
        self.next = numbers.end;
        self.chunks += 1;
        Ok(())
    }
}

fn victim(path: &Path) -> Result {
    let mut numbered = Numbered::begin(path)?;
    let mut out = std::io::stdout();
    loop {
        numbered.round()?;
        if numbered.chunks.is_multiple_of(50) {
            numbered.recording.sync()?;
        }
        // What is said here must never be lost when only the process dies.
        writeln!(out, "{}", numbered.next)?;
        out.flush()?;
    }
}

/// How many samples each stream has; they must be the first ones, in order.
fn count(loaded: &Loaded) -> Result<[u64; 2]> {
    if let Some(problem) = loaded.problems.first() {
        return Err(problem.to_string().into());
    }
    let mut counts = [0; 2];
    for (stream, count) in loaded.streams.iter().zip(&mut counts) {
        for (n, stamp) in (0_u64..).zip(&stream.stamps) {
            let index = usize::try_from(n)?;
            let is_right = match &stream.values {
                Values::Int64(list) => list[index] == n.cast_signed(),
                Values::String(list) => list.get(index) == Some(n.to_string().as_bytes()),
                _ => false,
            };
            if !is_right || stamp.to_bits() != (n as f64 / RATE).to_bits() {
                return Err(format!("sample {n} is another one").into());
            }
            *count += 1;
        }
        let footer = stream.footer.as_ref().ok_or("no footer")?;
        if footer.sample_count() != Some(*count) {
            return Err("the footer is wrong".into());
        }
    }
    Ok(counts)
}

fn kill(dir: &Path, times: &str) -> Result {
    let times: u64 = times.parse()?;
    let (mut samples, mut cut) = (0, 0);
    for time in 0..times {
        let path = dir.join(format!("killed-{time}.xdf"));
        let mut child = Command::new(std::env::current_exe()?)
            .arg("victim")
            .arg(&path)
            .stdout(Stdio::piped())
            .spawn()?;
        let mut said = BufReader::new(child.stdout.take().ok_or("no output")?).lines();
        // Rounds until it is killed, some more will follow before it is dead.
        let rounds = 1 + time.wrapping_mul(7919) % 400;
        for _ in 0..rounds {
            said.next().ok_or("the recorder ended by itself")??;
        }
        std::thread::sleep(std::time::Duration::from_micros(time * 37 % 1500));
        child.kill()?;
        child.wait()?;
        let mut last = 0;
        // A line may be cut, too.
        for line in said.map_while(std::result::Result::ok) {
            last = line.parse().unwrap_or(last).max(last);
        }
        let survey = repair_in_place(&path)?;
        cut += u64::from(survey.dropped_bytes > 0);
        let counts = count(&load(fs::File::open(&path)?)?)?;
        let [numbers, texts] = counts;
        if numbers < last || texts < last || numbers - texts > 400 {
            return Err(format!("{last} were promised, {counts:?} are there").into());
        }
        if !check(&path)?.is_whole() {
            return Err("not whole after the repair".into());
        }
        samples += numbers;
        fs::remove_file(&path)?;
    }
    println!("survive: killed {times} times ({cut} in a chunk), {samples} samples, none lost");
    Ok(())
}

fn full(dir: &Path) -> Result {
    let path = dir.join("full.xdf");
    let mut numbered = Numbered::begin(&path)?;
    let error = loop {
        if let Err(error) = numbered.round() {
            break error;
        }
    };
    if error.kind() != ErrorKind::Full {
        return Err(error.into());
    }
    // The footers need room as well, and have it.
    numbered.recording.finish(0.0)?;
    let counts = count(&load(fs::File::open(&path)?)?)?;
    if counts[0] < numbered.next || counts[1] < numbered.next {
        return Err(format!("{} were promised, {counts:?} are there", numbered.next).into());
    }
    println!(
        "survive: {error} after {} bytes; closed with {counts:?} samples, none lost",
        numbered.recording.len()
    );
    Ok(())
}
