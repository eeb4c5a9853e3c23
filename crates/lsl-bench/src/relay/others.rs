//! How late others are beside readers that stop, substreams that get no credit, and a reader of the past behind a
//! link of 1 MB/s; and what relays keep for those. Spec: relay §14, test 7.

use std::io::Write;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use lsl_cli::failure::Outcome;
use lsl_cli::interrupt::Stop;
use lsl_core::{Context, History, Inlet, Outlet, local_clock};

use super::load::{OPEN_LIMIT, QUIET, Shape, find_kind, joined, open};
use super::narrow;
use super::peer::{self, Reading};
use super::site::{Relay, Sites};
use crate::child::interrupted;
use crate::result::Measurement;
use crate::rotation::order;
use crate::stats::{median, quantile};

/// When samples came in seconds, and how late in milliseconds.
pub(super) type Seen = Mutex<Vec<(f64, f64)>>;

/// Notes that a sample of this time has come, unless nobody can have pushed it then.
pub(super) fn note(seen: &Seen, now: f64, stamp: f64) {
    if now - stamp < MOST_LATE {
        let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.push((now, (now - stamp) * 1e3));
    }
}

/// What others may suffer from: readers of the busy stream at both relays that stop, substreams with it that get no
/// credit, a reader of the past behind the narrow link.
const TROUBLES: [&str; 3] = ["stopped", "no_credit", "narrow"];

/// Where others read: at the far relay, on the link that has the substreams without credit, behind the narrow link.
const PLACES: [&str; 3] = ["far", "link", "slow"];

/// What others read, each stream at each place.
const OTHERS: Shape = Shape {
    streams: 8,
    channels: 8,
    rate: 250.0,
    chunk: 1,
};

/// 2 MB/s, which one reads at the far relay all the time.
const BUSY: Shape = Shape {
    streams: 1,
    channels: 64,
    rate: 8000.0,
    chunk: 32,
};

/// Half of what the narrow link carries; the relay beside it keeps a minute of it.
const PAST: Shape = Shape {
    streams: 1,
    channels: 64,
    rate: 2000.0,
    chunk: 8,
};

/// Relays, and programs that know their streams alone.
struct Scene<'a> {
    relays: [Relay; 3],
    programs: [Context; 3],
    /// Uid of the busy stream.
    busy: String,
    has_left: &'a AtomicBool,
    stop: &'a Stop,
}

/// A part of the run: the number of the trouble in it, and its time.
type Phase = (Option<usize>, [f64; 2]);

/// Has each trouble `turns` times, for so many seconds, after as many without any, and measures how late others are.
/// Then has them all at once, for `most_secs`, and measures what relays keep more than before.
pub(super) fn measure(
    sites: &Sites,
    (turns, secs, most_secs): (usize, f64, f64),
    stop: &Stop,
) -> Outcome<Measurement> {
    let near = sites.relay(0, None)?;
    let far = sites.relay(1, Some(near.port))?;
    let slow = sites.relay(2, Some(narrow::open(near.port)?))?;
    let program = sites.program(0, None)?;
    let others = OTHERS.offer_as("Others", &program, "others")?;
    let busy = BUSY.offer_as("Busy", &program, "busy")?;
    let past = PAST.offer_as("Past", &program, "past")?;
    let uids = |outlets: &[Outlet]| -> Vec<String> {
        let uids = outlets.iter().map(|it| it.info().uid().into_owned());
        uids.collect()
    };
    let (has_left, is_over) = (AtomicBool::new(false), AtomicBool::new(false));
    let reader = |relay| sites.program(3, Some(relay));
    let scene = Scene {
        programs: [reader(&near)?, reader(&far)?, reader(&slow)?],
        busy: uids(&busy).concat(),
        has_left: &has_left,
        stop,
        relays: [near, far, slow],
    };
    let [at_near, at_far, at_slow] = &scene.programs;
    let read_at = |at, kind, count| open(at, &find_kind(at, kind, count)?);
    let watched = [
        read_at(at_far, "Others", OTHERS.streams)?,
        read_at(at_slow, "Others", OTHERS.streams)?,
    ];
    let drained = [read_at(at_far, "Busy", 1)?, read_at(at_near, "Past", 1)?];
    let seen: [Seen; 3] = Default::default();
    let [far_seen, link_seen, slow_seen] = &seen;
    let reading = Reading {
        port: scene.relays[0].port,
        taken: uids(&others),
        channels: OTHERS.channels as usize,
        left: scene.busy.clone(),
        has_left: &has_left,
        is_over: &is_over,
        seen: link_seen,
    };
    thread::scope(|scope| {
        let is_over = &is_over;
        let pushing = [(OTHERS, &others), (BUSY, &busy), (PAST, &past)];
        let mut threads =
            Vec::from(pushing.map(|(shape, outlets)| {
                scope.spawn(move || shape.push(outlets, is_over).map(drop))
            }));
        for (inlets, seen) in watched.iter().zip([far_seen, slow_seen]) {
            threads.extend((inlets.iter()).map(|it| scope.spawn(move || watch(it, seen, is_over))));
        }
        let drained = drained.iter().flatten();
        threads.extend(drained.map(|it| scope.spawn(move || drain(it, is_over))));
        threads.push(scope.spawn(|| peer::read(&reading)));
        let done = scene.play(turns, secs, most_secs);
        is_over.store(true, Ordering::Relaxed);
        threads.into_iter().try_for_each(joined)?;
        done
    })
    .map(|(phases, mut measurement)| {
        for (place, seen) in PLACES.iter().zip(seen) {
            let seen = seen.into_inner().unwrap_or_else(PoisonError::into_inner);
            measurement.received += seen.len() as u64;
            put_ratios(&mut measurement, place, &seen, &phases);
        }
        let lost = watched.iter().flatten().map(|it| it.stats().lost_exact);
        measurement.expected = measurement.received + lost.sum::<u64>();
        measurement
    })
}

impl Scene<'_> {
    fn play(&self, turns: usize, secs: f64, most_secs: f64) -> Outcome<(Vec<Phase>, Measurement)> {
        // What relays retain is there by then.
        self.wait(RETAINED_SECS)?;
        let mut phases = Vec::new();
        for turn in 0..turns {
            for number in order(turn, TROUBLES.len()) {
                for number in [None, Some(number)] {
                    let held = number.map(|it| self.begin(it)).transpose()?;
                    self.wait(SETTLE_SECS)?;
                    let from = local_clock();
                    self.wait(secs)?;
                    phases.push((number, [from, local_clock()]));
                    drop(held);
                    self.has_left.store(false, Ordering::Relaxed);
                }
            }
        }
        // The relay of the narrow link keeps the past itself from now on.
        let [near, far, _] = &self.relays;
        let before = [near.now()?, far.now()?];
        let _held = (0..TROUBLES.len())
            .map(|it| self.begin(it))
            .collect::<Outcome<Vec<_>>>()?;
        self.wait(most_secs)?;
        let mut measurement = Measurement::default();
        for (name, relay, before) in [("near", near, before[0]), ("far", far, before[1])] {
            let grown = relay.since(before)?.rss_mib - before.rss_mib();
            measurement.put(&format!("{name}_grows_mib"), Some(grown));
        }
        Ok((phases, measurement))
    }

    /// Begins a trouble, which lasts until what is returned is dropped, and substreams are not wanted any more.
    fn begin(&self, number: usize) -> Outcome<(Vec<TcpStream>, Option<Inlet>)> {
        let [near, far, _] = &self.relays;
        let mut stopped = Vec::new();
        match TROUBLES.get(number) {
            Some(&"stopped") => {
                for port in [near.port, far.port].repeat(STOPPED) {
                    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
                    stream.write_all(&peer::request(&self.busy))?;
                    stopped.push(stream);
                }
            }
            Some(&"no_credit") => self.has_left.store(true, Ordering::Relaxed),
            _ => {
                let found = find_kind(&self.programs[2], "Past", 1)?;
                let found = found.first().ok_or_else(interrupted)?;
                let builder = Inlet::builder(found).context(&self.programs[2]);
                let inlet = builder.history(History::Oldest).create()?;
                inlet.blocking().open(OPEN_LIMIT)?;
                return Ok((stopped, Some(inlet)));
            }
        }
        Ok((stopped, None))
    }

    fn wait(&self, secs: f64) -> Outcome {
        let is_over = self.stop.sleep_until(local_clock() + secs);
        is_over.then_some(()).ok_or_else(interrupted)
    }
}

fn watch(inlet: &Inlet, seen: &Seen, is_over: &AtomicBool) -> Outcome {
    let mut values = [0.0_f32; OTHERS.channels as usize];
    while !is_over.load(Ordering::Relaxed) {
        if let Some(stamp) = inlet.blocking().pull(&mut values, QUIET)? {
            note(seen, local_clock(), stamp);
        }
    }
    Ok(())
}

fn drain(inlet: &Inlet, is_over: &AtomicBool) -> Outcome {
    let mut values = vec![0.0_f32; 64 * 1024];
    while !is_over.load(Ordering::Relaxed) {
        inlet.try_pull_chunk(&mut values, None)?;
        thread::sleep(DRAIN_PAUSE);
    }
    Ok(())
}

/// Adds the 99th percentile without trouble, and by how many times it is more in each, as medians of the turns.
fn put_ratios(measurement: &mut Measurement, place: &str, seen: &[(f64, f64)], phases: &[Phase]) {
    let p99 = |[from, to]: [f64; 2]| {
        let there = seen.iter().filter(|(at, _)| (from..to).contains(at));
        quantile(&there.map(|(_, late)| *late).collect::<Vec<_>>(), 0.99)
    };
    let mut without = Vec::new();
    let mut ratios = TROUBLES.map(|_| Vec::new());
    for pair in phases.chunks_exact(2) {
        if let [(None, before), (Some(number), during)] = pair
            && let (Some(before), Some(during)) = (p99(*before), p99(*during))
        {
            without.push(before);
            ratios[*number].push(during / before);
        }
    }
    measurement.put(&format!("{place}_p99_ms"), median(&without));
    for (trouble, ratios) in TROUBLES.iter().zip(ratios) {
        measurement.put(&format!("{trouble}_{place}_p99"), median(&ratios));
    }
}

/// Readers that stop, at each relay.
const STOPPED: usize = 4;

/// Longer than samples are kept.
const RETAINED_SECS: f64 = 65.0;

/// Until what the beginning of a trouble causes is over, as a handshake.
const SETTLE_SECS: f64 = 1.0;

const DRAIN_PAUSE: std::time::Duration = std::time::Duration::from_millis(20);

/// Test patterns are from long ago.
const MOST_LATE: f64 = 60.0;
