//! Causes that the other machine tells of itself, by a pair or by its code. Spec: doctor §3.4

use std::net::IpAddr;

use super::{Cause, filters};
use crate::code::hash8;
use crate::observe::{
    Fact, Interface, Kind, LoopProbe, Observations, OtherSide, PortsInUse, SendError, WayKind,
};
use crate::remedy::{Place, Remedy};

/// The machine that was named, as it was typed, and what it tells.
fn other(seen: &Observations) -> Option<(&str, &OtherSide)> {
    let host = seen.asked.hosts.first()?;
    Some((host.text.as_str(), seen.other.as_ref()?))
}

/// The filter of the other machine swallows what arrives there, as its own datagrams told it, or lets nothing out.
pub(super) fn peer_filter(seen: &Observations) -> Option<Cause> {
    let (host, other) = other(seen)?;
    let has = |fact| other.facts.contains(&fact);
    let silent = |v4, v6| has(Fact::LoopAsked) && (has(v4) || has(v6));
    let ports = seen.asked.ports;
    let range = format!("{}-{}", ports.base, ports.last());
    let swallowed = match (
        silent(Fact::MulticastSilentV4, Fact::MulticastSilentV6),
        silent(Fact::RangeSilentV4, Fact::RangeSilentV6),
    ) {
        (false, false) => None,
        (true, true) => Some(format!("{}, {range}", ports.multicast)),
        (true, false) => Some(ports.multicast.to_string()),
        (false, true) => Some(range),
    };
    let (text, told) = if let Some(swallowed) = swallowed {
        (
            format!("{host} drops UDP {swallowed} arriving there: its streams are not found."),
            "that its own datagrams to these ports were sent and not heard",
        )
    } else if has(Fact::UnicastRefused) {
        let who = if has(Fact::TunnelUp) {
            " Most likely the kill switch of the VPN there."
        } else {
            ""
        };
        (
            format!("{host} may not send to this network, and so does not answer.{who}"),
            "that its system refuses to send",
        )
    } else {
        return None;
    };
    let advice = "it names the chain, and what to type";
    Some(Cause {
        subject: host.to_owned(),
        text,
        seen: vec![format!("{host} says {told}")],
        remedies: vec![there(seen, "lsl doctor", advice)],
        ..Cause::default()
    })
}

/// Both are up, on one network, and the other has its gateway and nobody else.
pub(super) fn isolation(seen: &Observations) -> Option<Cause> {
    let (host, other) = other(seen)?;
    let has = |fact| other.facts.contains(&fact);
    let is_alone = has(Fact::NeighboursAsked) && !has(Fact::OthersAnswer);
    let hears_nobody = other.tag == 0 && other.heard.is_empty();
    let may_send = !has(Fact::GroupsRefused) && !has(Fact::UnicastRefused);
    let is_same_network = networks(seen).any(|it| hash8(&it) == other.network);
    let is_apart = hears_nobody && may_send && is_same_network;
    if !(is_alone && has(Fact::GatewayAnswers) && is_apart) {
        return None;
    }
    let advice = "switch off client isolation (AP isolation, private VLAN) at the access point or switch; or \
                  connect one of both by cable";
    Some(Cause {
        subject: host.to_owned(),
        text: format!(
            "The access point or switch keeps this machine and {host} apart: both reach the network, and not each \
             other."
        ),
        seen: vec![format!(
            "{host} says that it is in the same network, that its gateway answers, and no neighbour"
        )],
        remedies: vec![Remedy::advice(seen, advice)],
        ..Cause::default()
    })
}

/// Returns what a machine tells of itself, as far as it was observed.
pub fn side(seen: &Observations) -> OtherSide {
    let ports = seen.asked.ports;
    let probes = || seen.loopback.iter().flatten().filter(|it| it.sent > 0);
    let is_silent = |is_v4: bool, is_port: &dyn Fn(u16) -> bool| {
        let mut all = probes().filter(|it| it.group.is_ipv4() == is_v4 && is_port(it.port));
        let is_asked = all.clone().next().is_some();
        is_asked && all.all(LoopProbe::is_silent)
    };
    let multicast = |port| port == ports.multicast;
    let range = |port| ports.has(port);
    let is_refused = |is_group: bool| {
        let probes = seen.loopback.iter().flatten();
        let ways = seen.wave.iter().flat_map(|it| &it.ways);
        let mut ways = ways.filter(|it| (it.kind != WayKind::Host) == is_group);
        is_group && probes.clone().any(LoopProbe::is_refused)
            || ways.any(|it| it.error == Some(SendError::Refused))
    };
    let mut interfaces = seen.interfaces.iter().flatten();
    let mut own = seen.own_streams.iter().flatten();
    let holds = [
        (Fact::LoopAsked, probes().next().is_some()),
        (Fact::MulticastSilentV4, is_silent(true, &multicast)),
        (Fact::MulticastSilentV6, is_silent(false, &multicast)),
        (Fact::RangeSilentV4, is_silent(true, &range)),
        (Fact::RangeSilentV6, is_silent(false, &range)),
        (Fact::GroupsRefused, is_refused(true)),
        (Fact::UnicastRefused, is_refused(false)),
        (
            Fact::TunnelUp,
            interfaces.any(|it| it.is_up && it.kind == Kind::Tunnel),
        ),
        (Fact::OtherPorts, ports != PortsInUse::default()),
        (Fact::HasOutlets, own.any(|it| it.session != TEST_SESSION)),
    ];
    OtherSide {
        facts: holds.into_iter().filter(|it| it.1).map(|it| it.0).collect(),
        network: networks(seen).next().map_or(0, |it| hash8(&it)),
        session: hash8(&seen.asked.session),
        ..OtherSide::default()
    }
}

/// The session of the streams that doctors offer to each other.
pub const TEST_SESSION: &str = "lsl-doctor";

/// What is typed at the other machine, as root. Its system is not known: all have the command.
fn there(seen: &Observations, command: &str, advice: &str) -> Remedy {
    Remedy {
        place: Place::There,
        root: true,
        advice: advice.to_owned(),
        ..Remedy::command(seen, command.to_owned())
    }
}

/// Returns the IPv4 networks that lead to others, the lowest first.
pub(crate) fn networks(seen: &Observations) -> impl Iterator<Item = String> {
    let all = filters::relevant(seen).into_iter();
    let mut all: Vec<(u32, u8)> = all.flat_map(v4_networks).collect();
    all.sort_unstable();
    let said = |(network, length)| format!("{}/{length}", std::net::Ipv4Addr::from_bits(network));
    all.into_iter().map(said)
}

fn v4_networks(interface: &Interface) -> impl Iterator<Item = (u32, u8)> {
    interface.addresses.iter().filter_map(|(it, length)| {
        let IpAddr::V4(it) = it else {
            return None;
        };
        let host_bits = 32_u32.checked_sub((*length).into())?;
        let mask = u32::MAX.checked_shl(host_bits).unwrap_or_default();
        Some((it.to_bits() & mask, *length))
    })
}
