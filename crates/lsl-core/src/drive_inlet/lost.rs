//! The search for the streams that this process lost, which they share; `LostStreams` sorts the answers. Without
//! `lab.SelfHealing` a few have searches of their own, with the query of liblsl. Spec: lsl-protocol §10, doctor §2.4.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use lsl_platform::clock::local_clock;
use lsl_proto::discovery::lost::LostStreams;
use lsl_proto::discovery::search::{Goal, Search, Veto};
use lsl_proto::inlet::successor::recovery_query;
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
    streams: LostStreams<oneshot::Sender<Vec<StreamInfo>>>,
    is_running: bool,
    /// Whether streams were lost since the search was told.
    is_joined: bool,
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
        if !context.config().lab().self_healing
            && let Ok(_own) = self.own_searches.try_acquire()
        {
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
        let mut shared = lock_ignoring_poison(&self.shared);
        shared.streams.wait_for(lost, minimum_secs, now, answers);
        shared.is_joined = true;
        let is_first = !std::mem::replace(&mut shared.is_running, true);
        (found, is_first)
    }

    /// Hands out what the shared search knows. False if nobody waits any more.
    fn look(&self, search: Option<&mut Search>, now: f64) -> bool {
        let mut shared = lock_ignoring_poison(&self.shared);
        let Shared {
            streams, is_joined, ..
        } = &mut *shared;
        streams.retain(|answers| !answers.is_closed());
        if let Some(search) = search {
            for (answers, found) in streams.hand_out(search, now) {
                // Whoever does not wait any more needs no answer.
                let _ = answers.send(found);
            }
            search.look_for(streams.queries(), std::mem::take(is_joined), now);
        }
        shared.is_running = !shared.streams.is_empty();
        shared.is_running
    }

    /// Tells all who wait that nobody looks for their streams, so that they ask again.
    fn give_up(&self) {
        *lock_ignoring_poison(&self.shared) = Shared::default();
    }

    fn is_awaited(&self, info: &StreamInfo) -> bool {
        lock_ignoring_poison(&self.shared).streams.is_awaited(info)
    }

    /// The number of streams that share a search.
    #[cfg(test)]
    pub(crate) fn sharing(&self) -> usize {
        lock_ignoring_poison(&self.shared).streams.len()
    }
}

/// Runs the shared search for as long as somebody waits for it.
async fn search_for_all(context: Context) {
    let mut running = None;
    loop {
        tokio::time::sleep(LOOK_INTERVAL).await;
        let still_wanted = {
            let look = |search: Option<&mut Search>| context.lost().look(search, local_clock());
            match &running {
                Some(RunningSearch { monitor, .. }) => monitor.update(|search| look(Some(search))),
                None => look(None),
            }
        };
        if !still_wanted {
            return;
        }
        if running.is_none() {
            let mut search = search_for_awaited(&context, local_clock());
            context.lost().look(Some(&mut search), local_clock());
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
    let heals = context.config().lab().self_healing;
    let context = context.clone();
    let is_unwanted = move |info: &StreamInfo| !context.lost().is_awaited(info);
    let search = Search::new(b"", times, goal, now)
        .repeated()
        .with_veto(Veto(Arc::new(is_unwanted)));
    if heals {
        search.for_lost_streams(now)
    } else {
        search
    }
}

/// So many streams lost at once, a laboratory's devices, are looked for one by one if nothing heals itself.
pub(crate) const MAX_OWN_SEARCHES: usize = 16;

/// How often answers are handed out, while somebody waits.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// So long answers wait to be handed out.
pub(crate) const LONGEST_ROUND_SECS: f64 = 5.0;

/// Pause after a search that could not be started: out of descriptors, most likely.
const START_RETRY: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests;
