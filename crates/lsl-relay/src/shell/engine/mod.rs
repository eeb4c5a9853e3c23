//! Has an engine keep the streams that rules name. Spec: relay §12.

mod check;
mod client;
mod follow;
#[cfg(any(test, feature = "nats"))]
mod jetstream;
mod keep;
#[cfg(feature = "nats")]
mod nats;
mod packed;
mod past;
mod redis;
mod report;
mod river;
#[cfg(test)]
mod simulation;
mod source;
mod tls;

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use lsl_core::local_clock;
use lsl_core::relay::Tap;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::watch;

use crate::book::Uid;
use crate::config::{EngineConfig, Layout};
#[cfg(feature = "nats")]
use crate::engine::Scheme;
use crate::engine::{Engine, Meta, Result, TEND_SECS};
#[cfg(feature = "nats")]
use crate::id::RelayId;
use crate::shell::state::Shared;
use crate::shell::tap::{Keeper, Kept};

pub use check::check_engine;
pub use client::{RiverClient, RiverSample, RiverStream};
pub(super) use follow::{Follow, ask, names, server_ahead};
pub(super) use past::Reading;
pub(super) use redis::Redis;
pub(super) use report::Report;

use packed::PackedEngine;
use river::{ClockOf, RiverEngine};

/// The engine of a relay that runs.
#[derive(Debug)]
pub(super) struct Running {
    report: Arc<Report>,
    /// If it can be read.
    reading: Option<Reading>,
    /// True once all that is written is to be finished.
    leaving: watch::Sender<bool>,
}

/// Begins to keep what rules name, before the directory knows a stream.
///
/// # Errors
/// For files that cannot be used.
pub(super) fn start(shared: &Arc<Shared>, config: &EngineConfig) -> Result<Running> {
    let running = match config.layout {
        #[cfg(feature = "nats")]
        Layout::Packed if config.address.scheme == Scheme::Nats && config.river.is_none() => {
            run(shared, config, nats_engine(config, shared.id)?)
        }
        Layout::Packed => {
            let server = Redis::new(config)?;
            let other = server.another();
            let engine = PackedEngine::new(config, shared.id, server, other);
            run(shared, config, engine)
        }
        Layout::River => {
            let clock_of = clock_of(Arc::downgrade(shared));
            let engine = RiverEngine::new(config, shared.id, Redis::new(config)?, clock_of);
            run(shared, config, engine)
        }
    };
    if running.reading.is_none() {
        tracing::info!(
            "engine: this layout is written alone; what is past is served from memory and history"
        );
    }
    Ok(running)
}

/// Creates an engine in JetStream of NATS for this relay, on an executor of tokio. It connects once it is asked.
///
/// # Errors
/// For files that cannot be used.
#[cfg(feature = "nats")]
pub fn nats_engine(config: &EngineConfig, relay: RelayId) -> Result<impl Engine + use<>> {
    let server = nats::Nats::new(config)?;
    Ok(jetstream::JetStream::new(config, relay, server))
}

impl Running {
    /// Returns what it does.
    pub(super) fn report(&self) -> &Report {
        &self.report
    }

    /// Returns what readers of the past read, if it can be read.
    pub(super) fn reading(&self) -> Option<&Reading> {
        self.reading.as_ref()
    }

    /// Has all that waits written, and then no more.
    pub(super) fn leave(&self) {
        self.leaving.send_replace(true);
    }

    /// Waits until that is done, for `most` at most. Blocks.
    pub(super) fn finish(&self, most: Duration) {
        let until = local_clock() + most.as_secs_f64();
        while local_clock() < until && self.report.streams() > 0 {
            std::thread::sleep(LOOK_AT_END);
        }
        let waiting = self.report.waiting_bytes();
        if waiting > 0 {
            tracing::warn!("engine: {waiting} bytes of samples were not stored");
        }
    }
}

fn run<E: Engine>(shared: &Arc<Shared>, config: &EngineConfig, engine: E) -> Running {
    let (engine, report) = (Arc::new(engine), Arc::new(Report::new(config)));
    let reading = E::READS.then(|| Reading::new(Arc::clone(&engine), Arc::clone(&report)));
    let (leaving, left) = watch::channel(false);
    let told = shared.act(|state, _| state.keepers.add(Keeper::Engine));
    let flush = Duration::from_millis(config.flush_ms.into());
    let keeping = (Arc::clone(&report), left, flush);
    let (tended, noting) = (Arc::clone(&engine), Arc::clone(&report));
    shared.tasks.spawn(async move {
        loop {
            tokio::time::sleep(Duration::from_secs_f64(TEND_SECS)).await;
            if let Err(error) = tended.tend(local_clock()).await {
                noting.note(&error);
            }
        }
    });
    let follow = follow(Arc::clone(shared), engine, told, keeping);
    shared.tasks.spawn(follow);
    Running {
        report,
        reading,
        leaving,
    }
}

/// Begins and ends what keeps each stream.
async fn follow<E: Engine>(
    shared: Arc<Shared>,
    engine: Arc<E>,
    mut told: UnboundedReceiver<Kept>,
    (report, left, flush): (Arc<Report>, watch::Receiver<bool>, Duration),
) {
    // By whom those are told that keep a stream: its numberings end one after the other.
    let mut kept: HashMap<Uid, Vec<watch::Sender<bool>>> = HashMap::new();
    while let Some(news) = told.recv().await {
        match news {
            Kept::Begin(uid, tap) => {
                let Some(meta) = meta(&tap) else {
                    continue;
                };
                let (stop, stopped) = watch::channel(false);
                let stops = kept.entry(uid).or_default();
                stops.retain(|stop| !stop.is_closed());
                stops.push(stop);
                let keeping = keep::Keeping {
                    engine: Arc::clone(&engine),
                    meta,
                    tap,
                    flush,
                };
                let row = report.begin(&keeping.meta.generation);
                let (shared_too, left) = (Arc::clone(&shared), left.clone());
                shared.tasks.spawn(async move {
                    keep::keep(&shared_too, keeping, &row, [stopped, left]).await;
                });
            }
            Kept::Stop(uid) => {
                for stop in kept.remove(&uid).unwrap_or_default() {
                    stop.send_replace(true);
                }
            }
            // Its tap ends.
            Kept::Gone(uid) => drop(kept.remove(&uid)),
        }
    }
}

/// Returns who knows the clocks of sources, and has them measured by asking.
fn clock_of(shared: Weak<Shared>) -> ClockOf {
    Box::new(move |info| {
        let uid: Uid = info.uid().into();
        let estimate = shared.upgrade()?.act(|state, now| {
            let way = state.book.way(&uid);
            state.clocks.machine.asked(&uid, None, way, now);
            state.clocks.machine.estimate(&uid, now)
        });
        Some(estimate?.offset_secs)
    })
}

fn meta(tap: &Tap) -> Option<Meta> {
    Some(Meta {
        generation: tap.generation()?,
        info: Arc::new(tap.info().clone()),
    })
}

const LOOK_AT_END: Duration = Duration::from_millis(5);
