//! Rules that change while many devices watch: test 15 of relay §14.

use std::collections::BTreeSet;

use super::network::Dice;
use super::*;

const DEVICES: u64 = 20;
const STREAMS: u64 = 1000;

fn key(device: u64) -> Fingerprint {
    let seed = [u8::try_from(device).expect("few devices"); 32];
    lsl_secure::SecretKey::from_seed(&seed)
        .public()
        .fingerprint()
}

/// Rules that let some devices read the streams of each tenth.
fn rules(keys: &[Fingerprint], dice: &mut Dice) -> Rules {
    let rule = |tenth| Rule {
        predicate: Predicate::parse(&format!("source_id mod 10 = {tenth}")).ok(),
        readers: Readers::Only {
            keys: keys
                .iter()
                .copied()
                .filter(|_| dice.below(3) == 0)
                .collect(),
            local: false,
        },
        ..Rule::default()
    };
    Rules((0..10).map(rule).collect())
}

/// Takes what watchers were told: nothing that they may not know.
fn tell(book: &mut Book, keys: &[Fingerprint], told: &mut BTreeSet<(u64, Uid)>) {
    while let Some(event) = book.poll_event() {
        match event {
            BookEvent::Announce { watcher, uid, .. } => {
                let reader = Reader::Key(keys[usize::try_from(watcher.0).expect("few")]);
                assert!(
                    book.may_read(&uid, Asker { reader, link: None }),
                    "{uid} to {watcher:?}"
                );
                told.insert((watcher.0, uid));
            }
            BookEvent::Withdraw { watcher, uid, .. } => {
                assert!(told.remove(&(watcher.0, uid)));
            }
            _ => {}
        }
    }
}

#[test]
fn nobody_is_told_of_what_the_rules_of_the_moment_hide() {
    let mut dice = Dice(15);
    let keys: Vec<_> = (0..DEVICES).map(key).collect();
    let with_rules = |rules| Settings {
        rules,
        reoffer: false,
        ..settings()
    };
    let mut book = Book::new(RelayId(9), with_rules(rules(&keys, &mut dice)));
    let mut told = BTreeSet::new();
    for device in 0..DEVICES {
        let reader = Reader::Key(keys[usize::try_from(device).expect("few")]);
        let asker = Asker { reader, link: None };
        book.watch(WatcherId(device), Watch { asker, query: None });
    }
    let mut now = 0.0;
    for round in 0..3 {
        for n in 0..STREAMS {
            // Some come and go all the time, and in the middle of a change.
            if round == 0 || dice.below(20) == 0 {
                let uid = n.to_string();
                if book.info(&uid).is_some() {
                    book.unseen(FACE, &uid, now);
                } else {
                    book.seen(FACE, info(&uid), now);
                }
            }
        }
        pass(&mut book, now + 0.05);
        tell(&mut book, &keys, &mut told);
        // A device that is revoked is in no rule any more, whatever group it was in.
        let trusted = &keys[..keys.len() - round];
        book.set_settings(with_rules(rules(trusted, &mut dice)), now + 0.05);
        now += 1.0;
        pass(&mut book, now);
        tell(&mut book, &keys, &mut told);
        let mut expected = BTreeSet::new();
        for (uid, ..) in book.streams() {
            for (device, key) in (0..DEVICES).zip(&keys) {
                let asker = Asker {
                    reader: Reader::Key(*key),
                    link: None,
                };
                if book.may_read(uid, asker) {
                    expected.insert((device, uid.clone()));
                }
            }
        }
        assert!(told == expected, "round {round}");
        assert!(
            expected.len() > 3000 && told.iter().all(|(device, _)| *device < 20 - round as u64)
        );
    }
}

/// The predicates of a trust entry.
fn bound(key: &lsl_secure::SecretKey, streams: &[&str]) -> Bounds {
    let peer = lsl_secure::trust::Peer {
        name: "rec".to_owned(),
        key: key.public(),
        role: lsl_secure::trust::TrustedRole::Relay,
        not_after: None,
        from: Vec::new(),
        streams: streams.iter().copied().map(str::to_owned).collect(),
    };
    let trust = lsl_secure::trust::TrustList::from_peers(vec![peer]).expect("a list");
    Bounds::of(&trust, None)
}

#[test]
fn a_key_that_is_bound_to_streams_knows_of_no_others() {
    let secret = lsl_secure::SecretKey::from_seed(&[7; 32]);
    let key = secret.public().fingerprint();
    let mut book = Book::new(
        RelayId(9),
        Settings {
            reoffer: false,
            ..settings()
        },
    );
    let only_a = bound(&secret, &["type='lsl-relay'", "name='stream a'"]);
    assert_eq!(book.set_bounds(only_a.clone(), 0.0), Some(false));
    book.seen(FACE, info("a"), 0.0);
    book.seen(FACE, info("b"), 0.0);
    pass(&mut book, 1.0);
    let asker = Asker {
        reader: Reader::Key(key),
        link: None,
    };
    let query = None;
    book.watch(WatcherId(1), Watch { asker, query });
    let told = ["a by face 0", "b by face 0", "1: + a", "1: ="];
    assert_eq!(events(&mut book), told);
    let may_read = |book: &Book| ["a", "b"].map(|uid| book.may_read(uid, asker));
    assert_eq!(may_read(&book), [true, false]);
    // Others may, and a change counts at once.
    assert!(book.may_read("b", LOCAL));
    assert_eq!(book.set_bounds(only_a, 2.0), None);
    let only_b = bound(&secret, &["name='stream b'", "desc/x"]);
    assert_eq!(book.set_bounds(only_b.clone(), 2.0), Some(false));
    assert_eq!(may_read(&book), [false, true]);
    pass(&mut book, 3.0);
    assert_eq!(events(&mut book), ["1: - a Hidden", "1: + b"]);
    // As a relay it serves no others, either.
    book.link_up(RelayId(1), Some(key), 3.0);
    announce(&mut book, "c", &[1], 3.0);
    assert_eq!(events(&mut book), [""; 0]);
    assert_eq!(
        book.set_bounds(bound(&secret, &["type='EEG'"]), 4.0),
        Some(true)
    );
    announce(&mut book, "c", &[1], 4.0);
    assert_eq!(events(&mut book)[0], "c by link 1");
}

#[test]
fn a_document_that_changes_may_end_the_right_to_read() {
    let rules = Rules(vec![Rule {
        predicate: Predicate::parse("desc/kind='private'").ok(),
        readers: Readers::Only {
            keys: std::collections::HashSet::new(),
            local: false,
        },
        ..Rule::default()
    }]);
    let mut book = book(Settings {
        rules,
        reoffer: false,
        ..settings()
    });
    announce(&mut book, "a", &[1], 0.0);
    pass(&mut book, 1.0);
    assert_eq!(events(&mut book), ["a by link 1"]);
    assert!(book.may_read("a", LOCAL));
    let text = String::from_utf8(relayed("a", &[1]).to_xml()).expect("text");
    let text = text.replace("<desc />", "<desc><kind>private</kind></desc>");
    let private = StreamInfo::from_xml(text.as_bytes()).expect("an info");
    book.announced(RelayId(1), "a", private.clone(), 2.0);
    pass(&mut book, 3.0);
    // Feeds are the driver's to end.
    assert_eq!(events(&mut book), ["changed a"]);
    assert!(!book.may_read("a", LOCAL));
    book.announced(RelayId(1), "a", private, 4.0);
    pass(&mut book, 5.0);
    assert_eq!(events(&mut book), [""; 0]);
}
