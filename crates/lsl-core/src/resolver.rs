//! Finding streams: [`resolve`] once, or keep looking with a [`ContinuousResolver`].
//! Spec: lsl-protocol §3.

use std::net::IpAddr;
use std::time::Duration;

use lsl_platform::clock::local_clock;
use lsl_proto::discovery::search::{Goal, ResolverEvent, Search, WaveTimes};
use lsl_proto::query::{Query, quote_bytes};

use crate::context::Context;
use crate::drive_discovery::search::RunningSearch;
use crate::{Result, StreamInfo, Timeout};

/// Which streams to look for. The session is added from the configuration.
///
/// ```
/// use lsl_core::Selector;
///
/// let eeg = Selector::property("type", "EEG")?;
/// let mine = Selector::predicate("starts-with(name,'Bio') and channel_count>8")?;
/// # Ok::<(), lsl_core::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selector {
    predicate: Option<Vec<u8>>,
}

impl Selector {
    /// Every stream of the session.
    pub fn all() -> Self {
        Self { predicate: None }
    }

    /// Streams whose `name` (an element of the stream info, such as `type` or `desc/manufacturer`)
    /// has this text. The value may contain any quotes.
    ///
    /// # Errors
    /// [`Error::Query`](crate::Error::Query) if `name` is no name of an element, or the query gets too long.
    pub fn property(name: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<Self> {
        Self::predicate([name.as_ref(), b"=", &quote_bytes(value.as_ref())].concat())
    }

    /// Streams for which an XPath 1.0 predicate holds. Spec: lsl-protocol §4. The predicate is not put
    /// into parentheses: `a or b` finds `b` in every session, as in liblsl.
    ///
    /// # Errors
    /// [`Error::Query`](crate::Error::Query) if it does not parse.
    pub fn predicate(predicate: impl Into<Vec<u8>>) -> Result<Self> {
        let predicate = predicate.into();
        Query::parse(&predicate)?;
        Ok(Self {
            predicate: Some(predicate),
        })
    }

    /// The query as it goes over the network. Spec: lsl-protocol §3.5.
    ///
    /// # Errors
    /// [`Error::Query`](crate::Error::Query) if session and predicate together do not parse.
    pub fn to_query(&self, session_id: &str) -> Result<Vec<u8>> {
        let mut query = [b"session_id=", &*quote_bytes(session_id.as_bytes())].concat();
        if let Some(predicate) = &self.predicate {
            query.extend_from_slice(b" and ");
            query.extend_from_slice(predicate);
        }
        Query::parse(&query)?;
        Ok(query)
    }
}

/// Looks for streams in the global context until `minimum` are found, at the longest for `timeout`.
/// With a `minimum` of 0 it takes the whole time. Returns what was found, ordered by uid: fewer than
/// `minimum`, or none, is no error. May find more than `minimum`. With a timeout of zero, again and again
/// for the same, it returns what was found since the first of these calls.
///
/// Works inside any async runtime; dropping the future ends the search.
///
/// # Errors
/// [`Error::Query`](crate::Error::Query) for a bad selector; [`Error::Io`](crate::Error::Io) if no
/// socket can be opened.
///
/// ```no_run
/// # async fn example() -> lsl_core::Result<()> {
/// use std::time::Duration;
/// use lsl_core::{Selector, resolve};
///
/// let found = resolve(&Selector::property("type", "EEG")?, 1, Duration::from_secs(5)).await?;
/// # Ok(()) }
/// ```
pub async fn resolve(
    selector: &Selector,
    minimum: usize,
    timeout: impl Into<Timeout>,
) -> Result<Vec<StreamInfo>> {
    Context::global().resolve(selector, minimum, timeout).await
}

/// [`resolve`], blocking the calling thread.
///
/// # Errors
/// As [`resolve`].
pub fn resolve_blocking(
    selector: &Selector,
    minimum: usize,
    timeout: impl Into<Timeout>,
) -> Result<Vec<StreamInfo>> {
    Context::global().resolve_blocking(selector, minimum, timeout)
}

impl Context {
    /// [`resolve`] in this context.
    ///
    /// # Errors
    /// As [`resolve`].
    pub async fn resolve(
        &self,
        selector: &Selector,
        minimum: usize,
        timeout: impl Into<Timeout>,
    ) -> Result<Vec<StreamInfo>> {
        let query = selector.to_query(&self.config().lab().session_id)?;
        let timeout = timeout.into();
        if timeout == Timeout::NOW {
            return self.lingering().results(self, query);
        }
        resolve_query(self, query, minimum, 0.0, timeout).await
    }

    /// [`resolve_blocking`] in this context.
    ///
    /// # Errors
    /// As [`resolve`].
    pub fn resolve_blocking(
        &self,
        selector: &Selector,
        minimum: usize,
        timeout: impl Into<Timeout>,
    ) -> Result<Vec<StreamInfo>> {
        let timeout = timeout.into();
        if timeout == Timeout::NOW {
            let query = selector.to_query(&self.config().lab().session_id)?;
            return self.lingering().results(self, query);
        }
        let resolving = self.begin_resolving(selector, minimum, timeout)?;
        Ok(resolving
            .wait_blocking(Timeout::Forever)
            .unwrap_or_default())
    }

    /// Begins what [`resolve`] does, for callers that wait for it bit by bit.
    ///
    /// # Errors
    /// As [`resolve`].
    pub fn begin_resolving(
        &self,
        selector: &Selector,
        minimum: usize,
        timeout: impl Into<Timeout>,
    ) -> Result<Resolving> {
        let query = selector.to_query(&self.config().lab().session_id)?;
        start_once(self, query, minimum, 0.0, timeout.into())
    }

    pub(crate) fn wave_times(&self) -> WaveTimes {
        let tuning = self.config().tuning();
        WaveTimes {
            multicast_min_rtt_secs: tuning.multicast_min_rtt_secs,
            unicast_min_rtt_secs: tuning.unicast_min_rtt_secs,
            continuous_interval_secs: tuning.continuous_resolve_interval_secs,
        }
    }
}

/// Looks for a query text that is already complete, as recovery does (Spec: lsl-protocol §10): not
/// ending before `minimum_time_secs`, even if `minimum` streams are found earlier.
///
/// # Errors
/// As [`resolve`].
pub(crate) async fn resolve_query(
    context: &Context,
    query: Vec<u8>,
    minimum: usize,
    minimum_time_secs: f64,
    timeout: Timeout,
) -> Result<Vec<StreamInfo>> {
    let running = start_once(context, query, minimum, minimum_time_secs, timeout)?;
    Ok(running
        .search
        .monitor
        .wait(running.give_up, results_when_done)
        .await
        .unwrap_or_default())
}

fn start_once(
    context: &Context,
    query: Vec<u8>,
    minimum: usize,
    minimum_time_secs: f64,
    timeout: Timeout,
) -> Result<Resolving> {
    Query::parse(&query)?;
    let now = local_clock();
    let deadline = timeout.deadline(now);
    let goal = Goal::Once {
        minimum,
        not_before: now + minimum_time_secs,
        deadline,
    };
    let search = Search::new(query, context.wave_times(), goal, now);
    Ok(Resolving {
        search: RunningSearch::start(context, search)?,
        give_up: deadline + SPARE_SECS,
    })
}

/// A search that ends with its result, see [`Context::begin_resolving`]. Dropping it ends it at once.
#[derive(Debug)]
pub struct Resolving {
    search: RunningSearch,
    /// The search ends itself at its deadline; whoever waits has this to fall back on, in case the
    /// runtime stayed behind in the parent of a forked process.
    give_up: f64,
}

impl Resolving {
    /// Waits for the end of the search: what was found, or `None` if it still goes on after `timeout`.
    pub fn wait_blocking(&self, timeout: impl Into<Timeout>) -> Option<Vec<StreamInfo>> {
        let now = local_clock();
        let deadline = timeout.into().deadline(now).min(self.give_up);
        let found = self
            .search
            .monitor
            .wait_blocking(deadline, results_when_done);
        found.or_else(|| (deadline >= self.give_up).then(Vec::new))
    }
}

const SPARE_SECS: f64 = 1.0;

fn results_when_done(search: &mut Search) -> Option<Vec<StreamInfo>> {
    let now = local_clock();
    search.is_done(now).then(|| search.results(now))
}

/// Keeps looking for streams until dropped, and knows at any time which ones there are.
/// Safe to share between threads.
///
/// ```no_run
/// # async fn example() -> lsl_core::Result<()> {
/// use std::time::Duration;
/// use lsl_core::{ContinuousResolver, ResolverEvent, Selector};
///
/// let resolver = ContinuousResolver::new(&Selector::all(), Duration::from_secs(5))?;
/// loop {
///     match resolver.next_event().await {
///         ResolverEvent::Appeared(info) => println!("{} is there", info.name()),
///         ResolverEvent::Lost(info) => println!("{} is gone", info.name()),
///         _ => {}
///     }
/// }
/// # }
/// ```
#[derive(Debug)]
pub struct ContinuousResolver {
    running: RunningSearch,
}

impl ContinuousResolver {
    /// Starts to look in the global context. A stream counts as lost when it did not answer for
    /// `forget_after`; liblsl's programs use 5 s. Never blocks.
    ///
    /// # Errors
    /// As [`resolve`].
    pub fn new(selector: &Selector, forget_after: impl Into<Timeout>) -> Result<Self> {
        Self::in_context(&Context::global(), selector, forget_after)
    }

    /// [`ContinuousResolver::new`] in a context.
    ///
    /// # Errors
    /// As [`resolve`].
    pub fn in_context(
        context: &Context,
        selector: &Selector,
        forget_after: impl Into<Timeout>,
    ) -> Result<Self> {
        let query = selector.to_query(&context.config().lab().session_id)?;
        let forget_after_secs = forget_after.into().deadline(0.0);
        let goal = Goal::Continuous { forget_after_secs };
        let search = Search::new(query, context.wave_times(), goal, local_clock());
        Ok(Self {
            running: RunningSearch::start(context, search)?,
        })
    }

    /// The streams that answered within the last `forget_after`, ordered by uid. Never blocks.
    pub fn results(&self) -> Vec<StreamInfo> {
        self.running.monitor.lock().results(local_clock())
    }

    /// Which host told first of the stream with this uid, if that is known and not forgotten. Unlike the
    /// addresses in the info, which anybody can make up, this one could be answered. Never blocks.
    pub fn sender_of(&self, uid: &[u8]) -> Option<IpAddr> {
        self.running.monitor.lock().sender_of(uid)
    }

    /// When the stream with this uid last answered, in seconds of `local_clock`, if it is known and not forgotten:
    /// for `lsl-relay`. Never blocks.
    #[doc(hidden)]
    pub fn last_answer_of(&self, uid: &[u8]) -> Option<f64> {
        self.running.monitor.lock().last_answer_of(uid)
    }

    /// Waits for the next change. Each event goes to one caller. Dropping the future loses nothing.
    pub async fn next_event(&self) -> ResolverEvent {
        loop {
            let event = self.running.monitor.wait(f64::INFINITY, take_event).await;
            if let Some(event) = event {
                return event;
            }
        }
    }

    /// [`ContinuousResolver::next_event`], blocking the calling thread; `None` after `timeout`.
    pub fn next_event_blocking(&self, timeout: impl Into<Timeout>) -> Option<ResolverEvent> {
        let deadline = timeout.into().deadline(local_clock());
        self.running.monitor.wait_blocking(deadline, take_event)
    }

    /// Waits until `minimum` streams are known, at the longest for `timeout`; returns those known.
    pub fn wait_blocking(&self, minimum: usize, timeout: Duration) -> Vec<StreamInfo> {
        let deadline = Timeout::After(timeout).deadline(local_clock());
        let enough = |search: &mut Search| (search.len() >= minimum).then_some(());
        self.running.monitor.wait_blocking(deadline, enough);
        self.results()
    }
}

fn take_event(search: &mut Search) -> Option<ResolverEvent> {
    search.poll_event(local_clock())
}

#[cfg(test)]
mod tests;
