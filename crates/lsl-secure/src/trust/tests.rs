//! The trust file: what is accepted, what is refused and what is said about it.

use proptest::prelude::*;

use super::*;
use crate::SecretKey;

fn key(seed: u8) -> PublicKey {
    SecretKey::from_seed(&[seed; 32]).public()
}

fn parse(text: &str) -> Result<TrustList> {
    TrustList::parse(text, Path::new("/lab/trusted_peers.toml"))
}

fn date(text: &str) -> Date {
    text.parse().unwrap()
}

/// One `[[peer]]` with a good key and `more` lines.
fn entry(name: &str, seed: u8, more: &str) -> String {
    format!(
        "[[peer]]\nname = \"{name}\"\nkey = \"{}\"\n{more}\n",
        key(seed)
    )
}

#[test]
fn every_field_is_read() {
    let text = entry("amp", 1, "")
        + &entry("rec", 2, "role = \"inlet\"\nnot_after = \"2027-12-31\"")
        + &entry(
            "rec",
            3,
            "role = \"both\"\nnot_after = 2028-02-29\nfrom = [\"10.1.0.0/16\", \"::1\"]",
        )
        + &entry("eye", 4, "role = \"outlet\"");
    let list = parse(&text).unwrap();
    let expected = [
        ("amp", 1, TrustedRole::Both, None, 0),
        ("rec", 2, TrustedRole::Inlet, Some("2027-12-31"), 0),
        ("rec", 3, TrustedRole::Both, Some("2028-02-29"), 2),
        ("eye", 4, TrustedRole::Outlet, None, 0),
    ];
    assert_eq!(list.peers().len(), expected.len());
    for (peer, (name, seed, role, not_after, networks)) in list.peers().iter().zip(expected) {
        assert_eq!(peer.name, name);
        assert_eq!(peer.key, key(seed));
        assert_eq!(peer.role, role);
        assert_eq!(peer.not_after, not_after.map(date));
        assert_eq!(peer.from.len(), networks);
        assert_eq!(list.find(&peer.key), Some(peer));
    }
    assert_eq!(list.find(&key(9)), None);
    // What is written reads back as the same list.
    assert_eq!(parse(&list.to_toml()).unwrap(), list);
    assert_eq!(TrustList::from_peers(list.peers().to_vec()).unwrap(), list);
}

#[test]
fn an_empty_file_trusts_nobody() {
    for text in ["", "\n# nothing\n", "peer = []"] {
        assert_eq!(parse(text).unwrap().peers(), []);
    }
}

#[test]
fn mistakes_are_errors_with_file_line_and_remedy() {
    let check = |text: &str, line: usize, words: &str| {
        let error = parse(text).expect_err(text).to_string();
        let start = format!("/lab/trusted_peers.toml: line {line}: ");
        assert!(error.starts_with(&start), "{error}\nfor {text}");
        assert!(error.contains(words), "{error}\nlacks {words}");
        assert!(error.contains(';'), "no remedy: {error}");
    };
    check("[[peer]", 1, "correct this line");
    check("\nPeer = 1", 2, "unknown field `Peer`");
    check("[[peers]]\nname = \"a\"", 1, "unknown field `peers`");
    check("[[peer]]\nname = \"a\"", 1, "missing field `key`");
    check(&entry("a", 1, "rol = \"inlet\""), 4, "unknown field `rol`");
    check(&entry("a", 1, "role = \"Inlet\""), 4, "\"inlet\"");
    check(&entry("a", 1, "role = 1"), 4, "invalid type");
    check(
        &entry("a", 1, "role = \"inlet\"\nrole = \"both\""),
        5,
        "duplicate key",
    );
    check(
        &entry("a", 1, "not_after = \"2027-02-29\""),
        4,
        "2027-12-31",
    );
    check(
        &entry("a", 1, "not_after = 2027-02-28T00:00:00Z"),
        4,
        "2027-12-31",
    );
    check(&entry("a", 1, "not_after = 20270228"), 4, "2027-12-31");
    check(&entry("a", 1, "not_after = 07:00:00"), 4, "2027-12-31");
    check(&entry("a", 1, "from = \"10.0.0.0/8\""), 4, "invalid type");
    check(
        &entry("a", 1, "from = [\"10.0.0.0/8\",\n\"lab\"]"),
        5,
        "not an address",
    );
    check(
        &entry("a", 1, "from = []"),
        4,
        "names no network; remove this line",
    );
    check(
        &entry("a", 1, "from = [\"10.1.2.3/8\"]"),
        4,
        "\"10.0.0.0/8\"",
    );
    check(&entry("", 1, ""), 2, "name");
    check(&entry(&"x".repeat(201), 1, ""), 2, "name");
    check(&entry("a\\u001b[31m", 1, ""), 2, "control");
    // The same key twice, also under another name.
    let twice = entry("a", 1, "") + &entry("b", 2, "") + &entry("c", 1, "");
    check(&twice, 11, "\"c\" has the same key as \"a\"");
    let keyed = |key: &str| format!("[[peer]]\nname = \"a\"\nkey = \"{key}\"");
    check(&keyed(""), 3, "lsl-ed25519:");
    check(&keyed("ssh-ed25519 AAAA"), 3, "lsl-ed25519:");
    check(&keyed("lsl-ed25519:AAAA"), 3, "32 bytes");
    check(
        &keyed(&key(1).to_string().to_uppercase()),
        3,
        "lsl key show",
    );
    check(&keyed(&key(1).to_string().replace('=', "")), 3, "32 bytes");
    // A small-order point: the neutral element.
    check(
        &keyed("lsl-ed25519:AQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="),
        3,
        "weak",
    );
}

#[test]
fn a_program_cannot_list_a_key_twice_either() {
    let peers = parse(&entry("a", 1, "")).unwrap().peers().to_vec();
    let error = TrustList::from_peers([peers.clone(), peers].concat()).unwrap_err();
    assert!(error.to_string().contains("same key"), "{error}");
}

#[test]
fn decisions() {
    let text = entry("any", 1, "")
        + &entry("amp", 2, "role = \"outlet\"")
        + &entry("rec", 3, "role = \"inlet\"\nnot_after = \"2027-12-31\"")
        + &entry("lab", 4, "from = [\"10.1.0.0/16\", \"fd00::/8\"]");
    let list = parse(&text).unwrap();
    let check = |seed: u8, role: Role, remote: &str, day: &str, expected: Result<&str, Cause>| {
        let decided = list.decide(&key(seed), role, remote.parse().unwrap(), date(day));
        assert_eq!(
            decided.map(|peer| peer.name.as_str()),
            expected,
            "{seed} {role:?} {remote} {day}"
        );
    };
    let (day, home) = ("2027-01-01", "192.168.1.2");
    check(1, Role::Outlet, home, day, Ok("any"));
    check(1, Role::Inlet, home, day, Ok("any"));
    check(2, Role::Outlet, home, day, Ok("amp"));
    check(2, Role::Inlet, home, day, Err(Cause::RoleNotAllowed));
    check(3, Role::Inlet, home, "2027-12-31", Ok("rec"));
    check(3, Role::Inlet, home, "2028-01-01", Err(Cause::Expired));
    check(
        3,
        Role::Outlet,
        home,
        "2028-01-01",
        Err(Cause::RoleNotAllowed),
    );
    check(4, Role::Inlet, home, day, Err(Cause::NotAuthorised));
    check(4, Role::Inlet, "10.1.9.9", day, Ok("lab"));
    check(4, Role::Inlet, "::ffff:10.1.9.9", day, Ok("lab"));
    check(4, Role::Inlet, "fd12::1", day, Ok("lab"));
    check(4, Role::Inlet, "fe80::1", day, Err(Cause::NotAuthorised));
    check(5, Role::Inlet, home, day, Err(Cause::NotAuthorised));
}

#[test]
fn the_end_is_near_for_thirty_days() {
    let check = |today: &str, expected: Option<i32>| {
        let list = parse(&entry("a", 1, "not_after = \"2027-12-31\"")).unwrap();
        assert_eq!(
            list.peers()[0].days_left_if_few(date(today)),
            expected,
            "{today}"
        );
    };
    check("2027-11-30", None);
    check("2027-12-01", Some(30));
    check("2027-12-31", Some(0));
    check("2028-01-02", Some(-2));
    let list = parse(&entry("a", 1, "")).unwrap();
    assert_eq!(list.peers()[0].days_left_if_few(date("2027-12-31")), None);
}

#[test]
fn names_survive_the_file_whatever_is_in_them() {
    for name in [
        "amp 1",
        "a\"b",
        "a\\b",
        "ä",
        "]",
        "# no comment",
        "'",
        "a\u{202e}b",
    ] {
        let peer = Peer {
            name: name.to_owned(),
            key: key(1),
            role: TrustedRole::Inlet,
            not_after: Some(date("2027-12-31")),
            from: vec!["10.0.0.0/8".parse().unwrap()],
            streams: vec![format!("name={name:?}")],
        };
        let list = TrustList::from_peers(vec![peer]).unwrap();
        assert_eq!(parse(&list.to_toml()).unwrap(), list);
    }
}

/// Pieces of trust files, so that random texts come close to real ones.
fn piece() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("[[peer]]\n".to_owned()),
        Just("[peer]\n".to_owned()),
        Just("name = \"a\"\n".to_owned()),
        (0..4_u8).prop_map(|seed| format!("key = \"{}\"\n", key(seed))),
        Just("role = \"inlet\"\n".to_owned()),
        Just("not_after = \"2027-12-31\"\n".to_owned()),
        Just("not_after = 2027-12-31\n".to_owned()),
        Just("from = [\"10.0.0.0/8\", \"::/0\"]\n".to_owned()),
        Just("streams = [\"name='a'\", \"type='b'\"]\n".to_owned()),
        "[ -~\n]{0,12}",
        any::<String>(),
    ]
}

proptest! {
    /// Whatever the text: a list without repeated keys, or an error that names the file.
    #[test]
    fn no_text_is_too_much(pieces in prop::collection::vec(piece(), 0..24)) {
        match parse(&pieces.concat()) {
            Ok(list) => {
                let keys: std::collections::HashSet<_> = list.peers().iter().map(|p| p.key).collect();
                prop_assert_eq!(keys.len(), list.peers().len());
                prop_assert_eq!(parse(&list.to_toml()).unwrap(), list);
            }
            Err(error) => {
                let text = error.to_string();
                prop_assert!(text.starts_with("/lab/trusted_peers.toml: line "), "{}", text);
            }
        }
    }

    /// A file of ours that is cut anywhere (half saved) trusts nobody more than the whole.
    #[test]
    fn half_a_file_trusts_no_more(cut in 0_usize..500) {
        let text = entry("a", 1, "role = \"inlet\"")
            + &entry("b", 2, "from = [\"10.0.0.0/8\"]\nnot_after = \"2027-12-31\"\nstreams = [\"name='x'\"]");
        let whole = parse(&text).unwrap();
        let text = whole.to_toml();
        if let Ok(list) = parse(&text[..cut.min(text.len())]) {
            for peer in list.peers() {
                prop_assert_eq!(Some(peer), whole.find(&peer.key));
            }
        }
    }
}
