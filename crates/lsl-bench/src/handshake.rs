//! `lsl bench handshake`: sessions set up per second, and the cost of the security log. Both sides
//! of each handshake run in one thread, their messages handed over in memory.

mod audit_log;
mod instructions;

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use clap::builder::PossibleValue;
use clap::{Args, ValueEnum};
use lsl_benches::handshake::{Peers, disagreement};
use lsl_cli::failure::{Failure, Outcome};
use lsl_cli::interrupt::Stop;
use lsl_cli::ui::notice::note;
use lsl_cli::ui::table::{Align, Table};
use lsl_core::local_clock;
use lsl_core::secure::{Suite, Suites};
use lsl_platform::limits::use_one_processor;
use lsl_platform::usage::Usage;

use self::audit_log::AuditLogs;
use super::output::{Measured, Output};
use super::result::{Cell, Machine, Measurement, Round, Subject};
use super::rotation::order;
use super::stats::{median_interval, median_ratio};

#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(super) struct Handshake {
    /// Handshakes per turn
    #[arg(long, value_name = "N", default_value = "10000", value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    count: u64,

    /// Threads: `all` is one for each processor, 1 is one thread on one processor
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "all,1", value_parser = threads)]
    threads: Vec<usize>,

    /// How the two sides' messages travel
    #[arg(long, value_enum, default_value = "memory")]
    transport: Transport,

    /// What is done with the event that each side records for each handshake, below
    #[arg(
        long,
        value_name = "HOW",
        value_enum,
        value_delimiter = ',',
        default_value = "none,off,on,on-sync"
    )]
    audit: Vec<Audited>,

    /// Ciphers
    #[arg(
        long,
        value_name = "CIPHER",
        value_enum,
        value_delimiter = ',',
        default_value = "chacha,aes"
    )]
    suite: Vec<CipherChoice>,

    /// Rounds; in each, every way of auditing has its turn, in rotating order
    #[arg(long, value_name = "ROUNDS", default_value = "20", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    repeat: u32,

    /// Count instructions of one thread instead, under valgrind
    #[arg(long)]
    instructions: bool,

    /// Where the security logs are written, each removed after its turn
    #[arg(long, value_name = "DIR")]
    audit_dir: Option<PathBuf>,

    #[command(flatten)]
    output: Output,
}

/// Channel between the two sides of a handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Transport {
    /// By reference, no sockets
    Memory,
}

/// Treatment of the events that a handshake records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Audited {
    /// No event is made
    None,
    /// Events are offered to a log that nobody wants, as without `audit_file`
    Off,
    /// They are queued for a file, which a thread writes, as with `audit_file`
    On,
    /// The same, and each handshake waits until its events are written
    OnSync,
}

/// A cipher suite that the command line names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum CipherChoice {
    /// ChaCha20-Poly1305
    #[value(name = "chacha")]
    ChaCha,
    /// AES-256-GCM
    Aes,
}

const HELP: &str = "\
Both sides of each handshake are done: key exchange, both signatures, both checks, the stream's
description. Each side records one event, as inlets and outlets do. A turn ends when all its events
are written, and its times and context switches include the writing thread. Afterwards the lines in
the file are counted: written + dropped must be what was recorded, or the command fails.

The library itself never waits for its log; on-sync is what it would cost: Audit::flush after each
handshake. none records nothing at all, and the others are held against it. Context switches below 50
count as 50 there; a run is marked busy, and has no ratio of them, if the machine took the processor
from none over three times as often in one round as in another.

On a machine that does other things, time says little: a thread that never waits gets less of the
processor than one that does. Processor time is what to look at there.

One thread means one processor, by sched_setaffinity as taskset does it. That is not a machine with
one processor (nr_cpus=1): the rest of the system still runs on the others.

Examples:
  lsl bench handshake                                 all of it: some minutes
  lsl bench handshake --count 2000 --repeat 5 --audit off,on --suite chacha --threads 1
  lsl bench handshake --output results
  lsl bench handshake --instructions --threads 1 --repeat 2";

impl Handshake {
    pub(super) fn run(&self) -> Outcome {
        // There is one way so far; the option says so.
        let Transport::Memory = self.transport;
        let suites = self.suites()?;
        let stop = Stop::install()?;
        let logs = AuditLogs::new(self.audit_dir.as_deref())?;
        let machine = Machine::here();
        let mut cells = Vec::new();
        for suite in suites {
            for &threads in &self.threads {
                cells.extend(self.cell(suite, threads, &logs, &stop)?);
            }
        }
        if !self.instructions {
            show(&self.audit, &cells)?;
            judge(&self.audit, &cells);
        }
        let is_base = |audited: &Audited| *audited == Audited::None;
        let measured = Measured {
            benchmark: "handshake",
            subjects: self.audit.iter().map(|audited| audited.subject()).collect(),
            baseline: self.audit.iter().position(is_base).unwrap_or(0),
            cells,
        };
        self.output.write(machine, measured)
    }

    /// Returns the requested suites that this processor supports, and reports the others.
    fn suites(&self) -> Outcome<Vec<Suite>> {
        let here = Suites::of_this_cpu().list();
        let mut suites = Vec::new();
        for wanted in &self.suite {
            let suite = match wanted {
                CipherChoice::ChaCha => Suite::ChaCha20Poly1305,
                CipherChoice::Aes => Suite::Aes256Gcm,
            };
            if here.contains(&suite) {
                suites.push(suite);
            } else {
                note(format_args!(
                    "lsl: without {}: sessions never use it on this processor, which has no instructions for it",
                    suite.name()
                ));
            }
        }
        if suites.is_empty() {
            return Err(Failure::Usage("--suite leaves nothing to measure".into()));
        }
        Ok(suites)
    }

    /// All rounds of one suite and number of threads; `None` when the user wants to end.
    fn cell(
        &self,
        suite: Suite,
        threads: usize,
        logs: &AuditLogs,
        stop: &Stop,
    ) -> Outcome<Option<Cell>> {
        let mut rounds = Vec::new();
        for round in 0..self.repeat as usize {
            note(format_args!(
                "lsl: {}, {}, round {} of {}",
                suite.name(),
                lsl_cli::ui::text::count(threads, "thread"),
                round + 1,
                self.repeat
            ));
            let mut measurements = vec![Measurement::default(); self.audit.len()];
            for index in order(round, self.audit.len()) {
                let audited = self.audit[index];
                let values = if self.instructions {
                    let name = |value: Option<PossibleValue>| {
                        value.map_or_else(String::new, |value| value.get_name().to_owned())
                    };
                    let cipher = match suite {
                        Suite::ChaCha20Poly1305 => CipherChoice::ChaCha,
                        Suite::Aes256Gcm => CipherChoice::Aes,
                    };
                    let [cipher, how] =
                        [cipher.to_possible_value(), audited.to_possible_value()].map(name);
                    Some(instructions::count(&cipher, &how)?)
                } else {
                    self.turn(suite, threads, audited, logs, stop)?
                };
                let Some(values) = values.filter(|_| !stop.requested()) else {
                    return Ok(None);
                };
                measurements[index].values = values;
            }
            rounds.push(Round { measurements });
        }
        let parameters = [
            ("suite".to_owned(), suite.name().into()),
            ("threads".to_owned(), threads.into()),
            ("handshakes".to_owned(), self.count.into()),
        ];
        Ok(Some(Cell {
            parameters: parameters.into(),
            rounds,
        }))
    }

    /// One turn; `None` when the user wants to end.
    fn turn(
        &self,
        suite: Suite,
        threads: usize,
        audited: Audited,
        logs: &AuditLogs,
        stop: &Stop,
    ) -> Outcome<Option<BTreeMap<String, f64>>> {
        let peers = Peers::new(match suite {
            Suite::ChaCha20Poly1305 => Suites::ChaCha20Only,
            Suite::Aes256Gcm => Suites::Both,
        });
        let log = logs.open(audited)?;
        let next = AtomicU64::new(0);
        let work = || -> lsl_core::secure::Result<()> {
            while next.fetch_add(1, Ordering::Relaxed) < self.count && !stop.requested() {
                let (session, _) = peers.session()?;
                log.record(&peers, &session);
            }
            Ok(())
        };
        // A thread that is bound to a processor stays so: each turn has threads of its own.
        let timed = || -> Outcome<(f64, Usage)> {
            if threads == 1 {
                use_one_processor().map_err(|error| {
                    Failure::Runtime(format!("cannot stay on one processor: {error}"))
                })?;
            }
            let (start, before) = (local_clock(), Usage::now());
            thread::scope(|scope| {
                let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
                let own = work();
                let panicked = |_| Err(disagreement());
                let others = others.into_iter();
                others.fold(own, |all, other| {
                    all.and_then(|()| other.join().unwrap_or_else(panicked))
                })
            })?;
            log.finish()?;
            Ok((local_clock() - start, Usage::now().since(before)))
        };
        let (wall, used) = thread::scope(|scope| {
            let timing = scope.spawn(timed);
            timing.join().unwrap_or_else(|_| Err(disagreement().into()))
        })?;
        if stop.requested() {
            return Ok(None);
        }
        let writes = log.writes();
        let (written, dropped) = log.check()?;
        let per = |switches: u64| switches as f64;
        let mut values = vec![
            ("handshakes_per_s", self.count as f64 / wall),
            ("wall_s", wall),
            ("cpu_s", used.user_secs + used.system_secs),
            ("user_s", used.user_secs),
            ("system_s", used.system_secs),
            ("events_written", per(written)),
            ("events_dropped", per(dropped)),
            ("log_lines", per(written)),
            ("log_writes", per(writes)),
        ];
        if let (Some(own), Some(forced)) = (used.voluntary_switches, used.involuntary_switches) {
            values.extend([
                ("voluntary_switches", per(own)),
                ("involuntary_switches", per(forced)),
                ("switches", per(own + forced)),
            ]);
        }
        let named = |(name, value): (&str, f64)| (name.to_owned(), value);
        Ok(Some(values.into_iter().map(named).collect()))
    }
}

impl Audited {
    fn subject(self) -> Subject {
        let (name, detail) = match self {
            Self::None => ("no events", "events are not even made"),
            Self::Off => ("audit off", "nobody wants events, so that none is made"),
            Self::On => ("audit on", "events are written to a file by a thread"),
            Self::OnSync => (
                "audit on-sync",
                "each handshake waits until its events are written",
            ),
        };
        Subject {
            name: name.into(),
            detail: detail.into(),
            secure: true,
        }
    }
}

fn text(cell: &Cell, name: &str) -> String {
    match cell.parameters.get(name) {
        Some(serde_json::Value::String(text)) => text.clone(),
        Some(value) => value.to_string(),
        None => String::new(),
    }
}

fn show(subjects: &[Audited], cells: &[Cell]) -> Outcome {
    let mut table = Table::new(&[
        ("suite", Align::Left),
        ("threads", Align::Right),
        ("audit", Align::Left),
        ("wall s", Align::Right),
        ("user s", Align::Right),
        ("sys s", Align::Right),
        ("handshakes/s", Align::Right),
        ("switches", Align::Right),
        ("involuntary", Align::Right),
        ("written", Align::Right),
        ("writes", Align::Right),
        ("dropped", Align::Right),
    ]);
    for cell in cells {
        for (index, subject) in subjects.iter().enumerate() {
            let value = |metric, digits| cell.median_text(index, metric, digits);
            table.push([
                text(cell, "suite"),
                text(cell, "threads"),
                subject.subject().name,
                value("wall_s", 3),
                value("user_s", 3),
                value("system_s", 3),
                value("handshakes_per_s", 0),
                value("voluntary_switches", 0),
                value("involuntary_switches", 0),
                value("events_written", 0),
                value("log_writes", 0),
                value("events_dropped", 0),
            ]);
        }
    }
    Ok(table.write(&mut io::stdout().lock(), "")?)
}

/// Prints the cost of the log against `none` in the same rounds.
fn judge(subjects: &[Audited], cells: &[Cell]) {
    let place = |wanted| subjects.iter().position(|subject| *subject == wanted);
    let Some(none) = place(Audited::None) else {
        return;
    };
    for cell in cells {
        let forced = cell.pairs("involuntary_switches", none, none);
        let forced: Vec<f64> = forced
            .into_iter()
            .map(|(forced, _)| at_least(forced))
            .collect();
        let spread = |of: fn(f64, f64) -> f64| forced.iter().copied().reduce(of);
        let is_busy = spread(f64::max) > spread(f64::min).map(|least| 3.0 * least);
        for wanted in [Audited::Off, Audited::On, Audited::OnSync] {
            let Some(index) = place(wanted) else {
                continue;
            };
            let pairs = |metric| cell.pairs(metric, none, index);
            let ratio = |pairs: &[(f64, f64)]| median_ratio(pairs).unwrap_or(f64::NAN);
            let cpu = pairs("cpu_s");
            let ratios: Vec<f64> = cpu.iter().map(|(base, value)| value / base).collect();
            let interval = median_interval(&ratios);
            let interval =
                interval.map_or_else(String::new, |[low, high]| format!(" [{low:.3}, {high:.3}]"));
            let switches = if is_busy {
                "busy".to_owned()
            } else {
                let pairs = pairs("switches").into_iter();
                let pairs = pairs.map(|(base, value)| (at_least(base), at_least(value)));
                format!("{:.2}", ratio(&pairs.collect::<Vec<_>>()))
            };
            note(format_args!(
                "lsl: {} x {}, {} to none: processor time {:.3}{interval}, time {:.3}, context switches {switches}",
                text(cell, "suite"),
                text(cell, "threads"),
                wanted.subject().name,
                ratio(&cpu),
                ratio(&pairs("wall_s")),
            ));
        }
    }
}

/// A number of context switches as ratios count it: few of them say nothing.
fn at_least(switches: f64) -> f64 {
    switches.max(50.0)
}

fn threads(text: &str) -> Result<usize, String> {
    if text == "all" {
        return thread::available_parallelism()
            .map(usize::from)
            .map_err(|error| format!("cannot tell how many processors there are: {error}"));
    }
    match text.parse() {
        Ok(count @ 1..=1024) => Ok(count),
        _ => Err("write `all` or a number from 1 to 1024".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_all_or_a_number() {
        assert!(threads("all").unwrap() >= 1);
        assert_eq!(threads("3"), Ok(3));
        for text in ["0", "-1", "none", "", "1025"] {
            assert!(threads(text).is_err(), "{text}");
        }
    }
}
