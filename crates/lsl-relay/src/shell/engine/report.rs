//! What an engine does, for status and metrics. Spec: relay §13.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lsl_core::local_clock;
use lsl_proto::wire::sequence::Generation;
use serde_json::{Map, Value, json};

use crate::config::{EngineConfig, Layout};
use crate::engine::spool::{Lane, LaneCounts, Room};
use crate::engine::{EngineError, ErrorKind, Scheme};

/// What an engine does.
#[derive(Debug)]
pub(in crate::shell) struct Report {
    address: String,
    layout: &'static str,
    room: Arc<Room>,
    rows: Mutex<Rows>,
}

#[derive(Debug, Default)]
struct Rows {
    /// Streams that are kept now.
    now: HashMap<Generation, Arc<Mutex<State>>>,
    /// What was done for those that are not.
    before: LaneCounts,
    /// Errors apart from streams.
    errors: [u64; ErrorKind::ALL.len()],
    /// What people were told of last, for all streams.
    told: Option<ErrorKind>,
}

#[derive(Debug, Default)]
struct State {
    counts: LaneCounts,
    trouble: Option<(f64, EngineError)>,
    stands_by: bool,
    /// Number behind the last sample that waits.
    waits_until: Option<u64>,
}

/// Place of one stream in a report.
#[derive(Debug)]
pub(super) struct Row {
    report: Arc<Report>,
    generation: Generation,
    state: Arc<Mutex<State>>,
}

impl Report {
    pub(super) fn new(config: &EngineConfig) -> Self {
        Self {
            address: config.address.to_string(),
            layout: match (config.address.scheme, config.layout) {
                (Scheme::Nats, _) => "jetstream",
                (_, Layout::Packed) => "packed",
                (_, Layout::River) => "river",
            },
            room: Arc::new(Room::new(SPOOL_BYTES)),
            rows: Mutex::default(),
        }
    }

    /// Adds a stream.
    pub(super) fn begin(self: &Arc<Self>, generation: &Generation) -> Row {
        let state = Arc::default();
        lock(&self.rows).now.insert(*generation, Arc::clone(&state));
        Row {
            report: Arc::clone(self),
            generation: *generation,
            state,
        }
    }

    /// Counts an error apart from streams.
    pub(super) fn note(&self, error: &EngineError) {
        tracing::debug!("engine: {error}");
        if let Some(count) = lock(&self.rows).errors.get_mut(error.kind as usize) {
            *count += 1;
        }
    }

    /// Whether samples of a numbering wait that come at this number or behind it.
    pub(super) fn waits(&self, generation: &Generation, from: u64) -> bool {
        let rows = lock(&self.rows);
        let state = rows.now.get(generation).map(|state| lock(state));
        state.is_some_and(|state| state.waits_until > Some(from))
    }

    /// Returns how many streams are kept.
    pub(super) fn streams(&self) -> usize {
        lock(&self.rows).now.len()
    }

    /// Returns the bytes that wait.
    pub(super) fn waiting_bytes(&self) -> usize {
        self.room.used()
    }

    /// Returns all of it as an object. The state is `idle` without streams, `up`, or that of the
    /// stream which is worst off.
    pub(in crate::shell) fn status(&self) -> Value {
        let rows = lock(&self.rows);
        let (mut counts, mut errors) = (rows.before, rows.errors);
        let mut worst: Option<(ErrorKind, f64, String)> = None;
        let mut standing_by = 0;
        for state in rows.now.values() {
            let state = lock(state);
            add(&mut counts, &state.counts);
            standing_by += usize::from(state.stands_by);
            if let Some((since, error)) = &state.trouble {
                let (kind, earliest) = worst
                    .as_ref()
                    .map_or((error.kind, *since), |it| (it.0, it.1));
                if worst.is_none() || error.kind > kind || error.kind == kind && *since < earliest {
                    worst = Some((error.kind, *since, error.text.clone()));
                }
            }
        }
        for (sum, count) in errors.iter_mut().zip(counts.errors) {
            *sum += count;
        }
        let errors = ErrorKind::ALL.iter().zip(errors);
        let errors: Map<_, _> = errors
            .map(|(kind, count)| (kind.name().to_owned(), count.into()))
            .collect();
        let fine = if rows.now.is_empty() { "idle" } else { "up" };
        json!({
            "address": self.address,
            "layout": self.layout,
            "state": worst.as_ref().map_or(fine, |(kind, ..)| kind.name()),
            "for_s": worst.as_ref().map(|(_, since, _)| local_clock() - since),
            "error": worst.as_ref().map(|(.., text)| text),
            "streams": rows.now.len(),
            "standby": standing_by,
            "stored": counts.stored,
            "lost": counts.lost,
            "setbacks": counts.setbacks,
            "waiting_bytes": self.room.used(),
            "errors": errors,
        })
    }
}

impl Row {
    /// Returns the room that all streams share.
    pub(super) fn room(&self) -> Arc<Room> {
        Arc::clone(&self.report.room)
    }

    /// Takes over how it goes.
    pub(super) fn set(&self, lane: &Lane) {
        let mut state = lock(&self.state);
        state.counts = lane.counts();
        state.stands_by = lane.stands_by();
        state.waits_until = lane.waits_until();
        let trouble = lane.trouble();
        if state.trouble.as_ref() != trouble {
            state.trouble = trouble.cloned();
        }
    }

    /// Logs that the engine takes no samples for the time being, or that it does again: not for each stream.
    pub(super) fn tell(&self, error: Option<&EngineError>) {
        let kind = error.map(|error| error.kind);
        let told = std::mem::replace(&mut lock(&self.report.rows).told, kind);
        let address = &self.report.address;
        match error {
            Some(error) if told != kind => {
                tracing::warn!("engine {address} takes no samples, they wait: {error}");
            }
            None if told.is_some() => tracing::info!("engine {address} takes samples again"),
            _ => {}
        }
    }

    /// Removes it.
    pub(super) fn end(&self, lane: &Lane) {
        let mut rows = lock(&self.report.rows);
        add(&mut rows.before, &lane.counts());
        // Another one may keep it by now.
        let is_own = |it: &Arc<_>| Arc::ptr_eq(it, &self.state);
        if rows.now.get(&self.generation).is_some_and(is_own) {
            rows.now.remove(&self.generation);
        }
    }
}

fn add(sums: &mut LaneCounts, counts: &LaneCounts) {
    sums.stored += counts.stored;
    sums.lost += counts.lost;
    sums.setbacks += counts.setbacks;
    for (sum, count) in sums.errors.iter_mut().zip(counts.errors) {
        *sum += count;
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Bytes of samples that may wait, of all streams. Spec: relay §12.
const SPOOL_BYTES: usize = 64 << 20;
