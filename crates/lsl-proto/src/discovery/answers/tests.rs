use std::net::{IpAddr, Ipv4Addr};

use super::*;
use crate::discovery::registry::{AnnouncedStream, Answer, Arrival, Registry, SourcePolicy};
use crate::query::{CHEAP_WORK, costly_work};
use crate::wire::discovery::QueryDatagram;
use crate::{ChannelFormat, StreamInfo};

/// Announces so many streams with a description of 64 channels.
fn announced(streams: usize) -> Registry {
    let mut registry = Registry::new(SourcePolicy::default());
    let mut info = StreamInfo::new("n", "t", 1, 0.0, ChannelFormat::Int8, "s").unwrap();
    let mut channels = info.desc_mut().into_child("channels");
    for n in 0..64 {
        let mut channel = channels.append_child("channel");
        channel
            .set("label", format!("C{n}"))
            .set("unit", "microvolts");
    }
    for _ in 0..streams {
        registry.add(AnnouncedStream::open(&info));
    }
    registry
}

/// More than the document of one of them has.
const NODES: usize = 64 * 5 + 60;

/// A query from this host to one of its ports, which came at `now`.
fn query(registry: &mut Registry, from: IpAddr, port: u16, text: &str, now: f64) -> PendingQuery {
    let datagram = QueryDatagram {
        query: text.as_bytes(),
        return_port: port,
        id: b"7",
    };
    let (datagram, from) = (datagram.to_bytes(), SocketAddr::from((from, 9999)));
    let policy = || Policy::Off;
    let answer = registry.handle_datagram(Arrival::Service, &datagram, from, policy, now);
    let Answer::Query(query) = answer else {
        panic!("{answer:?}");
    };
    query
}

fn host(network: u8, host: u8) -> IpAddr {
    Ipv4Addr::new(127, network, 0, host).into()
}

/// The queue, and the time that passes while it works.
struct Answering {
    queue: AnswerQueue<()>,
    evaluator: Evaluator,
    now: f64,
}

impl Answering {
    fn new() -> Self {
        Self {
            queue: AnswerQueue::default(),
            evaluator: Evaluator::new(10),
            now: 100.0,
        }
    }

    fn push(&mut self, query: PendingQuery) {
        self.queue.push((), query, self.now);
    }

    /// Runs until the queue lets others have the thread. Returns who was answered.
    fn turn(&mut self) -> Vec<SocketAddr> {
        let mut to = Vec::new();
        while let Some(reply) = self
            .queue
            .poll_transmit(&mut self.evaluator, Policy::Off, self.now)
        {
            to.push(reply.to);
        }
        to
    }

    fn wait(&mut self) {
        self.now = self.queue.poll_timeout(self.now).unwrap_or(self.now);
    }
}

#[test]
fn many_resolvers_are_not_answered_all_at_once() {
    const RESOLVERS: u16 = 20;
    let (mut registry, mut answering) = (announced(BURST), Answering::new());
    for resolver in 0..RESOLVERS {
        let port = 50_000 + resolver;
        answering.push(query(&mut registry, host(0, 1), port, "name='n'", 100.0));
    }
    let mut sent = vec![0];
    while !answering.queue.is_idle() {
        let before = answering.now;
        *sent.last_mut().unwrap() += answering.turn().len();
        answering.wait();
        if answering.now > before {
            assert!((answering.now - before - 0.001).abs() < 1e-9);
            sent.push(0);
        }
    }
    // The ends of the queries were seen after the last answers.
    sent.retain(|&answers| answers > 0);
    assert_eq!(sent, [MOST_AT_ONCE; 5]);
}

#[test]
fn copies_that_come_while_a_query_is_answered_are_answered_once() {
    let (mut registry, mut answering) = (announced(3 * BURST), Answering::new());
    for copy in 0..10 {
        let now = 100.0 + 0.03 * f64::from(copy);
        let copied = query(&mut registry, host(0, 1), 50_000, "name='n'", now);
        answering.queue.push((), copied, now);
        if copy == 0 {
            answering.turn();
        }
    }
    // The one that is under way, and one for all others.
    assert_eq!(answering.queue.hosts[0].queries(), 2);
}

#[test]
fn copies_that_come_at_once_wait_until_they_are_due() {
    let (mut registry, mut answering) = (announced(1), Answering::new());
    for now in [100.0, 100.001] {
        let copied = query(&mut registry, host(0, 1), 50_000, "", now);
        answering.queue.push((), copied, now);
    }
    assert_eq!(answering.turn().len(), 1);
    assert!(answering.queue.is_idle());
    answering.wait();
    assert!((answering.now - 100.01).abs() < 1e-9);
    assert_eq!(answering.turn().len(), 1);
    assert_eq!(answering.queue.poll_timeout(answering.now), None);
}

#[test]
fn an_answer_that_cannot_be_sent_ends_its_query_alone() {
    let (mut registry, mut answering) = (announced(3), Answering::new());
    for port in [50_000, 50_001] {
        answering.push(query(&mut registry, host(0, 1), port, "", 100.0));
    }
    let Answering {
        queue,
        evaluator,
        now,
    } = &mut answering;
    assert!(queue.poll_transmit(evaluator, Policy::Off, *now).is_some());
    queue.handle_unsent();
    let mut sent = answering.turn();
    sent.extend(answering.turn());
    assert_eq!(sent, [SocketAddr::from((host(0, 1), 50_001)); 3]);
    assert!(answering.queue.is_idle());
}

/// Each text is another one, so that no cache helps.
fn hostile(n: usize) -> String {
    format!("//*[//*[//*[starts-with({n} div 7,'x') or starts-with(1 div 3,'y')]]]")
}

/// What made latencies 142 ms: Spec lsl-protocol §15. An honest resolver that comes after a thousand of
/// them has its answers before a few more of them were looked at.
#[test]
fn queries_of_strangers_do_not_stall_the_thread() {
    const STREAMS: usize = 16;
    const FLOOD: usize = 300;
    // Units at once, of a host and of its network.
    for (hosts, at_once) in [(1, 2_000_000), (254, 3_000_000)] {
        let (mut registry, mut answering) = (announced(STREAMS), Answering::new());
        for n in 0..FLOOD {
            let from = host(0, u8::try_from(1 + n % hosts).unwrap());
            answering.push(query(&mut registry, from, 50_000, &hostile(n), 100.0));
        }
        // All this time hosts are served; the flood has had what it may cost.
        let mut most = 0;
        for _ in 0..FLOOD / 2 {
            let before = answering.evaluator.counters.work;
            answering.turn();
            answering.wait();
            most = most.max(answering.evaluator.counters.work - before);
        }
        let allowed = TURN_WORK + CHEAP_WORK + costly_work(NODES);
        assert!(most <= allowed, "{most} in one turn");

        let honest = "session_id='' and name='n'";
        answering.push(query(&mut registry, host(1, 1), 50_001, honest, 100.0));
        let (before, mut turns) = (answering.evaluator.counters.work, 0);
        while answering.turn().is_empty() {
            answering.wait();
            turns += 1;
            assert!(turns < 2 * hosts + 10, "not answered in {turns} turns");
        }
        let waited = answering.evaluator.counters.work - before;
        println!("{hosts} hosts: answered after {turns} turns and {waited} units");
        while !answering.queue.is_idle() {
            answering.turn();
            answering.wait();
        }
        // Less than a second has passed, and nobody but the flood was costly.
        let cheap = FLOOD as u64 * CHEAP_WORK * 2;
        let work = answering.evaluator.counters.work;
        assert!(answering.now < 101.0, "{}", answering.now);
        assert!(
            work < cheap + at_once + 10 * costly_work(NODES),
            "{work} units"
        );
        let costly = answering.evaluator.counters.costly;
        assert!(costly > FLOOD as u64 / 2, "{costly} were refused");
    }
}

/// Where more wait than may, one goes of whoever has most, and never that of an honest resolver.
#[test]
fn a_flood_does_not_push_others_out_of_the_queue() {
    let (mut registry, mut answering) = (announced(1), Answering::new());
    answering.push(query(
        &mut registry,
        host(1, 1),
        50_000,
        "name='honest'",
        100.0,
    ));
    for n in 0..2 * MAX_WAITING {
        let from = host(0, u8::try_from(1 + n % 254).unwrap());
        let port = u16::try_from(2000 + n).unwrap();
        answering.push(query(&mut registry, from, port, &hostile(n), 100.0));
    }
    assert_eq!(answering.queue.overflow, MAX_WAITING as u64 + 1);
    let honest = Host::from(host(1, 1));
    assert!(
        answering
            .queue
            .hosts
            .iter()
            .any(|queue| queue.host == honest)
    );
}
