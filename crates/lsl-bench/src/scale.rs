//! `lsl bench scale`: threads, files, memory and idle processor time of many streams.

use std::io::Write;

use clap::Args;
use lsl_cli::failure::{Failure, Outcome};
use lsl_cli::ui::notice::note;
use lsl_cli::ui::text::count;

use super::library::Library;
use super::result::{Cell, Measurement};
use super::schedule::{Grid, LibraryTurn, Schedule, table, whole};
use super::swarm::{Order, Values, take};
use super::turn_error::{TurnError, must_encrypt};

#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(super) struct Scale {
    /// How many streams
    #[arg(
        long,
        value_name = "N",
        value_delimiter = ',',
        default_value = "1,10,50,200,2000"
    )]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=8192))]
    streams: Vec<u32>,

    /// Channels of float32 of each
    #[arg(long, value_name = "N", default_value = "8", value_parser = clap::value_parser!(u32).range(1..=4096))]
    channels: u32,

    /// Samples per second of each
    #[arg(long, value_name = "HZ", default_value = "100")]
    rate: f64,

    /// Samples pushed on each stream while all are read
    #[arg(long, value_name = "N", default_value = "100", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    samples: u32,

    /// Seconds of idleness
    #[arg(long, value_name = "SECS", default_value = "5")]
    idle: f64,

    /// Rounds; in each, every library has its turn, in rotating order
    #[arg(long, value_name = "ROUNDS", default_value = "1", value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeat: u32,

    /// Let other libraries try more than 500 streams, too, with some threads and files for each
    #[arg(long)]
    all: bool,

    #[command(flatten)]
    schedule: Schedule,
}

const HELP: &str = "\
All outlets live in one process and all inlets in another one, both with the same library. Threads are
those that the library started; files, all that the process has open; memory, what it has in use, of
the outlets before and after the inlets came. An inlet delivers if all samples came, in order, by
their numbers. Idle is with all inlets connected and nobody pushing.

Both processes raise their limit of open files to what the user may have (ulimit -Hn) and say so if
that is not enough. Unless --multicast is given everything stays on this machine.

Examples:
  lsl bench scale --lib core --streams 1,10,50,200,2000
  lsl bench scale --lib core,/usr/lib/liblsl.so --streams 1,10,50,200 --idle 10";

impl Scale {
    pub(super) fn run(&self) -> Outcome {
        if !(0.001..=100_000.0).contains(&self.rate) || !(0.01..=3600.0).contains(&self.idle) {
            return Err(Failure::Usage(
                "--rate is 0.001 to 100000 Hz, --idle 0.01 to 3600 s".into(),
            ));
        }
        let grid = Grid {
            benchmark: "scale",
            streams: &self.streams,
            rounds: self.repeat,
            parameters: &[
                ("channels", self.channels.into()),
                ("rate", self.rate.into()),
            ],
        };
        self.schedule.run(&grid, |turn| self.measure(turn), show)
    }

    fn measure(&self, turn: &LibraryTurn<'_>) -> Outcome<Measurement> {
        if turn.streams > MOST_OF_OTHERS && turn.subject.is_foreign && !self.all {
            let reason = format!(
                "{} skipped at {}: it has about three threads and 28 open files for each; --all tries",
                turn.subject.shown.name,
                count(turn.streams as usize, "stream")
            );
            note(format_args!("lsl: {reason}"));
            return Ok(Measurement {
                failure: Some(reason),
                ..Measurement::default()
            });
        }
        let mut measured = turn.measurement(|values| self.turn(turn, values))?;
        let received = whole(&measured.values, "received");
        measured.values.remove("received");
        if measured.failure.is_none() {
            measured.expected = u64::from(turn.streams) * u64::from(self.samples);
            measured.received = received;
        }
        Ok(measured)
    }

    /// Measures one library once. Values measured before a failure stay.
    fn turn(&self, turn: &LibraryTurn<'_>, values: &mut Values) -> Result<(), TurnError> {
        let mut pair = turn.pair()?;
        let kind = format!("swarm{}", std::process::id());
        let done = pair.outlets.order(&Order::Offer {
            kind: kind.clone(),
            count: turn.streams,
            channels: self.channels,
            rate: self.rate,
        })?;
        take(values, &done, &[("create_s", "create_outlets_s")]);
        let done = pair.outlets.order(&Order::Count)?;
        take(
            values,
            &done,
            &[
                ("threads", "unread_outlet_threads"),
                ("fds", "unread_outlet_fds"),
                ("rss_mib", "unread_outlet_rss_mib"),
            ],
        );
        let done = pair.inlets.order(&Order::FindAll {
            kind,
            count: turn.streams,
            secs: FIND_SECS + f64::from(turn.streams) * 0.1,
        })?;
        take(
            values,
            &done,
            &[("all_s", "find_all_s"), ("found", "found_all")],
        );
        let opened = pair.inlets.order(&Order::OpenAll)?;
        let names = [
            ("create_s", "create_inlets_s"),
            ("open_s", "open_inlets_s"),
            ("open", "inlets_open"),
        ];
        take(values, &opened, &names);
        let (encrypted, open) = (whole(&opened, "encrypted"), whole(&opened, "open"));
        must_encrypt(turn.subject, encrypted, open)?;
        pair.inlets.begin(&Order::Collect {
            samples: self.samples,
        })?;
        pair.outlets.order(&Order::Push {
            streams: turn.streams,
            samples: self.samples,
            rate: self.rate,
        })?;
        let done = pair.inlets.end()?;
        take(
            values,
            &done,
            &[("deliver", "inlets_deliver"), ("received", "received")],
        );
        for (side, names) in [
            (
                &mut pair.outlets,
                [
                    ("threads", "outlet_threads"),
                    ("fds", "outlet_fds"),
                    ("rss_mib", "outlet_rss_now_mib"),
                ],
            ),
            (
                &mut pair.inlets,
                [
                    ("threads", "inlet_threads"),
                    ("fds", "inlet_fds"),
                    ("rss_mib", "inlet_rss_now_mib"),
                ],
            ),
        ] {
            take(values, &side.order(&Order::Count)?, &names);
        }
        turn.stop.sleep_until(lsl_core::local_clock() + SETTLE_SECS);
        pair.outlets.begin(&Order::Idle { secs: self.idle })?;
        let idle = pair.inlets.order(&Order::Idle { secs: self.idle })?;
        let names = [
            ("cpu_percent", "inlet_idle_cpu_percent"),
            ("switches_per_s", "inlet_idle_switches_per_s"),
        ];
        take(values, &idle, &names);
        let names = [
            ("cpu_percent", "outlet_idle_cpu_percent"),
            ("switches_per_s", "outlet_idle_switches_per_s"),
        ];
        take(values, &pair.outlets.end()?, &names);
        let done = pair.inlets.order(&Order::Destroy)?;
        take(values, &done, &[("destroy_s", "destroy_inlets_s")]);
        let done = pair.outlets.order(&Order::Destroy)?;
        take(values, &done, &[("destroy_s", "destroy_outlets_s")]);
        Ok(())
    }
}

fn show(subjects: &[Library], cells: &[Cell]) -> Outcome {
    let held = [
        ("unread_outlet_threads", "threads: outlets", 0),
        ("outlet_threads", "read", 0),
        ("inlet_threads", "inlets", 0),
        ("outlet_fds", "files: outlets", 0),
        ("inlet_fds", "inlets", 0),
        ("unread_outlet_rss_mib", "MiB: outlets", 1),
        ("outlet_rss_now_mib", "read", 1),
        ("inlet_rss_now_mib", "inlets", 1),
    ];
    table(subjects, cells, &held)?;
    let times = [
        ("create_outlets_s", "create s", 4),
        ("find_all_s", "find all s", 4),
        ("found_all", "found", 0),
        ("open_inlets_s", "open s", 4),
        ("inlets_open", "open", 0),
        ("inlets_deliver", "deliver", 0),
        ("destroy_outlets_s", "destroy outlets s", 4),
        ("destroy_inlets_s", "inlets s", 4),
    ];
    blank_line()?;
    table(subjects, cells, &times)?;
    let idle = [
        ("outlet_idle_cpu_percent", "idle CPU %: outlets", 3),
        ("inlet_idle_cpu_percent", "inlets", 3),
        ("outlet_idle_switches_per_s", "switches/s: outlets", 2),
        ("inlet_idle_switches_per_s", "inlets", 2),
    ];
    blank_line()?;
    table(subjects, cells, &idle)
}

/// Prints a blank line between two tables.
fn blank_line() -> Outcome {
    Ok(writeln!(std::io::stdout().lock())?)
}

/// More streams than this would take another library thousands of threads.
const MOST_OF_OTHERS: u32 = 500;
const FIND_SECS: f64 = 30.0;
/// Pause until effects of connecting and pushing are over.
const SETTLE_SECS: f64 = 2.0;
