//! Who is trusted as what: keys, roles, dates, revocation, and what both sides are told about it.
//! Spec: LSS/1 §3.2, §4.4, §7.4.

use std::fs;
use std::time::Duration;

use lsl_core::secure::trust::{Peer, TrustedRole};
use lsl_core::secure::{Cause, Policy, keyfile};
use lsl_core::{ErrorKind, Inlet};

use super::fake::{Claim, Fake, Running, sample};
use super::people::{Place, Side, fingerprint_of, info, key_of, trusted};
use crate::lab::{self, SOON};

/// An outlet of this key that trusts everybody, unless it refuses.
fn outlet(key: &str, name: &str, refuses: Option<Cause>) -> (Running, Claim) {
    let claim = Claim::of(name);
    let samples = sample(1.0, 1.0);
    let mut fake = Fake::honest(key, &claim, claim.descriptor(), samples);
    fake.refuses = refuses;
    let outlet = fake.run();
    let port = outlet.port;
    (outlet, Claim { port, ..claim })
}

fn refusal(side: &Side, claim: &Claim) -> (Inlet, String) {
    let inlet = side.inlet_for(&claim.info());
    let error = inlet.blocking().open(SOON).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
    (inlet, error.to_string())
}

/// An outlet that this trust list does not let through: what the user reads, and the audit line.
fn check_refused(place: &Place, key: &str, trusts: Vec<Peer>, cause: Cause, words: &str) {
    let rec = place.side_with("rec", Policy::Required, trusts, |_| {});
    let (outlet, claim) = outlet(key, cause.name(), None);
    let (inlet, text) = refusal(&rec, &claim);
    assert!(
        text.contains(words) && text.contains(cause.name()),
        "{text}"
    );
    assert!(text.contains(&fingerprint_of(key)), "{text}");
    assert_eq!(inlet.stats().samples, 0);
    let event = rec.await_audit("policy_refused", |event| {
        event["code"] == cause.code() && event["peer_fp"] == fingerprint_of(key).as_str()
    });
    assert_eq!(event["role"], "inlet", "{event}");
    lab::until("the outlet is told", || !outlet.failures().is_empty());
    assert_eq!(outlet.failures()[0].code(), cause.code());
    assert_eq!(outlet.handshakes(), 0);
}

#[test]
fn outlets_that_are_not_trusted_are_refused_by_their_reason() {
    let place = Place::new();
    let both = |who| trusted(who, TrustedRole::Both);
    let check = |trusts, cause, words| check_refused(&place, "amp", trusts, cause, words);
    check(vec![], Cause::NotAuthorised, "not trusted by this device");
    check(
        vec![both("other-amp")],
        Cause::NotAuthorised,
        "not trusted by this device",
    );
    let inlet_only = trusted("amp", TrustedRole::Inlet);
    check(
        vec![inlet_only, both("a"), both("b")],
        Cause::RoleNotAllowed,
        "may not send",
    );
    let expired = Peer {
        not_after: Some("2020-01-01".parse().unwrap()),
        ..both("amp")
    };
    check(
        vec![expired, both("a"), both("b"), both("c")],
        Cause::Expired,
        "not_after",
    );
    let elsewhere = Peer {
        from: vec!["192.0.2.0/24".parse().unwrap()],
        ..both("amp")
    };
    check(
        vec![elsewhere, both("a"), both("b"), both("c"), both("d")],
        Cause::NotAuthorised,
        "not trusted by this device",
    );
}

/// Programs of one machine share its key.
#[test]
fn our_own_key_is_welcome_from_this_machine() {
    let place = Place::new();
    let rec = place.side("rec", Policy::Required, &[]);
    let (_outlet, claim) = outlet("rec", "own", None);
    let inlet = rec.inlet_for(&claim.info());
    inlet.blocking().open(SOON).unwrap();
    assert_eq!(
        inlet.encryption().unwrap().fingerprint,
        fingerprint_of("rec")
    );
}

/// E5: the outlet does not know us; the user learns what to type, and where.
#[test]
fn an_outlet_that_does_not_trust_us_tells_what_to_do() {
    let place = Place::new();
    let rec = place.side("rec", Policy::Required, &["amp"]);
    let (_outlet, claim) = outlet("amp", "stranger", Some(Cause::NotAuthorised));
    let (inlet, text) = refusal(&rec, &claim);
    let key = key_of("rec").public();
    let expected = format!(
        "\"amp\" ({}) does not trust this device; there run: lsl trust add rec {key}",
        fingerprint_of("amp")
    );
    assert!(text.contains(&expected), "{text}");
    assert_eq!(inlet.last_security_error().as_deref(), Some(&*expected));
    let event = rec.await_audit("peer_alert", |event| event["code"] == 8);
    assert_eq!(event["peer_name"], "amp");
}

#[test]
fn other_alerts_are_shown_as_they_are() {
    let place = Place::new();
    let rec = place.side("rec", Policy::Required, &["amp"]);
    for cause in [Cause::RoleNotAllowed, Cause::SelfKey, Cause::Busy] {
        let (_outlet, claim) = outlet("amp", cause.name(), Some(cause));
        let inlet = rec.inlet_for(&claim.info());
        // Who has no place just now may have one later: the inlet is not lost for that.
        let error = inlet
            .blocking()
            .open(Duration::from_millis(500))
            .unwrap_err();
        let kind = if cause == Cause::Busy {
            ErrorKind::Timeout
        } else {
            ErrorKind::Lost
        };
        assert_eq!(error.kind(), kind, "{error}");
        lab::until("the reason is known", || {
            inlet
                .last_security_error()
                .is_some_and(|text| text.contains(cause.name()))
        });
    }
}

/// A key that disappears from the trust file ends its sessions, and a new one lets them begin.
#[test]
fn a_key_that_is_removed_ends_its_session_and_one_that_is_added_begins_it() {
    let place = Place::new();
    let file = |name: &str| place.dir().join(name);
    let write = |name: &str, text: &str| {
        let new = file("new");
        fs::write(&new, text).unwrap();
        fs::rename(new, file(name)).unwrap();
    };
    keyfile::write_new_key(&file("key.pem"), &key_of("rec"), None).unwrap();
    let entry = trusted("amp", TrustedRole::Outlet).to_toml();
    write("peers.toml", &entry);
    let configuration = "[security]\nname = \"rec\"\npolicy = \"required\"\n\
                         key_file = \"key.pem\"\ntrusted_peers = \"peers.toml\"\n\
                         audit_file = \"rec.jsonl\"\n";
    write("lsl-secure.toml", configuration);
    let rec = place.side_of_file(&file("lsl-secure.toml"), file("rec.jsonl"));
    let (outlet, claim) = outlet("amp", "revoked", None);
    let inlet = rec.inlet_for(&claim.info());
    inlet.blocking().open(SOON).unwrap();
    write("peers.toml", "");
    let mut pulled = [0.0_f32; 3];
    let error = loop {
        match inlet.blocking().pull(&mut pulled, SOON) {
            Ok(stamp) => assert_eq!(stamp, Some(1.0), "the session goes on"),
            Err(error) => break error,
        }
    };
    assert!(error.to_string().contains("revoked"), "{error}");
    rec.await_audit("revoked", |event| {
        event["peer_fp"] == fingerprint_of("amp").as_str()
    });
    assert!(!rec.security.has_live_sessions());

    let inlet = Inlet::builder(&claim.info())
        .context(&rec.context)
        .recover(false)
        .create()
        .unwrap();
    let error = inlet.blocking().open(SOON).unwrap_err();
    assert!(error.to_string().contains("not_authorised"), "{error}");
    write("peers.toml", &entry);
    // A file that was just written may be half written, so it counts only after a moment.
    lab::until("the new entry counts", || {
        rec.inlet_for(&claim.info()).blocking().open(SOON).is_ok()
    });
    assert_eq!(outlet.handshakes(), 2);
}

/// `streams` of a trust file: a key serves, and reads, only the streams that its entry covers.
#[test]
fn a_key_that_is_trusted_for_some_streams_serves_and_reads_no_others() {
    let place = Place::new();
    let bound = |who: &str, role| Peer {
        streams: vec!["name='mine' or starts-with(name,'mine-')".to_owned()],
        ..trusted(who, role)
    };
    let amp = place.side_with(
        "amp",
        Policy::Required,
        vec![
            bound("rec", TrustedRole::Inlet),
            trusted("desk", TrustedRole::Inlet),
        ],
        |_| {},
    );
    let rec = place.side("rec", Policy::Required, &["amp"]);
    let desk = place.side_with(
        "desk",
        Policy::Required,
        vec![bound("amp", TrustedRole::Outlet)],
        |_| {},
    );
    let _outlets = ["mine", "mine-too", "yours"].map(|name| lab::outlet(&amp.context, info(name)));
    for side in [&rec, &desk] {
        for name in ["mine", "mine-too"] {
            let found = lab::find(&side.context, name);
            side.inlet_for(&found).blocking().open(SOON).unwrap();
        }
    }
    // The outlet refuses the reader.
    let found = lab::find(&rec.context, "yours");
    let error = rec.inlet_for(&found).blocking().open(SOON).unwrap_err();
    assert!(error.to_string().contains("role_not_allowed"), "{error}");
    amp.await_audit("policy_refused", |event| {
        event["peer_name"].is_null() && event["code"] == 9
    });
    // The reader refuses the outlet, even if it knows where it is.
    let error = desk.inlet_for(&found).blocking().open(SOON).unwrap_err();
    assert!(error.to_string().contains("other streams only"), "{error}");
    desk.await_audit("policy_refused", |event| event["code"] == 9);
    // And does not find it: what announces that key is not that stream.
    let all = lsl_core::Selector::all();
    let mut names: Vec<_> = (desk.context)
        .resolve_blocking(&all, 2, Duration::from_secs(20))
        .unwrap()
        .iter()
        .map(|found| found.name().into_owned())
        .collect();
    names.sort();
    assert_eq!(names, ["mine", "mine-too"]);
}

#[test]
fn a_malformed_predicate_of_a_trust_list_stops_all_streams() {
    let place = Place::new();
    let mut peer = trusted("amp", TrustedRole::Outlet);
    peer.streams = vec!["name=='mine'".to_owned()];
    let rec = place.side_with("rec", Policy::Required, vec![peer], |_| {});
    let error = rec.context.security().unwrap_err().to_string();
    assert!(
        error.contains("\"amp\"") && error.contains("name=='mine'"),
        "{error}"
    );
    let outlet = lsl_core::Outlet::builder(info("any"))
        .context(&rec.context)
        .open();
    assert!(outlet.is_err());
}

/// All handshakes of this process, which plays both sides of every test.
#[test]
fn many_peers_at_once_keep_asymmetric_work_on_two_threads() {
    let place = Place::new();
    let (amp, rec) = place.pair(Policy::Required, Policy::Required);
    let outlets: Vec<_> = (0..12)
        .map(|number| lab::outlet(&amp.context, info(&format!("peer {number}"))))
        .collect();
    let inlets: Vec<_> = (0..12)
        .map(|number| lab::find(&rec.context, &format!("peer {number}")))
        .flat_map(|found| [rec.inlet_for(&found), rec.inlet_for(&found)])
        .collect();
    std::thread::scope(|scope| {
        for inlet in &inlets {
            scope.spawn(|| inlet.blocking().open(SOON).unwrap());
        }
    });
    assert!(outlets.iter().all(|outlet| outlet.consumers().len() == 2));
    let peak = lsl_core::secure::connection::peak_of_asymmetric_work();
    assert!((1..=2).contains(&peak), "{peak} threads");
}
