//! Where an outlet is reached.

use super::*;

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

/// An address that the info does not name.
fn stray() -> Endpoint {
    Endpoint {
        data: "192.0.2.7:1".parse().unwrap(),
        service: "192.0.2.7:2".parse().unwrap(),
        device: None,
    }
}

#[test]
fn where_another_outlet_is_the_addresses_of_the_info_have_a_try_of_their_own() {
    let elsewhere = stray();
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
        assert_eq!(recovery.stray(purpose), Some(elsewhere.data));
        recovery.reached(&again.info, first.unwrap(), Some(purpose));
        let notice = recovery.handle(Input::Failed(again.id, failure), 2.0);
        assert_eq!(notice, Some(Notice::Lost));
        assert_eq!(recovery.stray(purpose), None, "in the next try");
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
fn a_stranger_who_answers_every_search_has_a_feed_dialled_once_more_and_no_oftener() {
    let mut recovery = recovery();
    let mut attempt = begin(&mut recovery, Purpose::Feed, 0.0);
    let mut pauses = Vec::new();
    for _ in 0..8 {
        if recovery.stray(Purpose::Feed).is_none() {
            recovery.reached(&attempt.info, stray(), Some(Purpose::Feed));
        }
        recovery.handle(Input::Failed(attempt.id, Failure::Connection), 0.0);
        if recovery.poll_action().is_some() {
            let same = StreamInfo::clone(recovery.info());
            recovery.handle(Input::Found(vec![same]), 0.0);
        }
        let (now, again) = wait_for(&mut recovery, Purpose::Feed);
        pauses.push(now);
        attempt = again;
    }
    assert_eq!(pauses, [0.0, 0.5, 0.5, 1.0, 1.5, 2.5, 4.5, 8.5]);
}
