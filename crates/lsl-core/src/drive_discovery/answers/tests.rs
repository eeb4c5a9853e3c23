use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::Ordering;

use lsl_proto::query::{CHEAP_WORK, costly_work};
use lsl_proto::wire::discovery::QueryDatagram;

use super::*;
use crate::drive_discovery::registry::{AnnouncedStream, Answer, Arrival, SourcePolicy};
use crate::net::runtime;
use crate::{ChannelFormat, StreamInfo};

/// So many streams with a description of 64 channels.
fn announced(streams: usize) -> Registry {
    let policy = SourcePolicy {
        allow_all: true,
        ..SourcePolicy::default()
    };
    let registry = Registry::new(10, policy);
    let mut info = StreamInfo::new("n", "t", 1, 0.0, ChannelFormat::Int8, "s").unwrap();
    let mut channels = info.desc_mut().into_child("channels");
    for n in 0..64 {
        let mut channel = channels.append_child("channel");
        channel
            .set("label", format!("C{n}"))
            .set("unit", "microvolts");
    }
    for _ in 0..streams {
        registry.add(AnnouncedStream::plain(&info));
    }
    registry
}

/// More than the document of one of them has.
const NODES: usize = 64 * 5 + 60;

/// A query from this host to one of its ports.
fn query(registry: &Registry, from: IpAddr, port: u16, text: &str) -> PendingQuery {
    let datagram = QueryDatagram {
        query: text.as_bytes(),
        return_port: port,
        id: b"7",
    };
    let from = SocketAddr::from((from, 9999));
    let answer = registry.answer(Arrival::Service, &datagram.to_bytes(), from, 100.0);
    let Answer::Streams(matches) = answer else {
        panic!("{answer:?}");
    };
    matches
}

fn host(network: u8, host: u8) -> IpAddr {
    Ipv4Addr::new(127, network, 0, host).into()
}

/// Runs where sockets work.
fn run<T: Send + 'static>(future: impl Future<Output = T> + Send + 'static) -> T {
    let running = runtime::handle().unwrap().spawn(future);
    #[expect(clippy::disallowed_methods, reason = "a test waits for its task")]
    runtime::handle().unwrap().block_on(running).unwrap()
}

async fn socket() -> Arc<UdpSocket> {
    Arc::new(UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap())
}

#[test]
fn many_resolvers_are_not_answered_all_at_once() {
    const RESOLVERS: u16 = 20;
    let sent = run(async {
        let (registry, socket) = (announced(BURST), socket().await);
        let mut waiting = AnswerQueue::default();
        for resolver in 0..RESOLVERS {
            let matches = query(&registry, host(0, 1), 50_000 + resolver, "name='n'");
            waiting.push((Arc::clone(&socket), matches), &registry);
        }
        let mut sent = vec![];
        while !waiting.sources.is_empty() {
            let before = waiting.sent;
            if waiting.slice(&registry).await == Progress::Pause {
                sent.push(before);
            }
        }
        // The ends of the queries were seen after the last answers.
        sent.push(waiting.sent);
        sent.retain(|&answers| answers > 0);
        sent
    });
    assert_eq!(sent, [MOST_AT_ONCE; 5]);
}

#[test]
fn copies_that_come_while_a_query_is_answered_are_answered_once() {
    run(async {
        let (registry, socket) = (announced(3 * BURST), socket().await);
        let mut waiting = AnswerQueue::default();
        for copy in 0..10 {
            let datagram = QueryDatagram {
                query: b"name='n'",
                return_port: 50_000,
                id: b"7",
            };
            let from = SocketAddr::from((host(0, 1), 9999));
            let now = 100.0 + 0.03 * f64::from(copy);
            let answer = registry.answer(Arrival::Service, &datagram.to_bytes(), from, now);
            let Answer::Streams(matches) = answer else {
                panic!("{answer:?}");
            };
            waiting.push((Arc::clone(&socket), matches), &registry);
            if copy == 0 {
                waiting.slice(&registry).await;
            }
        }
        // The one that is under way, and one for all others.
        assert_eq!(waiting.sources[0].queries(), 2);
    });
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
    // Units at once and a second, of a host and of its network.
    for (hosts, at_once, a_second) in [(1, 2_000_000, 1_000_000), (254, 3_000_000, 2_500_000)] {
        run(async move {
            let begin = local_clock();
            let (registry, socket) = (announced(STREAMS), socket().await);
            let resolver = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
            let spent = || registry.counters.query_work.load(Ordering::Relaxed);
            let mut waiting = AnswerQueue::default();
            for n in 0..FLOOD {
                let from = host(0, u8::try_from(1 + n % hosts).unwrap());
                let matches = query(&registry, from, 50_000, &hostile(n));
                waiting.push((Arc::clone(&socket), matches), &registry);
            }
            // All this time sources are served; the flood has had what it may cost.
            let mut most = 0;
            for _ in 0..FLOOD / 2 {
                let before = spent();
                waiting.slice(&registry).await;
                most = most.max(spent() - before);
            }
            assert!(
                most <= SLICE_WORK + CHEAP_WORK + costly_work(NODES),
                "{most} in one slice"
            );

            let port = resolver.local_addr().unwrap().port();
            let honest = query(&registry, host(1, 1), port, "session_id='' and name='n'");
            waiting.push((socket, honest), &registry);
            let answered = || registry.counters.answered.load(Ordering::Relaxed);
            let (before, mut slices) = (spent(), 0);
            while answered() == 0 {
                waiting.slice(&registry).await;
                slices += 1;
                assert!(slices < 2 * hosts + 10, "not answered in {slices} slices");
            }
            let waited = spent() - before;
            println!("{hosts} hosts: answered after {slices} slices and {waited} units");
            while !waiting.sources.is_empty() {
                waiting.slice(&registry).await;
            }
            let cheap = FLOOD as u64 * CHEAP_WORK * 2;
            let secs = 1 + Duration::from_secs_f64(local_clock() - begin).as_secs();
            let allowed = at_once + a_second * secs;
            assert!(spent() < cheap + allowed, "{} units", spent());
            let costly = registry.counters.costly.load(Ordering::Relaxed);
            assert!(costly > FLOOD as u64 / 2, "{costly} were refused");
        });
    }
}

/// Where more wait than may, one goes of whoever has most, and never that of an honest resolver.
#[test]
fn a_flood_does_not_push_others_out_of_the_queue() {
    run(async {
        let (registry, socket) = (announced(1), socket().await);
        let mut waiting = AnswerQueue::default();
        let matches = query(&registry, host(1, 1), 50_000, "name='honest'");
        waiting.push((Arc::clone(&socket), matches), &registry);
        for n in 0..2 * MAX_WAITING {
            let from = host(0, u8::try_from(1 + n % 254).unwrap());
            let port = u16::try_from(2000 + n).unwrap();
            let matches = query(&registry, from, port, &hostile(n));
            waiting.push((Arc::clone(&socket), matches), &registry);
        }
        let dropped = registry.counters.overflow.load(Ordering::Relaxed);
        assert_eq!(dropped, MAX_WAITING as u64 + 1);
        let honest = Host::from(host(1, 1));
        assert!(waiting.sources.iter().any(|asking| asking.source == honest));
    });
}
