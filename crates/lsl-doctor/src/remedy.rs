//! What to type, and where: texts for each system. Commands are printed and never run. Spec: doctor §3.3
//!
//! Names and addresses that came from the network stand in a command only if they are plain host names or
//! addresses ([`plain`]).

pub mod peers;

use std::net::IpAddr;
use std::path::Path;

use lsl_platform::remedy::{rename, word};
use serde::{Deserialize, Serialize};

pub use crate::observe::Place;
use crate::observe::peers::network;
use crate::observe::{
    BlockedProgram, Chain, Hook, Interface, Kind, Manager, Observations, Os, PortsInUse, Program,
};

/// One way to put a cause right.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remedy {
    /// The machine on which it is typed.
    #[serde(rename = "where")]
    pub place: Place,
    /// The system of that machine.
    pub os: Os,
    /// Whether it takes the rights of root, or of an administrator.
    pub root: bool,
    /// Commands that put it right now, in this order.
    pub run: Vec<String>,
    /// What makes it last, in words or lines, if the commands do not.
    pub lasting: Vec<String>,
    /// What no command does.
    pub advice: String,
}

impl Remedy {
    /// A command of this user, which lasts.
    pub fn command(seen: &Observations, run: String) -> Self {
        Self {
            run: vec![run],
            ..Self::advice(seen, String::new())
        }
    }

    /// What no command does.
    pub fn advice(seen: &Observations, advice: impl Into<String>) -> Self {
        Self {
            place: Place::Here,
            os: seen.os,
            root: false,
            run: Vec::new(),
            lasting: Vec::new(),
            advice: advice.into(),
        }
    }

    fn of_root(seen: &Observations, run: Vec<String>, lasting: Vec<String>) -> Self {
        Self {
            root: true,
            run,
            lasting,
            ..Self::advice(seen, String::new())
        }
    }
}

/// Returns a name or address from the network if it may stand in a command: a host name, an address, nothing else.
pub fn plain(text: &str) -> Option<&str> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | ':');
    let is_plain = !text.starts_with(['-', '.']) && text.len() <= 253 && text.chars().all(is_part);
    (!text.is_empty() && is_plain).then_some(text)
}

/// Opens the ports of LSL to the networks of these interfaces. Spec: doctor §3.3
pub fn open_input(seen: &Observations, interfaces: &[&Interface]) -> Remedy {
    let ports = seen.asked.ports;
    match seen.os {
        Os::Windows => {
            let rule = |name: &str, protocol: &str, ports: &str| {
                format!(
                    "netsh advfirewall firewall add rule name=\"{name}\" dir=in action=allow \
                     protocol={protocol} localport={ports} remoteip=localsubnet"
                )
            };
            let run = protocols(ports).into_iter().map(|(protocol, range)| {
                let protocol = protocol.to_ascii_uppercase();
                rule(&format!("LSL {protocol}"), &protocol, &span(range, '-'))
            });
            Remedy::of_root(seen, run.collect(), Vec::new())
        }
        Os::Macos => {
            let tool = "/usr/libexec/ApplicationFirewall/socketfilterfw";
            let run = vec![
                format!("{tool} --add PROGRAM"),
                format!("{tool} --unblockapp PROGRAM"),
            ];
            Remedy::of_root(seen, run, Vec::new())
        }
        Os::Linux => open_input_on_linux(seen, ports, interfaces),
    }
}

fn open_input_on_linux(
    seen: &Observations,
    ports: PortsInUse,
    interfaces: &[&Interface],
) -> Remedy {
    let (v4, v6) = networks(interfaces);
    let manager = seen.firewall.as_ref().map(|it| &it.manager);
    let protocols = protocols(ports);
    match manager {
        Some(Manager::Ufw) => {
            let from = |net: &String| {
                let net = net.clone();
                protocols.iter().map(move |(protocol, range)| {
                    let ports = span(*range, ':');
                    format!("ufw allow proto {protocol} from {net} to any port {ports}")
                })
            };
            Remedy::of_root(
                seen,
                v4.iter().chain(&v6).flat_map(from).collect(),
                Vec::new(),
            )
        }
        Some(Manager::Firewalld(zone)) => {
            let zone = plain(zone).unwrap_or("public");
            let rule = |family: &'static str, net: &String| {
                let net = net.clone();
                protocols.iter().map(move |(protocol, range)| {
                    let ports = span(*range, '-');
                    format!(
                        "firewall-cmd --permanent --zone={zone} --add-rich-rule='rule family=\"{family}\" \
                         source address=\"{net}\" port port=\"{ports}\" protocol=\"{protocol}\" accept'"
                    )
                })
            };
            let v4 = v4.iter().flat_map(|net| rule("ipv4", net));
            let v6 = v6.iter().flat_map(|net| rule("ipv6", net));
            let reload = std::iter::once("firewall-cmd --reload".to_owned());
            Remedy::of_root(seen, v4.chain(v6).chain(reload).collect(), Vec::new())
        }
        Some(Manager::Iptables) => {
            let rule = |command: &'static str, net: &String| {
                let net = net.clone();
                protocols.iter().map(move |(protocol, range)| {
                    let ports = span(*range, ':');
                    format!("{command} -I INPUT -s {net} -p {protocol} --dport {ports} -j ACCEPT")
                })
            };
            let v4 = v4.iter().flat_map(|net| rule("iptables", net));
            let v6 = v6.iter().flat_map(|net| rule("ip6tables", net));
            let lasting = vec!["netfilter-persistent save".to_owned()];
            Remedy::of_root(seen, v4.chain(v6).collect(), lasting)
        }
        _ => {
            let matches = |family: &str, nets: &[String]| {
                let source = format!("{family} saddr {}", set(nets));
                let known = protocols.iter().filter(|_| !nets.is_empty());
                let rules = known.map(|(protocol, range)| {
                    format!("{source} {protocol} dport {} accept", span(*range, '-'))
                });
                rules.collect::<Vec<_>>()
            };
            insert(seen, Hook::Input, &matches("ip", &v4), &matches("ip6", &v6))
        }
    }
}

/// Takes away the rules of Windows' firewall that block a program, which no Allow rule does.
pub fn unblock(seen: &Observations, blocked: &BlockedProgram) -> Remedy {
    if blocked.is_of_policy {
        return Remedy::advice(
            seen,
            "a group policy has this rule: whoever administers this machine has to take it out",
        );
    }
    // Any of these ends a string of PowerShell, and stands for itself if it is there twice.
    let is_quote = |c: char| matches!(c, '\'' | '\u{2018}'..='\u{201b}');
    let twice = |c: char| std::iter::repeat_n(c, if is_quote(c) { 2 } else { 1 });
    let program: String = blocked.app.chars().flat_map(twice).collect();
    let run = format!(
        "Get-NetFirewallApplicationFilter -Program '{program}' | Get-NetFirewallRule | ? {{$_.Direction -eq 'Inbound' -and \
         $_.Action -eq 'Block'}} | Disable-NetFirewallRule"
    );
    Remedy {
        advice: "in PowerShell".to_owned(),
        ..Remedy::of_root(seen, vec![run], Vec::new())
    }
}

/// Lets questions to groups and answers out of these interfaces.
pub fn open_output(seen: &Observations, interfaces: &[&Interface]) -> Remedy {
    if seen.os != Os::Linux {
        let ports = seen.asked.ports;
        return match seen.os {
            Os::Windows => Remedy::of_root(
                seen,
                ports
                    .udp()
                    .into_iter()
                    .map(|range| {
                        format!(
                            "netsh advfirewall firewall add rule name=\"LSL out\" dir=out \
                             action=allow protocol=UDP remoteport={}",
                            span(range, '-')
                        )
                    })
                    .collect(),
                Vec::new(),
            ),
            _ => Remedy::advice(
                seen,
                "allow the local network in the program that filters, such as a VPN's",
            ),
        };
    }
    let (mut rules, mut rules6) = (Vec::new(), Vec::new());
    for interface in interfaces {
        let Some(name) = plain(&interface.name) else {
            continue;
        };
        let (mut v4, mut v6) = networks(&[interface]);
        v4.extend(["224.0.0.0/4", "255.255.255.255"].map(str::to_owned));
        v6.push("ff00::/8".to_owned());
        rules.push(format!("oifname \"{name}\" ip daddr {} accept", set(&v4)));
        rules6.push(format!("oifname \"{name}\" ip6 daddr {} accept", set(&v6)));
    }
    let mut remedy = insert(seen, Hook::Output, &rules, &rules6);
    let tunnels = seen.interfaces.iter().flatten();
    if tunnels
        .filter(|it| it.is_up)
        .any(|it| it.kind == Kind::Tunnel)
    {
        "or allow the local network in the VPN's program".clone_into(&mut remedy.advice);
    }
    remedy
}

/// Puts rules at the head of each chain of nftables that drops.
fn insert(seen: &Observations, hook: Hook, v4: &[String], v6: &[String]) -> Remedy {
    let firewall = seen.firewall.clone().unwrap_or_default();
    if !firewall.is_readable {
        return Remedy::advice(
            seen,
            "run `sudo lsl doctor` once: root can read the rules, and is told which chain to change",
        );
    }
    let chains: Vec<&Chain> = firewall
        .chains
        .iter()
        .filter(|it| it.hook == hook)
        .collect();
    if chains.is_empty() {
        return Remedy::advice(
            seen,
            "no chain of nftables drops it: look at iptables-legacy, filters of cgroups and eBPF",
        );
    }
    let rules = |chain: &Chain| {
        let v4 = v4.iter().filter(|_| chain.family != "ip6");
        let v6 = v6.iter().filter(|_| chain.family != "ip");
        v4.chain(v6).cloned().collect::<Vec<_>>()
    };
    let mut run = Vec::new();
    let mut lasting = Vec::new();
    for chain in chains {
        let place = format!("{} {} {}", chain.family, chain.table, chain.name);
        let lines = rules(chain);
        run.extend(
            lines
                .iter()
                .map(|line| format!("nft {}", word_unless_plain(&place, line))),
        );
        lasting.push(format!(
            "the same rules in /etc/nftables.conf, at the head of {place}"
        ));
    }
    Remedy::of_root(seen, run, lasting)
}

/// Returns `insert rule PLACE RULE`, quoted as a whole where a shell would see more in it than words.
fn word_unless_plain(place: &str, rule: &str) -> String {
    let command = format!("insert rule {place} {rule}");
    if command.contains(['{', '"']) {
        word(&command)
    } else {
        command
    }
}

/// Sets a key in the file in use.
pub fn set_key(seen: &Observations, key: &str, value: &str) -> Remedy {
    Remedy::command(seen, format!("lsl config set {key} {}", word(value)))
}

/// Takes a key back to its default.
pub fn remove_key(seen: &Observations, key: &str) -> Remedy {
    Remedy::command(seen, format!("lsl config remove {key}"))
}

/// Asks a host directly from now on.
pub fn known_peer(seen: &Observations, host: &str) -> Remedy {
    let host = plain(host).unwrap_or("HOST");
    Remedy::command(seen, format!("lsl config add lab.KnownPeers {host}"))
}

/// Gives a file another name.
pub fn move_file(seen: &Observations, from: &Path, to: &Path) -> Remedy {
    Remedy::command(seen, rename(from, to))
}

/// Ends a program.
pub fn end(seen: &Observations, program: Option<&Program>) -> Remedy {
    let again = "then start the programs again that offer streams";
    match program {
        Some(program) => Remedy {
            run: vec![match seen.os {
                Os::Windows => format!("taskkill /pid {}", program.pid),
                _ => format!("kill {}", program.pid),
            }],
            advice: again.to_owned(),
            ..Remedy::advice(seen, "")
        },
        None => Remedy::advice(
            seen,
            format!("end the program that holds it (as root, `lsl doctor` names it), {again}"),
        ),
    }
}

/// Gives sockets more room.
pub fn more_room(seen: &Observations) -> Remedy {
    let run = "sysctl -w net.core.rmem_max=4194304 net.core.rmem_default=1048576".to_owned();
    let lasting = "the same two settings in /etc/sysctl.d/60-lsl.conf".to_owned();
    match seen.os {
        Os::Linux => Remedy::of_root(seen, vec![run], vec![lasting]),
        _ => Remedy::advice(seen, "ask for fewer streams at a time"),
    }
}

/// What LSL needs: each range of ports with its protocol.
fn protocols(ports: PortsInUse) -> Vec<(&'static str, (u16, u16))> {
    let udp = ports.udp().into_iter().map(|range| ("udp", range));
    udp.chain([("tcp", (ports.base, ports.last()))]).collect()
}

/// A range of ports as a manager writes it, or the one port.
pub(crate) fn span((first, last): (u16, u16), separator: char) -> String {
    if first == last {
        first.to_string()
    } else {
        format!("{first}{separator}{last}")
    }
}

/// Networks of IPv4 and IPv6, the link-local one included, without repeats.
fn networks(interfaces: &[&Interface]) -> (Vec<String>, Vec<String>) {
    let mut v4 = Vec::new();
    let mut v6 = vec!["fe80::/10".to_owned()];
    for (address, length) in interfaces.iter().flat_map(|it| &it.addresses) {
        let list = match address {
            IpAddr::V4(_) => &mut v4,
            IpAddr::V6(address) if address.is_unicast_link_local() => continue,
            IpAddr::V6(_) => &mut v6,
        };
        let net = format!("{}/{length}", network(*address, *length));
        if !list.contains(&net) {
            list.push(net);
        }
    }
    (v4, v6)
}

/// One or several networks as nft writes them.
fn set(nets: &[String]) -> String {
    match nets {
        [net] => net.clone(),
        nets => format!("{{ {} }}", nets.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::Firewall;

    #[test]
    fn only_plain_names_stand_in_commands() {
        for text in ["amp-pc", "10.50.0.1", "fe80::1", "amp.local"] {
            assert_eq!(plain(text), Some(text));
        }
        for text in ["", "-rf", "a b", "$(reboot)", "a;b", "a'b", "ä", ".."] {
            assert_eq!(plain(text), None, "{text}");
        }
        let seen = Observations::default();
        assert_eq!(
            known_peer(&seen, "`x`").run,
            ["lsl config add lab.KnownPeers HOST"]
        );
        assert_eq!(
            set_key(&seen, "lab.SessionID", "a b").run,
            ["lsl config set lab.SessionID 'a b'"]
        );
    }

    fn seen(os: Os, manager: Manager, chains: &[(&str, Hook)]) -> Observations {
        let chain = |&(family, hook): &(&str, Hook)| Chain {
            family: family.into(),
            table: "filter".into(),
            name: "c".into(),
            hook,
            drops_by_policy: true,
        };
        Observations {
            os,
            firewall: Some(Firewall {
                manager,
                is_readable: true,
                chains: chains.iter().map(chain).collect(),
                ..Firewall::default()
            }),
            ..Observations::default()
        }
    }

    fn eth() -> Interface {
        Interface {
            name: "eth0".into(),
            addresses: vec![
                ("10.50.0.2".parse().unwrap(), 24),
                ("fe80::2".parse().unwrap(), 64),
            ],
            ..Interface::default()
        }
    }

    #[test]
    fn a_path_stays_within_its_quotes() {
        let blocked = |is_of_policy| BlockedProgram {
            program: Program::default(),
            app: "C:\\it\u{2019}s 'x'.exe".into(),
            rule: String::new(),
            profiles: [].into(),
            is_self: false,
            is_tcp_alone: false,
            is_of_policy,
        };
        let seen = Observations::default();
        let run = &unblock(&seen, &blocked(false)).run[0];
        assert!(
            run.contains("'C:\\it\u{2019}\u{2019}s ''x''.exe' |"),
            "{run}"
        );
        assert!(unblock(&seen, &blocked(true)).run.is_empty());
    }

    #[test]
    fn each_system_and_manager_has_its_words() {
        let eth = eth();
        let check = |seen: Observations, expected: &[&str]| {
            let remedy = open_input(&seen, &[&eth]);
            assert_eq!(remedy.run, expected);
            assert!(remedy.root);
        };
        check(
            seen(
                Os::Linux,
                Manager::Nftables,
                &[
                    ("ip", Hook::Input),
                    ("ip6", Hook::Input),
                    ("ip", Hook::Output),
                ],
            ),
            &[
                "nft insert rule ip filter c ip saddr 10.50.0.0/24 udp dport 16571-16603 accept",
                "nft insert rule ip filter c ip saddr 10.50.0.0/24 tcp dport 16572-16603 accept",
                "nft insert rule ip6 filter c ip6 saddr fe80::/10 udp dport 16571-16603 accept",
                "nft insert rule ip6 filter c ip6 saddr fe80::/10 tcp dport 16572-16603 accept",
            ],
        );
        check(
            seen(Os::Linux, Manager::Ufw, &[]),
            &[
                "ufw allow proto udp from 10.50.0.0/24 to any port 16571:16603",
                "ufw allow proto tcp from 10.50.0.0/24 to any port 16572:16603",
                "ufw allow proto udp from fe80::/10 to any port 16571:16603",
                "ufw allow proto tcp from fe80::/10 to any port 16572:16603",
            ],
        );
        check(
            seen(Os::Linux, Manager::Firewalld("home".into()), &[]),
            &[
                r#"firewall-cmd --permanent --zone=home --add-rich-rule='rule family="ipv4" source address="10.50.0.0/24" port port="16571-16603" protocol="udp" accept'"#,
                r#"firewall-cmd --permanent --zone=home --add-rich-rule='rule family="ipv4" source address="10.50.0.0/24" port port="16572-16603" protocol="tcp" accept'"#,
                r#"firewall-cmd --permanent --zone=home --add-rich-rule='rule family="ipv6" source address="fe80::/10" port port="16571-16603" protocol="udp" accept'"#,
                r#"firewall-cmd --permanent --zone=home --add-rich-rule='rule family="ipv6" source address="fe80::/10" port port="16572-16603" protocol="tcp" accept'"#,
                "firewall-cmd --reload",
            ],
        );
        // Without an address of IPv4 nothing of IPv4 is opened.
        let chains = [("inet", Hook::Input)];
        let v6_only = open_input(&seen(Os::Linux, Manager::Nftables, &chains), &[]);
        assert_eq!(
            v6_only.run,
            [
                "nft insert rule inet filter c ip6 saddr fe80::/10 udp dport 16571-16603 accept",
                "nft insert rule inet filter c ip6 saddr fe80::/10 tcp dport 16572-16603 accept",
            ]
        );
        let iptables = open_input(&seen(Os::Linux, Manager::Iptables, &[]), &[&eth]);
        assert_eq!(
            iptables.run.first().unwrap(),
            "iptables -I INPUT -s 10.50.0.0/24 -p udp --dport 16571:16603 -j ACCEPT"
        );
        let windows = open_input(&seen(Os::Windows, Manager::Windows, &[]), &[&eth]);
        assert!(
            windows
                .run
                .first()
                .unwrap()
                .starts_with("netsh advfirewall")
        );
        let out = open_output(
            &seen(Os::Linux, Manager::Nftables, &[("inet", Hook::Output)]),
            &[&eth],
        );
        assert_eq!(
            out.run.first().unwrap(),
            "nft 'insert rule inet filter c oifname \"eth0\" ip daddr { 10.50.0.0/24, 224.0.0.0/4, \
             255.255.255.255 } accept'"
        );
        let unreadable = Observations::default();
        assert!(
            open_input(&unreadable, &[&eth])
                .advice
                .contains("sudo lsl doctor")
        );
    }

    /// Ports between the multicast port and the range belong to others.
    #[test]
    fn nothing_else_is_opened() {
        let eth = eth();
        let apart = |os, manager, chains: &[(&str, Hook)]| {
            let mut seen = seen(os, manager, chains);
            (seen.asked.ports.multicast, seen.asked.ports.base) = (1900, 16572);
            open_input(&seen, &[&eth]).run
        };
        let nft = apart(Os::Linux, Manager::Nftables, &[("ip", Hook::Input)]);
        let rule = |ports: &str| {
            format!("nft insert rule ip filter c ip saddr 10.50.0.0/24 {ports} accept")
        };
        assert_eq!(
            nft,
            [
                "udp dport 1900",
                "udp dport 16572-16603",
                "tcp dport 16572-16603"
            ]
            .map(rule)
        );
        let firewalld = apart(Os::Linux, Manager::Firewalld("home".into()), &[]);
        for ports in ["\"1900\"", "\"16572-16603\""] {
            let port = format!("port port={ports} protocol=\"udp\"");
            assert!(firewalld.concat().contains(&port), "{firewalld:?}");
        }
        for (os, manager) in [
            (Os::Linux, Manager::Ufw),
            (Os::Linux, Manager::Iptables),
            (Os::Windows, Manager::Windows),
        ] {
            let run = apart(os, manager, &[]);
            assert!(
                run.iter()
                    .all(|it| !it.contains("1900:") && !it.contains("1900-")),
                "{run:?}"
            );
            assert!(run.iter().any(|it| it.contains("1900")), "{run:?}");
        }
    }
}
