use std::sync::Arc;

use lsl_secure::connection::{Answer, Connection, Event, Question};
use lsl_secure::{
    Descriptor, Local, OsRandom, SecretKey, Suites, TIME_PACKET_LEN, TimeKeys, TimeResponder,
};

use super::*;

/// Of the outlet's clock against ours.
const OFFSET: f64 = 100.0;
const RTT: f64 = 0.002;

fn clock() -> Clock {
    let limits = ClockLimits {
        max_rtt_secs: 0.128,
        warn_secs: 0.005,
    };
    Clock::new(crate::config::Config::loopback().tuning(), limits, 7)
}

/// The clock keys of a session, of both ends.
fn keys() -> (TimeProber, TimeResponder) {
    let local = Arc::new(Local {
        key: SecretKey::from_seed(&[7; 32]),
        psk: None,
        suites: Suites::ChaCha20Only,
        pad_to: 0,
    });
    let started = Connection::initiator(Arc::clone(&local), b"r", 0.0, &mut OsRandom);
    let descriptor = Descriptor {
        uid: b"u".to_vec(),
        channel_count: 1,
        channel_format: 1,
        created_at: 1.0,
        ..Descriptor::default()
    };
    let mut ends = [
        started.unwrap(),
        Connection::responder(local, descriptor.into(), 0.0),
    ];
    let mut waiting = [Vec::new(), Vec::new()];
    for turn in 0..16 {
        let (from, to) = (turn % 2, 1 - turn % 2);
        let write = |sent: &[u8]| {
            waiting[to].extend_from_slice(sent);
            Ok(sent.len())
        };
        ends[from].flush(|| 0.0, write).unwrap();
        if turn == 0 {
            // The preamble is read before there is a session.
            waiting[to].drain(..14);
        }
        loop {
            while let Some(event) = ends[to].poll_event() {
                let answer = match event {
                    Event::Question(Question::Turn) => Answer::Turn(Ok(())),
                    Event::Question(Question::Work(work)) => Answer::Work(work.run(&mut OsRandom)),
                    Event::Question(Question::PeerKey(_)) => Answer::PeerKey(Ok("peer".into())),
                    Event::Question(Question::Descriptor(_)) => Answer::Descriptor(Ok(())),
                    _ => continue,
                };
                ends[to].handle_answer(answer, 0.0).unwrap();
            }
            let most = ends[to].max_read().min(waiting[to].len());
            if most == 0 {
                break;
            }
            let mut piece: Vec<u8> = waiting[to].drain(..most).collect();
            ends[to].handle_input(&mut piece, 0.0, |_| Ok(())).unwrap();
        }
    }
    let [inlet, outlet] = ends.map(|mut end| end.take_time_keys().unwrap());
    (TimeKeys::into_prober(inlet), outlet.into_responder())
}

/// What the outlet does with probes.
enum Outlet {
    Answers,
    /// With a clock that has stepped by so many seconds.
    AnswersSealed(TimeResponder, f64),
    /// Nothing but PINGs arrives: UDP is filtered.
    AnswersPings,
    IsGone,
}

/// Runs the clock from `from` to `until` with these keys. Returns what became known, with the numbers of probes and PINGs.
fn run(
    clock: &mut Clock,
    mut keys: Option<&mut TimeProber>,
    outlet: &mut Outlet,
    from: f64,
    until: f64,
) -> (Vec<ClockEvent>, [u32; 2]) {
    let (mut events, mut sent) = (Vec::new(), [0; 2]);
    let mut now = from;
    while now < until {
        while let Some(probe) = clock.poll_transmit(now, keys.as_deref_mut()) {
            let (asked, back) = (now + RTT / 2.0, now + RTT);
            let there = asked + OFFSET;
            match (probe, &mut *outlet) {
                (Probe::Udp(packet), Outlet::Answers) => {
                    let TimeRequest { wave_id, t0 } = TimeRequest::parse(&packet).unwrap();
                    let reply = TimeReply {
                        wave_id,
                        t0,
                        t1: there,
                        t2: there,
                    };
                    clock.handle_datagram(&reply.to_bytes(), back, None);
                    sent[0] += 1;
                }
                (Probe::Udp(packet), Outlet::AnswersSealed(responder, step)) => {
                    let there = there + *step;
                    assert_eq!(packet.len(), TIME_PACKET_LEN);
                    let reply = responder.answer(&packet, there, || there).unwrap();
                    clock.handle_datagram(&reply, back, keys.as_deref_mut());
                    sent[0] += 1;
                }
                (Probe::Ping(t0), Outlet::AnswersPings) => {
                    clock.handle_pong([t0, there, there], back);
                    sent[1] += 1;
                }
                (Probe::Udp(_), _) => sent[0] += 1,
                (Probe::Ping(_), _) => sent[1] += 1,
            }
        }
        while let Some(event) = clock.poll_event() {
            let is_last = matches!(event, ClockEvent::Silent | ClockEvent::Exhausted(_));
            events.push(event);
            if is_last {
                return (events, sent);
            }
        }
        now = clock.poll_timeout().clamp(now + 0.001, until);
    }
    (events, sent)
}

fn estimate(events: &[ClockEvent]) -> Option<TimeCorrection> {
    let mut estimates = events.iter().filter_map(|event| match event {
        ClockEvent::Estimate(estimate) => Some(*estimate),
        _ => None,
    });
    estimates.next_back().flatten()
}

#[test]
fn a_clock_is_known_within_a_tenth_of_a_second_and_renewed() {
    let mut clock = clock();
    clock.begin(false, 10.0);
    let (events, _) = run(&mut clock, None, &mut Outlet::Answers, 10.0, 10.1);
    let first = estimate(&events).unwrap();
    assert!((first.offset_secs + OFFSET).abs() < RTT, "{first:?}");
    let (events, [probes, pings]) = run(&mut clock, None, &mut Outlet::Answers, 10.1, 20.0);
    assert!(events.len() >= 3 && probes > 10, "{events:?}");
    assert_eq!(pings, 0, "no session");
}

#[test]
fn who_is_silent_may_be_gone_and_another_outlet_has_another_clock() {
    let mut clock = clock();
    clock.begin(false, 10.0);
    run(&mut clock, None, &mut Outlet::Answers, 10.0, 12.0);
    let (events, _) = run(&mut clock, None, &mut Outlet::IsGone, 12.0, 60.0);
    assert_eq!(events.last(), Some(&ClockEvent::Silent));
    clock.invalidate();
    assert_eq!(clock.poll_event(), Some(ClockEvent::Estimate(None)));
    assert!(clock.take_was_reset() && !clock.take_was_reset());
    clock.begin(false, 60.0);
    let (events, _) = run(&mut clock, None, &mut Outlet::Answers, 60.0, 61.0);
    assert!(estimate(&events).is_some());
}

#[test]
fn without_keys_a_sealed_clock_asks_nobody_and_is_not_silent() {
    let mut clock = clock();
    clock.begin(true, 10.0);
    let (events, sent) = run(&mut clock, None, &mut Outlet::IsGone, 10.0, 100.0);
    assert_eq!((events.len(), sent), (0, [0, 0]));
    let (mut prober, responder) = keys();
    clock.resume(100.0);
    let mut outlet = Outlet::AnswersSealed(responder, 0.0);
    let (events, [_, pings]) = run(&mut clock, Some(&mut prober), &mut outlet, 100.0, 110.0);
    let known = estimate(&events).unwrap();
    assert!((known.offset_secs + OFFSET).abs() < RTT && !known.is_low_quality());
    assert_eq!(pings, 0, "UDP answers");
    assert_eq!(run(&mut clock, None, &mut outlet, 110.0, 200.0).1, [0, 0]);
}

#[test]
fn an_answer_that_comes_after_its_session_does_not_count() {
    let mut clock = clock();
    clock.begin(true, 10.0);
    let (mut prober, mut responder) = keys();
    let Some(Probe::Udp(packet)) = clock.poll_transmit(10.0, Some(&mut prober)) else {
        panic!("no probe")
    };
    let reply = responder.answer(&packet, 110.001, || 110.001).unwrap();
    // The clock waits for the answer, and nobody has told it of the end.
    clock.handle_datagram(&reply, 10.002, None);
    assert!(clock.last_reply < 10.002);
    assert_eq!(clock.poll_transmit(20.0, None), None);
    clock.handle_datagram(&reply, 10.002, Some(&mut keys().0));
    assert!(clock.last_reply < 10.002, "of the next session");
    clock.handle_datagram(&reply, 10.002, Some(&mut prober));
    assert!(clock.last_reply >= 10.002, "it was right");
}

#[test]
fn only_an_outlet_of_a_relay_answers_before_it_was_asked() {
    for is_for_another in [false, true] {
        let mut clock = clock();
        clock.begin(true, 10.0);
        clock.set_for_another(is_for_another);
        let (mut prober, mut responder) = keys();
        let Some(Probe::Udp(packet)) = clock.poll_transmit(10.0, Some(&mut prober)) else {
            panic!("no probe")
        };
        let reply = responder.answer(&packet, 110.003, || 110.001).unwrap();
        clock.handle_datagram(&reply, 10.002, Some(&mut prober));
        assert_eq!(clock.last_reply >= 10.002, is_for_another);
    }
}

#[test]
fn plain_answers_do_not_bend_a_sealed_clock() {
    let mut clock = clock();
    clock.begin(true, 10.0);
    let (mut prober, _) = keys();
    let probe = clock.poll_transmit(10.0, Some(&mut prober));
    assert!(matches!(probe, Some(Probe::Udp(_))));
    let forged = TimeReply {
        wave_id: clock.wave_id,
        t0: 10.0,
        t1: 0.0,
        t2: 0.0,
    };
    clock.handle_datagram(&forged.to_bytes(), 10.001, Some(&mut prober));
    assert!(clock.last_reply < 10.001);
}

#[test]
fn pings_measure_where_udp_is_filtered_and_say_so() {
    let mut clock = clock();
    clock.begin(true, 10.0);
    let (mut prober, _) = keys();
    let (events, [probes, pings]) = run(
        &mut clock,
        Some(&mut prober),
        &mut Outlet::AnswersPings,
        10.0,
        40.0,
    );
    let known = estimate(&events).unwrap();
    assert!((known.offset_secs + OFFSET).abs() < RTT && known.is_low_quality());
    assert!(probes > 0 && pings > 0);
    assert!(!events.contains(&ClockEvent::Silent), "PONGs are answers");
}

#[test]
fn a_clock_that_steps_is_told_to_auditors() {
    let mut clock = clock();
    clock.begin(true, 10.0);
    let (mut prober, responder) = keys();
    let mut outlet = Outlet::AnswersSealed(responder, 0.0);
    run(&mut clock, Some(&mut prober), &mut outlet, 10.0, 20.0);
    if let Outlet::AnswersSealed(_, step) = &mut outlet {
        *step = 1.0;
    }
    let (events, _) = run(&mut clock, Some(&mut prober), &mut outlet, 20.0, 30.0);
    let is_step =
        |event: &ClockEvent| matches!(event, ClockEvent::Alarm(TimeAlarm::Step { .. }, _));
    assert!(events.iter().any(is_step), "{events:?}");
}

/// Spec: relay §7.
#[test]
fn through_a_relay_only_pings_ask_and_silence_is_no_reason_to_leave() {
    let mut clock = clock();
    let (mut prober, _) = keys();
    clock.begin_relayed(0.0);
    let (mut now, mut pings, mut answered) = (0.0, 0, 0);
    while now < 40.0 {
        match clock.poll_transmit(now, Some(&mut prober)) {
            Some(Probe::Ping(t0)) => {
                pings += 1;
                // It has no estimate of its own before.
                if now >= 20.0 {
                    let (t1, t2) = (t0 + OFFSET + 0.011, t0 + OFFSET + 0.001);
                    clock.handle_pong([t0, t1, t2], now + 0.012);
                    answered += 1;
                }
            }
            Some(Probe::Udp(_)) => panic!("nobody answers by UDP"),
            None => now = clock.poll_timeout().max(now + 0.001),
        }
    }
    assert!(pings > answered && answered > 8, "{pings} {answered}");
    let mut known = None;
    while let Some(event) = clock.poll_event() {
        match event {
            ClockEvent::Estimate(estimate) => known = estimate,
            ClockEvent::Alarm(..) => {}
            other => panic!("{other:?}"),
        }
    }
    let known: TimeCorrection = known.unwrap();
    assert!((known.offset_secs + OFFSET).abs() < 1e-6, "{known:?}");
    assert!((known.uncertainty_secs - 0.022).abs() < 1e-6, "{known:?}");
}
