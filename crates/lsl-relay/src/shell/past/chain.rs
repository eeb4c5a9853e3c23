//! Reads one past from several places, each of which has some of it. Spec: relay §9.

use lsl_core::relay::{FrameCodec, Frames, Past, ReadPast, ReadingPast, ReplayFrom};
use lsl_core::{Result, StreamInfo};

/// Places that keep samples of one numbering, the best first: another is asked only for what those before it lack.
#[derive(Debug)]
pub(super) struct Chain {
    places: Vec<Place>,
    codec: FrameCodec,
    oldest: u64,
    since: Option<u64>,
}

#[derive(Debug)]
struct Place {
    reader: Box<dyn ReadPast>,
    /// What was read of it, and is not passed on yet.
    ahead: Option<Frames>,
    /// Number before which it has nothing more.
    nothing_before: u64,
}

impl Chain {
    pub(super) fn new(info: &StreamInfo) -> Self {
        Self {
            places: Vec::new(),
            codec: FrameCodec::new(info),
            oldest: u64::MAX,
            since: None,
        }
    }

    /// Adds a place, behind all others.
    pub(super) fn add(&mut self, past: Past) {
        self.oldest = self.oldest.min(past.oldest);
        self.since = match (self.since, past.since) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
        self.places.push(Place {
            reader: past.reader,
            ahead: None,
            nothing_before: 0,
        });
    }

    /// Whether the places have the beginning of what a reader asks for; `edge` is the number of the next sample.
    pub(super) fn begins(&self, from: &ReplayFrom, edge: u64) -> bool {
        match from {
            ReplayFrom::Live => true,
            ReplayFrom::At(position, _) => position.next >= self.oldest,
            ReplayFrom::LastSamples(samples) => edge.saturating_sub(*samples) >= self.oldest,
            // The oldest that is there may have come within the time, and more before it.
            ReplayFrom::LastMillis(_) => self.since.is_some_and(|since| since > self.oldest),
            ReplayFrom::Oldest => false,
        }
    }

    /// Returns all of it as one; `None` without places.
    pub(super) fn into_past(self) -> Option<Past> {
        (!self.places.is_empty()).then(|| Past {
            oldest: self.oldest,
            since: self.since,
            reader: Box::new(self),
        })
    }

    async fn next(&mut self, from: u64, mut until: u64) -> Result<Option<Frames>> {
        let mut first: Option<&mut Place> = None;
        for place in &mut self.places {
            place.look(from, until, &self.codec).await?;
            let Some(ahead) = &place.ahead else {
                continue;
            };
            if ahead.first < until {
                until = ahead.first;
                first = Some(place);
            }
            if until <= from {
                break;
            }
        }
        Ok(first.and_then(|place| place.ahead.take()))
    }
}

impl ReadPast for Chain {
    fn read(&mut self, from: u64, until: u64) -> ReadingPast<'_> {
        Box::pin(self.next(from, until))
    }
}

impl Place {
    /// Sees to it that what this place has first of a range, if anything, is `ahead`.
    async fn look(&mut self, from: u64, until: u64, codec: &FrameCodec) -> Result<()> {
        if let Some(ahead) = self.ahead.take_if(|ahead| ahead.first < from)
            && ahead.end() > from
        {
            self.ahead = Some(ahead.starting_at(from, codec)?);
        }
        if self.ahead.is_some() || self.nothing_before >= until {
            return Ok(());
        }
        let from = from.max(self.nothing_before);
        let read = self.reader.read(from, until).await?;
        self.ahead = read.filter(|frames| frames.count > 0 && frames.first >= from);
        let first = self.ahead.as_ref().map_or(until, |ahead| ahead.first);
        self.nothing_before = first;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use lsl_core::ChannelFormat;

    use super::*;

    /// Keeps ranges of numbers, and counts how often it is asked.
    #[derive(Debug)]
    struct Kept {
        ranges: Vec<(u64, u64)>,
        asked: std::sync::Arc<std::sync::atomic::AtomicUsize>,
        codec: FrameCodec,
    }

    impl ReadPast for Kept {
        fn read(&mut self, from: u64, until: u64) -> ReadingPast<'_> {
            self.asked
                .fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let found = self.ranges.iter().find(|(_, end)| *end > from);
            let frames = found
                .filter(|(first, _)| *first < until)
                .map(|(first, end)| {
                    let first = from.max(*first);
                    // Ten at a time, without regard to the end that was asked for.
                    let numbers = first..(first + 10).min(*end);
                    frames(numbers, &self.codec)
                });
            Box::pin(std::future::ready(Ok(frames)))
        }
    }

    fn frames(numbers: std::ops::Range<u64>, codec: &FrameCodec) -> Frames {
        let mut frames = Frames {
            first: numbers.start,
            ..Frames::default()
        };
        let value = |n: u64| i32::try_from(n).expect("small");
        let raw: Vec<_> = numbers
            .clone()
            .flat_map(|n| value(n).to_ne_bytes())
            .collect();
        let stamps: Vec<_> = numbers.map(|n| f64::from(value(n))).collect();
        codec.encode(&stamps, &raw, &mut frames).expect("samples");
        frames
    }

    fn now<T>(future: impl Future<Output = T>) -> T {
        match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(done) => done,
            Poll::Pending => panic!("nothing here waits"),
        }
    }

    type Asked = std::sync::Arc<std::sync::atomic::AtomicUsize>;

    fn chain(places: &[&[(u64, u64)]]) -> (Chain, Vec<Asked>) {
        let info = StreamInfo::new("a", "", 1, 10.0, ChannelFormat::Int32, "a").expect("an info");
        let (mut chain, mut counts) = (Chain::new(&info), Vec::new());
        for ranges in places {
            let asked = Asked::default();
            counts.push(Asked::clone(&asked));
            let reader = Kept {
                ranges: ranges.to_vec(),
                asked,
                codec: FrameCodec::new(&info),
            };
            chain.add(Past {
                oldest: ranges.first().map_or(0, |it| it.0),
                since: None,
                reader: Box::new(reader),
            });
        }
        (chain, counts)
    }

    /// Reads all as an outlet does. Returns the numbers, each once.
    fn all(chain: &mut Chain, (mut next, until): (u64, u64)) -> Vec<u64> {
        let (mut numbers, codec) = (Vec::new(), chain.codec.clone());
        while next < until {
            let Some(read) = now(chain.next(next, until)).expect("frames") else {
                break;
            };
            assert!(
                read.first >= next && read.first < until,
                "{read:?} at {next}"
            );
            assert_eq!(read, frames(read.first..read.end(), &codec));
            numbers.extend(read.first..read.end());
            next = read.end();
        }
        numbers
    }

    #[test]
    fn what_one_place_lacks_comes_from_the_next_and_each_sample_once() {
        let places: [&[_]; 3] = [
            &[(40, 60), (75, 90)],
            &[(0, 5), (55, 78), (200, 210)],
            &[(3, 47), (85, 100)],
        ];
        let (mut chain, _) = chain(&places);
        let expected: Vec<_> = (0..100).collect();
        assert_eq!(all(&mut chain, (0, 100)), expected);
        // Where nobody has any there is a hole.
        let (mut chain, _) = self::chain(&[&[(10, 20)], &[(15, 18), (40, 45)]]);
        let expected: Vec<_> = (10..20).chain(40..45).collect();
        assert_eq!(all(&mut chain, (0, 45)), expected);
    }

    #[test]
    fn a_place_is_asked_for_nothing_that_another_has() {
        let (mut chain, asked) = chain(&[&[(0, 1000)], &[(0, 1000)]]);
        assert_eq!(all(&mut chain, (500, 1000)).len(), 500);
        let asked: Vec<_> = asked
            .iter()
            .map(|it| it.load(std::sync::atomic::Ordering::Relaxed))
            .collect();
        assert_eq!(asked, [50, 0]);
    }

    #[test]
    fn places_have_the_beginning_if_they_have_what_came_before() {
        let generation = lsl_core::Generation::parse(b"a").expect("a name");
        let at = |next| ReplayFrom::At(lsl_core::Position { generation, next }, None);
        let (chain, _) = chain(&[&[(40, 60)], &[(20, 30)]]);
        let begins = |from| chain.begins(&from, 100);
        assert!(begins(at(20)) && !begins(at(19)));
        assert!(begins(ReplayFrom::LastSamples(80)) && !begins(ReplayFrom::LastSamples(81)));
        assert!(!begins(ReplayFrom::Oldest) && begins(ReplayFrom::Live));
    }
}
