//! Drives searches, and the answers of registries: does what `lsl-core` does with sockets and timers, and
//! checks the contract of both after every event.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use lsl_proto::config::InterfaceAddress;
use lsl_proto::discovery::queries::Transmit;
use lsl_proto::discovery::registry::{Answer, Arrival};
use lsl_proto::discovery::search::{ResolverEvent, SearchAction};
use lsl_proto::wire::timedata::{TimeReply, TimeRequest};

use crate::network::Datagram;
use crate::programs::CLOCK_PORT;
use crate::world::{
    Event, HostId, MULTICAST_PORT, RunningSearch, SERVICE_PORT, SearchId, TURN_SECS, UNICAST_PORTS,
    World,
};

impl World {
    pub(crate) fn receive(&mut self, id: HostId, datagram: &Datagram) {
        let Datagram { from, to, bytes } = datagram;
        let (now, host) = (self.now, &mut self.hosts[id]);
        let arrival = match to.port() {
            SERVICE_PORT => Arrival::Service,
            MULTICAST_PORT => Arrival::Responder,
            port @ CLOCK_PORT.. => return self.answer_clock(port, bytes),
            port => {
                let found = host.searches.iter().position(|it| it.port == port);
                let Some(number) = found else {
                    host.strays += 1;
                    return;
                };
                let search = &mut host.searches[number].search;
                search.handle_datagram(*from, bytes, now);
                return self.drive_search((id, number));
            }
        };
        let (registry, policy) = (&mut host.outlets.registry, host.policy);
        match registry.handle_datagram(arrival, bytes, *from, || policy, now) {
            Answer::Query(query) => {
                host.outlets.answers.push((), query, now);
                if host.outlets.wake_at.is_none_or(|at| at > now + TURN_SECS) {
                    host.outlets.wake_at = Some(now + TURN_SECS);
                    self.schedule(now + TURN_SECS, Event::WakeAnswers(id));
                }
            }
            Answer::Time(TimeRequest { wave_id, t0 }) => {
                let t1 = self.local(id);
                let t2 = t1;
                let reply = TimeReply {
                    wave_id,
                    t0,
                    t1,
                    t2,
                };
                self.send_service(id, *from, &reply.to_bytes());
            }
            Answer::SealedTime => {
                if let Some(reply) = self.answer_sealed(id, bytes) {
                    self.send_service(id, *from, &reply);
                }
            }
            Answer::Ignore => {}
        }
    }

    pub(crate) fn drive_answers(&mut self, id: HostId) {
        let (now, host) = (self.now, &mut self.hosts[id]);
        let outlets = &mut host.outlets;
        let mut replies = Vec::new();
        while let Some(reply) =
            outlets
                .answers
                .poll_transmit(&mut outlets.evaluator, host.policy, now)
        {
            outlets.burst += 1;
            replies.push(reply);
        }
        // A resolver of liblsl has room for about a hundred.
        assert!(
            replies.len() <= 16 && outlets.burst <= 64,
            "too many at once"
        );
        if let Some(time) = outlets.answers.poll_timeout(now) {
            if time > now {
                outlets.burst = 0;
            }
            let time = time.max(now + TURN_SECS);
            outlets.wake_at = Some(time);
            self.schedule(time, Event::WakeAnswers(id));
        } else {
            assert!(
                self.hosts[id].outlets.answers.is_idle(),
                "work without a timer"
            );
        }
        for reply in replies {
            let from = self.endpoint(id, SERVICE_PORT, reply.to);
            self.send(Some(id), from, reply.to, &reply.bytes);
        }
    }

    /// Tells a search that the network of its host changed.
    pub(crate) fn network_changes(&mut self, id: SearchId) {
        let now = self.now;
        self.search(id).search.handle_network_change(now);
        self.drive_search(id);
    }

    pub(crate) fn drive_search(&mut self, id: SearchId) {
        let now = self.now;
        let mut actions = 0;
        while self.search(id).ended_at.is_none() {
            actions += 1;
            assert!(actions < 10_000, "a search without end");
            match self.search(id).search.poll(now) {
                SearchAction::SendMulticast => {
                    let queries = groups().collect();
                    self.search(id).waves += 1;
                    self.search(id).search.send_multicast(queries, now);
                }
                SearchAction::SendUnicast => {
                    let own = IpAddr::from(Ipv4Addr::LOCALHOST);
                    let hosts = [&[own], &self.hosts[id.0].known_peers[..]].concat();
                    let ports = |host| (0..UNICAST_PORTS).map(move |n| (host, SERVICE_PORT + n));
                    let targets = hosts.into_iter().flat_map(ports).map(SocketAddr::from);
                    self.search(id)
                        .search
                        .send_unicast(targets.collect::<Vec<_>>(), now);
                }
                SearchAction::Send(query) => {
                    let RunningSearch { search, port, .. } = self.search(id);
                    let (port, datagram) = (*port, search.datagram(*port).unwrap());
                    let from = self.endpoint(id.0, port, query.to);
                    self.send(Some(id.0), from, query.to, &datagram);
                }
                SearchAction::ProbeTcp(target) => unreachable!("{target} was not given"),
                SearchAction::AskNeighbours => unreachable!("neighbours were not wished for"),
                SearchAction::WaitUntil(time) => {
                    assert!(time > now, "waits for the past");
                    if self.search(id).wake_at.is_none_or(|at| at > time) {
                        self.search(id).wake_at = Some(time);
                        self.schedule(time, Event::WakeSearch(id));
                    }
                    break;
                }
                SearchAction::Done => self.search(id).ended_at = Some(now),
            }
        }
        self.search(id).take_events(now);
    }
}

impl RunningSearch {
    fn take_events(&mut self, now: f64) {
        while let Some(event) = self.search.poll_event(now) {
            let kind = match event {
                ResolverEvent::Appeared(info) => {
                    assert!(
                        self.present.insert(info.uid().into_owned()),
                        "{info:?} twice"
                    );
                    0
                }
                ResolverEvent::Changed(info) => {
                    assert!(self.present.contains(&*info.uid()), "{info:?} is not there");
                    1
                }
                ResolverEvent::Lost(info) => {
                    assert!(self.present.remove(&*info.uid()), "{info:?} was not there");
                    2
                }
                ResolverEvent::Conflict(..) => continue,
                _ => unreachable!("no other event is known"),
            };
            self.events[kind] += 1;
        }
    }
}

/// The multicast queries of a wave, by two groups.
fn groups() -> impl Iterator<Item = Transmit> {
    let groups = [[224, 0, 0, 183], [239, 255, 172, 215]];
    groups.into_iter().map(|group| Transmit {
        interface: Some(InterfaceAddress {
            address: Ipv4Addr::UNSPECIFIED.into(),
            index: 0,
        }),
        ..SocketAddr::from((group, MULTICAST_PORT)).into()
    })
}
