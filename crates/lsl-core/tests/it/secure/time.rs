//! The clock of an outlet with which there is a session: whatever comes from others is no answer, and
//! what delays do is bounded by what is reported. Spec: LSS/1 §9.

use std::net::{Ipv4Addr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use lsl_core::secure::{Policy, TimeResponder};
use lsl_core::{Inlet, StreamInfo, local_clock};

use super::fake::{Claim, Fake, Running, either};
use super::outlet::revocation::{side_of_files, write_trust};
use super::people::{Place, Side};
use super::proxy::{Proxy, Verdict, Way};
use crate::lab::{self, SOON};

/// The clock of a fake outlet and everybody between it and the inlet.
#[derive(Default)]
struct Clock {
    /// Seconds ahead of ours, as bits.
    ahead: AtomicU64,
    /// How long answers are held back, in milliseconds.
    delay: AtomicU64,
    /// The connection breaks at the next probe, and afterwards the clock is 3 s ahead.
    breaks: AtomicBool,
    /// Sends from another socket.
    elsewhere: bool,
    probes: AtomicUsize,
    /// Sessions for the clock alone that the inlet ended properly.
    closed: AtomicUsize,
}

impl Clock {
    fn ahead(&self) -> f64 {
        f64::from_bits(self.ahead.load(Ordering::Acquire))
    }

    fn set_ahead(&self, secs: f64) {
        self.ahead.store(secs.to_bits(), Ordering::Release);
    }

    /// Answers what comes, until told to stop by being dropped.
    async fn answer(&self, socket: &tokio::net::UdpSocket, mut responder: TimeResponder) {
        let other = tokio::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))
            .await
            .unwrap();
        let mut buffer = [0; 256];
        loop {
            let (length, from) = socket.recv_from(&mut buffer).await.unwrap();
            if self.breaks.swap(false, Ordering::AcqRel) {
                self.set_ahead(3.0);
                return;
            }
            let packet = &buffer[..length];
            let t1 = local_clock() + self.ahead();
            let delay = self.delay.load(Ordering::Acquire);
            let answer = responder.answer(packet, t1, || local_clock() + self.ahead());
            let Some(answer) = answer else {
                continue;
            };
            self.probes.fetch_add(1, Ordering::AcqRel);
            tokio::time::sleep(Duration::from_millis(delay)).await;
            let way = if self.elsewhere { &other } else { socket };
            way.send_to(&answer, from).await.unwrap();
        }
    }
}

/// A fake outlet with this clock.
fn outlet(name: &str, clock: Clock) -> (Running, Claim, Arc<Clock>) {
    let service = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    service.set_nonblocking(true).unwrap();
    let mut claim = Claim {
        service_port: service.local_addr().unwrap().port(),
        ..Claim::of(name)
    };
    let clock = Arc::new(clock);
    let (shared, shown) = (Arc::clone(&clock), claim.clone());
    let outlet = Fake::new("amp", claim.descriptor(), move |mut connection| {
        let (clock, claim) = (Arc::clone(&shared), shown.clone());
        let service = service.try_clone().unwrap();
        async move {
            let service = tokio::net::UdpSocket::from_std(service).unwrap();
            let responder = connection.time.take().unwrap().into_responder();
            let is_of_clock = connection.request == b"LSL:timekeys/1\r\n";
            if connection.request.starts_with(b"LSL:streamfeed") {
                connection.data(&claim.preamble()).await;
                connection.rekey().await;
            } else {
                assert!(is_of_clock, "{:?}", connection.request);
            }
            either(clock.answer(&service, responder), connection.until_end()).await;
            if is_of_clock && connection.closed {
                clock.closed.fetch_add(1, Ordering::AcqRel);
            }
        }
    })
    .run();
    claim.port = outlet.port;
    (outlet, claim, clock)
}

fn rec(place: &Place, who: &str, max_rtt_ms: u32) -> Side {
    let trusts = vec![super::people::trusted(
        "amp",
        lsl_core::secure::trust::TrustedRole::Outlet,
    )];
    place.side_with(who, Policy::Required, trusts, |settings| {
        settings.max_rtt_ms = max_rtt_ms;
    })
}

/// The error is never larger than what is reported.
fn assert_bounded(inlet: &Inlet, clock: &Clock) -> f64 {
    let correction = inlet.blocking().time_correction(SOON).unwrap();
    let error = (correction.offset_secs + clock.ahead()).abs();
    let bound = correction.max_error_secs();
    assert!(error <= bound + 1e-9, "{error} > {bound}");
    assert!(correction.uncertainty_secs < 0.128, "{correction:?}");
    bound
}

#[test]
fn answers_from_another_address_count_if_they_are_authentic() {
    let place = Place::new();
    let rec = rec(&place, "rec", 128);
    let clock = Clock {
        elsewhere: true,
        ..Clock::default()
    };
    let (_outlet, claim, clock) = outlet("multi-homed", clock);
    let inlet = rec.inlet_for(&claim.info());
    assert_bounded(&inlet, &clock);
}

/// Without a feed a session of its own lends the keys; it ends when there is a feed.
#[test]
fn the_session_of_the_clock_ends_when_a_feed_lends_its_keys() {
    let place = Place::new();
    let rec = rec(&place, "rec", 128);
    let (outlet, claim, clock) = outlet("alone", Clock::default());
    let inlet = rec.inlet_for(&claim.info());
    assert_bounded(&inlet, &clock);
    assert_eq!(outlet.handshakes(), 1);
    assert!(inlet.encryption().is_none(), "there is no data connection");
    inlet.blocking().open(SOON).unwrap();
    lab::until("the clock's own session is closed", || {
        clock.closed.load(Ordering::Acquire) == 1
    });
    assert_eq!(outlet.handshakes(), 2);
    let probes = clock.probes.load(Ordering::Acquire);
    lab::until("the clock is asked with the keys of the feed", || {
        clock.probes.load(Ordering::Acquire) > probes
    });
    // And the other way round, when the feed is gone.
    inlet.close();
    lab::until("there is a session for the clock again", || {
        outlet.handshakes() == 3
    });
    assert!(outlet.failures().is_empty());
}

/// Who can cut a connection must not thereby make the inlet forget what it knew of the clock.
#[test]
fn a_jump_while_there_is_no_session_is_audited_too() {
    let place = Place::with(&FAST_PROBES);
    let rec = rec(&place, "rec", 128);
    let (outlet, claim, clock) = outlet("cut", Clock::default());
    let inlet = rec.inlet_for(&claim.info());
    assert_bounded(&inlet, &clock);
    assert!(rec.audited("time_step").is_empty());
    clock.breaks.store(true, Ordering::Release);
    rec.await_audit("time_step", |_| true);
    assert!(outlet.handshakes() > 1);
}

/// The clock is asked often.
const FAST_PROBES: [(&str, &str); 4] = [
    ("tuning.TimeProbeCount", "3"),
    ("tuning.TimeProbeInterval", "0.01"),
    ("tuning.TimeUpdateInterval", "0.1"),
    ("tuning.TimeUpdateMinProbes", "1"),
];

/// A stream that somebody else seems to serve.
fn at_ports(info: &StreamInfo, data: u16, service: u16) -> StreamInfo {
    let xml = String::from_utf8(info.to_xml()).unwrap();
    let change = |xml: String, name: &str, port: u16, other: u16| {
        let [old, new] = [port, other].map(|port| format!("<{name}>{port}</{name}>"));
        assert!(xml.contains(&old), "{xml}");
        xml.replace(&old, &new)
    };
    let xml = change(xml, "v4data_port", info.v4_data_port(), data);
    let xml = change(xml, "v4service_port", info.v4_service_port(), service);
    // Without an address the inlet would look for the stream.
    let (unknown, here) = (
        "<v4address></v4address>",
        "<v4address>127.0.0.1</v4address>",
    );
    assert!(xml.contains(unknown), "{xml}");
    StreamInfo::from_xml(xml.replace(unknown, here).as_bytes()).unwrap()
}

/// Our own outlet on a way whose UDP ends nowhere, and where somebody holds up one direction.
#[test]
fn a_session_that_is_held_up_one_way_errs_within_half_the_round_trip() {
    const HELD_UP: Duration = Duration::from_millis(20);
    let place = Place::with(&FAST_PROBES);
    let (amp, rec) = place.pair(Policy::Required, Policy::Required);
    let outlet = lab::outlet(&amp.context, super::people::info("held-up"));
    let silent = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let info = outlet.info();
    let to = (Ipv4Addr::LOCALHOST, info.v4_data_port()).into();
    for held_up in [Way::ToInlet, Way::ToOutlet] {
        let proxy = Proxy::start(to, move |way, _, _| {
            if way == held_up {
                std::thread::sleep(HELD_UP);
            }
            Verdict::Pass
        });
        let service = silent.local_addr().unwrap().port();
        let moved = at_ports(info, proxy.port, service);
        let inlet = rec.inlet_for(&moved);
        let correction = inlet.blocking().time_correction(SOON).unwrap();
        assert!(correction.is_low_quality(), "{correction:?}");
        // Both have the same clock: all of the offset is error.
        let (error, bound) = (correction.offset_secs.abs(), correction.max_error_secs());
        assert!(error <= bound + 1e-9, "{held_up:?}: {error} > {bound}");
        let rtt = correction.uncertainty_secs;
        assert!(rtt >= HELD_UP.as_secs_f64(), "{held_up:?}: {correction:?}");
    }
}

/// An authentic outlet whose clock jumps, or a way on which somebody starts to wait: all that befalls a session
/// is one tree, to its end.
#[test]
fn jumps_and_rising_round_trips_are_audited() {
    let place = Place::with(&[
        ("tuning.TimeProbeCount", "3"),
        ("tuning.TimeProbeInterval", "0.01"),
        ("tuning.TimeProbeMaxRTT", "0.06"),
        ("tuning.TimeUpdateInterval", "0.1"),
        ("tuning.TimeUpdateMinProbes", "1"),
    ]);
    let amp = super::people::trusted("amp", lsl_core::secure::trust::TrustedRole::Outlet);
    let rec = side_of_files(&place, "rec", vec![amp]);
    let (_outlet, claim, clock) = outlet("jumping", Clock::default());
    let inlet = rec.inlet_for(&claim.info());
    inlet.blocking().open(SOON).unwrap();
    assert_bounded(&inlet, &clock);
    assert!(rec.audited("time_step").is_empty());
    clock.set_ahead(3.0);
    let event = rec.await_audit("time_step", |_| true);
    assert_eq!(event["peer_name"], "amp", "{event}");
    clock.delay.store(25, Ordering::Release);
    rec.await_audit("time_rtt_rise", |_| true);
    rec.await_audit("time_uncertain", |_| true);
    rec.await_audit("key_update", |line| line["sid"] == event["sid"]);
    write_trust(place.dir(), Vec::new());
    let closed = rec.await_audit("session_closed", |line| line["sid"] == event["sid"]);
    let of_clock = ["time_rtt_rise", "time_step", "time_uncertain"];
    let of_session = ["handshake_ok", "key_update", "revoked", "session_closed"];
    assert_eq!(rec.tree_of(&closed), [&of_session[..], &of_clock].concat());
}
