//! The packed layout on a server. Spec: relay §12.1.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lsl_core::local_clock;
use lsl_platform::clock::utc_now;
use lsl_proto::outlet::frames::Frames;
use lsl_proto::wire::sequence::Generation;

use super::redis::{ConnectionId, Server};
use crate::config::EngineConfig;
use crate::engine::packed::{self, Packed};
use crate::engine::resp::Commands;
use crate::engine::trim::Trim;
use crate::engine::{Engine, EngineError, ErrorKind, Meta, Opened, Result, Stored};
use crate::id::RelayId;

/// Samples in chunks, a Redis stream per generation.
#[derive(Debug)]
pub(super) struct PackedEngine<S> {
    server: S,
    /// The same for readers, who keep no samples waiting that are to be written.
    reading: S,
    packed: Packed,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Streams that are written by this relay, and by which connection.
    written: HashMap<Generation, ConnectionId>,
    trim: Trim,
    /// When the index was written last.
    noted_at: f64,
}

impl<S: Server> PackedEngine<S> {
    /// Creates the engine for this relay.
    pub(super) fn new(config: &EngineConfig, relay: RelayId, server: S, reading: S) -> Self {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a checked time in seconds"
        )]
        let age = config.max_age_secs as u64;
        Self {
            server,
            reading,
            packed: Packed {
                relay,
                min_replicas: config.min_replicas,
                expiry_secs: Some(age.saturating_add(EXPIRY_MARGIN_SECS)),
            },
            state: Mutex::new(State {
                written: HashMap::new(),
                trim: Trim::new(config.max_age_secs, config.max_bytes),
                noted_at: f64::NEG_INFINITY,
            }),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S: Server> Engine for PackedEngine<S> {
    async fn open(&self, meta: &Meta) -> Result<Opened> {
        let generation = &meta.generation;
        self.state().written.remove(generation);
        let lease = self.packed.lease(generation);
        let (replies, connection) = self.server.run(None, lease).await?;
        if !self.packed.leased(&replies)? {
            return Ok(Opened::Theirs);
        }
        let find = self.packed.find(generation);
        let (replies, _) = self.server.run(Some(connection), find).await?;
        let found = self.packed.found(meta, &replies)?;
        let claim = self.packed.claim(meta, found);
        let (replies, _) = self.server.run(Some(connection), claim).await?;
        let next = self.packed.claimed(found, &replies)?;
        let mut state = self.state();
        state.written.insert(*generation, connection);
        if let Some(next) = next {
            state.trim.begin(generation, next, local_clock());
        }
        Ok(Opened::Ours(next))
    }

    async fn append(&self, meta: &Meta, batches: &[Arc<Frames>]) -> Result<u64> {
        let connection = self.state().written.get(&meta.generation).copied();
        let connection = connection.ok_or_else(lost)?;
        let append = self.packed.append(meta, batches)?;
        let bytes = append.bytes().len() as u64;
        let (replies, _) = self.server.run(Some(connection), append).await?;
        self.packed.appended(&replies)?;
        if let (Some(first), Some(last)) = (batches.first(), batches.last()) {
            let first = first.first;
            let mut state = self.state();
            state
                .trim
                .note(&meta.generation, first, last.end(), bytes, local_clock());
        }
        Ok(0)
    }

    fn holds(&self, meta: &Meta) -> bool {
        self.state().written.contains_key(&meta.generation)
    }

    async fn read(&self, meta: &Meta, from: u64, most: usize) -> Result<Vec<Frames>> {
        let count = (most / BATCH_BYTES).clamp(1, MOST_BATCHES);
        let read = packed::read(&meta.generation, from, count);
        let (replies, _) = self.reading.run(None, read).await?;
        packed::batches(&replies, from)
    }

    async fn list(&self) -> Result<Vec<Stored>> {
        let (replies, _) = self.reading.run(None, packed::list()).await?;
        let (streams, commands) = packed::listed(&replies)?;
        if streams.is_empty() {
            return Ok(Vec::new());
        }
        let (replies, _) = self.reading.run(None, commands).await?;
        let streams = streams.into_iter().zip(&replies);
        let streams = streams.filter_map(|(stream, reply)| packed::stored(stream, reply));
        Ok(streams.collect())
    }

    async fn finish(&self, meta: &Meta, end: Option<u64>) -> Result<()> {
        let mut finish = self.packed.finish(&meta.generation, end);
        // One that was short is listed, too.
        Packed::note(&meta.generation, utc_now().as_secs(), &mut finish);
        let written = self.state().written.get(&meta.generation).copied();
        let connection = written.ok_or_else(lost)?;
        let (replies, _) = self.server.run(Some(connection), finish).await?;
        packed::fail(&replies)?;
        let mut state = self.state();
        state.written.remove(&meta.generation);
        state.trim.forget(&meta.generation);
        Ok(())
    }

    async fn tend(&self, now: f64) -> Result<()> {
        let (written, notes) = {
            let mut state = self.state();
            let written: Vec<_> = state.written.keys().copied().collect();
            let notes = now - state.noted_at >= NOTE_SECS;
            if notes {
                state.noted_at = now;
            }
            (written, notes)
        };
        if written.is_empty() {
            return Ok(());
        }
        let mut ask = Commands::default();
        for generation in &written {
            Packed::ask_writer(generation, &mut ask);
        }
        let (writers, connection) = self.server.run(None, ask).await?;
        // What another server was told is not known of this one.
        (self.state().written).retain(|_, through| *through == connection);
        let mut commands = Commands::default();
        let unix_secs = utc_now().as_secs();
        for (generation, writer) in written.iter().zip(&writers) {
            match self.packed.renew(generation, writer) {
                Some(renew) => commands.append(&renew),
                None => drop(self.state().written.remove(generation)),
            }
            if notes {
                Packed::note(generation, unix_secs, &mut commands);
            }
        }
        if notes {
            Packed::forget(unix_secs, &mut commands);
        }
        for (generation, first) in self.state().trim.due(now) {
            Packed::trim(&generation, first, &mut commands);
        }
        if commands.count() == 0 {
            return Ok(());
        }
        let (replies, _) = self.server.run(Some(connection), commands).await?;
        packed::fail(&replies)
    }
}

/// It was opened on another connection, or another relay writes it.
fn lost() -> EngineError {
    EngineError::new(
        ErrorKind::Retry,
        "what the engine has is not known any more",
    )
}

/// Time in seconds for which Redis keeps streams longer than their samples, if nobody looks after them.
const EXPIRY_MARGIN_SECS: u64 = 60;

/// Time in seconds between notes in the index.
const NOTE_SECS: f64 = 10.0;

/// Bytes of a batch, by which their number is chosen.
const BATCH_BYTES: usize = 64 * 1024;

/// As many as fit a reply if each has the most that is appended in one go.
const MOST_BATCHES: usize = 15;
