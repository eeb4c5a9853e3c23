//! The packed layout on a server. Spec: relay §12.1.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lsl_core::local_clock;
use lsl_platform::clock::utc_now;
use lsl_proto::outlet::frames::Frames;
use lsl_proto::wire::sequence::Generation;

use super::redis::{ConnectionId, Redis};
use crate::config::EngineConfig;
use crate::engine::packed::{self, Packed};
use crate::engine::resp::Commands;
use crate::engine::trim::Trim;
use crate::engine::{Engine, EngineError, ErrorKind, Meta, Opened, Result, Stored};
use crate::id::RelayId;

/// Samples in chunks, a Redis stream per generation.
#[derive(Debug)]
pub(super) struct PackedEngine {
    redis: Arc<Redis>,
    /// For commands that block.
    reading: Redis,
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

impl PackedEngine {
    /// Prepares the engine.
    ///
    /// # Errors
    /// As [`Redis::new`].
    pub(super) fn new(config: &EngineConfig, relay: RelayId, redis: Arc<Redis>) -> Result<Self> {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a checked time in seconds"
        )]
        let age = config.max_age_secs as u64;
        Ok(Self {
            redis,
            reading: Redis::new(config)?,
            packed: Packed {
                relay,
                min_replicas: config.min_replicas,
                expiry_secs: age.saturating_add(EXPIRY_MARGIN_SECS),
            },
            state: Mutex::new(State {
                written: HashMap::new(),
                trim: Trim::new(config.max_age_secs, config.max_bytes),
                noted_at: f64::NEG_INFINITY,
            }),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Engine for PackedEngine {
    async fn open(&self, meta: &Meta) -> Result<Opened> {
        self.state().written.remove(&meta.generation);
        let find = self.packed.find(&meta.generation);
        let (replies, connection) = self.redis.run(None, find).await?;
        let found = self.packed.found(meta, &replies)?;
        if !found.is_ours {
            return Ok(Opened::Theirs(found.next));
        }
        let claim = self.packed.claim(meta, found);
        let (replies, _) = self.redis.run(Some(connection), claim).await?;
        let opened = self.packed.claimed(found, &replies)?;
        let mut state = self.state();
        state.written.insert(meta.generation, connection);
        if let Opened::Ours(Some(next)) = opened {
            state.trim.begin(&meta.generation, next, local_clock());
        }
        Ok(opened)
    }

    async fn append(&self, meta: &Meta, batches: &[Arc<Frames>]) -> Result<()> {
        let connection = self.state().written.get(&meta.generation).copied();
        // Another one writes it by now.
        let lost = || EngineError::new(ErrorKind::Retry, "another relay writes this stream");
        let connection = connection.ok_or_else(lost)?;
        let append = self.packed.append(meta, batches)?;
        let bytes = append.bytes().len() as u64;
        let (replies, _) = self.redis.run(Some(connection), append).await?;
        self.packed.appended(&replies)?;
        if let (Some(first), Some(last)) = (batches.first(), batches.last()) {
            let first = first.first;
            let mut state = self.state();
            state
                .trim
                .note(&meta.generation, first, last.end(), bytes, local_clock());
        }
        Ok(())
    }

    async fn read(&self, meta: &Meta, from: u64, most: usize) -> Result<Vec<Frames>> {
        let count = (most / BATCH_BYTES).clamp(1, MOST_BATCHES);
        let read = packed::read(&meta.generation, from, count);
        let (replies, _) = self.reading.run(None, read).await?;
        let found = packed::batches(&replies, from)?;
        if !found.is_empty() {
            return Ok(found);
        }
        let wait = packed::wait(&meta.generation, from, count);
        let (replies, _) = self.reading.run(None, wait).await?;
        packed::batches(&replies, from)
    }

    async fn list(&self) -> Result<Vec<Stored>> {
        let (replies, _) = self.redis.run(None, packed::list()).await?;
        let (generations, commands) = packed::listed(&replies)?;
        if generations.is_empty() {
            return Ok(Vec::new());
        }
        let (replies, _) = self.redis.run(None, commands).await?;
        let streams = generations.iter().zip(&replies);
        let streams = streams.filter_map(|(generation, reply)| packed::stored(*generation, reply));
        Ok(streams.collect())
    }

    async fn finish(&self, meta: &Meta, end: u64) -> Result<()> {
        let finish = self.packed.finish(&meta.generation, end);
        let (replies, _) = self.redis.run(None, finish).await?;
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
        let (writers, connection) = self.redis.run(None, ask).await?;
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
        for (generation, first) in self.state().trim.due(now) {
            Packed::trim(&generation, first, &mut commands);
        }
        if commands.count() == 0 {
            return Ok(());
        }
        let (replies, _) = self.redis.run(Some(connection), commands).await?;
        packed::fail(&replies)
    }
}

/// Time in seconds for which Redis keeps streams longer than their samples, if nobody looks after them.
const EXPIRY_MARGIN_SECS: u64 = 60;

/// Time in seconds between notes in the index.
const NOTE_SECS: f64 = 10.0;

/// Bytes of a batch, by which their number is chosen.
const BATCH_BYTES: usize = 64 * 1024;

const MOST_BATCHES: usize = 64;
