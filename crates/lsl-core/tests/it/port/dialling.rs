//! Relays that connect with the port of another one.

use std::net::{Ipv4Addr, TcpListener};
use std::time::Duration;

use lsl_core::relay::{self, Duplex, Peer};
use lsl_core::secure::Policy;
use lsl_core::secure::trust::TrustedRole;
use lsl_core::{Context, Error};
use lsl_proto::security::relay_id;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::{Streams, port, port_of};
use crate::lab::{self, SOON};
use crate::secure::outlet::revocation::{side_of_files, write_trust};
use crate::secure::people::{Place, key_of, trusted};

const LINK: &[u8] = b"LSL:relay/1\r\nFrames: 1\r\n\r\nearly";

/// Runs in a runtime that is not the library's.
#[expect(clippy::disallowed_methods, reason = "a program may have one")]
fn run<R>(future: impl Future<Output = R>) -> R {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().build();
    runtime.unwrap().block_on(future)
}

async fn dial(context: &Context, port: &relay::Port) -> Result<(Duplex, Peer), Error> {
    let at = format!("127.0.0.1:{}", port.addresses()[0].port());
    relay::dial(context, &at, SOON, LINK).await
}

/// Reads up to these bytes.
async fn read_to(duplex: &mut Duplex, end: &[u8]) -> Vec<u8> {
    let mut read = Vec::new();
    while !read.ends_with(end) {
        read.push(duplex.read_u8().await.unwrap());
    }
    read
}

/// Sends and gets back more than fits, and hears at the end for whom the other side takes this one.
async fn talk(duplex: &mut Duplex) -> String {
    let greeting = read_to(duplex, b"early").await;
    let bytes: Vec<u8> = (0..50_000_u32).map(|n| b'a' + (n % 23) as u8).collect();
    for _ in 0..40 {
        duplex.write_all(&bytes).await.unwrap();
        duplex.flush().await.unwrap();
        let mut echoed = vec![0; bytes.len()];
        duplex.read_exact(&mut echoed).await.unwrap();
        assert!(echoed == bytes);
    }
    duplex.write_all(b"?").await.unwrap();
    duplex.flush().await.unwrap();
    let mut said = String::new();
    duplex.read_to_string(&mut said).await.unwrap();
    let greeting = String::from_utf8(greeting).unwrap();
    let (name, _) = greeting.split_once(" Link { headers: [").unwrap();
    format!("{name} {said}")
}

#[test]
fn a_relay_connects_with_another_and_both_know_whom_they_have() {
    let relay = |who| trusted(who, TrustedRole::Relay);
    let place = Place::new();
    let hub = vec![relay("site"), trusted("rec", TrustedRole::Both)];
    let hub = place.side_with("hub", Policy::Required, hub, |_| {});
    let (site_place, streams) = (Place::new(), Streams::default());
    let site = side_of_files(&site_place, "site", vec![relay("hub"), relay("spare")]);
    let side = |who, trusts| place.side_with(who, Policy::Off, vec![trusts], |_| {});
    let rec = side("rec", relay("hub"));
    let wary = side("site", trusted("hub", TrustedRole::Both));
    let hub_key = key_of("hub").public();
    let port = port_of(&relay_id(&hub_key), &hub.context, &streams, 100);
    let other = super::port(&hub.context, &streams, 100);
    run(async {
        let (mut duplex, peer) = dial(&site.context, &port).await.unwrap();
        assert_eq!(peer.trusted, Some((hub_key, "hub".to_owned())));
        assert_eq!((peer.address, peer.link), (port.addresses()[0], None));
        assert!(peer.is_relay);
        assert_eq!(talk(&mut duplex).await, "site true");
        duplex.close(None).await;
        let closed = |event: &serde_json::Value| event["role"] == "inlet" && event["clean"] == true;
        site.await_audit("session_closed", closed);

        // What it may do there it learns when it has asked.
        let (mut duplex, _) = dial(&rec.context, &port).await.unwrap();
        assert_eq!(talk(&mut duplex).await, "rec false");

        for (context, port, why) in [
            (&wary.context, &port, "is trusted, but not as a relay"),
            (&site.context, &other, "it has another relay id"),
        ] {
            let refused = dial(context, port).await.unwrap_err();
            assert!(matches!(refused, Error::Security(_)), "{refused}");
            assert!(refused.to_string().contains(why), "{refused}");
        }

        let (mut duplex, _) = dial(&site.context, &port).await.unwrap();
        duplex.write_all(b"!").await.unwrap();
        duplex.flush().await.unwrap();
        let told = duplex.read_to_end(&mut Vec::new()).await.unwrap_err();
        assert!(told.to_string().contains("role_not_allowed"), "{told}");

        let (mut duplex, _) = dial(&site.context, &port).await.unwrap();
        read_to(&mut duplex, b"early").await;
        write_trust(site_place.dir(), vec![relay("spare")]);
        let ended = duplex.read_u8().await.unwrap_err();
        assert_eq!(ended.kind(), std::io::ErrorKind::ConnectionAborted);
    });
}

#[test]
fn a_relay_without_a_key_connects_on_its_host_alone() {
    let (context, streams) = (lab::context(), Streams::default());
    let port = port(&context, &streams, 100);
    let silent = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    run(async {
        let (mut duplex, peer) = dial(&context, &port).await.unwrap();
        assert_eq!((peer.trusted, peer.is_relay), (None, true));
        assert_eq!(talk(&mut duplex).await, " true");
        duplex.close(None).await;

        let place = Place::new();
        let keyed = place.side("site", Policy::Off, &[]);
        let at = format!("localhost:{}", silent.local_addr().unwrap().port());
        let brief = Duration::from_millis(50);
        let late = relay::dial(&keyed.context, &at, brief, LINK).await;
        assert!(matches!(late, Err(Error::Timeout { .. })), "{late:?}");
        let nowhere = relay::dial(&context, "a b", SOON, LINK).await;
        assert!(matches!(nowhere, Err(Error::Argument(_))), "{nowhere:?}");
    });
}
