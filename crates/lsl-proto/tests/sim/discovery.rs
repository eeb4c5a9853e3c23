//! Finding streams: searches and registries against each other, over networks good and bad.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use lsl_proto::discovery::search::{Goal, Search, WaveTimes};
use lsl_proto::query::CHEAP_WORK;
use lsl_proto::wire::discovery::QueryDatagram;

use crate::dice::seeds;
use crate::world::{HostId, SERVICE_PORT, SearchId, World};

/// A search that ends with so many results.
fn once(world: &World, query: &str, minimum: usize, secs: f64) -> Search {
    let goal = Goal::Once {
        minimum,
        not_before: world.now,
        deadline: world.now + secs,
    };
    Search::new(query, WaveTimes::default(), goal, world.now)
}

/// A search that goes on, and forgets the silent after so many seconds.
fn continuous(world: &World, query: &str, forget_after_secs: f64) -> Search {
    let goal = Goal::Continuous { forget_after_secs };
    Search::new(query, WaveTimes::default(), goal, world.now)
}

/// Adds hosts that announce so many streams each, with uids `u0-0`, `u0-1` and so on.
fn populate(world: &mut World, hosts: usize, streams: usize) -> Vec<String> {
    let mut uids = Vec::new();
    for _ in 0..hosts {
        let host = world.add_host();
        for stream in 0..streams {
            let uid = format!("u{host}-{stream}");
            world.announce(host, &uid, "Fake");
            uids.push(uid);
        }
    }
    uids.sort();
    uids
}

const ALL: &str = "session_id='default'";

#[test]
fn a_search_finds_what_it_looks_for_and_nothing_else() {
    seeds(|seed| {
        let mut world = World::new(seed);
        let uids = populate(&mut world, 4, 10);
        let resolver = world.add_host();
        let search = once(&world, ALL, 40, 20.0);
        let all = world.start(resolver, search);
        assert!(world.run_search(all) < 0.1);
        assert_eq!(world.results(all), uids);
        let found = world.search(all).search.results(f64::INFINITY);
        for info in found {
            let host: u8 = info.uid()[1..2].parse().unwrap();
            assert_eq!(info.v4_address(), format!("192.168.1.{}", host + 1));
        }

        let query = "session_id='default' and uid='u2-7'";
        let search = once(&world, query, 1, 20.0);
        let one = world.start(resolver, search);
        assert!(world.run_search(one) < 0.1);
        assert_eq!(world.results(one), ["u2-7"]);
        // Another session, and a query that selects nothing, take all their time.
        for query in [
            "session_id='other'",
            "session_id='default' and type=\"it's\"",
        ] {
            let search = once(&world, query, 1, 3.0);
            let none = world.start(resolver, search);
            assert!((world.run_search(none) - 3.0).abs() < 1e-6);
            assert!(world.results(none).is_empty());
        }
    });
}

#[test]
fn streams_of_this_host_are_known_by_its_loopback_address() {
    seeds(|seed| {
        let mut world = World::new(seed);
        populate(&mut world, 2, 1);
        let search = once(&world, ALL, 2, 20.0);
        let id = world.start(0, search);
        world.run_search(id);
        let found = world.search(id).search.results(f64::INFINITY);
        let addresses = found.iter().map(|info| info.v4_address().into_owned());
        assert!(addresses.eq(["127.0.0.1", "192.168.1.2"]));
    });
}

#[test]
fn two_hundred_streams_are_found_in_half_a_second() {
    seeds(|seed| {
        let mut world = World::new(seed);
        populate(&mut world, 1, 200);
        let resolver = world.add_host();
        let search = once(&world, ALL, 200, 20.0);
        let id = world.start(resolver, search);
        let took = world.run_search(id);
        assert!(took < 0.5, "{took} s");
        assert_eq!(world.results(id).len(), 200);
    });
}

#[test]
fn a_continuous_search_reports_what_comes_and_goes() {
    seeds(|seed| {
        let mut world = World::new(seed);
        let host = world.add_host();
        let resolver = world.add_host();
        let search = continuous(&world, "session_id='default' and name='Fake'", 5.0);
        let id = world.start(resolver, search);
        world.run_for(2.0);
        assert!(world.results(id).is_empty());
        let begin = world.now;
        for uid in ["stays", "goes"] {
            world.announce(host, uid, "Fake");
        }
        world.announce(host, "other", "Markers");
        assert!(world.run_until(begin + 2.0, |it| it.search(id).present.len() == 2));
        assert_eq!(world.results(id), ["goes", "stays"]);
        world.run_for(30.0);
        world.withdraw(host, "goes");
        let begin = world.now;
        assert!(world.run_until(begin + 7.0, |it| it.search(id).present.len() == 1));
        assert!(world.now > begin + 3.0, "forgotten too early");
        assert_eq!(world.results(id), ["stays"]);
        world.run_for(30.0);
        assert_eq!(world.search(id).events, [2, 0, 1]);
    });
}

#[test]
fn known_peers_are_found_where_multicast_goes_nowhere() {
    seeds(|seed| {
        let mut world = World::new(seed);
        world.network.has_multicast = false;
        let uids = populate(&mut world, 2, 3);
        let resolver = world.add_host();
        world.announce(resolver, "own", "Fake");
        let search = once(&world, ALL, 7, 5.0);
        let without = world.start(resolver, search);
        world.run_search(without);
        assert_eq!(world.results(without), ["own"]);
        let peer = world.hosts[0].address;
        world.hosts[resolver].known_peers.push(peer);
        let search = once(&world, ALL, 4, 5.0);
        let with = world.start(resolver, search);
        assert!(world.run_search(with) < 0.1);
        assert_eq!(world.results(with)[1..], uids[..3]);
    });
}

#[test]
fn losses_delay_a_search_and_end_nothing() {
    seeds(|seed| {
        let mut world = World::new(seed);
        world.network.loss = 0.3;
        world.network.delay = (1e-3, 0.2);
        let uids = populate(&mut world, 3, 5);
        let resolver = world.add_host();
        let search = continuous(&world, ALL, 40.0);
        let lasting = world.start(resolver, search);
        let search = once(&world, ALL, uids.len(), 60.0);
        let id = world.start(resolver, search);
        assert!(world.run_search(id) < 30.0);
        assert_eq!(world.results(id), uids);
        world.run_for(60.0);
        assert_eq!(world.results(lasting), uids);
        assert_eq!(world.search(lasting).events, [15, 0, 0]);
    });
}

#[test]
fn copies_of_queries_and_answers_change_nothing() {
    seeds(|seed| {
        let mut world = World::new(seed);
        world.network.duplication = 0.5;
        world.network.delay = (1e-4, 0.02);
        let uids = populate(&mut world, 3, 5);
        let resolver = world.add_host();
        let search = continuous(&world, ALL, 5.0);
        let id = world.start(resolver, search);
        world.run_for(20.0);
        assert_eq!(world.results(id), uids);
        assert_eq!(world.search(id).events, [15, 0, 0]);
        // Two groups, each copied now and then: the answers to a wave are fewer than its queries.
        for host in &world.hosts[..3] {
            assert!(host.outlets.registry.counters.duplicates > 0);
        }
    });
}

/// Queries of strangers, one a millisecond.
const FLOOD: u32 = 60;

#[test]
fn a_flood_of_hostile_queries_leaves_room_for_an_honest_search() {
    seeds(|seed| {
        let mut world = World::new(seed);
        let uids = populate(&mut world, 1, 5);
        let resolver = world.add_host();
        let victim = SocketAddr::new(world.hosts[0].address, SERVICE_PORT);
        let mut found = 0;
        let mut search: Option<SearchId> = None;
        for n in 0..FLOOD {
            // Each text is another one, so that no cache helps, from as many addresses as there are.
            let text = format!("//*[//*[//*[//*[starts-with({n} div 7,'x')]]]]");
            let datagram = QueryDatagram {
                query: text.as_bytes(),
                return_port: 40_000,
                id: b"7",
            };
            let host = world.dice.below(254);
            let from = Ipv4Addr::new(10, 0, 0, u8::try_from(host).unwrap());
            let from = SocketAddr::new(IpAddr::from(from), 40_000);
            world.send(None, from, victim, &datagram.to_bytes());
            world.run_for(1e-3);
            if let Some(id) = search {
                if world.search(id).ended_at.is_some() {
                    assert_eq!(world.results(id), uids);
                    (found, search) = (found + 1, None);
                }
            } else {
                let next = once(&world, ALL, uids.len(), 20.0);
                search = Some(world.start(resolver, next));
            }
        }
        assert!(found > 10, "{found} searches in {FLOOD} ms");
        let counters = &world.hosts[0].outlets.evaluator.counters;
        assert!(counters.costly > 10, "{} were refused", counters.costly);
        let work = counters.work;
        // What the network of the flood may spend at once and a millisecond, and what is free.
        let flood = u64::from(FLOOD);
        let most = 3_000_000 + 2_500 * flood + flood * 2 * CHEAP_WORK + 1_000_000;
        assert!(work < most, "{work} of {most} units");
    });
}

/// The port that a query names belongs to somebody who asked for nothing. Spec: lsl-protocol §15.
#[test]
fn a_repeated_query_is_answered_every_ten_milliseconds() {
    seeds(|seed| {
        let mut world = World::new(seed);
        populate(&mut world, 1, 1);
        let victim = world.add_host();
        let to = SocketAddr::new(world.hosts[0].address, SERVICE_PORT);
        let forged = SocketAddr::new(world.hosts[victim].address, 999);
        let query = b"LSL:shortinfo\r\nname='Fake'\r\n40000 1\r\n";
        for _ in 0..50 {
            world.send(None, forged, to, query);
        }
        world.run_for(1.0);
        assert_eq!(world.hosts[victim].strays, 2);
        for _ in 0..1000 {
            world.send(None, forged, to, query);
            world.run_for(2e-4);
        }
        world.run_for(1.0);
        let replies = world.hosts[victim].strays - 2;
        assert!((20..=22).contains(&replies), "{replies} replies in 0.2 s");
        assert_eq!(
            world.hosts[0].outlets.registry.counters.duplicates,
            1050 - replies - 2
        );
    });
}

/// Runs until the search knows these streams and no others.
fn settles(world: &mut World, id: SearchId, uids: &[&str], secs: f64) {
    let deadline = world.now + secs;
    let is_settled = |it: &mut World| {
        let present = it.search(id).present.iter().map(String::as_str);
        present.eq(uids.iter().copied())
    };
    assert!(
        world.run_until(deadline, is_settled),
        "{:?}",
        world.search(id).present
    );
}

/// A host with a stream, and a search for it on another one that found it.
fn pair(world: &mut World) -> (HostId, SearchId) {
    let host = world.add_host();
    world.announce(host, "first", "Fake");
    let resolver = world.add_host();
    let search = continuous(world, ALL, 5.0);
    let id = world.start(resolver, search);
    settles(world, id, &["first"], 1.0);
    (host, id)
}

#[test]
fn an_outlet_that_starts_again_is_another_one() {
    seeds(|seed| {
        let mut world = World::new(seed);
        let (host, id) = pair(&mut world);
        let lived = world.dice.share() * 20.0;
        world.run_for(lived);
        world.restart(host);
        let away = world.dice.share() * 10.0;
        world.run_for(away);
        world.announce(host, "second", "Fake");
        settles(&mut world, id, &["second"], 7.0);
        world.run_for(30.0);
        assert_eq!(world.search(id).events, [2, 0, 1]);
    });
}

#[test]
fn a_host_that_was_cut_off_comes_back() {
    seeds(|seed| {
        let mut world = World::new(seed);
        let (host, id) = pair(&mut world);
        let address = world.hosts[host].address;
        world.network.set_cut(address, true);
        settles(&mut world, id, &[], 7.5);
        world.network.set_cut(address, false);
        settles(&mut world, id, &["first"], 2.0);
        assert_eq!(world.search(id).events, [2, 0, 1]);
    });
}

#[test]
fn who_hears_that_its_network_is_back_asks_at_once() {
    seeds(|seed| {
        let mut world = World::new(seed);
        let (_, id) = pair(&mut world);
        let address = world.hosts[id.0].address;
        world.network.set_cut(address, true);
        let away = 8.0 + world.dice.share() * 10.0;
        world.run_for(away);
        assert!(world.search(id).present.is_empty());
        world.network.set_cut(address, false);
        world.network_changes(id);
        settles(&mut world, id, &["first"], 0.1);
    });
}

#[test]
fn a_network_that_flaps_is_asked_six_times_a_minute_more_than_any() {
    seeds(|seed| {
        let mut world = World::new(seed);
        let (_, calm) = pair(&mut world);
        let flapping = continuous(&world, ALL, 5.0);
        let flapping = world.start(calm.0, flapping);
        let before = world.search(calm).waves;
        for _ in 0..3000 {
            world.run_for(0.02);
            world.network_changes(flapping);
        }
        let calm = world.search(calm).waves - before;
        let more = world.search(flapping).waves - calm;
        // Each event moves the regular waves after it, and the first one was before the minute.
        assert!((1..=7).contains(&more), "{more}");
        settles(&mut world, flapping, &["first"], 0.1);
    });
}

#[test]
fn a_repeated_search_follows_a_host_to_its_new_address() {
    seeds(|seed| {
        let mut world = World::new(seed);
        let (host, lasting) = pair(&mut world);
        let repeated = continuous(&world, ALL, 5.0).repeated();
        let id = world.start(lasting.0, repeated);
        let address = |it: &mut World, id| {
            let now = it.now;
            let found = it.search(id).search.results(now);
            found.first().map(|info| info.v4_address().into_owned())
        };
        world.run_for(1.0);
        assert_eq!(address(&mut world, id).unwrap(), "192.168.1.1");
        world.move_host(host);
        world.run_for(2.0);
        assert_eq!(address(&mut world, id).unwrap(), "192.168.2.1");
        // The first answer gives other searches their address (lsl-protocol §2.4).
        assert_eq!(address(&mut world, lasting).unwrap(), "192.168.1.1");
    });
}
