//! Which ports of which machines are asked, and how.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use lsl_proto::wire::request::shortinfo_request;

use super::Wishes;
use super::ask::Question;
use super::dial::Dial;
use super::peers::{address_of, streams};
use crate::observe::peers::{BoundSeen, NeighbourSeen, PeerSeen};
use crate::observe::{Observations, PortsInUse, StreamSeen};

/// What is to be sent to machines, each part with the number of its peer.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// Connections, and whether a stream is known to be there; those to neighbours have no peer.
    pub(super) dials: Vec<(Option<usize>, bool, Dial)>,
    pub(super) questions: Vec<(usize, Question)>,
    /// By the index of the interface by which they have to leave.
    pub(super) bound: BTreeMap<u32, Vec<(usize, Question)>>,
}

impl Plan {
    /// Plans for all peers and neighbours.
    pub(super) fn new(
        seen: &Observations,
        wishes: &Wishes<'_>,
        peers: &mut [PeerSeen],
        neighbours: &[NeighbourSeen],
    ) -> Self {
        let mut plan = Self::default();
        for (at, peer) in peers.iter_mut().enumerate() {
            if let Some(address) = peer.address {
                plan.add(seen, wishes, at, peer, address);
            }
        }
        plan.dials.extend(neighbours.iter().map(|it| {
            let dial = Dial {
                to: SocketAddr::new(it.address, DISCARD),
                bound: None,
                request: Vec::new(),
                enough: 0,
            };
            (None, false, dial)
        }));
        plan
    }

    fn add(
        &mut self,
        seen: &Observations,
        wishes: &Wishes<'_>,
        at: usize,
        peer: &mut PeerSeen,
        address: IpAddr,
    ) {
        let request = shortinfo_request(b"");
        let tcp = ports(seen, wishes, address, |it| it.port);
        let dial = |(port, is_known): (&u16, &bool), bound| {
            let dial = Dial {
                to: SocketAddr::new(address, *port),
                bound,
                request: request.clone(),
                enough: usize::MAX,
            };
            (Some(at), *is_known, dial)
        };
        self.dials.extend(tcp.iter().map(|it| dial(it, None)));
        let multicast = [PortsInUse::default().multicast, seen.asked.ports.multicast];
        let mut udp = ports(seen, wishes, address, |it| it.service_port);
        udp.extend(multicast.map(|it| (it, true)));
        udp.remove(&0);
        let question = |port: u16, is_known: bool| Question {
            to: SocketAddr::new(address, port),
            query: query_of(seen, address, port),
            is_known,
        };
        let questions = udp
            .iter()
            .map(|(port, is_known)| (at, question(*port, *is_known)));
        self.questions.extend(questions);
        let leaves = peer.route.as_ref().and_then(|it| it.interface.as_ref());
        let link = peer.on_link.as_ref().filter(|it| leaves != Some(it));
        let mut interfaces = seen.interfaces.iter().flatten();
        let Some(link) = link.and_then(|link| interfaces.find(|it| it.name == *link)) else {
            return;
        };
        peer.bound = Some(BoundSeen {
            interface: link.name.clone(),
            ..BoundSeen::default()
        });
        // Those that are known first.
        let mut few: Vec<(&u16, &bool)> = tcp.iter().collect();
        few.sort_by_key(|(_, is_known)| !**is_known);
        let few = few.into_iter().take(FEW_PORTS);
        self.dials.extend(few.map(|it| dial(it, Some(link.index))));
        let all = self.bound.entry(link.index).or_default();
        all.push((at, question(seen.asked.ports.multicast, true)));
    }
}

/// Ports that a machine is asked at, and whether a stream is known to be there.
fn ports(
    seen: &Observations,
    wishes: &Wishes<'_>,
    address: IpAddr,
    of_stream: fn(&StreamSeen) -> u16,
) -> BTreeMap<u16, bool> {
    let mut ports = BTreeMap::new();
    for range in [PortsInUse::default(), seen.asked.ports] {
        let range = (range.base..=range.last()).filter(|it| *it != 0);
        ports.extend(range.take(MOST_PORTS).map(|it| (it, false)));
    }
    let named = wishes.hosts.iter().filter(|it| it.ip() == address);
    ports.extend(named.map(|it| (it.port(), true)));
    // A stream tells its ports of IPv4.
    let there =
        streams(seen).filter(|it| address.is_ipv4() && address_of(seen, it) == Some(address));
    ports.extend(there.map(of_stream).take(MOST_PORTS).map(|it| (it, true)));
    ports.remove(&0);
    ports
}

/// Question for one stream where just one is known, so that a machine with hundreds answers once. Of two that claim
/// the port one may be gone.
fn query_of(seen: &Observations, address: IpAddr, port: u16) -> Vec<u8> {
    let is_there = |it: &&StreamSeen| {
        // The port of groups has one of the programs there; nobody knows which.
        it.service_port == port && address.is_ipv4() && address_of(seen, it) == Some(address)
    };
    let mut uids = streams(seen).filter(is_there).map(|it| &it.uid);
    let uid = uids.next().filter(|uid| uids.all(|it| it == *uid));
    let is_plain = |uid: &&String| {
        uid.bytes()
            .all(|it| it.is_ascii_alphanumeric() || it == b'-')
    };
    let query = uid.filter(is_plain).map(|uid| format!("uid='{uid}'"));
    query.unwrap_or_default().into_bytes()
}

const MOST_PORTS: usize = 64;
const FEW_PORTS: usize = 4;
/// Nobody has it, and systems say so.
pub(super) const DISCARD: u16 = 9;
