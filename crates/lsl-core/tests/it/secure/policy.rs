//! Every combination of two policies: who reads whom, how, and what is said if not. Spec: LSS/1 §4.3,
//! §4.4.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lsl_core::secure::Policy;
use lsl_core::secure::config::Settings;
use lsl_core::secure::trust::{Date, TrustedRole, today};
use lsl_core::{Context, ErrorKind, Inlet, StreamInfo};

use super::fake::{Claim, Fake};
use super::people::{Place, Side, info, key_of, trusted};
use crate::lab::{self, SOON};

/// Pushes and pulls one sample, and tells whether that was encrypted.
fn stream(outlet: &Context, inlet: &Context, name: &str) -> Result<bool, String> {
    let opened = lab::outlet(outlet, info(name));
    let found = lab::find(inlet, name);
    let reader = Inlet::builder(&found)
        .context(inlet)
        .recover(false)
        .create()
        .map_err(|error| error.to_string())?;
    if let Err(error) = reader.blocking().open(SOON) {
        assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
        assert_eq!(reader.stats().samples, 0);
        return Err(error.to_string());
    }
    opened.push_at(&[1.0_f32, 2.0, 3.0], 5.0).unwrap();
    let mut pulled = [0.0_f32; 3];
    assert_eq!(
        reader.blocking().pull(&mut pulled, SOON).unwrap(),
        Some(5.0)
    );
    assert_eq!(pulled, [1.0, 2.0, 3.0]);
    let full = reader.blocking().full_info(SOON).unwrap();
    assert_eq!(full.uid_bytes(), opened.info().uid_bytes());
    let correction = reader.blocking().time_correction(SOON).unwrap();
    assert!(correction.offset_secs.abs() <= correction.max_error_secs() + 1e-6);
    let encryption = reader.encryption();
    if let Some(encryption) = &encryption {
        assert_eq!(encryption.peer_name, "amp");
    }
    let consumers = opened.consumers();
    assert_eq!(consumers.len(), 1);
    assert_eq!(
        consumers[0].encryption.is_some(),
        encryption.is_some(),
        "both sides agree"
    );
    Ok(encryption.is_some())
}

fn pair(outlet: Policy, inlet: Policy) -> (Place, Side, Side) {
    let place = Place::new();
    let (outlet, inlet) = place.pair(outlet, inlet);
    (place, outlet, inlet)
}

#[test]
fn two_that_encrypt_do_so_whatever_the_policy() {
    for outlet in [Policy::Required, Policy::Migrate] {
        for inlet in [Policy::Required, Policy::Migrate] {
            let (_place, amp, rec) = pair(outlet, inlet);
            assert_eq!(stream(&amp.context, &rec.context, "both"), Ok(true));
            rec.await_audit("handshake_ok", |event| event["peer_name"] == "amp");
            amp.await_audit("handshake_ok", |event| event["peer_name"] == "rec");
            assert!(rec.audited("plaintext_accepted").is_empty());
            assert!(amp.audited("plaintext_accepted").is_empty());
        }
    }
}

#[test]
fn plaintext_is_for_those_who_let_it_be() {
    // Neither has ever heard of encryption.
    let place = Place::new();
    assert_eq!(
        stream(&place.legacy(), &place.legacy(), "legacy"),
        Ok(false)
    );
    // `off` with a key is as good as none.
    let (_place, amp, rec) = pair(Policy::Off, Policy::Off);
    assert_eq!(stream(&amp.context, &rec.context, "off"), Ok(false));
    // Who migrates reads what has never encrypted, and says so.
    let (place, _, rec) = pair(Policy::Off, Policy::Migrate);
    assert_eq!(
        stream(&place.legacy(), &rec.context, "never seen"),
        Ok(false)
    );
    rec.await_audit("plaintext_accepted", |_| true);
    // And is read by those who never encrypt.
    let (place, amp, _) = pair(Policy::Migrate, Policy::Off);
    assert_eq!(stream(&amp.context, &place.legacy(), "migrates"), Ok(false));
    amp.await_audit("plaintext_accepted", |_| true);
}

#[test]
fn who_requires_encryption_refuses_what_has_none() {
    // E1, before anything is sent.
    let (place, _, rec) = pair(Policy::Off, Policy::Required);
    let error = stream(&place.legacy(), &rec.context, "naked").unwrap_err();
    assert!(error.contains("does not offer encryption"), "{error}");
    rec.await_audit("policy_refused", |event| event["code"] == 18);
    assert!(rec.audited("plaintext_accepted").is_empty());
    // E4, for who has no key.
    let (place, amp, _) = pair(Policy::Required, Policy::Off);
    let error = stream(&amp.context, &place.legacy(), "closed").unwrap_err();
    assert!(error.contains("run: lsl key init"), "{error}");
}

/// E3: what was encrypted once does not come back in plaintext.
#[test]
fn a_stream_that_was_encrypted_is_not_read_in_plaintext_later() {
    let (place, amp, rec) = pair(Policy::Required, Policy::Migrate);
    assert_eq!(stream(&amp.context, &rec.context, "once"), Ok(true));
    let error = stream(&place.legacy(), &rec.context, "once").unwrap_err();
    assert!(error.contains("possible downgrade"), "{error}");
    assert!(
        error.contains(&super::people::fingerprint_of("amp")),
        "{error}"
    );
    // Another stream of the same host is another matter.
    assert_eq!(stream(&place.legacy(), &rec.context, "other"), Ok(false));
}

/// Under `migrate` an attacker lets the handshake fail, and then offers the stream in plaintext.
#[test]
fn a_failed_handshake_is_not_followed_by_plaintext() {
    let place = Place::new();
    let rec = place.side("rec", Policy::Migrate, &[]);
    let claim = Claim::of("lure");
    let outlet = Fake::honest("amp", &claim, claim.descriptor(), Vec::new()).run();
    let claim = Claim {
        port: outlet.port,
        ..claim
    };
    let lure = lab::outlet(&place.legacy(), info("lure"));
    let inlet = Inlet::builder(&claim.info())
        .context(&rec.context)
        .create()
        .unwrap();
    let opened = inlet.blocking().open(Duration::from_millis(10));
    assert_eq!(opened.unwrap_err().kind(), ErrorKind::Timeout);
    rec.await_audit("policy_refused", |event| event["code"] == 8);
    rec.await_audit("downgrade_refused", |event| event["code"] == 18);
    // Kept for the caller after it was audited.
    lab::until("the refusal is known", || {
        inlet
            .last_security_error()
            .is_some_and(|text| text.contains("offered encryption before"))
    });
    assert!(!lure.have_consumers());
    assert_eq!(inlet.stats().samples, 0);
    assert!(rec.audited("plaintext_accepted").is_empty());
    // Whoever has never seen that stream may read it.
    let other = lab::find(&rec.context, "lure");
    rec.inlet_for(&other).blocking().open(SOON).unwrap();
}

#[test]
fn exceptions_are_made_by_source_id_and_audited() {
    let place = Place::new();
    let rec = place.side_with(
        "rec",
        Policy::Required,
        vec![],
        |settings: &mut Settings| {
            settings.plaintext_allow = vec!["src-old device".to_owned()];
        },
    );
    assert_eq!(
        stream(&place.legacy(), &rec.context, "old device"),
        Ok(false)
    );
    rec.await_audit("plaintext_accepted", |_| true);
    assert!(stream(&place.legacy(), &rec.context, "new device").is_err());
}

/// A configuration that cannot be used means no streams, not plaintext. Read once per process, so
/// another process plays this.
#[test]
fn a_configuration_that_cannot_be_used_makes_no_inlet() {
    if std::env::var_os(CHILD).is_some() {
        let context = Context::new(lab::config_with(&[]));
        let claim = Claim {
            advert: String::new(),
            ..Claim::of("any")
        };
        let error = Inlet::builder(&claim.info()).context(&context).create();
        let text = error.unwrap_err().to_string();
        assert!(text.contains("bad.toml"), "{text}");
        return;
    }
    let place = Place::new();
    let bad = place.dir().join("bad.toml");
    std::fs::write(&bad, "[security]\npolicy = \"requird\"\n").unwrap();
    let test = "secure::policy::a_configuration_that_cannot_be_used_makes_no_inlet";
    let child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test])
        .env(CHILD, "1")
        .env("LSL_SECURE_CONFIG", &bad)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&child.stdout);
    assert!(child.status.success(), "{said}");
    assert!(said.contains("1 passed"), "{said}");
}

const CHILD: &str = "LSL_TEST_IS_CHILD";

/// Recovery ends at another trusted key: audited, and refused if the key is pinned.
#[test]
fn a_successor_with_another_key_is_noticed() {
    for pinned in [false, true] {
        let place = Place::new();
        let amp = place.side("amp", Policy::Required, &["rec"]);
        let spare = place.side("spare", Policy::Required, &["rec"]);
        let trusts = ["amp", "spare"].map(|who| trusted(who, TrustedRole::Outlet));
        let rec = place.side_with("rec", Policy::Required, trusts.to_vec(), |settings| {
            settings.pin_peer = pinned;
        });
        let first = lab::outlet(&amp.context, info("failover"));
        let inlet = lab::inlet(&rec.context, "failover");
        assert_eq!(inlet.encryption().unwrap().peer_name, "amp");
        drop(first);
        let second = lab::outlet(&spare.context, info("failover"));
        if pinned {
            lab::until("the successor is refused", || {
                let error = inlet.last_security_error();
                error.is_some_and(|text| text.contains("pin_peer"))
            });
            assert!(!second.have_consumers());
            rec.await_audit("policy_refused", |event| {
                event["peer_fp"] == key_of("spare").public().fingerprint().to_string().as_str()
            });
            continue;
        }
        lab::until("the successor has a reader", || second.have_consumers());
        second.push_at(&[4.0_f32; 3], 6.0).unwrap();
        let mut pulled = [0.0_f32; 3];
        assert_eq!(inlet.blocking().pull(&mut pulled, SOON).unwrap(), Some(6.0));
        assert_eq!(inlet.encryption().unwrap().peer_name, "spare");
        let event = rec.await_audit("peer_changed", |_| true);
        assert_eq!(event["peer_name"], "spare", "{event}");
    }
}

/// An inlet made from a description finds its stream, and holds it to the description.
#[test]
fn an_inlet_that_resolves_by_itself_encrypts_too() {
    let (_place, amp, rec) = pair(Policy::Required, Policy::Required);
    let outlet = lab::outlet(&amp.context, info("described"));
    let described: StreamInfo = info("described");
    let inlet = Inlet::builder(&described)
        .context(&rec.context)
        .create()
        .unwrap();
    inlet.blocking().open(SOON).unwrap();
    outlet.push_at(&[1.0_f32; 3], 2.0).unwrap();
    let mut pulled = [0.0_f32; 3];
    assert_eq!(inlet.blocking().pull(&mut pulled, SOON).unwrap(), Some(2.0));
    assert!(inlet.encryption().is_some());
}

/// What runs in plaintext ends with the last day of `migrate`, on both sides.
#[test]
fn plaintext_that_runs_ends_when_migrate_until_has_passed() {
    let place = Place::new();
    let days = Arc::new(AtomicU64::new(0));
    let until: Date = today(lsl_platform::clock::utc_now(), None);
    let migrating = |who: &str| {
        let days = Arc::clone(&days);
        place.side_with_clock(who, until, move || {
            let passed = Duration::from_secs(86_400 * days.load(Ordering::Relaxed));
            lsl_platform::clock::utc_now() + passed
        })
    };
    let (amp, rec) = (migrating("amp"), migrating("rec"));
    let old = place.legacy();
    let outlets = [
        lab::outlet(&amp.context, info("migrating outlet")),
        lab::outlet(&old, info("old outlet")),
    ];
    let found = lab::find(&old, "migrating outlet");
    let builder = Inlet::builder(&found).context(&old).recover(false);
    let old_reader = builder.create().unwrap();
    let reader = rec.inlet_for(&lab::find(&rec.context, "old outlet"));
    let mut pulled = [0.0_f32; 3];
    for (inlet, outlet) in [(&old_reader, &outlets[0]), (&reader, &outlets[1])] {
        inlet.blocking().open(SOON).unwrap();
        outlet.push_at(&[1.0_f32, 2.0, 3.0], 5.0).unwrap();
        assert_eq!(inlet.blocking().pull(&mut pulled, SOON).unwrap(), Some(5.0));
        assert!(inlet.encryption().is_none());
    }
    days.store(2, Ordering::Relaxed);
    for (inlet, outlet) in [(&old_reader, &outlets[0]), (&reader, &outlets[1])] {
        lab::until("the end of plaintext", || !outlet.have_consumers());
        let error = inlet.blocking().pull(&mut pulled, SOON).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
    }
    for side in [&amp, &rec] {
        side.await_audit("plaintext_refused", |event| {
            event["detail"]
                .as_str()
                .is_some_and(|text| text.contains("migrate_until"))
        });
    }
}
