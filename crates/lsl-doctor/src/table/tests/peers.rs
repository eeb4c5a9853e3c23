use super::*;
use crate::observe::peers::{
    BoundSeen, Mtu, NeighbourSeen, PeerSeen, Ping, PortAsked, PortState, RouteSeen, WireSeen,
};
use crate::observe::{BlockedProgram, Firewall, Kind, Os, Profile, WindowsFirewall};

fn asked(port: u16, state: PortState, is_known: bool) -> PortAsked {
    PortAsked {
        port,
        state,
        is_known,
    }
}

/// A stream at 16572, its clock at 16573; the rest of the range refuses.
fn peer() -> PeerSeen {
    let refused = (16573..=16603).map(|port| asked(port, PortState::Refused, false));
    PeerSeen {
        text: "10.50.0.1".into(),
        is_named: true,
        address: Some(address("10.50.0.1")),
        on_link: Some("eth0".into()),
        route: Some(RouteSeen {
            interface: Some("eth0".into()),
            ..RouteSeen::default()
        }),
        arp: Some(true),
        udp: Some(vec![
            asked(16571, PortState::Open, true),
            asked(16573, PortState::Open, true),
        ]),
        tcp: Some(
            std::iter::once(asked(16572, PortState::Open, true))
                .chain(refused)
                .collect(),
        ),
        ping: Some(Ping {
            sent: 30,
            lost: 1,
            p50_ms: 0.3,
            p75_ms: 0.5,
            p95_ms: 70.0,
        }),
        mtu: Some(Mtu {
            passes: Some(1500),
            stalls: Some(false),
            ..Mtu::default()
        }),
        ..PeerSeen::default()
    }
}

fn neighbour(last: u8, is_gateway: bool, answers: bool) -> NeighbourSeen {
    NeighbourSeen {
        address: address(&format!("10.50.0.{last}")),
        interface: "eth0".into(),
        is_gateway,
        answers,
    }
}

fn with_peer() -> Observations {
    let mut seen = healthy();
    seen.asked.hosts.push(HostAsked {
        text: "10.50.0.1".into(),
        addresses: vec![address("10.50.0.1")],
    });
    seen.container = Some(false);
    seen.neighbours = Some(vec![neighbour(254, true, true), neighbour(3, false, true)]);
    seen.peers = Some(vec![peer()]);
    seen
}

fn first(seen: &mut Observations) -> &mut PeerSeen {
    &mut seen.peers.as_mut().unwrap()[0]
}

fn say(all: &mut Option<Vec<PortAsked>>, state: PortState) {
    for port in all.iter_mut().flatten() {
        port.state = state;
    }
}

/// Nothing of it answers, and nothing else is found.
fn dark(seen: &mut Observations, tcp: PortState) {
    nothing(seen);
    let peer = first(seen);
    say(&mut peer.udp, PortState::Silent);
    say(&mut peer.tcp, tcp);
    (peer.ping, peer.mtu) = (None, None);
}

/// It holds with the change, and no more once one more thing is as it should be.
#[track_caller]
fn check_peer(id: &str, cause: Change, relief: Change) {
    let mut seen = with_peer();
    cause(&mut seen);
    let diagnosis = diagnose(&seen);
    assert_eq!(ids(&seen), [id], "{diagnosis:?}");
    assert_eq!(diagnosis.unexplained, [], "{id}");
    relief(&mut seen);
    assert!(!ids(&seen).contains(&id.to_owned()), "{id} without a cause");
}

#[test]
fn a_machine_in_order_is_no_finding() {
    assert_eq!(diagnose(&with_peer()), Diagnosis::default());
}

#[test]
fn machines_that_say_nothing() {
    let silent: Change = |seen| dark(seen, PortState::Silent);
    check_peer("peer.fw", silent, |seen| first(seen).arp = None);
    check_peer(
        "peer.idle",
        |seen| dark(seen, PortState::Refused),
        |seen| first(seen).tcp.as_mut().unwrap()[3].state = PortState::Silent,
    );
    check_peer(
        "peer.off",
        |seen| {
            dark(seen, PortState::Silent);
            first(seen).arp = Some(false);
        },
        |seen| seen.neighbours = None,
    );
    check_peer(
        "net.isolation",
        |seen| {
            dark(seen, PortState::Silent);
            first(seen).arp = Some(false);
            seen.neighbours.as_mut().unwrap()[1].answers = false;
        },
        |seen| seen.neighbours.as_mut().unwrap()[0].answers = false,
    );
    // Behind routers.
    check_peer(
        "peer.off",
        |seen| {
            dark(seen, PortState::Unreachable);
            let peer = first(seen);
            (peer.on_link, peer.arp) = (None, None);
        },
        |seen| first(seen).tcp = None,
    );
    check_peer(
        "net.subnet",
        |seen| {
            dark(seen, PortState::Unreachable);
            let peer = first(seen);
            (peer.on_link, peer.arp) = (None, None);
            peer.wire = Some(WireSeen {
                interface: "eth0".into(),
                free: Some(address("10.50.0.249")),
            });
        },
        |seen| first(seen).wire = None,
    );
}

#[test]
fn machines_that_answer_by_half() {
    check_peer(
        "peer.fw-udp",
        |seen| {
            unfound_by_search(seen);
            say(&mut first(seen).udp, PortState::Silent);
            first(seen).ping = None;
        },
        |seen| first(seen).tcp = None,
    );
    check_peer(
        "peer.fw-udp",
        |seen| first(seen).udp.as_mut().unwrap()[1].state = PortState::Silent,
        |seen| first(seen).udp.as_mut().unwrap()[1].is_known = false,
    );
    check_peer(
        "peer.fw-tcp",
        |seen| say(&mut first(seen).tcp, PortState::Silent),
        |seen| first(seen).udp = None,
    );
    check_peer(
        "fw.program",
        |seen| {
            let tcp = first(seen).tcp.as_mut().unwrap();
            tcp[4].state = PortState::Silent;
        },
        |seen| first(seen).tcp.as_mut().unwrap()[4].state = PortState::Refused,
    );
    check_peer(
        "port.beyond",
        |seen| {
            let tcp = first(seen).tcp.as_mut().unwrap();
            tcp.push(asked(40_001, PortState::Silent, true));
        },
        |seen| first(seen).tcp.as_mut().unwrap()[32].state = PortState::Open,
    );
}

#[test]
fn ways_that_do_not_carry() {
    let tunnelled: Change = |seen| {
        let mut tunnel = seen.interfaces.as_ref().unwrap()[0].clone();
        (tunnel.name, tunnel.kind) = ("tun0".into(), Kind::Tunnel);
        tunnel.addresses = vec![(address("10.8.0.2"), 24)];
        seen.interfaces.as_mut().unwrap().push(tunnel);
        let peer = first(seen);
        peer.route.as_mut().unwrap().interface = Some("tun0".into());
        say(&mut peer.udp, PortState::Silent);
        say(&mut peer.tcp, PortState::Silent);
        (peer.ping, peer.mtu) = (None, None);
        peer.bound = Some(BoundSeen {
            interface: "eth0".into(),
            udp: Some(PortState::Open),
            tcp: Some(PortState::Open),
        });
    };
    check_peer("route.vpn", tunnelled, |seen| first(seen).bound = None);
    for (value, level) in [(None, Level::Risk), (Some("0"), Level::Fault)] {
        let mut seen = with_peer();
        tunnelled(&mut seen);
        let changed = value.map(|value| Setting {
            key: "lab.SelfHealing".into(),
            value: value.into(),
            ..Setting::default()
        });
        config(&mut seen).changed.extend(changed);
        let found = diagnose(&seen).findings;
        assert_eq!((&*found[0].id, found[0].level), ("route.vpn", level));
    }
    check_peer(
        "path.mtu",
        |seen| {
            first(seen).mtu = Some(Mtu {
                passes: Some(1100),
                vanishes: Some(1280),
                is_told: false,
                stalls: Some(true),
            });
        },
        // A tunnel whose connections know how short packets have to be.
        |seen| first(seen).mtu.as_mut().unwrap().stalls = Some(false),
    );
    let ping = |seen: &mut Observations| *first(seen).ping.as_mut().unwrap();
    let mut seen = with_peer();
    (seen.peers.as_mut().unwrap()[0].ping) = Some(Ping {
        sent: 100,
        lost: 7,
        ..ping(&mut seen)
    });
    assert_eq!(ids(&seen), ["path.loss"]);
    first(&mut seen).ping.as_mut().unwrap().lost = 6;
    assert_eq!(ids(&seen), [""; 0]);
    first(&mut seen).ping.as_mut().unwrap().p75_ms = 51.0;
    assert_eq!(ids(&seen), ["path.slow"]);
}

#[test]
fn containers_hide_behind_their_host() {
    let contained: Change = |seen| {
        unfound_by_search(seen);
        for way in &mut seen.wave.as_mut().unwrap().ways {
            way.answers = u32::from(way.kind == WayKind::Host);
        }
        seen.interfaces.as_mut().unwrap()[0].addresses = vec![(address("172.17.0.2"), 16)];
        seen.neighbours.as_mut().unwrap()[0].address = address("172.17.0.1");
        first(seen).on_link = None;
    };
    check_peer("nat", contained, |seen| seen.container = None);
    // The network of a lab may be numbered so: others of it answer to groups.
    check_peer("nat", contained, |seen| {
        seen.wave.as_mut().unwrap().ways[0].answers = 1;
    });
}

/// Windows says nothing of ports that nobody has, and filters may open only those in use.
#[test]
fn ports_that_nobody_has_may_be_silent() {
    for refused in [0, 1] {
        let mut seen = with_peer();
        let tcp = first(&mut seen).tcp.as_mut().unwrap();
        for port in tcp.iter_mut().skip(1 + refused) {
            port.state = PortState::Silent;
        }
        assert_eq!(diagnose(&seen), Diagnosis::default(), "{refused}");
        // A stream that does not open is another matter.
        first(&mut seen).tcp.as_mut().unwrap()[2 + refused].is_known = true;
        assert_eq!(ids(&seen), ["fw.program"]);
    }
}

/// What concerns one machine explains nothing of another.
#[test]
fn findings_are_of_their_machine() {
    let mut seen = with_peer();
    seen.asked.hosts.push(HostAsked {
        text: "10.50.0.7".into(),
        addresses: vec![address("10.50.0.7")],
    });
    let mut other = peer();
    (other.text, other.address) = ("10.50.0.7".into(), Some(address("10.50.0.7")));
    say(&mut other.udp, PortState::Silent);
    say(&mut other.tcp, PortState::Refused);
    other.arp = None;
    seen.peers.as_mut().unwrap().push(other);
    say(&mut first(&mut seen).tcp, PortState::Silent);
    assert_eq!(ids(&seen), ["peer.fw-tcp", "peer.idle"]);
    let hosts: Vec<_> = diagnose(&seen)
        .findings
        .into_iter()
        .map(|it| it.subject)
        .collect();
    assert_eq!(hosts, ["10.50.0.1", "10.50.0.7"]);
}

#[test]
fn what_windows_says_counts_where_it_holds_in_every_network() {
    use Profile::{Private, Public};
    let machine = |networks: &[Profile], blocked: &[Profile], refused: &[Profile]| {
        let set = |all: &[Profile]| all.iter().copied().collect();
        let program = BlockedProgram {
            program: Program {
                pid: 7,
                name: "python.exe".into(),
            },
            app: r"C:\it's\python.exe".into(),
            rule: "python.exe".into(),
            profiles: set(blocked),
            is_self: false,
            is_tcp_alone: false,
            is_of_policy: false,
        };
        let windows = WindowsFirewall {
            networks: set(networks),
            filtered: set(&[Private, Public]),
            answers_refused: set(refused),
            blocked: (!blocked.is_empty())
                .then_some(program)
                .into_iter()
                .collect(),
        };
        Observations {
            os: Os::Windows,
            firewall: Some(Firewall {
                windows: Some(windows),
                ..Firewall::default()
            }),
            ..healthy()
        }
    };
    let check = |seen: &Observations, found: &[&str], noted: &[&str]| {
        assert_eq!(
            (ids(seen), notes(seen)),
            (
                found.iter().map(|it| (*it).into()).collect(),
                noted.iter().map(|it| (*it).into()).collect()
            )
        );
    };
    check(&machine(&[Private], &[], &[]), &[], &[]);
    let mut blocked = machine(&[Private], &[Private, Public], &[]);
    check(&blocked, &["fw.program"], &[]);
    let found = diagnose(&blocked).findings.remove(0);
    assert_eq!(found.level, Level::Risk);
    let command = &found.remedies[0].run[0];
    assert!(
        command.contains(r"-Program 'C:\it''s\python.exe' |"),
        "{command}"
    );
    // What this program does not find has another cause.
    nothing(&mut blocked);
    assert_eq!(diagnose(&blocked).unexplained, [Symptom::Nothing]);
    let own = |is_tcp_alone, change: Change| {
        let mut seen = machine(&[Private], &[Private], &[]);
        let windows = seen.firewall.as_mut().unwrap().windows.as_mut().unwrap();
        let it = &mut windows.blocked[0];
        (it.is_self, it.is_tcp_alone) = (true, is_tcp_alone);
        change(&mut seen);
        seen
    };
    check(&own(false, |_| {}), &[], &["fw.program"]);
    check(&own(true, nothing), &[], &["fw.program"]);
    let own = own(false, nothing);
    check(&own, &["fw.program"], &[]);
    assert_eq!(diagnose(&own).findings[0].level, Level::Fault);
    for networks in [&[Private, Public][..], &[]] {
        check(&machine(networks, &[Public], &[]), &[], &["fw.program"]);
    }
    let mut refused = machine(&[Private], &[], &[Private]);
    check(&refused, &[], &["fw.reply"]);
    nothing(&mut refused);
    check(&refused, &["fw.reply"], &[]);
}
