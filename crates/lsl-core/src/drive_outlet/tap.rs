//! Reads what an outlet retains, in this process: for the history and the engine of a relay. Spec: relay §2, §9, §12.

use std::sync::Arc;

use lsl_proto::outlet::fanout::Fanout;
use lsl_proto::outlet::frames::Frames;
use lsl_proto::wire::sequence::Generation;

use crate::drive_outlet::push::OutletShared;
use crate::{Outlet, StreamInfo};

/// Reader of an outlet that was made by [`OutletBuilder::relayed`](crate::OutletBuilder::relayed) with
/// [`Retain::unread`](crate::Retain::unread). It holds nothing back: what is retained no more before it was read is
/// missing, as the numbers of what is read next tell. It is no consumer. The outlet may end before.
#[derive(Debug, Clone)]
pub struct Tap {
    shared: Arc<OutletShared>,
    next: u64,
    missed: u64,
}

impl Outlet {
    /// Creates a tap whose first sample is the first one that is retained, or comes, at or after `from`.
    #[doc(hidden)]
    pub fn tap(&self, from: u64) -> Tap {
        let shared = Arc::clone(&self.shared);
        let next = from.max(shared.first).max(shared.fanout.lock().trimmed());
        Tap {
            shared,
            next,
            missed: 0,
        }
    }
}

impl Tap {
    /// Returns the stream.
    pub fn info(&self) -> &StreamInfo {
        &self.shared.identity.info
    }

    /// Returns the name of its numbering.
    pub fn generation(&self) -> Option<Generation> {
        self.shared.generation
    }

    /// Returns the number of the next sample to read. What is read next may have a later one.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Goes to another number, also back.
    pub fn seek(&mut self, next: u64) {
        self.next = next;
    }

    /// Replaces `frames` by the next samples: those that follow each other, at most `most_bytes` of them but at least
    /// one. False, and nothing is changed, if none is there. Does not block.
    pub fn read(&mut self, most_bytes: usize, frames: &mut Frames) -> bool {
        let fanout = self.shared.fanout.lock();
        if !fanout.read(self.next, most_bytes, frames) {
            return false;
        }
        self.missed += (fanout.trimmed().min(frames.first)).saturating_sub(self.next);
        self.next = frames.end();
        true
    }

    /// Returns the bytes that could be read now, without the timestamp that is added to the first.
    pub fn waiting_bytes(&self) -> usize {
        self.shared.fanout.lock().bytes_from(self.next)
    }

    /// Returns the number of the first sample at or after `from` that could be read now, or would come next.
    pub fn stored_from(&self, from: u64) -> u64 {
        self.shared.fanout.lock().next_stored(from)
    }

    /// Returns how many samples were let go before they were read.
    pub fn missed(&self) -> u64 {
        let trimmed = self.shared.fanout.lock().trimmed();
        self.missed + trimmed.saturating_sub(self.next)
    }

    /// Returns the number at which the stream ends, once it has ended: all before it can be read at once, or is lost.
    pub fn end(&self) -> Option<u64> {
        let is_closing = self.shared.fanout.lock().is_closing();
        is_closing.then(|| self.shared.numbers.count())
    }

    /// Waits until there is something to read, or the stream has ended. Dropping the future loses nothing.
    pub async fn ready(&self) {
        let next = self.next;
        let fanout = &self.shared.fanout;
        let is_ready =
            |fanout: &mut Fanout<_>| (fanout.has(next) || fanout.is_closing()).then_some(());
        fanout.wait(f64::INFINITY, is_ready).await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use lsl_proto::config::Config;
    use lsl_proto::outlet::frames::{FrameCodec, Frames};
    use lsl_proto::outlet::retention::Retain;
    use lsl_proto::wire::sequence::{GapReason, Position};

    use super::*;
    use crate::net::runtime;
    use crate::relay::Origin;
    use crate::{ChannelFormat, Context};

    fn outlet(bytes: usize) -> Outlet {
        let security = Arc::new(lsl_secure::Security::off(Vec::new()).unwrap());
        let context = Context::with_security(Config::loopback(), security);
        let mut info = StreamInfo::new("a", "", 1, 100.0, ChannelFormat::Int32, "a").unwrap();
        info.reset_uid("5f3c");
        let retain = Retain {
            seconds: 1e4,
            bytes,
            unread: true,
        };
        let first = Position {
            generation: Generation::parse(b"5f3c").unwrap(),
            next: 1000,
        };
        let clock = Arc::default();
        let builder = Outlet::builder(info).context(&context).retain(retain);
        builder.relayed(Origin { first, clock }).unwrap()
    }

    fn push(outlet: &Outlet, values: std::ops::Range<i32>) {
        let stamps: Vec<_> = values.clone().map(|n| f64::from(n) / 100.0).collect();
        let raw: Vec<_> = values.flat_map(i32::to_ne_bytes).collect();
        outlet.push_run(&raw, &stamps).unwrap();
    }

    /// Returns number, value and timestamp of all samples that are there.
    fn read(tap: &mut Tap) -> Vec<(u64, i32, f64)> {
        let codec = FrameCodec::new(tap.info());
        let (mut all, mut frames) = (Vec::new(), Frames::default());
        while tap.read(100, &mut frames) {
            let (mut stamps, mut raw) = (Vec::new(), Vec::new());
            codec.decode(&frames, &mut stamps, &mut raw).unwrap();
            let values = raw.as_chunks().0.iter().map(|it| i32::from_ne_bytes(*it));
            let samples = (frames.first..).zip(values).zip(stamps);
            all.extend(samples.map(|((number, value), stamp)| (number, value, stamp)));
        }
        all
    }

    #[test]
    fn a_tap_has_what_was_pushed_with_numbers_and_stamps_and_misses_what_was_lost() {
        let outlet = outlet(1 << 20);
        let mut tap = outlet.tap(0);
        assert_eq!(read(&mut tap), []);
        push(&outlet, 0..50);
        outlet.lose(7, GapReason::LostBefore).unwrap();
        push(&outlet, 57..60);
        let expected = |values: &mut dyn Iterator<Item = i32>| -> Vec<(u64, i32, f64)> {
            let sample = |n: i32| (1000 + u64::from(n.unsigned_abs()), n, f64::from(n) / 100.0);
            values.map(sample).collect()
        };
        assert_eq!(read(&mut tap), expected(&mut (0..50).chain(57..60)));
        assert_eq!(
            read(&mut outlet.tap(1048)),
            expected(&mut [48, 49, 57, 58, 59].into_iter())
        );
        push(&outlet, 60..61);
        outlet.close();
        assert_eq!(read(&mut tap), expected(&mut (60..61)));
        assert_eq!(tap.end(), Some(1061));
    }

    #[test]
    fn a_tap_that_is_slow_misses_the_oldest_and_holds_nothing_back() {
        let outlet = outlet(100_000);
        let mut tap = outlet.tap(0);
        for begin in (0..100_000).step_by(500) {
            push(&outlet, begin..begin + 500);
        }
        assert!(outlet.stats().retained_bytes <= 100_000);
        let samples = read(&mut tap);
        let (first, last) = (samples[0], *samples.last().unwrap());
        assert!(first.0 > 90_000 && samples.len() as u64 == last.0 + 1 - first.0);
        assert!(tap.missed() > 80_000 && tap.missed() <= first.0 - 1000);
        assert!(
            samples
                .iter()
                .all(|it| it.0 == 1000 + u64::from(it.1.unsigned_abs()))
        );
    }

    #[test]
    fn what_a_tap_did_not_read_before_it_was_let_go_is_missed() {
        let outlet = outlet(1 << 20);
        let mut tap = outlet.tap(0);
        push(&outlet, 0..50);
        outlet.close();
        assert_eq!((tap.missed(), tap.waiting_bytes() > 0), (0, true));
        outlet
            .shared
            .look_after_retention(lsl_platform::clock::local_clock() + 1e6);
        assert_eq!(read(&mut tap), []);
        assert_eq!((tap.missed(), tap.end()), (50, Some(1050)));
    }

    #[test]
    fn a_tap_that_waits_learns_of_samples_and_of_the_end() {
        let outlet = outlet(1 << 20);
        let (told, is_told) = std::sync::mpsc::channel();
        let mut tap = outlet.tap(0);
        let reading = async move {
            loop {
                tap.ready().await;
                // Before the reading: what comes later is not the end of what was read.
                let has_ended = tap.end().is_some();
                told.send(read(&mut tap).len()).unwrap();
                if has_ended {
                    break;
                }
            }
        };
        runtime::spawn(reading).unwrap();
        let mut received = 0;
        let limit = std::time::Duration::from_secs(20);
        for n in 0..100 {
            push(&outlet, n..n + 1);
            if n % 10 == 0 {
                while received <= n {
                    let count = is_told.recv_timeout(limit).unwrap();
                    received += i32::try_from(count).unwrap();
                }
            }
        }
        outlet.close();
        while let Ok(count) = is_told.recv_timeout(limit) {
            received += i32::try_from(count).unwrap();
        }
        assert_eq!(received, 100);
    }
}
