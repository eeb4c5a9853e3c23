//! Looks at one stream: searches for it, opens it, pulls and discards, and keeps what was seen.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use lsl_core::{
    BufferLength, ChannelFormat, ClockSuspect, Context, ContinuousResolver, Inlet, PullElement,
    StreamInfo, Timeout, local_clock,
};
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
    let mut finder = Finder {
        resolver,
        wanted,
        seen,
        answers: Answers::default(),
    };
    let mut connections = 0;
    while !stop.requested() {
        let Some(info) = finder.find(None) else {
            thread::sleep(LONGEST_NAP);
            continue;
        };
        connections += 1;
        if connections > 1 {
            seen.lock().losses += 1;
        }
        if let Err(error) = watch(context, &info, &mut finder, light, stop) {
            seen.lock().closed = Some(printable(&error.to_string()));
            stop.sleep_until(local_clock() + AGAIN_SECS);
        }
    }
    Ok(())
}

/// Searches for the stream that is wanted.
struct Finder<'a> {
    resolver: ContinuousResolver,
    wanted: &'a Requirement,
    seen: &'a Seen,
    answers: Answers,
}

impl Finder<'_> {
    /// Returns the stream that is wanted, if it is there: the `current` one as long as it is known, else the one that
    /// came last. Notes how many are there.
    fn find(&mut self, current: Option<&StreamInfo>) -> Option<StreamInfo> {
        let host = self.wanted.host.as_ref();
        let mut all = self.resolver.results();
        all.retain(|info| host.is_none_or(|it| info.hostname() == *it));
        let now = local_clock();
        let answer = |info: &StreamInfo| {
            let uid = info.uid_bytes();
            (
                uid.to_vec(),
                self.resolver.last_answer_of(uid).unwrap_or(now),
            )
        };
        let answered: BTreeMap<Vec<u8>, f64> = all.iter().map(answer).collect();
        let (found, last) = self.answers.living(now, &answered);
        let mut facts = self.seen.lock();
        facts.found = found;
        if all.is_empty() {
            *facts = Facts {
                losses: facts.losses,
                ..Facts::default()
            };
        }
        let is = |uid: &[u8]| all.iter().find(|it| it.uid_bytes() == uid).cloned();
        let current = current.and_then(|it| is(it.uid_bytes()));
        current.or_else(|| is(&last?))
    }
}

/// When streams that fit first answered, by uid. A program that was started again has another uid, and what it had
/// before is only forgotten after a while.
#[derive(Debug, Default)]
struct Answers(BTreeMap<Vec<u8>, f64>);

impl Answers {
    /// Returns how many are there, and which one came last, of those that `answered` at these times: the others if
    /// they did since that one came.
    fn living(&mut self, now: f64, answered: &BTreeMap<Vec<u8>, f64>) -> (usize, Option<Vec<u8>>) {
        self.0.retain(|uid, _| answered.contains_key(uid));
        for (uid, at) in answered {
            self.0.entry(uid.clone()).or_insert(*at);
        }
        let last = self.0.iter().max_by(|a, b| a.1.total_cmp(b.1));
        let Some((last, since)) = last else {
            return (0, None);
        };
        // What a relay tells of does not answer, and would be gone by then.
        let is_old = now - since >= FORGET_SECS;
        let living = answered
            .values()
            .filter(|at| is_old || **at >= since - SAME_WAVE_SECS);
        (living.count(), Some(last.clone()))
    }
}

/// Reads one stream until it goes away or is another.
fn watch(
    context: &Context,
    info: &StreamInfo,
    finder: &mut Finder<'_>,
    light: bool,
    stop: &Stop,
) -> lsl_core::Result<()> {
    let (wanted, seen) = (finder.wanted, finder.seen);
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
    let mut look = Look::new(
        values,
        info.nominal_srate(),
        wanted.limits.rate,
        local_clock(),
    );
    while !stop.requested() {
        let is_there = finder
            .find(Some(info))
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
    began: f64,
    counts: Counts,
    /// The smallest age of each of the last seconds, by the sender's clock.
    ages: VecDeque<f64>,
    second: f64,
    stamp: f64,
}

impl Look {
    fn new(values: Values, nominal: f64, least: Option<f64>, now: f64) -> Self {
        Self {
            values,
            began: now,
            counts: Counts {
                nominal,
                least,
                all: VecDeque::new(),
            },
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
        facts.rate = self.counts.rate(now, stats.samples);
        if let Some(correction) = correction {
            let lags = self.ages.iter().filter(|age| age.is_finite());
            let lags: Vec<f64> = lags.map(|age| age - correction.offset_secs).collect();
            facts.late_secs = lags.get(1..).and_then(|lags| lags.last()).copied();
            let day = Some(utc_now().as_secs_f64());
            let of_lag =
                |lag| ClockSuspect::of_sample(lag, self.stamp, day, correction.uncertainty_secs);
            let suspect = inlet.health().clock;
            facts.suspect = suspect.or_else(|| of_lag(facts.late_secs?));
        }
    }
}

/// Samples over a while.
struct Counts {
    nominal: f64,
    /// How many a second were demanded, if that was said.
    least: Option<f64>,
    /// When it was looked, and how many had come.
    all: VecDeque<(f64, u64)>,
}

impl Counts {
    /// Adds how many `samples` came until now, and returns how many come a second once that can be told.
    fn rate(&mut self, now: f64, samples: u64) -> Option<f64> {
        let least = self.least.map(|least| (FEW / least).min(LONGEST_SECS));
        let window = RATE_SECS.max(least.unwrap_or(0.0));
        self.all.push_back((now, samples));
        while self.all.front().is_some_and(|(at, _)| now - at > window) {
            self.all.pop_front();
        }
        let (from, first) = self.all.front()?;
        let (secs, came) = (now - from, samples.saturating_sub(*first));
        // Chunks come when they come; ten seconds of slow streams are few samples, unless it was said how many.
        let is_known = self.least.is_some() || self.nominal * secs >= FEWEST;
        // The next one may be on its way.
        let came = came + u64::from(self.least.is_some() && came > 0);
        #[expect(clippy::cast_precision_loss, reason = "samples of minutes")]
        let rate = came as f64 / secs;
        (is_known && secs >= window * 0.9).then_some(rate)
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
/// So many samples that are demanded take as long as is looked.
const FEW: f64 = 5.0;
const LONGEST_SECS: f64 = 600.0;
/// Answers to one wave come within.
const SAME_WAVE_SECS: f64 = 0.25;
const KEPT_SECONDS: usize = 5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_was_started_again_is_one_stream() {
        let mut answers = Answers::default();
        let mut look = |now: f64, answered: &[(&str, f64)]| {
            let all = answered
                .iter()
                .map(|(uid, at)| (uid.as_bytes().to_vec(), *at));
            let (found, last) = answers.living(now, &all.collect());
            (found, last.map(|it| String::from_utf8(it).unwrap()))
        };
        let one = |uid: &str| (1, Some(uid.to_owned()));
        assert_eq!(look(0.0, &[]), (0, None));
        assert_eq!(look(1.0, &[("z", 0.9)]), one("z"));
        // It ends, and comes back with another uid.
        for (now, at) in [(2.7, 2.6), (4.5, 4.4), (5.8, 4.4)] {
            assert_eq!(look(now, &[("a", at), ("z", 0.9)]), one("a"));
        }
        assert_eq!(look(6.0, &[("a", 4.4)]), one("a"));
        // Another one beside it: known once both answer.
        assert_eq!(look(6.3, &[("a", 4.4), ("b", 6.2)]), one("b"));
        assert_eq!(look(6.4, &[("a", 6.3), ("b", 6.2)]).0, 2);
        assert_eq!(look(8.0, &[("a", 6.3), ("b", 7.9)]).0, 2);
        // Both of a relay, which says it once.
        assert_eq!(look(10.0, &[("c", 10.0), ("d", 10.0)]).0, 2);
        assert_eq!(
            look(20.0, &[("c", 10.0), ("d", 18.0)]),
            (2, Some("d".into()))
        );
    }

    /// Samples a second that are told of one every `period` seconds.
    fn measured(nominal: f64, least: Option<f64>, period: f64, secs: u32) -> Option<f64> {
        let all = VecDeque::new();
        let mut counts = Counts {
            nominal,
            least,
            all,
        };
        let mut rate = None;
        for tenth in 0..=secs * 10 {
            let now = f64::from(tenth) / 10.0;
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "few"
            )]
            let samples = (now / period) as u64;
            rate = counts.rate(now, samples);
        }
        rate
    }

    #[test]
    fn a_rate_that_is_demanded_is_judged() {
        // Irregular and slow streams: only if it is said how many have to come.
        assert_eq!(measured(0.0, None, 0.1, 30), None);
        assert_eq!(measured(1.0, None, 1.0, 30), None);
        for least in [0.1, 0.5, 1.0, 7.0] {
            let told = |period| measured(0.0, Some(least), period, 120).unwrap();
            assert!(told(1.0 / least) >= least * 0.999, "{least}");
            assert!(told(2.0 / least) < least, "{least}");
        }
        assert!(
            measured(0.0, Some(0.1), 10.0, 30).is_none(),
            "too soon to tell"
        );
        assert_eq!(measured(0.0, Some(2.0), 1e9, 20), Some(0.0));
        let usual = measured(50.0, None, 0.02, 20).unwrap();
        assert!((usual - 50.0).abs() < 1.0, "{usual}");
    }
}
