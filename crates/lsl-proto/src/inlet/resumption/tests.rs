use super::super::{Connection, Exchange, Feed, FeedOptions, Pull, SampleRing};
use super::*;
use crate::clock::PostProcessor;
use crate::wire::response::{DataProtocol, FeedResponse};

use crate::wire::testpattern;
use crate::{ByteOrder, ChannelFormat, ProcessingOptions, StreamInfo};

const CAPACITY: usize = 4;

fn stream() -> StreamInfo {
    let info = StreamInfo::new("n", "", 1, 10.0, ChannelFormat::Int8, "s");
    let mut info = info.unwrap();
    info.reset_uid("u");
    info
}

fn feed() -> Feed {
    let ring = SampleRing::new(CAPACITY, usize::MAX);
    let shape = (1, ChannelFormat::Int8);
    let mut feed = Feed::new(ring, PostProcessor::new(10.0, 90.0), shape, true);
    feed.ask_for(ReplayFrom::Live);
    feed
}

fn generation(name: &str) -> Generation {
    Generation::parse(name.as_bytes()).unwrap()
}

/// A connection of `feed` that an outlet has granted, or not.
fn connect(feed: &mut Feed, granted: Option<(&str, u64, u64)>) -> (Connection, Result<()>) {
    connect_with(feed, granted, &[])
}

/// The same, with bytes behind the test patterns that come in the same read.
fn connect_with(
    feed: &mut Feed,
    granted: Option<(&str, u64, u64)>,
    behind: &[u8],
) -> (Connection, Result<()>) {
    let options = FeedOptions {
        version: 110,
        max_buffer_samples: 100,
        max_chunk_samples: 0,
    };
    let decoder = FeedDecoder::asking(&stream(), options, feed.asked(0.0));
    let exchange = Exchange::Feed(Box::new(decoder));
    let mut connection = Connection::plain(([127, 0, 0, 1], 1).into(), exchange);
    let response = FeedResponse {
        byte_order: ByteOrder::NATIVE,
        suppress_subnormals: false,
        data_protocol: DataProtocol::V110,
        granted: granted.map(|(name, begin, live)| Granted {
            generation: generation(name),
            begin,
            live,
            end: None,
        }),
    };
    let mut bytes = response.to_bytes(110, b"u");
    testpattern::for_each(ChannelFormat::Int8, 1, |raw| {
        bytes.push(2);
        bytes.extend(testpattern::TIMESTAMP.to_ne_bytes());
        bytes.extend_from_slice(raw);
    });
    bytes.extend_from_slice(behind);
    let taken = receive(feed, &mut connection, &bytes);
    (connection, taken)
}

fn receive(feed: &mut Feed, connection: &mut Connection, bytes: &[u8]) -> Result<()> {
    let (_, taken) = feed.handle_input(connection, &mut bytes.to_vec(), || 0.0);
    match taken {
        Err(super::super::Disconnect::Failed(error)) => Err(error),
        taken => {
            taken.unwrap();
            Ok(())
        }
    }
}

/// Samples with these values and deduced stamps.
fn samples(values: std::ops::Range<u8>) -> Vec<u8> {
    values.flat_map(|value| [1, value]).collect()
}

fn pull(feed: &mut Feed) -> Vec<(i8, f64)> {
    let (mut values, mut stamps) = ([0_i8; 100], [0.0; 100]);
    let mut pull = Pull::new(&mut values, Some(&mut stamps), 1);
    feed.take(&mut pull, || 0.0).unwrap();
    let pulled = pull.pulled();
    values.into_iter().zip(stamps).take(pulled).collect()
}

fn next(feed: &Feed) -> u64 {
    feed.position().unwrap().next
}

#[test]
fn replay_waits_for_room_in_the_ring_and_live_samples_do_not() {
    let mut feed = feed();
    feed.ask_for(ReplayFrom::Oldest);
    let (mut connection, taken) = connect(&mut feed, Some(("a", 0, 7)));
    taken.unwrap();
    receive(&mut feed, &mut connection, &samples(0..9)).unwrap();
    assert_eq!((feed.ring.len(), next(&feed)), (CAPACITY, 4));
    assert!(feed.is_held_back(&connection));
    assert_eq!(pull(&mut feed).len(), CAPACITY);
    let (read, taken) = feed.refill(&mut connection, || 0.0);
    taken.unwrap();
    // From the live edge on everything comes, and the oldest make room.
    assert_eq!((read.samples, next(&feed), feed.ring.dropped()), (5, 9, 1));
    assert!(!feed.is_held_back(&connection));
    assert_eq!(feed.resume_counts().replayed, 7);
    let values: Vec<_> = pull(&mut feed).into_iter().map(|it| it.0).collect();
    assert_eq!(values, [5, 6, 7, 8]);
}

#[test]
fn stamps_go_on_over_a_connection_that_lost_nothing_and_only_then() {
    let mut feed = feed();
    let (mut connection, _) = connect(&mut feed, Some(("a", 5, 5)));
    let mut first = vec![2];
    first.extend(100.0_f64.to_ne_bytes());
    first.push(1);
    receive(&mut feed, &mut connection, &first).unwrap();
    let position = Position {
        generation: generation("a"),
        next: 6,
    };
    assert_eq!(
        feed.asked(1.5).unwrap().from,
        ReplayFrom::At(position, Some(1_500))
    );
    let (mut connection, _) = connect(&mut feed, Some(("a", 6, 7)));
    receive(&mut feed, &mut connection, &samples(2..3)).unwrap();
    let (mut connection, _) = connect(&mut feed, Some(("a", 9, 9)));
    receive(&mut feed, &mut connection, &samples(3..4)).unwrap();
    let expected = [(1, 100.0), (2, 100.1), (3, 0.1)];
    assert_eq!(format!("{:?}", pull(&mut feed)), format!("{expected:?}"));
    let counts = *feed.resume_counts();
    assert_eq!(
        (counts.resumed, counts.lost_exact, counts.generations),
        (1, 2, 1)
    );
    let gaps = feed.take_gaps(usize::MAX);
    assert_eq!(
        (gaps[0].sequence, gaps[0].lost, gaps[0].stamp_before),
        (7, Some(2), Some(100.1))
    );
}

#[test]
fn numbers_that_contradict_end_the_feed_and_the_next_begins_live_once() {
    let far = [&[3, 1][..], &(1_u64 << 63).to_ne_bytes()].concat();
    let contradictions: [(u64, u64, &[u8]); 5] = [
        // Begins before what was asked for; after its live edge; gaps that lead nowhere.
        (5, 20, &[]),
        (21, 20, &[]),
        (10, 10, &[3, 1, 10, 0, 0, 0, 0, 0, 0, 0]),
        // Asked for again they would come again, ten times a second: a number that is none; an unknown tag.
        (10, 10, &far),
        (10, 10, &[4]),
    ];
    for (begin, live, bytes) in contradictions {
        let mut feed = feed();
        let (mut connection, _) = connect(&mut feed, Some(("a", 0, 0)));
        for value in 0..10 {
            receive(&mut feed, &mut connection, &samples(value..value + 1)).unwrap();
        }
        let (mut connection, taken) = connect(&mut feed, Some(("a", begin, live)));
        let taken = taken.and_then(|()| receive(&mut feed, &mut connection, bytes));
        assert!(taken.is_err(), "{begin} {live}");
        assert_eq!(feed.asked(0.0).unwrap().from, ReplayFrom::Live);
        connect(&mut feed, Some(("a", 30, 30))).1.unwrap();
        assert_eq!(feed.resume_counts().lost_unknown, 1);
        assert!(matches!(feed.asked(0.0).unwrap().from, ReplayFrom::At(..)));
    }
}

#[test]
fn other_numberings_and_none_are_losses_of_unknown_size() {
    let mut feed = feed();
    for (granted, losses) in [
        (Some(("a", 0, 0)), 0),
        (Some(("b", 0, 2)), 1),
        (None, 2),
        (None, 3),
        (Some(("b", 7, 7)), 4),
    ] {
        connect(&mut feed, granted).1.unwrap();
        assert_eq!(feed.resume_counts().lost_unknown, losses);
        assert_eq!(feed.position().is_some(), granted.is_some());
    }
    assert_eq!(
        (
            feed.resume_counts().generations,
            feed.take_gaps(usize::MAX).len()
        ),
        (2, 4)
    );
    feed.clear();
    assert_eq!(feed.asked(0.0).unwrap().from, ReplayFrom::Live);
    connect(&mut feed, Some(("c", 7, 7))).1.unwrap();
    assert_eq!(feed.resume_counts().lost_unknown, 4, "the user left");
}

#[test]
fn corrections_count_lost_samples_where_they_are_missing() {
    let mut feed = feed();
    feed.processing.set_options(ProcessingOptions::DEJITTER);
    let (mut connection, _) = connect(&mut feed, Some(("a", 0, 0)));
    let mut twin = PostProcessor::new(10.0, 90.0);
    twin.set_options(ProcessingOptions::DEJITTER);
    let mut expected = Vec::new();
    let mut bytes = Vec::new();
    for (number, lost) in [(0, 0), (1, 0), (7, 5), (8, 0)] {
        if lost > 0 {
            bytes.extend(
                Gap {
                    reason: GapReason::ReaderTooSlow,
                    to: number,
                }
                .to_bytes(ByteOrder::NATIVE),
            );
            twin.flush(lost);
        }
        let stamp = 50.0 + 0.1 * f64::from(u8::try_from(number).unwrap());
        bytes.push(2);
        bytes.extend(stamp.to_ne_bytes());
        bytes.push(0);
        expected.push(twin.process(stamp, 0.0, || None).unwrap());
    }
    receive(&mut feed, &mut connection, &bytes).unwrap();
    let stamps: Vec<_> = pull(&mut feed).into_iter().map(|it| it.1).collect();
    assert_eq!(format!("{stamps:?}"), format!("{expected:?}"));
    let lost = feed.take_lost(|| 0.0);
    assert_eq!(lost, Some((5, GapReason::ReaderTooSlow)));
    assert_eq!(next(&feed), 9);
}

#[test]
fn what_came_in_one_read_with_a_mistake_does_not_come_twice() {
    let mut feed = feed();
    let (mut connection, _) = connect(&mut feed, Some(("a", 0, 0)));
    receive(&mut feed, &mut connection, &samples(0..1)).unwrap();
    let behind = [&samples(1..3)[..], &[4]].concat();
    assert!(
        connect_with(&mut feed, Some(("a", 1, 1)), &behind)
            .1
            .is_err()
    );
    assert_eq!(feed.ring.len(), 3);
    let Some(Asked { from, .. }) = feed.asked(0.0) else {
        panic!("it asks");
    };
    assert!(
        !matches!(from, ReplayFrom::At(position, _) if position.next < 3),
        "{from:?}"
    );
}

#[test]
fn losses_beyond_all_numbers_are_counted_as_far_as_that_goes() {
    let mut feed = feed();
    for name in ["a", "b", "c"] {
        let (mut connection, _) = connect(&mut feed, Some((name, 0, 0)));
        let gap = Gap {
            reason: GapReason::Skipped,
            to: (1 << 63) - 1,
        };
        receive(&mut feed, &mut connection, &gap.to_bytes(ByteOrder::NATIVE)).unwrap();
    }
    assert_eq!(feed.resume_counts().lost_exact, u64::MAX);
}

#[test]
fn what_was_asked_for_last_counts() {
    let mut feed = feed();
    let position = Position {
        generation: generation("a"),
        next: 10,
    };
    feed.ask_for(ReplayFrom::At(position, None));
    feed.ask_for(ReplayFrom::Oldest);
    assert_eq!(feed.asked(0.0).unwrap().from, ReplayFrom::Oldest);
}

#[test]
fn a_position_that_the_outlet_contradicts_is_an_unknown_loss_on_a_first_connection_too() {
    let mut feed = feed();
    let position = Position {
        generation: generation("a"),
        next: 10,
    };
    feed.ask_for(ReplayFrom::At(position, None));
    // As our outlets answer to a number that they have not given yet.
    assert!(connect(&mut feed, Some(("a", 0, 5))).1.is_err());
    connect(&mut feed, Some(("a", 5, 5))).1.unwrap();
    assert_eq!(feed.resume_counts().lost_unknown, 1);
}

#[test]
fn stamps_are_not_deduced_over_a_loss_that_no_sample_has_followed_yet() {
    for (name, begin) in [("a", 9), ("b", 9)] {
        let mut feed = feed();
        let (mut connection, _) = connect(&mut feed, Some(("a", 5, 5)));
        let first = [&[2][..], &100.0_f64.to_ne_bytes(), &[1]].concat();
        receive(&mut feed, &mut connection, &first).unwrap();
        connect(&mut feed, Some((name, begin, begin))).1.unwrap();
        let (mut connection, _) = connect(&mut feed, Some((name, begin, begin)));
        receive(&mut feed, &mut connection, &samples(2..3)).unwrap();
        let expected = [(1, 100.0), (2, 0.1)];
        assert_eq!(format!("{:?}", pull(&mut feed)), format!("{expected:?}"));
    }
}

#[test]
fn the_log_is_told_of_few_losses_and_of_all_that_were_lost() {
    let mut feed = feed();
    let (mut connection, _) = connect(&mut feed, Some(("a", 0, 0)));
    let (mut lines, mut told) = (0, 0);
    for second in 1..1000_u32 {
        let gap = Gap {
            reason: GapReason::ReaderTooSlow,
            to: second.into(),
        };
        let gap = gap.to_bytes(ByteOrder::NATIVE);
        receive(&mut feed, &mut connection, &gap).unwrap();
        if let Some((lost, _)) = feed.take_lost(|| second.into()) {
            lines += 1;
            told += lost;
        }
    }
    told += feed.take_lost(|| 2000.0).unwrap().0;
    assert_eq!(told, 999);
    assert!(lines < 30, "{lines}");
}

#[test]
fn an_outage_lasts_from_the_first_break_to_the_connection_that_opens() {
    let mut feed = feed();
    connect(&mut feed, Some(("a", 0, 0))).1.unwrap();
    feed.disconnected(-5.0);
    // Accepted, and closed again.
    feed.disconnected(-2.0);
    connect(&mut feed, Some(("a", 0, 0))).1.unwrap();
    let outage_secs = feed.take_reconnection().unwrap().outage_secs;
    assert_eq!(outage_secs.to_bits(), 5.0_f64.to_bits());
}

#[test]
fn a_stream_that_ended_is_not_asked_for_more_at_once() {
    for (begin, goes_on) in [(0, true), (2, false)] {
        let mut resumption = Resumption::default();
        resumption.begin(ReplayFrom::Live.into());
        assert!(!resumption.can_go_on());
        let granted = Granted {
            generation: generation("a"),
            begin,
            live: 2,
            end: Some(2),
        };
        resumption.opened(Some(&granted), 0, false, 0.0);
        assert_eq!(resumption.can_go_on(), goes_on);
    }
}
