//! Connections that end too early, and records that are not authentic. Spec: LSS/1 §8.1, §8.2.

use lsl_core::secure::{Cause, Policy};
use lsl_core::{ErrorKind, Inlet, local_clock};

use super::fake::{Claim, Connection, Fake, Running, sample};
use super::people::{Place, Side};
use crate::lab::{self, SOON};

/// A stream whose outlet runs this script after the handshake, and an inlet for it.
fn scripted<F>(
    rec: &Side,
    name: &str,
    script: impl Fn(Claim, Connection) -> F + Send + Sync + 'static,
) -> (Running, Inlet)
where
    F: Future<Output = ()> + Send + 'static,
{
    let claim = Claim::of(name);
    let scripted = claim.clone();
    let run = move |connection| script(scripted.clone(), connection);
    let outlet = Fake::new("amp", claim.descriptor(), run).run();
    let claim = Claim {
        port: outlet.port,
        ..claim
    };
    let inlet = rec.inlet_for(&claim.info());
    (outlet, inlet)
}

/// Pulls `good` samples, then the stream is lost for this reason.
fn check_lost(inlet: &Inlet, good: usize, reason: &str) {
    let mut pulled = [0.0_f32; 3];
    let mut received = 0;
    let error = loop {
        match inlet.blocking().pull(&mut pulled, SOON) {
            Ok(Some(_)) => received += 1,
            Ok(None) => panic!("{reason}: in vain"),
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
    assert!(error.to_string().contains(reason), "{error}");
    // A lost stream says so at once, whatever was queued.
    assert!(received <= good, "{received}");
    assert_eq!(inlet.stats().samples, good as u64, "{reason}");
}

#[test]
fn an_end_without_close_is_a_truncation_and_one_with_close_is_not() {
    let place = Place::new();
    let rec = place.side("rec", Policy::Required, &["amp"]);
    let (_outlet, inlet) = scripted(&rec, "cut", |claim, mut connection| async move {
        connection.data(&claim.preamble()).await;
        connection.data(&sample(1.0, 1.0)).await;
    });
    check_lost(&inlet, 1, "cut off");
    let event = rec.await_audit("session_closed", |_| true);
    assert_eq!(event["clean"], false, "{event}");

    let (outlet, inlet) = scripted(&rec, "closed", |claim, mut connection| async move {
        connection.data(&claim.preamble()).await;
        connection.data(&sample(1.0, 1.0)).await;
        connection.close().await;
        // Nobody waits for FIN: the CLOSE is the end.
        connection.until_end().await;
        assert!(connection.closed);
    });
    check_lost(&inlet, 1, "closed the connection");
    outlet.await_finished(1);
    rec.await_audit("session_closed", |event| event["clean"] == true);
}

#[test]
fn a_truncated_full_info_is_thrown_away_and_asked_for_again() {
    let place = Place::new();
    let rec = place.side("rec", Policy::Required, &["amp"]);
    let claim = Claim::of("info");
    let shown = claim.clone();
    let tries = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = std::sync::Arc::clone(&tries);
    let outlet = Fake::new("amp", claim.descriptor(), move |mut connection| {
        let xml = shown.xml();
        let first = counted.fetch_add(1, std::sync::atomic::Ordering::AcqRel) == 0;
        async move {
            connection.data(xml.as_bytes()).await;
            if !first {
                connection.close().await;
                connection.until_end().await;
            }
        }
    })
    .run();
    let claim = Claim {
        port: outlet.port,
        ..claim
    };
    // All of the text came the first time. Without CLOSE nobody can know.
    let inlet = rec.inlet_for(&claim.info());
    let error = inlet.blocking().full_info(SOON).unwrap_err();
    assert!(error.to_string().contains("cut off"), "{error}");
    let inlet = rec.inlet_for(&claim.info());
    let info = inlet.blocking().full_info(SOON).unwrap();
    assert_eq!(info.uid(), claim.uid.as_str());
    assert_eq!(tries.load(std::sync::atomic::Ordering::Acquire), 2);
}

/// What an attacker on the way can do with records; each is the end, and nothing of it is delivered.
#[test]
fn records_that_were_touched_end_the_session() {
    let place = Place::new();
    let rec = place.side("rec", Policy::Required, &["amp"]);
    let check = |name: &str, touch: fn(&[u8], &[u8]) -> Vec<u8>| {
        let (outlet, inlet) = scripted(&rec, name, move |claim, mut connection| async move {
            connection.data(&claim.preamble()).await;
            connection.data(&sample(1.0, 1.0)).await;
            let (mut one, mut two) = (Vec::new(), Vec::new());
            let sealer = &mut connection.sealer;
            sealer
                .seal_data(&sample(2.0, 2.0), local_clock(), &mut one)
                .unwrap();
            sealer
                .seal_data(&sample(3.0, 3.0), local_clock(), &mut two)
                .unwrap();
            connection.raw(&touch(&one, &two)).await;
            connection.until_end().await;
            // Who breaks records learns nothing.
            assert_eq!(connection.alert, None);
        });
        check_lost(&inlet, 1, "record_auth_failed");
        outlet.await_finished(1);
        let uid = inlet.info().uid().into_owned();
        rec.await_audit("record_auth_failed", |event| {
            event["stream_uid"] == uid.as_str() && event["code"] == 14
        });
    };
    check("flipped", |one, _| {
        let mut one = one.to_vec();
        one[7] ^= 1;
        one
    });
    check("flipped tag", |one, _| {
        let mut one = one.to_vec();
        *one.last_mut().unwrap() ^= 0x80;
        one
    });
    check("left out", |_, two| two.to_vec());
    check("reordered", |one, two| [two, one].concat());
    check("plain", |_, _| {
        let plain = sample(9.0, 9.0);
        let length = u16::try_from(plain.len()).unwrap().to_be_bytes();
        [&length[..], &plain].concat()
    });
}

#[test]
fn a_replayed_record_ends_the_session_after_its_original() {
    let place = Place::new();
    let rec = place.side("rec", Policy::Required, &["amp"]);
    let (_outlet, inlet) = scripted(&rec, "replayed", |claim, mut connection| async move {
        connection.data(&claim.preamble()).await;
        let mut one = Vec::new();
        let sealer = &mut connection.sealer;
        sealer
            .seal_data(&sample(1.0, 1.0), local_clock(), &mut one)
            .unwrap();
        connection.raw(&[&one[..], &one].concat()).await;
        connection.until_end().await;
    });
    check_lost(&inlet, 1, "record_auth_failed");
}

#[test]
fn alerts_and_forbidden_records_are_told() {
    let place = Place::new();
    let rec = place.side("rec", Policy::Required, &["amp"]);
    let (_outlet, inlet) = scripted(&rec, "alert", |claim, mut connection| async move {
        connection.data(&claim.preamble()).await;
        connection
            .alert(Cause::Busy, "too \u{202e}many\x07 readers")
            .await;
        connection.until_end().await;
    });
    check_lost(&inlet, 0, "busy");
    let text = inlet.last_security_error().unwrap();
    assert!(text.contains("readers"), "{text}");
    assert!(
        !text.contains('\u{202e}') && !text.contains('\x07'),
        "{text:?}"
    );
    rec.await_audit("peer_alert", |event| event["code"] == 12);

    let (outlet, inlet) = scripted(&rec, "overflow", |claim, mut connection| async move {
        connection.data(&claim.preamble()).await;
        connection.raw(&[0xff, 0xff]).await;
        connection.until_end().await;
        assert_eq!(connection.alert.map(Cause::code), Some(16));
    });
    check_lost(&inlet, 0, "record_overflow");
    outlet.await_finished(1);
}

/// LSL's own mistakes inside a session are no failures of the session.
#[test]
fn nonsense_in_an_authentic_session_is_nonsense() {
    let place = Place::new();
    let rec = place.side("rec", Policy::Required, &["amp"]);
    let (_outlet, inlet) = scripted(&rec, "nonsense", |_, mut connection| async move {
        connection.data(b"HTTP/1.1 200 OK\r\n\r\n").await;
        connection.until_end().await;
    });
    check_lost(&inlet, 0, "malformed");
    rec.await_audit("session_closed", |event| event["clean"] == true);
    assert!(inlet.last_security_error().is_none());
    lab::until("no encryption is shown any more", || {
        inlet.encryption().is_none()
    });
}
