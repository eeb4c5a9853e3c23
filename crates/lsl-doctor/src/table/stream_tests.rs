use super::tests::{check_itself, healthy, ids, notes};
use super::*;
use crate::observe::peers::{RelaySeen, RelayTrouble};
use crate::observe::{
    Barred, ClockAnswer, DescriptorsUsed, Fed, LibraryUsed, Opened, Place, Program, SocketDrops,
    StreamProbed, Verdict,
};

/// A stream of 100 Hz that is read for three seconds, in order.
fn probed(change: impl Fn(&mut StreamProbed, &mut Fed)) -> Observations {
    let mut fed = Fed {
        secs: 3.0,
        samples: 301,
        span_secs: 3.0,
        lags: vec![0.002; 3],
        stamp: Some(500.0),
        day: Some(1.795e9),
        clock: Some(ClockAnswer::Seconds(0.000_2)),
        ..Fed::default()
    };
    let mut stream = StreamProbed {
        uid: "u1".into(),
        name: "Amp".into(),
        hostname: "amp-pc".into(),
        address: "10.50.0.1:16572".into(),
        rate: 100.0,
        opened: Some(Opened::Yes),
        ..StreamProbed::default()
    };
    change(&mut stream, &mut fed);
    stream.fed = (stream.opened == Some(Opened::Yes)).then_some(fed);
    Observations {
        probed: Some(vec![stream]),
        ..healthy()
    }
}

/// A relay has no part in streams that came without it.
#[test]
fn a_relay_that_is_off_hides_no_trouble_of_streams() {
    let mut seen = probed(|it, fed| {
        it.rate = 200.0;
        fed.clock = Some(ClockAnswer::Silent);
    });
    seen.relays = Some(vec![RelaySeen {
        relay: "relay:16570".into(),
        streams: None,
        trouble: Some((RelayTrouble::Unreachable, "connection refused".into())),
    }]);
    assert_eq!(ids(&seen), ["relay.off", "stream.slow", "clock.none"]);
    // Such as are found nowhere may be those that it would tell of.
    (seen.probed, seen.found) = (None, Some(Vec::new()));
    seen.wave.as_mut().unwrap().streams.clear();
    assert_eq!(ids(&seen), ["relay.off"]);
    assert_eq!(diagnose(&seen).unexplained, []);
}

/// Each trouble, just there and just not there.
#[test]
fn what_comes_of_a_stream_is_judged() {
    type Change = fn(&mut StreamProbed, &mut Fed);
    let cases: &[(&str, Change)] = &[
        ("", |_, _| {}),
        ("stream.silent", |_, fed| {
            *fed = Fed {
                secs: 3.0,
                clock: fed.clock,
                ..Fed::default()
            }
        }),
        ("", |it, fed| {
            it.rate = 0.0;
            *fed = Fed {
                secs: 3.0,
                clock: fed.clock,
                ..Fed::default()
            };
        }),
        ("", |it, fed| {
            it.rate = 0.2;
            *fed = Fed {
                secs: 3.0,
                clock: fed.clock,
                ..Fed::default()
            };
        }),
        ("stream.slow", |_, fed| {
            (fed.samples, fed.jumps) = (150, 149);
        }),
        ("", |_, fed| fed.samples = 290),
        ("stream.gaps", |_, fed| (fed.samples, fed.jumps) = (270, 30)),
        ("", |_, fed| fed.jumps = 30),
        ("stream.gaps", |_, fed| fed.lost = 2),
        ("stream.old", |_, fed| fed.lags = vec![0.5, 1.4, 2.3]),
        ("", |_, fed| fed.lags = vec![1.2, 1.2, 1.2]),
        ("", |_, fed| fed.lags = vec![0.1, 0.4, 0.9]),
        ("clock.alien", |_, fed| {
            fed.stamp = fed.day;
            fed.lags = vec![-1.7e9; 3];
        }),
        ("clock.alien", |_, fed| fed.lags = vec![-0.020; 3]),
        ("", |_, fed| fed.lags = vec![-0.003; 3]),
        // Another clock has other seconds, too.
        ("clock.alien", |_, fed| {
            fed.lags = vec![3000.0; 3];
            fed.span_secs = 3000.0;
        }),
        ("clock.none", |_, fed| {
            fed.clock = Some(ClockAnswer::Silent);
            fed.lags.clear();
        }),
        ("clock.coarse", |_, fed| {
            fed.clock = Some(ClockAnswer::Seconds(0.011));
        }),
        ("", |_, fed| fed.clock = Some(ClockAnswer::Seconds(0.009))),
    ];
    for (number, (id, change)) in cases.iter().enumerate() {
        let seen = probed(change);
        let expected: &[&str] = if id.is_empty() { &[] } else { &[id] };
        assert_eq!(ids(&seen), expected, "case {number}");
        assert_eq!(notes(&seen), [""; 0], "case {number}");
        assert_eq!(diagnose(&seen).unexplained, []);
    }
}

#[test]
fn streams_that_do_not_open_want_a_cause() {
    for (opened, trouble) in [
        (Opened::Closed, Trouble::Closed),
        (Opened::Unreachable, Trouble::Unreachable),
        (Opened::Stalled, Trouble::Stalled),
    ] {
        let seen = probed(|it, _| it.opened = Some(opened));
        let diagnosis = diagnose(&seen);
        assert_eq!(diagnosis.unexplained, [Symptom::Poor(trouble, 1)]);
        assert_eq!(diagnosis.findings, []);
    }
    // It has just ended.
    let seen = probed(|it, _| it.opened = Some(Opened::Refused));
    assert_eq!(diagnose(&seen), Diagnosis::default());
    // What hides streams is no cause for it.
    let mut seen = probed(|it, _| it.opened = Some(Opened::Closed));
    for probe in seen.loopback.iter_mut().flatten() {
        probe.heard = 0;
    }
    assert_eq!(
        diagnose(&seen).unexplained,
        [Symptom::Poor(Trouble::Closed, 1)]
    );
}

#[test]
fn encryption_bars_by_who_refuses() {
    for (by, has_key, expected) in [
        (Verdict::RefusedHere, false, "trust.key"),
        (Verdict::RefusedHere, true, "trust.here"),
        (Verdict::RefusedThere, true, "trust.there"),
        (Verdict::Failed, true, "trust.session"),
        (Verdict::Plaintext, true, "trust.plaintext"),
    ] {
        let seen = probed(|it, _| {
            it.opened = Some(Opened::Barred);
            it.barred = Some(Barred {
                by,
                has_key,
                text: "why".into(),
                command: Some((Place::There, "lsl trust add".into())),
            });
        });
        assert_eq!(ids(&seen), [expected]);
        let finding = diagnose(&seen).findings.remove(0);
        assert_eq!(
            (finding.level, finding.seen),
            (Level::Fault, vec!["why".to_owned()])
        );
        let run = &finding.remedies[0].run;
        assert_eq!(run.is_empty(), by == Verdict::Plaintext);
    }
}

/// The streams of a machine have one key: one command trusts them all.
#[test]
fn a_machine_is_trusted_once() {
    let mut seen = probed(|it, _| {
        it.opened = Some(Opened::Barred);
        it.barred = Some(Barred {
            by: Verdict::RefusedHere,
            has_key: true,
            text: "here".into(),
            command: Some((Place::Here, "lsl trust add".into())),
        });
    });
    let all = seen.probed.as_mut().unwrap();
    let mut others = [all[0].clone(), all[0].clone()];
    others[1].hostname = "other-pc".into();
    all.extend(others);
    let finding = diagnose(&seen).findings.remove(0);
    assert_eq!((finding.streams, finding.remedies.len()), (3, 2));
}

#[test]
fn programs_near_a_limit_or_old() {
    let program = || Program {
        pid: 7,
        name: "old".into(),
    };
    let descriptors = |used| {
        let mut seen = healthy();
        seen.descriptors = Some(vec![DescriptorsUsed {
            program: program(),
            used,
            allowed: 1000,
        }]);
        ids(&seen)
    };
    assert_eq!(descriptors(801), ["host.fds"]);
    assert_eq!(descriptors(800), [""; 0]);
    let library = |version: &str, streams| {
        let mut seen = healthy();
        seen.libraries = Some(vec![LibraryUsed {
            program: program(),
            version: version.into(),
            streams,
        }]);
        ids(&seen)
    };
    assert_eq!(library("1.17.7", 2), ["lib.old"]);
    assert_eq!(library("1.17.7", 1), [""; 0]);
    assert_eq!(library("1.18.0", 2), [""; 0]);
    assert_eq!(library("new", 2), [""; 0]);
}

#[test]
fn risks_of_streams() {
    let twice = |seen: &mut Observations, uid: &str, host: &str| {
        let mut other = seen.wave.as_ref().unwrap().streams[0].clone();
        (other.uid, other.hostname) = (uid.into(), host.into());
        seen.wave.as_mut().unwrap().streams.push(other.clone());
        seen.found.as_mut().unwrap().push(other);
    };
    let mut seen = healthy();
    twice(&mut seen, "u2", "other-pc");
    assert_eq!(ids(&seen), ["stream.duplicate"]);
    let mut seen = healthy();
    twice(&mut seen, "u1", "other-pc");
    assert_eq!(ids(&seen), ["stream.cloned"]);
    check_itself("stream.fades", |seen| {
        seen.wave.as_mut().unwrap().streams[0].waves = 1;
    });
    // What a program lost before matters if answers are missing.
    let lost_before = |seen: &mut Observations| {
        seen.drops = Some(vec![SocketDrops {
            port: 16573,
            lost: 0,
            total: 101,
            program: None,
        }]);
    };
    let mut seen = healthy();
    lost_before(&mut seen);
    assert!(ids(&seen).is_empty() && notes(&seen).is_empty());
    seen.wave.as_mut().unwrap().streams[0].waves = 1;
    assert_eq!(ids(&seen), ["udp.overrun"]);
}
