use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV6};

use super::*;
use crate::ChannelFormat;
use crate::discovery::asked::AskedHosts;
use crate::discovery::fallback::ProbeEnd;

mod golden;
mod hidden;
mod relayed;

fn peer() -> SocketAddr {
    (Ipv4Addr::new(192, 168, 1, 9), 16572).into()
}

fn peer_v6(scope_id: u32) -> SocketAddr {
    SocketAddrV6::new(
        Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 9),
        16572,
        0,
        scope_id,
    )
    .into()
}

fn once(minimum: usize, not_before: f64, deadline: f64) -> Goal {
    Goal::Once {
        minimum,
        not_before,
        deadline,
    }
}

fn search(goal: Goal) -> Search {
    Search::new("name='x'", WaveTimes::default(), goal, 100.0)
}

fn continuous(forget_after_secs: f64) -> Search {
    search(Goal::Continuous { forget_after_secs })
}

fn xml(uid: &str) -> Vec<u8> {
    let mut info = StreamInfo::new("x", "EEG", 1, 100.0, ChannelFormat::Int8, "s").unwrap();
    info.reset_uid(uid);
    info.to_shortinfo_xml()
}

fn reply(uid: &str) -> Vec<u8> {
    let id = query_id(b"name='x'").to_string();
    [id.as_bytes(), b"\r\n", &xml(uid)].concat()
}

/// Runs the machine with a clock that jumps from deadline to deadline; times relative to the start.
fn schedule(mut search: Search, until: f64) -> Vec<(&'static str, f64)> {
    let mut now = 100.0;
    let mut steps = Vec::new();
    while now < until {
        let name = match search.poll(now) {
            SearchAction::SendMulticast => "multicast",
            SearchAction::SendUnicast => "unicast",
            SearchAction::WaitUntil(time) => {
                assert!(time > now, "does not advance at {now}");
                now = time;
                continue;
            }
            SearchAction::Done => "done",
            other => panic!("{other:?} without targets"),
        };
        steps.push((name, ((now - 100.0) * 1000.0).round() / 1000.0));
        if name == "done" {
            break;
        }
    }
    steps
}

#[test]
fn each_host_that_an_outlet_answers_from_is_a_way_to_it_and_told_once_a_minute() {
    let mut search = continuous(10.0);
    assert_eq!(search.poll(100.0), SearchAction::SendMulticast);
    assert_eq!(search.poll(100.0), SearchAction::SendUnicast);
    search.send_unicast([SocketAddr::from(([192, 168, 1, 7], 16572))], 100.0);
    let from = |last: u8| SocketAddr::from(([192, 168, 1, last], 16573));
    for (last, now) in [(9, 100.25), (9, 100.5), (7, 100.5), (7, 102.0)] {
        search.handle_datagram(from(last), &reply("a"), now);
    }
    search.handle_datagram(peer_v6(3), &reply("a"), 101.0);
    search.handle_reply(from(8), &xml("b"), 101.0);
    search.handle_reply(from(8), &xml(&"c".repeat(65)), 101.0);
    let told = |search: &mut Search| {
        let ways = search.take_ways().into_iter();
        let told = ways.map(|(uid, way)| {
            let (uid, host) = (String::from_utf8(uid).unwrap(), way.host);
            format!("{uid} {host} {:?} {}", way.by, way.round_trip_secs)
        });
        told.collect::<Vec<_>>()
    };
    let expected = [
        "a 192.168.1.9:0 Group 0.25",
        "a 192.168.1.7:0 Unicast 0.5",
        "a [fe80::9%3]:0 Group 1",
        "b 192.168.1.8:0 Tcp 1",
    ];
    assert_eq!(told(&mut search), expected);
    assert!(search.take_ways().is_empty());
    // Since the last question to groups, which one to hosts followed; six hosts, and after a minute anew.
    assert_eq!(search.poll(110.0), SearchAction::SendMulticast);
    assert_eq!(search.poll(110.25), SearchAction::SendUnicast);
    for last in 10..20 {
        search.handle_datagram(from(last), &reply("a"), 110.5);
    }
    let more = [10, 11, 12].map(|last| format!("a 192.168.1.{last}:0 Group 0.5"));
    assert_eq!(told(&mut search), more);
    search.handle_datagram(from(9), &reply("a"), 160.25);
    search.handle_datagram(from(10), &reply("a"), 160.25);
    assert_eq!(told(&mut search), ["a 192.168.1.9:0 Group 50.25"]);
}

#[test]
fn waves_of_a_one_shot_search() {
    let steps = schedule(search(once(0, 100.0, 103.0)), 200.0);
    let expected = [
        ("multicast", 0.0),
        ("unicast", 0.0),
        ("unicast", 0.5),
        ("multicast", 1.25),
        ("unicast", 1.75),
        ("multicast", 2.5),
        ("unicast", 3.0),
    ];
    // The last burst coincides with the deadline, which goes first.
    assert_eq!(steps[..6], expected[..6]);
    assert_eq!(steps[6..], [("done", 3.0)]);
}

#[test]
fn waves_of_a_continuous_search() {
    let steps = schedule(continuous(5.0), 104.5);
    let expected = [
        ("multicast", 0.0),
        ("unicast", 0.0),
        ("unicast", 0.5),
        ("multicast", 1.75),
        ("unicast", 2.25),
        ("multicast", 3.5),
        ("unicast", 4.0),
    ];
    assert_eq!(steps, expected);
}

#[test]
fn a_suspended_host_does_not_catch_up() {
    let mut search = continuous(5.0);
    let mut sends = 0;
    for now in [100.0, 100.0, 100.0, 5000.0, 5000.0, 5000.0, 5000.0] {
        sends += usize::from(!matches!(search.poll(now), SearchAction::WaitUntil(_)));
    }
    assert_eq!(sends, 4);
}

proptest::proptest! {
    #[test]
    fn polling_at_any_times_sends_no_more_than_the_schedule(
        gaps in proptest::collection::vec(0.0..0.7_f64, 1..200),
    ) {
        let mut search = continuous(5.0);
        let mut now = 100.0;
        let (mut multicasts, mut unicasts) = (0.0, 0.0);
        for gap in gaps {
            loop {
                match search.poll(now) {
                    SearchAction::SendMulticast => multicasts += 1.0,
                    SearchAction::SendUnicast => unicasts += 1.0,
                    SearchAction::WaitUntil(time) => {
                        proptest::prop_assert!(time > now);
                        break;
                    }
                    other => unreachable!("{other:?} in a continuous search without targets"),
                }
            }
            let waves = ((now - 100.0) / 1.75_f64 + 1e-9).floor() + 1.0;
            proptest::prop_assert!(multicasts <= waves && unicasts <= waves + 1.0);
            now += gap;
        }
    }

    #[test]
    fn any_reply_is_survived(datagram: Vec<u8>, xml: Vec<u8>) {
        let mut search = continuous(5.0);
        search.handle_datagram(peer(), &datagram, 100.0);
        search.handle_reply(peer(), &xml, 100.0);
    }
}

#[test]
fn ends_when_there_is_enough_but_not_too_early() {
    let mut search = search(once(2, 101.0, 110.0));
    for uid in ["b", "b", "a"] {
        assert!(!search.is_done(100.5));
        search.handle_datagram(peer(), &reply(uid), 100.5);
    }
    assert!(!search.is_done(100.9), "before the minimum time");
    assert!(search.is_done(101.0));
    assert_eq!(search.poll(101.0), SearchAction::Done);
    let uids: Vec<String> = search
        .results(101.0)
        .iter()
        .map(|info| info.uid().into_owned())
        .collect();
    assert_eq!(uids, ["a", "b"]);
}

#[test]
fn a_minimum_of_zero_takes_all_the_time() {
    let mut search = search(once(0, 100.0, 110.0));
    search.handle_datagram(peer(), &reply("a"), 100.0);
    assert!(!search.is_done(109.9));
    assert!(search.is_done(110.0));
}

#[test]
fn wakes_for_the_minimum_time() {
    let mut search = search(once(1, 100.3, 110.0));
    search.handle_datagram(peer(), &reply("a"), 100.0);
    while !matches!(search.poll(100.1), SearchAction::WaitUntil(_)) {}
    assert_eq!(search.poll(100.1), SearchAction::WaitUntil(100.3));
}

#[test]
fn a_sender_of_made_up_streams_leaves_room_for_those_of_others() {
    let mut search = continuous(5.0);
    let long = |uid: &str| {
        let padding = " ".repeat(60_000);
        [&reply(uid)[..], padding.as_bytes()].concat()
    };
    let mut made_up =
        (0..400).map(|n| search.handle_datagram(peer(), &long(&format!("f{n}")), 100.0));
    let taken = made_up.position(|received| received != Received::New);
    assert!(taken.is_some_and(|taken| taken > 100), "{taken:?}");
    let other = (Ipv4Addr::new(192, 168, 1, 10), 16572).into();
    assert_eq!(
        search.handle_datagram(other, &reply("a"), 100.0),
        Received::New
    );
    assert_eq!(
        search.handle_datagram(peer(), &long("b"), 100.0),
        Received::Invalid
    );
    // What is forgotten makes room.
    assert_eq!(search.results(200.0).len(), 0);
    assert_eq!(
        search.handle_datagram(peer(), &long("b"), 200.0),
        Received::New
    );
}

#[test]
fn the_first_answer_per_family_gives_the_address() {
    let mut search = continuous(5.0);
    assert_eq!(
        search.handle_datagram(peer(), &reply("a"), 100.0),
        Received::New
    );
    let other = (Ipv4Addr::LOCALHOST, 16572).into();
    assert_eq!(
        search.handle_datagram(other, &reply("a"), 100.1),
        Received::Refreshed
    );
    assert_eq!(
        search.handle_datagram(peer_v6(3), &reply("a"), 100.2),
        Received::Changed
    );
    assert_eq!(
        search.handle_datagram(peer_v6(4), &reply("a"), 100.3),
        Received::Refreshed
    );
    let found = &search.results(100.4)[0];
    assert_eq!(found.v4_address(), "192.168.1.9");
    assert_eq!(found.v6_address(), "fe80::9%3");
    assert_eq!(search.sender_of(b"a"), Some(peer().ip()));
    assert_eq!(search.sender_of(b"b"), None);
    let events = [
        search.poll_event(100.4),
        search.poll_event(100.4),
        search.poll_event(100.4),
    ];
    assert!(matches!(
        events,
        [
            Some(ResolverEvent::Appeared(_)),
            Some(ResolverEvent::Changed(_)),
            None
        ]
    ));
}

#[test]
fn a_repeated_search_believes_the_first_answer_to_each_wave() {
    let mut search = continuous(5.0).repeated();
    let moved: SocketAddr = (Ipv4Addr::new(10, 0, 0, 9), 16572).into();
    let wave = |search: &mut Search, now| {
        while !matches!(search.poll(now), SearchAction::WaitUntil(_)) {}
    };
    let address = |search: &mut Search, now, from: SocketAddr| {
        search.handle_datagram(from, &reply("a"), now);
        let found = &search.results(now)[0];
        (
            found.v4_address().into_owned(),
            found.v6_address().into_owned(),
        )
    };
    let at = |v4: &str, v6: &str| (v4.to_owned(), v6.to_owned());
    wave(&mut search, 100.0);
    assert_eq!(address(&mut search, 100.1, peer()), at("192.168.1.9", ""));
    // Later in the wave: a slower way, or somebody else.
    assert_eq!(address(&mut search, 100.2, moved), at("192.168.1.9", ""));
    assert_eq!(
        address(&mut search, 100.3, peer_v6(3)),
        at("192.168.1.9", "fe80::9%3")
    );
    wave(&mut search, 101.75);
    assert_eq!(address(&mut search, 101.8, moved), at("10.0.0.9", ""));
    assert_eq!(address(&mut search, 101.9, peer()), at("10.0.0.9", ""));
    assert_eq!(search.len(), 1);
    assert_eq!(search.held.bytes, xml("a").len());
}

#[test]
fn the_silent_are_forgotten_and_may_come_back() {
    let mut search = continuous(5.0);
    search.handle_datagram(peer(), &reply("a"), 100.0);
    search.handle_datagram(peer(), &reply("b"), 103.0);
    assert_eq!(search.results(105.0).len(), 2);
    assert_eq!(search.results(105.1).len(), 1);
    search.handle_datagram(peer(), &reply("a"), 106.0);
    assert_eq!(events(&mut search, 106.0), ["+a", "+b", "-a", "+a"]);
    assert!(continuous(f64::INFINITY).is_empty());
}

#[test]
fn an_answer_that_the_query_does_not_select_is_dropped() {
    let other = |change: &dyn Fn(&mut StreamInfo)| {
        let mut info = StreamInfo::new("y", "EEG", 1, 100.0, ChannelFormat::Int8, "s").unwrap();
        info.reset_uid("u");
        change(&mut info);
        info.to_shortinfo_xml()
    };
    let ask = |query: &str, xml: &[u8]| {
        let mut search = Search::new(query, WaveTimes::default(), once(1, 0.0, 200.0), 100.0);
        let id = query_id(query.as_bytes()).to_string();
        let datagram = [id.as_bytes(), b"\r\n", xml].concat();
        let received = [
            search.handle_datagram(peer(), &datagram, 100.1),
            search.handle_reply(peer(), xml, 100.1),
        ];
        assert_eq!(search.len(), usize::from(received[0] == Received::New));
        received[0]
    };
    let y = other(&|_| {});
    assert_eq!(ask("name='x'", &y), Received::Foreign);
    assert_eq!(ask("session_id='mine' and name='y'", &y), Received::Foreign);
    assert_eq!(ask("channel_count>4", &y), Received::Foreign);
    assert_eq!(ask("name='y'", &y), Received::New);
    // The outlet alone knows its description, and where it was asked.
    assert_eq!(ask("desc/manufacturer='Acme'", &y), Received::New);
    assert_eq!(ask("name='x' or count(//channel)=1", &y), Received::New);
    assert_eq!(ask("v4address='192.168.1.9'", &y), Received::New);
    // What is not in the text, or lost its blanks on the way, proves nothing.
    let without: String = String::from_utf8(y).unwrap().replace("<name>y</name>", "");
    assert_eq!(
        ask(
            "hostname='h'",
            without.replace("hostname", "host").as_bytes()
        ),
        Received::Invalid
    );
    assert_eq!(ask("nosuch='h'", other(&|_| {}).as_slice()), Received::New);
    let blank = String::from_utf8(other(&|_| {})).unwrap();
    let blank = blank.replace("<type>EEG</type>", "<type>  </type>");
    assert_eq!(ask("not(type='')", blank.as_bytes()), Received::New);
    let line_end = blank.replace("<type>  </type>", "<type>a\rb</type>");
    assert_eq!(
        ask(
            "contains(type,translate('x','x','\t'))",
            line_end.as_bytes()
        ),
        Received::New
    );
}

fn events(search: &mut Search, now: f64) -> Vec<String> {
    let next = std::iter::from_fn(|| search.poll_event(now));
    next.map(|event| match event {
        ResolverEvent::Appeared(info) => format!("+{}", info.uid()),
        ResolverEvent::Changed(info) => format!("~{}", info.uid()),
        ResolverEvent::Lost(info) => format!("-{}", info.uid()),
        ResolverEvent::Conflict(two) => format!("{}={}", two[0].uid(), two[1].uid()),
    })
    .collect()
}

#[test]
fn a_sweep_asks_who_is_there() {
    let mut search = continuous(5.0).with_sweeps(77);
    let answer = [b"77\r\n".as_slice(), &xml("a")].concat();
    assert_eq!(
        search.handle_datagram(peer(), &answer, 100.0),
        Received::Present
    );
    assert!(search.is_empty());
    assert_eq!(
        search.sweep_datagram(9).unwrap(),
        b"LSL:shortinfo\r\n\r\n9 77\r\n"
    );
    while !matches!(search.poll(100.0), SearchAction::WaitUntil(_)) {}
    // Who is new is asked at once, but not in a storm.
    search.ask_soon(100.0);
    assert_eq!(search.poll(100.0), SearchAction::WaitUntil(100.1));
    search.ask_soon(100.0);
    assert_eq!(search.poll(100.1), SearchAction::SendUnicast);
}

#[test]
fn a_search_that_has_enough_asks_nobody_over_tcp() {
    let probes = |answers: usize, minimum| {
        let mut search = search(once(minimum, 105.0, 110.0)).with_fallback(AskedHosts::default());
        let silent: SocketAddr = ([10, 0, 0, 1], 5).into();
        search.remember([silent], 100.0);
        for number in 0..answers {
            search.handle_datagram(peer(), &reply(&number.to_string()), 100.0);
        }
        let (mut now, mut asked) = (100.0, 0);
        while now < 104.0 {
            match search.poll(now) {
                SearchAction::ProbeTcp(target) => {
                    asked += 1;
                    search.handle_probe_ended(target, ProbeEnd::Silent, now);
                }
                SearchAction::WaitUntil(time) => now = time,
                _ => {}
            }
        }
        asked
    };
    assert_eq!(
        [probes(0, 1), probes(1, 1), probes(1, 2), probes(1, 0)],
        [2, 0, 2, 2]
    );
}

#[test]
fn two_streams_that_cannot_be_told_apart_are_told_of_once_both_answer() {
    let mut search = continuous(5.0);
    let hear = |search: &mut Search, uids: &[&str], now: f64| {
        for uid in uids {
            search.handle_datagram(peer(), &reply(uid), now);
        }
        let conflicts = search.take_conflicts().into_iter();
        conflicts
            .map(|(one, other)| format!("{} {}", one.uid(), other.uid()))
            .collect::<Vec<_>>()
    };
    // A program that is started again has another uid.
    for (uid, now) in [
        ("old", 100.0),
        ("old", 101.7),
        ("new", 101.8),
        ("new", 103.5),
    ] {
        assert!(hear(&mut search, &[uid], now).is_empty());
    }
    assert!(hear(&mut search, &["new", "twin"], 108.7).is_empty());
    assert_eq!(hear(&mut search, &["new", "twin"], 110.5), ["twin new"]);
    assert!(hear(&mut search, &["new", "twin"], 112.2).is_empty());
    assert_eq!(
        events(&mut search, 112.2),
        ["+old", "+new", "+twin", "twin=new", "-old"]
    );
    // A copied machine has the same uid.
    let mut info = StreamInfo::from_xml(&xml("cloned")).unwrap();
    for (host, conflicts) in [("amp", 0), ("copy", 1), ("amp", 0), ("copy", 0)] {
        info.set_hostname(host);
        search.handle_reply(peer(), &info.to_shortinfo_xml(), 112.3);
        assert_eq!(search.take_conflicts().len(), conflicts, "{host}");
    }
}
