//! Streams that flow from one site to another: who pushes, who reads, and how late and how whole it came.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, ScopedJoinHandle};
use std::time::Duration;

use lsl_cli::failure::{Failure, Outcome};
use lsl_core::{
    ChannelFormat, Context, ContinuousResolver, Inlet, Outlet, Selector, StreamInfo, local_clock,
};

use crate::stats::quantile;

/// Streams of one shape.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shape {
    pub(super) streams: usize,
    pub(super) channels: u32,
    pub(super) rate: f64,
    /// Samples that are pushed at once.
    pub(super) chunk: usize,
}

/// What readers had.
#[derive(Debug, Default)]
pub(super) struct Received {
    pub(super) samples: u64,
    pub(super) missing: u64,
    /// Milliseconds from the push to the pull of the newest sample of each chunk.
    latencies: Vec<f64>,
}

impl Shape {
    /// Offers the streams `name-0`, `name-1`, …
    pub(super) fn offer(&self, context: &Context, name: &str) -> Outcome<Vec<Outlet>> {
        self.offer_as(KIND, context, name)
    }

    /// The same, of another type.
    pub(super) fn offer_as(
        &self,
        kind: &str,
        context: &Context,
        name: &str,
    ) -> Outcome<Vec<Outlet>> {
        let offer = |number| {
            let name = format!("{name}-{number}");
            let info = StreamInfo::new(
                name.as_str(),
                kind,
                self.channels,
                self.rate,
                ChannelFormat::Float32,
                name.as_str(),
            )?;
            Ok(Outlet::builder(info).context(context).open()?)
        };
        (0..self.streams).map(offer).collect()
    }

    /// Pushes numbered samples until `stop`, the streams one after the other all the time. Returns the number of
    /// samples that each has had.
    pub(super) fn push(&self, outlets: &[Outlet], stop: &AtomicBool) -> Outcome<u64> {
        let channels = self.channels as usize;
        let mut values = vec![0.0_f32; self.chunk * channels];
        let period = self.chunk as f64 / self.rate / outlets.len() as f64;
        let start = local_clock();
        let mut turn = 0_u64;
        let mut first = 0_u64;
        loop {
            for outlet in outlets {
                let wait = start + turn as f64 * period - local_clock();
                if wait > SHORTEST_SLEEP {
                    thread::sleep(Duration::from_secs_f64(wait));
                }
                for (place, sample) in (first..).zip(values.chunks_exact_mut(channels)) {
                    sample.fill(place as f32);
                }
                outlet.push_chunk_at(&values, local_clock())?;
                turn += 1;
            }
            first += self.chunk as u64;
            if stop.load(Ordering::Relaxed) {
                return Ok(first);
            }
        }
    }

    /// Pushes as fast as a reader takes them, which counts in `taken`, for so many seconds.
    pub(super) fn flood(&self, outlet: &Outlet, taken: &AtomicU64, secs: f64) -> Outcome<u64> {
        let mut values = vec![0.0_f32; self.chunk * self.channels as usize];
        let window = MOST_ON_THE_WAY / (u64::from(self.channels) * 4);
        let until = local_clock() + secs;
        let mut pushed = 0_u64;
        while local_clock() < until {
            if pushed > taken.load(Ordering::Relaxed) + window {
                thread::sleep(Duration::from_micros(100));
                continue;
            }
            for (place, sample) in (pushed..).zip(values.chunks_exact_mut(self.channels as usize)) {
                sample.fill(place as f32);
            }
            outlet.push_chunk_at(&values, local_clock())?;
            pushed += self.chunk as u64;
        }
        Ok(pushed)
    }
}

/// Finds so many of these streams.
pub(super) fn find(context: &Context, streams: usize) -> Outcome<Vec<StreamInfo>> {
    find_kind(context, KIND, streams)
}

/// The same, of another type.
pub(super) fn find_kind(context: &Context, kind: &str, streams: usize) -> Outcome<Vec<StreamInfo>> {
    let resolver =
        ContinuousResolver::in_context(context, &Selector::property("type", kind)?, FORGET)?;
    let found = resolver.wait_blocking(streams, FIND_LIMIT);
    if found.len() < streams {
        let text = format!("{} of {streams} streams were found", found.len());
        return Err(Failure::NotFound(text));
    }
    Ok(found)
}

/// Opens an inlet for each.
pub(super) fn open(context: &Context, found: &[StreamInfo]) -> Outcome<Vec<Inlet>> {
    let inlets = found
        .iter()
        .map(|info| Ok(Inlet::builder(info).context(context).create()?));
    let inlets: Vec<Inlet> = inlets.collect::<Outcome<_>>()?;
    let open = |inlets: &[Inlet]| -> Outcome {
        inlets
            .iter()
            .try_for_each(|inlet| Ok(inlet.blocking().open(OPEN_LIMIT)?))
    };
    thread::scope(|scope| {
        let parts = inlets.chunks(inlets.len().div_ceil(OPENERS).max(1));
        let opening: Vec<_> = parts.map(|part| scope.spawn(|| open(part))).collect();
        opening.into_iter().try_for_each(joined)
    })?;
    Ok(inlets)
}

/// Reads all until the pushing ends: a few on threads of their own, which note when a chunk has come, the others
/// now and then. `lasts` says how many samples each stream had, once that is known; what came before `since` is
/// not in the latencies.
pub(super) fn read(
    inlets: &[Inlet],
    shape: Shape,
    since: f64,
    lasts: &AtomicU64,
) -> Outcome<Received> {
    let (watched, others) = inlets.split_at(inlets.len().min(WATCHED));
    thread::scope(|scope| {
        let watching: Vec<_> = watched
            .iter()
            .map(|inlet| scope.spawn(move || watch(inlet, shape, since, lasts)))
            .collect();
        let mut all = drain(others, shape, lasts)?;
        for one in watching {
            let one = joined(one)?;
            all.samples += one.samples;
            all.missing += one.missing;
            all.latencies.extend(one.latencies);
        }
        Ok(all)
    })
}

pub(super) fn joined<T>(thread: ScopedJoinHandle<'_, Outcome<T>>) -> Outcome<T> {
    let gone = |_| Failure::Runtime("a reader failed".into());
    thread.join().map_err(gone)?
}

fn watch(inlet: &Inlet, shape: Shape, since: f64, lasts: &AtomicU64) -> Outcome<Received> {
    let mut values = vec![0.0_f32; shape.chunk * shape.channels as usize];
    let mut stamps = vec![0.0; shape.chunk];
    let (mut received, mut next) = (Received::default(), 0_u64);
    let mut quiet_since = local_clock();
    loop {
        let stamps_too = Some(&mut stamps[..]);
        let count = inlet
            .blocking()
            .pull_chunk(&mut values, stamps_too, QUIET)?;
        let now = local_clock();
        received.take(&values, shape.channels as usize, count, &mut next);
        let is_whole = count == shape.chunk;
        if let (true, Some(stamp)) = (is_whole && now > since, stamps.last()) {
            received.latencies.push((now - stamp) * 1e3);
        }
        if count > 0 {
            quiet_since = now;
        }
        if is_over(next, lasts, quiet_since, now) {
            return Ok(received);
        }
    }
}

fn drain(inlets: &[Inlet], shape: Shape, lasts: &AtomicU64) -> Outcome<Received> {
    let mut values = vec![0.0_f32; 1024 * shape.channels as usize];
    let mut nexts = vec![0_u64; inlets.len()];
    let mut received = Received::default();
    let mut quiet_since = local_clock();
    while !inlets.is_empty() {
        for (number, (inlet, next)) in inlets.iter().zip(&mut nexts).enumerate() {
            // Not in bursts, which would hold up what is measured.
            if number % DRAINED_AT_ONCE == 0 {
                thread::sleep(BETWEEN_DRAINS);
            }
            let count = inlet.try_pull_chunk(&mut values, None)?;
            received.take(&values, shape.channels as usize, count, next);
            if count > 0 {
                quiet_since = local_clock();
            }
        }
        let slowest = nexts.iter().copied().min().unwrap_or(0);
        if is_over(slowest, lasts, quiet_since, local_clock()) {
            break;
        }
    }
    Ok(received)
}

/// Whether everything came, or nothing more does. `lasts` is 0 while they are pushed.
fn is_over(next: u64, lasts: &AtomicU64, quiet_since: f64, now: f64) -> bool {
    let last = lasts.load(Ordering::Relaxed);
    last > 0 && (next >= last || now - quiet_since > 3.0)
}

/// Takes what came of a flood, and counts it for who pushes.
pub(super) fn take_flood(
    inlet: &Inlet,
    shape: Shape,
    taken: &AtomicU64,
    lasts: &AtomicU64,
) -> Outcome<Received> {
    let mut values = vec![0.0_f32; 4096 * shape.channels as usize];
    let (mut received, mut next) = (Received::default(), 0);
    let mut quiet_since = local_clock();
    loop {
        let first = values
            .get_mut(..shape.channels as usize)
            .unwrap_or_default();
        let one = inlet.blocking().pull(first, QUIET)?.map_or(0, |_| 1);
        received.take(&values, shape.channels as usize, one, &mut next);
        let count = inlet.try_pull_chunk(&mut values, None)?;
        received.take(&values, shape.channels as usize, count, &mut next);
        taken.store(next, Ordering::Relaxed);
        let now = local_clock();
        if one > 0 {
            quiet_since = now;
        }
        if is_over(next, lasts, quiet_since, now) {
            return Ok(received);
        }
    }
}

impl Received {
    /// Counts what came, by the numbers in it.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "numbers were whole"
    )]
    fn take(&mut self, values: &[f32], channels: usize, count: usize, next: &mut u64) {
        for sample in values.chunks_exact(channels).take(count) {
            let number = sample.first().copied().unwrap_or(0.0) as u64;
            self.missing += number.saturating_sub(*next);
            *next = number + 1;
        }
        self.samples += count as u64;
    }

    /// A quantile of the latencies in milliseconds.
    pub(super) fn latency(&self, share: f64) -> Option<f64> {
        quantile(&self.latencies, share)
    }
}

/// Type of all streams.
pub(super) const KIND: &str = "Bench";

/// Streams whose latency is looked at.
const WATCHED: usize = 16;

/// Inlets that are read now and then, so many at a time.
const DRAINED_AT_ONCE: usize = 25;
const BETWEEN_DRAINS: Duration = Duration::from_millis(5);

/// Threads that open inlets.
const OPENERS: usize = 8;

/// Bytes that may be on their way where all is sent that goes through.
const MOST_ON_THE_WAY: u64 = 4 << 20;

/// Sleeps take longer than asked for.
const SHORTEST_SLEEP: f64 = 0.2e-3;

/// Nothing is forgotten meanwhile.
pub(super) const FORGET: Duration = Duration::from_mins(10);

pub(super) const QUIET: Duration = Duration::from_millis(500);
const FIND_LIMIT: Duration = Duration::from_mins(1);
pub(super) const OPEN_LIMIT: Duration = Duration::from_secs(20);
