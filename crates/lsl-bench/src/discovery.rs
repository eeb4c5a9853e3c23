//! `lsl bench discovery`: how soon streams are found and read, by how many there are.

use clap::Args;
use lsl_cli::failure::Outcome;

use super::library::Library;
use super::result::Cell;
use super::schedule::{Grid, LibraryTurn, Schedule, table, whole};
use super::swarm::{Order, Values, datagrams_dropped, take};
use super::turn_error::{TurnError, must_encrypt};

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

    /// Longest time to wait for all of them, in seconds
    #[arg(long, value_name = "SECS", default_value = "60")]
    longest: f64,

    #[command(flatten)]
    schedule: Schedule,
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
        let grid = Grid {
            benchmark: "discovery",
            streams: &self.streams,
            rounds: self.repeat,
            parameters: &[],
        };
        let measure = |turn: &LibraryTurn<'_>| turn.measurement(|values| self.turn(turn, values));
        self.schedule.run(&grid, measure, show)
    }

    /// Measures one library once. Values measured before a failure stay.
    fn turn(&self, turn: &LibraryTurn<'_>, values: &mut Values) -> Result<(), TurnError> {
        let mut pair = turn.pair()?;
        let kind = format!("swarm{}", std::process::id());
        let clock = pair.outlets.order(&Order::Clock)?;
        let done = pair.outlets.order(&Order::Offer {
            kind: kind.clone(),
            count: turn.streams,
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
            count: turn.streams,
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
        must_encrypt(turn.subject, whole(&met, "is_encrypted"), 1)?;
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

fn show(subjects: &[Library], cells: &[Cell]) -> Outcome {
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

const CHANNELS: u32 = 8;
/// Rate of the stream that is read: a sample is never far.
const RATE: f64 = 1000.0;
/// Long enough for a time correction.
const PUSHED: u32 = 2500;
