//! `lsl bench atrest`: how fast `lsl lock` and `lsl unlock` are from file to file and in a pipe, and how
//! much memory they take.

mod ends;
mod turn;

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use lsl_cli::failure::{Failure, Outcome};
use lsl_cli::interrupt::Stop;
use lsl_cli::ui::notice::note;
use lsl_cli::ui::table::{Align, Table};
use lsl_xdf::at_rest::KeyPair;
use serde::Serialize;

pub(super) use self::ends::AtrestEnd;
use self::turn::{AtrestTurn, Direction, FileOrPipe};
use super::output::{Measured, Output};
use super::result::{Cell, Machine, Measurement, Round, Subject};
use super::rotation::order;
use super::scratch::{self, Folder};
use super::size;
use super::stats::{median, median_ratio};

#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(super) struct Atrest {
    /// Sizes of the files; K, M and G are 1024, 1024² and 1024³ bytes
    #[arg(long, value_name = "SIZE", value_delimiter = ',', default_value = "16M,256M,1G,4G",
          value_parser = size::parse)]
    sizes: Vec<u64>,

    /// Rounds of each size; in each, file to file and the pipe take turns
    #[arg(long, alias = "repeats", value_name = "ROUNDS", default_value = "5",
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeat: u32,

    /// To how many keys files are locked
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1",
          value_parser = clap::value_parser!(u8).range(1..=20))]
    recipients: Vec<u8>,

    /// Where the files are made; three of the largest size must have room there [default: the folder
    /// of the system for temporary files]
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,

    /// Print one JSON object for each size and direction, a line each
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    output: Output,
}

const HELP: &str = "\
Measured are the commands themselves, in processes of their own: `lsl lock -r KEY IN -o OUT`, which
ends when OUT is on the disk, and `lsl lock -r KEY -` between a process that reads IN and one that
takes what comes; the same with `lsl unlock`. Throughput is plain bytes by the time from start to end.
The ratio is pipe to file in the same round, as the median over the rounds: the two follow each other
at once, so that what else the machine does meets both. Memory is the most that the process ever had.
Before its rounds, unlock is done once in each way without a clock: what comes out has the SHA-256 of
what went in, or the command fails.

A disk may be slower than the cipher, then a pipe that ends nowhere wins; with a folder in memory
(--folder /dev/shm) it has to prove itself.

Examples:
  lsl bench atrest                             up to 12 GiB in the temporary folder, many minutes
  lsl bench atrest --sizes 16M,1G --repeat 3 --folder /dev/shm";

/// Results of one direction and size, as `--json` prints them.
#[derive(Debug, Serialize)]
struct ResultRow {
    direction: &'static str,
    bytes: u64,
    recipients: u64,
    rounds: usize,
    file_mib_per_s: Option<f64>,
    pipe_mib_per_s: Option<f64>,
    /// Ratio of the pipe to the file, median of those in the same round.
    ratio: Option<f64>,
    smallest_ratio: Option<f64>,
    /// The most that a process of any round had.
    file_peak_mib: Option<f64>,
    pipe_peak_mib: Option<f64>,
}

impl Atrest {
    pub(super) fn run(&self) -> Outcome {
        let place = self.folder.clone().unwrap_or_else(std::env::temp_dir);
        let largest = self.sizes.iter().copied().max().unwrap_or(0);
        scratch::require(&place, largest.saturating_mul(FILES))?;
        note(format_args!(
            "lsl: up to {} in {}",
            size::shown(largest.saturating_mul(FILES)),
            place.display()
        ));
        let stop = Stop::install()?;
        let folder = Folder::make(&place, "atrest")?;
        let most = self.recipients.iter().copied().max().unwrap_or(1);
        let pairs: Vec<KeyPair> = (0..most).map(|_| KeyPair::generate()).collect();
        let recipients: Vec<&str> = pairs.iter().map(|pair| pair.recipient.as_str()).collect();
        let identity = folder.path("key.txt");
        let own = pairs
            .first()
            .map_or(&[][..], |pair| pair.identity.as_bytes());
        scratch::write_private(&identity, own)?;
        let machine = Machine::here();
        let mut cells = Vec::new();
        let mut done = Ok(());
        for &size in &self.sizes {
            done = self.size(size, &recipients, &identity, &folder, &stop, &mut cells);
            if done.is_err() {
                break;
            }
        }
        cells.retain(|cell| !cell.rounds.is_empty());
        drop(folder);
        self.show(&cells)?;
        let subject = |name: &str, detail: &str| Subject {
            name: name.into(),
            detail: detail.into(),
            secure: true,
        };
        let measured = Measured {
            benchmark: "atrest",
            subjects: vec![
                subject("file", "from file to file, until it is on the disk"),
                subject(
                    "pipe",
                    "from standard input to standard output, between processes",
                ),
            ],
            baseline: 0,
            cells,
        };
        self.output.end(machine, measured, done, &stop)
    }

    /// Measures both directions of one size, to each number of recipients. Values measured before a failure stay.
    fn size(
        &self,
        size: u64,
        recipients: &[&str],
        identity: &Path,
        folder: &Folder,
        stop: &Stop,
        cells: &mut Vec<Cell>,
    ) -> Outcome {
        let (plain, locked) = (folder.path("in"), folder.path("in.age"));
        make(&plain, size, stop)?;
        let number = self.recipients.iter().copied();
        let turns =
            number.flat_map(|number| [(number, Direction::Lock), (number, Direction::Unlock)]);
        for (number, direction) in turns {
            note(format_args!(
                "lsl: {} {}, {}",
                direction.name(),
                size::shown(size),
                lsl_cli::ui::text::count(number.into(), "recipient")
            ));
            let turn = AtrestTurn {
                direction,
                recipients: recipients.get(..number.into()).unwrap_or(recipients),
                identity,
                plain: &plain,
                locked: &locked,
                output: &folder.path("out"),
                stop,
            };
            let parameters = [
                ("bytes", size.into()),
                ("direction", direction.name().into()),
                ("recipients", number.into()),
            ];
            let parameters = parameters.map(|(name, value)| (name.to_owned(), value));
            cells.push(Cell {
                parameters: parameters.into(),
                rounds: Vec::new(),
            });
            if direction == Direction::Unlock {
                turn.check_hashes()?;
            }
            for round in 0..self.repeat as usize {
                let mut measurements = vec![Measurement::default(); WAYS.len()];
                for index in order(round, WAYS.len()) {
                    measurements[index].values = turn.measure(WAYS[index])?;
                }
                if let Some(cell) = cells.last_mut() {
                    cell.rounds.push(Round { measurements });
                }
            }
            if direction == Direction::Lock {
                // Of fewer recipients there may be one.
                remove(&locked)?;
                turn.keep_locked()?;
            }
        }
        fs::remove_file(&plain)?;
        Ok(fs::remove_file(&locked)?)
    }

    fn show(&self, cells: &[Cell]) -> Outcome {
        let mut out = io::stdout().lock();
        if self.json {
            for cell in cells {
                serde_json::to_writer(&mut out, &ResultRow::of(cell))?;
                writeln!(out)?;
            }
            return Ok(out.flush()?);
        }
        let right = Align::Right;
        let mut table = Table::new(&[
            ("size", right),
            ("", Align::Left),
            ("keys", right),
            ("file MiB/s", right),
            ("pipe MiB/s", right),
            ("pipe/file", right),
            ("smallest", right),
            ("peak MiB: file", right),
            ("pipe", right),
        ]);
        for cell in cells {
            let row = ResultRow::of(cell);
            let number = |value: Option<f64>, digits: usize| {
                value.map_or_else(|| "-".into(), |value| format!("{value:.digits$}"))
            };
            table.push([
                size::shown(row.bytes),
                row.direction.to_owned(),
                row.recipients.to_string(),
                cell.median_text(0, SPEED, 0),
                cell.median_text(1, SPEED, 0),
                number(row.ratio, 3),
                number(row.smallest_ratio, 3),
                number(row.file_peak_mib, 1),
                number(row.pipe_peak_mib, 1),
            ]);
        }
        Ok(table.write(&mut out, "")?)
    }
}

impl ResultRow {
    fn of(cell: &Cell) -> Self {
        let pairs = cell.pairs(SPEED, 0, 1);
        let ratios = pairs.iter().map(|(file, pipe)| pipe / file);
        let is_lock = cell.parameters.get("direction") == Some(&Direction::Lock.name().into());
        let direction = if is_lock {
            Direction::Lock
        } else {
            Direction::Unlock
        };
        let parameter = |name: &str| {
            let value = cell.parameters.get(name);
            value.and_then(serde_json::Value::as_u64).unwrap_or(0)
        };
        let peak = |subject| cell.values(subject, PEAK).into_iter().reduce(f64::max);
        Self {
            direction: direction.name(),
            bytes: parameter("bytes"),
            recipients: parameter("recipients"),
            rounds: cell.rounds.len(),
            file_mib_per_s: median(&cell.values(0, SPEED)),
            pipe_mib_per_s: median(&cell.values(1, SPEED)),
            ratio: median_ratio(&pairs),
            smallest_ratio: ratios.reduce(f64::min),
            file_peak_mib: peak(0),
            pipe_peak_mib: peak(1),
        }
    }
}

/// Removes a file if it is there.
fn remove(path: &Path) -> Outcome {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}

/// Makes a file in which nothing repeats, so that neither a file system nor a pipe has it easy.
fn make(path: &Path, size: u64, stop: &Stop) -> Outcome {
    let mut file = File::create(path)?;
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut left = size;
    while left > 0 {
        if stop.requested() {
            return Err(super::child::interrupted());
        }
        let piece: Vec<u8> = (0..PIECE / 8)
            .flat_map(|_| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                state.to_le_bytes()
            })
            .collect();
        let len = usize::try_from(left).map_or(PIECE, |left| left.min(PIECE));
        file.write_all(&piece[..len])?;
        left -= len as u64;
    }
    // Later writing would slow down the first turns.
    file.sync_all().map_err(Failure::from)
}

/// Plain file, encrypted file and the output of a turn.
const FILES: u64 = 3;
const PIECE: usize = 1 << 20;
const WAYS: [FileOrPipe; 2] = [FileOrPipe::File, FileOrPipe::Pipe];
const SPEED: &str = "mib_per_s";
const PEAK: &str = "peak_rss_mib";
