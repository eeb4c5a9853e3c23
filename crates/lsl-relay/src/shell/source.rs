//! Reads a stream from where it comes, and passes its samples on as they came. Spec: relay §2, §6-8.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use lsl_core::relay::{Origin, Run};
use lsl_core::{
    Error, GapReason, Generation, History, Inlet, InletBuilder, Outlet, Position, Result, Retain,
    StreamInfo, Timeout, local_clock, random_uid,
};

use tokio::sync::Mutex;

use crate::book::{Uid, Way};
use crate::shell::pace::Gain;
use crate::shell::rivers;
use crate::shell::state::{Numbers, Shared, State, name_of};

/// One attempt to read a stream.
#[derive(Debug)]
pub(super) struct Attempt {
    pub(super) uid: Uid,
    pub(super) way: Way,
    pub(super) number: u64,
}

/// Reads a stream by one way until the feed ends. `turn` keeps it from beginning while an attempt before, which was
/// aborted, still passes samples on.
pub(super) async fn read(shared: Arc<Shared>, attempt: Attempt, turn: Arc<Mutex<()>>) {
    let _turn = turn.lock().await;
    let passed_on = match attempt.way {
        Way::River => rivers::pass_on(&shared, &attempt).await,
        _ => pass_on(&shared, &attempt).await,
    };
    let Err(error) = passed_on;
    let Attempt { uid, way, .. } = &attempt;
    tracing::info!("stream {uid} by {} ended: {error}", name_of(Some(*way)));
    shared.act(|state, now| {
        // Of another attempt this is no news.
        if state.reading(&attempt).is_some() {
            state.book.feed_lost(uid, *way, now);
        }
    });
}

impl State {
    /// Begins an inlet that reads a stream by this way; `None` if it is gone.
    fn inlet(&self, uid: &Uid, way: Way) -> Option<InletBuilder> {
        match way {
            Way::Direct(face) => self.found.get(&(face, uid.clone())).map(Inlet::builder),
            Way::Link(relay) => {
                let link = self.link_to(relay)?.clone();
                let info = self.book.info(uid)?;
                Some(Inlet::builder(info).through(Arc::new(link)))
            }
            Way::River => None,
        }
    }
}

/// Where samples go.
pub(super) struct Target {
    outlet: Arc<Outlet>,
    numbers: Arc<Numbers>,
}

async fn pass_on(shared: &Arc<Shared>, attempt: &Attempt) -> Result<Infallible> {
    let Attempt { uid, way, .. } = attempt;
    let wanted = shared.act(|state, _| {
        let flow = state.reading(attempt)?;
        let (position, wants_past) = (flow.position(), flow.wants_past);
        // What a crash cost is asked for again.
        let kept = || shared.history.as_ref()?.position(uid);
        let position = position.or_else(kept);
        Some((state.inlet(uid, *way), position, wants_past))
    });
    let (inlet, position, wants_past) = wanted.ok_or_else(gone)?;
    let inlet = inlet.ok_or_else(|| Error::Argument("nobody knows where it is".into()))?;
    let mut inlet = inlet.context(shared.context_of(*way)).recover(false);
    if let Some(position) = position {
        inlet = inlet.resume_at(position);
    } else if wants_past {
        inlet = inlet.history(History::Seconds(RETAINED.seconds));
    }
    let inlet = Arc::new(inlet.create()?);
    inlet.open(OPEN_LIMIT).await?;
    let first = inlet.next_run();
    let target = target(shared, attempt, first)?;
    shared.act(|state, now| {
        if let Some(flow) = state.reading(attempt) {
            flow.inlet = Arc::downgrade(&inlet);
            state.book.feed_up(uid, *way, now);
        }
    });
    let info = inlet.info();
    let value = u32::try_from(info.channel_format().value_size()).unwrap_or(u32::MAX);
    let sample = f64::from(info.channel_count()) * f64::from(value);
    let mut gain = Gain::of(info.nominal_srate(), sample);
    let mut run = Run::default();
    let mut received = 0;
    loop {
        // A backlog is read on at once.
        let is_turn =
            gain.is_hoped_for() && run.values.len() < BACKLOG_BYTES && shared.pace.turn(*way).await;
        let wait = if is_turn {
            Timeout::After(Duration::ZERO)
        } else {
            Timeout::Forever
        };
        let has_come = inlet.pull_run(MOST_SAMPLES, &mut run, wait).await?;
        if has_come {
            let came = local_clock();
            target.push(&run, &mut received, &shared.totals.came)?;
            shared.totals.hop.note(local_clock() - came);
        }
        if is_turn {
            gain.note(has_come && run.values.len() < BACKLOG_BYTES);
        }
        // A backlog must not keep this thread, nor an end, waiting.
        tokio::task::consume_budget().await;
    }
}

/// Returns the outlet that goes on with these numbers: the one before, if they are its own, else a new one.
pub(super) fn target(
    shared: &Arc<Shared>,
    attempt: &Attempt,
    first: Option<Position>,
) -> Result<Target> {
    let uid = &attempt.uid;
    // What passed in between is unknown of a stream without numbers, hence new ones.
    let fresh = || {
        let generation = random_uid().ok()?;
        let generation = Generation::parse(generation.as_bytes())?;
        Some(Position {
            generation,
            next: 0,
        })
    };
    let no_number = || Error::Argument("no random numbers for a stream".into());
    let first = first.or_else(fresh).ok_or_else(no_number)?;
    let found = shared.act(|state, _| {
        let clock = state.clocks.of(uid);
        let info: Arc<StreamInfo> = Arc::clone(state.book.info(uid)?);
        let flow = state.reading(attempt)?;
        let outlet = flow.outlet.borrow().clone();
        let kept = outlet.filter(|_| flow.generation == Some(first.generation));
        let kept = kept.map(|outlet| (outlet, Arc::clone(&flow.numbers)));
        Some((kept, info, clock))
    });
    let (kept, info, clock) = found.ok_or_else(gone)?;
    if let Some((outlet, numbers)) = kept {
        return Ok(Target { outlet, numbers });
    }
    let outlet = Outlet::builder(StreamInfo::clone(&info))
        .context(&shared.context)
        .retain(RETAINED)
        .relayed(Origin { first, clock })?;
    let outlet = Arc::new(outlet);
    let replaced = shared.act(|state, _| {
        let flow = state.reading(attempt)?;
        let is_again = flow.generation.replace(first.generation).is_some();
        let numbers = Arc::clone(&flow.numbers);
        numbers.next.store(first.next, Ordering::Relaxed);
        for numbers in [&*numbers, &shared.totals.came] {
            (numbers.lost_unknown).fetch_add(u64::from(is_again), Ordering::Relaxed);
        }
        let before = flow.outlet.send_replace(Some(Arc::clone(&outlet)));
        if let Some(before) = &before {
            shared.totals.retire(before);
        }
        state.keepers.begin(uid, &outlet);
        Some((numbers, before))
    });
    let (numbers, before) = replaced.ok_or_else(gone)?;
    // Closing it takes locks of its own.
    drop(before);
    Ok(Target { outlet, numbers })
}

pub(super) fn gone() -> Error {
    Error::Argument("the stream is gone".into())
}

impl Target {
    /// Passes a run on, behind what is missing before it. `received` counts what the inlet had, the run included;
    /// `all` counts for all streams.
    pub(super) fn push(&self, run: &Run, received: &mut u64, all: &Numbers) -> Result<()> {
        let next = self.numbers.next.load(Ordering::Relaxed);
        let missing = match run.first {
            Some(first) => (first.next.checked_sub(next))
                .ok_or_else(|| Error::Protocol("samples came again".into()))?,
            // Nobody numbers them: only what found no room here is missing.
            None => run.received.saturating_sub(*received),
        };
        if missing > 0 {
            let reason = run
                .losses
                .last()
                .map_or(GapReason::ReaderTooSlow, |it| it.reason);
            self.outlet.lose(missing, reason)?;
        }
        self.outlet.push_run(&run.values, &run.stamps)?;
        let samples = run.stamps.len() as u64;
        *received = run.received + samples;
        let next = next + missing + samples;
        self.numbers.next.store(next, Ordering::Relaxed);
        let bytes = run.values.len() as u64;
        for numbers in [&*self.numbers, all] {
            numbers.lost_exact.fetch_add(missing, Ordering::Relaxed);
            numbers.received.fetch_add(samples, Ordering::Relaxed);
            numbers.bytes.fetch_add(bytes, Ordering::Relaxed);
        }
        Ok(())
    }
}

/// Samples that are kept for readers that come back, and for those that join late. Spec: relay §2.
pub(super) const RETAINED: Retain = Retain {
    seconds: 60.0,
    bytes: 32 << 20,
    unread: true,
};

/// Samples that are passed on at a time.
const MOST_SAMPLES: usize = 4096;

/// Bytes of a run of which more may be expected at once.
const BACKLOG_BYTES: usize = 64 * 1024;

const OPEN_LIMIT: Duration = Duration::from_secs(10);
