//! Streams that are seen on one face of a relay and offered on the other. Spec: relay §6, §7.

use std::net::{Ipv4Addr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use lsl_core::secure::trust::TrustList;
use lsl_core::{Context, Inlet, Outlet, Selector, StreamInfo, local_clock};
use lsl_relay::config::Config;
use lsl_relay::shell::Relay;

use super::{SOON, context, context_with, outlet};

/// Another program in the same network.
fn again(context: &Context) -> Context {
    Context::new(context.config().clone())
}

/// A relay with a face in each of these networks.
fn between(networks: [&Context; 2], text: &str) -> Relay {
    let mut config = Config::parse(text, &TrustList::default()).expect("a configuration");
    config.listen = vec![(Ipv4Addr::LOCALHOST, 0).into()];
    let faces = networks.map(again);
    let own = context();
    Relay::start_between(&own, faces.into(), &config, "hub", Vec::new()).expect("a relay")
}

/// All streams of this name in a network, in every session.
fn all(network: &Context, name: &str) -> Vec<StreamInfo> {
    let selector = Selector::predicate(format!("name='{name}' or name='{name}'"));
    let selector = selector.expect("a selector");
    let wait = Duration::from_millis(400);
    let found = again(network).resolve_blocking(&selector, 0, wait);
    found.expect("a search")
}

/// Waits until a network has these streams of this name. Returns them.
fn await_streams(
    network: &Context,
    name: &str,
    is_wanted: impl Fn(&[StreamInfo]) -> bool,
) -> Vec<StreamInfo> {
    let until = local_clock() + SOON.as_secs_f64();
    loop {
        let found = all(network, name);
        if is_wanted(&found) {
            return found;
        }
        let uids: Vec<_> = found.iter().map(StreamInfo::uid).collect();
        assert!(local_clock() < until, "{name}: {uids:?}");
    }
}

fn reader(network: &Context, info: &StreamInfo) -> Inlet {
    let inlet = Inlet::builder(info).context(network).recover(false);
    let inlet = inlet.create().expect("an inlet");
    inlet.blocking().open(SOON).expect("open");
    inlet
}

fn passes(outlet: &Outlet, inlet: &Inlet, values: std::ops::Range<i32>) {
    for value in values.clone() {
        outlet
            .push_at(&[value], f64::from(value) + 0.25)
            .expect("pushed");
    }
    for value in values {
        let mut sample = [-1];
        let stamp = inlet.blocking().pull(&mut sample, SOON).expect("a sample");
        assert_eq!((sample[0], stamp), (value, Some(f64::from(value) + 0.25)));
    }
}

#[test]
fn a_stream_of_one_network_is_an_outlet_in_the_other() {
    let (here, there) = (context(), context());
    let origin = outlet(&here, "faces", "passes");
    let relay = between([&here, &there], "");
    let found = await_streams(&there, "passes", |found| found.len() == 1);
    assert_ne!(found[0].uid(), origin.info().uid());
    assert_eq!(found[0].source_id(), origin.info().source_id());
    assert_eq!(found[0].session_id(), origin.info().session_id());
    let mark = found[0].relay_advert().expect("a mark");
    assert_eq!(mark.origin, origin.info().uid_bytes());
    assert_eq!(mark.path, [relay.id().to_string()]);
    assert!(!origin.have_consumers(), "nobody reads it");
    let inlet = reader(&again(&there), &found[0]);
    passes(&origin, &inlet, 0..100);
    let known = inlet.blocking().time_correction(SOON).expect("a clock");
    assert!(
        known.offset_secs.abs() <= known.uncertainty_secs / 2.0 && known.uncertainty_secs < 1.0,
        "{known:?}"
    );
    let status = relay.status();
    let streams = status["streams"].as_array().expect("streams");
    let ours = streams.iter().find(|it| it["name"] == "passes");
    let ours = ours.expect("listed");
    assert_eq!(
        (ours["readers"].as_u64(), ours["state"].as_str()),
        (Some(1), Some("flowing"))
    );
    // The relay takes no outlet of its own for a source, and nothing goes back.
    assert_eq!(
        streams.iter().filter(|it| it["name"] == "passes").count(),
        1
    );
    assert_eq!(all(&here, "passes").len(), 1);
    drop(relay);
    assert!(inlet.blocking().pull(&mut [0], SOON).is_err());
    assert_eq!(all(&there, "passes").len(), 0);
}

#[test]
fn an_offer_ends_while_its_origin_is_visible() {
    let gate = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
    let port = gate.local_addr().expect("an address").port();
    let here = context();
    let there = context_with(&[("lab.KnownPeers", &format!("{{127.0.0.1:{port}}}"))]);
    let origin = outlet(&here, "faces", "visible");
    let relay = between([&here, &there], "");
    let uid = origin.info().uid();
    let found = await_streams(&there, "visible", |found| found.len() == 1);
    assert_ne!(found[0].uid(), uid);
    let inlet = reader(&again(&there), &found[0]);
    passes(&origin, &inlet, 0..10);
    // From now on queries of the one network come into the other, and answers go straight back.
    let leads_to = Arc::new(AtomicU16::new(origin.info().v4_service_port()));
    let passing = Arc::clone(&leads_to);
    std::thread::spawn(move || {
        let mut query = [0; 2000];
        while let Ok((length, _)) = gate.recv_from(&mut query) {
            let to = (Ipv4Addr::LOCALHOST, passing.load(Ordering::Relaxed));
            // 9 is nobody.
            let _ = gate.send_to(&query[..length], to);
        }
    });
    assert!(inlet.blocking().pull(&mut [0], SOON).is_err());
    let found = all(&there, "visible");
    assert_eq!((found.len(), found[0].uid()), (1, uid.clone()));
    leads_to.store(9, Ordering::Relaxed);
    let found = await_streams(&there, "visible", |found| found.len() == 1);
    assert_ne!(found[0].uid(), uid);
    let inlet = reader(&again(&there), &found[0]);
    passes(&origin, &inlet, 10..20);
    drop(relay);
}

#[test]
fn of_two_relays_one_offers_and_the_other_takes_over() {
    let (here, there) = (context(), context());
    let origin = outlet(&here, "faces", "twice");
    let relays = [(); 2].map(|()| between([&here, &there], ""));
    let first = relays.iter().map(|relay| relay.id().to_string()).min();
    let offerers = |found: &[StreamInfo]| -> Vec<String> {
        let path = |info: &StreamInfo| info.relay_advert().map(|mark| mark.path.concat());
        found.iter().filter_map(path).collect()
    };
    let is_settled = |found: &[StreamInfo]| offerers(found) == first.as_slice();
    let mut found = await_streams(&there, "twice", is_settled);
    for _ in 0..4 {
        found = all(&there, "twice");
        assert!(is_settled(&found), "{:?}", offerers(&found));
    }
    let inlet = reader(&again(&there), &found[0]);
    passes(&origin, &inlet, 0..10);
    let [stays] = <[Relay; 1]>::try_from(
        relays
            .into_iter()
            .filter(|relay| Some(relay.id().to_string()) != first)
            .collect::<Vec<_>>(),
    )
    .expect("one of two");
    let second = stays.id().to_string();
    let found = await_streams(&there, "twice", |found| offerers(found) == [second.clone()]);
    let inlet = reader(&again(&there), &found[0]);
    passes(&origin, &inlet, 10..20);
}

#[test]
fn what_is_not_to_be_offered_is_not() {
    let (here, there) = (context(), context());
    let names = ["kept", "hidden", "offered"];
    let _outlets = names.map(|name| outlet(&here, "rules", name));
    let rules = "[[rule]]\nmatch = \"name='kept'\"\nreoffer = false\n\
                 [[rule]]\nmatch = \"name='hidden'\"\nreaders = []\n";
    let mut relay = between([&here, &there], rules);
    await_streams(&there, "offered", |found| found.len() == 1);
    // As above in all: offers of one relay are opened in order.
    for name in ["kept", "hidden"] {
        assert_eq!(all(&there, name).len(), 0, "{name}");
    }
    let off = "[local]\nreoffer = false\n";
    relay.reload(&Config::parse(off, &TrustList::default()).expect("a configuration"));
    await_streams(&there, "offered", <[_]>::is_empty);
}
