use super::*;
use crate::ChannelFormat;
use crate::query::Query;

fn info(name: &str, channels: u32, uid: &str) -> StreamInfo {
    let mut info = StreamInfo::new(name, "EEG", channels, 1.0, ChannelFormat::Int8, "src").unwrap();
    info.reset_uid(uid);
    info
}

#[test]
fn a_name_in_an_old_encoding_is_asked_for_as_it_is() {
    let name = b"M\xfcller's \"EEG\"".to_vec();
    let info = StreamInfo::new(name.clone(), "", 1, 1.0, ChannelFormat::Int8, "s").unwrap();
    let query = recovery_query(&info);
    assert!(query.windows(1).any(|byte| byte == b"\xfc"), "{query:?}");
    assert!(info.matches(&Query::parse(&query).unwrap()).unwrap());
}

#[test]
fn one_successor_is_adopted_and_the_known_outlet_preferred() {
    let lost = info("n", 2, "old");
    let check = |answers: &[(&str, u32, &str)], expected: &str| {
        let answers = answers
            .iter()
            .map(|&(name, channels, uid)| info(name, channels, uid));
        let verdict = match judge(&lost, answers.collect()) {
            SearchVerdict::Same(found) => format!("same {}", found.uid()),
            SearchVerdict::Adopt(found) => format!("adopt {}", found.uid()),
            SearchVerdict::AskAgain { candidates } => format!("ask again {candidates}"),
        };
        assert_eq!(verdict, expected);
    };
    check(&[], "ask again 0");
    check(&[("n", 2, "new")], "adopt new");
    check(&[("n", 2, "new"), ("n", 2, "old")], "same old");
    check(&[("n", 2, "new"), ("n", 2, "other")], "ask again 2");
    // Not what was asked for, whoever says so.
    check(&[("n", 3, "new")], "ask again 0");
    check(&[("m", 2, "old")], "ask again 0");
    check(&[("m", 2, "liar"), ("n", 2, "new")], "adopt new");
}

#[test]
fn a_successor_that_was_refused_gives_way_to_any_other() {
    let mut refused = Refused::default();
    refused.note(b"b");
    let present = info("n", 2, "b");
    let left = |refused: &mut Refused, answers: &[(&str, &str)]| {
        let answers = answers.iter().map(|&(name, uid)| info(name, 2, uid));
        let mut answers = answers.collect();
        refused.leave_out(&present, &mut answers);
        let uids = answers.iter().map(|answer| answer.uid().into_owned());
        uids.collect::<Vec<_>>().join(" ")
    };
    assert_eq!(left(&mut refused, &[]), "");
    assert_eq!(left(&mut refused, &[("n", "b")]), "b");
    assert_eq!(left(&mut refused, &[("n", "b"), ("other", "c")]), "b c");
    assert_eq!(left(&mut refused, &[("n", "b"), ("n", "a")]), "a");
    // All have been in vain: the others come next, and this one after them.
    refused.note(b"a");
    assert_eq!(left(&mut refused, &[("n", "b"), ("n", "a")]), "b a");
    assert_eq!(left(&mut refused, &[("n", "b"), ("n", "a")]), "a");
    for number in 0..100 {
        refused.note(format!("forged-{number}").as_bytes());
    }
    assert_eq!(refused.uids.len(), MAX_REFUSED);
    assert!(refused.contains(b"forged-99") && !refused.contains(b"b"));
}

/// An inlet of the stream of [`info`], with addresses, that knows the outlet "old".
fn recovery(ipv6: Ipv6Mode) -> Recovery {
    Recovery::new(at("old", "192.0.2.1", "2001:db8::1"), ipv6, |name| {
        u32::from(name == "lo")
    })
}

fn at(uid: &str, v4: &str, v6: &str) -> StreamInfo {
    let mut info = info("n", 2, uid);
    info.set_v4_ports(1, 2);
    info.set_v6_ports(3, 4);
    info.fill_v4_address(v4);
    info.fill_v6_address(v6);
    info
}

#[test]
fn ipv4_is_preferred_unless_ipv6_is_in_use_or_the_only_one() {
    let check = |v4: &str, v6: &str, is_v6, mode, expected: Option<&str>| {
        let recovery = recovery(mode);
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
    let mut recovery = recovery(Ipv6Mode::Allow);
    let first = recovery.endpoint().unwrap();
    let known = recovery.info().clone();
    let other = recovery.other_endpoint(&known, first.data).unwrap();
    assert_eq!(other.data.to_string(), "[2001:db8::1]:3");
    recovery.use_endpoint(other);
    assert_eq!(recovery.endpoint(), Some(other));
    let back = recovery.other_endpoint(&known, other.data);
    assert_eq!(back, Some(first));
    let alone = at("old", "192.0.2.1", "");
    assert_eq!(recovery.other_endpoint(&alone, first.data), None);
}

#[test]
fn a_feed_that_never_comes_about_is_tried_ever_more_rarely() {
    let mut recovery = recovery(Ipv6Mode::Allow);
    let mut pauses = Vec::new();
    for failures in 0..8 {
        assert_eq!(recovery.is_hopeless(), failures >= 2);
        pauses.push(recovery.pause_secs());
        recovery.on_failed();
    }
    let expected = [
        None,
        None,
        None,
        Some(0.5),
        Some(1.0),
        Some(2.0),
        Some(4.0),
        Some(8.0),
    ];
    assert_eq!(pauses, expected);
    recovery.failures = u32::MAX;
    recovery.on_failed();
    assert_eq!(recovery.pause_secs(), Some(8.0));
    recovery.on_connected();
    assert_eq!(
        (recovery.is_hopeless(), recovery.pause_secs()),
        (false, None)
    );
}

#[test]
fn the_same_outlet_is_asked_where_it_was_before_anybody_moves() {
    let mut recovery = recovery(Ipv6Mode::Allow);
    let same = at("old", "192.0.2.1", "2001:db8::1");
    assert!(matches!(
        recovery.on_answers(vec![same.clone()]),
        Recovered::Same
    ));
    // Another way to the same host, and the same place with another description.
    let elsewhere = at("old", "192.0.2.9", "2001:db8::1");
    let mut other = same.clone();
    other.set_hostname("liar");
    for found in [elsewhere.clone(), other] {
        let recovered = recovery.on_answers(vec![found]);
        assert!(
            matches!(recovered, Recovered::AskWhereItWas(_)),
            "{recovered:?}"
        );
    }
    assert_eq!(recovery.moves(), 0);
    recovery.move_to(elsewhere);
    assert_eq!(recovery.moves(), 1);
    assert_eq!(recovery.endpoint().unwrap().data.to_string(), "192.0.2.9:1");
    assert!(!recovery.on_refused(b"old"), "nobody's successor");
}

#[test]
fn a_successor_is_adopted_and_gives_way_once_it_was_refused() {
    let mut recovery = recovery(Ipv6Mode::Allow);
    let new = at("new", "192.0.2.2", "");
    let again = recovery.on_answers(vec![new.clone(), at("other", "192.0.2.3", "")]);
    assert!(matches!(again, Recovered::SearchAgain { candidates: 2 }));
    assert!(matches!(
        recovery.on_answers(vec![new.clone()]),
        Recovered::Moved
    ));
    assert_eq!(
        (recovery.info().uid().as_ref(), recovery.moves()),
        ("new", 1)
    );
    assert!(!recovery.on_refused(b"old") && recovery.on_refused(b"new"));
    assert!(recovery.has_refusals());
    assert_ne!(
        recovery.sought().uid_bytes(),
        b"new",
        "its answer alone would not do"
    );
    let back = at("back", "192.0.2.1", "");
    assert!(matches!(
        recovery.on_answers(vec![new.clone(), back]),
        Recovered::Moved
    ));
    assert_eq!(recovery.info().uid(), "back");
    recovery.on_connected();
    assert!(!recovery.has_refusals());
    assert_eq!(recovery.sought().uid_bytes(), b"back");
}
