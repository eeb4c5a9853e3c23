//! Floods of hostile discovery queries against an outlet. The work that they get is counted in
//! `discovery/answers/tests.rs` of lsl-proto, how late samples are by `benches/src/bin/flood.rs`.

use std::net::{Ipv4Addr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use lsl_core::{Context, Outlet, local_clock};
use lsl_proto::wire::timedata::{TimeReply, TimeRequest};

use super::peer::Peer;
use super::{assert_serves, info};
use crate::lab::{self, SOON};

const STREAMS: usize = 16;

/// Sends one after the other until told to stop.
fn attack(hosts: u8, port: u16, stop: &AtomicBool) {
    let sockets: Vec<UdpSocket> = (0..hosts)
        .map(|n| Ipv4Addr::new(127, 0, 0, 2 + n % 253))
        .map(|host| UdpSocket::bind((host, 0)).expect("loopback is a network"))
        .collect();
    for (number, socket) in sockets.iter().cycle().enumerate() {
        if stop.load(Ordering::Acquire) {
            return;
        }
        let query =
            format!("//*[//*[//*[starts-with({number} div 7,'x') or starts-with(1 div 3,'y')]]]");
        let own = socket.local_addr().expect("bound").port();
        let datagram = format!("LSL:shortinfo\r\n{query}\r\n{own} {number}\r\n");
        let _ = socket.send_to(datagram.as_bytes(), (Ipv4Addr::LOCALHOST, port));
        thread::sleep(Duration::from_millis(1));
    }
}

/// Whether an honest clock probe, resolve and TCP query are answered, the first with the time it came.
fn assert_answers(context: &Context, outlet: &Outlet) {
    let probe = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("binds");
    let port = outlet.info().v4_service_port();
    probe
        .connect((Ipv4Addr::LOCALHOST, port))
        .expect("connects");
    probe.set_read_timeout(Some(SOON)).expect("socket option");
    for wave_id in 0..20 {
        let t0 = local_clock();
        let request = TimeRequest { wave_id, t0 };
        probe.send(&request.to_bytes()).expect("sends");
        let sent = local_clock();
        let mut buffer = [0; 256];
        let length = probe.recv(&mut buffer).expect("a reply");
        let reply = TimeReply::parse(&buffer[..length]).expect("a clock reply");
        assert_eq!(reply.wave_id, wave_id);
        // Over loopback a datagram has arrived when it was sent; two clocks are read to say when that was.
        // The system's first stamps may be missing.
        if cfg!(target_os = "linux") && wave_id >= 10 {
            let shift = reply.t1 - sent;
            assert!(reply.t1 >= t0 - 1e-4 && shift <= 1e-4, "{shift} s");
        }
    }
    lab::find(context, "flood-0");
    let mut peer = Peer::connect(outlet);
    peer.send(b"LSL:shortinfo\r\nname='flood-0'\r\n");
    assert!(peer.ending().bytes.starts_with(b"<?xml"));
    let mut hostile = Peer::connect(outlet);
    hostile.send(b"LSL:shortinfo\r\n//*[//*[//*[starts-with(1 div 7,'x')]]]\r\n");
    assert_eq!(hostile.ending().bytes, b"");
    assert_serves(context, outlet);
}

#[test]
fn a_flood_of_costly_queries_changes_nothing() {
    let context = lab::context();
    let outlets: Vec<Outlet> = (0..STREAMS)
        .map(|number| {
            let mut described = info(&format!("flood-{number}"));
            let mut channels = described.desc_mut().into_child("channels");
            for label in 0..64 {
                channels
                    .append_child("channel")
                    .set("label", format!("C{label}"));
            }
            lab::outlet(&context, described)
        })
        .collect();
    let port = outlets[0].info().v4_service_port();
    for hosts in [1, 254] {
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| attack(hosts, port, &stop));
            // Ends the attack also where an assertion fails.
            let _end = Stop(&stop);
            thread::sleep(Duration::from_millis(200));
            assert_answers(&context, &outlets[0]);
        });
    }
}

struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}
