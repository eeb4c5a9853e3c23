//! A relay with a key: only who trusts it reads through it, and it answers for the clock of the source.

use std::sync::Arc;
use std::time::Duration;

use lsl_core::secure::{Cause, Descriptor, Policy, Security};
use lsl_core::{ChannelFormat, Inlet, Selector, StreamInfo};
use lsl_proto::security::relay_id;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::port::Served;
use super::{BOTH, expect, push};
use crate::lab::{self, SOON};
use crate::secure::fake::{Connection, Fake};
use crate::secure::people::{Place, fingerprint_of, key_of};

/// Clock of the source minus ours, and how certain the relay is of it.
const CLOCK: (f64, f64) = (1000.0, 0.01);

fn says(id: &str) -> Descriptor {
    Descriptor {
        uid: id.as_bytes().to_vec(),
        name: b"lab2".to_vec(),
        stream_type: b"lsl-relay".to_vec(),
        source_id: id.as_bytes().to_vec(),
        channel_format: 3,
        ..Descriptor::default()
    }
}

/// A relay that tells of these streams and reads their outlets.
fn relay(id: &str, streams: Vec<Served>) -> Fake {
    let streams = Arc::new(streams);
    Fake::new("relay", says(id), move |mut connection| {
        let streams = Arc::clone(&streams);
        connection.clock = Some(CLOCK);
        async move { serve(connection, &streams).await }
    })
}

async fn serve(mut connection: Connection, streams: &[Served]) {
    let request = String::from_utf8(connection.request.clone()).unwrap();
    let command = request.lines().next().unwrap();
    if command.starts_with("LSL:watch/1") {
        for served in streams {
            connection.data(&served.record()).await;
        }
        connection.data(b"=\r\n").await;
        if command.ends_with(" once") {
            connection.close().await;
        }
        return connection.until_end().await;
    }
    let (command, uid) = command.split_once(' ').unwrap();
    let served = streams.iter().find(|served| served.uid == uid.as_bytes());
    let served = served.unwrap();
    if command == "LSL:fullinfo" {
        connection.data(&served.xml).await;
        connection.close().await;
        return connection.until_end().await;
    }
    if command == "LSL:timekeys/1" {
        return connection.until_end().await;
    }
    let mut outlet = TcpStream::connect(served.outlet).await.unwrap();
    outlet.write_all(request.as_bytes()).await.unwrap();
    let mut buffer = [0; 4096];
    loop {
        let reading = outlet.read(&mut buffer);
        let limit = Duration::from_millis(5);
        if let Ok(Ok(length)) = tokio::time::timeout(limit, reading).await {
            connection.data(&buffer[..length]).await;
        }
        if connection.answer_pings(limit).await.is_none() {
            return;
        }
    }
}

#[test]
fn a_program_with_a_key_reads_and_measures_through_an_encrypted_relay() {
    let far = lab::context_with(BOTH);
    let info = StreamInfo::new("sealed", "Test", 1, 100.0, ChannelFormat::Double64, "s");
    let outlet = lab::outlet(&far, info.unwrap());
    let served = Served::of(&lab::find(&far, "sealed"));
    let id = relay_id(&key_of("relay").public());
    let running = relay(&id, vec![served]).run();
    let session = far.config().lab().session_id.clone();
    let relays = format!("{{127.0.0.1:{}}}", running.port);
    let own = [("lab.SessionID", &*session), ("lab.Relay", &*relays)];
    let place = Place::with(&[BOTH, &own].concat());
    let near = place.side("rec", Policy::Required, &["relay"]).context;
    let found = lab::find(&near, "sealed");
    assert!(found.relay_advert().is_some());
    let measure = |inlet: &Inlet| {
        let clock = inlet.blocking().time_correction(SOON).unwrap();
        assert!((clock.offset_secs + CLOCK.0).abs() < 0.2, "{clock:?}");
        assert!(clock.uncertainty_secs >= CLOCK.1, "{clock:?}");
    };
    // In a session of its own.
    let inlet = Inlet::builder(&found).context(&near).create().unwrap();
    measure(&inlet);
    drop(inlet);
    let inlet = Inlet::builder(&found).context(&near).create().unwrap();
    inlet.blocking().open(SOON).unwrap();
    push(&outlet, 0..100);
    expect(&inlet, 0..100);
    assert_eq!(
        inlet.encryption().unwrap().fingerprint,
        fingerprint_of("relay")
    );
    measure(&inlet);
    let full = inlet.blocking().full_info(SOON).unwrap();
    assert_eq!(full.uid_bytes(), found.uid_bytes());
    drop(inlet);
    // Who does not trust it finds nothing.
    let stranger = place.side("rec", Policy::Required, &["amp"]).context;
    let all = Selector::all();
    let found = stranger.resolve_blocking(&all, 1, Duration::from_millis(700));
    assert!(found.unwrap().is_empty());
    assert!(
        running.failures().contains(&Cause::NotAuthorised),
        "{:?}",
        running.failures()
    );
    // Nor does a program without a key.
    let legacy = place.legacy();
    let found = legacy.resolve_blocking(&all, 1, Duration::from_millis(300));
    assert!(found.unwrap().is_empty());
}

#[test]
fn a_stream_under_the_name_of_another_is_not_read_through_a_relay() {
    let far = lab::context_with(BOTH);
    let outlet = |name: &str| {
        let info = StreamInfo::new(name, "Test", 1, 100.0, ChannelFormat::Double64, "s");
        let outlet = lab::outlet(&far, info.unwrap());
        (outlet, lab::find(&far, name))
    };
    let (_wanted, wanted) = outlet("wanted");
    let (_other, other) = outlet("other");
    let id = relay_id(&key_of("relay").public());
    let running = relay(&id, vec![Served::of(&wanted), Served::of(&other)]).run();
    let relays = format!("{{127.0.0.1:{}}}", running.port);
    let session = far.config().lab().session_id.clone();
    let own = [("lab.SessionID", &*session), ("lab.Relay", &*relays)];
    let place = Place::with(&[BOTH, &own].concat());
    let near = place.side("rec", Policy::Required, &["relay"]);
    assert!(lab::find(&near.context, "other").relay_advert().is_some());
    // A forged advert: the uid of one stream, the name of another, and an address that leads nowhere.
    let xml = String::from_utf8(other.to_xml()).unwrap();
    let xml = xml.replace("<name>other</name>", "<name>wanted</name>");
    let forged = StreamInfo::from_xml(xml.as_bytes()).unwrap();
    assert_eq!(forged.name(), wanted.name());
    let inlet = near.inlet_for(&forged);
    let opened = inlet.blocking().open(Duration::from_secs(3));
    assert!(opened.is_err(), "{:?}", inlet.stats());
    let said = near.await_audit("handshake_failed", |event| {
        event["cause"] == "descriptor_mismatch"
    });
    assert!(said["detail"].to_string().contains("name"), "{said}");
    assert!(inlet.blocking().full_info(Duration::from_secs(2)).is_err());
    let clock = inlet.blocking().time_correction(Duration::from_secs(2));
    assert!(clock.is_err(), "{clock:?}");
}

#[test]
fn a_relay_is_who_its_key_says() {
    let running = relay("0011223344556677", Vec::new()).run();
    let relays = format!("{{127.0.0.1:{}}}", running.port);
    let place = Place::with(&[BOTH, &[("lab.Relay", &*relays)]].concat());
    let near = place.side("rec", Policy::Required, &["relay"]);
    let all = Selector::all();
    let found = near
        .context
        .resolve_blocking(&all, 1, Duration::from_millis(700));
    assert!(found.unwrap().is_empty());
    let tells = |event: &serde_json::Value| event["detail"].to_string().contains("relay id");
    lab::until("the wrong id is audited", || {
        let events = ["handshake_failed", "policy_refused"].map(|kind| near.audited(kind));
        events.concat().iter().any(tells)
    });
    let text = Security::off(vec!["/etc/lsl".into()])
        .unwrap()
        .no_key_text("lab2");
    assert_eq!(
        text,
        "relay lab2 asks for encryption and this program has no key; searched /etc/lsl; run: lsl key init"
    );
}
