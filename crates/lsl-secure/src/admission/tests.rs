//! Each rule of §6.2 on its own, and all of them under random use.

use proptest::prelude::*;

use super::*;

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn host(number: u32) -> IpAddr {
    IpAddr::from((0x0a00_0000 + number).to_be_bytes())
}

/// A connection that is served and pushes nobody out.
fn served(admission: &mut Admission, source: IpAddr, now: f64) -> Ticket {
    match admission.arrive(source, now) {
        Arrival::Serve(ticket, None) => ticket,
        other => panic!("{other:?}"),
    }
}

/// One session from the first byte to the last.
fn introduce(admission: &mut Admission, source: IpAddr, now: f64) {
    let ticket = served(admission, source, now);
    assert_eq!(admission.turn(ticket, now), Turn::Now);
    admission.succeeded(ticket, now);
}

/// Uses up all tokens of the process, with failures of many sources.
fn exhaust(admission: &mut Admission, now: f64) {
    for number in 0..1024 {
        let ticket = served(admission, host(0x1_0000 + number), now);
        assert_eq!(admission.turn(ticket, now), Turn::Now);
        admission.failed(ticket, now);
    }
}

#[test]
fn a_source_has_256_pending_connections() {
    let mut admission = Admission::new(1024);
    let tickets: Vec<Ticket> = (0..256)
        .map(|_| served(&mut admission, host(1), 0.0))
        .collect();
    assert_eq!(admission.arrive(host(1), 0.0), Arrival::Refuse);
    assert_eq!(
        admission.arrive(address("::ffff:10.0.0.1"), 0.0),
        Arrival::Refuse
    );
    served(&mut admission, host(2), 0.0);
    admission.failed(tickets[7], 0.0);
    served(&mut admission, host(1), 0.0);
    assert_eq!(admission.pending(), 257);
    // A whole /64 is one source.
    for number in 0..256 {
        served(
            &mut admission,
            address(&format!("2001:db8::{number:x}")),
            0.0,
        );
    }
    assert_eq!(
        admission.arrive(address("2001:db8::ffff"), 0.0),
        Arrival::Refuse
    );
    served(&mut admission, address("2001:db8:0:1::"), 0.0);
}

#[test]
fn at_the_limit_the_oldest_of_the_source_that_has_most_goes() {
    let mut admission = Admission::new(8);
    let lone = served(&mut admission, host(1), 0.0);
    let many: Vec<Ticket> = (0..7)
        .map(|_| served(&mut admission, host(2), 0.0))
        .collect();
    let Arrival::Serve(newcomer, victim) = admission.arrive(host(3), 0.0) else {
        panic!("refused");
    };
    assert_eq!(victim, Some(many[0]));
    assert_eq!(
        admission.arrive(host(2), 0.0),
        Arrival::Serve(Ticket(9), Some(many[1]))
    );
    assert_eq!(admission.pending(), 8);
    assert_eq!(
        admission.turn(many[0], 0.0),
        Turn::Wait(f64::INFINITY),
        "void"
    );
    admission.failed(many[0], 0.0);
    assert_eq!(admission.pending(), 8);
    for ticket in [lone, newcomer, many[2]] {
        assert_eq!(admission.turn(ticket, 0.0), Turn::Now);
    }
}

#[test]
fn known_sources_are_pushed_out_last() {
    let mut admission = Admission::new(4);
    introduce(&mut admission, host(1), 0.0);
    let known: Vec<Ticket> = (0..3)
        .map(|_| served(&mut admission, host(1), 0.0))
        .collect();
    let stranger = served(&mut admission, host(2), 0.0);
    assert_eq!(
        admission.arrive(host(3), 0.0),
        Arrival::Serve(Ticket(5), Some(stranger))
    );
    let Arrival::Serve(_, victim) = admission.arrive(host(1), 0.0) else {
        panic!("refused");
    };
    assert_eq!(victim, Some(Ticket(5)));
    // Only known ones are left: no stranger pushes them out, one of them may.
    assert_eq!(admission.arrive(host(4), 0.0), Arrival::Refuse);
    assert_eq!(admission.pending(), 4);
    let Arrival::Serve(_, victim) = admission.arrive(host(1), 0.0) else {
        panic!("refused");
    };
    assert_eq!(victim, Some(known[0]));
}

#[test]
fn a_source_is_known_while_it_has_sessions_and_ten_minutes_longer() {
    let mut admission = Admission::new(1);
    introduce(&mut admission, host(1), 0.0);
    introduce(&mut admission, host(1), 0.0);
    let is_known = |admission: &mut Admission, now: f64| {
        let ticket = served(admission, host(1), now);
        let refused = admission.arrive(host(9), now) == Arrival::Refuse;
        if refused {
            admission.failed(ticket, now);
        }
        refused
    };
    assert!(is_known(&mut admission, 1e6));
    admission.session_closed(host(1), 1e6);
    assert!(is_known(&mut admission, 2e6), "one session lives");
    admission.session_closed(address("::ffff:10.0.0.1"), 2e6);
    assert!(is_known(&mut admission, 2e6 + 599.0));
    admission.session_closed(host(1), 2e6 + 599.0);
    assert!(
        !is_known(&mut admission, 2e6 + 601.0),
        "one end too many counts for nothing"
    );
}

#[test]
fn only_failures_use_up_tokens() {
    let mut admission = Admission::new(1024);
    for _ in 0..5000 {
        introduce(&mut admission, host(1), 0.0);
    }
    let fail = |admission: &mut Admission, now: f64| {
        let ticket = served(admission, host(2), now);
        let turn = admission.turn(ticket, now);
        admission.failed(ticket, now);
        turn == Turn::Now
    };
    let burst = (0..300).filter(|_| fail(&mut admission, 0.0)).count();
    assert_eq!(burst, 256);
    let in_a_second = (1..=1001).filter(|tick| fail(&mut admission, f64::from(*tick) / 1000.0));
    assert_eq!(in_a_second.count(), 20);
    // Others have theirs.
    introduce(&mut admission, host(3), 1.0);
    exhaust(&mut Admission::new(1024), 0.0);
}

#[test]
fn all_sources_share_200_failures_a_second() {
    let mut admission = Admission::new(1024);
    exhaust(&mut admission, 0.0);
    let mut turns = 0;
    for number in 0..2000 {
        let now = f64::from(number) / 1000.0;
        let ticket = served(&mut admission, host(number), now);
        turns += u32::from(admission.turn(ticket, now) == Turn::Now);
        admission.failed(ticket, now);
    }
    assert!((398..=400).contains(&turns), "{turns} in two seconds");
}

#[test]
fn asking_twice_takes_one_token_and_arriving_none() {
    let mut admission = Admission::new(1024);
    let silent: Vec<Ticket> = (0..200)
        .map(|_| served(&mut admission, host(1), 0.0))
        .collect();
    for ticket in silent {
        admission.failed(ticket, 0.0);
    }
    let ticket = served(&mut admission, host(1), 0.0);
    for _ in 0..2000 {
        assert_eq!(admission.turn(ticket, 0.0), Turn::Now);
    }
    admission.succeeded(ticket, 0.0);
    admission.succeeded(ticket, 0.0);
    // Had anything been taken twice or given back twice, this would not be the number.
    let tickets = (0..256).map(|_| served(&mut admission, host(1), 0.0));
    let tickets: Vec<Ticket> = tickets.collect();
    for ticket in &tickets {
        assert_eq!(admission.turn(*ticket, 0.0), Turn::Now);
    }
    admission.failed(tickets[0], 0.0);
    let more = served(&mut admission, host(1), 0.0);
    assert!(matches!(admission.turn(more, 0.0), Turn::Wait(_)));
}

#[test]
fn turns_go_round_the_sources_known_ones_first() {
    let mut admission = Admission::new(1024);
    introduce(&mut admission, host(9), 0.0);
    exhaust(&mut admission, 0.0);
    let mut waiting = Vec::new();
    for source in [1, 1, 1, 1, 2, 2, 3, 9, 9] {
        let ticket = served(&mut admission, host(source), 0.0);
        assert!(matches!(admission.turn(ticket, 0.0), Turn::Wait(_)));
        waiting.push((source, ticket));
    }
    let mut order = Vec::new();
    let mut now = 0.0;
    while !waiting.is_empty() {
        now += 0.001;
        // Who asks does not matter, whose turn it is does.
        waiting.retain(|(source, ticket)| {
            let is_now = admission.turn(*ticket, now) == Turn::Now;
            if is_now {
                order.push(*source);
            }
            !is_now
        });
    }
    assert_eq!(order, [9, 9, 1, 2, 3, 1, 2, 1, 1]);
    assert!((0.040..0.050).contains(&now), "200 a second: {now}");
}

#[test]
fn who_gives_up_leaves_the_line() {
    let mut admission = Admission::new(1024);
    exhaust(&mut admission, 0.0);
    let quitters: Vec<Ticket> = (0..50)
        .map(|n| served(&mut admission, host(n), 0.0))
        .collect();
    for ticket in &quitters {
        assert!(matches!(admission.turn(*ticket, 0.0), Turn::Wait(_)));
    }
    let patient = served(&mut admission, host(99), 0.0);
    assert!(matches!(admission.turn(patient, 0.0), Turn::Wait(_)));
    for ticket in quitters {
        admission.failed(ticket, 0.0);
    }
    assert_eq!(admission.turn(patient, 0.006), Turn::Now);
}

#[test]
fn memory_is_bounded_and_keeps_who_matters() {
    let mut admission = Admission::new(1024);
    introduce(&mut admission, host(0), 0.0);
    introduce(&mut admission, host(1), 0.0);
    admission.session_closed(host(1), 0.0);
    for number in 0..50_000_u32 {
        let now = f64::from(number) / 1000.0;
        let ticket = served(&mut admission, host(0x1_0000 + number), now);
        admission.turn(ticket, now);
        admission.failed(ticket, now);
        assert!(admission.sources.len() <= MAX_SOURCES);
    }
    for number in [0, 1] {
        let known = &admission.sources[&Host::from(host(number))];
        assert!(known.is_known(50.0));
    }
    assert!(admission.stages.is_empty() && admission.line.is_empty());
}

#[test]
fn strange_clocks_and_limits_do_no_harm() {
    let mut admission = Admission::new(0);
    for now in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1.0, 1e300] {
        if let Arrival::Serve(ticket, _) = admission.arrive(host(1), now) {
            admission.turn(ticket, now);
            admission.succeeded(ticket, now);
            admission.session_closed(host(1), now);
        }
        assert!(admission.pending() <= 1);
    }
}

/// Calls that a user of the limits may make.
#[derive(Debug, Clone)]
enum Action {
    Arrive(u32),
    Turn(usize),
    Succeeded(usize),
    Failed(usize),
    Closed(u32),
    Pass(f64),
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        8 => (0_u32..12).prop_map(Action::Arrive),
        8 => any::<usize>().prop_map(Action::Turn),
        2 => any::<usize>().prop_map(Action::Succeeded),
        2 => any::<usize>().prop_map(Action::Failed),
        1 => (0_u32..12).prop_map(Action::Closed),
        1 => (0.0..2.0).prop_map(Action::Pass),
    ]
}

proptest! {
    #[test]
    fn no_use_exceeds_a_limit(
        max_pending in 1_usize..40,
        actions in prop::collection::vec(action(), 0..400),
    ) {
        let mut admission = Admission::new(max_pending);
        let mut now = 0.0;
        let mut tickets = Vec::new();
        let mut granted = std::collections::HashSet::new();
        // Tokens that are gone: taken and not given back.
        let mut spent = 0.0;
        for action in actions {
            let pick = |index: usize| tickets.get(index % tickets.len().max(1)).copied();
            match action {
                Action::Arrive(number) => {
                    let before = admission.pending();
                    match admission.arrive(host(number), now) {
                        Arrival::Serve(ticket, None) => {
                            prop_assert_eq!(admission.pending(), before + 1);
                            tickets.push(ticket);
                        }
                        Arrival::Serve(ticket, Some(evicted)) => {
                            prop_assert_eq!(before, max_pending);
                            prop_assert!(tickets.contains(&evicted) && ticket != evicted);
                            tickets.push(ticket);
                        }
                        Arrival::Refuse => prop_assert_eq!(before, max_pending),
                    }
                }
                Action::Turn(index) => if let Some(ticket) = pick(index) {
                    match admission.turn(ticket, now) {
                        Turn::Now => if granted.insert(ticket) { spent += 1.0 },
                        Turn::Wait(at) => prop_assert!(at > now),
                    }
                },
                Action::Succeeded(index) => if let Some(ticket) = pick(index) {
                    let was_pending = admission.stages.contains_key(&ticket);
                    admission.succeeded(ticket, now);
                    if was_pending && granted.contains(&ticket) { spent -= 1.0 }
                },
                Action::Failed(index) => if let Some(ticket) = pick(index) {
                    admission.failed(ticket, now);
                },
                Action::Closed(number) => admission.session_closed(host(number), now),
                Action::Pass(secs) => now += secs,
            }
            prop_assert!(admission.pending() <= max_pending);
            prop_assert_eq!(admission.pending(), admission.stages.len());
            prop_assert!(spent <= ALL_BURST + now * ALL_PER_SECOND);
            let waiting: usize = admission.sources.values().map(|memory| memory.waiting.len()).sum();
            let stages = admission.stages.values();
            prop_assert_eq!(waiting, stages.filter(|stage| **stage == Stage::Waiting).count());
            let in_line = admission.sources.values().filter(|memory| !memory.waiting.is_empty());
            prop_assert_eq!(in_line.count(), admission.line.len());
        }
    }
}
