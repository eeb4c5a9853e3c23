//! What to type where other machines, or the way to them, are the cause. Spec: doctor §3.3

use std::net::IpAddr;

use super::{Place, Remedy, known_peer, networks, plain, set, span, word_unless_plain};
use crate::observe::peers::{PeerSeen, WireSeen};
use crate::observe::{Kind, Observations, Os, PortsInUse};

/// What to do at the other machine, in words.
pub fn there(seen: &Observations, advice: impl Into<String>) -> Remedy {
    Remedy {
        place: Place::There,
        ..Remedy::advice(seen, advice)
    }
}

/// From where the other machine is asked, as a filter names it: the networks that both are in, else this machine alone.
fn sources(seen: &Observations, host: &PeerSeen) -> (&'static str, Vec<String>) {
    let all = || seen.interfaces.iter().flatten();
    let is_v6 = host.address.is_some_and(|it| it.is_ipv6());
    let link = host.on_link.as_ref();
    let (v4, v6) = match link.map(|link| all().find(|it| it.name == *link)) {
        Some(Some(link)) => networks(&[link]),
        Some(None) => Default::default(),
        None => {
            let leads_out = all().filter(|it| it.is_up && it.kind == Kind::Other);
            let own = leads_out.flat_map(|it| &it.addresses).map(|(own, _)| *own);
            let own = own.filter(|it| !is_of_link(*it));
            let (v4, v6): (Vec<IpAddr>, Vec<IpAddr>) = own.partition(IpAddr::is_ipv4);
            let first = |all: Vec<IpAddr>| all.iter().take(1).map(ToString::to_string).collect();
            (first(v4), first(v6))
        }
    };
    if is_v6 || v4.is_empty() && host.address.is_none() {
        ("ip6", v6)
    } else {
        ("ip", v4)
    }
}

fn is_of_link(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if address.is_unicast_link_local())
}

/// Opens the ports of LSL at the other machine, whose system is not known.
pub fn open_there(seen: &Observations, host: &PeerSeen, protocols: &[&str]) -> Remedy {
    open_range(seen, host, protocols, PortsInUse::default())
}

fn open_range(
    seen: &Observations,
    host: &PeerSeen,
    protocols: &[&str],
    ports: PortsInUse,
) -> Remedy {
    let (family, from) = sources(seen, host);
    let range = |protocol: &str| match protocol {
        "udp" => (ports.multicast, ports.last()),
        _ => (ports.base, ports.last()),
    };
    let names = "`sudo lsl doctor` there names its chain or manager, on other systems, too";
    // Rules for everybody would be worse than none.
    if from.is_empty() {
        let opened = protocols.iter().map(|protocol| {
            let range = span(range(protocol), '-');
            format!("{} {range}", protocol.to_ascii_uppercase())
        });
        let opened: Vec<String> = opened.collect();
        let opened = opened.join(" and ");
        return there(
            seen,
            format!("let {opened} in from this machine's network; {names}"),
        );
    }
    let run = protocols.iter().map(|protocol| {
        let range = span(range(protocol), '-');
        let rule = format!(
            "{family} saddr {} {protocol} dport {range} accept",
            set(&from)
        );
        format!("nft {}", word_unless_plain("inet filter input", &rule))
    });
    let ufw = protocols.iter().flat_map(|protocol| {
        let range = span(range(protocol), ':');
        let rule =
            move |from| format!("`ufw allow proto {protocol} from {from} to any port {range}`");
        from.iter().map(rule)
    });
    let ufw: Vec<String> = ufw.collect();
    Remedy {
        place: Place::There,
        advice: format!("with ufw: {}; {names}", ufw.join(" and ")),
        ..Remedy::of_root(seen, run.collect(), Vec::new())
    }
}

/// Gives more streams a port that a filter can know, and lets them in.
pub fn wider_range(seen: &Observations, host: &PeerSeen) -> Remedy {
    let ports = PortsInUse {
        count: 128,
        ..PortsInUse::default()
    };
    let open = open_range(seen, host, &["udp", "tcp"], ports);
    let set = format!("lsl config set ports.PortRange {}", ports.count);
    Remedy {
        run: [vec![set], open.run].concat(),
        advice: format!(
            "start the programs there again that offer streams; {}",
            open.advice
        ),
        ..open
    }
}

/// Takes a rule away that is about one program.
pub fn unblock_program(seen: &Observations) -> Remedy {
    there(
        seen,
        "`sudo lsl doctor` there names the chain. On Windows a Block rule beats every Allow; as administrator: \
         Get-NetFirewallApplicationFilter -Program \"EXE\" | Get-NetFirewallRule | ? {$_.Direction -eq 'Inbound' -and \
         $_.Action -eq 'Block'} | Disable-NetFirewallRule",
    )
}

/// Asks a host directly, by TCP too.
pub fn known_peer_by_tcp(seen: &Observations, host: &str) -> Remedy {
    let mut remedy = known_peer(seen, host);
    remedy
        .run
        .push("lsl config set lab.ResolveOverTCP 1".into());
    remedy
}

/// Leads the way to a network around a tunnel.
pub fn route_around(seen: &Observations, link: &str) -> Remedy {
    let mut all = seen.interfaces.iter().flatten();
    let nets = all.find(|it| it.name == link).map(|it| networks(&[it]).0);
    let net = nets.into_iter().flatten().next();
    let net = net.unwrap_or_else(|| "NET".into());
    let link = plain(link).unwrap_or("IF");
    let run = match seen.os {
        Os::Linux => format!("ip rule add pref 99 to {net} lookup main"),
        Os::Macos => format!("route add -net {net} -interface {link}"),
        Os::Windows => {
            let advice = format!("allow the local network {net} in the VPN's program");
            return Remedy::advice(seen, advice);
        }
    };
    Remedy {
        advice: "or allow the local network in the VPN's program, which makes it last".into(),
        ..Remedy::of_root(seen, vec![run], Vec::new())
    }
}

/// Gives this machine an address in the other network of its wire.
pub fn add_address(seen: &Observations, wire: &WireSeen) -> Remedy {
    let name = plain(&wire.interface).unwrap_or("IF");
    let last = "give all machines addresses of one network, best by one DHCP server";
    let Some(free) = wire.free else {
        return Remedy::advice(seen, last);
    };
    let run = match seen.os {
        Os::Linux => format!("ip address add {free}/24 dev {name}"),
        Os::Macos => format!("ifconfig {name} alias {free} 255.255.255.0"),
        Os::Windows => format!("netsh interface ipv4 add address \"{name}\" {free} 255.255.255.0"),
    };
    Remedy::of_root(seen, vec![run], vec![last.into()])
}

/// Lets clients of an access point see each other, or goes around it.
pub fn no_isolation(seen: &Observations) -> Remedy {
    Remedy::advice(
        seen,
        "switch off client isolation (AP isolation, private VLAN), use a cable, or run `lsl relay` on a wired machine \
         and `lsl config add lab.Relay` with its address on both",
    )
}

/// Makes packets as short as the path takes.
pub fn shorter_packets(seen: &Observations, interface: Option<&str>, bytes: u16) -> Remedy {
    let name = interface.and_then(plain).unwrap_or("IF");
    let run = match seen.os {
        Os::Linux => format!("ip link set dev {name} mtu {bytes}"),
        Os::Macos => format!("ifconfig {name} mtu {bytes}"),
        Os::Windows => format!("netsh interface ipv4 set subinterface \"{name}\" mtu={bytes}"),
    };
    let lasting =
        "the MTU in the settings of this network; better, whoever runs it lets ICMP through";
    Remedy::of_root(seen, vec![run], vec![lasting.into()])
}

/// What helps where datagrams get lost or late.
pub fn better_network(seen: &Observations) -> Remedy {
    Remedy::advice(
        seen,
        "use a cable, fewer streams at a time, or another network",
    )
}

/// Makes a container part of its host's network.
pub fn of_containers(seen: &Observations) -> Remedy {
    let ports = PortsInUse::default();
    let range = format!("{}-{}", ports.base, ports.last());
    Remedy::advice(
        seen,
        format!(
            "or start the container with --network host; to be found in it, publish both: -p {range}:{range}/udp -p \
             {range}:{range}/tcp"
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::Interface;

    /// Whoever is let in there: the network of both, this machine, and never everybody.
    #[test]
    fn nothing_is_opened_to_everybody() {
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        let interface = |own: &[(&str, u8)]| Interface {
            name: "eth0".into(),
            is_up: true,
            addresses: own
                .iter()
                .map(|(it, length)| (address(it), *length))
                .collect(),
            ..Interface::default()
        };
        let v4 = ("10.50.0.2", 24);
        let (link, v6) = (("fe80::2", 64), ("fd50::2", 64));
        for (own, host, is_on_link, expected) in [
            (&[v4, link][..], "10.50.0.1", true, "ip saddr 10.50.0.0/24 "),
            (&[v4, link], "fe80::1", true, "ip6 saddr fe80::/10 "),
            (&[v4, link], "10.9.0.1", false, "ip saddr 10.50.0.2 "),
            (&[link], "fe80::1", true, "ip6 saddr fe80::/10 "),
            (
                &[link, v6],
                "fd50::1",
                true,
                "ip6 saddr { fe80::/10, fd50::/64 } ",
            ),
            (&[link, v6], "fd51::1", false, "ip6 saddr fd50::2 "),
            (&[link], "fd51::1", false, ""),
            (&[link, v6], "10.50.0.1", false, ""),
            (&[], "10.50.0.1", true, ""),
        ] {
            let seen = Observations {
                interfaces: Some(vec![interface(own)]),
                ..Observations::default()
            };
            let host = PeerSeen {
                address: Some(address(host)),
                on_link: is_on_link.then(|| "eth0".into()),
                ..PeerSeen::default()
            };
            for remedy in [
                open_there(&seen, &host, &["udp"]),
                wider_range(&seen, &host),
            ] {
                let rules = remedy.run.iter().filter(|it| it.starts_with("nft"));
                assert_eq!(
                    rules.clone().count() == 0,
                    expected.is_empty(),
                    "{remedy:?}"
                );
                assert!(
                    rules.into_iter().all(|it| it.contains(expected)),
                    "{remedy:?}"
                );
                assert!(!remedy.advice.contains("from any"), "{remedy:?}");
            }
        }
    }
}
