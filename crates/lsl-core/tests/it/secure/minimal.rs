//! Discovery that shows strangers only a shape: who holds a key finds streams by what they are all the
//! same. Spec: LSS/1 §7.3.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use lsl_core::secure::Policy;
use lsl_core::secure::policy::Discovery;
use lsl_core::secure::trust::{Peer, TrustedRole};
use lsl_core::{ContinuousResolver, Inlet, ResolverEvent, Selector};
use lsl_proto::wire::discovery::QueryDatagram;

use super::fake::{Claim, Fake};
use super::people::{Place, Side, info, trusted};
use crate::lab::{self, SOON};

fn minimal(place: &Place, who: &str, trusts: &[&str]) -> Side {
    let peer = |who: &&str| trusted(who, TrustedRole::Both);
    let trusts: Vec<Peer> = trusts.iter().map(peer).collect();
    place.side_with(who, Policy::Required, trusts, |settings| {
        settings.discovery = Discovery::Minimal;
    })
}

fn resolve(side: &Side, predicate: &str, timeout: Duration) -> Vec<String> {
    let selector = Selector::predicate(predicate).unwrap();
    let found = side
        .context
        .resolve_blocking(&selector, 1, timeout)
        .unwrap();
    found.iter().map(|info| info.name().into_owned()).collect()
}

/// Waves of a search follow each other within 0.3 s.
const FAST_WAVES: [(&str, &str); 3] = [
    ("tuning.MulticastMinRTT", "0.1"),
    ("tuning.UnicastMinRTT", "0.1"),
    ("tuning.ContinuousResolveInterval", "0.1"),
];

/// Long enough for an answer that comes, if one does.
const A_WAVE: Duration = Duration::from_millis(500);

/// A search that goes on, for a stream of this name.
fn search(side: &Side, name: &str) -> ContinuousResolver {
    let selector = Selector::property("name", name).unwrap();
    ContinuousResolver::in_context(&side.context, &selector, Duration::from_mins(1)).unwrap()
}

#[test]
fn who_is_trusted_finds_streams_by_everything_they_are() {
    let place = Place::with(&FAST_WAVES);
    let amp = minimal(&place, "amp", &["rec"]);
    let rec = minimal(&place, "rec", &["amp"]);
    let mut described = info("Subject 17");
    described
        .desc_mut()
        .append_child("subject")
        .set("id", "s17");
    let outlet = lab::outlet(&amp.context, described);
    assert_eq!(resolve(&rec, "name='Subject 17'", SOON), ["Subject 17"]);
    // Inside a session even the description can be asked about.
    assert_eq!(resolve(&rec, "desc/subject/id='s17'", SOON), ["Subject 17"]);
    assert!(resolve(&rec, "desc/subject/id='s18'", A_WAVE).is_empty());

    let found = lab::find(&rec.context, "Subject 17");
    assert_eq!(found.uid_bytes(), outlet.info().uid_bytes());
    assert_eq!(found.source_id(), "src-Subject 17");
    assert!(!found.is_unresolved(), "it says where it was reached");
    let inlet = rec.inlet_for(&found);
    inlet.blocking().open(SOON).unwrap();
    outlet.push_at(&[1.0_f32; 3], 3.0).unwrap();
    let mut pulled = [0.0_f32; 3];
    assert_eq!(inlet.blocking().pull(&mut pulled, SOON).unwrap(), Some(3.0));
}

#[test]
fn who_is_not_trusted_learns_a_shape_and_no_more() {
    let place = Place::with(&FAST_WAVES);
    let amp = minimal(&place, "amp", &["rec"]);
    let stranger = minimal(&place, "stranger", &["amp"]);
    let _outlet = lab::outlet(&amp.context, info("Subject 18"));
    let resolver = search(&stranger, "Subject 18");
    amp.await_audit("policy_refused", |event| event["code"] == 8);
    assert!(resolver.next_event_blocking(A_WAVE).is_none());
    // With the key and without the setting: the redacted outlet, if at all.
    let open = place.side("rec", Policy::Required, &["amp"]);
    assert!(resolve(&open, "name='Subject 18'", A_WAVE).is_empty());
}

/// A search that goes on asks each outlet once, keeps what it learnt fresh, and notices the end.
#[test]
fn a_continuous_search_asks_once_and_forgets_what_is_gone() {
    let place = Place::with(&FAST_WAVES);
    let amp = minimal(&place, "amp", &["rec"]);
    let rec = minimal(&place, "rec", &["amp"]);
    let wanted = lab::outlet(&amp.context, info("wanted"));
    let _other = lab::outlet(&amp.context, info("other"));
    let selector = Selector::property("name", "wanted").unwrap();
    let forget_after = Duration::from_secs(3);
    let resolver = ContinuousResolver::in_context(&rec.context, &selector, forget_after).unwrap();
    let event = resolver.next_event_blocking(SOON).unwrap();
    assert!(matches!(&event, ResolverEvent::Appeared(info) if info.name() == "wanted"));
    // It stays for longer than a stream that is not seen again would.
    let is_second_address = |event| matches!(event, Some(ResolverEvent::Changed(_)) | None);
    for secs in [1, 4] {
        let event = resolver.next_event_blocking(Duration::from_secs(secs));
        assert!(is_second_address(event));
    }
    assert_eq!(resolver.results().len(), 1);
    // Each outlet has two addresses, and each is believed by itself.
    let sessions = rec.audited("handshake_ok").len();
    assert!(sessions <= 4, "{sessions} for 2 outlets");
    drop(wanted);
    let event = resolver.next_event_blocking(SOON).unwrap();
    assert!(matches!(&event, ResolverEvent::Lost(info) if info.name() == "wanted"));
}

#[test]
fn recovery_finds_a_redacted_successor() {
    let place = Place::new();
    let amp = minimal(&place, "amp", &["rec"]);
    let rec = minimal(&place, "rec", &["amp"]);
    let first = lab::outlet(&amp.context, info("back again"));
    let inlet = lab::inlet(&rec.context, "back again");
    drop(first);
    let second = lab::outlet(&amp.context, info("back again"));
    lab::until("the reader is back", || second.have_consumers());
    second.push_at(&[2.0_f32; 3], 2.0).unwrap();
    let mut pulled = [0.0_f32; 3];
    assert_eq!(inlet.blocking().pull(&mut pulled, SOON).unwrap(), Some(2.0));
    // An inlet that is told what to look for does the same.
    let described = Inlet::builder(&info("back again"))
        .context(&rec.context)
        .create()
        .unwrap();
    described.blocking().open(SOON).unwrap();
}

/// A responder of an attacker's: answers queries of a resolver with what it likes.
fn announce(place_port: u16, xml: String) -> impl Drop {
    struct Stop(std::sync::Arc<std::sync::atomic::AtomicBool>);
    impl Drop for Stop {
        fn drop(&mut self) {
            self.0.store(true, std::sync::atomic::Ordering::Release);
        }
    }
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, place_port)).unwrap();
    socket
        .set_read_timeout(Some(Duration::from_millis(50)))
        .unwrap();
    let stopped = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let stop = std::sync::Arc::clone(&stopped);
    std::thread::spawn(move || {
        let mut buffer = vec![0; 65_536];
        while !stop.load(std::sync::atomic::Ordering::Acquire) {
            let Ok((length, from)) = socket.recv_from(&mut buffer) else {
                continue;
            };
            let Ok(query) = QueryDatagram::parse(&buffer[..length]) else {
                continue;
            };
            let to = SocketAddr::new(from.ip(), query.return_port);
            let answer = [query.id, b"\r\n", xml.as_bytes()].concat();
            let _ = socket.send_to(&answer, to);
        }
    });
    Stop(stopped)
}

/// A forged advert makes a resolver knock once, at the address it came from, and then wait.
#[test]
fn forged_adverts_do_not_turn_a_resolver_into_a_scanner() {
    let place = Place::with(&FAST_WAVES);
    let rec = minimal(&place, "rec", &["amp"]);
    // Not trusted, and it says nothing true.
    let claim = Claim {
        name: "lss-00000000".to_owned(),
        advert: "<lsl_secure v=\"1\" policy=\"required\" mode=\"minimal\"/>".to_owned(),
        ..Claim::of("bait")
    };
    let outlet = Fake::honest("evil", &claim, claim.descriptor(), Vec::new()).run();
    let claim = Claim {
        port: outlet.port,
        ..claim
    };
    let port = rec.context.config().ports().base_port + 7;
    let _responder = announce(port, claim.xml());
    let resolver = search(&rec, "wanted");
    lab::until("somebody knocks", || outlet.connections() > 0);
    rec.await_audit("policy_refused", |event| event["code"] == 8);
    let several_waves = Duration::from_secs(1);
    assert!(resolver.next_event_blocking(several_waves).is_none());
    assert_eq!(outlet.connections(), 1, "30 s of peace after a failure");
    assert_eq!(outlet.handshakes(), 0);
    assert_eq!(rec.audited("policy_refused").len(), 1);
    // Nor do other searches of this program.
    drop(resolver);
    assert!(resolve(&rec, "name='wanted'", A_WAVE).is_empty());
    assert_eq!(outlet.connections(), 1);
}

/// Many uids at one honest address do not make a resolver knock there for each of them.
#[test]
fn forged_uids_do_not_flood_an_honest_outlet() {
    let place = Place::with(&FAST_WAVES);
    let rec = minimal(&place, "rec", &["amp"]);
    let truth = Claim::of("truth");
    let outlet = Fake::honest("amp", &truth, truth.descriptor(), Vec::new()).run();
    let base = rec.context.config().ports().base_port;
    let responders: Vec<_> = (1..18)
        .map(|number| {
            let claim = Claim {
                uid: format!("{number:08}-3333-4333-8333-333333333333"),
                advert: "<lsl_secure v=\"1\" policy=\"required\" mode=\"minimal\"/>".to_owned(),
                port: outlet.port,
                ..truth.clone()
            };
            announce(base + number, claim.xml())
        })
        .collect();
    let resolver = search(&rec, "wanted");
    lab::until("it knocks", || outlet.connections() >= 8);
    assert!(resolver.next_event_blocking(A_WAVE).is_none());
    drop(resolver);
    let knocked = outlet.connections();
    assert!(resolve(&rec, "name='wanted'", A_WAVE).is_empty());
    assert_eq!(outlet.connections(), knocked, "it is left alone");
    drop(responders);
}

/// Trusted, and yet it answers with another stream than it vouched for.
#[test]
fn an_answer_that_contradicts_its_session_is_no_result() {
    let place = Place::with(&FAST_WAVES);
    let rec = minimal(&place, "rec", &["amp"]);
    let truth = Claim::of("truth");
    let said = Claim {
        name: "wanted".to_owned(),
        ..truth.clone()
    };
    let outlet = Fake::new("amp", truth.descriptor(), move |mut connection| {
        let xml = said.xml();
        async move {
            assert!(connection.request.starts_with(b"LSL:shortinfo\r\n"));
            connection.data(xml.as_bytes()).await;
            connection.close().await;
            connection.until_end().await;
        }
    })
    .run();
    let shown = Claim {
        name: "lss-00000000".to_owned(),
        stream_type: String::new(),
        source_id: String::new(),
        hostname: String::new(),
        session_id: String::new(),
        advert: "<lsl_secure v=\"1\" policy=\"required\" mode=\"minimal\"/>".to_owned(),
        port: outlet.port,
        ..truth
    };
    let port = rec.context.config().ports().base_port + 7;
    let _responder = announce(port, shown.xml());
    let resolver = search(&rec, "wanted");
    rec.await_audit("handshake_failed", |event| event["code"] == 17);
    outlet.await_finished(1);
    assert!(resolver.next_event_blocking(A_WAVE).is_none());
}
