//! A lane between an outlet and an engine.

use lsl_proto::ChannelFormat;

use super::*;

/// A stream of some batches, which ends later than that.
#[derive(Clone)]
struct Past {
    batches: VecDeque<Frames>,
    end: u64,
    is_fetching: bool,
}

impl Past {
    /// Batches of 5 samples that begin at these numbers.
    fn new(firsts: &[u64], end: u64) -> Self {
        let batch = |first: &u64| Frames {
            first: *first,
            count: 5,
            bytes: vec![0; 50],
        };
        let batches = firsts.iter().map(batch).collect();
        Self {
            batches,
            end,
            is_fetching: false,
        }
    }
}

impl Source for Past {
    fn next(&self) -> u64 {
        0
    }

    fn seek(&mut self, next: u64) {
        self.batches.retain(|batch| batch.end() > next);
    }

    fn read(&mut self, _most_bytes: usize, frames: &mut Frames) -> bool {
        let batch = self.batches.pop_front();
        batch.map(|batch| *frames = batch).is_some()
    }

    fn end(&self) -> Option<u64> {
        Some(self.end)
    }

    fn is_fetching(&self) -> bool {
        self.is_fetching
    }
}

fn lane() -> Lane {
    let info = StreamInfo::new("s", "t", 1, 0.0, ChannelFormat::Int8, "").unwrap();
    Lane::new(&info, Arc::new(Room::new(1 << 20)))
}

/// Writes all until the end. Returns the first and last number of each append.
fn finish(lane: &mut Lane, past: &mut Past, mut left_out: u64) -> Vec<(u64, u64)> {
    let mut appends = Vec::new();
    loop {
        lane.read(past);
        match lane.poll(0.0) {
            Step::Append(batches) => {
                appends.push((batches[0].first, batches[batches.len() - 1].end()));
                lane.appended(Ok(std::mem::take(&mut left_out)), 0.0);
            }
            Step::Finish(end) => {
                assert_eq!(end, Some(past.end));
                lane.finished(Ok(()), 0.0);
            }
            Step::Over => return appends,
            step => panic!("{step:?}"),
        }
    }
}

#[test]
fn what_is_appended_at_once_has_no_gap_and_what_found_no_place_is_lost() {
    let (mut lane, mut past) = (lane(), Past::new(&[0, 5, 12, 17], 22));
    lane.read(&mut past);
    lane.opened(Ok(Opened::Ours(None)), &mut past, 0.0);
    let appends = finish(&mut lane, &mut past, 3);
    assert_eq!(appends, [(0, 10), (12, 22)]);
    assert_eq!((lane.counts().stored, lane.counts().lost), (17, 2 + 3));
}

#[test]
fn the_end_of_a_stream_is_stored_by_another_relay_if_who_wrote_it_dies() {
    for dies in [true, false] {
        let (mut lane, mut past) = (lane(), Past::new(&[0, 5, 10], 20));
        lane.opened(Ok(Opened::Theirs), &mut past, 0.0);
        let mut now = 0.0;
        while lane.stands_by() {
            lane.read(&mut past);
            match lane.poll(now) {
                Step::Open if dies && now > 9.0 => {
                    lane.opened(Ok(Opened::Ours(Some(10))), &mut past, now);
                    lane.retry_at = 0.0;
                }
                Step::Open => lane.opened(Ok(Opened::Theirs), &mut past, now),
                Step::Wait(until) => now = until,
                step => assert_eq!(step, Step::Over),
            }
        }
        let appends = finish(&mut lane, &mut past, 0);
        assert_eq!(appends, if dies { vec![(10, 15)] } else { vec![] });
        let counts = (lane.counts().stored, lane.counts().lost);
        assert_eq!(counts, if dies { (5, 5) } else { (0, 0) });
        assert!(now <= 70.0, "{now}");
    }
}

#[test]
fn what_is_missing_at_the_end_is_counted_as_lost() {
    for is_given_up in [false, true] {
        let (mut lane, mut past) = (lane(), Past::new(&[10], 20));
        assert!(lane.read(&mut past));
        assert_eq!(lane.poll(0.0), Step::Open);
        lane.opened(Ok(Opened::Ours(Some(10))), &mut past, 0.0);
        assert!(matches!(lane.poll(0.0), Step::Append(_)));
        if is_given_up {
            lane.appended(Err(EngineError::new(ErrorKind::Retry, "")), 0.0);
            lane.give_up();
        } else {
            lane.appended(Ok(0), 0.0);
            assert_eq!(lane.poll(0.0), Step::Finish(Some(20)));
            lane.finished(Ok(()), 0.0);
        }
        assert_eq!(lane.poll(9.0), Step::Over);
        let stored = if is_given_up { 0 } else { 5 };
        let counts = lane.counts();
        assert_eq!((counts.stored, counts.lost), (stored, 10 - stored));
    }
}

#[test]
fn a_stream_is_not_over_while_samples_of_it_are_fetched() {
    let (mut lane, mut past) = (lane(), Past::new(&[], 5));
    past.is_fetching = true;
    assert!(lane.read(&mut past) && !lane.has_read_all());
    past = Past::new(&[0], 5);
    lane.opened(Ok(Opened::Ours(None)), &mut past, 0.0);
    assert_eq!(finish(&mut lane, &mut past, 0), [(0, 5)]);
}
