//! Looks for the streams that this process lost. A few have searches of their own, with the query of
//! liblsl; all others share one that asks for every stream and is sorted here. So a sender of 2,000
//! streams that restarts, and adverts of streams that never existed, cost one query per wave, two
//! sockets and a few hundred bytes for each stream. Spec: lsl-protocol §10.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use lsl_platform::clock::local_clock;
use tokio::sync::{Semaphore, oneshot};

use crate::context::Context;
use crate::net::monitor::lock_ignoring_poison;
use crate::net::resolver::RunningSearch;
use crate::net::runtime;
use crate::resolver::resolve_query;
use crate::session::recover::{is_same_stream, recovery_query};
use crate::session::resolve::{Goal, Search};
use crate::{Error, Result, StreamInfo, Timeout};

/// The lost streams of a context, in one process.
#[derive(Debug)]
pub(crate) struct Lost {
    own_searches: Semaphore,
    shared: Mutex<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    waiting: Vec<Waiting>,
    is_running: bool,
}

/// A stream that the shared search looks for.
#[derive(Debug)]
struct Waiting {
    lost: StreamInfo,
    since: f64,
    not_before: f64,
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
        let (answers, found) = oneshot::channel();
        let since = local_clock();
        let waiting = Waiting {
            lost: lost.clone(),
            since,
            not_before: since + minimum_secs,
            answers,
        };
        let is_first = {
            let mut shared = lock_ignoring_poison(&self.shared);
            shared.waiting.push(waiting);
            !std::mem::replace(&mut shared.is_running, true)
        };
        if is_first {
            let searching = search_for_all(context.clone());
            if let Err(error) = runtime::spawn(searching) {
                lock_ignoring_poison(&self.shared).is_running = false;
                return Err(error);
            }
        }
        let ended = |_| Error::Protocol("the search for lost streams ended".into());
        found.await.map_err(ended)
    }

    /// Hands out what the shared search knows. False if nobody waits any more.
    fn look(&self, search: Option<&Search>, now: f64) -> bool {
        let mut shared = lock_ignoring_poison(&self.shared);
        shared
            .waiting
            .retain(|waiting| !waiting.answers.is_closed());
        if let Some(search) = search {
            hand_out(&mut shared.waiting, search, now);
        }
        shared.is_running = !shared.waiting.is_empty();
        shared.is_running
    }

    /// The number of streams that share a search.
    #[cfg(test)]
    pub(crate) fn sharing(&self) -> usize {
        lock_ignoring_poison(&self.shared).waiting.len()
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
            let times = context.wave_times();
            let goal = Goal::Continuous {
                forget_after_secs: times.patience_secs() + LONGEST_ROUND_SECS,
            };
            let search = Search::new(b"", times, goal, local_clock());
            match RunningSearch::start(&context, search.without_events()) {
                Ok(started) => running = Some(started),
                Err(error) => {
                    tracing::warn!(%error, "cannot look for lost streams; trying again");
                    tokio::time::sleep(START_RETRY).await;
                }
            }
        }
    }
}

/// Answers those for whom somebody answered since they wait. Costs each a few comparisons, whatever
/// strangers announce.
fn hand_out(waiting: &mut Vec<Waiting>, search: &Search, now: f64) {
    if waiting.iter().all(|waiting| now < waiting.not_before) {
        return;
    }
    let mut by_source: HashMap<&[u8], Vec<(&StreamInfo, f64)>> = HashMap::new();
    for (info, last_seen) in search.answers() {
        let alike = by_source.entry(info.source_id_bytes()).or_default();
        if alike.len() < MAX_CANDIDATES {
            alike.push((info, last_seen));
        }
    }
    let done: Vec<Waiting> = waiting
        .extract_if(.., |waiting| {
            now >= waiting.not_before && !candidates(waiting, search, &by_source).is_empty()
        })
        .collect();
    for waiting in done {
        let found = candidates(&waiting, search, &by_source);
        let found = found.into_iter().cloned().collect();
        // Whoever does not wait any more needs no answer.
        let _ = waiting.answers.send(found);
    }
}

fn candidates<'a>(
    waiting: &Waiting,
    search: &'a Search,
    by_source: &HashMap<&[u8], Vec<(&'a StreamInfo, f64)>>,
) -> Vec<&'a StreamInfo> {
    let lost = &waiting.lost;
    let answers = |&(info, last_seen): &(&StreamInfo, f64)| {
        last_seen >= waiting.since && is_same_stream(lost, info)
    };
    if let Some(known) = search.answer_of(lost.uid_bytes()).filter(&answers) {
        return vec![known.0];
    }
    let found = if lost.source_id_bytes().is_empty() {
        // Made by the program itself, so that there are few.
        search
            .answers()
            .filter(answers)
            .take(MAX_CANDIDATES)
            .collect()
    } else {
        let alike = by_source.get(lost.source_id_bytes());
        alike
            .into_iter()
            .flatten()
            .copied()
            .filter(answers)
            .collect::<Vec<_>>()
    };
    found.into_iter().map(|(info, _)| info).collect()
}

/// So many streams lost at once, a laboratory's devices, are looked for one by one.
pub(crate) const MAX_OWN_SEARCHES: usize = 16;

/// Answers of one source id that are looked at.
const MAX_CANDIDATES: usize = 16;

/// How often answers are handed out, while somebody waits.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// So long answers wait to be handed out.
pub(crate) const LONGEST_ROUND_SECS: f64 = 5.0;

/// Pause after a search that could not be started: out of descriptors, most likely.
const START_RETRY: Duration = Duration::from_secs(1);
