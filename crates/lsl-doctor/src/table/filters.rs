//! Causes in this machine's packet filter, and ports that others hold. Spec: doctor §3.2

use std::net::IpAddr;

use super::{Cause, Side};
use crate::observe::{
    BlockedProgram, Interface, Kind, LoopProbe, Observations, PortsInUse, SendError, WayKind,
};
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

/// Returns whether IPv4 decides: every LSL program speaks it, unless there is nothing but IPv6 or it is switched off.
fn is_v4(seen: &Observations, mut groups: impl Iterator<Item = IpAddr>) -> bool {
    let mut changed = seen.config.iter().flat_map(|it| &it.changed);
    !changed.any(|it| it.key == "ports.IPv6" && it.value == "force")
        && groups.any(|it| it.is_ipv4())
}

/// Returns the probes to ports like this one that decide about an interface.
fn deciding<'a>(
    seen: &'a Observations,
    interface: &'a Interface,
    is_port: impl Fn(u16) -> bool + Copy + 'a,
) -> impl Iterator<Item = &'a LoopProbe> {
    let sent = move || probes(seen, interface).filter(move |it| is_port(it.port) && it.sent > 0);
    let is_v4 = is_v4(seen, sent().map(|it| it.group));
    sent().filter(move |it| it.group.is_ipv4() == is_v4)
}

/// Returns the interfaces that swallow all that comes to ports like this one, and whether none else was probed.
fn swallowing<'a>(
    seen: &'a Observations,
    is_port: impl Fn(u16) -> bool + Copy + 'a,
) -> (bool, Vec<&'a Interface>) {
    let has_link = |it: &&Interface| it.has_carrier != Some(false);
    let mut probed: Vec<&Interface> = relevant(seen).into_iter().filter(has_link).collect();
    probed.retain(|it| deciding(seen, it, is_port).next().is_some());
    let all = probed.len();
    probed.retain(|it| deciding(seen, it, is_port).all(LoopProbe::is_silent));
    (all > 0 && probed.len() == all, probed)
}

/// Returns whether questions of others are swallowed here, by whatever interface they come.
pub(super) fn multicast_port_is_silent(seen: &Observations) -> bool {
    let multicast = seen.asked.ports.multicast;
    swallowing(seen, move |port| port == multicast).0
}

pub(super) fn input(seen: &Observations) -> Option<Cause> {
    let ports = seen.asked.ports;
    let (closes_range, by_range) = swallowing(seen, move |port| ports.has(port));
    let (closes_multicast, by_multicast) = swallowing(seen, move |port| port == ports.multicast);
    // Where another interface is open, this one may be meant to be closed.
    let is_harmless = !(closes_range || closes_multicast);
    let mut closed: Vec<&Interface> = Vec::new();
    for (all, interfaces) in [(closes_range, by_range), (closes_multicast, by_multicast)] {
        for interface in interfaces.into_iter().filter(|_| all || is_harmless) {
            if !closed.contains(&interface) {
                closed.push(interface);
            }
        }
    }
    let first = *closed.first()?;
    if is_harmless {
        return Some(Cause {
            is_guess: true,
            is_harmless,
            subject: first.name.clone(),
            text: format!(
                "This machine drops LSL arriving at {}, and not by all its interfaces: right if no \
                 stream is wanted there.",
                names(&closed)
            ),
            seen: example(seen, &closed).into_iter().collect(),
            ..Cause::default()
        });
    }
    let names = names(&closed);
    let mut evidence: Vec<String> = example(seen, &closed).into_iter().collect();
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

/// A datagram that was sent and swallowed.
fn example(seen: &Observations, closed: &[&Interface]) -> Option<String> {
    let silent =
        |it: &&LoopProbe| it.is_silent() && closed.iter().any(|to| to.name == it.interface);
    let it = seen.loopback.iter().flatten().find(silent)?;
    Some(format!(
        "own datagrams to {} port {} by {}, sent {} and heard none",
        it.group, it.port, it.interface, it.sent
    ))
}

/// Returns whether the system refuses to send to groups by an interface, in the family that decides.
fn refuses(seen: &Observations, interface: &Interface) -> bool {
    let by_loop = probes(seen, interface).map(|it| (it.group, it.is_refused()));
    let ways = seen.wave.iter().flat_map(|wave| &wave.ways);
    let by_wave = ways
        .filter(|way| way.kind != WayKind::Host && way.interface.as_ref() == Some(&interface.name))
        .map(|way| (way.to, way.error == Some(SendError::Refused)));
    let tried: Vec<(IpAddr, bool)> = by_loop.chain(by_wave).collect();
    let is_v4 = is_v4(seen, tried.iter().map(|(to, _)| *to));
    tried
        .iter()
        .any(|(to, is_refused)| to.is_ipv4() == is_v4 && *is_refused)
}

pub(super) fn output(seen: &Observations) -> Option<Cause> {
    let closed: Vec<&Interface> = relevant(seen)
        .into_iter()
        .filter(|it| refuses(seen, it))
        .collect();
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

/// A rule of Windows' firewall that blocks this program: no other rule helps.
pub(super) fn blocked_self(seen: &Observations) -> Option<Cause> {
    blocked(seen, |it| it.is_self)
}

/// The same of another program of LSL. That explains nothing of what this one finds, and whether the firewall that
/// has the rule is the one in force, the registry does not say.
pub(super) fn blocked_program(seen: &Observations) -> Option<Cause> {
    let all = &seen.firewall.as_ref()?.windows.as_ref()?.blocked;
    let is_own = |app: &str| all.iter().any(|it| it.is_self && it.app == app);
    blocked(seen, |it| !it.is_self && !is_own(&it.app))
}

fn blocked(seen: &Observations, is_meant: impl Fn(&BlockedProgram) -> bool) -> Option<Cause> {
    let windows = seen.firewall.as_ref()?.windows.as_ref()?;
    let everywhere = |it: &&BlockedProgram| windows.holds_everywhere(&it.profiles);
    let meant = || windows.blocked.iter().filter(|it| is_meant(it));
    let certain = meant().find(everywhere);
    let blocked = certain.or_else(|| meant().next())?;
    let BlockedProgram { program, app, .. } = blocked;
    let elsewhere = if certain.is_some() {
        ""
    } else {
        ", in some of the networks that this machine knows"
    };
    let effect = if blocked.is_tcp_alone {
        "others cannot open its streams"
    } else {
        "it finds no streams by groups, and nobody finds its own"
    };
    Some(Cause {
        is_guess: certain.is_none(),
        // This one offers nothing, and what it searches for comes by UDP.
        is_harmless: certain.is_none() || blocked.is_self && blocked.is_tcp_alone,
        subject: program.name.clone(),
        text: format!(
            "A rule blocks {app} (pid {}), not LSL{elsewhere}: {effect}.",
            program.pid
        ),
        seen: vec![format!(
            "rule \"{}\": Action=Block, Dir=In, active",
            blocked.rule
        )],
        remedies: vec![remedy::unblock(seen, blocked)],
        ..Cause::default()
    })
}

/// Windows drops answers of single machines to questions to groups.
pub(super) fn no_answers(seen: &Observations) -> Option<Cause> {
    let windows = seen.firewall.as_ref()?.windows.as_ref()?;
    let is_certain = windows.holds_everywhere(&windows.answers_refused);
    is_certain.then(|| Cause {
        subject: "answers to groups".into(),
        text: "Windows drops the answers to questions to groups (DisableUnicastResponsesToMulticastBroadcast): streams \
               of other machines are not found."
            .into(),
        remedies: vec![remedy::open_input(seen, &[])],
        ..Cause::default()
    })
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
    let ranges = ports.udp();
    let ranges: Vec<String> = ranges.iter().map(|it| remedy::span(*it, '-')).collect();
    ranges.join(", ")
}
