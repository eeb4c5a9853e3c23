//! Feeds that fall silent, and what is known of their outlets then.

use super::*;

/// A feed of which nothing is known but when its last sample came.
fn arrived_at(last_arrival: f64) -> Flow {
    Flow {
        last_arrival: Some(last_arrival),
        ..Flow::default()
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
