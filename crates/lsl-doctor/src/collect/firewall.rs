//! `fw.read`: what manages the packet filter, and which chains drop something. As root; others learn the manager.

use lsl_core::local_clock;

use super::{command, files, windows};
use crate::firewall::{iptables_chains, manager_of, nft_chains, ufw_is_enabled};
use crate::observe::{Firewall, Manager, PortsInUse};

/// Reads the rules, for so long at most. `None` where this system has none that can be read.
pub(super) fn read(ports: PortsInUse, secs: f64) -> Option<Firewall> {
    match std::env::consts::OS {
        "linux" => Some(linux(local_clock() + secs)),
        "windows" => Some(windows::firewall(ports)),
        _ => None,
    }
}

fn linux(deadline: f64) -> Firewall {
    let nft = command::output(NFT, &["-j", "list", "ruleset"], deadline);
    let mut chains = nft.as_deref().and_then(nft_chains);
    if chains.is_none() {
        let v4 = command::output(IPTABLES, &[], deadline);
        let v6 = command::output(IP6TABLES, &[], deadline);
        chains = v4.map(|text| {
            let mut chains = iptables_chains(&text, "ip");
            chains.extend(iptables_chains(&v6.unwrap_or_default(), "ip6"));
            chains
        });
    }
    let manager = if files::text("/etc/ufw/ufw.conf").is_some_and(|text| ufw_is_enabled(&text)) {
        Manager::Ufw
    } else if command::output(FIREWALLD, &["--state"], deadline)
        .is_some_and(|text| text.trim() == "running")
    {
        let zone =
            command::output(FIREWALLD, &["--get-default-zone"], deadline).unwrap_or_default();
        Manager::Firewalld(zone.trim().to_owned())
    } else {
        chains.as_deref().map(manager_of).unwrap_or_default()
    };
    Firewall {
        manager,
        is_readable: chains.is_some(),
        chains: chains.unwrap_or_default(),
        windows: None,
    }
}

const NFT: &[&str] = &["/usr/sbin/nft", "/sbin/nft", "/usr/bin/nft"];
const IPTABLES: &[&str] = &[
    "/usr/sbin/iptables-save",
    "/sbin/iptables-save",
    "/usr/bin/iptables-save",
];
const IP6TABLES: &[&str] = &[
    "/usr/sbin/ip6tables-save",
    "/sbin/ip6tables-save",
    "/usr/bin/ip6tables-save",
];
const FIREWALLD: &[&str] = &["/usr/bin/firewall-cmd", "/bin/firewall-cmd"];
