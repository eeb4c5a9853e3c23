mod peers;

use std::net::IpAddr;

use super::*;
use crate::code::hash8;
use crate::observe::{
    Asked, ConfigSeen, Fact, FileSeen, HostAsked, Interface, LoopProbe, OtherSide, PortSeen,
    Program, SendError, Setting, SocketDrops, StreamAsked, Wave, Way, WayKind,
};

/// A machine on a network where all is well: one stream of another machine answers and is found.
pub(super) fn healthy() -> Observations {
    let amp = stream("Amp", "u1", "10.50.0.1");
    let probe = |port| LoopProbe {
        interface: "eth0".into(),
        group: address("224.0.0.1"),
        port,
        sent: 3,
        heard: 3,
        error: None,
    };
    let way = |to, kind, answers| Way {
        interface: (kind == WayKind::Group).then(|| "eth0".to_owned()),
        to: address(to),
        port: 16571,
        kind,
        sent: 3,
        answers,
        error: None,
    };
    Observations {
        asked: Asked {
            session: "default".into(),
            ..Asked::default()
        },
        config: Some(ConfigSeen::default()),
        security_error: Some(String::new()),
        clock_ppm: Some(12.0),
        interfaces: Some(vec![Interface {
            name: "eth0".into(),
            index: 2,
            is_up: true,
            has_carrier: Some(true),
            is_multicast: true,
            addresses: vec![(address("10.50.0.2"), 24)],
            ..Interface::default()
        }]),
        multicast_port: Some(PortSeen {
            port: 16571,
            ..PortSeen::default()
        }),
        drops: Some(Vec::new()),
        loopback: Some([16571, 16572, 16603, 40_000].map(probe).to_vec()),
        own_streams: Some(Vec::new()),
        wave: Some(Wave {
            waves: 3,
            ways: vec![
                way("239.255.172.215", WayKind::Group, 3),
                way("255.255.255.255", WayKind::Broadcast, 3),
                way("10.50.0.1", WayKind::Host, 3),
            ],
            streams: vec![amp.clone()],
        }),
        found: Some(vec![amp]),
        ..Observations::default()
    }
}

fn stream(name: &str, uid: &str, from: &str) -> StreamSeen {
    StreamSeen {
        uid: uid.into(),
        name: name.into(),
        stream_type: "EEG".into(),
        source_id: format!("{name}-1"),
        hostname: "amp-pc".into(),
        session: "default".into(),
        address: Some(address(from)),
        port: 16572,
        waves: 3,
        by_group: true,
        ..StreamSeen::default()
    }
}

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

pub(super) fn ids(seen: &Observations) -> Vec<String> {
    diagnose(seen)
        .findings
        .into_iter()
        .map(|it| it.id)
        .collect()
}

pub(super) fn notes(seen: &Observations) -> Vec<String> {
    diagnose(seen).notes.into_iter().map(|it| it.id).collect()
}

/// What makes a cause, and what makes others find nothing.
type Change = fn(&mut Observations);

fn nothing(seen: &mut Observations) {
    seen.found = Some(Vec::new());
    seen.wave = Some(Wave {
        streams: Vec::new(),
        ..seen.wave.take().unwrap_or_default()
    });
    for way in seen.wave.iter_mut().flat_map(|wave| &mut wave.ways) {
        way.answers = 0;
    }
}

fn own(seen: &mut Observations) {
    let own = StreamSeen {
        is_here: true,
        ..stream("Mine", "u9", "127.0.0.1")
    };
    seen.own_streams = Some(vec![own]);
}

/// With the symptom the cause is the finding; the cause alone is a note; the symptom alone is not explained.
#[track_caller]
fn check(id: &str, cause: Change, symptom: Change) {
    let mut seen = healthy();
    cause(&mut seen);
    let alone = seen.clone();
    symptom(&mut seen);
    assert_eq!(ids(&seen), [id], "{:?}", diagnose(&seen));
    assert_eq!(diagnose(&seen).unexplained, [], "{id}");
    assert_eq!(ids(&alone), [""; 0], "{id} without a symptom");
    assert_eq!(notes(&alone), [id]);
    let mut seen = healthy();
    symptom(&mut seen);
    assert!(!ids(&seen).contains(&id.to_owned()), "{id} without a cause");
}

/// It is a symptom itself.
#[track_caller]
pub(super) fn check_itself(id: &str, cause: Change) {
    let mut seen = healthy();
    cause(&mut seen);
    assert_eq!(ids(&seen), [id]);
}

fn closed(seen: &mut Observations, is_closed: fn(u16) -> bool) {
    for probe in seen
        .loopback
        .iter_mut()
        .flatten()
        .filter(|it| is_closed(it.port))
    {
        probe.heard = 0;
    }
}

fn config(seen: &mut Observations) -> &mut ConfigSeen {
    seen.config.get_or_insert_default()
}

fn file(path: &str, key: &str) -> FileSeen {
    FileSeen {
        path: path.into(),
        problem: "it has to be called lsl_api.cfg".into(),
        belongs: Some("/lab/lsl_api.cfg".into()),
        settings: vec![(key.into(), "{10.50.0.1}".into())],
        line: Some(3),
    }
}

#[test]
fn nothing_is_wrong_with_a_healthy_machine() {
    let diagnosis = diagnose(&healthy());
    assert_eq!(diagnosis, Diagnosis::default());
    assert_eq!(diagnose(&Observations::default()), Diagnosis::default());
    let mut seen = healthy();
    nothing(&mut seen);
    assert_eq!(diagnose(&seen).unexplained, [Symptom::Nothing]);
}

#[test]
fn causes_in_files() {
    check_itself("cfg.secure", |seen| {
        seen.security_error = Some("no key".into());
    });
    check(
        "cfg.rejected",
        |seen| config(seen).rejected.push(file("/lab/a", "x")),
        nothing,
    );
    check(
        "cfg.misnamed",
        |seen| {
            config(seen)
                .misnamed
                .push(file("/lab/a.txt", "lab.KnownPeers"));
        },
        nothing,
    );
    check(
        "cfg.hidden",
        |seen| {
            config(seen).in_use = Some("/lab/lsl_api.cfg".into());
            config(seen).hidden.push(file("/lab/b", "lab.KnownPeers"));
        },
        nothing,
    );
}

#[test]
fn a_file_that_decides_nothing_is_no_cause() {
    let mut seen = healthy();
    nothing(&mut seen);
    let harmless = FileSeen {
        settings: Vec::new(),
        ..file("/lab/a.txt", "x")
    };
    config(&mut seen).misnamed.push(harmless.clone());
    config(&mut seen).in_use = Some("/lab/b".into());
    config(&mut seen).hidden.push(harmless);
    assert_eq!((ids(&seen), notes(&seen)), (Vec::new(), Vec::new()));
}

/// Answers come by what all programs have by default, and the search as configured has none of them.
fn unfound_by_search(seen: &mut Observations) {
    seen.found = Some(Vec::new());
}

#[test]
fn settings_that_leave_answers_out() {
    for (id, key, default) in [
        ("cfg.limits", "multicast.ResolveScope", "site"),
        ("cfg.limits", "multicast.Interfaces", "{}"),
        ("cfg.limits", "ports.IPv6", "allow"),
        ("cfg.ports", "ports.MulticastPort", "16571"),
    ] {
        let mut seen = healthy();
        config(&mut seen).changed.push(Setting {
            key: key.into(),
            value: "other".into(),
            default: default.into(),
            origin: "/lab/lsl_api.cfg:2".into(),
        });
        assert_eq!(ids(&seen), [""; 0], "{key} harms nothing");
        unfound_by_search(&mut seen);
        assert_eq!(ids(&seen), [id], "{key}");
        let finding = diagnose(&seen).findings.remove(0);
        let command = finding.remedies[0].run[0].clone();
        let expected = match default {
            "{}" => format!("lsl config remove {key}"),
            _ => format!("lsl config set {key} {default}"),
        };
        assert_eq!(command, expected);
        // No answer: no evidence.
        nothing(&mut seen);
        assert_eq!(ids(&seen), [""; 0], "{key}");
    }
    let mut seen = healthy();
    unfound_by_search(&mut seen);
    assert_eq!(
        diagnose(&seen).unexplained,
        [Symptom::Nothing, Symptom::Half(1)]
    );
}

#[test]
fn causes_in_the_own_filter() {
    let range = |seen: &mut Observations| closed(seen, |port| port != 16571);
    check("fw.in", range, nothing);
    check("fw.in", |seen| closed(seen, |port| port == 16571), own);
    let refused = |seen: &mut Observations| {
        for probe in seen.loopback.iter_mut().flatten() {
            (probe.sent, probe.heard, probe.error) = (0, 0, Some(SendError::Refused));
        }
    };
    check("fw.out", refused, nothing);
    // Closed for answers alone: others find what is here. Closed for questions alone: it finds others.
    let mut seen = healthy();
    range(&mut seen);
    own(&mut seen);
    assert_eq!(ids(&seen), [""; 0]);
    let mut seen = healthy();
    closed(&mut seen, |port| port == 16571);
    nothing(&mut seen);
    assert_eq!(diagnose(&seen).unexplained, [Symptom::Nothing]);
}

#[test]
fn filters_of_containers_and_tunnels_do_not_matter() {
    for name in ["docker0", "tun0", "virbr0"] {
        let mut seen = healthy();
        nothing(&mut seen);
        let other = Interface {
            name: name.into(),
            kind: crate::observe::Kind::of_name(name),
            ..seen.interfaces.as_ref().unwrap()[0].clone()
        };
        seen.interfaces.as_mut().unwrap().push(other);
        let mut probes = seen.loopback.clone().unwrap();
        for probe in &mut probes {
            (probe.interface, probe.heard) = (name.into(), 0);
        }
        seen.loopback.as_mut().unwrap().extend(probes);
        assert_eq!(
            (ids(&seen), notes(&seen)),
            (Vec::new(), Vec::new()),
            "{name}"
        );
    }
}

#[test]
fn causes_on_this_machine() {
    let held = |seen: &mut Observations| {
        seen.multicast_port = Some(PortSeen {
            port: 16571,
            is_taken: true,
            holder: Some(Program {
                pid: 7,
                name: "old".into(),
            }),
        });
    };
    check("port.taken", held, own);
    let unplugged = |seen: &mut Observations| {
        for interface in seen.interfaces.iter_mut().flatten() {
            interface.has_carrier = Some(false);
        }
    };
    check("net.none", unplugged, nothing);
    check_itself("host.clock", |seen| seen.clock_ppm = Some(-1500.0));
    check_itself("udp.overrun", |seen| {
        seen.drops = Some(vec![SocketDrops {
            port: 16573,
            lost: 12,
            total: 12,
            program: None,
        }]);
    });
}

#[test]
fn causes_in_the_network() {
    let only_hosts = |seen: &mut Observations| {
        let wave = seen.wave.as_mut().unwrap();
        for way in wave.ways.iter_mut().filter(|it| it.kind != WayKind::Host) {
            way.answers = 0;
        }
        for stream in &mut wave.streams {
            stream.by_group = false;
        }
    };
    check("net.multicast", only_hosts, unfound_by_search);
    // That the own filter swallows answers explains as much.
    let mut seen = healthy();
    only_hosts(&mut seen);
    unfound_by_search(&mut seen);
    closed(&mut seen, |port| port != 16571);
    assert_eq!(ids(&seen), ["fw.in"]);
    seen.loopback = None;
    assert_eq!(ids(&seen), [""; 0]);
    let in_other = |seen: &mut Observations| {
        for stream in seen.wave.iter_mut().flat_map(|wave| &mut wave.streams) {
            stream.session = "lab2".into();
        }
    };
    let mut seen = healthy();
    in_other(&mut seen);
    assert_eq!(ids(&seen), [""; 0], "there are others here");
    unfound_by_search(&mut seen);
    assert_eq!(ids(&seen), ["session.other"]);
}

#[test]
fn near_misses() {
    let near = |field: &str, value: &str| {
        let mut seen = healthy();
        seen.asked.stream = Some(StreamAsked {
            text: format!("{field}={value}"),
            field: Some((field.into(), value.into())),
            found: false,
        });
        let findings = diagnose(&seen).findings;
        assert!(findings.iter().all(|it| it.certain != (value == "Bmp-1")));
        findings.into_iter().map(|it| it.id).collect::<Vec<_>>()
    };
    assert_eq!(near("type", "eeg"), ["query.miss"]);
    assert_eq!(near("name", "EEG"), ["query.miss"]);
    assert_eq!(near("name", " amp"), ["query.miss"]);
    assert_eq!(near("source_id", "Bmp-1"), ["query.miss"]);
    assert_eq!(near("source_id", "Amp-2"), [""; 0], "another device");
    assert_eq!(near("name", "Gaze"), [""; 0]);
    assert_eq!(near("type", "EOG"), [""; 0], "short words differ");
    // Streams of this machine need no network.
    let mut seen = healthy();
    seen.asked.stream = Some(StreamAsked {
        text: "type=eeg".into(),
        field: Some(("type".into(), "eeg".into())),
        found: false,
    });
    for interface in seen.interfaces.iter_mut().flatten() {
        interface.has_carrier = Some(false);
    }
    assert_eq!(ids(&seen), ["query.miss"]);
}

#[test]
fn a_filter_of_ipv6_alone_hides_nothing() {
    let mut seen = healthy();
    nothing(&mut seen);
    let mut probes = seen.loopback.clone().unwrap();
    for probe in &mut probes {
        (probe.group, probe.heard) = (address("ff02::1"), 0);
    }
    seen.loopback.as_mut().unwrap().extend(probes.clone());
    assert_eq!(ids(&seen), [""; 0]);
    // But where there is nothing else.
    seen.loopback = Some(probes);
    assert_eq!(ids(&seen), ["fw.in"]);
}

#[test]
fn a_refusal_of_ipv6_alone_hides_nothing() {
    let mut seen = healthy();
    nothing(&mut seen);
    let mut probes = seen.loopback.clone().unwrap();
    for probe in &mut probes {
        (probe.group, probe.sent, probe.heard) = (address("ff02::1"), 0, 0);
        probe.error = Some(SendError::Refused);
    }
    seen.loopback.as_mut().unwrap().extend(probes.clone());
    assert_eq!((ids(&seen), notes(&seen)), (Vec::new(), Vec::new()));
    // Where IPv4 is switched off, or is not there, it is all.
    let mut forced = seen.clone();
    config(&mut forced).changed.push(Setting {
        key: "ports.IPv6".into(),
        value: "force".into(),
        ..Setting::default()
    });
    assert_eq!(ids(&forced), ["fw.out"]);
    seen.loopback = Some(probes);
    seen.wave.as_mut().unwrap().ways.clear();
    assert_eq!(ids(&seen), ["fw.out"]);
}

/// A server may filter its public interface: that of the lab is open.
#[test]
fn one_closed_interface_of_two_is_a_note() {
    let both = |is_closed: fn(&str) -> bool| {
        let mut seen = healthy();
        let lab = Interface {
            name: "eth1".into(),
            index: 3,
            ..seen.interfaces.as_ref().unwrap()[0].clone()
        };
        seen.interfaces.as_mut().unwrap().push(lab);
        let mut probes = seen.loopback.clone().unwrap();
        for probe in &mut probes {
            probe.interface = "eth1".into();
        }
        seen.loopback.as_mut().unwrap().extend(probes);
        for probe in seen.loopback.iter_mut().flatten() {
            if is_closed(&probe.interface) {
                probe.heard = 0;
            }
        }
        own(&mut seen);
        seen
    };
    let mut seen = both(|name| name == "eth0");
    assert_eq!(
        (ids(&seen), notes(&seen)),
        (vec![], vec!["fw.in".to_owned()])
    );
    nothing(&mut seen);
    let diagnosis = diagnose(&seen);
    assert_eq!(diagnosis.unexplained, [Symptom::Nothing]);
    let note = &diagnosis.notes[0];
    assert!(note.text.contains("eth0") && !note.text.contains("eth1"));
    assert!(note.remedies.is_empty() && !note.certain);
    let mut seen = both(|_| true);
    nothing(&mut seen);
    assert_eq!(ids(&seen), ["fw.in"]);
    // A card without a cable is not open to anybody.
    let mut seen = both(|name| name == "eth0");
    nothing(&mut seen);
    seen.interfaces.as_mut().unwrap()[1].has_carrier = Some(false);
    assert_eq!(ids(&seen), ["fw.in"]);
}

#[test]
fn hosts_that_were_named_have_to_answer() {
    let mut seen = healthy();
    seen.asked.hosts.push(HostAsked {
        text: "amp-pc.local".into(),
        addresses: vec![address("10.50.0.1")],
    });
    assert_eq!(diagnose(&seen).unexplained, []);
    nothing(&mut seen);
    let dark = Symptom::Dark("amp-pc.local".into());
    assert_eq!(diagnose(&seen).unexplained, [Symptom::Nothing, dark]);
}

#[test]
fn what_was_named_and_not_asked_is_not_in_order() {
    let named = |addresses: Vec<IpAddr>| {
        let mut seen = healthy();
        seen.asked.hosts.push(HostAsked {
            text: "amp.lab".into(),
            addresses,
        });
        seen
    };
    let unasked = |what: &str| vec![Symptom::Unasked(what.into())];
    let seen = named(Vec::new());
    assert_eq!(diagnose(&seen).unexplained, unasked("amp.lab"));
    let mut seen = named(vec![address("192.0.2.7")]);
    (seen.wave, seen.found) = (None, None);
    assert_eq!(diagnose(&seen).unexplained, unasked("amp.lab"));
    // A cause of silence says nothing about what is there.
    closed(&mut seen, |_| true);
    assert_eq!(diagnose(&seen).unexplained, unasked("amp.lab"));
    let mut seen = healthy();
    (seen.wave, seen.found) = (None, None);
    seen.asked.stream = Some(StreamAsked {
        text: "Mine".into(),
        field: Some(("name".into(), "Mine".into())),
        found: false,
    });
    assert_eq!(diagnose(&seen).unexplained, unasked("Mine"));
    own(&mut seen);
    assert_eq!(diagnose(&seen).unexplained, []);
}

#[test]
fn a_name_from_the_network_is_no_command() {
    let mut seen = healthy();
    unfound_by_search(&mut seen);
    seen.wave.as_mut().unwrap().streams[0].session = "$(reboot)".into();
    let findings = diagnose(&seen).findings;
    assert_eq!(findings[0].id, "session.other");
    assert_eq!(findings[0].remedies[0].run, [""; 0]);
}

#[test]
fn what_the_other_side_tells_decides() {
    let check = |facts: &[Fact], network: &str, expected: &[&str]| {
        let mut seen = healthy();
        nothing(&mut seen);
        seen.asked.hosts.push(HostAsked {
            text: "amp.lab".into(),
            addresses: vec![address("10.50.0.1")],
        });
        seen.other = Some(OtherSide {
            facts: facts.iter().copied().collect(),
            network: hash8(network),
            ..OtherSide::default()
        });
        let found = diagnose(&seen).findings;
        assert!(found.iter().all(|it| it.certain), "{found:?}");
        assert_eq!(ids(&seen), expected, "{facts:?}");
    };
    let [asked, gateway, others] = [
        Fact::NeighboursAsked,
        Fact::GatewayAnswers,
        Fact::OthersAnswer,
    ];
    let [asked_filter, silent] = [Fact::LoopAsked, Fact::RangeSilentV4];
    let network = "10.50.0.0/24";
    check(&[asked, gateway], network, &["net.isolation"]);
    check(&[asked, gateway, others], network, &[]);
    check(&[gateway], network, &[]);
    check(&[asked, gateway], "10.51.0.0/24", &[]);
    check(&[asked_filter, silent], network, &["peer.fw"]);
    check(&[silent], network, &[]);
    check(&[Fact::UnicastRefused], network, &["peer.fw"]);
    check(&[asked_filter], network, &[]);
}
