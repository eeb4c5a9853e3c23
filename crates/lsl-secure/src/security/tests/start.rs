//! What a start needs, and what holds afterwards.

use super::*;

#[test]
fn a_start_reads_all_files() {
    let lab = Lab::new(&both());
    keyfile::write_new_psk(&lab.scratch.path("lab.psk")).unwrap();
    let security = lab
        .start("policy = \"required\"\npsk_file = \"lab.psk\"\npad_to = 64\nforce_chacha20 = true")
        .unwrap();
    let local = security.local().unwrap();
    assert_eq!(local.key.public(), key(OWN));
    assert!(local.psk.is_some());
    assert_eq!(local.suites, Suites::ChaCha20Only);
    assert_eq!(local.pad_to, 64);
    assert_eq!(security.trust().peers().len(), 2);
    assert_eq!(security.policy(), Policy::Required);
    assert_eq!(
        security.file(),
        Some(lab.scratch.path("lsl-secure.toml").as_path())
    );
    assert_eq!(lab.count(&security, "force_chacha20"), 1);
    assert!(!security.has_live_sessions());
}

#[test]
fn what_is_missing_or_open_to_others_stops_the_start() {
    let check = |lines: &str, damage: &dyn Fn(&Scratch), words: &[&str]| {
        let lab = Lab::new(&both());
        damage(&lab.scratch);
        let error = lab.start(lines).expect_err(lines).to_string();
        let directory = lab.scratch.as_ref().display().to_string();
        assert!(error.starts_with(&directory), "{error}");
        for word in words {
            assert!(says(&error, word), "{error} lacks {word}");
        }
    };
    let nothing = |_: &Scratch| {};
    let remove = |name: &'static str| {
        move |scratch: &Scratch| {
            fs::remove_file(scratch.path(name)).unwrap();
        }
    };
    let required = "policy = \"required\"";
    check(
        required,
        &remove("device_key.pem"),
        &["device_key.pem", "lsl key init"],
    );
    check(
        "",
        &remove("device_key.pem"),
        &["device_key.pem", "lsl key init"],
    );
    check(
        required,
        &remove("trusted_peers.toml"),
        &["trusted_peers.toml"],
    );
    check(
        required,
        &|s| s.chmod("device_key.pem", 0o644),
        &["mode 0644", "chmod 600"],
    );
    check(
        required,
        &|s| s.chmod("trusted_peers.toml", 0o666),
        &["chmod go-w"],
    );
    check("key_file = \"\"", &nothing, &["needs key_file"]);
    check("trusted_peers = \"\"", &nothing, &["needs trusted_peers"]);
    check("psk_file = \"psk\"", &nothing, &["/psk: cannot be read"]);
    check("passphrase_file = \"p\"", &nothing, &["/p: cannot be read"]);
    check("policy = \"of\"", &nothing, &["lsl-secure.toml: line 4"]);
    check(
        required,
        &|s| drop(s.write("trusted_peers.toml", "[[peer", 0o644)),
        &["line 1"],
    );
    // `off` does not forgive an open key either: the same file will be needed again.
    check(
        "policy = \"off\"",
        &|s| s.chmod("device_key.pem", 0o644),
        &["mode 0644"],
    );
}

/// B8: a program that switches encryption off does so only where the system leaves it to programs.
#[test]
fn off_cannot_undercut_the_floor() {
    let scratch = Scratch::new();
    let file = "etc/lsl_api/lsl-secure.toml";
    let places = Places {
        variable: None,
        home: None,
        home_is_closed: false,
        system: scratch.path(file),
        elevated: false,
    };
    let off = || Security::off_in(&places, Vec::new());
    assert_eq!(off().unwrap().policy(), Policy::Off);
    scratch.write(file, "[security]\npolicy = \"off\"", 0o644);
    assert_eq!(off().unwrap().policy(), Policy::Off);
    let migrate = "policy = \"migrate\"\nmigrate_until = \"2999-12-31\"";
    for policy in [migrate, "policy = \"required\"", "policy = \"wrong\""] {
        scratch.write(file, &format!("[security]\n{policy}"), 0o644);
        let error = off().unwrap_err().to_string();
        assert!(says(&error, file), "{error}");
    }
}

#[test]
fn off_knows_whom_the_port_of_a_relay_may_trust() {
    let lab = Lab::new(&both());
    let security = lab.start("policy = \"off\"").unwrap();
    assert_eq!(security.trust().peers().len(), 2);
    lab.scratch
        .write("trusted_peers.toml", "not even TOML", 0o600);
    let security = lab.start("policy = \"off\"").unwrap();
    assert_eq!(security.trust().peers().len(), 0);
}

#[test]
fn off_needs_nothing_and_announces_nothing() {
    let lab = Lab::new("not even TOML");
    let security = lab.start("policy = \"off\"").unwrap();
    assert_eq!(security.policy(), Policy::Off);
    assert_eq!(security.advert(), None);
    assert_eq!(security.local().unwrap().key.public(), key(OWN));
    fs::remove_file(lab.scratch.path("device_key.pem")).unwrap();
    let security = lab.start("policy = \"off\"").unwrap();
    assert!(security.local().is_none());
    assert!(!security.refresh());
    let security = Security::off(vec!["/a".into(), "/b".into()]).unwrap();
    assert_eq!(security.policy(), Policy::Off);
    assert_eq!(security.advert(), None);
    assert!(
        security.local().is_none() && security.settings().is_none() && security.file().is_none()
    );
    let way = security.way_of_inlet(b"ee\x1bg", b"", b"", "10.0.0.1:1", Some("required"));
    let Way::Refuse { text, .. } = way else {
        panic!("{way:?}");
    };
    assert!(
        text.ends_with("has no key; searched /a, /b; run: lsl key init"),
        "{text}"
    );
    assert!(!text.contains('\x1b'), "{text}");
    assert_eq!(
        security.way_of_inlet(b"eeg", b"", b"", "10.0.0.1:1", None),
        Way::Plaintext
    );
}

#[test]
fn adverts_have_their_attributes_in_order() {
    let check = |lines: &str, next: Option<u8>, expected: &str| {
        let lab = Lab::new("");
        if let Some(seed) = next {
            let next = SecretKey::from_seed(&[seed; 32]);
            keyfile::write_new_key(&lab.scratch.path("device_key_next.pem"), &next, None).unwrap();
        }
        let security = lab.start(lines).unwrap();
        let advert = security.advert().unwrap();
        let text: Vec<_> = advert
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        assert_eq!(text.join(" "), expected);
    };
    let (own, next) = (key(OWN).fingerprint(), key(5).fingerprint());
    let migrate = "policy = \"migrate\"\nmigrate_until = \"2999-01-01\"";
    check(
        "policy = \"required\"",
        None,
        &format!("v=1 policy=required fp={own}"),
    );
    check(migrate, None, &format!("v=1 policy=migrate fp={own}"));
    check(
        "",
        Some(5),
        &format!("v=1 policy=required fp={own} fp_next={next}"),
    );
    check("", Some(OWN), &format!("v=1 policy=required fp={own}"));
    check(
        "discovery = \"minimal\"",
        Some(5),
        "v=1 policy=required mode=minimal",
    );
}

#[test]
fn a_next_key_that_cannot_be_read_stops_nothing() {
    let lab = Lab::new("");
    lab.scratch.write("device_key_next.pem", "garbage", 0o600);
    let security = lab.required();
    assert_eq!(security.advert().unwrap().len(), 3);
}

#[test]
fn the_text_for_the_other_machine_can_be_pasted() {
    let lab = Lab::new(&both());
    let security = lab.required();
    let check = |seed: u8, name: &str| {
        let expected = format!(
            "\"{name}\" ({}) does not trust this device; there run: lsl trust add own {}",
            key(seed).fingerprint(),
            key(OWN)
        );
        assert_eq!(security.not_trusted_text(&key(seed)), expected);
    };
    check(AMP, "amp");
    check(OWN, "own");
    check(STRANGER, "unknown");
}

#[test]
fn the_system_is_a_floor_for_programs_too() {
    let check = |system: &str, own: &str, expected: Policy| {
        let lab = Lab::new(&both());
        lab.scratch.write(
            "etc/lsl-secure.toml",
            &format!("[security]\n{system}"),
            0o644,
        );
        assert_eq!(
            lab.start(own).unwrap().policy(),
            expected,
            "{system} / {own}"
        );
    };
    let (off, required) = ("policy = \"off\"", "policy = \"required\"");
    let migrate = "policy = \"migrate\"\nmigrate_until = \"2999-01-01\"";
    let over = "policy = \"migrate\"\nmigrate_until = \"2020-01-01\"";
    check(off, off, Policy::Off);
    check(off, migrate, Policy::Migrate);
    check(required, off, Policy::Required);
    check(required, migrate, Policy::Required);
    check(migrate, off, Policy::Migrate);
    check(migrate, required, Policy::Required);
    check(over, migrate, Policy::Required);
    check(migrate, over, Policy::Required);
    check(over, off, Policy::Required);
}

#[test]
fn a_floor_that_demands_a_key_is_no_key() {
    let lab = Lab::new(&both());
    let system = "[security]\npolicy = \"required\"\n";
    let places = Places {
        variable: None,
        home: Some(lab.scratch.path("home")),
        home_is_closed: false,
        system: lab.scratch.write("etc/lsl-secure.toml", system, 0o644),
        elevated: false,
    };
    let error = Security::search_in(&places, lab.clock())
        .unwrap_err()
        .to_string();
    assert!(
        says(&error, "etc/device_key.pem") && error.contains("lsl key init"),
        "{error}"
    );
    // With the key of a user it holds.
    let text = "[security]\nkey_file = \"../../device_key.pem\"\npolicy = \"off\"\n\
                trusted_peers = \"../../trusted_peers.toml\"\n";
    lab.scratch
        .write("home/lsl_api/lsl-secure.toml", text, 0o600);
    let security = Security::search_in(&places, lab.clock()).unwrap();
    assert_eq!(security.policy(), Policy::Required);
    assert_eq!(security.local().unwrap().key.public(), key(OWN));
}

#[test]
fn decisions_follow_the_file() {
    let lab = Lab::new(&both());
    let security = lab.required();
    let check = |seed, role, expected: Result<&str, Cause>| {
        let decided = decide(&security, seed, role, LAN);
        assert_eq!(decided.as_deref().map_err(|cause| *cause), expected);
    };
    check(AMP, Role::Outlet, Ok("amp"));
    check(AMP, Role::Inlet, Err(Cause::RoleNotAllowed));
    check(REC, Role::Inlet, Ok("rec"));
    check(STRANGER, Role::Inlet, Err(Cause::NotAuthorised));
}
