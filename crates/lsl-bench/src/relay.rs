//! `lsl bench relay`: what a relay adds, takes and keeps up with, held against the bars of its specification.
//! Spec: relay §15.

mod bars;
mod load;
mod narrow;
mod others;
mod peer;
mod site;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use clap::Args;
use lsl_cli::failure::{Failure, Outcome};
use lsl_cli::interrupt::Stop;
use lsl_cli::ui::notice::note;
use lsl_core::{
    Context, ContinuousResolver, History, Inlet, Outlet, ResolverEvent, Selector, local_clock,
};

use self::bars::{What, show};
use self::load::{FORGET, KIND, Received, Shape, find, open, read, take_flood};
use self::site::{Cost, Relay as Process, Sites};
use super::child::interrupted;
use super::machine::load;
use super::output::{Measured, Output};
use super::result::{Cell, Machine, Measurement, Round, Subject};
use super::rotation::order;
use super::stats::{median, quantile};
use super::usage::Usage;

#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(super) struct Relay {
    /// What to measure
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "hop,many,few,idle,link,appear,history"
    )]
    what: Vec<What>,

    /// Streams of `many` and `idle`; `few` and `appear` have a tenth of them
    #[arg(long, value_name = "N", default_value = "1000", value_parser = clap::value_parser!(u32).range(10..=1500))]
    streams: u32,

    /// Seconds for which streams flow, or nothing happens
    #[arg(long, value_name = "SECS", default_value = "60", value_parser = clap::value_parser!(u32).range(1..=3600))]
    seconds: u32,

    /// Rounds; `hop` has ten times as many turns of each way, a tenth as long
    #[arg(long, value_name = "ROUNDS", default_value = "1", value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,

    /// Do not encrypt links
    #[arg(long)]
    plain: bool,

    /// Search by multicast as on any network, which leaves this machine: for a network namespace
    #[arg(long)]
    multicast: bool,

    #[command(flatten)]
    output: Output,
}

const HELP: &str = "\
Relays run as processes, one per site; outlets and readers are threads of this program. Nothing leaves this
machine. Sites find each other's streams through their relays alone: what is read comes by the relay of the
other site, over the link. `hop` takes turns of the direct way, of one relay, and of two with a link, and
gives the differences in the same turn. `others` says how many times as late as without them the 99th
percentile of others is, beside readers that stop (stopped), substreams without credit (no_credit), and a
reader of the past behind a link of 1 MB/s (narrow): at the far relay (far), on the same link (link), behind
the narrow one (slow); in pairs, medians of ten.

Samples are numbered: the command fails if any is missing.

Examples:
  lsl bench relay
  lsl bench relay --what hop --rounds 5
  lsl bench relay --what many --seconds 10 --streams 100";

impl Relay {
    pub(super) fn run(&self) -> Outcome {
        let _ = lsl_platform::limits::raise_open_files();
        let stop = Stop::install()?;
        let machine = Machine::here();
        let mut cells = Vec::new();
        let done = self
            .what
            .iter()
            .try_for_each(|&what| self.row(what, &stop, &mut cells));
        show(&cells)?;
        let detail = format!(
            "links {}",
            if self.plain {
                "in plaintext"
            } else {
                "encrypted"
            }
        );
        let measured = Measured {
            benchmark: "relay",
            subjects: vec![Subject {
                name: "lsl relay".into(),
                detail,
                secure: !self.plain,
            }],
            baseline: 0,
            cells: cells.into_iter().map(|(_, cell)| cell).collect(),
        };
        self.output.end(machine, measured, done, &stop)
    }

    fn row(&self, what: What, stop: &Stop, cells: &mut Vec<(What, Cell)>) -> Outcome {
        let tenth = self.streams / 10;
        let sizes = match what {
            What::Hop | What::Link | What::Others => vec![1],
            What::History => vec![HISTORY_STREAMS],
            What::Many => vec![self.streams],
            What::Few | What::Appear => vec![tenth],
            What::Idle => vec![self.streams, self.streams / 100],
        };
        for streams in sizes {
            let parameters = [("what", what.name().into()), ("streams", streams.into())];
            let parameters = parameters.map(|(name, value)| (name.to_owned(), value));
            let mut cell = Cell {
                parameters: parameters.into(),
                rounds: Vec::new(),
            };
            let done: Outcome = (0..self.rounds).try_for_each(|round| {
                let (name, of) = (what.name(), self.rounds);
                note(format_args!(
                    "lsl: {name}, {streams}, round {} of {of}",
                    round + 1
                ));
                let streams = streams as usize;
                let mut measurement = match what {
                    What::Hop => self.hop(stop),
                    What::Many => self.flow(&eight_channels(streams, 8)),
                    What::Few => self.flow(&eight_channels(streams, 1)),
                    What::Idle => self.idle(streams, stop),
                    What::Link => self.link(),
                    What::Appear => self.appear(streams),
                    What::Others => self.others(stop),
                    What::History => self.history(streams, stop),
                }?;
                measurement.values.insert("load".into(), load()[0]);
                let measurements = vec![measurement];
                cell.rounds.push(Round { measurements });
                Ok(())
            });
            if !cell.rounds.is_empty() {
                cells.push((what, cell));
            }
            if stop.requested() {
                return Err(interrupted());
            }
            done?;
        }
        Ok(())
    }

    fn sites(&self, number: usize) -> Outcome<Sites> {
        Sites::make(number, !self.plain, self.multicast)
    }

    /// Measures by how much the ways through relays are later than the direct one, in turns.
    fn hop(&self, stop: &Stop) -> Outcome<Measurement> {
        let shape = Shape {
            streams: 1,
            channels: 64,
            rate: 1000.0,
            chunk: 1,
        };
        let sites = self.sites(2)?;
        let near = sites.relay(0, None)?;
        let far = sites.relay(1, Some(near.port))?;
        let outlets = shape.offer(&sites.program(0, None)?, "stream")?;
        let contexts = [
            sites.program(0, None)?,
            sites.program(2, Some(&near))?,
            sites.program(2, Some(&far))?,
        ];
        let secs = f64::from(self.seconds) / TURNS as f64;
        let (mut p50, mut p95) = ([const { Vec::new() }; 3], [const { Vec::new() }; 3]);
        let mut measurement = Measurement::default();
        for turn in 0..TURNS {
            for way in order(turn, contexts.len()) {
                let received = flow(&outlets, shape, &contexts[way], secs)?;
                measurement.count(&received);
                p50[way].extend(received.latency(0.5));
                p95[way].extend(received.latency(0.95));
                // The relays stop reading what nobody reads any more.
                if !stop.sleep_until(local_clock() + LINGER_SECS) {
                    return Err(interrupted());
                }
            }
        }
        for (part, values) in [("p50", &p50), ("p95", &p95)] {
            let [direct, one, two] = values;
            let added = |way: &[f64]| {
                let pairs = way.iter().zip(direct);
                median(&pairs.map(|(way, direct)| way - direct).collect::<Vec<_>>())
            };
            measurement.put(&format!("direct_{part}_ms"), median(direct));
            measurement.put(&format!("relay_{part}_ms"), added(one));
            measurement.put(&format!("hop_{part}_ms"), added(two));
        }
        Ok(measurement)
    }

    /// Has streams flow over a link, each to one reader at the far relay.
    fn flow(&self, shape: &Shape) -> Outcome<Measurement> {
        let sites = self.sites(2)?;
        let near = sites.relay(0, None)?;
        let far = sites.relay(1, Some(near.port))?;
        let outlets = shape.offer(&sites.program(0, None)?, "stream")?;
        let reader = sites.program(2, Some(&far))?;
        let secs = f64::from(self.seconds);
        let mut measurement = Measurement::default();
        let (received, costs, own) = flow_watched(&outlets, *shape, &reader, secs, &[&near, &far])?;
        measurement.count(&received);
        measurement.put("program_cores", Some(own));
        measurement.put("arrival_p50_ms", received.latency(0.5));
        measurement.put("arrival_p95_ms", received.latency(0.95));
        measurement.put_costs(&costs);
        Ok(measurement)
    }

    /// Has relays know streams that nobody reads: one that sees them, one with two links, and one more.
    fn idle(&self, streams: usize, stop: &Stop) -> Outcome<Measurement> {
        let sites = self.sites(3)?;
        let middle = sites.relay(1, None)?;
        let near = sites.relay(0, Some(middle.port))?;
        let far = sites.relay(2, Some(middle.port))?;
        let _outlets = eight_channels(streams, 1).offer(&sites.program(0, None)?, "stream")?;
        find(&sites.program(3, Some(&far))?, streams)?;
        let wait = |secs| {
            let is_over = stop.sleep_until(local_clock() + secs);
            is_over.then_some(()).ok_or_else(interrupted)
        };
        wait(SETTLE_SECS)?;
        let before = [near.now()?, middle.now()?];
        wait(f64::from(self.seconds))?;
        let mut measurement = Measurement::default();
        measurement.put_costs(&[near.since(before[0])?, middle.since(before[1])?]);
        Ok(measurement)
    }

    /// Measures how late others are beside those who do not read.
    fn others(&self, stop: &Stop) -> Outcome<Measurement> {
        let secs = f64::from(self.seconds);
        let durations = (TURNS, secs / TURNS as f64 / 2.0, secs);
        others::measure(&self.sites(3)?, durations, stop)
    }

    /// Sends as much as goes over a link.
    fn link(&self) -> Outcome<Measurement> {
        let shape = Shape {
            streams: 1,
            channels: 64,
            rate: 10_000.0,
            chunk: 64,
        };
        let sites = self.sites(2)?;
        let near = sites.relay(0, None)?;
        let far = sites.relay(1, Some(near.port))?;
        let outlets = shape.offer(&sites.program(0, None)?, "stream")?;
        let reader = sites.program(2, Some(&far))?;
        let inlets = open(&reader, &find(&reader, 1)?)?;
        let (Some(outlet), Some(inlet)) = (outlets.first(), inlets.first()) else {
            return Err(Failure::Runtime("there is no stream".into()));
        };
        let (taken, lasts) = (AtomicU64::new(0), AtomicU64::new(0));
        // Numbers are float32.
        let secs = f64::from(self.seconds).min(LONGEST_FLOOD);
        let before = [near.now()?, far.now()?];
        let (start, own) = (local_clock(), Usage::now());
        let received = thread::scope(|scope| {
            let reading = scope.spawn(|| take_flood(inlet, shape, &taken, &lasts));
            let pushed = shape.flood(outlet, &taken, secs);
            lasts.store(
                pushed.as_ref().map_or(1, |it| *it).max(1),
                Ordering::Relaxed,
            );
            pushed?;
            reading
                .join()
                .map_err(|_| Failure::Runtime("the reader failed".into()))?
        })?;
        let took = local_clock() - start;
        let own = Usage::now().since(own).0 / took;
        let costs = [near.since(before[0])?, far.since(before[1])?];
        let mut measurement = Measurement::default();
        measurement.count(&received);
        measurement.put_costs(&costs);
        let bytes = received.samples as f64 * f64::from(shape.channels) * 4.0;
        measurement.put("program_cores", Some(own));
        measurement.put("link_mb_per_s", Some(bytes / took / 1e6));
        let gigabytes = bytes / 1e9;
        for (name, cost) in [
            ("near_cpu_s_per_gb", &costs[0]),
            ("far_cpu_s_per_gb", &costs[1]),
        ] {
            measurement.put(name, Some(cost.cores * took / gigabytes));
        }
        Ok(measurement)
    }

    /// Has a relay pass streams on, first without keeping them, then with, and reads what it kept.
    fn history(&self, streams: usize, stop: &Stop) -> Outcome<Measurement> {
        let shape = Shape {
            streams,
            channels: 64,
            rate: 16_384.0,
            chunk: 512,
        };
        let sites = self.sites(2)?;
        let secs = f64::from(self.seconds);
        let mut measurement = Measurement::default();
        let mut cores = Vec::new();
        for keeps in [false, true] {
            let relay = if keeps {
                sites.keeping(0)?
            } else {
                sites.relay(0, None)?
            };
            let outlets = shape.offer(&sites.program(0, None)?, "stream")?;
            let reader = sites.program(1, Some(&relay))?;
            let (received, costs, _) = flow_watched(&outlets, shape, &reader, secs, &[&relay])?;
            measurement.count(&received);
            let mb = received.samples as f64 * f64::from(shape.channels) * 4.0 / 1e6;
            let mb_per_s = mb / (secs + WARM_UP_SECS);
            let name = if keeps { "kept" } else { "passed" };
            measurement.put(&format!("{name}_mb_per_s"), Some(mb_per_s));
            cores.extend(costs.first().map(|cost| cost.cores / mb_per_s * 100.0));
            if !keeps {
                continue;
            }
            if !stop.sleep_until(local_clock() + LINGER_SECS) {
                return Err(interrupted());
            }
            reader.include_past();
            let mut took = Vec::new();
            for info in find(&reader, streams)?.iter().cycle().take(SINCE_TURNS) {
                let begun = local_clock();
                let inlet = Inlet::builder(info).context(&reader);
                let inlet = inlet.history(History::Seconds(600.0)).create()?;
                let mut sample = vec![0.0_f32; shape.channels as usize];
                inlet
                    .blocking()
                    .pull(&mut sample, Duration::from_secs(20))?;
                took.push((local_clock() - begun) * 1e3);
            }
            took.sort_by(f64::total_cmp);
            measurement.put("since_p50_ms", quantile(&took, 0.5));
            measurement.put("since_max_ms", took.last().copied());
        }
        if let [passed, kept] = cores[..] {
            measurement.put("write_cores_100mb_s", Some(kept - passed));
        }
        Ok(measurement)
    }

    /// Makes streams one after the other, and waits until a program of the other site has found them.
    fn appear(&self, streams: usize) -> Outcome<Measurement> {
        let sites = self.sites(2)?;
        let near = sites.relay(0, None)?;
        let far = sites.relay(1, Some(near.port))?;
        let reader = sites.program(2, Some(&far))?;
        let selector = Selector::property("type", KIND)?;
        let resolver = ContinuousResolver::in_context(&reader, &selector, FORGET)?;
        // One comes before, so that the watch is there.
        let program = sites.program(0, None)?;
        let mut outlets = eight_channels(1, 1).offer(&program, "stream")?;
        next(&resolver)?;
        let mut made = Vec::new();
        let shape = eight_channels(1, 1);
        let mut took = thread::scope(|scope| {
            let finding = scope.spawn(|| {
                let found = (0..streams).map(|_| next(&resolver));
                found.collect::<Outcome<Vec<(String, f64)>>>()
            });
            for number in 0..streams {
                let name = format!("made-{number}");
                made.push((format!("{name}-0"), local_clock()));
                outlets.extend(shape.offer(&program, &name)?);
                thread::sleep(BETWEEN_OUTLETS);
            }
            let found = finding
                .join()
                .map_err(|_| Failure::Runtime("the search failed".into()))??;
            let took = found.iter().filter_map(|(name, at)| {
                let (_, since) = made.iter().find(|(made, _)| made == name)?;
                Some(at - since)
            });
            Ok::<_, Failure>(took.collect::<Vec<f64>>())
        })?;
        took.sort_by(f64::total_cmp);
        let mut measurement = Measurement::default();
        measurement.put("appear_p50_s", quantile(&took, 0.5));
        measurement.put("appear_max_s", took.last().copied());
        Ok(measurement)
    }
}

fn next(resolver: &ContinuousResolver) -> Outcome<(String, f64)> {
    let until = local_clock() + 30.0;
    while local_clock() < until {
        if let Some(ResolverEvent::Appeared(info)) =
            resolver.next_event_blocking(Duration::from_secs(1))
        {
            return Ok((info.name().into_owned(), local_clock()));
        }
    }
    Err(Failure::NotFound("a stream never appeared".into()))
}

fn eight_channels(streams: usize, chunk: usize) -> Shape {
    Shape {
        streams,
        channels: 8,
        rate: 250.0,
        chunk,
    }
}

/// Has the streams flow to readers that find them in `reader`.
fn flow(outlets: &[Outlet], shape: Shape, reader: &Context, secs: f64) -> Outcome<Received> {
    Ok(flow_watched(outlets, shape, reader, secs, &[])?.0)
}

/// The same, and measures what relays use meanwhile, but for the beginning.
fn flow_watched(
    outlets: &[Outlet],
    shape: Shape,
    reader: &Context,
    secs: f64,
    relays: &[&Process],
) -> Outcome<(Received, Vec<Cost>, f64)> {
    let inlets = open(reader, &find(reader, shape.streams)?)?;
    let (stop, lasts) = (AtomicBool::new(false), AtomicU64::new(0));
    let warm = local_clock() + WARM_UP_SECS;
    let own = Usage::now();
    thread::scope(|scope| {
        let pushing = scope.spawn(|| shape.push(outlets, &stop));
        let reading = scope.spawn(|| read(&inlets, shape, warm, &lasts));
        let costs = (|| {
            thread::sleep(Duration::from_secs_f64(WARM_UP_SECS));
            let before = relays
                .iter()
                .map(|it| it.now())
                .collect::<Outcome<Vec<_>>>()?;
            thread::sleep(Duration::from_secs_f64(secs));
            let costs = relays.iter().zip(before).map(|(it, then)| it.since(then));
            costs.collect::<Outcome<Vec<_>>>()
        })();
        stop.store(true, Ordering::Relaxed);
        let pushed = pushing
            .join()
            .map_err(|_| Failure::Runtime("nobody pushed".into()))?;
        lasts.store(
            pushed.as_ref().map_or(1, |it| *it).max(1),
            Ordering::Relaxed,
        );
        let received = reading
            .join()
            .map_err(|_| Failure::Runtime("nobody read".into()))?;
        pushed?;
        let own = Usage::now().since(own).0 / (local_clock() - warm + WARM_UP_SECS);
        Ok((received?, costs?, own))
    })
}

impl Measurement {
    fn put(&mut self, name: &str, value: Option<f64>) {
        self.values
            .extend(value.map(|value| (name.to_owned(), value)));
    }

    fn put_costs(&mut self, costs: &[Cost]) {
        for (name, cost) in ["near", "far"].iter().zip(costs) {
            self.put(&format!("{name}_cores"), Some(cost.cores));
            self.put(&format!("{name}_rss_mib"), Some(cost.rss_mib));
            self.put(&format!("{name}_switches_per_s"), Some(cost.switches_per_s));
        }
    }

    fn count(&mut self, received: &Received) {
        self.expected += received.samples + received.missing;
        self.received += received.samples;
    }
}

/// Turns of each way in a round of `hop`.
const TURNS: usize = 10;

const WARM_UP_SECS: f64 = 2.0;

/// Streams of `history`, of 4 MB a second each.
const HISTORY_STREAMS: u32 = 8;

/// Readers of the past, one after the other.
const SINCE_TURNS: usize = 40;

/// Longer than relays of this run read what nobody reads.
const LINGER_SECS: f64 = 2.5;

/// Pause until effects of finding are over.
const SETTLE_SECS: f64 = 10.0;

/// Seconds until numbers do not fit any more.
const LONGEST_FLOOD: f64 = 10.0;

const BETWEEN_OUTLETS: Duration = Duration::from_millis(20);
