//! Causes in this machine's packet filter, and ports that others hold. Spec: doctor §3.2

use super::{Cause, Side};
use crate::observe::{Interface, Kind, LoopProbe, Observations, PortsInUse, SendError, WayKind};
use crate::remedy;

/// Interfaces whose filter matters: those that lead to other machines. What programs make for containers and
/// tunnels counts only where there is nothing else.
pub(crate) fn relevant(seen: &Observations) -> Vec<&Interface> {
    let up = |it: &&Interface| it.is_up && it.kind != Kind::Loopback && !it.addresses.is_empty();
    let all: Vec<&Interface> = seen.interfaces.iter().flatten().filter(up).collect();
    let others: Vec<&Interface> = all
        .iter()
        .copied()
        .filter(|it| it.kind == Kind::Other)
        .collect();
    if others.is_empty() { all } else { others }
}

fn probes<'a>(
    seen: &'a Observations,
    interface: &'a Interface,
) -> impl Iterator<Item = &'a LoopProbe> {
    let all = seen.loopback.iter().flatten();
    all.filter(move |it| it.interface == interface.name)
}

/// Returns whether an interface swallows all that comes to ports like this one: over IPv4, which every LSL program
/// speaks, or over IPv6 where there is nothing else.
fn swallows(seen: &Observations, interface: &Interface, is_port: impl Fn(u16) -> bool) -> bool {
    let sent = || probes(seen, interface).filter(|it| is_port(it.port) && it.sent > 0);
    let has_v4 = sent().any(|it| it.group.is_ipv4());
    let mut counted = sent().filter(|it| it.group.is_ipv4() == has_v4).peekable();
    counted.peek().is_some() && counted.all(LoopProbe::is_silent)
}

/// Returns whether questions of others are swallowed here.
pub(super) fn multicast_port_is_silent(seen: &Observations) -> bool {
    let ports = seen.asked.ports;
    relevant(seen)
        .iter()
        .any(|it| swallows(seen, it, |port| port == ports.multicast))
}

pub(super) fn input(seen: &Observations) -> Option<Cause> {
    let ports = seen.asked.ports;
    let interfaces = relevant(seen);
    let mut closed: Vec<&Interface> = Vec::new();
    let (mut closes_range, mut closes_multicast) = (false, false);
    for interface in interfaces {
        let range = swallows(seen, interface, |port| ports.has(port));
        let multicast = swallows(seen, interface, |port| port == ports.multicast);
        closes_range |= range;
        closes_multicast |= multicast;
        if range || multicast {
            closed.push(interface);
        }
    }
    let first = closed.first()?;
    let names = names(&closed);
    let silent =
        |it: &&LoopProbe| it.is_silent() && closed.iter().any(|to| to.name == it.interface);
    let example = seen.loopback.iter().flatten().find(silent);
    let mut evidence: Vec<String> = example
        .map(|it| {
            format!(
                "own datagrams to {} port {} by {}, sent {} and heard none",
                it.group, it.port, it.interface, it.sent
            )
        })
        .into_iter()
        .collect();
    evidence.extend(chains_said(seen, crate::observe::Hook::Input));
    let (what, effect) = match (closes_range, closes_multicast) {
        (true, true) => (
            said(ports),
            "it finds no streams of others, and others find none of its own",
        ),
        (true, false) => (range(ports), "it finds no streams of other machines"),
        _ => (
            ports.multicast.to_string(),
            "other machines find no streams here",
        ),
    };
    Some(Cause {
        only: match (closes_range, closes_multicast) {
            (true, false) => Some(Side::Finds),
            (false, true) => Some(Side::IsFound),
            _ => None,
        },
        subject: first.name.clone(),
        text: format!("This machine drops UDP {what} arriving at {names}: {effect}."),
        streams: seen.own_streams.as_ref().map_or(0, Vec::len),
        seen: evidence,
        remedies: vec![remedy::open_input(seen, &closed)],
        ..Cause::default()
    })
}

pub(super) fn output(seen: &Observations) -> Option<Cause> {
    let refused = |it: &&Interface| {
        let mut by_loop = probes(seen, it).filter(|it| it.is_refused());
        let ways = seen.wave.iter().flat_map(|wave| &wave.ways);
        let mut by_wave = ways.filter(|way| {
            way.kind != WayKind::Host
                && way.interface.as_ref() == Some(&it.name)
                && way.error == Some(SendError::Refused)
        });
        by_loop.next().is_some() || by_wave.next().is_some()
    };
    let closed: Vec<&Interface> = relevant(seen).into_iter().filter(refused).collect();
    let first = closed.first()?;
    let names = names(&closed);
    let tunnel = seen
        .interfaces
        .iter()
        .flatten()
        .find(|it| it.is_up && it.kind == Kind::Tunnel);
    let who = tunnel.map_or_else(String::new, |tunnel| {
        format!(
            " Most likely the kill switch of the VPN on {}.",
            tunnel.name
        )
    });
    let mut evidence = vec![format!(
        "sending to groups by {names}: operation not permitted"
    )];
    evidence.extend(chains_said(seen, crate::observe::Hook::Output));
    Some(Cause {
        subject: first.name.clone(),
        text: format!(
            "This machine may not send to groups by {names}: it cannot ask for streams.{who}"
        ),
        seen: evidence,
        remedies: vec![remedy::open_output(seen, &closed)],
        ..Cause::default()
    })
}

/// Returns whether another program keeps the multicast port for itself.
pub(super) fn is_taken(seen: &Observations) -> bool {
    seen.multicast_port
        .as_ref()
        .is_some_and(|port| port.is_taken)
}

pub(super) fn port_taken(seen: &Observations) -> Option<Cause> {
    let port = seen.multicast_port.as_ref().filter(|port| port.is_taken)?;
    let who = port.holder.as_ref().map_or_else(
        || "another program".to_owned(),
        |program| format!("{} (pid {})", program.name, program.pid),
    );
    Some(Cause {
        subject: format!("UDP {}", port.port),
        text: format!(
            "{who} holds UDP {} and shares it with nobody: streams of this machine are found by \
             those alone that ask it directly.",
            port.port
        ),
        streams: seen.own_streams.as_ref().map_or(0, Vec::len),
        seen: vec![format!("binding UDP {}: address in use", port.port)],
        remedies: vec![remedy::end(seen, port.holder.as_ref())],
        ..Cause::default()
    })
}

fn chains_said(seen: &Observations, hook: crate::observe::Hook) -> Option<String> {
    let chains = &seen.firewall.as_ref()?.chains;
    let said: Vec<String> = chains
        .iter()
        .filter(|it| it.hook == hook)
        .map(|it| {
            let why = if it.drops_by_policy {
                "has policy drop"
            } else {
                "has rules that drop"
            };
            format!("chain \"{} {} {}\" {why}", it.family, it.table, it.name)
        })
        .collect();
    (!said.is_empty()).then(|| said.join(", "))
}

fn names(interfaces: &[&Interface]) -> String {
    let names: Vec<&str> = interfaces.iter().map(|it| it.name.as_str()).collect();
    names.join(", ")
}

fn range(ports: PortsInUse) -> String {
    format!("{}-{}", ports.base, ports.last())
}

/// All ports, as one range where they are.
fn said(ports: PortsInUse) -> String {
    if ports.multicast.checked_add(1) == Some(ports.base) {
        format!("{}-{}", ports.multicast, ports.last())
    } else {
        format!("{}, {}", ports.multicast, range(ports))
    }
}
