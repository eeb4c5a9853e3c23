//! Lost streams that share one search, which asks for every stream: whose answer is whose, and when an answer is
//! handed out. A sender of 2,000 streams that restarts, and adverts of streams that never existed, cost one query
//! per wave and a few hundred bytes for each stream. Spec: lsl-protocol §10.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

use super::search::Search;
use crate::StreamInfo;
use crate::inlet::successor::{is_same_stream, recovery_query};

/// Streams that the shared search looks for; `T` stands for whoever waits for the answers.
#[derive(Debug)]
pub struct LostStreams<T> {
    /// By the key of their recovery queries.
    waiting: HashMap<u64, Vec<Waiting<T>>>,
}

#[derive(Debug)]
struct Waiting<T> {
    lost: StreamInfo,
    since: f64,
    not_before: f64,
    /// Time of the first answer, in seconds of `local_clock`.
    answered: Option<f64>,
    waiter: T,
}

/// What the shared search asks for.
#[derive(Debug, Default)]
pub struct LostQueries {
    /// Nothing, if everybody is to be asked.
    pub texts: Vec<Vec<u8>>,
    /// Whether one stream is lost, as liblsl would look for it.
    pub is_single: bool,
}

impl<T> Default for LostStreams<T> {
    fn default() -> Self {
        Self {
            waiting: HashMap::new(),
        }
    }
}

impl<T> LostStreams<T> {
    /// Waits until somebody answers for this stream, and at least `minimum_secs`.
    pub fn wait_for(&mut self, lost: &StreamInfo, minimum_secs: f64, now: f64, waiter: T) {
        let waiting = Waiting {
            lost: lost.clone(),
            since: now,
            not_before: now + minimum_secs,
            answered: None,
            waiter,
        };
        let key = key(self.waiting.hasher(), lost, texts(lost));
        self.waiting.entry(key).or_default().push(waiting);
    }

    /// Returns what to ask for: the query of liblsl for one stream, a few of them joined, or nothing, if everybody is to
    /// be asked. Spec: doctor §2.4.
    pub fn queries(&self) -> LostQueries {
        let first = |alike: &Vec<Waiting<T>>| Some(recovery_query(&alike.first()?.lost));
        let mut texts: Vec<Vec<u8>> = Vec::new();
        for query in self.waiting.values().filter_map(first) {
            match texts.last_mut() {
                Some(last) if last.len() + OR.len() + query.len() <= MAX_QUERY_BYTES => {
                    last.extend_from_slice(OR);
                    last.extend_from_slice(&query);
                }
                _ => texts.push(query),
            }
            if texts.len() > MAX_QUERIES {
                return LostQueries::default();
            }
        }
        LostQueries {
            texts,
            is_single: self.waiting.len() == 1,
        }
    }

    /// Forgets those who do not wait any more.
    pub fn retain(&mut self, is_waiting: impl Fn(&T) -> bool) {
        self.waiting.retain(|_, waiting| {
            waiting.retain(|waiting| is_waiting(&waiting.waiter));
            !waiting.is_empty()
        });
    }

    /// Returns whether somebody could wait for the stream of this answer.
    pub fn is_awaited(&self, info: &StreamInfo) -> bool {
        keys(self.waiting.hasher(), info).any(|key| self.waiting.contains_key(&key))
    }

    /// Returns the number of streams that are waited for.
    pub fn len(&self) -> usize {
        self.waiting.values().map(Vec::len).sum()
    }

    /// Returns whether nobody waits for a stream.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Takes those for whom somebody answered since they wait, with all who did. Costs each answer a few
    /// look-ups.
    pub fn hand_out(&mut self, search: &Search, now: f64) -> Vec<(T, Vec<StreamInfo>)> {
        let mut answers: HashMap<u64, Vec<(&StreamInfo, f64)>> = HashMap::new();
        for (info, last_seen) in search.answers() {
            for key in keys(self.waiting.hasher(), info) {
                if self.waiting.contains_key(&key) {
                    answers.entry(key).or_default().push((info, last_seen));
                }
            }
        }
        let mut found = Vec::new();
        for (key, alike) in answers {
            let waiting = self.waiting.entry(key).or_default();
            for ready in waiting.extract_if(.., |waiting| waiting.is_ready(&alike, now)) {
                let candidates = ready.candidates(&alike).into_iter().cloned().collect();
                found.push((ready.waiter, candidates));
            }
        }
        self.waiting.retain(|_, waiting| !waiting.is_empty());
        found
    }
}

impl<T> Waiting<T> {
    /// Whether the outlet itself answered, or others that look like it had time to answer too. Nobody else will do
    /// then, so that there is nothing to wait for.
    fn is_ready(&mut self, alike: &[(&StreamInfo, f64)], now: f64) -> bool {
        let found = self.candidates(alike);
        let Some(first) = found.first() else {
            return false;
        };
        let is_known = first.uid_bytes() == self.lost.uid_bytes();
        let answered = *self.answered.get_or_insert(now);
        is_known || (now >= self.not_before && now >= answered + GATHER_SECS)
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

/// Joins queries.
const OR: &[u8] = b" or ";

/// Length of joined queries, which leave in datagrams of 1,200 bytes at most.
const MAX_QUERY_BYTES: usize = 1100;

/// Joined queries of a wave; more streams are looked for by asking everybody.
const MAX_QUERIES: usize = 4;

/// Outlets of one stream that are handed out: twice as many as an inlet remembers as refused.
const MAX_CANDIDATES: usize = 32;

/// From the first answer for a stream until it is handed out, so that a second candidate is noticed.
const GATHER_SECS: f64 = 0.5;

#[cfg(test)]
mod tests;
