//! Decides which samples of an engine are too old or too many. Spec: relay §12.1.

use std::collections::{HashMap, VecDeque};

use lsl_proto::wire::sequence::Generation;

/// What was written of each stream, and when.
#[derive(Debug)]
pub struct Trim {
    max_age_secs: f64,
    max_bytes: u64,
    bytes: u64,
    streams: HashMap<Generation, Written>,
}

#[derive(Debug, Default)]
struct Written {
    /// Parts in their order.
    parts: VecDeque<Part>,
    /// Sequence number after the last sample, and when that was written.
    end: u64,
    at: f64,
}

/// Samples that go together.
#[derive(Debug)]
struct Part {
    first: u64,
    begun_at: f64,
    bytes: u64,
}

impl Trim {
    /// Creates one that keeps samples for this time in seconds, and so many bytes of all streams.
    pub fn new(max_age_secs: f64, max_bytes: u64) -> Self {
        Self {
            max_age_secs,
            max_bytes,
            bytes: 0,
            streams: HashMap::new(),
        }
    }

    /// Notes that a stream is written from this sequence number on. What is stored before counts as written now.
    pub fn begin(&mut self, generation: &Generation, next: u64, now: f64) {
        self.note(generation, 0, next, 0, now);
    }

    /// Notes samples that were written.
    pub fn note(&mut self, generation: &Generation, first: u64, end: u64, bytes: u64, now: f64) {
        let (most_secs, most_bytes) = (self.max_age_secs / PARTS, self.max_bytes / BYTE_PARTS);
        let stream = self.streams.entry(*generation).or_default();
        let last = stream.parts.back_mut();
        match last.filter(|it| now - it.begun_at < most_secs && it.bytes < most_bytes) {
            Some(part) => part.bytes = part.bytes.saturating_add(bytes),
            None => stream.parts.push_back(Part {
                first,
                begun_at: now,
                bytes,
            }),
        }
        self.bytes = self.bytes.saturating_add(bytes);
        (stream.end, stream.at) = (stream.end.max(end), now);
    }

    /// Forgets a stream that is written no more.
    pub fn forget(&mut self, generation: &Generation) {
        if let Some(stream) = self.streams.remove(generation) {
            let bytes = stream.parts.iter().map(|part| part.bytes).sum();
            self.bytes = self.bytes.saturating_sub(bytes);
        }
    }

    /// Returns of each stream that has too much the first sequence number to keep.
    pub fn due(&mut self, now: f64) -> Vec<(Generation, u64)> {
        let oldest = now - self.max_age_secs;
        let mut due = HashMap::new();
        for (generation, stream) in &mut self.streams {
            while stream.ended_at().is_some_and(|ended| ended <= oldest) {
                self.bytes = self.bytes.saturating_sub(stream.pop());
                due.insert(*generation, stream.first());
            }
        }
        while self.bytes > self.max_bytes {
            let begun = |stream: &Written| Some(stream.parts.front()?.begun_at);
            let streams = self.streams.iter_mut();
            let oldest = streams
                .filter_map(|(generation, stream)| Some((begun(stream)?, generation, stream)))
                .min_by(|(one, ..), (other, ..)| one.total_cmp(other));
            let Some((_, generation, stream)) = oldest else {
                break;
            };
            self.bytes = self.bytes.saturating_sub(stream.pop());
            due.insert(*generation, stream.first());
        }
        due.into_iter().collect()
    }
}

impl Written {
    /// When the last of the oldest part was written.
    fn ended_at(&self) -> Option<f64> {
        self.parts.front()?;
        Some(self.parts.get(1).map_or(self.at, |part| part.begun_at))
    }

    /// Removes the oldest part. Returns its bytes.
    fn pop(&mut self) -> u64 {
        self.parts.pop_front().map_or(0, |part| part.bytes)
    }

    fn first(&self) -> u64 {
        self.parts.front().map_or(self.end, |part| part.first)
    }
}

/// Parts that the samples of a stream are removed in, by age.
const PARTS: f64 = 64.0;

/// The same by size, of all streams.
const BYTE_PARTS: u64 = 256;

#[cfg(test)]
mod tests {
    use super::*;

    fn generation(name: &str) -> Generation {
        Generation::parse(name.as_bytes()).expect("a generation")
    }

    #[test]
    fn samples_go_when_they_are_too_old_not_before_and_the_oldest_first() {
        let (one, other) = (generation("1"), generation("2"));
        let mut trim = Trim::new(64.0, 1000);
        trim.begin(&one, 500, 0.0);
        for n in 0..100_u32 {
            let (first, now) = (500 + u64::from(n) * 10, f64::from(n));
            trim.note(&one, first, first + 10, 1, now);
            assert!(trim.streams[&one].parts.len() <= 66);
            let kept = trim.due(now).first().map(|it| it.1);
            // What was stored before, and what was written in the first second, goes when that is 64 s ago.
            let expected = (n >= 65).then(|| 500 + u64::from(n - 64) * 10);
            assert_eq!(kept, expected, "{n}");
        }
        // A stream that is silent goes as a whole.
        assert_eq!(trim.due(200.0), [(one, 1500)]);
        assert_eq!((trim.due(300.0), trim.bytes), (vec![], 0));
        // Of all streams together the oldest goes.
        trim.note(&one, 1500, 1501, 600, 301.0);
        trim.note(&other, 0, 1, 300, 302.0);
        assert_eq!(trim.due(303.0), []);
        trim.note(&other, 1, 2, 300, 304.0);
        assert_eq!(trim.due(304.0), [(one, 1501)]);
        trim.forget(&other);
        assert_eq!(trim.bytes, 0);
    }
}
