use std::net::Ipv4Addr;

use lsl_proto::wire::timedata::{TimeReply, TimeRequest};

use super::*;
use crate::drive_discovery::network_config::NetworkConfig;

/// The thread of the sockets is busy when a clock probe comes: the reply is late, the times in it are
/// right. Spec: lsl-protocol §5.
#[test]
fn a_busy_thread_does_not_shift_the_time_of_a_clock_probe() {
    let network = Arc::new(NetworkConfig::new(&lsl_proto::config::Config::loopback()));
    let registry = Service::new(network, 10, SourcePolicy::default(), None, Arc::default());
    let announcement = registry.open().unwrap();
    let probe = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = announcement.service_ports().v4;
    probe.connect((Ipv4Addr::LOCALHOST, port)).unwrap();
    probe
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    let ask = |wave_id| {
        // As many as there may be threads.
        for _ in 0..2 {
            let busy = async { std::thread::sleep(Duration::from_millis(20)) };
            runtime::spawn(busy).unwrap();
        }
        let t0 = local_clock();
        probe.send(&TimeRequest { wave_id, t0 }.to_bytes()).unwrap();
        let sent = local_clock();
        let mut buffer = [0; 256];
        let length = probe.recv(&mut buffer).unwrap();
        let reply = TimeReply::parse(&buffer[..length]).unwrap();
        assert!(reply.t1 >= t0 - 1e-4, "{} is before {t0}", reply.t1);
        assert!(reply.t2 >= reply.t1 && reply.t2 <= local_clock());
        reply.t1 <= sent + 1e-4
    };
    // The kernel may need a moment to begin with stamps.
    assert!((0..50).any(ask), "the wait for the thread counts");
    // Nor can a thread that is put to sleep while it reads the clocks tell.
    let right = (50..60).filter(|&wave_id| ask(wave_id)).count();
    assert!(
        right > 5,
        "the wait for the thread counts, but {right} times of 10"
    );
}
