#![expect(clippy::float_cmp, reason = "these times are exact")]

use lsl_secure::trust::TrustList;

use super::*;
use crate::ChannelFormat;

mod place;
mod silence;

fn info(name: &str, channels: u32, uid: &str) -> StreamInfo {
    let mut info = StreamInfo::new(name, "EEG", channels, 1.0, ChannelFormat::Int8, "src").unwrap();
    info.reset_uid(uid);
    info
}

fn at(uid: &str, v4: &str, v6: &str) -> StreamInfo {
    let mut info = info("n", 2, uid);
    info.set_v4_ports(1, 2);
    info.set_v6_ports(3, 4);
    info.fill_v4_address(v4);
    info.fill_v6_address(v6);
    info
}

/// An inlet of the stream of [`info`] that knows the outlet "old".
fn recovery_of(config: &Config, is_recoverable: bool) -> Recovery {
    let old = at("old", "192.0.2.1", "2001:db8::1");
    Recovery::new(old, config, is_recoverable, |name| u32::from(name == "lo"))
}

/// The same with its feed wanted.
fn recovery() -> Recovery {
    let mut recovery = recovery_of(&Config::default(), true);
    recovery.handle(Input::Wanted(Purpose::Feed), 0.0);
    recovery
}

fn begin(recovery: &mut Recovery, purpose: Purpose, now: f64) -> Attempt {
    recovery.poll_connect(purpose, now).unwrap()
}

/// Fails an attempt of the feed, and takes the action that follows.
fn search(recovery: &mut Recovery, now: f64) -> f64 {
    let attempt = begin(recovery, Purpose::Feed, now);
    let notice = recovery.handle(Input::Failed(attempt.id, Failure::Connection), now);
    assert_eq!(notice, None);
    match recovery.poll_action() {
        Some(Action::Search(minimum_secs)) => minimum_secs,
        other => panic!("{other:?}"),
    }
}

/// Passes time until a connection of this purpose may begin. Returns when.
fn wait_for(recovery: &mut Recovery, purpose: Purpose) -> (f64, Attempt) {
    let mut now = 0.0;
    loop {
        if let Some(attempt) = recovery.poll_connect(purpose, now) {
            return (now, attempt);
        }
        now = recovery.poll_timeout().expect("nothing will happen");
        recovery.handle_timeout(&Flow::default(), now);
    }
}

#[test]
fn one_successor_is_adopted_and_the_known_outlet_preferred() {
    let check = |answers: &[(&str, u32, &str)], expected: &str| {
        let mut recovery = recovery();
        search(&mut recovery, 0.0);
        let answers = answers
            .iter()
            .map(|&(name, channels, uid)| info(name, channels, uid));
        let notice = recovery.handle(Input::Found(answers.collect()), 0.5);
        let verdict = match (notice, recovery.poll_action()) {
            (None, Some(Action::AskByTcp)) => "same".into(),
            (Some(Notice::Adopted), None) => format!("adopt {}", recovery.info().uid()),
            (None, Some(Action::Search(5.0))) => "ask again 0".into(),
            (Some(Notice::Ambiguous(candidates)), Some(Action::Search(5.0))) => {
                format!("ask again {candidates}")
            }
            other => format!("{other:?}"),
        };
        assert_eq!(verdict, expected);
    };
    check(&[], "ask again 0");
    check(&[("n", 2, "new")], "adopt new");
    check(&[("n", 2, "new"), ("n", 2, "old")], "same");
    check(&[("n", 2, "new"), ("n", 2, "other")], "ask again 2");
    // Not what was asked for, whoever says so.
    check(&[("n", 3, "new")], "ask again 0");
    check(&[("m", 2, "old")], "ask again 0");
    check(&[("m", 2, "liar"), ("n", 2, "new")], "adopt new");
}

#[test]
fn a_feed_that_never_comes_about_is_tried_ever_more_rarely() {
    let mut recovery = recovery();
    recovery.handle(Input::Wanted(Purpose::Clock), 0.0);
    let clock = begin(&mut recovery, Purpose::Clock, 0.0);
    let mut pauses = Vec::new();
    for failures in 0..9 {
        assert_eq!(recovery.is_hopeless(), failures >= 2);
        // The clock waits for the feed, and makes place for it.
        assert_eq!(recovery.is_current(clock.id), failures < 2);
        assert!(recovery.poll_connect(Purpose::Clock, 0.0).is_none());
        assert_eq!(search(&mut recovery, 0.0), 0.5);
        let same = StreamInfo::clone(recovery.info());
        assert_eq!(recovery.handle(Input::Found(vec![same]), 0.0), None);
        assert!(recovery.poll_connect(Purpose::Feed, 0.0).is_none());
        let (now, attempt) = wait_for(&mut recovery, Purpose::Feed);
        pauses.push(now);
        recovery.handle(Input::Wanted(Purpose::Feed), 0.0);
        assert!(!recovery.is_current(attempt.id));
    }
    assert_eq!(pauses, [0.5, 0.5, 1.0, 1.5, 2.5, 4.5, 8.5, 8.5, 8.5]);
    let pause = |recovery: &mut Recovery| {
        search(recovery, 0.0);
        let same = StreamInfo::clone(recovery.info());
        recovery.handle(Input::Found(vec![same]), 0.0);
        let (now, _) = wait_for(recovery, Purpose::Feed);
        recovery.handle(Input::Wanted(Purpose::Feed), 0.0);
        now
    };
    recovery.failures = u32::MAX - 1;
    assert_eq!([pause(&mut recovery), pause(&mut recovery)], [8.5, 8.5]);
    assert_eq!(recovery.failures, u32::MAX);
    recovery.handle(Input::Connected, 0.0);
    assert!(!recovery.is_hopeless() && recovery.rescues() == 1);
    assert!(recovery.poll_connect(Purpose::Clock, 0.0).is_some());
    assert_eq!(pause(&mut recovery), 0.5, "nothing is left of the failures");
}

#[test]
fn the_same_outlet_is_asked_where_it_was_before_anybody_moves() {
    let mut recovery = recovery();
    let same = at("old", "192.0.2.1", "2001:db8::1");
    // Another way to the same host, and the same place with another description.
    let elsewhere = at("old", "192.0.2.9", "2001:db8::1");
    let mut other = same.clone();
    other.set_hostname("liar");
    for found in [elsewhere.clone(), other] {
        search(&mut recovery, 0.0);
        assert_eq!(recovery.handle(Input::Found(vec![found]), 0.0), None);
        assert_eq!(recovery.poll_action(), Some(Action::AskByTcp));
        recovery.handle(Input::InPlace(true), 0.0);
        assert_eq!(recovery.poll_action(), None);
        let (_, attempt) = wait_for(&mut recovery, Purpose::Feed);
        assert_eq!(attempt.moves, 0);
        recovery.handle(Input::Wanted(Purpose::Feed), 0.0);
    }
    recovery.handle(Input::Done(Purpose::Feed), 0.0);
    recovery.handle(Input::Wanted(Purpose::Feed), 0.0);
    search(&mut recovery, 0.0);
    recovery.handle(Input::Found(vec![elsewhere]), 0.0);
    assert_eq!(recovery.poll_action(), Some(Action::AskByTcp));
    recovery.handle(Input::InPlace(false), 0.0);
    let attempt = begin(&mut recovery, Purpose::Feed, 0.0);
    assert_eq!((attempt.moves, recovery.moves()), (1, 1));
    assert_eq!(attempt.endpoint.unwrap().data.to_string(), "192.0.2.9:1");
    recovery.handle(Input::Refused(attempt.id), 0.0);
    assert!(recovery.refused.uids.is_empty(), "nobody's successor");
}

#[test]
fn a_successor_is_adopted_and_gives_way_once_it_was_refused() {
    let trust = || Arc::new(TrustList::default());
    let mut recovery = recovery();
    let new = at("new", "192.0.2.2", "");
    search(&mut recovery, 0.0);
    recovery.handle(Input::Found(vec![new.clone()]), 0.0);
    let attempt = begin(&mut recovery, Purpose::Feed, 0.0);
    assert_eq!((recovery.info().uid().as_ref(), attempt.moves), ("new", 1));
    let under = trust();
    recovery.handle(Input::Trust(Some(Arc::clone(&under))), 0.0);
    recovery.handle(Input::Refused(attempt.id - 1), 0.0);
    assert!(recovery.refused.uids.is_empty(), "not of this attempt");
    recovery.handle(Input::Refused(attempt.id), 0.0);
    let refused = Failure::Security {
        delay_secs: 10.0,
        is_busy: false,
    };
    recovery.handle(Input::Failed(attempt.id, refused), 0.0);
    assert_eq!(recovery.failures, 1, "a refusal has pauses of its own");
    let uid = recovery.sought().uid().into_owned();
    assert_ne!(uid, "new", "its answer alone would not do");
    // Alone it is tried again, after the pause, unless another list trusts it.
    assert_eq!(recovery.poll_action(), Some(Action::Search(0.5)));
    recovery.handle(Input::Found(vec![new.clone()]), 0.0);
    for second in 1..4 {
        let now = f64::from(second);
        assert_eq!(recovery.poll_timeout(), Some(now));
        recovery.handle_timeout(&Flow::default(), now);
        assert_eq!(recovery.poll_action(), Some(Action::LookAtTrust));
        assert_eq!(recovery.poll_timeout(), Some(10.0));
        recovery.handle(Input::Trust(Some(Arc::clone(&under))), now);
        assert!(recovery.poll_connect(Purpose::Feed, now).is_none());
        assert!(!recovery.refused.uids.is_empty());
    }
    recovery.handle(Input::Trust(Some(trust())), 4.0);
    assert!(recovery.refused.uids.is_empty());
    let attempt = begin(&mut recovery, Purpose::Feed, 4.0);
    assert_eq!(recovery.look_at, f64::INFINITY);
    // Refused again, it gives way to the one that is back.
    recovery.handle(Input::Refused(attempt.id), 4.0);
    recovery.handle(Input::Failed(attempt.id, refused), 4.0);
    assert_eq!(recovery.poll_action(), Some(Action::Search(0.5)));
    let back = at("back", "192.0.2.1", "");
    recovery.handle(Input::Found(vec![new, back]), 4.0);
    assert_eq!(recovery.info().uid(), "back");
    assert!(recovery.poll_connect(Purpose::Feed, 4.0).is_some());
    recovery.handle(Input::Connected, 4.0);
    assert!(recovery.refused.uids.is_empty());
    assert_eq!(recovery.sought().uid_bytes(), b"back");
}

#[test]
fn who_cannot_recover_is_lost_and_its_clock_waits() {
    let mut recovery = recovery_of(&Config::default(), false);
    for purpose in PURPOSES {
        recovery.handle(Input::Wanted(purpose), 0.0);
        let attempt = begin(&mut recovery, purpose, 0.0);
        assert_eq!(attempt.purpose, purpose);
        let failed = Input::Failed(attempt.id, Failure::Connection);
        let notice = recovery.handle(failed, 0.0);
        let is_clock = purpose == Purpose::Clock;
        assert_eq!(notice, (!is_clock).then_some(Notice::Lost));
        assert_eq!(recovery.poll_action(), None);
        assert_eq!(
            recovery.poll_timeout().is_some(),
            !matches!(purpose, Purpose::Feed)
        );
    }
    recovery.handle_timeout(&Flow::default(), 0.5);
    assert!(recovery.poll_connect(Purpose::Clock, 0.5).is_some());
}

#[test]
fn an_outlet_without_place_or_info_is_not_looked_for() {
    let mut recovery = recovery();
    recovery.handle(Input::Wanted(Purpose::FullInfo), 0.0);
    let mut pauses = Vec::new();
    for _ in 0..8 {
        let attempt = begin(&mut recovery, Purpose::FullInfo, 0.0);
        recovery.handle(Input::Failed(attempt.id, Failure::NotReady), 0.0);
        assert_eq!(recovery.poll_action(), None);
        pauses.push(recovery.poll_timeout().unwrap());
        recovery.handle_timeout(&Flow::default(), 9.0);
    }
    assert_eq!(pauses, [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]);
    for purpose in [Purpose::FullInfo, Purpose::Feed] {
        let attempt = begin(&mut recovery, purpose, 0.0);
        let busy = Failure::Security {
            delay_secs: 0.75,
            is_busy: true,
        };
        recovery.handle(Input::Failed(attempt.id, busy), 0.0);
        assert_eq!(recovery.poll_action(), None);
        assert_eq!(recovery.poll_timeout(), Some(0.75));
        assert_eq!(wait_for(&mut recovery, purpose).0, 0.75);
    }
}

#[test]
fn a_search_of_a_feed_that_was_closed_moves_nobody() {
    let mut recovery = recovery();
    let found = || vec![at("new", "192.0.2.2", "")];
    search(&mut recovery, 0.0);
    recovery.handle(Input::Done(Purpose::Feed), 0.1);
    recovery.handle(Input::Wanted(Purpose::Feed), 0.2);
    recovery.repeat_action();
    assert_eq!(recovery.poll_action(), None);
    let attempt = begin(&mut recovery, Purpose::Feed, 0.2);
    assert_eq!(recovery.handle(Input::Found(found()), 0.5), None);
    assert!(recovery.is_current(attempt.id) && attempt.moves == recovery.moves());
    // Nor does an answer that comes before anybody looked for work, nor one that was to be checked.
    recovery.handle(Input::Failed(attempt.id, Failure::Connection), 0.6);
    assert_eq!(recovery.poll_action(), Some(Action::Search(0.5)));
    recovery.handle(Input::Found(vec![at("old", "192.0.2.9", "")]), 1.1);
    assert_eq!(recovery.poll_action(), Some(Action::AskByTcp));
    recovery.handle(Input::Done(Purpose::Feed), 1.2);
    assert!(!recovery.has_action() && recovery.found.is_none());
    recovery.handle(Input::Wanted(Purpose::Feed), 1.2);
    let attempt = begin(&mut recovery, Purpose::Feed, 1.2);
    recovery.handle(Input::InPlace(false), 1.3);
    assert_eq!(recovery.handle(Input::Found(found()), 1.3), None);
    assert!(recovery.is_current(attempt.id) && attempt.moves == recovery.moves());
}

#[test]
fn the_search_after_one_that_was_given_up_begins_with_a_short_round() {
    for is_asked_again in [false, true] {
        let mut recovery = recovery();
        assert_eq!(search(&mut recovery, 0.0), 0.5);
        recovery.handle(Input::Found(vec![]), 0.5);
        if is_asked_again {
            assert_eq!(recovery.poll_action(), Some(Action::Search(5.0)));
        }
        recovery.handle(Input::Done(Purpose::Feed), 0.6);
        assert!(!recovery.has_action());
        recovery.handle(Input::Wanted(Purpose::Feed), 0.7);
        assert_eq!(search(&mut recovery, 0.8), 0.5);
    }
}

#[test]
fn answers_older_than_a_failure_say_nothing_about_it() {
    let mut recovery = recovery();
    recovery.handle(Input::Wanted(Purpose::Clock), 0.0);
    let clock = begin(&mut recovery, Purpose::Clock, 0.0);
    let feed = begin(&mut recovery, Purpose::Feed, 0.0);
    recovery.handle(Input::Failed(clock.id, Failure::Connection), 0.0);
    assert_eq!(recovery.poll_action(), Some(Action::Search(0.5)));
    recovery.handle(Input::Failed(feed.id, Failure::Connection), 0.4);
    assert_eq!(recovery.poll_action(), None);
    let same = || vec![at("old", "192.0.2.1", "2001:db8::1")];
    recovery.handle(Input::Found(same()), 0.5);
    assert_eq!(recovery.poll_action(), Some(Action::Search(0.5)));
    recovery.handle_timeout(&Flow::default(), 1.0);
    assert!(recovery.poll_connect(Purpose::Clock, 1.0).is_some());
    assert!(recovery.poll_connect(Purpose::Feed, 1.0).is_none());
    recovery.handle(Input::Found(same()), 1.0);
    recovery.handle_timeout(&Flow::default(), 1.5);
    assert!(recovery.poll_connect(Purpose::Feed, 1.5).is_some());
    assert_eq!(recovery.poll_action(), None);
}

#[test]
fn a_task_that_ended_gives_back_its_own_attempt_and_no_other() {
    let mut recovery = recovery();
    let taken = begin(&mut recovery, Purpose::Feed, 0.0);
    recovery.handle(Input::Returned(taken.id), 0.1);
    let next = begin(&mut recovery, Purpose::Feed, 0.1);
    recovery.handle(Input::Returned(taken.id), 0.2);
    assert!(recovery.is_current(next.id));
    recovery.handle(Input::Done(Purpose::Feed), 0.3);
    recovery.handle(Input::Returned(next.id), 0.4);
    assert!(recovery.poll_connect(Purpose::Feed, 0.4).is_none());
}

#[test]
fn an_attempt_that_did_its_work_is_over_unless_the_outlet_changed() {
    let mut recovery = recovery();
    recovery.handle(Input::Wanted(Purpose::FullInfo), 0.0);
    let stale = begin(&mut recovery, Purpose::FullInfo, 0.0);
    search(&mut recovery, 0.0);
    recovery.handle(Input::Found(vec![at("new", "192.0.2.2", "")]), 0.5);
    assert!(!recovery.finish(stale.id));
    let attempt = begin(&mut recovery, Purpose::FullInfo, 0.5);
    assert!(recovery.finish(attempt.id) && !recovery.is_current(attempt.id));
    assert!((recovery.poll_connect(Purpose::FullInfo, 0.5)).is_none());
}

#[test]
fn a_search_waits_for_no_look_at_the_trust_file_and_no_question() {
    let mut recovery = recovery();
    recovery.handle(Input::Wanted(Purpose::FullInfo), 0.0);
    let info = begin(&mut recovery, Purpose::FullInfo, 0.0);
    let feed = begin(&mut recovery, Purpose::Feed, 0.0);
    let busy = Failure::Security {
        delay_secs: 60.0,
        is_busy: true,
    };
    recovery.handle(Input::Failed(feed.id, busy), 0.0);
    recovery.handle_timeout(&Flow::default(), 1.0);
    assert_eq!(recovery.poll_action(), Some(Action::LookAtTrust));
    recovery.handle(Input::Failed(info.id, Failure::Connection), 1.1);
    assert_eq!(recovery.poll_action(), Some(Action::Search(0.5)));
    recovery.handle(Input::Found(vec![StreamInfo::clone(&feed.info)]), 1.6);
    // The look is due again.
    recovery.handle_timeout(&Flow::default(), recovery.poll_timeout().unwrap());
    assert_eq!(recovery.poll_action(), Some(Action::LookAtTrust));
    // It may come to nothing.
    recovery.handle(Input::Trust(None), 1.7);
    assert!(!recovery.has_action());
    assert_eq!(recovery.look_at, 2.7);

    let mut recovery = recovery_of(&Config::default(), true);
    recovery.handle(Input::Wanted(Purpose::Feed), 0.0);
    recovery.handle(Input::Wanted(Purpose::Clock), 0.0);
    let feed = begin(&mut recovery, Purpose::Feed, 0.0);
    let clock = begin(&mut recovery, Purpose::Clock, 0.0);
    recovery.handle_timeout(&Flow::default(), 30.0);
    assert_eq!(recovery.poll_action(), Some(Action::AskByUdp));
    recovery.handle(Input::Failed(clock.id, Failure::Connection), 30.1);
    assert_eq!(recovery.poll_action(), Some(Action::Search(0.5)));
    recovery.handle(Input::Found(vec![StreamInfo::clone(&feed.info)]), 46.0);
    assert_eq!(recovery.poll_action(), None);
    assert_eq!(recovery.watch.unwrap().next_look, 60.0);
}

#[test]
fn only_a_full_info_that_is_asked_for_anew_is_asked_for_often_again() {
    let mut recovery = recovery();
    let mut pause = |wanted: Purpose| {
        recovery.handle(Input::Wanted(wanted), 0.0);
        let attempt = begin(&mut recovery, Purpose::FullInfo, 0.0);
        recovery.handle(Input::Failed(attempt.id, Failure::NotReady), 0.0);
        let pause_secs = recovery.poll_timeout();
        recovery.handle_timeout(&Flow::default(), 9.0);
        pause_secs.unwrap()
    };
    assert_eq!(pause(Purpose::FullInfo), 0.1);
    assert_eq!(pause(Purpose::Feed), 0.2);
    assert_eq!(pause(Purpose::Clock), 0.4);
    assert_eq!(pause(Purpose::FullInfo), 0.1);
}

#[test]
fn all_connections_go_over_to_the_successor_at_once() {
    let mut recovery = recovery();
    recovery.handle(Input::Wanted(Purpose::Clock), 0.0);
    recovery.handle(Input::Wanted(Purpose::FullInfo), 0.0);
    let feed = begin(&mut recovery, Purpose::Feed, 0.0);
    let clock = begin(&mut recovery, Purpose::Clock, 0.0);
    let info = begin(&mut recovery, Purpose::FullInfo, 0.0);
    recovery.handle(Input::Failed(clock.id, Failure::Connection), 0.0);
    recovery.handle(Input::Failed(info.id, Failure::NotReady), 0.0);
    assert_eq!(recovery.poll_action(), Some(Action::Search(0.5)));
    assert!(recovery.is_current(feed.id));
    recovery.handle(Input::Found(vec![at("new", "192.0.2.2", "")]), 0.5);
    assert!(!recovery.is_current(feed.id));
    for purpose in PURPOSES {
        let attempt = begin(&mut recovery, purpose, 0.5);
        assert_eq!((attempt.moves, attempt.info.uid().as_ref()), (1, "new"));
    }
    recovery.handle(Input::Failed(feed.id, Failure::Connection), 0.6);
    assert_eq!(recovery.poll_action(), None, "an attempt that is over");
}

#[test]
fn a_feed_that_can_go_on_is_dialled_twice_where_it_was_before_the_search() {
    for is_recoverable in [true, false] {
        let mut recovery = recovery_of(&Config::default(), is_recoverable);
        recovery.handle(Input::Wanted(Purpose::Feed), 0.0);
        let attempt = begin(&mut recovery, Purpose::Feed, 0.0);
        let resumable = |id| Input::Failed(id, Failure::Resumable);
        recovery.handle(Input::Connected, 0.0);
        assert_eq!(recovery.handle(resumable(attempt.id), 5.0), None);
        let again = begin(&mut recovery, Purpose::Feed, 5.0);
        assert_eq!(again.endpoint, attempt.endpoint);
        assert_eq!(recovery.handle(resumable(again.id), 5.01), None);
        assert_eq!(recovery.poll_action(), None);
        assert!(recovery.poll_connect(Purpose::Feed, 5.05).is_none());
        assert!((recovery.poll_timeout().unwrap() - 5.1).abs() < 1e-9);
        recovery.handle_timeout(&Flow::default(), 5.11);
        let last = begin(&mut recovery, Purpose::Feed, 5.11);
        // As without anything to resume.
        let notice = recovery.handle(resumable(last.id), 5.2);
        assert_eq!(notice, (!is_recoverable).then_some(Notice::Lost));
        assert_eq!(recovery.poll_action().is_some(), is_recoverable);
    }
}

#[test]
fn an_outlet_that_breaks_every_feed_is_dialled_ten_times_a_second_at_most() {
    let mut recovery = recovery();
    let mut dials = 0;
    let mut now = 0.0;
    while now < 10.0 {
        recovery.handle_timeout(&Flow::default(), now);
        while let Some(attempt) = recovery.poll_connect(Purpose::Feed, now) {
            dials += 1;
            recovery.handle(Input::Connected, now);
            recovery.handle(Input::Failed(attempt.id, Failure::Resumable), now);
        }
        now += 0.001;
    }
    assert!((90..=102).contains(&dials), "{dials}");
}
