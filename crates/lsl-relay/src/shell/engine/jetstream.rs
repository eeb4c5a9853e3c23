//! Streams in JetStream of NATS. Spec: relay §12.3.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lsl_core::local_clock;
use lsl_platform::clock::utc_now;
use lsl_proto::outlet::frames::Frames;
use lsl_proto::wire::sequence::Generation;
use tokio::sync::Mutex as AsyncMutex;

use super::redis::ConnectionId;
use crate::config::EngineConfig;
use crate::engine::jetstream::{self, Described, Message, Request, Settings};
use crate::engine::{Engine, EngineError, ErrorKind, Meta, Opened, Result, Stored};
use crate::id::RelayId;

/// What answers requests.
pub(super) trait Server: Send + Sync + 'static {
    /// Returns the payload of the reply. Waits at most 5 s for it, and as long for a connection.
    ///
    /// # Errors
    /// [`ErrorKind::Retry`] if none comes, [`ErrorKind::Denied`] if the server refuses the request or the connection.
    fn request(&self, request: Request) -> impl Future<Output = Result<Vec<u8>>> + Send;

    /// Returns the connection of now.
    fn connection(&self) -> Option<ConnectionId>;

    /// Returns the time in seconds.
    fn now(&self) -> f64 {
        local_clock()
    }
}

/// Samples in chunks, a subject per generation. Who writes is settled by the server alone: it takes a message only if
/// the one before it is the one that the writer expects.
#[derive(Debug)]
pub(super) struct JetStream<S> {
    server: S,
    relay: RelayId,
    max_age_secs: f64,
    max_bytes: u64,
    replicas: u32,
    /// What is known of the JetStream stream, by which connection. Held by who asks.
    settings: AsyncMutex<Option<(ConnectionId, Settings)>>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    written: HashMap<Generation, Written>,
    /// Streams of other relays.
    others: HashMap<Generation, Other>,
    /// Places behind which reading goes on, by the sequence number there.
    read: HashMap<(Generation, u64), u64>,
}

/// Stream that this relay writes.
#[derive(Debug)]
struct Written {
    connection: ConnectionId,
    /// Place of the last message; 0 if there is none.
    last: u64,
    described: Described,
    described_at: f64,
    settings: Settings,
}

/// Last message of a stream that another relay wrote, since when it is the last, and when that was looked at.
#[derive(Debug, Clone, Copy)]
struct Other {
    last: u64,
    since: f64,
    seen_at: f64,
}

impl<S: Server> JetStream<S> {
    /// Creates the engine for this relay.
    pub(super) fn new(config: &EngineConfig, relay: RelayId, server: S) -> Self {
        Self {
            server,
            relay,
            max_age_secs: config.max_age_secs,
            max_bytes: config.max_bytes,
            replicas: config.min_replicas.saturating_add(1),
            settings: AsyncMutex::default(),
            state: Mutex::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the settings of the JetStream stream, which is made if it is not there.
    async fn settings(&self) -> Result<(ConnectionId, Settings)> {
        let mut known = self.settings.lock().await;
        if let Some(known) = known.filter(|(on, _)| self.server.connection() == Some(*on)) {
            return Ok(known);
        }
        *known = None;
        let reply = self.server.request(jetstream::ask()).await?;
        let mut settings = jetstream::settings(&reply)?;
        if settings.is_none() {
            let make = jetstream::make(self.max_age_secs, self.max_bytes, self.replicas);
            jetstream::made(&self.server.request(make).await?)?;
            let reply = self.server.request(jetstream::ask()).await?;
            settings = jetstream::settings(&reply)?;
        }
        let connection = self.server.connection().ok_or_else(lost)?;
        Ok(*known.insert((connection, settings.ok_or_else(lost)?)))
    }

    async fn message(&self, request: Request) -> Result<Option<Message>> {
        jetstream::message(&self.server.request(request).await?)
    }

    /// Stores a message; `None` if another one than was expected is the last.
    async fn store(&self, request: Request) -> Result<Option<u64>> {
        jetstream::stored(&self.server.request(request).await?)
    }

    /// Stores what is known of a stream.
    async fn describe(&self, generation: &Generation, it: &Described, on: Settings) -> Result<()> {
        let stored = it.store(generation, on, utc_now().as_secs());
        self.store(stored).await.map(drop)
    }

    async fn try_open(&self, meta: &Meta) -> Result<Opened> {
        let generation = &meta.generation;
        let (connection, settings) = self.settings().await?;
        let subject = jetstream::description_of(generation);
        let found = self.message(jetstream::last(&subject)).await?;
        let found = found.map(Described::of).transpose()?;
        if let Some(found) = &found {
            found.check(&meta.info)?;
        }
        let last = jetstream::last(&jetstream::samples_of(generation));
        let last = self.message(last).await?;
        let next = last.as_ref().map(|it| jetstream::samples(&it.payload));
        let next = next.transpose()?.map(|frames| frames.end());
        let now = self.server.now();
        let is_left = found.as_ref().is_some_and(Described::is_left);
        if let Some(last) = last.as_ref().filter(|it| it.writer() != Some(self.relay))
            && !is_left
            && !self.is_silent(generation, last.place, now)
        {
            return Ok(Opened::Theirs);
        }
        let described = Described::new(&meta.info, self.relay);
        self.describe(generation, &described, settings).await?;
        let mut state = self.state();
        state.others.remove(generation);
        state.written.insert(
            *generation,
            Written {
                connection,
                last: last.map_or(0, |it| it.place),
                described,
                described_at: now,
                settings,
            },
        );
        Ok(Opened::Ours(next))
    }

    /// Whether nothing came of another relay for so long that it is taken to be gone.
    fn is_silent(&self, generation: &Generation, last: u64, now: f64) -> bool {
        let mut state = self.state();
        let other = state.others.entry(*generation).or_insert(Other {
            last,
            since: now,
            seen_at: now,
        });
        if other.last != last {
            (other.last, other.since) = (last, now);
        }
        other.seen_at = now;
        now - other.since >= SILENCE_SECS
    }

    /// Returns the message that has a sample, or the first behind it. `None` if all are before it.
    async fn find(&self, subject: &str, from: u64) -> Result<Option<(u64, Frames)>> {
        let at = |message: Option<Message>| {
            let found = message.map(|it| Ok((it.place, jetstream::samples(&it.payload)?)));
            found.transpose()
        };
        let last = at(self.message(jetstream::last(subject)).await?)?;
        let Some((mut behind, last)) = last.filter(|(_, last)| last.end() > from) else {
            return Ok(None);
        };
        let mut found = (behind, last);
        let mut before = 0;
        // The first one that ends after `from` is at a place above `before`, and not above `behind`.
        while before + 1 < behind {
            let middle = before + (behind - before) / 2;
            match at(self.message(jetstream::next(subject, middle)).await?)? {
                Some((place, frames)) if place <= behind && frames.end() <= from => before = place,
                Some((place, frames)) if place < behind => {
                    behind = middle;
                    found = (place, frames);
                }
                _ => behind = middle,
            }
        }
        Ok(Some(found))
    }
}

impl<S: Server> Engine for JetStream<S> {
    async fn open(&self, meta: &Meta) -> Result<Opened> {
        self.state().written.remove(&meta.generation);
        let opened = self.try_open(meta).await;
        if opened.is_err() {
            // Somebody may have removed the JetStream stream.
            *self.settings.lock().await = None;
        }
        opened
    }

    async fn append(&self, meta: &Meta, batches: &[Arc<Frames>]) -> Result<u64> {
        let generation = &meta.generation;
        let written = (self.holds(meta)).then(|| Some(self.state().written.get(generation)?.last));
        let mut last = written.flatten().ok_or_else(lost)?;
        let end = batches.last().map_or(0, |it| it.end());
        // One after the other, since each is to expect the place of the one before it: what fails ends them all.
        for frames in batches {
            let request = |last| jetstream::append(meta, self.relay, frames, last);
            let mut stored = self.store(request(last)?).await?;
            if stored.is_none() {
                let newest = jetstream::last(&jetstream::samples_of(generation));
                if let Some(newest) = self.message(newest).await? {
                    self.state().written.remove(generation);
                    let has_all = jetstream::samples(&newest.payload)?.end() >= end;
                    return has_all.then_some(0).ok_or_else(lost);
                }
                // What was the last is too old, and gone; unless this is another server.
                if self.holds(meta) {
                    stored = self.store(request(0)?).await?;
                }
            }
            last = stored.ok_or_else(lost)?;
        }
        if let Some(written) = self.state().written.get_mut(generation) {
            written.last = last;
        }
        Ok(0)
    }

    fn holds(&self, meta: &Meta) -> bool {
        let state = self.state();
        let written = state.written.get(&meta.generation);
        written.is_some_and(|it| self.server.connection() == Some(it.connection))
    }

    async fn read(&self, meta: &Meta, from: u64, most: usize) -> Result<Vec<Frames>> {
        let subject = jetstream::samples_of(&meta.generation);
        let known = self.state().read.remove(&(meta.generation, from));
        let (mut place, mut found, mut bytes) = (known, Vec::new(), 0);
        while found.is_empty() || bytes < most && found.len() < MOST_BATCHES {
            let next = match place {
                Some(place) => {
                    let next = self.message(jetstream::next(&subject, place + 1)).await?;
                    let next = next.map(|it| Ok((it.place, jetstream::samples(&it.payload)?)));
                    next.transpose()?
                }
                None => self.find(&subject, from).await?,
            };
            match next {
                Some((at, frames)) => {
                    place = Some(at);
                    if frames.end() > from {
                        bytes += frames.bytes.len();
                        found.push(frames);
                    }
                }
                // The stream was made anew, and begins its places again.
                None if found.is_empty() && place.take().is_some() => {}
                None => break,
            }
        }
        if let Some(place) = place {
            let next = found.last().map_or(from, Frames::end);
            let read = &mut self.state().read;
            if read.len() >= MOST_READERS {
                read.clear();
            }
            read.insert((meta.generation, next), place);
        }
        Ok(found)
    }

    async fn list(&self) -> Result<Vec<Stored>> {
        let (mut known, mut streams) = (0, Vec::new());
        loop {
            let reply = self.server.request(jetstream::list(known)).await?;
            let subjects = jetstream::listed(&reply)?;
            if subjects.is_empty() {
                return Ok(streams);
            }
            known += subjects.len();
            for subject in subjects {
                let Some(generation) = jetstream::described(&subject) else {
                    continue;
                };
                let found = self.message(jetstream::last(&subject)).await?;
                let described = found.and_then(|it| Described::of(it).ok());
                streams.extend(described.and_then(|it| it.stored(generation)));
            }
        }
    }

    async fn finish(&self, meta: &Meta, end: Option<u64>) -> Result<()> {
        let generation = &meta.generation;
        let (described, settings) = {
            let state = self.state();
            let written = state.written.get(generation).ok_or_else(lost)?;
            (written.described.clone(), written.settings)
        };
        let described = described.left(end);
        self.describe(generation, &described, settings).await?;
        self.state().written.remove(generation);
        Ok(())
    }

    async fn tend(&self, _now: f64) -> Result<()> {
        let now = self.server.now();
        let due: Vec<_> = {
            let mut state = self.state();
            state
                .others
                .retain(|_, other| now - other.seen_at < FORGET_SECS);
            let due = state.written.iter().filter(|(_, it)| it.is_due(now));
            due.map(|(generation, it)| (*generation, it.described.clone(), it.settings))
                .collect()
        };
        for (generation, described, settings) in due {
            self.describe(&generation, &described, settings).await?;
            if let Some(written) = self.state().written.get_mut(&generation) {
                written.described_at = now;
            }
        }
        Ok(())
    }
}

/// Asks a server whether it can be an engine, and writes nothing.
///
/// # Errors
/// [`EngineError`]
#[cfg(feature = "nats")]
pub(super) async fn check(server: impl Server) -> Result<()> {
    let reply = server.request(jetstream::ask()).await?;
    jetstream::settings(&reply).map(drop)
}

impl Written {
    /// Whether it is to be described again, before the description is too old and goes.
    fn is_due(&self, now: f64) -> bool {
        let age = self.settings.max_age_secs;
        let every = if age > 0.0 { age / 4.0 } else { DESCRIBE_SECS };
        now - self.described_at >= every.min(DESCRIBE_SECS)
    }
}

/// Another message than was expected is the last, or it was opened on another connection.
fn lost() -> EngineError {
    let text = "what the engine has is not known any more";
    EngineError::new(ErrorKind::Retry, text)
}

/// Time in seconds for which another relay writes nothing before this one does.
const SILENCE_SECS: f64 = 10.0;

/// Time in seconds after which a stream of another relay is forgotten that nobody asks for.
const FORGET_SECS: f64 = 60.0;

/// Time in seconds after which a stream is described again: descriptions go like samples, the oldest first.
const DESCRIBE_SECS: f64 = 60.0;

/// Batches that are read in one go.
const MOST_BATCHES: usize = 64;

/// Readers whose places are known.
const MOST_READERS: usize = 4096;
