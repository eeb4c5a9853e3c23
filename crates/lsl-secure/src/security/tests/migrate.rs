//! `migrate` and its memory (verification 38).

use super::*;

fn migrating(lab: &Lab) -> Arc<Security> {
    lab.start("policy = \"migrate\"\nmigrate_until = \"2999-12-31\"")
        .unwrap()
}

fn descriptor(name: &str, stream_type: &str, source_id: &str) -> Descriptor {
    Descriptor {
        uid: b"uid".to_vec(),
        name: name.into(),
        stream_type: stream_type.into(),
        source_id: source_id.into(),
        hostname: b"host".to_vec(),
        session_id: b"default".to_vec(),
        channel_count: 1,
        nominal_srate: 0.0,
        channel_format: 1,
        created_at: 1.0,
    }
}

fn way(
    security: &Security,
    name: &str,
    stream_type: &str,
    source_id: &str,
    advert: Option<&str>,
) -> Way {
    let (name, stream_type) = (name.as_bytes(), stream_type.as_bytes());
    security.way_of_inlet(
        name,
        stream_type,
        source_id.as_bytes(),
        "192.168.7.20:16572",
        advert,
    )
}

fn is_refused(way: &Way, words: &str) -> bool {
    matches!(way, Way::Refuse { cause: Cause::PlaintextRefused, text } if text.contains(words))
}

#[test]
fn a_forged_advert_does_not_lock_a_legacy_stream_out() {
    let lab = Lab::new(&both());
    let security = migrating(&lab);
    assert_eq!(way(&security, "eeg", "EEG", "id", None), Way::Plaintext);
    assert_eq!(
        way(&security, "eeg", "EEG", "id", Some("required")),
        Way::Secure
    );
    // That attempt fails, nothing is noted, and without the advert all is as before.
    assert_eq!(way(&security, "eeg", "EEG", "id", None), Way::Plaintext);
    assert_eq!(security.policy(), Policy::Migrate);
}

#[test]
fn what_was_encrypted_once_is_never_read_in_plaintext() {
    let lab = Lab::new(&both());
    let security = migrating(&lab);
    security.note_secure(&descriptor("eeg", "EEG", "amp-7"), &key(AMP));
    let other_process = migrating(&lab);
    let check = |name: &str, stream_type: &str, source_id: &str, refused: bool| {
        for security in [&security, &other_process] {
            let way = way(security, name, stream_type, source_id, None);
            let fingerprint = format!("was encrypted before ({})", key(AMP).fingerprint());
            let seen = is_refused(&way, &fingerprint);
            assert_eq!(seen, refused, "{name} {stream_type} {source_id}: {way:?}");
        }
    };
    check("eeg", "EEG", "amp-7", true);
    check("x", "y", "amp-7", true);
    check("eeg", "EEG", "other", true);
    check("eeg", "EEG", "", true);
    check("eeg", "y", "other", false);
    check("x", "EEG", "", false);
    check("x", "EEG", "amp-8", false);
    // A third one learns something while the others run.
    migrating(&lab).note_secure(&descriptor("eye", "Gaze", ""), &key(AMP));
    check("eye", "Gaze", "anything", true);
    check("eye", "Gaze2", "", false);
    assert_eq!(lab.scratch.mode("known_secure"), 0o600);
}

#[test]
fn a_memory_that_cannot_be_used_makes_migrate_required() {
    let check = |what: &str, damage: &dyn Fn(&Scratch)| {
        // At start.
        let lab = Lab::new(&both());
        damage(&lab.scratch);
        let security = migrating(&lab);
        assert_eq!(security.policy(), Policy::Required, "{what}");
        assert!(
            is_refused(&way(&security, "a", "b", "", None), "does not offer"),
            "{what}"
        );
        assert_eq!(security.advert().unwrap()[1].1, "required", "{what}");
        // While it runs.
        let lab = Lab::new(&both());
        let security = migrating(&lab);
        assert_eq!(security.policy(), Policy::Migrate, "{what}");
        let _ = fs::remove_file(lab.scratch.path("known_secure"));
        damage(&lab.scratch);
        assert!(
            is_refused(&way(&security, "a", "b", "", None), "does not offer"),
            "{what}"
        );
        assert_eq!(security.policy(), Policy::Required, "{what}");
    };
    let write =
        |scratch: &Scratch, text: &str, mode| drop(scratch.write("known_secure", text, mode));
    let mut line = format!(
        "{{\"source_id\":\"\",\"name\":\"a\",\"type\":\"b\",\"key\":\"{}\"}}",
        key(AMP)
    );
    check("garbage", &|s| write(s, "garbage\n", 0o600));
    check("empty line", &|s| write(s, "\n", 0o600));
    check("torn", &|s| write(s, &line, 0o600));
    check("readable", &|s| write(s, "", 0o644));
    check("directory", &|s| {
        fs::create_dir(s.path("known_secure")).unwrap();
    });
    line.push('\n');
    let no_key = line.replace(&key(AMP).to_string(), "lsl-ed25519:AQ==");
    check("no key", &|s| write(s, &no_key, 0o600));
    let new_field = line.replace('}', ",\"x\":1}");
    check("new field", &|s| write(s, &new_field, 0o600));
    let weak = "lsl-ed25519:AQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
    let lab = Lab::new(&both());
    write(
        &lab.scratch,
        &line.replace(&key(AMP).to_string(), weak),
        0o600,
    );
    let security = migrating(&lab);
    assert!(matches!(
        way(&security, "a", "b", "", None),
        Way::Refuse { .. }
    ));
    assert_eq!(security.policy(), Policy::Required);
    // The same line is fine as it is.
    let lab = Lab::new(&both());
    write(&lab.scratch, &line, 0o600);
    let security = migrating(&lab);
    assert!(is_refused(
        &way(&security, "a", "b", "", None),
        "was encrypted before"
    ));
}

#[test]
fn a_memory_that_vanishes_makes_migrate_required() {
    let lab = Lab::new(&both());
    let security = migrating(&lab);
    fs::remove_file(lab.scratch.path("known_secure")).unwrap();
    assert!(is_refused(
        &way(&security, "a", "b", "", None),
        "does not offer"
    ));
    security.note_secure(&descriptor("eeg", "EEG", "amp-7"), &key(AMP));
    assert_eq!(security.policy(), Policy::Required);
}

#[test]
fn the_last_day_counts_and_the_next_one_does_not() {
    let lab = Lab::new(&both());
    let last = today(lsl_platform::clock::utc_now(), None).plus_days(1);
    let security = lab
        .start(&format!("policy = \"migrate\"\nmigrate_until = \"{last}\""))
        .unwrap();
    lab.pass(86_400);
    assert_eq!(security.policy(), Policy::Migrate);
    assert_eq!(security.advert().unwrap()[1].1, "migrate");
    lab.pass(86_400);
    assert_eq!(security.policy(), Policy::Required);
    assert_eq!(security.advert().unwrap()[1].1, "required");
    assert!(is_refused(
        &way(&security, "a", "b", "", None),
        "does not offer"
    ));
    // A clock set back does not bring it back before the day the library was made.
    let built = crate::trust::BUILD_DATE.plus_days(-1);
    let security = lab
        .start(&format!(
            "policy = \"migrate\"\nmigrate_until = \"{built}\""
        ))
        .unwrap();
    lab.set_clock(-3_000_000_000);
    assert_eq!(security.policy(), Policy::Required);
}

#[test]
fn named_streams_may_stay_plaintext() {
    let allow = "[[plaintext_allow]]\nsource_id = \"old-amp\"";
    for policy in [
        "policy = \"required\"",
        "policy = \"migrate\"\nmigrate_until = \"2999-12-31\"",
    ] {
        let lab = Lab::new(&both());
        let security = lab.start(&format!("{policy}\n{allow}")).unwrap();
        security.note_secure(&descriptor("eeg", "EEG", "old-amp"), &key(AMP));
        assert_eq!(
            way(&security, "eeg", "EEG", "old-amp", None),
            Way::Plaintext
        );
        assert_eq!(
            way(&security, "eeg", "EEG", "old-amp", Some("required")),
            Way::Secure
        );
        let by_name = way(&security, "eeg", "EEG", "old-amp2", None);
        assert!(matches!(by_name, Way::Refuse { .. }), "{by_name:?}");
    }
}

#[test]
fn an_empty_name_allows_nothing() {
    let mut settings = Settings::new(Policy::Required);
    settings.plaintext_allow = vec![String::new()];
    let own = SecretKey::from_seed(&[OWN; 32]);
    let security = Security::from_parts(settings, own, TrustList::default()).unwrap();
    let way = way(&security, "eeg", "EEG", "", None);
    assert!(is_refused(&way, "does not offer"), "{way:?}");
}

#[test]
fn required_keeps_no_memory() {
    let lab = Lab::new(&both());
    let security = lab.required();
    security.note_secure(&descriptor("eeg", "EEG", "amp-7"), &key(AMP));
    assert!(!lab.scratch.names().contains(&"known_secure".to_owned()));
}

#[test]
fn a_program_without_files_remembers_while_it_runs() {
    let mut settings = Settings::new(Policy::Migrate);
    settings.migrate_until = "2999-12-31".parse().ok();
    let own = SecretKey::from_seed(&[OWN; 32]);
    let security = Security::from_parts(settings, own, TrustList::default()).unwrap();
    assert_eq!(way(&security, "eeg", "EEG", "amp-7", None), Way::Plaintext);
    security.note_secure(&descriptor("eeg", "EEG", "amp-7"), &key(AMP));
    assert!(is_refused(
        &way(&security, "x", "y", "amp-7", None),
        "was encrypted before"
    ));
}

#[test]
fn plaintext_that_runs_ends_with_the_last_day_of_migrate() {
    let lab = Lab::new(&both());
    let today = today(lsl_platform::clock::utc_now(), None);
    let last = today.plus_days(1);
    let lines = format!("policy = \"migrate\"\nmigrate_until = \"{last}\"");
    let security = lab.start(&lines).unwrap();
    let ends = Arc::new(AtomicUsize::new(0));
    let count = |ends: &Arc<AtomicUsize>| ends.load(Ordering::Relaxed);
    let register = || {
        let ends = Arc::clone(&ends);
        security.register_plaintext(move || {
            ends.fetch_add(1, Ordering::Relaxed);
        })
    };
    let running = register().unwrap();
    drop(register().unwrap());
    assert!(security.has_live_sessions());
    security.refresh();
    assert_eq!(count(&ends), 0, "its last day counts");
    lab.pass(2 * 86_400);
    security.refresh_if_idle();
    security.refresh();
    assert_eq!(count(&ends), 1, "each once, and only those that run");
    assert_eq!(register().map(drop), Err(Cause::PlaintextRefused));
    drop(running);
    assert!(!security.has_live_sessions());
}
