//! Offers streams of River as streams of LSL. Spec: relay §12.2.

use std::collections::{HashMap, HashSet};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use lsl_core::relay::{Run, SourceClock};
use lsl_core::{Error, Generation, Position, Result, local_clock};

use crate::book::{Reason, Uid};
use crate::config::EngineConfig;
use crate::engine::packed::Packed;
use crate::engine::resp::Commands;
use crate::engine::river::{EntryId, Packing, Seek, Turn, USER_CLOCK, generation_of_lsl};
use crate::engine::{EngineError, ErrorKind};
use crate::id::RelayId;
use crate::shell::engine::{Follow, Redis, ask, names, server_ahead};
use crate::shell::source::{Attempt, RETAINED, gone, target};
use crate::shell::state::Shared;
use crate::shell::totals::Why;

/// Streams that are offered.
#[derive(Debug, Default)]
pub(super) struct Rivers {
    /// What their connections are made of.
    redis: Option<Arc<Redis>>,
    streams: HashMap<Uid, River>,
    /// Unix time of the server minus our clock, in seconds, how well that is known as a round trip, and as of when.
    ahead: Option<(f64, f64, f64)>,
}

#[derive(Debug, Clone)]
struct River {
    name: String,
    packing: Packing,
    generation: Generation,
    /// Unix time of the server minus its timestamps, in seconds, if they have a clock of their own.
    clock: Option<f64>,
    has_stamps: bool,
    /// Place and index of the last sample that was passed on.
    last: Option<(EntryId, u64)>,
}

impl Rivers {
    /// Returns the clock in which a stream has its timestamps.
    pub(super) fn clock(&self, uid: &Uid) -> Option<SourceClock> {
        let stream = self.streams.get(uid)?;
        let (ahead, round_trip_secs, measured_at) = self.ahead?;
        // Without stamps of its own they are in our clock.
        let offset_secs = match stream.clock {
            Some(clock) => ahead - clock,
            None if stream.has_stamps => return None,
            None => 0.0,
        };
        Some(SourceClock {
            offset_secs,
            uncertainty_secs: round_trip_secs,
            measured_at,
        })
    }

    /// Has a stream looked at as if it were new.
    pub(super) fn ask_again(&mut self, uid: &Uid) {
        self.streams.remove(uid);
    }
}

/// Looks for streams for as long as the relay lives.
pub(super) async fn search(shared: Arc<Shared>, config: EngineConfig) {
    let redis = match Redis::new(&config) {
        Ok(redis) => Arc::new(redis),
        Err(error) => return tracing::error!("[engine] {error}"),
    };
    shared.act(|state, _| state.rivers.redis = Some(Arc::clone(&redis)));
    let mut search = Search {
        shared,
        config,
        redis,
        known: HashMap::new(),
        left_out: HashSet::new(),
        beyond: 0,
    };
    let mut is_told = false;
    loop {
        match search.look().await {
            Ok(()) => is_told = false,
            Err(error) if !is_told => {
                tracing::warn!("no search for streams of River: {error}; tried again");
                is_told = true;
            }
            Err(_) => {}
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

struct Search {
    shared: Arc<Shared>,
    config: EngineConfig,
    redis: Arc<Redis>,
    known: HashMap<String, (Uid, Follow)>,
    /// Streams that have ended, or cannot be read.
    left_out: HashSet<String>,
    /// How many are too many to look at.
    beyond: usize,
}

impl Search {
    async fn look(&mut self) -> crate::engine::Result<()> {
        let ahead = server_ahead(&self.redis).await?;
        self.shared.act(|state, _| state.rivers.ahead = Some(ahead));
        let names = names(&self.redis).await?;
        let there: HashSet<&String> = names.iter().collect();
        self.left_out.retain(|name| there.contains(name));
        let mut ended: Vec<String> = Vec::new();
        for (name, (uid, follow)) in &mut self.known {
            if writer(&self.redis, name).await? == Some(self.shared.id) {
                ended.push(name.clone());
                continue;
            }
            let is_over = !there.contains(name)
                || match follow.look().await {
                    Ok(Some(turn)) => turn == Turn::Over,
                    // Another one may have its name.
                    Ok(None) => {
                        ended.push(name.clone());
                        continue;
                    }
                    // It keeps no other stream from being looked at.
                    Err(error) if error.kind == ErrorKind::Corrupt => {
                        tracing::warn!("stream {name} of River is not offered any more: {error}");
                        true
                    }
                    Err(error) => return Err(error),
                };
            let is_known = self
                .shared
                .look(|state| state.rivers.streams.contains_key(uid));
            if is_over || !is_known {
                ended.push(name.clone());
            }
            if is_over {
                self.left_out.insert(name.clone());
            }
        }
        for name in ended {
            if let Some((uid, _)) = self.known.remove(&name) {
                end(&self.shared, &uid, &name);
            }
        }
        let pattern = self.config.river.as_ref();
        let most = self.shared.look(|state| state.book.most_streams());
        let mut beyond = 0;
        for name in &names {
            let is_wanted = pattern.is_some_and(|pattern| pattern.matches(name));
            if !is_wanted || self.known.contains_key(name) || self.left_out.contains(name) {
                continue;
            }
            if self.known.len() >= most {
                beyond += 1;
                continue;
            }
            let writer = writer(&self.redis, name).await?;
            if writer == Some(self.shared.id) {
                continue;
            }
            match self.begin(name, writer).await {
                Ok(Some(known)) => drop(self.known.insert(name.clone(), known)),
                Ok(None) => drop(self.left_out.insert(name.clone())),
                Err(error) if error.kind == ErrorKind::Corrupt => {
                    tracing::warn!("stream {name} of River is not offered: {error}");
                    self.left_out.insert(name.clone());
                }
                Err(error) => return Err(error),
            }
        }
        if beyond > self.beyond {
            tracing::warn!("{beyond} streams of River are beyond limits.streams");
        }
        for _ in self.beyond..beyond {
            self.shared.totals.refuse(Why::Streams);
        }
        self.beyond = beyond;
        Ok(())
    }

    /// Offers a stream; `None` if it has ended.
    async fn begin(
        &self,
        name: &str,
        writer: Option<RelayId>,
    ) -> crate::engine::Result<Option<(Uid, Follow)>> {
        let Some(mut follow) = Follow::open(Arc::clone(&self.redis), name).await? else {
            return Ok(None);
        };
        let (packing, mut info) = follow.described(self.config.river_rate)?;
        if info.session_id_bytes().is_empty() {
            let lab = self.shared.context.config().lab();
            info.set_session_id(lab.session_id.as_str());
        }
        if follow.seek(Seek::End).await? == Turn::Over {
            return Ok(None);
        }
        let no_number = || EngineError::new(ErrorKind::Corrupt, "nothing numbers it");
        let said = follow.metadata().user.get(USER_CLOCK);
        let river = River {
            name: name.to_owned(),
            has_stamps: packing.has_stamp(),
            packing,
            generation: follow.generation().ok_or_else(no_number)?,
            clock: said.and_then(|clock| clock.parse().ok().filter(|it: &f64| it.is_finite())),
            last: None,
        };
        let uid: Uid = info.uid().into();
        self.shared.act(|state, now| {
            state.rivers.streams.insert(uid.clone(), river);
            state.book.stored(info, writer, now);
        });
        Ok(Some((uid, follow)))
    }
}

/// Returns the relay that writes a stream, if one does.
async fn writer(redis: &Redis, name: &str) -> crate::engine::Result<Option<RelayId>> {
    let Some(generation) = generation_of_lsl(name) else {
        return Ok(None);
    };
    let mut ask_writer = Commands::default();
    Packed::ask_writer(&generation, &mut ask_writer);
    match ask(redis, ask_writer).await {
        Ok(writer) => Ok(writer.text().and_then(|id| id.parse().ok())),
        // A lease is a text: this is none.
        Err(error) if error.kind == ErrorKind::Corrupt => Ok(None),
        Err(error) => Err(error),
    }
}

fn end(shared: &Arc<Shared>, uid: &Uid, name: &str) {
    shared.act(|state, now| {
        let streams = &mut state.rivers.streams;
        // It may go on under another name.
        if streams.get(uid).is_none_or(|river| river.name == name) {
            streams.remove(uid);
            state.book.unstored(uid, Reason::Ended, now);
        }
    });
}

/// Passes the samples of a stream on until it ends.
pub(super) async fn pass_on(shared: &Arc<Shared>, attempt: &Attempt) -> Result<Infallible> {
    let uid = &attempt.uid;
    let wanted = shared.act(|state, _| {
        let river = state.rivers.streams.get(uid).cloned()?;
        let redis = state.rivers.redis.clone()?;
        let ahead = state.rivers.ahead.map_or(0.0, |(ahead, ..)| ahead);
        let flow = state.reading(attempt)?;
        Some((river, redis, ahead, flow.position(), flow.wants_past))
    });
    let (river, redis, ahead, position, wants_past) = wanted.ok_or_else(gone)?;
    let follow = Follow::open(Arc::new(redis.another()), &river.name).await;
    let mut follow = follow.map_err(failed)?.ok_or_else(gone)?;
    if follow.generation() != Some(river.generation) {
        return Err(gone());
    }
    let position = position.filter(|position| position.generation == river.generation);
    let retained = EntryId::before(ahead + local_clock() - RETAINED.seconds);
    let to = match (position, river.last) {
        // Else it came by another way since, or always.
        (Some(position), Some((id, index))) if index.saturating_add(1) >= position.next => {
            Seek::Behind(id, index)
        }
        (Some(_), _) => Seek::Since(retained),
        (None, _) if wants_past => Seek::Since(retained),
        (None, _) => Seek::End,
    };
    follow.seek(to).await.map_err(failed)?;
    if let Some(position) = position {
        follow.skip(position.next);
    }
    let behind = follow.last().map(|last| last + 1);
    let mut samples = Vec::new();
    // Whoever waits for its outlet waits no longer than for the numbers.
    let mut turn = river.read(&mut follow, 0, &mut samples).await?;
    let first = samples.first().map(|sample| sample.index);
    let first = Position {
        generation: river.generation,
        next: first.or(behind).unwrap_or_default(),
    };
    let target = target(shared, attempt, Some(position.unwrap_or(first)))?;
    shared.act(|state, now| state.book.feed_up(uid, attempt.way, now));
    let mut received = 0;
    loop {
        let ahead = shared.look(|state| state.rivers.ahead.map_or(0.0, |(ahead, ..)| ahead));
        for run in samples.chunk_by(|before, after| after.index == before.index + 1) {
            let run = river.run(run, ahead, received);
            target.push(&run, &mut received, &shared.totals.came)?;
        }
        if let Some(last) = samples.last() {
            shared.act(|state, _| {
                if let Some(river) = state.rivers.streams.get_mut(uid) {
                    river.last = Some((last.id, last.index));
                }
            });
        }
        if turn == Turn::Gone {
            return Err(gone());
        }
        if turn == Turn::Over {
            end(shared, uid, &river.name);
            let reason = "River says that it ended".into();
            return Err(Error::Lost { reason });
        }
        samples.clear();
        turn = river.read(&mut follow, WAIT_MS, &mut samples).await?;
    }
}

struct Sample {
    id: EntryId,
    index: u64,
    /// In seconds, if it has one.
    stamp: Option<f64>,
    values: Vec<u8>,
}

impl River {
    /// Appends the next samples, waiting for so many ms at the most.
    async fn read(&self, follow: &mut Follow, ms: u32, samples: &mut Vec<Sample>) -> Result<Turn> {
        let sink = |id, index, val: &[u8]| {
            let mut values = Vec::new();
            let stamp = self.packing.unpack(val, &mut values)?;
            samples.push(Sample {
                id,
                index,
                stamp,
                values,
            });
            Ok(())
        };
        follow.next(ms, sink).await.map_err(failed)
    }

    /// Returns samples that follow each other. Those without timestamps have the time at which the server took them;
    /// its Unix time is so many seconds ahead of our clock.
    fn run(&self, samples: &[Sample], ahead: f64, received: u64) -> Run {
        let position = |first: &Sample| Position {
            generation: self.generation,
            next: first.index,
        };
        #[expect(clippy::cast_precision_loss, reason = "ms since 1970")]
        let taken = |sample: &Sample| sample.id.ms as f64 * 1e-3 - ahead;
        let stamps = samples
            .iter()
            .map(|it| it.stamp.unwrap_or_else(|| taken(it)));
        Run {
            first: samples.first().map(position),
            received,
            stamps: stamps.collect(),
            values: samples.iter().flat_map(|it| &it.values).copied().collect(),
            losses: Vec::new(),
        }
    }
}

fn failed(error: EngineError) -> Error {
    Error::Argument(error.text)
}

/// Time between looks for streams.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// Time in ms for which samples are waited for at a time.
const WAIT_MS: u32 = 1000;
