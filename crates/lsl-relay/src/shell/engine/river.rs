//! The River layout on a server: a connection for each stream that is written. Spec: relay §12.2.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lsl_core::{StreamInfo, local_clock};
use lsl_proto::outlet::frames::{FrameCodec, Frames};
use lsl_proto::value::RawSamples;
use lsl_proto::wire::sequence::Generation;
use tokio::sync::Mutex as AsyncMutex;

use super::follow::{corrupt, server_ahead, trim};
use super::redis::{ConnectionId, Redis, Server};
use crate::config::EngineConfig;
use crate::engine::packed::{self, Packed};
use crate::engine::resp::Commands;
use crate::engine::river::{EntryId, Fault, MOST_TEXT_BYTES, Opening, Step, Writer, said_of};
use crate::engine::{Engine, EngineError, ErrorKind, Meta, Opened, Result, Stored};
use crate::id::RelayId;

/// Returns how far the clock of a source is ahead of ours, in seconds, if that is known.
pub(super) type ClockOf = Box<dyn Fn(&StreamInfo) -> Option<f64> + Send + Sync>;

/// Samples as River's clients read them.
pub(super) struct RiverEngine {
    config: EngineConfig,
    /// For what all streams share.
    redis: Redis,
    lease: Packed,
    clock_of: ClockOf,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    written: HashMap<Generation, Arc<AsyncMutex<Stream>>>,
    /// Unix time of the server minus our clock, in seconds.
    server_ahead: Option<f64>,
    /// When keys were last looked at that are too old.
    trimmed_at: f64,
}

/// A stream that is written.
struct Stream {
    redis: Redis,
    connection: Option<ConnectionId>,
    stage: Stage,
    codec: FrameCodec,
    /// When its clock is told again.
    tell_at: f64,
}

enum Stage {
    /// What is stored is being looked at, or has ended.
    Opening(Box<Opening>),
    Writing(Box<Writer>),
}

impl RiverEngine {
    /// Creates the engine of this relay.
    pub(super) fn new(
        config: &EngineConfig,
        relay: RelayId,
        redis: Redis,
        clock_of: ClockOf,
    ) -> Self {
        Self {
            config: config.clone(),
            redis,
            lease: Packed {
                relay,
                min_replicas: 0,
                expiry_secs: None,
            },
            clock_of,
            state: Mutex::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stream(&self, meta: &Meta) -> Result<Arc<AsyncMutex<Stream>>> {
        let stream = self.state().written.get(&meta.generation).cloned();
        // Its lease is gone.
        stream.ok_or_else(|| EngineError::new(ErrorKind::Retry, "another relay writes this stream"))
    }

    /// Returns the Unix time of the server minus that of the source, in seconds, if it is time to tell it.
    fn clock(&self, stream: &mut Stream, info: &StreamInfo) -> Option<f64> {
        let now = local_clock();
        if now < stream.tell_at {
            return None;
        }
        stream.tell_at = now + ASK_SECS;
        let clock = self.state().server_ahead? - (self.clock_of)(info)?;
        stream.tell_at = now + TELL_SECS;
        Some(clock)
    }

    async fn write(
        &self,
        stream: &mut Stream,
        meta: &Meta,
        batches: &[Arc<Frames>],
    ) -> Result<u64> {
        stream.open(true).await?;
        let user = self.clock(stream, &meta.info);
        let user = user.map(|clock| said_of(&meta.info, Some(clock)));
        let Stage::Writing(writer) = &mut stream.stage else {
            return Err(unknown());
        };
        let mut samples = Vec::new();
        let mut too_long = 0;
        for frames in batches {
            let (mut stamps, mut values) = (Vec::new(), Vec::new());
            let decoded = stream.codec.decode(frames, &mut stamps, &mut values);
            let wrong =
                |error: lsl_core::Error| EngineError::new(ErrorKind::Corrupt, error.to_string());
            decoded.map_err(wrong)?;
            let packing = writer.packing();
            let raw = RawSamples::new(&values, packing.format(), packing.channels(), stamps.len());
            for ((raw, stamp), index) in raw.map_err(wrong)?.zip(&stamps).zip(frames.first..) {
                match packing.pack(*stamp, raw) {
                    Some(val) => samples.push((index, val)),
                    None => too_long += 1,
                }
            }
        }
        if too_long > 0 {
            let name = writer.name();
            tracing::warn!(
                "{name}: {too_long} texts longer than {MOST_TEXT_BYTES} bytes are left out"
            );
        }
        let samples = samples.iter().map(|(index, val)| (*index, &val[..]));
        let commands = writer.write(samples, user.as_ref());
        stream.run(commands).await?;
        Ok(too_long)
    }

    /// Removes what is too old, if that is asked for. Spec: relay §12.2.
    async fn trim(&self, now: f64) -> Result<()> {
        let is_due = self.config.river_trim && now - self.state().trimmed_at >= TRIM_SECS;
        let (true, Some(ahead)) = (is_due, self.state().server_ahead) else {
            return Ok(());
        };
        self.state().trimmed_at = now;
        let streams: Vec<_> = self.state().written.values().cloned().collect();
        let until = EntryId::before(ahead + now - self.config.max_age_secs);
        for stream in streams {
            let name = stream.lock().await.name();
            trim(&self.redis, &name, until, None).await?;
        }
        Ok(())
    }
}

impl Stream {
    /// Finds out where it goes on. What has ended is begun anew only if `begins`.
    async fn open(&mut self, begins: bool) -> Result<()> {
        for _ in 0..MOST_QUESTIONS {
            let Stage::Opening(opening) = &mut self.stage else {
                return Ok(());
            };
            if opening.ended().is_some() && !begins {
                return Ok(());
            }
            let asked = self.redis.run(self.connection, opening.question());
            let (replies, id) = asked.await?;
            packed::fail(&replies)?;
            self.connection = Some(id);
            if let Step::Done(writer) = opening.take(&replies).map_err(corrupt)? {
                self.stage = Stage::Writing(writer);
            }
        }
        let text = "the keys of the stream have no end";
        Err(EngineError::new(ErrorKind::Corrupt, text))
    }

    fn name(&self) -> String {
        match &self.stage {
            Stage::Opening(opening) => opening.name(),
            Stage::Writing(writer) => writer.name().to_owned(),
        }
    }

    /// Returns the index of the next sample; `None` before the first.
    fn next(&self) -> Option<u64> {
        match &self.stage {
            Stage::Opening(opening) => opening.ended(),
            Stage::Writing(writer) => writer.next(),
        }
    }

    async fn run(&mut self, commands: Commands) -> Result<()> {
        let (replies, _) = self.redis.run(self.connection, commands).await?;
        let Stage::Writing(writer) = &mut self.stage else {
            return Err(unknown());
        };
        writer.written(&replies).map_err(|fault| match fault {
            Fault::Refused(text) => EngineError::of_reply(&text),
            Fault::Changed => EngineError::new(
                ErrorKind::Retry,
                "somebody else wrote to the stream, or ended it",
            ),
            Fault::Unknown => unknown(),
        })
    }
}

fn unknown() -> EngineError {
    EngineError::new(ErrorKind::Retry, "the server answers something else")
}

impl Engine for RiverEngine {
    fn holds(&self, meta: &Meta) -> bool {
        self.state().written.contains_key(&meta.generation)
    }

    async fn open(&self, meta: &Meta) -> Result<Opened> {
        let generation = &meta.generation;
        self.state().written.remove(generation);
        let (replies, _) = self.redis.run(None, self.lease.lease(generation)).await?;
        if !self.lease.leased(&replies)? {
            return Ok(Opened::Theirs);
        }
        let opening = Opening::new(&meta.info, meta.generation).map_err(corrupt)?;
        let mut stream = Stream {
            redis: self.redis.another(),
            connection: None,
            stage: Stage::Opening(Box::new(opening)),
            codec: FrameCodec::new(&meta.info),
            tell_at: f64::NEG_INFINITY,
        };
        stream.open(false).await?;
        let next = stream.next();
        let stream = Arc::new(AsyncMutex::new(stream));
        self.state().written.insert(*generation, stream);
        Ok(Opened::Ours(next))
    }

    async fn append(&self, meta: &Meta, batches: &[Arc<Frames>]) -> Result<u64> {
        let stream = self.stream(meta)?;
        let written = self.write(&mut *stream.lock().await, meta, batches).await;
        if written.is_err() {
            // What came of it is asked on another connection.
            self.state().written.remove(&meta.generation);
        }
        written
    }

    const READS: bool = false;

    /// Finds nothing: what is stored as River does is read as a stream of its own, by its name.
    async fn read(&self, _meta: &Meta, _from: u64, _most: usize) -> Result<Vec<Frames>> {
        Ok(Vec::new())
    }

    async fn list(&self) -> Result<Vec<Stored>> {
        Ok(Vec::new())
    }

    async fn finish(&self, meta: &Meta, end: Option<u64>) -> Result<()> {
        if end.is_some() {
            let stream = self.stream(meta)?;
            let mut stream = stream.lock().await;
            let finished = match &mut stream.stage {
                Stage::Opening(_) => Ok(()),
                Stage::Writing(writer) => {
                    let finish = writer.finish();
                    stream.run(finish).await
                }
            };
            drop(stream);
            self.state().written.remove(&meta.generation);
            finished?;
        }
        self.state().written.remove(&meta.generation);
        let finish = self.lease.finish(&meta.generation, None);
        let (replies, _) = self.redis.run(None, finish).await?;
        packed::fail(&replies)
    }

    async fn tend(&self, now: f64) -> Result<()> {
        let written: Vec<_> = self.state().written.keys().copied().collect();
        if written.is_empty() {
            return Ok(());
        }
        let (ahead, ..) = server_ahead(&self.redis).await?;
        self.state().server_ahead = Some(ahead);
        let mut commands = Commands::default();
        for generation in &written {
            Packed::ask_writer(generation, &mut commands);
        }
        let (writers, connection) = self.redis.run(None, commands).await?;
        let mut commands = Commands::default();
        for (generation, writer) in written.iter().zip(&writers) {
            match self.lease.renew(generation, writer) {
                Some(renew) => commands.append(&renew),
                None => drop(self.state().written.remove(generation)),
            }
        }
        if commands.count() > 0 {
            let (replies, _) = self.redis.run(Some(connection), commands).await?;
            packed::fail(&replies)?;
        }
        self.trim(now).await
    }
}

impl fmt::Debug for RiverEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RiverEngine").finish_non_exhaustive()
    }
}

/// Questions until the end of what is stored: more keys than River's ingester leaves in years.
const MOST_QUESTIONS: usize = 1_000_000;

/// Time in seconds after which the clock of a source is told again, and asked again if it is not known.
const TELL_SECS: f64 = 30.0;
const ASK_SECS: f64 = 1.0;

/// Time in seconds between looks at what is too old.
const TRIM_SECS: f64 = 60.0;
