use super::*;
use crate::ChannelFormat;
use crate::discovery::search::{Goal, WaveTimes};

fn stream(name: &str, source_id: &str, uid: &str) -> StreamInfo {
    let info = StreamInfo::new(name, "EEG", 1, 1.0, ChannelFormat::Int8, source_id);
    let mut info = info.unwrap();
    info.reset_uid(uid);
    info
}

fn search() -> Search {
    let goal = Goal::Continuous {
        forget_after_secs: 60.0,
    };
    Search::new(b"", WaveTimes::default(), goal, 0.0)
}

fn answer(search: &mut Search, info: &StreamInfo, now: f64) {
    let from = ([127, 0, 0, 1], 16_572).into();
    search.handle_reply(from, &info.to_shortinfo_xml(), now);
}

type Found = Vec<(usize, Vec<String>)>;

fn look(lost: &mut LostStreams<usize>, search: &Search, now: f64) -> Found {
    let uid = |info: StreamInfo| info.uid().into_owned();
    let found = lost.hand_out(search, now).into_iter();
    found
        .map(|(waiter, infos)| (waiter, infos.into_iter().map(uid).collect()))
        .collect()
}

/// Looks a few times after `now`, as the driver does.
fn look_from(lost: &mut LostStreams<usize>, search: &Search, now: f64) -> Found {
    let times = (0..20).map(|tick| now + 0.1 * f64::from(tick));
    times.flat_map(|now| look(lost, search, now)).collect()
}

#[test]
fn many_streams_of_one_source_id_all_come_back() {
    const STREAMS: usize = 60;
    let (mut lost, mut search) = (LostStreams::default(), search());
    // Names and uids that sort alike, and types that a program left out.
    let name = |number: usize| format!("channel group {number:02}");
    for number in 0..STREAMS {
        let stream_type = if number % 2 == 0 { "EEG" } else { "" };
        let gone = StreamInfo::new(
            name(number),
            stream_type,
            1,
            1.0,
            ChannelFormat::Int8,
            "serial",
        );
        lost.wait_for(&gone.unwrap(), 0.5, 1.0, number);
    }
    for number in 0..STREAMS {
        let uid = format!("back-{number:02}");
        answer(&mut search, &stream(&name(number), "serial", &uid), 1.1);
    }
    let mut found = look_from(&mut lost, &search, 1.1);
    found.sort();
    let expected = |number| (number, vec![format!("back-{number:02}")]);
    assert_eq!(found, (0..STREAMS).map(expected).collect::<Vec<_>>());
    assert!(lost.is_empty());
}

#[test]
fn adverts_with_the_source_id_of_a_lost_stream_do_not_hide_it() {
    let (mut lost, mut search) = (LostStreams::default(), search());
    let gone = stream("amplifier", "serial", "gone");
    lost.wait_for(&gone, 0.5, 1.0, 0);
    for number in 0..40 {
        let forged = stream("another", "serial", &format!("a-{number:02}"));
        answer(&mut search, &forged, 1.1);
    }
    answer(&mut search, &stream("amplifier", "serial", "back"), 1.1);
    let found = look_from(&mut lost, &search, 1.1);
    assert_eq!(found, [(0, vec!["back".to_owned()])]);
}

#[test]
fn candidates_that_answer_one_after_the_other_are_seen_together() {
    let (mut lost, mut search) = (LostStreams::default(), search());
    let gone = stream("amplifier", "serial", "gone");
    // Long after it was lost.
    lost.wait_for(&gone, 0.5, 1.0, 0);
    let first = stream("amplifier", "serial", "first");
    answer(&mut search, &first, 9.0);
    assert_eq!(look(&mut lost, &search, 9.0), []);
    let second = stream("amplifier", "serial", "second");
    answer(&mut search, &second, 9.1);
    let found = look_from(&mut lost, &search, 9.1);
    assert_eq!(found, [(0, vec!["first".to_owned(), "second".to_owned()])]);

    // Whom we know needs no comparison.
    lost.wait_for(&first, 0.5, 10.0, 1);
    answer(&mut search, &first, 10.1);
    answer(&mut search, &second, 10.1);
    let found = look(&mut lost, &search, 10.1);
    assert_eq!(found, [(1, vec!["first".to_owned()])]);
    lost.wait_for(&first, 0.5, 11.0, 2);
    assert_eq!(
        look(&mut lost, &search, 11.1),
        [],
        "it answered before that"
    );
    lost.retain(|waiter| *waiter != 2);
    assert!(lost.is_empty());
}

#[test]
fn few_streams_are_asked_for_by_name_and_many_are_not() {
    let mut lost = LostStreams::default();
    let mut counts = Vec::new();
    for number in 0..60 {
        let gone = stream(&format!("amplifier {number}"), "serial", "gone");
        lost.wait_for(&gone, 0.5, 0.0, number);
        // Another reader of it.
        lost.wait_for(&gone, 0.5, 0.0, 100 + number);
        let LostQueries {
            texts: queries,
            is_single,
        } = lost.queries();
        assert_eq!(is_single, number == 0);
        if number == 0 {
            assert_eq!(queries, [recovery_query(&gone)]);
        }
        for query in &queries {
            assert!(query.len() <= MAX_QUERY_BYTES);
            let found = crate::query::Query::parse(query).unwrap();
            assert!(!stream("another", "serial", "x").matches(&found).unwrap());
        }
        let found = |query: &Vec<u8>| {
            let query = crate::query::Query::parse(query).unwrap();
            gone.matches(&query).unwrap()
        };
        assert_eq!(queries.iter().any(found), !queries.is_empty());
        counts.push(queries.len());
    }
    assert_eq!((counts[1], counts[59]), (1, 0));
    assert!(counts.contains(&4), "{counts:?}");
}
