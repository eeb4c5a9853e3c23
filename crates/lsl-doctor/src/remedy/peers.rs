//! What to type where other machines, or the way to them, are the cause. Spec: doctor §3.3

use super::{Place, Remedy, known_peer, plain, span};
use crate::observe::peers::{WireSeen, network};
use crate::observe::{Interface, Kind, Observations, Os, PortsInUse};

/// What to do at the other machine, in words.
pub fn there(seen: &Observations, advice: impl Into<String>) -> Remedy {
    Remedy {
        place: Place::There,
        ..Remedy::advice(seen, advice)
    }
}

/// From where the other machine is asked: the network that both are in, else this machine alone.
fn source(seen: &Observations, link: Option<&str>) -> Option<String> {
    let all = || seen.interfaces.iter().flatten();
    let v4 = |it: &Interface| it.addresses.iter().copied().find(|(it, _)| it.is_ipv4());
    if let Some(link) = link {
        let (own, length) = v4(all().find(|it| it.name == link)?)?;
        return Some(format!("{}/{length}", network(own, length)));
    }
    let leads_out = |it: &&Interface| it.is_up && it.kind == Kind::Other;
    let (own, _) = all().filter(leads_out).find_map(v4)?;
    Some(own.to_string())
}

/// Opens the ports of LSL at the other machine, whose system is not known.
pub fn open_there(seen: &Observations, link: Option<&str>, protocols: &[&str]) -> Remedy {
    open_range(seen, link, protocols, PortsInUse::default())
}

fn open_range(
    seen: &Observations,
    link: Option<&str>,
    protocols: &[&str],
    ports: PortsInUse,
) -> Remedy {
    let from = source(seen, link);
    let range = |protocol: &str| match protocol {
        "udp" => (ports.multicast, ports.last()),
        _ => (ports.base, ports.last()),
    };
    let run = protocols.iter().map(|protocol| {
        let range = span(range(protocol), '-');
        let from = from.as_ref().map(|it| format!("ip saddr {it} "));
        let from = from.unwrap_or_default();
        format!("nft insert rule inet filter input {from}{protocol} dport {range} accept")
    });
    let ufw = protocols.iter().map(|protocol| {
        let (range, from) = (span(range(protocol), ':'), from.as_deref().unwrap_or("any"));
        format!("`ufw allow proto {protocol} from {from} to any port {range}`")
    });
    let ufw: Vec<String> = ufw.collect();
    Remedy {
        place: Place::There,
        advice: format!(
            "with ufw: {}; `sudo lsl doctor` there names its chain or manager, on other systems, too",
            ufw.join(" and ")
        ),
        ..Remedy::of_root(seen, run.collect(), Vec::new())
    }
}

/// Gives more streams a port that a filter can know, and lets them in.
pub fn wider_range(seen: &Observations, link: Option<&str>) -> Remedy {
    let ports = PortsInUse {
        count: 128,
        ..PortsInUse::default()
    };
    let open = open_range(seen, link, &["udp", "tcp"], ports);
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
    let net = source(seen, Some(link)).unwrap_or_else(|| "NET".into());
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
