//! What a lane reads of a stream: its outlet, and of the history what the outlet let go meanwhile. Spec: relay §12.

use lsl_core::relay::{ReadPast, Tap};
use lsl_proto::outlet::frames::Frames;

use crate::engine::spool;

/// Source of the samples of one numbering.
#[derive(Debug, Clone)]
pub(super) struct Source {
    outlet: Outlet,
    /// Number before which nothing is fetched; `None` without a history.
    floor: Option<u64>,
    /// First number that history has, and the one behind the last, as far as it was looked.
    kept: Option<(u64, u64)>,
    /// Number up to which history was asked, from `next` on.
    asked_until: u64,
    /// What it had, and is read next.
    fetched: Option<Frames>,
}

/// What is read of a stream, until all of it was: then its outlet is not held any more.
#[derive(Debug, Clone)]
enum Outlet {
    Open(Tap),
    Over { next: u64, end: u64 },
}

impl Source {
    /// Reads a tap; where that lacks samples from its present place on, they are to be fetched if there `is_history`.
    pub(super) fn new(tap: Tap, is_history: bool) -> Self {
        Self {
            floor: is_history.then_some(tap.next()),
            kept: None,
            asked_until: 0,
            fetched: None,
            outlet: Outlet::Open(tap),
        }
    }

    /// Notes the first number that history has, and the one behind the last.
    pub(super) fn note_kept(&mut self, kept: Option<(u64, u64)>) {
        self.kept = kept;
    }

    /// Whether history has samples between `floor` and this number, and what follows them is there, too.
    fn has_kept_before(&self, tap: &Tap, number: u64) -> bool {
        self.floor
            .zip(self.kept)
            .is_some_and(|(floor, (first, end))| {
                let first = first.max(floor).max(tap.next());
                first < end.min(number) && tap.stored_from(number) <= end.max(number)
            })
    }

    /// Fetches the next samples that the outlet lacks, if it lacks any.
    pub(super) async fn fetch(&mut self, history: &mut impl ReadPast) {
        let Some((from, until)) = self.lacking() else {
            return;
        };
        self.asked_until = until;
        match history.read(from, until).await {
            Ok(Some(frames)) if frames.first < until && frames.count > 0 => {
                self.asked_until = frames.end();
                self.fetched = Some(frames);
            }
            Ok(_) => {}
            Err(error) => tracing::warn!("engine: {error}; the samples from {from} on are a gap"),
        }
    }

    /// Returns the numbers of samples that are not in the outlet any more, and for which history was not asked.
    fn lacking(&self) -> Option<(u64, u64)> {
        let Outlet::Open(tap) = &self.outlet else {
            return None;
        };
        if self.fetched.is_some() {
            return None;
        }
        let from = tap.next().max(self.floor?).max(self.asked_until);
        let until = tap.stored_from(from);
        (from < until).then_some((from, until))
    }

    /// Lets go of the outlet once all of it was read.
    pub(super) fn release(&mut self) {
        if let Outlet::Open(tap) = &self.outlet
            && let Some(end) = tap.end()
        {
            let next = tap.next();
            self.outlet = Outlet::Over { next, end };
        }
    }

    pub(super) async fn ready(&self) {
        match &self.outlet {
            Outlet::Open(tap) => tap.ready().await,
            Outlet::Over { .. } => std::future::pending().await,
        }
    }

    pub(super) fn waiting_bytes(&self) -> usize {
        match &self.outlet {
            Outlet::Open(tap) => tap.waiting_bytes(),
            Outlet::Over { .. } => 0,
        }
    }
}

impl spool::Source for Source {
    fn next(&self) -> u64 {
        match &self.outlet {
            Outlet::Open(tap) => tap.next(),
            Outlet::Over { next, .. } => *next,
        }
    }

    fn seek(&mut self, to: u64) {
        // An engine that has nothing may begin where the outlet does.
        if let Some(floor) = self.floor.as_mut().filter(|_| to > 0) {
            *floor = (*floor).min(to);
        }
        (self.asked_until, self.fetched) = (0, None);
        match &mut self.outlet {
            Outlet::Open(tap) => tap.seek(to),
            Outlet::Over { next, .. } => *next = to,
        }
    }

    fn read(&mut self, most_bytes: usize, frames: &mut Frames) -> bool {
        if self.lacking().is_some() {
            return false;
        }
        let Outlet::Open(tap) = &mut self.outlet else {
            return false;
        };
        match self.fetched.take() {
            Some(fetched) => {
                tap.seek(fetched.end());
                *frames = fetched;
                true
            }
            None => tap.read(most_bytes, frames),
        }
    }

    fn end(&self) -> Option<u64> {
        match &self.outlet {
            Outlet::Open(tap) => tap.end(),
            Outlet::Over { end, .. } => Some(*end),
        }
    }

    fn is_fetching(&self) -> bool {
        self.lacking().is_some()
    }

    fn has_before(&self, number: u64) -> bool {
        match &self.outlet {
            Outlet::Open(tap) => {
                tap.stored_from(tap.next()) < number || self.has_kept_before(tap, number)
            }
            Outlet::Over { .. } => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::ready;
    use std::sync::Arc;
    use std::task::{self, Waker};

    use lsl_core::relay::{FrameCodec, Origin, ReadingPast};
    use lsl_core::{ChannelFormat, Context, Generation, Outlet, Position, StreamInfo};

    use super::*;
    use crate::engine::Opened;
    use crate::engine::spool::{Lane, Room, Step};

    /// A history that has these numbers.
    #[derive(Debug)]
    struct Kept(FrameCodec, std::ops::Range<u64>);

    impl ReadPast for Kept {
        fn read(&mut self, from: u64, until: u64) -> ReadingPast<'_> {
            let numbers = from.max(self.1.start)..until.min(self.1.end);
            let values: Vec<u8> = numbers.clone().map(|_| 7).collect();
            let mut frames = Frames {
                first: numbers.start,
                ..Frames::default()
            };
            let stamps = vec![1.0; values.len()];
            let encoded = self.0.encode(&stamps, &values, &mut frames);
            Box::pin(ready(encoded.map(|()| Some(frames))))
        }
    }

    fn outlet(info: &StreamInfo, next: u64) -> Outlet {
        let generation = Generation::parse(b"5f3c").expect("a generation");
        let outlet = Outlet::builder(info.clone());
        let outlet = outlet.context(&Context::new(lsl_core::config::Config::loopback()));
        let origin = Origin {
            first: Position { generation, next },
            clock: Arc::default(),
        };
        let retained = outlet.retain(crate::shell::source::RETAINED);
        retained.relayed(origin).expect("an outlet")
    }

    #[test]
    fn what_history_kept_while_an_engine_was_away_is_no_gap_there_though_newer_samples_wait() {
        let info = StreamInfo::new("s", "", 1, 100.0, ChannelFormat::Int8, "s");
        let mut info = info.expect("an info");
        info.reset_uid("5f3c");
        let outlet = outlet(&info, 5000);
        outlet.push_run(&[7; 10], &[1.0; 10]).expect("pushed");
        for (kept, first) in [(500..5000, 500), (500..4990, 500), (100..400, 5000)] {
            let mut source = Source::new(outlet.tap(0), true);
            let mut lane = Lane::new(&info, Arc::new(Room::new(1 << 20)));
            // It waits, as nobody knows yet what the engine has.
            assert!(lane.read(&mut source));
            source.note_kept(Some((kept.start, kept.end)));
            lane.opened(Ok(Opened::Ours(Some(500))), &mut source, 0.0);
            lane.read(&mut source);
            let mut history = Kept(FrameCodec::new(&info), kept);
            let mut fetched = Box::pin(source.fetch(&mut history));
            let polled = fetched
                .as_mut()
                .poll(&mut task::Context::from_waker(Waker::noop()));
            assert!(polled.is_ready());
            drop(fetched);
            lane.read(&mut source);
            let Step::Append(batches) = lane.poll(0.0) else {
                panic!("nothing to append");
            };
            assert_eq!(batches.first().map(|it| it.first), Some(first));
        }
    }
}
