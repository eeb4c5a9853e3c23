//! Decisions one by one, and directories that are linked to a triangle and to a ring.

use std::collections::BTreeMap;

use lsl_proto::ChannelFormat;

use super::*;
use crate::rules::{Predicate, Readers, Rule};

mod network;
mod rights;

fn settings() -> Settings {
    Settings {
        max_hops: 4,
        linger_secs: 10.0,
        streams: 4096,
        faces: 1,
        reoffer: true,
        keeps: [false; 2],
        publish: None,
        import: None,
        rules: Rules::default(),
    }
}

fn info(uid: &str) -> StreamInfo {
    let name = format!("stream {uid}");
    let mut info =
        StreamInfo::new(name, "EEG", 8, 250.0, ChannelFormat::Float32, uid).expect("an info");
    info.reset_uid(uid);
    let text = String::from_utf8(info.to_xml()).expect("text");
    let text = text.replace("<uid />", &format!("<uid>{uid}</uid>"));
    StreamInfo::from_xml(text.as_bytes()).expect("an info")
}

/// The info as announced by the last relay of a path.
fn relayed(uid: &str, path: &[u64]) -> StreamInfo {
    let path: Vec<_> = path.iter().map(|id| RelayId(*id)).collect();
    StreamInfo::from_xml(&write(&info(uid), &path)).expect("an info")
}

/// A book of relay 9 with links to relays 1 to 4.
fn book(settings: Settings) -> Book {
    let mut book = Book::new(RelayId(9), settings);
    for id in 1..=4 {
        book.link_up(RelayId(id), None, 0.0);
    }
    book
}

fn announce(book: &mut Book, uid: &str, path: &[u64], now: f64) {
    let link = RelayId(*path.last().expect("a path"));
    book.announced(link, uid, relayed(uid, path), now);
}

/// Events in short: what, where, of which stream.
fn events(book: &mut Book) -> Vec<String> {
    let way = |way: Way| match way {
        Way::Direct(face) => format!("face {}", face.0),
        Way::Link(id) => format!("link {}", id.0),
        Way::River => "river".to_owned(),
    };
    let short = |event| match event {
        BookEvent::Subscribe { uid, way: it } => format!("read {uid} by {}", way(it)),
        BookEvent::Unsubscribe(uid) => format!("stop {uid}"),
        BookEvent::WayChanged { uid, way: it } => {
            format!("{uid} by {}", it.map_or_else(|| "none".to_owned(), way))
        }
        BookEvent::Announce { watcher, uid, .. } => format!("{}: + {uid}", watcher.0),
        BookEvent::Withdraw {
            watcher,
            uid,
            reason,
        } => format!("{}: - {uid} {reason:?}", watcher.0),
        BookEvent::Synced(watcher) => format!("{}: =", watcher.0),
        BookEvent::Offer { face, uid } => format!("offer {uid} on {}", face.0),
        BookEvent::Unoffer { face, uid } => format!("close {uid} on {}", face.0),
        BookEvent::Gone { uid, reason } => format!("gone {uid} {reason:?}"),
        BookEvent::Keep { uid, by } => format!("keep {uid} {by:?}"),
        BookEvent::Changed(uid) => format!("changed {uid}"),
        BookEvent::Ask { uid, way: it } => format!("ask {uid} by {}", way(it)),
        BookEvent::Refused { uid, why, .. } => format!("refused {uid}: {why:?}"),
    };
    std::iter::from_fn(|| book.poll_event())
        .map(short)
        .collect()
}

/// Lets time pass until `to`, each timeout at its time.
fn pass(book: &mut Book, to: f64) {
    while let Some(at) = book.poll_timeout().filter(|at| *at <= to) {
        book.handle_timeout(at);
    }
}

const FACE: FaceId = FaceId(0);

const LOCAL: Asker = Asker {
    reader: Reader::Local,
    link: None,
};

#[test]
fn a_stream_is_read_while_somebody_reads_it_and_lingers() {
    let mut book = book(Settings {
        reoffer: false,
        ..settings()
    });
    book.seen(FACE, info("a"), 0.0);
    assert_eq!(events(&mut book), ["a by face 0"]);
    book.reader_joined("a", 1.0);
    book.reader_joined("a", 1.0);
    assert_eq!(events(&mut book), ["read a by face 0"]);
    assert_eq!(
        book.streams().next().map(|it| it.1),
        Some(Stage::Subscribing)
    );
    book.feed_up("a", Way::Direct(FACE), 1.0);
    book.reader_left("a", 2.0);
    assert_eq!(book.streams().next().map(|it| it.1), Some(Stage::Flowing));
    book.reader_left("a", 3.0);
    assert_eq!(book.streams().next().map(|it| it.1), Some(Stage::Linger));
    book.reader_joined("a", 5.0);
    book.reader_left("a", 6.0);
    pass(&mut book, 15.9);
    assert_eq!(events(&mut book), [""; 0]);
    pass(&mut book, 16.0);
    assert_eq!(events(&mut book), ["stop a"]);
    book.unseen(FACE, "a", 20.0);
    assert_eq!(events(&mut book), ["a by none", "gone a Ended"]);
    assert_eq!(book.poll_timeout(), None);
}

#[test]
fn what_rules_keep_is_read_without_readers() {
    let mut book = book(Settings {
        reoffer: false,
        keeps: [true, false],
        ..settings()
    });
    book.seen(FACE, info("a"), 0.0);
    assert_eq!(
        events(&mut book),
        ["a by face 0", "keep a [true, false]", "read a by face 0"]
    );
    let rules = Rules(vec![Rule {
        history: false,
        ..Rule::default()
    }]);
    book.feed_up("a", Way::Direct(FACE), 1.0);
    book.set_settings(
        Settings {
            reoffer: false,
            keeps: [true, false],
            rules,
            ..settings()
        },
        2.0,
    );
    pass(&mut book, 12.0);
    assert_eq!(events(&mut book), ["keep a [false, false]", "stop a"]);
}

#[test]
fn the_best_way_is_used_and_a_better_one_after_five_seconds() {
    let mut book = book(Settings {
        reoffer: false,
        ..settings()
    });
    announce(&mut book, "a", &[7, 3], 0.0);
    book.reader_joined("a", 0.0);
    book.feed_up("a", Way::Link(RelayId(3)), 0.0);
    assert_eq!(events(&mut book), ["a by link 3", "read a by link 3"]);
    // Fewer hops.
    announce(&mut book, "a", &[2], 1.0);
    pass(&mut book, 5.9);
    assert_eq!(events(&mut book), [""; 0]);
    pass(&mut book, 6.0);
    assert_eq!(events(&mut book), ["a by link 2", "read a by link 2"]);
    book.feed_up("a", Way::Link(RelayId(2)), 6.0);
    // Equal hops: the smaller id, unless its round trip is longer by a step. One that changes is not steady.
    announce(&mut book, "a", &[1], 10.0);
    book.set_rtt(RelayId(2), 0.001, 12.0);
    book.set_rtt(RelayId(1), 0.009, 12.0);
    pass(&mut book, 100.0);
    assert_eq!(events(&mut book), [""; 0]);
    book.set_rtt(RelayId(1), 0.0079, 100.0);
    book.set_rtt(RelayId(1), 0.0081, 104.0);
    book.set_rtt(RelayId(1), 0.0079, 105.0);
    pass(&mut book, 109.9);
    assert_eq!(events(&mut book), [""; 0]);
    pass(&mut book, 110.0);
    assert_eq!(events(&mut book), ["a by link 1", "read a by link 1"]);
    // Direct before all; a lost way is left at once.
    book.seen(FACE, info("a"), 120.0);
    book.link_down(RelayId(1), 121.0);
    assert_eq!(events(&mut book), ["a by face 0", "read a by face 0"]);
}

#[test]
fn what_river_keeps_is_one_more_way_and_never_goes_back_to_who_wrote_it() {
    let rules = Rules(vec![Rule {
        engine: true,
        ..Rule::default()
    }]);
    let mut book = book(Settings {
        rules,
        reoffer: false,
        keeps: [false, true],
        ..settings()
    });
    book.stored(info("a"), Some(RelayId(5)), 0.0);
    assert_eq!(events(&mut book), ["a by river"]);
    let path = Provenance::of(&StreamInfo::from_xml(&book.document("a").unwrap()).unwrap());
    assert_eq!(path.unwrap().path, [RelayId(5), RelayId(9)]);
    book.reader_joined("a", 1.0);
    assert_eq!(events(&mut book), ["read a by river"]);
    book.feed_up("a", Way::River, 1.0);
    // From its source it is stored; from where it is stored it is not.
    book.seen(FACE, info("a"), 2.0);
    pass(&mut book, 8.0);
    assert_eq!(
        events(&mut book),
        ["a by face 0", "keep a [false, true]", "read a by face 0"]
    );
    book.unseen(FACE, "a", 9.0);
    let told = events(&mut book);
    assert_eq!(
        told,
        ["a by river", "keep a [false, false]", "read a by river"]
    );
    book.unstored("a", Reason::Ended, 10.0);
    assert_eq!(events(&mut book), ["a by none", "stop a", "gone a Ended"]);
}

#[test]
fn a_way_that_fails_is_tried_again_later_or_another_one_now() {
    let mut book = book(Settings {
        reoffer: false,
        ..settings()
    });
    announce(&mut book, "a", &[1], 0.0);
    book.reader_joined("a", 0.0);
    events(&mut book);
    let way = Way::Link(RelayId(1));
    let mut waits = Vec::new();
    let mut now = 0.0;
    for _ in 0..7 {
        book.feed_lost("a", way, now);
        assert_eq!(events(&mut book), [""; 0]);
        let at = book.poll_timeout().filter(|at| *at > now).expect("a time");
        // The first one is the announcement, to nobody.
        pass(&mut book, at);
        let at = if events(&mut book).is_empty() {
            book.poll_timeout().expect("a time")
        } else {
            at
        };
        pass(&mut book, at);
        events(&mut book);
        waits.push(((at - now) * 10.0).round());
        now = at;
    }
    assert_eq!(waits, [5.0, 10.0, 20.0, 40.0, 80.0, 100.0, 100.0]);
    announce(&mut book, "a", &[5, 2], now);
    book.feed_lost("a", way, now);
    assert_eq!(events(&mut book), ["a by link 2", "read a by link 2"]);
    // Late news of another way.
    book.feed_lost("a", way, now);
    book.feed_up("a", way, now);
    assert_eq!(
        book.streams().next().map(|it| it.1),
        Some(Stage::Subscribing)
    );
}

#[test]
fn a_stream_that_flowed_waits_a_minute_for_a_way_unless_it_ended() {
    for (reason, at_once) in [
        (Reason::Lost, false),
        (Reason::Hidden, false),
        (Reason::Ended, true),
    ] {
        let mut book = book(settings());
        book.watch(
            WatcherId(7),
            Watch {
                asker: LOCAL,
                query: None,
            },
        );
        announce(&mut book, "a", &[1], 0.0);
        book.reader_joined("a", 0.0);
        book.feed_up("a", Way::Link(RelayId(1)), 0.0);
        pass(&mut book, 1.0);
        events(&mut book);
        book.withdrawn(RelayId(1), "a", reason, 2.0);
        if at_once {
            let expected = [
                "a by none",
                "close a on 0",
                "stop a",
                "7: - a Ended",
                "gone a Ended",
            ];
            assert_eq!(events(&mut book), expected);
            continue;
        }
        pass(&mut book, 61.9);
        // Its outlet stays open and silent.
        assert_eq!(events(&mut book), ["a by none", "7: - a Lost"]);
        assert_eq!(book.streams().next().map(|it| it.1), Some(Stage::Switching));
        if reason == Reason::Hidden {
            announce(&mut book, "a", &[6, 2], 61.9);
            pass(&mut book, 62.0);
            assert_eq!(
                events(&mut book),
                ["a by link 2", "read a by link 2", "offer a on 0", "7: + a"]
            );
        } else {
            pass(&mut book, 62.0);
            assert_eq!(events(&mut book), ["close a on 0", "stop a", "gone a Lost"]);
        }
    }
}

#[test]
fn a_direct_stream_that_is_unseen_is_kept_while_its_feed_flows() {
    let mut book = book(settings());
    book.seen(FACE, info("a"), 0.0);
    book.reader_joined("a", 0.0);
    book.feed_up("a", Way::Direct(FACE), 0.0);
    book.unseen(FACE, "a", 1.0);
    assert_eq!(book.way("a"), Some(Way::Direct(FACE)));
    book.feed_lost("a", Way::Direct(FACE), 30.0);
    assert_eq!(book.info("a").map(|_| ()), None);
}

#[test]
fn ways_of_a_stream_tell_of_the_same_stream() {
    let mut book = book(Settings {
        reoffer: false,
        ..settings()
    });
    announce(&mut book, "a", &[1], 0.0);
    book.reader_joined("a", 0.0);
    assert_eq!(events(&mut book), ["a by link 1", "read a by link 1"]);
    // Somebody's outlet here has the uid, and another format.
    let forged = |uid: &str| {
        let text = String::from_utf8(info(uid).to_xml()).expect("text");
        let text = text.replace("float32", "double64");
        StreamInfo::from_xml(text.as_bytes()).expect("an info")
    };
    book.seen(FACE, forged("a"), 1.0);
    pass(&mut book, 20.0);
    let refused = "refused a: Differs(\"channel_format\")";
    assert_eq!(events(&mut book), [refused]);
    // The stream itself is a better way, until something else is seen there.
    book.seen(FACE, info("a"), 20.0);
    pass(&mut book, 30.0);
    assert_eq!(events(&mut book), ["a by face 0", "read a by face 0"]);
    book.seen(FACE, forged("a"), 30.0);
    let again = [refused, "a by link 1", "read a by link 1"];
    assert_eq!(events(&mut book), again);
    // Its turn comes when the stream has gone.
    book.withdrawn(RelayId(1), "a", Reason::Ended, 31.0);
    let gone = ["a by none", "stop a", "gone a Ended", "ask a by face 0"];
    let mut told = events(&mut book);
    told.sort();
    assert!(
        gone.iter().all(|event| told.contains(&(*event).to_owned())),
        "{told:?}"
    );
}

#[test]
fn what_found_no_room_comes_when_there_is_some() {
    let mut book = book(Settings {
        reoffer: false,
        streams: 4,
        ..settings()
    });
    for uid in ["a", "b", "c", "d"] {
        announce(&mut book, uid, &[1], 0.0);
    }
    let told = events(&mut book);
    assert_eq!(told[2..], ["refused c: TooMany", "refused d: TooMany"]);
    // Others have theirs.
    announce(&mut book, "x", &[2], 0.0);
    book.seen(FACE, info("y"), 0.0);
    assert_eq!(events(&mut book), ["x by link 2", "y by face 0"]);
    book.withdrawn(RelayId(1), "d", Reason::Ended, 1.0);
    book.withdrawn(RelayId(1), "a", Reason::Ended, 1.0);
    let gone = ["a by none", "gone a Ended", "ask c by link 1"];
    assert_eq!(events(&mut book), gone);
    // It went while it was asked for, and came again.
    let uid: Uid = "c".into();
    book.withdrawn(RelayId(1), "c", Reason::Ended, 1.5);
    book.announced_again(RelayId(1), &uid, Some(relayed("c", &[1])), 2.0);
    assert_eq!(events(&mut book), [""; 0]);
    announce(&mut book, "c", &[1], 3.0);
    assert_eq!(events(&mut book), ["refused c: TooMany"]);
    book.unseen(FACE, "y", 4.0);
    let asked = events(&mut book);
    assert_eq!(asked.last().map(String::as_str), Some("ask c by link 1"));
    book.announced_again(RelayId(1), &uid, Some(relayed("c", &[1])), 4.0);
    assert_eq!(events(&mut book), ["c by link 1"]);
}

#[test]
fn announcements_that_loop_or_lie_are_dropped() {
    let import = Query::parse("type='EEG'").expect("a query");
    let mut book = book(Settings {
        import: Some(import),
        streams: 1,
        ..settings()
    });
    for (name, path) in [
        ("through us", &[9, 1][..]),
        ("too far", &[5, 6, 7, 1]),
        ("not from that relay", &[1, 5]),
        ("without a path", &[]),
    ] {
        book.announced(RelayId(1), "a", relayed("a", path), 0.0);
        assert_eq!(book.streams().count(), 0, "{name}");
    }
    book.announced(RelayId(1), "b", relayed("a", &[1]), 0.0);
    book.announced(RelayId(5), "a", relayed("a", &[5]), 0.0);
    assert_eq!(book.streams().count(), 0);
    announce(&mut book, "a", &[5, 6, 1], 0.0);
    assert_eq!((book.streams().count(), book.hops("a")), (1, 3));
    announce(&mut book, "b", &[1], 0.0);
    assert_eq!(
        events(&mut book).last().map(String::as_str),
        Some("refused b: TooMany")
    );
    announce(&mut book, "a", &[9, 1], 0.0);
    assert_eq!(
        book.streams().count(),
        0,
        "the way is worth nothing any more"
    );
}

#[test]
fn watchers_are_told_what_they_may_know_and_changes_together() {
    let keys = ["a", "b"].map(|of| {
        let seed = [of.as_bytes()[0]; 32];
        lsl_secure::SecretKey::from_seed(&seed)
            .public()
            .fingerprint()
    });
    let only = Readers::Only {
        keys: [keys[0]].into(),
        local: false,
    };
    let rules = Rules(vec![Rule {
        predicate: Predicate::parse("source_id='s'").ok(),
        readers: only,
        ..Rule::default()
    }]);
    let with_rules = Settings {
        rules,
        reoffer: false,
        ..settings()
    };
    let mut book = book(with_rules.clone());
    book.seen(FACE, info("s"), 0.0);
    book.seen(FACE, info("t"), 0.0);
    pass(&mut book, 0.1);
    events(&mut book);
    let query = Query::parse("name='stream t'").ok();
    let asker = |key, link: Option<u64>| Asker {
        reader: Reader::Key(key),
        link: link.map(RelayId),
    };
    let watch = |key, link, query| Watch {
        asker: asker(key, link),
        query,
    };
    book.watch(WatcherId(1), watch(keys[0], Some(1), None));
    book.watch(WatcherId(2), watch(keys[1], None, None));
    book.watch(WatcherId(3), watch(keys[0], None, query));
    assert_eq!(
        events(&mut book),
        [
            "1: + s", "1: + t", "1: =", "2: + t", "2: =", "3: + t", "3: ="
        ]
    );
    assert!(book.may_read("s", asker(keys[0], None)) && !book.may_read("s", LOCAL));
    assert!(!book.may_read("x", asker(keys[0], None)));
    // A new way through link 1 while the direct one goes: withdrawn from there, once, after 100 ms.
    announce(&mut book, "t", &[5, 1], 1.0);
    book.unseen(FACE, "t", 1.05);
    assert_eq!(events(&mut book), ["t by link 1"]);
    pass(&mut book, 1.16);
    assert_eq!(events(&mut book), ["1: - t Hidden", "2: + t", "3: + t"]);
    // Gone and back within 100 ms: nothing to say.
    announce(&mut book, "t", &[2], 2.0);
    book.withdrawn(RelayId(1), "t", Reason::Lost, 2.0);
    announce(&mut book, "t", &[5, 1], 2.05);
    book.withdrawn(RelayId(2), "t", Reason::Lost, 2.05);
    pass(&mut book, 3.0);
    assert_eq!(events(&mut book), ["t by link 2", "t by link 1"]);
    // Rules change.
    book.set_settings(
        Settings {
            rules: Rules::default(),
            ..with_rules
        },
        4.0,
    );
    pass(&mut book, 5.0);
    assert_eq!(events(&mut book), ["2: + s"]);
}

#[test]
fn streams_are_offered_where_their_origin_is_not_seen() {
    let mut book = book(Settings {
        faces: 2,
        ..settings()
    });
    book.seen(FACE, info("a"), 0.0);
    assert_eq!(events(&mut book), ["a by face 0", "offer a on 1"]);
    book.seen(FaceId(1), info("a"), 1.0);
    assert_eq!(events(&mut book), ["close a on 1"]);
    book.unseen(FaceId(1), "a", 2.0);
    assert_eq!(events(&mut book), ["offer a on 1"]);
    announce(&mut book, "b", &[1], 3.0);
    assert_eq!(
        events(&mut book),
        ["b by link 1", "offer b on 0", "offer b on 1"]
    );
    let rules = Rules(vec![Rule {
        reoffer: false,
        ..Rule::default()
    }]);
    book.set_settings(
        Settings {
            rules,
            ..settings()
        },
        4.0,
    );
    assert_eq!(
        events(&mut book),
        ["close a on 1", "close b on 0", "close b on 1"]
    );
}

#[test]
fn of_two_relays_on_a_face_the_nearer_and_then_the_smaller_offers() {
    let mut book = book(settings());
    book.seen(FACE, relayed("b", &[5]), 0.0);
    assert_eq!(
        book.streams().count(),
        0,
        "what another relay offers is no source"
    );
    announce(&mut book, "a", &[3, 1], 0.0);
    assert_eq!(events(&mut book), ["a by link 1", "offer a on 0"]);
    book.seen(FACE, relayed("a", &[3, 1, 9]), 0.5);
    book.seen(FACE, relayed("a", &[3, 1, 12]), 0.5);
    book.seen(FACE, relayed("a", &[3, 1, 4, 7]), 0.5);
    assert_eq!(
        events(&mut book),
        [""; 0],
        "ours, a larger id, a longer path"
    );
    book.seen(FACE, relayed("a", &[3, 1, 8]), 1.0);
    assert_eq!(events(&mut book), ["close a on 0"]);
    book.seen(FACE, relayed("a", &[3, 1, 8]), 4.0);
    pass(&mut book, 8.9);
    assert_eq!(events(&mut book), [""; 0]);
    pass(&mut book, 9.0);
    assert_eq!(events(&mut book), ["offer a on 0"]);
    book.set_wave_secs(5.0);
    book.seen(FACE, relayed("a", &[3, 1, 8]), 10.0);
    pass(&mut book, 24.9);
    assert_eq!(events(&mut book), ["close a on 0"]);
    // The own path became shorter than that of the other.
    announce(&mut book, "a", &[1], 24.9);
    assert_eq!(events(&mut book), ["offer a on 0"]);
}

#[test]
fn a_restarted_source_replaces_its_former_outlet() {
    let mut book = book(settings());
    let as_device = |uid: &str| {
        let text = String::from_utf8(relayed(uid, &[1]).to_xml()).expect("text");
        let text = text
            .replace(&format!("<source_id>{uid}<"), "<source_id>device<")
            .replace(&format!("stream {uid}"), "stream");
        StreamInfo::from_xml(text.as_bytes()).expect("an info")
    };
    book.announced(RelayId(1), "old", as_device("old"), 0.0);
    book.reader_joined("old", 0.0);
    book.feed_up("old", Way::Link(RelayId(1)), 0.0);
    events(&mut book);
    book.announced(RelayId(1), "new", as_device("new"), 1.0);
    assert_eq!(
        events(&mut book),
        ["new by link 1", "offer new on 0"],
        "the old one still flows"
    );
    book.feed_lost("old", Way::Link(RelayId(1)), 2.0);
    assert_eq!(events(&mut book), ["close old on 0"]);
    book.withdrawn(RelayId(1), "old", Reason::Lost, 3.0);
    assert_eq!(
        events(&mut book),
        ["old by none", "stop old", "gone old Lost"]
    );
}

#[test]
fn a_link_reads_what_is_published_and_nothing_of_its_own() {
    let publish = Query::parse("source_id='a'").ok();
    let hidden = Rule {
        from: crate::rules::From::Links,
        readers: Readers::Only {
            keys: [].into(),
            local: false,
        },
        ..Rule::default()
    };
    let rules = Rules(vec![hidden]);
    let mut book = book(Settings {
        publish,
        ..settings()
    });
    let of_link = |id| Asker {
        reader: Reader::Local,
        link: Some(RelayId(id)),
    };
    announce(&mut book, "a", &[1], 0.0);
    announce(&mut book, "b", &[1], 0.0);
    let may = |book: &Book, uid, id| book.may_read(uid, of_link(id));
    assert_eq!(
        [may(&book, "a", 1), may(&book, "a", 2), may(&book, "b", 2)],
        [false, true, false]
    );
    assert!(book.may_read("b", LOCAL));
    // Where it came from is remembered while there is no way.
    book.set_settings(
        Settings {
            rules,
            ..settings()
        },
        1.0,
    );
    book.reader_joined("a", 1.0);
    book.feed_up("a", Way::Link(RelayId(1)), 1.0);
    book.link_down(RelayId(1), 2.0);
    assert_eq!((book.way("a"), book.may_read("a", LOCAL)), (None, false));
    assert!(book.info("a").is_some());
}
