//! `lsl bench discovery`: how soon streams are found and read, by how many there are.

use std::io;

use clap::Args;

use super::herd::{Order, Pair, Place, Values, datagrams_dropped, is_lsl, take};
use super::keep::{Keep, Measured};
use super::result::{Cell, Measurement, Round};
use super::subject::{Secure, Subject, find};
use super::turns::{order, shown};
use crate::failure::{Failure, Outcome};
use crate::interrupt::Stop;
use crate::note::note;
use crate::table::{Align, Table};

/// `lsl bench discovery`
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(super) struct Discovery {
    /// How many streams
    #[arg(
        long,
        value_name = "N",
        value_delimiter = ',',
        default_value = "1,10,50,200"
    )]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=8192))]
    streams: Vec<u32>,

    /// Rounds; in each, every library has its turn, in rotating order
    #[arg(long, value_name = "ROUNDS", default_value = "3", value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeat: u32,

    /// Libraries: `core` (the Rust library), or the path of one with liblsl's functions
    #[arg(long = "lib", value_name = "LIB", value_delimiter = ',')]
    libraries: Vec<String>,

    /// Without and with encryption, for libraries that can
    #[arg(long, value_enum, value_delimiter = ',', default_value = "off")]
    secure: Vec<Secure>,

    /// Longest time to wait for all of them, in seconds
    #[arg(long, value_name = "SECS", default_value = "60")]
    longest: f64,

    /// Search by multicast as on any network, which leaves this machine: for a network namespace
    #[arg(long)]
    multicast: bool,

    #[command(flatten)]
    keep: Keep,
}

const HELP: &str = "\
All outlets live in one process, the search in another one, both with the same library. Unless
--multicast is given everything stays on this machine: the search asks the ports of 127.0.0.1 one by
one (ResolveScope machine, KnownPeers). Then the last stream is read while it is pushed at 1 kHz, and
its clock asked: both processes are on one machine, so the time correction must be the difference of
the two clocks, which is 0 where libraries keep LSL's clock.

Dropped datagrams are those of all programs in this network namespace (RcvbufErrors).

Examples:
  lsl bench discovery --lib core
  lsl bench discovery --lib core,/usr/lib/liblsl.so --streams 1,10,50,200 --repeat 5
  unshare -rn sh -c 'ip link set lo up; ip route add 224.0.0.0/4 dev lo; lsl bench discovery --multicast'";

impl Discovery {
    pub(super) fn run(&self) -> Outcome {
        let stop = Stop::install()?;
        let machine = Keep::begin();
        let most = self.streams.iter().copied().max().unwrap_or(1);
        let place = Place::make(most, self.multicast)?;
        let subjects = find(&self.libraries, &self.secure, place.corner(), &stop)?;
        if let Some(other) = subjects.iter().find(|subject| !is_lsl(subject)) {
            let name = &other.shown.name;
            return Err(Failure::Usage(format!("{name} has no streams to be found")));
        }
        let mut cells = Vec::new();
        'all: for &streams in &self.streams {
            let mut rounds = Vec::new();
            for round in 0..self.repeat as usize {
                let mut measurements = vec![Measurement::default(); subjects.len()];
                for index in order(round, subjects.len()) {
                    let subject = &subjects[index];
                    note(format_args!(
                        "lsl: {}, {}, round {} of {}",
                        crate::table::count(streams as usize, "stream"),
                        subject.shown.name,
                        round + 1,
                        self.repeat
                    ));
                    let mut values = Values::new();
                    let done = self.turn(streams, subject, &place, &stop, &mut values);
                    match measurement(values, done, &stop) {
                        Some(measured) => measurements[index] = measured,
                        None => break 'all,
                    }
                }
                rounds.push(Round { measurements });
            }
            cells.push(Cell {
                parameters: [("streams".to_owned(), streams.into())].into(),
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
            benchmark: "discovery",
            subjects: subjects.into_iter().map(|subject| subject.shown).collect(),
            baseline,
            cells,
        };
        self.keep.write(machine, measured)
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
        let clock = pair.outlets.order(&Order::Clock)?;
        let done = pair.outlets.order(&Order::Offer {
            kind: kind.clone(),
            count: streams,
            channels: CHANNELS,
            rate: RATE,
        })?;
        take(values, &done, &[("create_s", "create_outlets_s")]);
        let before = datagrams_dropped();
        let name = format!("{kind}-0");
        let done = pair.inlets.order(&Order::FindOne { name: name.clone() })?;
        take(values, &done, &[("first_hit_ms", "first_hit_ms")]);
        let done = pair.inlets.order(&Order::FindAll {
            kind: kind.clone(),
            count: streams,
            secs: self.longest,
        })?;
        take(
            values,
            &done,
            &[("all_s", "find_all_s"), ("found", "found_all")],
        );
        let done = pair.inlets.order(&Order::Sweep { kind, secs: 1.0 })?;
        take(values, &done, &[("found", "found_in_1s")]);
        if let (Some(before), Some(after)) = (before, datagrams_dropped()) {
            values.insert("datagrams_dropped".into(), after - before);
        }
        pair.inlets.order(&Order::FindOne { name })?;
        pair.outlets.begin(&Order::Push {
            streams: 1,
            samples: PUSHED,
            rate: RATE,
        })?;
        let met = pair.inlets.order(&Order::Meet {
            outlet_clock_ahead: clock.get("clock_ahead").copied().unwrap_or(0.0),
        });
        pair.outlets.end()?;
        let met = met?;
        must_be_encrypted(subject, met.get("is_encrypted"), 1.0)?;
        take(
            values,
            &met,
            &[
                ("open_ms", "open_ms"),
                ("first_sample_ms", "first_sample_ms"),
                ("correction_s", "first_correction_s"),
                ("correction_error_us", "correction_error_us"),
                ("destroy_inlet_ms", "destroy_inlet_ms"),
            ],
        );
        let done = pair.outlets.order(&Order::Destroy)?;
        take(values, &done, &[("destroy_s", "destroy_outlets_s")]);
        Ok(())
    }
}

/// Whether so many connections of a secure subject were encrypted.
pub(super) fn must_be_encrypted(subject: &Subject, encrypted: Option<&f64>, of: f64) -> Outcome {
    if subject.secure() && encrypted.copied().unwrap_or(0.0) < of {
        return Err(Failure::Runtime(
            "connections are not encrypted and should be".into(),
        ));
    }
    Ok(())
}

/// What is known of a turn. A failure of a library is a result; the user's Ctrl-C is not.
pub(super) fn measurement(values: Values, done: Outcome, stop: &Stop) -> Option<Measurement> {
    let failure = match done {
        Err(_) if stop.requested() => return None,
        Err(failure) => {
            note(format_args!("lsl: {failure}"));
            Some(failure.to_string())
        }
        Ok(()) => None,
    };
    Some(Measurement {
        values,
        failure,
        ..Measurement::default()
    })
}

fn show(subjects: &[Subject], cells: &[Cell]) -> Outcome {
    let columns = [
        ("first_hit_ms", "first hit ms", 2),
        ("find_all_s", "all s", 4),
        ("found_all", "found", 0),
        ("found_in_1s", "in 1 s", 0),
        ("datagrams_dropped", "dropped", 0),
        ("open_ms", "open ms", 2),
        ("first_sample_ms", "1st sample ms", 2),
        ("first_correction_s", "correction s", 3),
        ("correction_error_us", "error us", 1),
        ("destroy_inlet_ms", "destroy inlet ms", 3),
        ("destroy_outlets_s", "outlets s", 4),
    ];
    table(subjects, cells, &columns)
}

/// A row for each number of streams and subject.
pub(super) fn table(
    subjects: &[Subject],
    cells: &[Cell],
    columns: &[(&str, &'static str, usize)],
) -> Outcome {
    let mut head = vec![("streams", Align::Right), ("", Align::Left)];
    head.extend(columns.iter().map(|(_, title, _)| (*title, Align::Right)));
    let mut table = Table::new(&head);
    for cell in cells {
        for (index, subject) in subjects.iter().enumerate() {
            let streams = cell.parameters.get("streams").map(ToString::to_string);
            let mut row = vec![streams.unwrap_or_default(), subject.shown.name.clone()];
            let values = columns.iter();
            row.extend(values.map(|(metric, _, digits)| shown(cell, index, metric, *digits)));
            table.push(row);
        }
    }
    Ok(table.write(&mut io::stdout().lock(), "")?)
}

const CHANNELS: u32 = 8;
/// Of the stream that is read: a sample is never far.
const RATE: f64 = 1000.0;
/// Long enough for a time correction.
const PUSHED: u32 = 2500;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_library_is_a_result_and_ctrl_c_is_not() {
        let stop = Stop::default();
        let failed = || Err(Failure::Runtime("no".into()));
        let result = measurement(Values::new(), failed(), &stop).unwrap();
        assert_eq!(result.failure.as_deref(), Some("no"));
        stop.request();
        assert!(measurement(Values::new(), failed(), &stop).is_none());
    }
}
