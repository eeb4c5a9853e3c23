//! Streams that a relay tells of, found and read by programs whose configuration names it. Spec: relay §5.2.

mod encrypted;
mod port;

use std::time::Duration;

use lsl_core::{
    ChannelFormat, Context, ContinuousResolver, Inlet, Outlet, ResolverEvent, Selector, StreamInfo,
    local_clock,
};

use crate::lab::{self, SOON};
use port::{Port, Served};

/// Settings of programs at both ends.
const BOTH: &[(&str, &str)] = &[("ports.IPv6", "disable"), ("tuning.RetainSeconds", "30")];

/// A relay, a program whose outlets it reads, and one that finds nothing but by the relay.
struct Site {
    far: Context,
    near: Context,
    port: Port,
}

impl Site {
    fn new() -> Self {
        Self::with(&[])
    }

    fn with(more: &[(&str, &str)]) -> Self {
        let port = Port::start();
        let far = lab::context_with(BOTH);
        let session = far.config().lab().session_id.clone();
        let relay = format!("{{{}}}", port.address);
        let own = [("lab.SessionID", &*session), ("lab.Relay", &*relay)];
        let near = lab::context_with(&[BOTH, &own, more].concat());
        Self { far, near, port }
    }

    /// An outlet behind the relay, and its info as others find it.
    fn outlet(&self, name: &str) -> (Outlet, StreamInfo) {
        let info = StreamInfo::new(name, "Test", 1, 100.0, ChannelFormat::Double64, "src-relay");
        let outlet = lab::outlet(&self.far, info.unwrap());
        let found = lab::find(&self.far, name);
        (outlet, found)
    }

    fn offered(&self, name: &str) -> (Outlet, StreamInfo) {
        let (outlet, found) = self.outlet(name);
        self.port.offer(Served::of(&found));
        (outlet, found)
    }

    fn inlet(&self, info: &StreamInfo) -> Inlet {
        let inlet = Inlet::builder(info).context(&self.near).create().unwrap();
        inlet.blocking().open(SOON).unwrap();
        inlet
    }
}

fn push(outlet: &Outlet, numbers: std::ops::Range<u32>) {
    for number in numbers {
        outlet.push(&[f64::from(number)]).unwrap();
    }
}

#[track_caller]
fn expect(inlet: &Inlet, numbers: std::ops::Range<u32>) {
    for number in numbers {
        let mut value = [f64::NAN];
        let stamp = inlet.blocking().pull(&mut value, SOON).unwrap();
        assert!(
            stamp.is_some() && value == [f64::from(number)],
            "{value:?} for {number}"
        );
    }
}

#[test]
fn a_stream_is_found_read_and_resumed_through_a_relay() {
    let site = Site::new();
    let (outlet, origin) = site.offered("far");
    let _other = site.offered("other");
    let found = lab::find(&site.near, "far");
    assert_eq!(found.uid_bytes(), origin.uid_bytes());
    assert_eq!(
        (found.v4_address_bytes(), found.v4_data_port()),
        (&b""[..], 0)
    );
    assert_eq!(found.relay_advert().unwrap().origin, origin.uid_bytes());
    assert_eq!(site.port.requests("LSL:watch/1 once"), 1);
    // As programs do that keep the text alone.
    let found = StreamInfo::from_xml(&found.to_xml()).unwrap();
    let inlet = site.inlet(&found);
    push(&outlet, 0..100);
    expect(&inlet, 0..100);
    for round in 1..4 {
        site.port.cut();
        push(&outlet, 100 * round..100 * (round + 1));
        lab::until("it is connected again", || {
            inlet.stats().reconnects == u64::from(round)
        });
        expect(&inlet, 100 * round..100 * (round + 1));
    }
    let stats = inlet.stats();
    assert_eq!(
        (stats.resumed, stats.lost_exact, stats.lost_unknown),
        (3, 0, 0)
    );
    assert_eq!(
        inlet.blocking().full_info(SOON).unwrap().uid_bytes(),
        origin.uid_bytes()
    );
    assert_eq!(site.port.requests("LSL:fullinfo "), 1);
    assert!(site.port.requests("LSL:streamfeed/110 ") >= 4);
    // There is no clock without encryption.
    let correction = inlet.blocking().time_correction(Duration::from_millis(300));
    assert!(matches!(correction, Err(lsl_core::Error::Timeout { .. })));
}

#[test]
fn the_outlet_comes_first_and_the_relay_if_it_is_out_of_reach() {
    let site = Site::new();
    let (outlet, origin) = site.offered("both");
    // A program that both reaches.
    let peers = format!("{{127.0.0.1:{}}}", origin.v4_service_port());
    let relay = format!("{{{}}}", site.port.address);
    let session = site.far.config().lab().session_id.clone();
    let own = [
        ("lab.SessionID", &*session),
        ("lab.Relay", &*relay),
        ("lab.KnownPeers", &*peers),
    ];
    let near = lab::context_with(&[BOTH, &own].concat());
    let found = lab::find(&near, "both");
    assert_eq!(
        (found.v4_address(), found.v4_data_port()),
        ("127.0.0.1".into(), origin.v4_data_port())
    );
    lab::until("the relay was asked", || {
        site.port.requests("LSL:watch/1") > 0
    });
    let inlet = Inlet::builder(&found).context(&near).create().unwrap();
    inlet.blocking().open(SOON).unwrap();
    push(&outlet, 0..10);
    expect(&inlet, 0..10);
    assert_eq!(site.port.requests("LSL:streamfeed"), 0);
    drop(inlet);
    // Nobody accepts where discovery says.
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = closed.local_addr().unwrap().port();
    drop(closed);
    let xml = String::from_utf8(found.to_xml()).unwrap();
    let wrong = format!("<v4data_port>{}</v4data_port>", found.v4_data_port());
    assert!(xml.contains(&wrong), "{xml}");
    let xml = xml.replace(&wrong, &format!("<v4data_port>{port}</v4data_port>"));
    let wrong = StreamInfo::from_xml(xml.as_bytes()).unwrap();
    // What the relay told comes after the end of that search.
    std::thread::sleep(Duration::from_millis(300));
    let begun = local_clock();
    let inlet = Inlet::builder(&wrong).context(&near).create().unwrap();
    inlet.blocking().open(SOON).unwrap();
    assert!(
        site.port.requests("LSL:streamfeed") >= 1,
        "after {} s",
        local_clock() - begun
    );
    push(&outlet, 10..20);
    expect(&inlet, 10..20);
}

#[test]
fn a_stream_that_starts_again_is_recovered_through_the_relay() {
    let site = Site::new();
    let (outlet, origin) = site.offered("again");
    let inlet = site.inlet(&lab::find(&site.near, "again"));
    push(&outlet, 0..10);
    expect(&inlet, 0..10);
    drop(outlet);
    site.port.withdraw(origin.uid_bytes());
    let (outlet, successor) = site.offered("again");
    assert_ne!(successor.uid_bytes(), origin.uid_bytes());
    lab::until("the inlet is connected again", || {
        inlet.stats().reconnects == 1
    });
    assert_eq!(inlet.present_info().uid_bytes(), successor.uid_bytes());
    push(&outlet, 10..20);
    expect(&inlet, 10..20);
}

#[test]
fn a_resolver_learns_what_comes_and_goes() {
    let site = Site::new();
    let resolver =
        ContinuousResolver::in_context(&site.near, &Selector::all(), Duration::from_secs(5));
    let resolver = resolver.unwrap();
    let (_outlet, origin) = site.offered("comes");
    let next = || resolver.next_event_blocking(SOON).unwrap();
    assert!(matches!(next(), ResolverEvent::Appeared(info) if info.name() == "comes"));
    assert_eq!(resolver.results().len(), 1);
    site.port.cut();
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(resolver.results().len(), 1, "the relay may come back");
    lab::until("the relay is watched again", || {
        site.port.requests("LSL:watch/1") >= 2
    });
    site.port.withdraw(origin.uid_bytes());
    assert!(matches!(next(), ResolverEvent::Lost(info) if info.name() == "comes"));
    assert_eq!(site.port.requests("LSL:watch/1 once"), 0);
}

#[test]
fn a_relay_out_of_reach_costs_no_search_anything() {
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let relays = format!(
        "{{{}, {}}}",
        closed.local_addr().unwrap(),
        silent.local_addr().unwrap()
    );
    drop(closed);
    let context = lab::context_with(&[BOTH, &[("lab.Relay", &*relays)]].concat());
    let info = StreamInfo::new("here", "Test", 1, 1.0, ChannelFormat::Int8, "s").unwrap();
    let _outlet = lab::outlet(&context, info);
    let begun = local_clock();
    assert!(lab::find(&context, "here").relay_advert().is_none());
    let took = local_clock() - begun;
    assert!(took < 1.5, "{took} s");
    let begun = local_clock();
    let none = Selector::property("name", "nowhere").unwrap();
    let found = context.resolve_blocking(&none, 1, Duration::from_millis(300));
    assert!(found.unwrap().is_empty());
    let took = local_clock() - begun;
    assert!(took < 1.5, "{took} s");
}
