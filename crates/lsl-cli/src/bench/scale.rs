//! `lsl bench scale`: what many streams take: threads, files, memory, and the processor when nobody
//! pushes.

use std::collections::BTreeMap;
use std::io::Write;

use clap::Args;

use super::discovery::{measurement, must_be_encrypted, table};
use super::herd::{Order, Pair, Place, Values, is_foreign, is_lsl, take};
use super::keep::{Keep, Measured};
use super::result::{Cell, Measurement, Round};
use super::subject::{Secure, Subject, find};
use super::turns::order;
use crate::failure::{Failure, Outcome};
use crate::interrupt::Stop;
use crate::note::note;

/// `lsl bench scale`
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

    /// Libraries: `core` (the Rust library), or the path of one with liblsl's functions
    #[arg(long = "lib", value_name = "LIB", value_delimiter = ',')]
    libraries: Vec<String>,

    /// Without and with encryption, for libraries that can
    #[arg(long, value_enum, value_delimiter = ',', default_value = "off")]
    secure: Vec<Secure>,

    /// Let other libraries try more than 500 streams, too, with some threads and files for each
    #[arg(long)]
    all: bool,

    /// Search by multicast as on any network, which leaves this machine: for a network namespace
    #[arg(long)]
    multicast: bool,

    #[command(flatten)]
    keep: Keep,
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
        let stop = Stop::install()?;
        let machine = Keep::begin();
        let most = self.streams.iter().copied().max().unwrap_or(1);
        let place = Place::make(most, self.multicast)?;
        let subjects = find(&self.libraries, &self.secure, place.corner(), &stop)?;
        if let Some(other) = subjects.iter().find(|subject| !is_lsl(subject)) {
            let name = &other.shown.name;
            return Err(Failure::Usage(format!(
                "{name} has no streams to be counted"
            )));
        }
        let mut cells = Vec::new();
        'all: for &streams in &self.streams {
            let mut rounds = Vec::new();
            for round in 0..self.repeat as usize {
                let mut measurements = vec![Measurement::default(); subjects.len()];
                for index in order(round, subjects.len()) {
                    match self.measure(streams, &subjects[index], &place, &stop) {
                        Some(measured) => measurements[index] = measured,
                        None => break 'all,
                    }
                }
                rounds.push(Round { measurements });
            }
            cells.push(Cell {
                parameters: self.parameters(streams),
                rounds,
            });
        }
        show(&subjects, &cells)?;
        let baseline = if self.libraries.is_empty() {
            subjects.len().saturating_sub(1)
        } else {
            0
        };
        let measured = Measured {
            benchmark: "scale",
            subjects: subjects.into_iter().map(|subject| subject.shown).collect(),
            baseline,
            cells,
        };
        self.keep.write(machine, measured)
    }

    fn parameters(&self, streams: u32) -> BTreeMap<String, serde_json::Value> {
        [
            ("streams".to_owned(), streams.into()),
            ("channels".to_owned(), self.channels.into()),
            ("rate".to_owned(), self.rate.into()),
        ]
        .into()
    }

    fn measure(
        &self,
        streams: u32,
        subject: &Subject,
        place: &Place,
        stop: &Stop,
    ) -> Option<Measurement> {
        let name = &subject.shown.name;
        let what = crate::table::count(streams as usize, "stream");
        if streams > MOST_OF_OTHERS && is_foreign(subject) && !self.all {
            let reason = format!(
                "{name} skipped at {what}: it has about three threads and 28 open files for each; --all tries"
            );
            note(format_args!("lsl: {reason}"));
            return Some(Measurement {
                failure: Some(reason),
                ..Measurement::default()
            });
        }
        note(format_args!("lsl: {what}, {name}"));
        let mut values = Values::new();
        let done = self.turn(streams, subject, place, stop, &mut values);
        let received = values.remove("received").unwrap_or(0.0);
        let is_done = done.is_ok();
        let mut measured = measurement(values, done, stop)?;
        if is_done {
            measured.expected = u64::from(streams) * u64::from(self.samples);
            measured.received = whole(received);
        }
        Some(measured)
    }

    /// One library, once. What was measured before a failure stays.
    fn turn(
        &self,
        streams: u32,
        subject: &Subject,
        place: &Place,
        stop: &Stop,
        values: &mut Values,
    ) -> Outcome {
        let mut pair = Pair::start(subject, place, stop)?;
        let kind = format!("herd{}", std::process::id());
        let done = pair.outlets.order(&Order::Offer {
            kind: kind.clone(),
            count: streams,
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
            count: streams,
            secs: FIND_SECS + f64::from(streams) * 0.1,
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
        let open = opened.get("open").copied().unwrap_or(0.0);
        must_be_encrypted(subject, opened.get("encrypted"), open)?;
        pair.inlets.begin(&Order::Collect {
            samples: self.samples,
        })?;
        pair.outlets.order(&Order::Push {
            streams,
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
        stop.sleep_until(lsl_core::local_clock() + SETTLE_SECS);
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

fn show(subjects: &[Subject], cells: &[Cell]) -> Outcome {
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

/// Between two tables.
fn blank_line() -> Outcome {
    Ok(writeln!(std::io::stdout().lock())?)
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "it was counted by the other process"
)]
fn whole(count: f64) -> u64 {
    count as u64
}

/// More streams than this would take another library thousands of threads.
const MOST_OF_OTHERS: u32 = 500;
const FIND_SECS: f64 = 30.0;
/// Until what connecting and pushing left behind is over.
const SETTLE_SECS: f64 = 2.0;
