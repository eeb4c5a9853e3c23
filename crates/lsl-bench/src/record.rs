//! `lsl bench record`: recording of many fast streams without a gap, and its cost. One process
//! sends numbered samples, another one records them, and the file is read to prove it.

mod life;
mod proof;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufReader, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use lsl_cli::failure::{Failure, Outcome};
use lsl_cli::interrupt::Stop;
use lsl_cli::ui::notice::note;
use lsl_cli::ui::table::{Align, Table};
use lsl_core::local_clock;
use lsl_xdf::at_rest::{Decrypting, Ending, Identities, KeyPair};
use serde::Serialize;

use self::life::Life;
use self::proof::Proof;
use super::child::{Child, interrupted};
use super::output::{Measured, Output};
use super::result::{Cell, Machine, Measurement, Round, Subject};
use super::sandbox::Sandbox;
use super::scratch::{self, Folder};

#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(super) struct Record {
    /// How many streams
    #[arg(long, value_name = "N", default_value = "64", value_parser = clap::value_parser!(u32).range(1..=1024))]
    streams: u32,

    /// Channels of float32 of each
    #[arg(long, value_name = "N", default_value = "64", value_parser = clap::value_parser!(u32).range(1..=4096))]
    channels: u32,

    /// Samples per second of each
    #[arg(long, value_name = "HZ", default_value = "1000", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    rate: u32,

    /// Samples that are sent at once
    #[arg(long, value_name = "N", default_value = "10", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    chunk: u32,

    /// How long to record
    #[arg(long, value_name = "SECS", default_value = "60", value_parser = clap::value_parser!(u32).range(1..=86_400))]
    seconds: u32,

    /// Encrypt the file for a key made for the run
    #[arg(long)]
    encrypted: bool,

    /// Encrypt the streams on their way, too
    #[arg(long)]
    secure: bool,

    /// Where the recording is made, which is removed afterwards [default: the folder of the system for
    /// temporary files]
    #[arg(long, value_name = "DIR")]
    output_dir: Option<PathBuf>,

    /// Print one JSON object
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    output: Output,
}

const HELP: &str = "\
`lsl gen` sends in one process, sample n carries n in all channels; `lsl record` records in another
one; everything stays on the loopback interface. Then every value in the file is compared: received is
what is there, missing what lies between the numbers that are. The command fails if anything is
missing, wrong or too short, or if the recorder says so.

Memory is looked at once a second, and after ten seconds for least, most and growth. CPU is of one
core, 100 % is one. --output keeps these results, --output-dir is where the recording goes.

Examples:
  lsl bench record                             64 x 64 channels at 1 kHz for a minute, 1 GB
  lsl bench record --encrypted --secure
  lsl bench record --streams 8 --seconds 5 --output-dir /dev/shm";

/// Results of the run, as `--json` prints them.
#[derive(Debug, Serialize)]
struct RecordResult {
    streams: usize,
    channels: u32,
    rate: u32,
    encrypted: bool,
    secure: bool,
    /// Exit status of the recorder, `None` after a signal.
    status: Option<i32>,
    recorded_secs: f64,
    /// Samples on each stream, until the generator was told to end after the recording.
    sent_each: Option<u64>,
    sent_dropped: Option<u64>,
    expected: u64,
    received: u64,
    missing: u64,
    wrong: u64,
    gaps: usize,
    /// Gaps that the recorder itself has noted.
    noted_gaps: u64,
    noted_missing: u64,
    #[serde(flatten)]
    values: BTreeMap<String, f64>,
}

impl Record {
    pub(super) fn run(&self) -> Outcome {
        if u64::from(self.rate) * u64::from(self.seconds) > LARGEST_NUMBER {
            let text = format!(
                "no more than {LARGEST_NUMBER} samples a stream: float32 cannot number them"
            );
            return Err(Failure::Usage(text));
        }
        let place = self.output_dir.clone().unwrap_or_else(std::env::temp_dir);
        scratch::require(&place, self.bytes())?;
        note(format_args!(
            "lsl: about {:.0} MB in {}, for {} s",
            self.bytes() as f64 / 1e6,
            place.display(),
            self.seconds
        ));
        let stop = Stop::install()?;
        let folder = Folder::make(&place, "record")?;
        let machine = Machine::here();
        let (shown, measurement) = self.measure(&folder, &stop)?;
        drop(folder);
        self.show(&shown)?;
        let detail = format!(
            "file {}, streams {}",
            if self.encrypted { "encrypted" } else { "plain" },
            if self.secure { "encrypted" } else { "plain" }
        );
        let parameters = [
            ("streams", self.streams),
            ("channels", self.channels),
            ("rate", self.rate),
            ("seconds", self.seconds),
        ];
        let parameters = parameters.map(|(name, value)| (name.to_owned(), value.into()));
        let measured = Measured {
            benchmark: "record",
            subjects: vec![Subject {
                name: "lsl record".into(),
                detail,
                secure: self.secure,
            }],
            baseline: 0,
            cells: vec![Cell {
                parameters: parameters.into(),
                rounds: vec![Round {
                    measurements: vec![measurement],
                }],
            }],
        };
        self.output.write(machine, measured)
    }

    /// Bytes that the recording will have.
    fn bytes(&self) -> u64 {
        let sample = u64::from(self.channels) * 4 + STAMP_BYTES;
        // The last moments may come twice as long as asked for.
        let samples = u64::from(self.rate) * (u64::from(self.seconds) + 5);
        samples * sample * u64::from(self.streams)
    }

    fn measure(&self, folder: &Folder, stop: &Stop) -> Outcome<(RecordResult, Measurement)> {
        let ports = u16::try_from(self.streams).unwrap_or(u16::MAX) + SPARE_PORTS;
        let sandbox = Sandbox::make(ports)?;
        let environment = sandbox.environment(self.secure);
        let [streams, channels, rate, chunk, seconds] = [
            self.streams,
            self.channels,
            self.rate,
            self.chunk,
            self.seconds,
        ]
        .map(|it| it.to_string());
        let words = [
            "lsl",
            "--loopback",
            "gen",
            "--name",
            NAME,
            "--pattern",
            "counter",
            "--wait",
            "--streams",
            &streams,
            "--channels",
            &channels,
            "--rate",
            &rate,
            "--chunk",
            &chunk,
        ];
        let mut generator = Child::spawn(&words, &environment)?;
        until_said(&mut generator, "Waiting for a receiver", stop)?;

        let pair = KeyPair::generate();
        let path = folder.path(if self.encrypted {
            "load.xdf.age"
        } else {
            "load.xdf"
        });
        let output = path.to_string_lossy().into_owned();
        let mut words = vec!["lsl", "--loopback", "record", "--json"];
        words.extend(["--timeout", SEARCH_SECS, "--duration", &seconds]);
        words.extend(["--output", &output]);
        if self.encrypted {
            words.extend(["--recipient", &pair.recipient]);
        }
        let mut recorder = Child::spawn(&words, &environment)?;
        let mut life = Life::default();
        let limit = f64::from(self.seconds) + MOST_EXTRA_SECS;
        let status = life.watch(&mut recorder, &mut generator, limit, stop)?;
        generator.interrupt()?;
        let (sent_each, sent_dropped) = sent(&mut generator, stop)?;

        note("lsl: reading the recording");
        let identity = self.encrypted.then_some(pair.identity.as_str());
        let proofs = if status.success() || path.exists() {
            prove(&path, identity, stop)?
        } else {
            Vec::new()
        };
        let file_mib = fs::metadata(&path).map_or(0.0, |file| file.len() as f64 / MIB);
        let sum = |of: fn(&Proof) -> u64| proofs.iter().map(of).sum::<u64>();
        let (expected, received) = (sum(|proof| proof.next), sum(|proof| proof.received));
        let values = values(&life, file_mib);
        let shown = RecordResult {
            streams: proofs.len(),
            channels: self.channels,
            rate: self.rate,
            encrypted: self.encrypted,
            secure: self.secure,
            status: status.code(),
            recorded_secs: life.recorded_secs,
            sent_each,
            sent_dropped,
            expected,
            received,
            missing: expected.saturating_sub(received),
            wrong: sum(|proof| proof.wrong),
            gaps: proofs.iter().map(|proof| proof.gaps.len()).sum(),
            noted_gaps: life.gaps,
            noted_missing: life.missing + life.unwritten,
            values: values.clone(),
        };
        let remarks = recorder.remarks().join(" | ");
        let measurement = Measurement {
            values,
            expected,
            received,
            gaps: proof::gaps(&proofs),
            failure: self
                .complaint(&shown, &proofs)
                .map(|text| format!("{text}; the recorder: {remarks}")),
            ..Measurement::default()
        };
        Ok((shown, measurement))
    }

    /// Returns the fault of a recording that is not a gap.
    fn complaint(&self, shown: &RecordResult, proofs: &[Proof]) -> Option<String> {
        let least = u64::from(self.rate) * u64::from(self.seconds)
            - u64::from(self.rate) / 2
            - u64::from(self.chunk);
        let short = proofs.iter().filter(|proof| proof.next < least).count();
        if shown.status != Some(0) {
            Some(format!("the recorder ended with status {:?}", shown.status))
        } else if proofs.len() != self.streams as usize {
            Some(format!(
                "{} of {} streams are in the file",
                proofs.len(),
                self.streams
            ))
        } else if shown.wrong > 0 {
            Some(format!(
                "{} samples are not those that were sent",
                shown.wrong
            ))
        } else if short > 0 {
            Some(format!("{short} streams end before their {least} samples"))
        } else if proofs.iter().any(|proof| !proof.has_footer) {
            Some("a stream has no footer".into())
        } else if proofs
            .iter()
            .any(|proof| proof.noted_gaps != proof.gaps.len())
        {
            Some("the footers tell of other gaps than there are".into())
        } else {
            None
        }
    }

    fn show(&self, shown: &RecordResult) -> Outcome {
        let mut out = io::stdout().lock();
        if self.json {
            serde_json::to_writer(&mut out, shown)?;
            writeln!(out)?;
            return Ok(out.flush()?);
        }
        let mut table = Table::new(&[("measured", Align::Left), ("value", Align::Right)]);
        let known =
            |value: Option<u64>| value.map_or_else(|| "-".into(), |value| value.to_string());
        let rows = [
            ("streams", shown.streams.to_string()),
            (
                "recorder's exit status",
                shown.status.map_or_else(|| "-".into(), |it| it.to_string()),
            ),
            ("seconds recorded", format!("{:.1}", shown.recorded_secs)),
            (
                "samples sent on each, until after that",
                known(shown.sent_each),
            ),
            ("dropped by the generator", known(shown.sent_dropped)),
            ("samples expected in all", shown.expected.to_string()),
            ("samples recorded", shown.received.to_string()),
            ("missing", shown.missing.to_string()),
            ("gaps", shown.gaps.to_string()),
            ("gaps noted by the recorder", shown.noted_gaps.to_string()),
            ("wrong", shown.wrong.to_string()),
        ];
        for (name, value) in rows {
            table.push([name, &value]);
        }
        for (name, value) in &shown.values {
            let metric = super::metrics::METRICS
                .iter()
                .find(|metric| metric.name == name);
            let title =
                metric.map_or_else(|| name.clone(), |it| format!("{}, {}", it.title, it.unit));
            table.push([title, format!("{value:.1}")]);
        }
        Ok(table.write(&mut out, "")?)
    }
}

fn values(life: &Life, file_mib: f64) -> BTreeMap<String, f64> {
    let cpu = life.cpu_percent();
    let memory = life.memory();
    let all = [
        ("recorder_cpu_percent", cpu.map(|(recorder, _)| recorder)),
        ("generator_cpu_percent", cpu.map(|(_, generator)| generator)),
        ("recorder_rss_min_mib", memory.map(|(least, ..)| least)),
        ("recorder_rss_max_mib", memory.map(|(_, most, _)| most)),
        (
            "recorder_rss_mib_per_min",
            memory.and_then(|(.., growth)| growth),
        ),
        ("peak_rss_mib", life.peak_mib()),
        ("waiting_max_mib", Some(life.most_waiting as f64 / MIB)),
        ("file_mib", Some(file_mib)),
    ];
    all.into_iter()
        .filter_map(|(name, value)| Some((name.to_owned(), value?)))
        .collect()
}

/// Reads the whole recording, decrypting it if `identity` is given.
fn prove(path: &Path, identity: Option<&str>, stop: &Stop) -> Outcome<Vec<Proof>> {
    let input = BufReader::with_capacity(PIECE, File::open(path)?);
    let Some(identity) = identity else {
        return proof::read(input, stop);
    };
    let mut identities = Identities::new();
    identities.add("the key of the run", identity)?;
    let mut input = Decrypting::new(input, &identities, Ending::Strict)?;
    proof::read(&mut input, stop)
}

/// Waits until a process has written this.
fn until_said(child: &mut Child, text: &str, stop: &Stop) -> Outcome {
    let deadline = local_clock() + START_SECS;
    while !child.remarks().iter().any(|line| line.contains(text)) {
        let has_ended = child.status()?.is_some();
        if has_ended || local_clock() > deadline {
            let remarks = child.remarks().join(" | ");
            return Err(Failure::Runtime(format!(
                "the generator does not start: {remarks}"
            )));
        }
        if !stop.sleep_until(local_clock() + NAP_SECS) {
            return Err(interrupted());
        }
    }
    Ok(())
}

/// Samples that the generator says it has sent on each stream, and dropped on all.
fn sent(generator: &mut Child, stop: &Stop) -> Outcome<(Option<u64>, Option<u64>)> {
    let deadline = local_clock() + START_SECS;
    while generator.status()?.is_none() && local_clock() < deadline {
        if !stop.sleep_until(local_clock() + NAP_SECS) {
            return Err(interrupted());
        }
    }
    stop.sleep_until(local_clock() + NAP_SECS);
    let said = generator.remarks();
    let line = said.iter().find_map(|line| line.strip_prefix("Sent "));
    let number = |text: &str| {
        text.split_whitespace()
            .last()
            .and_then(|word| word.parse().ok())
    };
    Ok(line.map_or((None, None), |line| {
        let sent = line.split(" samples").next().and_then(number);
        let dropped = line.split(" samples dropped").next().and_then(number);
        (sent, dropped)
    }))
}

const NAME: &str = "Load";
/// float32 numbers whole numbers up to 2^24.
const LARGEST_NUMBER: u64 = 16_000_000;
const STAMP_BYTES: u64 = 9;
const SPARE_PORTS: u16 = 16;
const SEARCH_SECS: &str = "20";
const START_SECS: f64 = 30.0;
/// Longest time for search, connecting and the end.
const MOST_EXTRA_SECS: f64 = 120.0;
const NAP_SECS: f64 = 0.05;
const MIB: f64 = (1 << 20) as f64;
const PIECE: usize = 256 << 10;
