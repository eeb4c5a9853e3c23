//! Searches that go on between calls that do not wait: a game engine looks for its stream with a
//! timeout of 0 in each frame, and each call alone is over before an answer can come.
//! Spec: lsl-protocol §3.4.

use std::sync::Mutex;
use std::time::Duration;

use lsl_platform::clock::local_clock;

use crate::context::Context;
use crate::net::monitor::lock_ignoring_poison;
use crate::net::resolver::RunningSearch;
use crate::net::runtime;
use crate::session::resolve::{Goal, Search};
use crate::{Result, StreamInfo};

/// What was looked for lately without waiting. A query that comes again within [`KEPT_SECS`] gets a
/// search; one that does not costs nothing.
#[derive(Debug, Default)]
pub(crate) struct Lingering {
    queries: Mutex<Vec<Asked>>,
}

#[derive(Debug)]
struct Asked {
    query: Vec<u8>,
    last_call: f64,
    search: Option<RunningSearch>,
}

impl Lingering {
    /// The streams that a search begun by an earlier call knows by now. Never blocks.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io) if no search can be started.
    pub(crate) fn results(&self, context: &Context, query: Vec<u8>) -> Result<Vec<StreamInfo>> {
        let now = local_clock();
        let mut queries = lock_ignoring_poison(&self.queries);
        queries.retain(|asked| now < asked.last_call + KEPT_SECS);
        let Some(asked) = queries.iter_mut().find(|asked| asked.query == query) else {
            if queries.len() >= MAX_QUERIES {
                // The first is the one that was asked for longest ago.
                queries.sort_by(|a, b| a.last_call.total_cmp(&b.last_call));
                queries.remove(0);
            }
            queries.push(Asked {
                query,
                last_call: now,
                search: None,
            });
            return Ok(Vec::new());
        };
        asked.last_call = now;
        if let Some(running) = &asked.search {
            return Ok(running.monitor.lock().search.results(now));
        }
        let times = context.wave_times();
        let goal = Goal::Continuous {
            forget_after_secs: times.patience_secs(),
        };
        let search = Search::new(query, times, goal, now);
        asked.search = Some(RunningSearch::start(context, search.without_events())?);
        if queries
            .iter()
            .filter(|asked| asked.search.is_some())
            .count()
            == 1
        {
            drop(queries);
            runtime::spawn(end_unused(context.clone()))?;
        }
        Ok(Vec::new())
    }

    /// Ends searches that nobody asks for any more. Says whether there are others.
    pub(crate) fn end_unused(&self, now: f64) -> bool {
        let mut queries = lock_ignoring_poison(&self.queries);
        queries.retain(|asked| now < asked.last_call + KEPT_SECS);
        queries.iter().any(|asked| asked.search.is_some())
    }

    /// The number of searches.
    #[cfg(test)]
    pub(crate) fn searches(&self) -> usize {
        let queries = lock_ignoring_poison(&self.queries);
        queries
            .iter()
            .filter(|asked| asked.search.is_some())
            .count()
    }
}

async fn end_unused(context: Context) {
    while context.lingering().end_unused(local_clock()) {
        tokio::time::sleep(Duration::from_secs_f64(KEPT_SECS)).await;
    }
}

/// How long after a call the next one finds its search.
const KEPT_SECS: f64 = 5.0;

/// Queries remembered at a time.
const MAX_QUERIES: usize = 16;
