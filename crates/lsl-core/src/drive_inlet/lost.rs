//! Looks for the streams that this process lost. A few have searches of their own, with the query of
//! liblsl; all others share one that asks for every stream and is sorted here. So a sender of 2,000
//! streams that restarts, and adverts of streams that never existed, cost one query per wave, two
//! sockets and a few hundred bytes for each stream. Spec: lsl-protocol §10.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lsl_platform::clock::local_clock;
use lsl_proto::discovery::search::{Goal, Search, Veto};
use lsl_proto::inlet::successor::{is_same_stream, recovery_query};
use tokio::sync::{Semaphore, oneshot};

use crate::context::Context;
use crate::drive_discovery::search::RunningSearch;
use crate::net::monitor::lock_ignoring_poison;
use crate::net::runtime;
use crate::resolver::resolve_query;
use crate::{Error, Result, StreamInfo, Timeout};

/// The lost streams of a context, in one process.
#[derive(Debug)]
pub(crate) struct Lost {
    own_searches: Semaphore,
    shared: Mutex<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    /// By the key of their recovery queries.
    waiting: HashMap<u64, Vec<Waiting>>,
    hasher: RandomState,
    is_running: bool,
}

/// A stream that the shared search looks for.
#[derive(Debug)]
struct Waiting {
    lost: StreamInfo,
    since: f64,
    not_before: f64,
    /// Time of the first answer, in seconds of `local_clock`.
    answered: Option<f64>,
    answers: oneshot::Sender<Vec<StreamInfo>>,
}

impl Default for Lost {
    fn default() -> Self {
        Self {
            own_searches: Semaphore::new(MAX_OWN_SEARCHES),
            shared: Mutex::default(),
        }
    }
}

impl Lost {
    /// Waits until somebody answers for this stream, and at least `minimum_secs`; returns all who did.
    /// Dropping the future ends the search.
    ///
    /// # Errors
    /// [`Error::Io`] if no search can be started.
    pub(crate) async fn find(
        &self,
        context: &Context,
        lost: &StreamInfo,
        minimum_secs: f64,
    ) -> Result<Vec<StreamInfo>> {
        if let Ok(_own) = self.own_searches.try_acquire() {
            let query = recovery_query(lost);
            // Boxed, because every inlet's task would else hold room for a search.
            let search = resolve_query(context, query, 1, minimum_secs, Timeout::Forever);
            return Box::pin(search).await;
        }
        let (found, is_first) = self.wait_for(lost, minimum_secs, local_clock());
        if is_first {
            let searching = search_for_all(context.clone());
            if let Err(error) = runtime::spawn(searching) {
                self.give_up();
                return Err(error);
            }
        }
        let ended = |_| Error::Protocol("the search for lost streams ended".into());
        found.await.map_err(ended)
    }

    /// Where the answers for this stream come to, and whether a search is still to be started.
    fn wait_for(
        &self,
        lost: &StreamInfo,
        minimum_secs: f64,
        now: f64,
    ) -> (oneshot::Receiver<Vec<StreamInfo>>, bool) {
        let (answers, found) = oneshot::channel();
        let waiting = Waiting {
            lost: lost.clone(),
            since: now,
            not_before: now + minimum_secs,
            answered: None,
            answers,
        };
        let mut shared = lock_ignoring_poison(&self.shared);
        let key = key(&shared.hasher, lost, texts(lost));
        shared.waiting.entry(key).or_default().push(waiting);
        let is_first = !std::mem::replace(&mut shared.is_running, true);
        (found, is_first)
    }

    /// Hands out what the shared search knows. False if nobody waits any more.
    fn look(&self, search: Option<&Search>, now: f64) -> bool {
        let mut shared = lock_ignoring_poison(&self.shared);
        shared.waiting.retain(|_, waiting| {
            waiting.retain(|waiting| !waiting.answers.is_closed());
            !waiting.is_empty()
        });
        if let Some(search) = search {
            shared.hand_out(search, now);
        }
        shared.is_running = !shared.waiting.is_empty();
        shared.is_running
    }

    /// Tells all who wait that nobody looks for their streams, so that they ask again.
    fn give_up(&self) {
        let mut shared = lock_ignoring_poison(&self.shared);
        shared.waiting.clear();
        shared.is_running = false;
    }

    fn is_awaited(&self, info: &StreamInfo) -> bool {
        let shared = lock_ignoring_poison(&self.shared);
        keys(&shared.hasher, info).any(|key| shared.waiting.contains_key(&key))
    }

    /// The number of streams that share a search.
    #[cfg(test)]
    pub(crate) fn sharing(&self) -> usize {
        let shared = lock_ignoring_poison(&self.shared);
        shared.waiting.values().map(Vec::len).sum()
    }
}

/// Runs the shared search for as long as somebody waits for it.
async fn search_for_all(context: Context) {
    let mut running = None;
    loop {
        tokio::time::sleep(LOOK_INTERVAL).await;
        let still_wanted = {
            let state = running.as_ref();
            let state = state.map(|running: &RunningSearch| running.monitor.lock());
            let search = state.as_ref().map(|state| &state.search);
            context.lost().look(search, local_clock())
        };
        if !still_wanted {
            return;
        }
        if running.is_none() {
            let search = search_for_awaited(&context, local_clock());
            match RunningSearch::start(&context, search) {
                Ok(started) => running = Some(started),
                Err(error) => {
                    tracing::warn!(%error, "cannot look for lost streams; trying again");
                    tokio::time::sleep(START_RETRY).await;
                }
            }
        }
    }
}

/// A search for every stream that keeps only those for which somebody waits, whatever others announce.
fn search_for_awaited(context: &Context, now: f64) -> Search {
    let times = context.wave_times();
    let goal = Goal::Continuous {
        forget_after_secs: times.patience_secs() + LONGEST_ROUND_SECS,
    };
    let context = context.clone();
    let is_unwanted = move |info: &StreamInfo| !context.lost().is_awaited(info);
    Search::new(b"", times, goal, now)
        .repeated()
        .with_veto(Veto(Arc::new(is_unwanted)))
}

impl Shared {
    /// Answers those for whom somebody answered since they wait. Costs each answer a few look-ups.
    fn hand_out(&mut self, search: &Search, now: f64) {
        let mut answers: HashMap<u64, Vec<(&StreamInfo, f64)>> = HashMap::new();
        for (info, last_seen) in search.answers() {
            for key in keys(&self.hasher, info) {
                if self.waiting.contains_key(&key) {
                    answers.entry(key).or_default().push((info, last_seen));
                }
            }
        }
        for (key, alike) in answers {
            let Some(waiting) = self.waiting.get_mut(&key) else {
                continue;
            };
            let ready = waiting.extract_if(.., |waiting| waiting.is_ready(&alike, now));
            for waiting in ready {
                let found = waiting.candidates(&alike).into_iter().cloned();
                // Whoever does not wait any more needs no answer.
                let _ = waiting.answers.send(found.collect());
            }
        }
        self.waiting.retain(|_, waiting| !waiting.is_empty());
    }
}

impl Waiting {
    /// Whether the outlet itself answered, or others that look like it had time to answer too.
    fn is_ready(&mut self, alike: &[(&StreamInfo, f64)], now: f64) -> bool {
        let found = self.candidates(alike);
        let Some(first) = found.first() else {
            return false;
        };
        let is_known = first.uid_bytes() == self.lost.uid_bytes();
        let answered = *self.answered.get_or_insert(now);
        now >= self.not_before && (is_known || now >= answered + GATHER_SECS)
    }

    /// Who could be the lost stream: the outlet itself, or some that look like it.
    fn candidates<'a>(&self, alike: &[(&'a StreamInfo, f64)]) -> Vec<&'a StreamInfo> {
        let mut found = Vec::new();
        for &(info, last_seen) in alike {
            if last_seen < self.since || !is_same_stream(&self.lost, info) {
                continue;
            }
            if info.uid_bytes() == self.lost.uid_bytes() {
                return vec![info];
            }
            if found.len() < MAX_CANDIDATES {
                found.push(info);
            }
        }
        found
    }
}

/// Stands for all that a recovery query says which names these of the texts.
fn key(hasher: &RandomState, info: &StreamInfo, texts: [&[u8]; 3]) -> u64 {
    hasher.hash_one((texts, info.channel_count(), info.channel_format()))
}

fn texts(info: &StreamInfo) -> [&[u8]; 3] {
    [
        info.source_id_bytes(),
        info.name_bytes(),
        info.stream_type_bytes(),
    ]
}

/// The key of each recovery query that could select this answer: a lost stream may lack any text.
fn keys(hasher: &RandomState, info: &StreamInfo) -> impl Iterator<Item = u64> {
    let all = texts(info);
    let named = (0..8_u8).map(move |named| {
        let mut some: [&[u8]; 3] = [b""; 3];
        for (index, text) in all.into_iter().enumerate() {
            if named & (1 << index) != 0 {
                // Left out and empty are the same.
                some[index] = Some(text).filter(|text| !text.is_empty())?;
            }
        }
        Some(some)
    });
    named.flatten().map(|some| key(hasher, info, some))
}

/// So many streams lost at once, a laboratory's devices, are looked for one by one.
pub(crate) const MAX_OWN_SEARCHES: usize = 16;

/// Outlets of one stream that are handed out: twice as many as an inlet remembers as refused.
const MAX_CANDIDATES: usize = 32;

/// From the first answer for a stream until it is handed out, so that a second candidate is noticed.
const GATHER_SECS: f64 = 0.5;

/// How often answers are handed out, while somebody waits.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// So long answers wait to be handed out.
pub(crate) const LONGEST_ROUND_SECS: f64 = 5.0;

/// Pause after a search that could not be started: out of descriptors, most likely.
const START_RETRY: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests;
