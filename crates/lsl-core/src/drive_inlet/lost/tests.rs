use lsl_proto::discovery::search::SearchAction;

use super::*;
use crate::ChannelFormat;

fn stream(name: &str, source_id: &str, uid: &str) -> StreamInfo {
    let info = StreamInfo::new(name, "EEG", 1, 1.0, ChannelFormat::Int8, source_id);
    let mut info = info.unwrap();
    info.reset_uid(uid);
    info
}

fn answer(search: &mut Search, info: &StreamInfo, now: f64) {
    let from = ([127, 0, 0, 1], 16_572).into();
    search.handle_reply(from, &info.to_shortinfo_xml(), now);
}

/// Looks a few times after `now`, as the task of the search does.
fn look_from(lost: &Lost, search: &mut Search, now: f64) {
    for tick in 0..20 {
        lost.look(Some(&mut *search), now + 0.1 * f64::from(tick));
    }
}

type Found = oneshot::Receiver<Vec<StreamInfo>>;

fn uids(found: &mut Found) -> Vec<String> {
    let infos = found.try_recv().unwrap_or_default();
    infos.iter().map(|info| info.uid().into_owned()).collect()
}

#[test]
fn only_streams_that_somebody_waits_for_are_kept() {
    let context = Context::new(lsl_proto::config::Config::loopback());
    let lost = context.lost();
    let mut search = search_for_awaited(&context, 0.0);
    let gone = stream("amplifier", "serial", "gone");
    let (mut found, _) = lost.wait_for(&gone, 0.5, 1.0);
    for number in 0..1000 {
        let (name, uid) = (format!("stranger {number}"), format!("a-{number}"));
        answer(&mut search, &stream(&name, "serial", &uid), 1.1);
    }
    assert_eq!(search.len(), 0);
    answer(&mut search, &stream("amplifier", "serial", "back"), 1.1);
    assert_eq!(search.len(), 1);
    look_from(lost, &mut search, 1.1);
    assert_eq!(uids(&mut found), ["back"]);
    // Another becomes wanted while the search runs, and every veto counts.
    let _waiting = lost.wait_for(&stream("stranger 7", "", "gone-7"), 0.5, 3.0);
    answer(&mut search, &stream("stranger 7", "serial", "b-7"), 3.1);
    assert_eq!(search.len(), 2);
    let mut search = search.with_veto(Veto(Arc::new(|info| info.uid() == "b-8")));
    for (number, expected) in [(7, 2), (8, 2), (9, 3)] {
        let uid = format!("b-{number}");
        answer(&mut search, &stream("stranger 7", "serial", &uid), 3.2);
        assert_eq!(search.len(), expected);
    }
    answer(&mut search, &stream("stranger 8", "serial", "c"), 3.2);
    assert_eq!(search.len(), 3);
}

#[test]
fn a_stream_whose_host_moved_is_found_where_it_is_now() {
    let context = Context::new(lsl_proto::config::Config::loopback());
    let lost = context.lost();
    let mut search = search_for_awaited(&context, 0.0);
    let gone = stream("amplifier", "serial", "gone");
    for (wave, host) in [(1.0, 2), (5.0, 3)] {
        let (mut found, _) = lost.wait_for(&gone, 0.5, wave);
        while !matches!(search.poll(wave), SearchAction::WaitUntil(_)) {}
        let from = ([127, 0, 0, host], 16_572).into();
        search.handle_reply(from, &gone.to_shortinfo_xml(), wave + 0.1);
        look_from(lost, &mut search, wave + 0.1);
        let infos = found.try_recv().unwrap();
        assert_eq!(infos[0].v4_address(), format!("127.0.0.{host}"));
    }
}

#[test]
fn nobody_waits_for_a_search_that_did_not_start() {
    let lost = Lost::default();
    let gone = stream("amplifier", "serial", "gone");
    let (mut first, starts) = lost.wait_for(&gone, 0.5, 1.0);
    assert!(starts);
    // Came while the first tried to start it.
    let (mut second, starts) = lost.wait_for(&gone, 0.5, 1.0);
    assert!(!starts);
    lost.give_up();
    for found in [&mut first, &mut second] {
        let error = found.try_recv().unwrap_err();
        assert_eq!(error, oneshot::error::TryRecvError::Closed);
    }
    assert!(lost.wait_for(&gone, 0.5, 1.0).1);
}
