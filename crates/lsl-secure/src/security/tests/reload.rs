//! The trust file changes while sessions live (verification 36).

use super::*;

#[test]
fn removal_ends_the_sessions_of_that_key_only() {
    let lab = Lab::new(&both());
    let security = lab.required();
    let (amp, rec) = (Ends::default(), Ends::default());
    let amp_session = security
        .register(live(AMP, Role::Outlet, LAN), amp.callback())
        .unwrap();
    let _rec = security
        .register(live(REC, Role::Inlet, LAN), rec.callback())
        .unwrap();
    assert!(!security.refresh());
    lab.replace_trust(&peer("rec", REC, "role = \"inlet\""));
    assert!(security.refresh());
    assert_eq!((amp.count(), rec.count()), (1, 0));
    assert_eq!(
        decide(&security, AMP, Role::Outlet, LAN),
        Err(Cause::NotAuthorised)
    );
    assert_eq!(
        decide(&security, REC, Role::Inlet, LAN).as_deref(),
        Ok("rec")
    );
    // Told once, and gone when the session says so.
    assert!(!security.refresh());
    lab.replace_trust(&(peer("rec", REC, "role = \"inlet\"") + &peer("x", 7, "")));
    assert!(security.refresh());
    assert_eq!((amp.count(), rec.count()), (1, 0));
    assert!(security.has_live_sessions());
    drop(amp_session);
    assert_eq!(lab.count(&security, "revoked"), 1);
    assert_eq!(lab.count(&security, "trust_reloaded"), 2);
}

/// A look that hangs, on a network share, holds up nobody else.
#[test]
fn nobody_waits_for_a_look_that_hangs() {
    let lab = Lab::new(&both());
    let security = lab.required();
    lab.replace_trust("");
    let looking = lock(security.running().watch.as_ref().unwrap());
    assert!(!security.refresh_if_idle());
    assert!(decide(&security, AMP, Role::Outlet, LAN).is_ok());
    drop(looking);
    assert!(security.refresh_if_idle());
    assert!(decide(&security, AMP, Role::Outlet, LAN).is_err());
}

#[test]
fn what_is_narrowed_ends_and_what_is_not_goes_on() {
    let check = |new: &str, ends: usize| {
        let lab = Lab::new(&peer("amp", AMP, ""));
        let security = lab.required();
        let ended = Ends::default();
        let _session = security
            .register(live(AMP, Role::Outlet, LAN), ended.callback())
            .unwrap();
        lab.replace_trust(new);
        assert!(security.refresh(), "{new}");
        assert_eq!(ended.count(), ends, "{new}");
    };
    check("", 1);
    check(&peer("amp", AMP, "role = \"inlet\""), 1);
    check(&peer("amp", AMP, "role = \"outlet\""), 0);
    check(&peer("amp", AMP, "from = [\"10.0.0.0/8\"]"), 1);
    check(&peer("amp", AMP, "from = [\"192.168.7.0/24\"]"), 0);
    check(&peer("another name", AMP, ""), 0);
    // A recording is not cut at midnight: dates count at handshakes only.
    check(&peer("amp", AMP, "not_after = \"2020-01-01\""), 0);
}

#[test]
fn a_bad_file_keeps_the_last_good_list_and_is_told_once_a_minute() {
    let good = both();
    let check = |what: &str, damage: &dyn Fn(&Scratch), words: &str| {
        let lab = Lab::new(&good);
        let security = lab.required();
        let ends = Ends::default();
        let _session = security
            .register(live(AMP, Role::Outlet, LAN), ends.callback())
            .unwrap();
        lab.pass(10);
        damage(&lab.scratch);
        for _ in 0..40 {
            lab.pass(2);
            assert!(!security.refresh(), "{what}");
        }
        // 80 s: at once and after a minute.
        assert_eq!(lab.count(&security, "trust_reload_failed"), 2, "{what}");
        let (_, detail) = lab.events(&security).pop().unwrap();
        assert!(says(&detail, words), "{what}: {detail}");
        assert!(detail.contains("trusted_peers.toml"), "{what}: {detail}");
        assert_eq!(
            decide(&security, AMP, Role::Outlet, LAN).as_deref(),
            Ok("amp"),
            "{what}"
        );
        assert_eq!(ends.count(), 0, "{what}");
        // The good file comes back: said, though nothing changed.
        let _ = fs::remove_file(lab.scratch.path("trusted_peers.toml"));
        let _ = fs::remove_dir(lab.scratch.path("trusted_peers.toml"));
        lab.scratch.write("trusted_peers.toml", &good, 0o644);
        lab.pass(10);
        assert!(!security.refresh(), "{what}");
        assert_eq!(lab.count(&security, "trust_reloaded"), 1, "{what}");
        lab.pass(100);
        assert!(!security.refresh(), "{what}");
        assert_eq!(lab.count(&security, "trust_reload_failed"), 2, "{what}");
        assert_eq!(ends.count(), 0, "{what}");
    };
    let path = |scratch: &Scratch| scratch.path("trusted_peers.toml");
    let half = good[..good.len() - 30].to_owned();
    check("half", &|s| fs::write(path(s), &half).unwrap(), "line 7");
    check(
        "deleted",
        &|s| fs::remove_file(path(s)).unwrap(),
        "cannot be read",
    );
    check(
        "writable",
        &|s| s.chmod("trusted_peers.toml", 0o666),
        "chmod go-w",
    );
    check(
        "group",
        &|s| s.chmod("trusted_peers.toml", 0o664),
        "chmod go-w",
    );
    check(
        "moved",
        &|s| fs::rename(path(s), s.path("x")).unwrap(),
        "cannot be read",
    );
    check(
        "directory",
        &|s| {
            fs::remove_file(path(s)).unwrap();
            fs::create_dir(path(s)).unwrap();
        },
        "not a regular file",
    );
    check(
        "twice",
        &|s| fs::write(path(s), good.repeat(2)).unwrap(),
        "same key",
    );
    check(
        "typo",
        &|s| fs::write(path(s), good.replace("role", "rol")).unwrap(),
        "`rol`",
    );
}

#[test]
fn an_editor_that_saves_in_place_does_not_end_recordings() {
    let lab = Lab::new(&both());
    let security = lab.required();
    let ends = Ends::default();
    let _session = security
        .register(live(AMP, Role::Outlet, LAN), ends.callback())
        .unwrap();
    let path = lab.scratch.path("trusted_peers.toml");
    // Emptied, and looked at before the content comes: an empty list would be valid.
    fs::write(&path, "").unwrap();
    assert!(!security.refresh());
    fs::write(&path, both() + &peer("new", 7, "")).unwrap();
    assert!(!security.refresh());
    lab.pass(2);
    assert!(security.refresh());
    assert_eq!(security.trust().peers().len(), 3);
    assert_eq!(ends.count(), 0);
    // Files are written by the machine's clock, which did not pass.
    lab.set_clock(-2);
    // It stays empty: meant so, and within 5 s.
    fs::write(&path, "").unwrap();
    assert!(!security.refresh());
    lab.pass(2);
    assert!(security.refresh());
    assert_eq!(ends.count(), 1);
}

#[test]
fn changes_of_the_same_instant_and_length_are_seen() {
    let lab = Lab::new(&peer("a", AMP, ""));
    // Two seconds ahead of the files: nobody waits, and nothing is old enough to be sure of.
    lab.pass(2);
    let security = lab.required();
    let begun = lsl_platform::clock::utc_now();
    for round in 0..200_u8 {
        // The test's clock stands; the files' does not, however slow this machine is.
        let elapsed = lsl_platform::clock::utc_now()
            .saturating_sub(begun)
            .as_millis();
        lab.set_by
            .store(i64::try_from(elapsed).unwrap(), Ordering::Relaxed);
        let name = char::from(b'b' + round % 2).to_string();
        let text = peer(&name, AMP, "");
        fs::write(lab.scratch.path("trusted_peers.toml"), text).unwrap();
        assert!(security.refresh(), "round {round}");
        assert_eq!(security.trust().peers()[0].name, name);
    }
}

#[test]
fn a_file_from_the_future_is_reloaded_all_the_same() {
    let lab = Lab::new(&both());
    // A machine whose clock stands in 1970: by it, every file comes from the future.
    lab.set_clock(-3_000_000_000);
    let security = lab.required();
    fs::write(lab.scratch.path("trusted_peers.toml"), peer("amp", AMP, "")).unwrap();
    assert!(!security.refresh());
    lab.pass(1);
    assert!(security.refresh());
    assert_eq!(security.trust().peers().len(), 1);
    // Also what is written right after reading, with the same time and length.
    lab.replace_trust(&peer("amq", AMP, ""));
    assert!(security.refresh());
    assert_eq!(security.trust().peers()[0].name, "amq");
}

#[test]
fn not_after_counts_at_handshakes_and_not_by_a_clock_set_back() {
    let day = 86_400;
    let tomorrow = today(lsl_platform::clock::utc_now(), None).plus_days(1);
    let lab = Lab::new(&peer("amp", AMP, &format!("not_after = \"{tomorrow}\"")));
    let security = lab.required();
    let ends = Ends::default();
    let now = || decide(&security, AMP, Role::Outlet, LAN);
    assert_eq!(now().as_deref(), Ok("amp"));
    let _session = security
        .register(live(AMP, Role::Outlet, LAN), ends.callback())
        .unwrap();
    lab.pass(2 * day);
    assert_eq!(now(), Err(Cause::Expired));
    assert!(!security.refresh());
    assert_eq!(ends.count(), 0);
    // Ten years back: the trust file itself is proof of a later day, and so is the library.
    lab.set_clock(-3652 * day);
    assert_eq!(now().as_deref(), Ok("amp"));
    let yesterday = tomorrow.plus_days(-2);
    lab.replace_trust(&peer("amp", AMP, &format!("not_after = \"{yesterday}\"")));
    lab.pass(2);
    assert!(security.refresh());
    assert_eq!(now(), Err(Cause::Expired));
    let built = crate::trust::BUILD_DATE.plus_days(-3);
    lab.replace_trust(&peer("amp", AMP, &format!("not_after = \"{built}\"")));
    let old = fs::File::options()
        .append(true)
        .open(lab.scratch.path("trusted_peers.toml"));
    old.unwrap()
        .set_modified(std::time::SystemTime::UNIX_EPOCH)
        .unwrap();
    lab.pass(2);
    assert!(security.refresh());
    assert_eq!(now(), Err(Cause::Expired));
    assert_eq!(ends.count(), 0);
}

#[test]
fn trust_that_went_away_since_the_handshake_is_seen_at_enrolment() {
    let lab = Lab::new(&both());
    let security = lab.required();
    assert_eq!(
        decide(&security, AMP, Role::Outlet, LAN).as_deref(),
        Ok("amp")
    );
    lab.replace_trust(&peer("rec", REC, "role = \"outlet\""));
    assert!(security.refresh());
    let register = |seed, role| security.register(live(seed, role, LAN), |_| {}).map(drop);
    assert_eq!(register(AMP, Role::Outlet), Err(Cause::NotAuthorised));
    assert_eq!(register(REC, Role::Inlet), Err(Cause::RoleNotAllowed));
    assert_eq!(register(REC, Role::Outlet), Ok(()));
    assert!(!security.has_live_sessions());
}

#[test]
fn one_peer_has_at_most_1024_sessions_with_one_stream() {
    let lab = Lab::new(&both());
    let security = lab.required();
    let register = |seed, role, uid: &[u8]| {
        let session = SessionEntry {
            stream: Descriptor {
                uid: uid.to_vec(),
                ..Descriptor::default()
            },
            ..live(seed, role, LAN)
        };
        security.register(session, |_| {})
    };
    let mut sessions: Vec<_> = (0..1024)
        .map(|_| register(REC, Role::Inlet, b"a").unwrap())
        .collect();
    assert_eq!(register(REC, Role::Inlet, b"a").map(drop), Err(Cause::Busy));
    let _other_stream = register(REC, Role::Inlet, b"b").unwrap();
    let _other_peer = register(AMP, Role::Outlet, b"a").unwrap();
    sessions.pop();
    let _again = register(REC, Role::Inlet, b"a").unwrap();
    assert_eq!(register(REC, Role::Inlet, b"a").map(drop), Err(Cause::Busy));
}

#[test]
fn ending_may_call_back_into_everything() {
    let lab = Lab::new(&both());
    let security = lab.required();
    let slot: Arc<Mutex<Option<SessionGuard>>> = Arc::default();
    let (inner, taken) = (Arc::downgrade(&security), Arc::clone(&slot));
    let session = security
        .register(live(AMP, Role::Outlet, LAN), move |_| {
            let security = inner.upgrade().unwrap();
            assert!(!security.refresh());
            assert_eq!(security.trust().peers().len(), 0);
            assert_eq!(security.policy(), Policy::Required);
            let again = security.register(live(AMP, Role::Outlet, LAN), |_| {});
            assert_eq!(again.map(drop), Err(Cause::NotAuthorised));
            drop(taken.lock().unwrap().take().unwrap());
        })
        .unwrap();
    *slot.lock().unwrap() = Some(session);
    lab.replace_trust("");
    assert!(security.refresh());
    assert!(slot.lock().unwrap().is_none());
    assert!(!security.has_live_sessions());
}

#[test]
fn enrolling_while_the_list_changes_leaves_nobody_behind() {
    let lab = Lab::new(&both());
    let security = lab.required();
    let (alive, told) = (Arc::new(AtomicUsize::new(0)), Ends::default());
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for _ in 0..300 {
                    match security.register(live(AMP, Role::Outlet, LAN), told.callback()) {
                        Ok(session) => {
                            alive.fetch_add(1, Ordering::Relaxed);
                            // Lives on: only being told ends it.
                            std::mem::forget(session);
                        }
                        Err(cause) => assert_eq!(cause, Cause::NotAuthorised),
                    }
                }
            });
        }
        scope.spawn(|| {
            lab.replace_trust("");
            assert!(security.refresh());
        });
    });
    assert_eq!(told.count(), alive.load(Ordering::Relaxed));
}

/// A language of one word: `is X` matches the stream X.
fn queries() -> StreamQueries {
    StreamQueries {
        check: |text| match text.strip_prefix("is ") {
            Some(_) => Ok(()),
            None => Err("it does not begin with \"is\"".to_owned()),
        },
        matches: |text, stream| text.strip_prefix("is ").map(str::as_bytes) == Some(&stream.name),
    }
}

#[test]
fn sessions_of_streams_that_an_entry_covers_no_longer_end() {
    let bound = |name: &str| peer("amp", AMP, &format!("streams = [\"is {name}\"]"));
    let lab = Lab::new(&bound("eeg"));
    let security = lab.required();
    let stream = |name: &str| Descriptor {
        name: name.into(),
        ..Descriptor::default()
    };
    let admits = |name| security.admits_stream(&key(AMP), ip(LAN), ip(HERE), &stream(name));
    let refused = Err(Cause::RoleNotAllowed);
    assert_eq!(
        admits("eeg"),
        refused,
        "nobody has said what the predicate means"
    );
    security.set_stream_queries(queries()).unwrap();
    assert_eq!(admits("eeg"), Ok(()));
    assert_eq!(admits("gaze"), refused);
    let fingerprint = key(AMP).fingerprint().to_string();
    assert!(security.disowns(&fingerprint, &stream("gaze")));
    assert!(!security.disowns(&fingerprint, &stream("eeg")));
    assert!(!security.disowns("SHA256:other", &stream("gaze")));
    let ends = Ends::default();
    let session = |name| SessionEntry {
        stream: stream(name),
        ..live(AMP, Role::Outlet, LAN)
    };
    let register = |name| security.register(session(name), ends.callback());
    assert_eq!(register("gaze").map(drop), refused);
    let _session = register("eeg").unwrap();
    // Half a predicate keeps the last good list.
    lab.replace_trust(&peer("amp", AMP, "streams = [\"eeg\"]"));
    lab.pass(2);
    assert!(!security.refresh());
    assert_eq!((admits("eeg"), ends.count()), (Ok(()), 0));
    let events = lab.events(&security);
    let told = events
        .iter()
        .find(|(event, _)| event == "trust_reload_failed");
    assert!(
        told.unwrap().1.contains("\"eeg\" is no predicate"),
        "{told:?}"
    );
    lab.replace_trust(&bound("gaze"));
    lab.pass(2);
    assert!(security.refresh());
    assert_eq!((admits("eeg"), ends.count()), (refused, 1));
}

#[test]
fn a_predicate_that_is_none_is_fatal_at_start() {
    let lab = Lab::new(&peer("amp", AMP, "streams = [\"is eeg\", \"eeg\"]"));
    let error = lab.required().set_stream_queries(queries()).unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("trusted_peers.toml: streams of \"amp\": \"eeg\" is no"),
        "{text}"
    );
    for line in ["streams = []", "streams = [\" \"]", "streams = \"is eeg\""] {
        let lab = Lab::new(&peer("amp", AMP, line));
        assert!(lab.start("policy = \"required\"").is_err(), "{line}");
    }
}
