#![expect(clippy::float_cmp, reason = "these times are exact")]

use lsl_secure::trust::TrustList;

use super::*;
use crate::ChannelFormat;

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

/// A feed of which nothing is known but when its last sample came.
fn arrived_at(last_arrival: f64) -> Flow {
    Flow {
        last_arrival: Some(last_arrival),
        ..Flow::default()
    }
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
fn ipv4_is_preferred_unless_ipv6_is_in_use_or_the_only_one() {
    let check = |v4: &str, v6: &str, is_v6, mode, expected: Option<&str>| {
        let mut recovery = recovery();
        recovery.ipv6 = mode;
        let found = recovery.endpoint_of(&at("u", v4, v6), is_v6);
        let found = found.map(|endpoint| endpoint.data.to_string());
        assert_eq!(found.as_deref(), expected);
    };
    let (v4, v6) = ("192.0.2.1", "2001:db8::1");
    let (at_v4, at_v6) = (Some("192.0.2.1:1"), Some("[2001:db8::1]:3"));
    check(v4, v6, None, Ipv6Mode::Allow, at_v4);
    check(v4, v6, Some(true), Ipv6Mode::Allow, at_v6);
    check(v4, v6, None, Ipv6Mode::Force, at_v6);
    check(v4, v6, Some(true), Ipv6Mode::Disable, at_v4);
    check(v4, "", Some(true), Ipv6Mode::Allow, at_v4);
    check(
        "",
        "fe80::1%7",
        None,
        Ipv6Mode::Allow,
        Some("[fe80::1%7]:3"),
    );
    check(
        "",
        "fe80::1%lo",
        None,
        Ipv6Mode::Allow,
        Some("[fe80::1%1]:3"),
    );
    check("", "", None, Ipv6Mode::Allow, None);
}

#[test]
fn the_other_family_is_where_the_outlet_is_besides_and_stays_in_use() {
    let mut recovery = recovery();
    let first = recovery.endpoint().unwrap();
    let known = StreamInfo::clone(recovery.info());
    let [start, other] = recovery.endpoints(&known, first.data, &[])[..] else {
        panic!("two addresses");
    };
    assert_eq!(start, first);
    assert_eq!(other.data.to_string(), "[2001:db8::1]:3");
    recovery.use_endpoint(other);
    assert_eq!(recovery.endpoint(), Some(other));
    assert_eq!(recovery.endpoints(&known, other.data, &[]), [other, first]);
    let alone = at("old", "192.0.2.1", "");
    assert_eq!(recovery.endpoints(&alone, first.data, &[]), [first]);
}

#[test]
fn an_outlet_is_asked_where_it_was_reached_until_that_leads_nowhere() {
    let mut recovery = recovery();
    let known = StreamInfo::clone(recovery.info());
    recovery.handle(Input::Wanted(Purpose::Clock), 0.0);
    let feed = begin(&mut recovery, Purpose::Feed, 0.0);
    let clock = begin(&mut recovery, Purpose::Clock, 0.0);
    let first = feed.endpoint.unwrap();
    let for_feed = Some(Purpose::Feed);
    assert!(
        !recovery.reached(&known, first, for_feed),
        "as everybody thought"
    );
    assert!(recovery.is_current(clock.id));
    // Also at another address of its host, by an interface.
    let hosts = ["192.0.2.7:0", "192.0.2.1:0"].map(|host| host.parse().unwrap());
    let ways = recovery.endpoints(&known, first.data, &hosts);
    let data: Vec<_> = ways.iter().map(|way| way.data.to_string()).collect();
    assert_eq!(data, ["192.0.2.1:1", "[2001:db8::1]:3", "192.0.2.7:1"]);
    let bound = Endpoint {
        device: Some(4),
        ..ways[2]
    };
    assert!(!recovery.reached(&at("new", "192.0.2.1", ""), bound, for_feed));
    for purpose in [None, Some(Purpose::FullInfo), Some(Purpose::Clock)] {
        assert!(!recovery.reached(&known, bound, purpose), "{purpose:?}");
        assert_eq!(recovery.endpoint(), Some(first), "the feed has not moved");
    }
    assert!(recovery.reached(&known, bound, for_feed));
    assert!(recovery.is_current(feed.id) && !recovery.is_current(clock.id));
    let again = recovery.poll_connect(Purpose::Clock, 0.0).unwrap();
    assert_eq!((again.endpoint, again.moves), (Some(bound), clock.moves));
    assert!(!recovery.reached(&known, bound, for_feed));
    assert_eq!(recovery.endpoints(&known, bound.data, &hosts)[0], bound);
    // It may have led nowhere.
    recovery.handle(Input::Failed(feed.id, Failure::Connection), 1.0);
    assert_eq!(recovery.endpoint(), Some(first));
}

#[test]
fn where_another_outlet_is_the_addresses_of_the_info_have_a_try_of_their_own() {
    let elsewhere = Endpoint {
        data: "192.0.2.7:1".parse().unwrap(),
        service: "192.0.2.7:2".parse().unwrap(),
        device: None,
    };
    let security = |is_busy| Failure::Security {
        delay_secs: 10.0,
        is_busy,
    };
    for (purpose, failure, tries_again) in [
        (Purpose::Feed, Failure::Connection, true),
        (Purpose::FullInfo, Failure::Connection, true),
        (Purpose::Feed, security(false), true),
        // It has no place just now, or is not ready: it is the outlet.
        (Purpose::Feed, security(true), false),
        (Purpose::FullInfo, Failure::NotReady, false),
    ] {
        let mut recovery = recovery_of(&Config::default(), false);
        recovery.handle(Input::Wanted(purpose), 0.0);
        let attempt = begin(&mut recovery, purpose, 0.0);
        let first = attempt.endpoint;
        recovery.reached(&attempt.info, elsewhere, Some(purpose));
        let notice = recovery.handle(Input::Failed(attempt.id, failure), 1.0);
        assert_eq!(notice, None, "{purpose:?} {failure:?}");
        let again = recovery.poll_connect(purpose, 1.0);
        assert_eq!(again.is_some(), tries_again, "{purpose:?} {failure:?}");
        let Some(again) = again else {
            assert_eq!(recovery.endpoint(), Some(elsewhere));
            continue;
        };
        assert_eq!(again.endpoint, first);
        assert!(!recovery.takes_ways(purpose));
        recovery.reached(&again.info, first.unwrap(), Some(purpose));
        let notice = recovery.handle(Input::Failed(again.id, failure), 2.0);
        assert_eq!(notice, Some(Notice::Lost));
        assert!(recovery.takes_ways(purpose), "in the next try");
    }
    // One that flowed is no other outlet.
    let mut recovery = recovery();
    let feed = begin(&mut recovery, Purpose::Feed, 0.0);
    recovery.reached(&feed.info, elsewhere, Some(Purpose::Feed));
    recovery.handle(Input::Connected, 0.1);
    recovery.handle(Input::Failed(feed.id, Failure::Connection), 1.0);
    assert_eq!(recovery.poll_action(), Some(Action::Search(0.5)));
    assert_eq!(recovery.endpoint(), feed.endpoint);
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
fn the_watchdog_looks_for_a_silent_outlet_in_the_moment_of_all_others() {
    let mut recovery = recovery_of(&Config::default(), true);
    recovery.handle(Input::Wanted(Purpose::Feed), 0.0);
    let attempt = begin(&mut recovery, Purpose::Feed, 7.0);
    assert_eq!(recovery.poll_timeout(), Some(15.0));
    recovery.handle_timeout(&Flow::default(), 15.0);
    assert_eq!(recovery.poll_action(), None, "not silent for long");
    recovery.handle_timeout(&arrived_at(16.0), 30.0);
    assert_eq!(recovery.poll_action(), None);
    assert_eq!(recovery.poll_timeout(), Some(45.0));
    // It is there, and then it is not.
    recovery.handle_timeout(&arrived_at(16.0), 45.0);
    assert_eq!(recovery.poll_action(), Some(Action::AskByUdp));
    recovery.handle(Input::InPlace(true), 45.1);
    assert_eq!(
        (recovery.poll_action(), recovery.poll_timeout()),
        (None, Some(60.0))
    );
    recovery.handle_timeout(&arrived_at(16.0), 60.0);
    assert_eq!(recovery.poll_action(), Some(Action::AskByUdp));
    recovery.handle(Input::InPlace(false), 61.0);
    assert_eq!(recovery.poll_action(), Some(Action::Search(0.5)));
    let same = StreamInfo::clone(recovery.info());
    recovery.handle(Input::Found(vec![same]), 70.0);
    assert!(
        recovery.is_current(attempt.id),
        "a connection is not given up for that"
    );
    assert_eq!(recovery.poll_timeout(), Some(75.0));
    // An attempt that ends meanwhile is not held up by the question.
    recovery.handle_timeout(&arrived_at(16.0), 75.0);
    assert_eq!(recovery.poll_action(), Some(Action::AskByUdp));
    recovery.handle(Input::Failed(attempt.id, Failure::Connection), 75.1);
    assert_eq!(recovery.poll_action(), Some(Action::Search(0.5)));
    recovery.handle(Input::InPlace(true), 75.2);
    // Whoever works for the machine may go; the next one begins anew.
    assert_eq!(recovery.poll_action(), None);
    recovery.repeat_action();
    assert_eq!(recovery.poll_action(), Some(Action::Search(0.5)));
}

/// A feed of 50 Hz whose last sample came at 10 s.
fn silent() -> Flow {
    Flow {
        samples: 500,
        last_arrival: Some(10.0),
        patience_secs: Some(0.5),
        is_numbered: true,
    }
}

#[test]
fn a_feed_that_falls_silent_is_asked_for_and_kept_until_its_outlet_is_found_elsewhere() {
    let mut recovery = recovery();
    let attempt = begin(&mut recovery, Purpose::Feed, 9.0);
    recovery.handle(Input::Connected, 9.1);
    assert_eq!(recovery.poll_timeout(), Some(9.6));
    recovery.handle_timeout(&silent(), 10.5);
    assert_eq!(recovery.poll_action(), Some(Action::AskBoth));
    recovery.handle(Input::InPlace(false), 11.9);
    assert_eq!(recovery.poll_action(), Some(Action::Search(0.5)));
    assert!(recovery.is_current(attempt.id), "it may come back");
    // Another address of a host that does not answer by the first one any more.
    recovery.handle(Input::Found(vec![at("old", "192.0.2.9", "")]), 12.4);
    assert_eq!(recovery.poll_action(), None);
    let again = begin(&mut recovery, Purpose::Feed, 12.4);
    assert_eq!(again.endpoint.unwrap().data.to_string(), "192.0.2.9:1");
    assert!(!recovery.is_current(attempt.id) && again.moves == 1);
}

#[test]
fn the_state_tells_what_is_known_of_the_outlet() {
    let mut recovery = recovery();
    assert_eq!(recovery.state(false), InletState::Connecting);
    begin(&mut recovery, Purpose::Feed, 9.0);
    recovery.handle(Input::Connected, 9.1);
    assert_eq!(recovery.state(true), InletState::Connected);
    recovery.handle_timeout(&silent(), 10.5);
    assert_eq!(recovery.state(true), InletState::Suspect);
    recovery.handle(Input::InPlace(false), 11.9);
    recovery.poll_action();
    assert_eq!(recovery.state(true), InletState::Searching);
    // Told once, however long it lasts.
    for expected in [Some(Notice::Ambiguous(2)), None] {
        let two = vec![info("n", 2, "new"), info("n", 2, "other")];
        assert_eq!(recovery.handle(Input::Found(two), 12.4), expected);
        assert_eq!(recovery.state(true), InletState::Ambiguous);
        recovery.poll_action();
    }
    recovery.handle(Input::Found(vec![info("n", 2, "other")]), 20.0);
    assert_eq!(
        (recovery.state(false), recovery.rescues()),
        (InletState::Connecting, 0)
    );
    // Found is not yet there.
    let attempt = begin(&mut recovery, Purpose::Feed, 20.0);
    recovery.handle(Input::Failed(attempt.id, Failure::Connection), 20.1);
    recovery.poll_action();
    recovery.handle(Input::Found(vec![info("n", 2, "third")]), 21.0);
    begin(&mut recovery, Purpose::Feed, 21.0);
    for _ in 0..2 {
        recovery.handle(Input::Connected, 21.1);
        assert_eq!(recovery.rescues(), 1);
    }
}

#[test]
fn a_feed_that_comes_back_ends_the_search_for_it() {
    let mut recovery = recovery();
    let attempt = begin(&mut recovery, Purpose::Feed, 9.0);
    recovery.handle(Input::Connected, 9.1);
    recovery.handle_timeout(&silent(), 10.5);
    recovery.handle(Input::InPlace(false), 11.9);
    assert_eq!(recovery.poll_action(), Some(Action::Search(0.5)));
    let now = recovery.poll_timeout().unwrap();
    let flows = Flow {
        samples: 501,
        last_arrival: Some(now),
        ..silent()
    };
    recovery.handle_timeout(&flows, now);
    assert!(!recovery.has_action() && recovery.is_current(attempt.id));
}

#[test]
fn a_feed_that_pauses_keeps_its_connection() {
    let mut recovery = recovery();
    let attempt = begin(&mut recovery, Purpose::Feed, 9.0);
    recovery.handle(Input::Connected, 9.1);
    recovery.handle_timeout(&silent(), 10.5);
    recovery.handle(Input::InPlace(true), 10.6);
    recovery.handle_timeout(&silent(), 10.6);
    assert_eq!(recovery.poll_action(), Some(Action::Probe));
    recovery.handle(Input::Probed(true), 13.0);
    recovery.handle_timeout(&silent(), 14.0);
    assert!(!recovery.has_action() && recovery.is_current(attempt.id));
}

#[test]
fn a_connection_that_leads_nowhere_is_given_up_at_once() {
    // The address of this end is gone; the outlet was away and its stream has numbers.
    for was_missed in [false, true] {
        let mut recovery = recovery();
        let attempt = begin(&mut recovery, Purpose::Feed, 9.0);
        recovery.handle(Input::Connected, 9.1);
        recovery.handle_timeout(&silent(), 10.5);
        recovery.handle(Input::InPlace(!was_missed), 10.6);
        if was_missed {
            assert_eq!(recovery.poll_action(), Some(Action::Search(0.5)));
            recovery.handle(Input::Found(vec![at("old", "192.0.2.1", "")]), 10.7);
            recovery.handle_timeout(&silent(), 10.7);
        } else {
            recovery.handle_timeout(&silent(), 10.6);
            recovery.handle(Input::Probed(false), 10.7);
        }
        assert!(!recovery.is_current(attempt.id));
        assert!(recovery.poll_connect(Purpose::Feed, 10.7).is_some());
    }
}

#[test]
fn connections_are_left_alone_where_nothing_shall_heal_itself() {
    let text = "[lab]\nSelfHealing = 0\n";
    let mut recovery = recovery_of(&Config::from_text(text).unwrap(), true);
    recovery.handle(Input::Wanted(Purpose::Feed), 0.0);
    begin(&mut recovery, Purpose::Feed, 9.0);
    recovery.handle(Input::Connected, 9.1);
    assert_eq!(recovery.poll_timeout(), Some(15.0));
    recovery.handle_timeout(&silent(), 14.0);
    assert_eq!(recovery.poll_action(), None);
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
