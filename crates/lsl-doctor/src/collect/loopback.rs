//! `loop`: the own filter, asked by datagrams to groups that stay on this machine. Spec: doctor §1, F2
//!
//! A datagram to a group whose time to live is 0 comes back through the host's own input filter as if it had
//! arrived by the interface, and is never on the wire. Only tried on Linux: elsewhere nobody concludes from it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::thread;
use std::time::Duration;

use lsl_core::local_clock;
use lsl_proto::config::MulticastGroup;
use socket2::Socket;

use super::socket::{drain, join, leave_by, open, why};
use crate::observe::{Interface, LoopProbe, Observations, PortsInUse};
use crate::table::filters::relevant;

/// Sends to groups that every machine has joined anyway, and to those of LSL if `may_join`: joining is told to
/// switches. `None` where it is no evidence.
pub(super) fn probe(seen: &Observations, may_join: bool, patience: f64) -> Option<Vec<LoopProbe>> {
    if !cfg!(target_os = "linux") || seen.interfaces.is_none() {
        return None;
    }
    let interfaces: Vec<&Interface> = relevant(seen)
        .into_iter()
        .filter(|it| it.is_multicast)
        .take(MOST_INTERFACES)
        .collect();
    let nonce = lsl_core::random_uid().ok()?;
    let mut probes = Vec::new();
    let mut receivers: Vec<UdpSocket> = Vec::new();
    let mut senders: Vec<(usize, Socket)> = Vec::new();
    for is_v4 in [true, false] {
        let groups = groups(is_v4, may_join);
        let usable = |it: &&&Interface| {
            it.addresses
                .iter()
                .any(|(address, _)| address.is_ipv4() == is_v4)
        };
        let usable: Vec<&&Interface> = interfaces.iter().filter(usable).collect();
        if usable.is_empty() {
            continue;
        }
        for receiver in listen(is_v4, seen.asked.ports) {
            let Some(port) = receiver
                .local_addr()
                .ok()
                .and_then(|it| it.as_socket())
                .map(|it| it.port())
            else {
                continue;
            };
            for interface in &usable {
                for group in &groups {
                    let _ = join(&receiver, *group, interface);
                    let sender = open(is_v4, 0, false);
                    let sender =
                        sender.and_then(|it| leave_by(&it, is_v4, interface, 0).map(|()| it));
                    let Ok(sender) = sender else {
                        continue;
                    };
                    senders.push((probes.len(), sender));
                    probes.push(LoopProbe {
                        interface: interface.name.clone(),
                        group: *group,
                        port,
                        sent: 0,
                        heard: 0,
                        error: None,
                    });
                }
            }
            receivers.push(receiver.into());
        }
    }
    let send = |probes: &mut Vec<LoopProbe>| {
        for (index, sender) in &senders {
            let Some(probe) = probes.get_mut(*index) else {
                continue;
            };
            let text = format!("{COMMAND}{nonce} {index}\r\n");
            match sender.send_to(
                text.as_bytes(),
                &SocketAddr::new(probe.group, probe.port).into(),
            ) {
                Ok(_) => probe.sent += 1,
                Err(error) => probe.error = Some(why(&error)),
            }
        }
    };
    for _ in 0..COPIES {
        send(&mut probes);
        thread::sleep(Duration::from_millis(PAUSE_MS));
    }
    let deadline = local_clock() + PATIENCE_SECS * patience;
    let is_waiting = |probes: &[LoopProbe]| probes.iter().any(|it| it.heard < it.sent);
    while is_waiting(&probes) && local_clock() < deadline {
        for receiver in &receivers {
            drain(receiver, |datagram, _| {
                if let Some(probe) =
                    index_of(datagram, &nonce).and_then(|index| probes.get_mut(index))
                {
                    // Each socket that shares the port has its copy.
                    probe.heard = (probe.heard + 1).min(probe.sent);
                }
            });
        }
    }
    Some(probes)
}

/// Sockets at the multicast port, at the first and the last free port of the range, and at any port.
fn listen(is_v4: bool, ports: PortsInUse) -> Vec<Socket> {
    let free = |mut range: Box<dyn Iterator<Item = u16>>| {
        range.find_map(|port| open(is_v4, port, false).ok())
    };
    let first = free(Box::new(ports.base..=ports.last()));
    let last = free(Box::new((ports.base..=ports.last()).rev()));
    let multicast = (ports.multicast != 0).then(|| open(is_v4, ports.multicast, true).ok());
    [multicast.flatten(), first, last, open(is_v4, 0, false).ok()]
        .into_iter()
        .flatten()
        .collect()
}

fn groups(is_v4: bool, may_join: bool) -> Vec<IpAddr> {
    // All machines are in these, and switches are told nothing.
    let everybody: IpAddr = if is_v4 {
        Ipv4Addr::new(224, 0, 0, 1).into()
    } else {
        Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1).into()
    };
    let site: IpAddr = if is_v4 {
        Ipv4Addr::new(239, 255, 172, 215).into()
    } else {
        MulticastGroup::default().with_prefix(0xff05).into()
    };
    if may_join {
        vec![everybody, site]
    } else {
        vec![everybody]
    }
}

/// Returns the number in a datagram of this run.
fn index_of(datagram: &[u8], nonce: &str) -> Option<usize> {
    let text = std::str::from_utf8(datagram).ok()?.strip_prefix(COMMAND)?;
    text.strip_prefix(nonce)?.trim().parse().ok()
}

/// First line of a datagram; nobody answers it.
const COMMAND: &str = "LSL:doctor/1\r\n";
const COPIES: u32 = 3;
const PAUSE_MS: u64 = 20;
const PATIENCE_SECS: f64 = 0.3;
const MOST_INTERFACES: usize = 8;
