//! Looks at one stream: searches for it, opens it, pulls and discards, and keeps what was seen.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use lsl_core::{
    BufferLength, ChannelFormat, Context, ContinuousResolver, Inlet, PullElement, StreamInfo,
    Timeout, local_clock,
};
use lsl_doctor::alien;
use lsl_platform::clock::utc_now;

use super::requirement::Requirement;
use super::state::Facts;
use crate::failure::Outcome;
use crate::interrupt::{LONGEST_NAP, Stop};
use crate::ui::text::printable;

/// What is known of one stream, for the thread that judges.
#[derive(Debug, Default)]
pub(super) struct Seen(Mutex<Facts>);

impl Seen {
    pub(super) fn facts(&self) -> Facts {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Facts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Looks until the user wants to end. `light` reads no samples.
pub(super) fn look(
    context: &Context,
    wanted: &Requirement,
    light: bool,
    seen: &Seen,
    stop: &Stop,
) -> Outcome {
    let selector = wanted.stream.selector()?;
    let forget_after = Duration::from_secs_f64(FORGET_SECS);
    let resolver = ContinuousResolver::in_context(context, &selector, forget_after)?;
    let mut connections = 0;
    while !stop.requested() {
        let Some(info) = find(&resolver, wanted, seen) else {
            thread::sleep(LONGEST_NAP);
            continue;
        };
        connections += 1;
        if connections > 1 {
            seen.lock().losses += 1;
        }
        if let Err(error) = watch(context, &info, wanted, light, seen, stop, &resolver) {
            seen.lock().closed = Some(printable(&error.to_string()));
            stop.sleep_until(local_clock() + AGAIN_SECS);
        }
    }
    Ok(())
}

/// Returns the stream that is wanted, if it is there; notes how many are.
fn find(resolver: &ContinuousResolver, wanted: &Requirement, seen: &Seen) -> Option<StreamInfo> {
    let is_host = |info: &StreamInfo| wanted.host.as_ref().is_none_or(|it| info.hostname() == *it);
    let mut all = resolver.results();
    all.retain(is_host);
    let mut facts = seen.lock();
    facts.found = all.len();
    if all.is_empty() {
        *facts = Facts {
            losses: facts.losses,
            ..Facts::default()
        };
    }
    all.into_iter().next()
}

/// Reads one stream until it goes away or is another.
fn watch(
    context: &Context,
    info: &StreamInfo,
    wanted: &Requirement,
    light: bool,
    seen: &Seen,
    stop: &Stop,
    resolver: &ContinuousResolver,
) -> lsl_core::Result<()> {
    seen.lock().nominal = info.nominal_srate();
    let inlet = Inlet::builder(info)
        .context(context)
        .recover(false)
        .buffer(BufferLength::Seconds(BUFFER_SECS))
        .create()?;
    if !light {
        let opened = inlet.blocking().open(Duration::from_secs_f64(OPEN_SECS));
        let refused = inlet.last_security_error();
        let mut facts = seen.lock();
        facts.key = refused.or_else(|| wrong_key(&inlet, wanted));
        if facts.key.is_none() {
            opened?;
        }
        facts.closed = None;
        if facts.key.is_some() {
            drop(facts);
            stop.sleep_until(local_clock() + AGAIN_SECS);
            return Ok(());
        }
    }
    let values = match info.channel_format() {
        ChannelFormat::String => Values::Text(vec![Vec::new(); info.channel_count() as usize]),
        _ => Values::Numbers(vec![0.0; info.channel_count() as usize]),
    };
    let mut look = Look::new(values, info.nominal_srate(), local_clock());
    while !stop.requested() {
        let is_there = find(resolver, wanted, seen)
            .is_some_and(|it| light || it.uid_bytes() == info.uid_bytes());
        if !is_there && (light || seen.lock().found > 0) {
            return Ok(());
        }
        if light {
            thread::sleep(LONGEST_NAP);
        } else {
            look.pull(&inlet)?;
        }
        look.note(&inlet, &mut seen.lock(), light);
    }
    Ok(())
}

/// Says why its key is not the one that is wanted.
fn wrong_key(inlet: &Inlet, wanted: &Requirement) -> Option<String> {
    let key = wanted.key.as_ref()?;
    match inlet.encryption() {
        None => Some("it is not encrypted".into()),
        Some(it) if it.peer_name == *key || it.fingerprint == *key => None,
        Some(it) => Some(format!(
            "its key is that of {} ({})",
            printable(&it.peer_name),
            it.fingerprint
        )),
    }
}

/// A sample of any stream.
enum Values {
    Numbers(Vec<f64>),
    Text(Vec<Vec<u8>>),
}

/// What came of one connection.
struct Look {
    values: Values,
    nominal: f64,
    began: f64,
    /// When it was last looked, and how many samples had come.
    counts: VecDeque<(f64, u64)>,
    /// The smallest age of each of the last seconds, by the sender's clock.
    ages: VecDeque<f64>,
    second: f64,
    stamp: f64,
}

impl Look {
    fn new(values: Values, nominal: f64, now: f64) -> Self {
        Self {
            values,
            nominal,
            began: now,
            counts: VecDeque::new(),
            ages: VecDeque::from([f64::INFINITY]),
            second: now,
            stamp: 0.0,
        }
    }

    /// Takes what comes within a moment.
    fn pull(&mut self, inlet: &Inlet) -> lsl_core::Result<()> {
        let end = local_clock() + LONGEST_NAP.as_secs_f64();
        loop {
            let stamp = match &mut self.values {
                Values::Numbers(values) => one(inlet, values, end)?,
                Values::Text(values) => one(inlet, values, end)?,
            };
            let Some(stamp) = stamp else { break };
            let now = local_clock();
            self.stamp = stamp;
            if now - self.second >= 1.0 {
                self.second = now;
                self.ages.push_back(f64::INFINITY);
                if self.ages.len() > KEPT_SECONDS {
                    self.ages.pop_front();
                }
            }
            if let Some(age) = self.ages.back_mut() {
                *age = age.min(now - stamp);
            }
            if now >= end {
                break;
            }
        }
        Ok(())
    }

    fn note(&mut self, inlet: &Inlet, facts: &mut Facts, light: bool) {
        let now = local_clock();
        let correction = inlet.blocking().time_correction(Timeout::NOW).ok();
        facts.uncertainty_secs = correction.as_ref().map(|it| it.uncertainty_secs);
        if light {
            return;
        }
        let stats = inlet.stats();
        let silent = stats
            .idle_secs
            .unwrap_or(f64::INFINITY)
            .min(now - self.began);
        facts.silent_secs = Some(silent);
        self.counts.push_back((now, stats.samples));
        while self
            .counts
            .front()
            .is_some_and(|(at, _)| now - at > RATE_SECS)
        {
            self.counts.pop_front();
        }
        if let (Some((from, first)), true) = (self.counts.front(), self.nominal > 0.0) {
            #[expect(clippy::cast_precision_loss, reason = "samples of ten seconds")]
            let rate = (stats.samples - first) as f64 / (now - from);
            // Chunks come when they come; ten seconds of slow streams are few samples.
            let is_known = now - from >= RATE_SECS * 0.9 && self.nominal * (now - from) >= FEWEST;
            facts.rate = is_known.then_some(rate);
        }
        if let Some(correction) = correction {
            let lags = self.ages.iter().filter(|age| age.is_finite());
            let lags: Vec<f64> = lags.map(|age| age - correction.offset_secs).collect();
            facts.late_secs = lags.get(1..).and_then(|lags| lags.last()).copied();
            let day = Some(utc_now().as_secs_f64());
            facts.suspect = alien::judge(&lags, self.stamp, day, correction.uncertainty_secs);
        }
    }
}

fn one<T: PullElement>(inlet: &Inlet, values: &mut [T], end: f64) -> lsl_core::Result<Option<f64>> {
    let left = Duration::try_from_secs_f64(end - local_clock()).unwrap_or_default();
    inlet.blocking().pull(values, left)
}

/// A stream that did not answer so long is gone; waves go out about every 1.75 s.
const FORGET_SECS: f64 = 5.0;
const OPEN_SECS: f64 = 3.0;
const AGAIN_SECS: f64 = 1.0;
/// So little is left behind where nobody pulls.
const BUFFER_SECS: f64 = 10.0;
const RATE_SECS: f64 = 10.0;
const FEWEST: f64 = 20.0;
const KEPT_SECONDS: usize = 5;
