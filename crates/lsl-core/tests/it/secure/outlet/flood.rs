//! Floods of handshakes hit their limits, and nobody else.

use std::io::Write;
use std::net::{Ipv4Addr, Shutdown};

use lsl_core::local_clock;
use lsl_core::secure::Policy;
use lsl_core::secure::policy::REFUSAL_503;

use super::reader::{Reader, dial_from, hello, rest};
use crate::lab;
use crate::secure::people::{Place, info};

#[test]
fn half_open_handshakes_keep_nobody_out_and_nothing_up() {
    let place = Place::new();
    let amp = place.side("amp", Policy::Required, &["rec"]);
    let outlet = lab::outlet(&amp.context, info("flood"));
    let mut reader = Reader::feed(&outlet, "rec", 1000);
    let elsewhere = Ipv4Addr::new(127, 0, 0, 2).into();
    // Each costs the outlet M2, and none sends M3.
    let mut flood = Vec::new();
    for n in 0_u16..400 {
        let mut stream = dial_from(elsewhere, &outlet);
        let _ = stream.write_all(&hello("eve").1);
        flood.push(stream);
        let stamp = 1.0 + f64::from(n);
        outlet.push_at(&[f32::from(n); 3], stamp).unwrap();
        assert_eq!(reader.sample(), Some((stamp, [f32::from(n); 3])));
    }
    let pending = amp.security.admission().lock().unwrap().pending();
    assert!(pending <= 256, "{pending} of one source");
    // Another one, and one that is known, get through.
    let mut other = Reader::feed(&outlet, "rec", 10);
    outlet.push_at(&[0.5_f32; 3], 0.5).unwrap();
    for reader in [&mut reader, &mut other] {
        assert_eq!(reader.sample(), Some((0.5, [0.5; 3])));
    }
    // All end, those over the limit with the reason. Those that stay: `hostile` of the simulation.
    for stream in &flood {
        let _ = stream.shutdown(Shutdown::Write);
    }
    let mut refused = 0;
    for stream in &mut flood {
        let bytes = rest(stream);
        if bytes == REFUSAL_503 {
            refused += 1;
        } else {
            assert!(bytes.is_empty() || bytes.len() == 188, "{}", bytes.len());
        }
    }
    assert!(refused > 0, "nobody was refused");
    lab::until("all are forgotten", || {
        amp.security.admission().lock().unwrap().pending() == 0
    });
    amp.await_audit("limits_hit", |_| true);
    amp.await_audit("handshake_failed", |_| true);
}

/// A device may open many sessions at once: only failures count.
#[test]
fn a_recorder_may_open_many_sessions() {
    let place = Place::new();
    let amp = place.side("amp", Policy::Required, &["rec"]);
    let outlet = lab::outlet(&amp.context, info("many"));
    let mut readers: Vec<_> = (0..60).map(|_| Reader::feed(&outlet, "rec", 100)).collect();
    for n in 0..10 {
        outlet.push_at(&[n as f32; 3], 1.0).unwrap();
    }
    for reader in &mut readers {
        for n in 0..10 {
            assert_eq!(reader.sample(), Some((1.0, [n as f32; 3])));
        }
    }
    drop(readers);
    lab::until("all are gone", || outlet.consumers().is_empty());
}

/// A device that is let in and then asks for the time as fast as it can has its own session only.
#[test]
fn a_flood_of_pings_keeps_nobody_waiting() {
    let place = Place::new();
    let amp = place.side("amp", Policy::Required, &["rec"]);
    let outlet = lab::outlet(&amp.context, info("pinged"));
    let mut flooding = Reader::feed(&outlet, "rec", 10);
    let mut flood = Vec::new();
    for _ in 0..PINGS {
        let sealed = flooding.session.sealer.seal_ping(local_clock(), &mut flood);
        sealed.unwrap();
    }
    let mut stream = flooding.stream.try_clone().unwrap();
    // More than the sockets hold: what is left says that the outlet is still at it.
    let flooder = std::thread::spawn(move || {
        stream.set_write_timeout(None).unwrap();
        stream.write_all(&flood)
    });
    // The next one begins when the outlet has begun with the pings.
    while flooding.pongs.is_empty() {
        assert!(flooding.step());
    }
    let mut other = Reader::feed(&outlet, "rec", 10);
    outlet.push_at(&[0.5_f32; 3], 0.5).unwrap();
    assert_eq!(other.sample(), Some((0.5, [0.5; 3])));
    assert!(!flooder.is_finished(), "served only after the flood");
    flooding.stream.shutdown(Shutdown::Both).unwrap();
    let _ = flooder.join().unwrap();
}

/// 27 bytes each.
const PINGS: usize = 1_500_000;
