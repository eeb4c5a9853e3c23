//! Searches that go on between calls that do not wait: a game engine looks for its stream with a
//! timeout of 0 in each frame, and each call alone is over before an answer can come.
//! Spec: lsl-protocol §3.4.

use std::sync::Mutex;
use std::time::Duration;

use lsl_platform::clock::local_clock;
use lsl_proto::discovery::search::{Goal, Search};

use crate::context::Context;
use crate::drive_discovery::search::RunningSearch;
use crate::net::monitor::lock_ignoring_poison;
use crate::net::runtime;
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
            remember(&mut queries, query, now);
            return Ok(Vec::new());
        };
        asked.last_call = now;
        if let Some(running) = &asked.search {
            return Ok(running.monitor.lock().results(now));
        }
        let times = context.wave_times();
        let goal = Goal::Continuous {
            forget_after_secs: times.patience_secs(),
        };
        let search = Search::new(query, times, goal, now);
        asked.search = Some(RunningSearch::start(context, search.repeated())?);
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

    #[cfg(test)]
    pub(crate) fn searches(&self) -> usize {
        let queries = lock_ignoring_poison(&self.queries);
        queries
            .iter()
            .filter(|asked| asked.search.is_some())
            .count()
    }
}

/// Makes a query known, if there is room or one that nobody asked for lately. Those of a program that asks
/// for too many in turn would else all give way before they are asked for again.
fn remember(queries: &mut Vec<Asked>, query: Vec<u8>, now: f64) {
    if queries.len() >= MAX_QUERIES {
        queries.sort_by(|a, b| a.last_call.total_cmp(&b.last_call));
        if now < queries[0].last_call + IN_USE_SECS {
            return;
        }
        queries.remove(0);
    }
    queries.push(Asked {
        query,
        last_call: now,
        search: None,
    });
}

async fn end_unused(context: Context) {
    while context.lingering().end_unused(local_clock()) {
        tokio::time::sleep(Duration::from_secs_f64(KEPT_SECS)).await;
    }
}

/// How long after a call the next one finds its search.
const KEPT_SECS: f64 = 5.0;

/// How long after a call its query gives way to no other.
const IN_USE_SECS: f64 = 1.0;

/// Queries remembered at a time.
const MAX_QUERIES: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_queries_than_fit_do_not_evict_each_other() {
        let mut queries = Vec::new();
        let mut ask = |number: usize, now: f64| {
            let query = number.to_string().into_bytes();
            let known = queries
                .iter_mut()
                .find(|asked: &&mut Asked| asked.query == query);
            let is_known = known.is_some();
            match known {
                Some(asked) => asked.last_call = now,
                None => remember(&mut queries, query, now),
            }
            is_known
        };
        // A program asks for all of them in each frame.
        for frame in 0..4_u32 {
            let now = 0.02 * f64::from(frame);
            let known = (0..=MAX_QUERIES).filter(|&number| ask(number, now)).count();
            assert_eq!(known, if frame == 0 { 0 } else { MAX_QUERIES });
        }
        // One that is not asked for any more makes room.
        for number in 1..MAX_QUERIES {
            ask(number, 1.5);
        }
        ask(MAX_QUERIES, 1.5);
        assert!(ask(MAX_QUERIES, 1.6));
        assert!(!ask(0, 1.6));
    }
}
