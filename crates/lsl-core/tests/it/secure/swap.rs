//! Discovery lies: every field that it shows is held against what the outlet says of itself inside the
//! session, and nothing is delivered before. Spec: LSS/1 §7.4.

use std::time::Duration;

use lsl_core::secure::{Cause, Policy};
use lsl_core::{ChannelFormat, ErrorKind};

use super::fake::{Claim, Fake, sample};
use super::people::Place;
use crate::lab::{self, SOON};

/// One forged field: the claim that the inlet resolved is `honest` but for this.
fn check(place: &Place, what: &str, forge: impl Fn(&mut Claim), field: &str) {
    let rec = place.side("rec", Policy::Required, &["amp"]);
    let honest = Claim::of(what);
    let samples = sample(1.0, 1.0).repeat(20);
    let outlet = Fake::honest("amp", &honest, honest.descriptor(), samples).run();
    let mut forged = Claim {
        port: outlet.port,
        ..honest
    };
    forge(&mut forged);
    let inlet = rec.inlet_for(&forged.info());
    let mut pulled = vec![0.0_f32; forged.channels as usize];
    let error = inlet.blocking().pull(&mut pulled, SOON).expect_err(what);
    assert_eq!(error.kind(), ErrorKind::Lost, "{what}: {error}");
    assert_eq!(inlet.stats().samples, 0, "{what}");
    let event = rec.await_audit("handshake_failed", |event| {
        event["stream_uid"] == forged.uid.as_str() && event["code"] == 17
    });
    assert_ne!(event["claimed"].as_bool(), Some(true), "{what}");
    if field == "uid" {
        assert!(
            error.to_string().contains("another outlet"),
            "{what}: {error}"
        );
    } else {
        assert!(error.to_string().contains(field), "{what}: {error}");
        assert!(inlet.last_security_error().unwrap().contains(field));
    }
    lab::until("the outlet is told", || {
        outlet.failures().contains(&Cause::DescriptorMismatch) || outlet.handshakes() > 0
    });
}

#[test]
fn every_forged_field_is_refused() {
    let place = Place::new();
    check(&place, "name", |claim| claim.name = "Other".into(), "name");
    check(
        &place,
        "type",
        |claim| claim.stream_type = "ECG".into(),
        "type",
    );
    check(
        &place,
        "source",
        |claim| claim.source_id = "x".into(),
        "source_id",
    );
    check(
        &place,
        "no source",
        |claim| claim.source_id.clear(),
        "source_id",
    );
    check(
        &place,
        "host",
        |claim| claim.hostname = "h".into(),
        "hostname",
    );
    check(
        &place,
        "session",
        |claim| claim.session_id = "s".into(),
        "session_id",
    );
    check(&place, "count", |claim| claim.channels = 4, "channel_count");
    check(
        &place,
        "rate",
        |claim| claim.srate = "100.0000000000001".into(),
        "nominal_srate",
    );
    check(
        &place,
        "format",
        |claim| claim.format = ChannelFormat::Int32,
        "channel_format",
    );
    check(
        &place,
        "created",
        |claim| claim.created_at = "12.6".into(),
        "created_at",
    );
    let uid = "33333333-3333-4333-8333-333333333333";
    check(&place, "uid", |claim| claim.uid = uid.into(), "uid");
}

#[test]
fn what_is_true_is_accepted() {
    let place = Place::new();
    let rec = place.side("rec", Policy::Required, &["amp"]);
    let claim = Claim::of("honest");
    let outlet = Fake::honest("amp", &claim, claim.descriptor(), sample(7.5, 2.0)).run();
    let claim = Claim {
        port: outlet.port,
        ..claim
    };
    let inlet = rec.inlet_for(&claim.info());
    let mut pulled = [0.0_f32; 3];
    let stamp = inlet.blocking().pull(&mut pulled, SOON).unwrap();
    assert_eq!((stamp, pulled), (Some(7.5), [2.0; 3]));
    let encryption = inlet.encryption().unwrap();
    assert_eq!(encryption.peer_name, "amp");
    assert_eq!(encryption.fingerprint, super::people::fingerprint_of("amp"));
    assert!(inlet.last_security_error().is_none());
    let event = rec.await_audit("handshake_ok", |_| true);
    assert_eq!(event["peer_fp"], encryption.fingerprint.as_str());
    assert_eq!(event["stream_uid"], claim.uid.as_str());
    drop(inlet);
    let event = rec.await_audit("session_closed", |_| true);
    assert_eq!(event["clean"], true, "{event}");
}

/// Both streams are trusted; the attacker only exchanges their addresses.
#[test]
fn trusted_streams_that_were_swapped_are_not_delivered_under_each_others_name() {
    let place = Place::new();
    let rec = place.side("rec", Policy::Required, &["amp", "other-amp"]);
    let eeg = Claim::of("EEG");
    let gaze = Claim {
        uid: "44444444-4444-4444-8444-444444444444".to_owned(),
        ..Claim::of("Gaze")
    };
    let at_eeg = Fake::honest("amp", &eeg, eeg.descriptor(), sample(1.0, 1.0)).run();
    let at_gaze = Fake::honest("other-amp", &gaze, gaze.descriptor(), sample(2.0, 2.0)).run();
    let swapped = [(&eeg, at_gaze.port), (&gaze, at_eeg.port)];
    for (claim, port) in swapped {
        let claim = Claim {
            port,
            ..claim.clone()
        };
        let inlet = rec.inlet_for(&claim.info());
        let error = inlet.blocking().open(SOON).unwrap_err();
        assert!(error.to_string().contains("another outlet"), "{error}");
        assert_eq!(inlet.stats().samples, 0);
        // Not a word of it is anybody's fault yet: outlets do restart.
        assert!(inlet.last_security_error().is_none());
    }
}

/// A full info is evidence too: one that says something else than the session is not handed on.
#[test]
fn a_full_info_that_contradicts_its_session_is_refused() {
    let place = Place::new();
    let rec = place.side("rec", Policy::Required, &["amp"]);
    let claim = Claim::of("contradiction");
    let lie = Claim {
        stream_type: "ECG".to_owned(),
        ..claim.clone()
    };
    let outlet = Fake::honest("amp", &lie, claim.descriptor(), Vec::new()).run();
    let claim = Claim {
        port: outlet.port,
        ..claim
    };
    let inlet = rec.inlet_for(&claim.info());
    let error = inlet.blocking().full_info(SOON).unwrap_err();
    assert!(error.to_string().contains("another type"), "{error}");
    rec.await_audit("handshake_failed", |event| event["code"] == 17);
}

/// With recovery the inlet keeps trying; the reason is there for whoever asks.
#[test]
fn an_inlet_that_can_recover_times_out_and_says_why() {
    let place = Place::new();
    let rec = place.side("rec", Policy::Required, &["amp"]);
    let claim = Claim::of("patient");
    let outlet = Fake::honest("amp", &claim, claim.descriptor(), Vec::new()).run();
    let forged = Claim {
        port: outlet.port,
        hostname: "elsewhere".to_owned(),
        ..claim
    };
    let inlet = lsl_core::Inlet::builder(&forged.info())
        .context(&rec.context)
        .create()
        .unwrap();
    let error = inlet
        .blocking()
        .open(Duration::from_millis(300))
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    lab::until("the reason is known", || {
        inlet
            .last_security_error()
            .is_some_and(|text| text.contains("hostname"))
    });
}

/// A lie about the chosen outlet stays one after the inlet looked for it again by itself, here because the
/// lie does not say where it is. Other ways there: `secure` of the simulation.
#[test]
fn recovery_does_not_wash_off_a_lie_about_the_chosen_outlet() {
    let place = Place::new();
    let (amp, rec) = place.pair(Policy::Required, Policy::Required);
    let outlet = lab::outlet(&amp.context, super::people::info("washed"));
    let mut lie = lab::find(&rec.context, "washed");
    lie.set_hostname("other-amp");
    lie.fill_v4_address("127.0.0.1");
    lie.set_v4_ports(0, lie.v4_service_port());
    lie.set_v6_ports(0, lie.v6_service_port());
    let inlet = lsl_core::Inlet::builder(&lie)
        .context(&rec.context)
        .create()
        .unwrap();
    lab::until("the reason is known", || {
        let error = inlet.blocking().open(Duration::from_millis(100));
        assert_eq!(error.unwrap_err().kind(), ErrorKind::Timeout);
        inlet
            .last_security_error()
            .is_some_and(|text| text.contains("hostname"))
    });
    // Its request came with the last message of the handshake, before it could judge.
    lab::until("nobody reads", || !outlet.have_consumers());
}
