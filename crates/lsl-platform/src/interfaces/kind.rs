//! What an interface leads to: by what the system says, and by its name where that says nothing. Spec: doctor §2.2.

/// What an interface leads to, in the order in which queries leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A cable.
    Wired,
    /// A wireless network.
    Wifi,
    /// A bridge of other interfaces.
    Bridge,
    /// A network of virtual machines.
    Virtual,
    /// A network of containers, or the end of one.
    Container,
    /// Anything else.
    Other,
    /// A VPN or another way through other networks.
    Tunnel,
    /// This host.
    Loopback,
    /// Part of a bridge, which speaks for it.
    BridgePort,
    /// A direct radio link to single devices.
    PeerToPeer,
}

impl Kind {
    /// Returns what a name means that systems and programs give, ignoring case.
    pub fn of_name(name: &str) -> Self {
        let name = name.to_ascii_lowercase();
        let named = NAMES.iter().find(|(_, prefixes)| {
            let mut prefixes = prefixes.split(' ');
            prefixes.any(|prefix| name.starts_with(prefix))
        });
        named.map_or(Self::Other, |(kind, _)| *kind)
    }

    /// Returns what Linux says of an interface in `/sys/class/net`: its device type and the names of its files.
    #[cfg_attr(
        not(any(target_os = "linux", test)),
        expect(dead_code, reason = "of Linux")
    )]
    pub(super) fn of_facts(name: &str, devtype: Option<&str>, has: impl Fn(&str) -> bool) -> Self {
        let named = Self::of_name(name);
        match devtype {
            _ if has("brport") => Self::BridgePort,
            // Programs have bridges of their own.
            Some("bridge") => match named {
                Self::Container | Self::Virtual => named,
                _ => Self::Bridge,
            },
            Some("wireguard" | "ppp" | "wwan") => Self::Tunnel,
            _ if has("tun_flags") => Self::Tunnel,
            _ if has("wireless") || has("phy80211") || devtype == Some("wlan") => match named {
                Self::PeerToPeer => named,
                _ => Self::Wifi,
            },
            Some("vlan" | "bond") => Self::Wired,
            _ if has("device") => match named {
                Self::Other => Self::Wired,
                _ => named,
            },
            _ => named,
        }
    }

    /// Returns what Windows says of an adapter: its `IfType` and description.
    #[cfg_attr(not(any(windows, test)), expect(dead_code, reason = "of Windows"))]
    pub(super) fn of_adapter(if_type: u32, description: &str, name: &str) -> Self {
        let description = description.to_ascii_lowercase();
        let says = |words: &[&str]| words.iter().any(|word| description.contains(word));
        match if_type {
            24 => Self::Loopback,
            // PPP, virtual and tunnel.
            23 | 53 | 131 => Self::Tunnel,
            _ if says(&["wi-fi direct"]) => Self::PeerToPeer,
            _ if says(&TUNNELS) => Self::Tunnel,
            _ if says(&["hyper-v virtual", "vmware", "virtualbox"]) => Self::Virtual,
            71 => Self::Wifi,
            6 => match Self::of_name(name) {
                Self::Other => Self::Wired,
                named => named,
            },
            _ => Self::of_name(name),
        }
    }
}

/// How names begin; the first that fits counts.
const NAMES: [(Kind, &str); 7] = [
    (Kind::Loopback, "loopback"),
    (Kind::Tunnel, "tun tap wg utun ppp tailscale zt ipsec"),
    (
        Kind::Virtual,
        "virbr vmnet vmenet vboxnet vethernet hyper-v",
    ),
    (
        Kind::Container,
        "docker br- veth cni flannel cali podman lxc",
    ),
    (Kind::PeerToPeer, "awdl llw p2p"),
    (Kind::Wifi, "wl wi-fi"),
    (Kind::Wired, "en eth"),
];

/// Words in the descriptions of adapters that lead into tunnels.
const TUNNELS: [&str; 8] = [
    "tap-",
    "wintun",
    "wireguard",
    "openvpn",
    "vpn",
    "tailscale",
    "zerotier",
    "anyconnect",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        for (name, kind) in [
            ("utun3", Kind::Tunnel),
            ("Tailscale", Kind::Tunnel),
            ("docker0", Kind::Container),
            ("br-0123456789ab", Kind::Container),
            ("veth12", Kind::Container),
            ("vEthernet (Default Switch)", Kind::Virtual),
            ("virbr0", Kind::Virtual),
            ("awdl0", Kind::PeerToPeer),
            ("wlp3s0", Kind::Wifi),
            ("Wi-Fi 2", Kind::Wifi),
            ("en0", Kind::Wired),
            ("Ethernet", Kind::Wired),
            ("br0", Kind::Other),
            ("e0", Kind::Other),
            ("", Kind::Other),
        ] {
            assert_eq!(Kind::of_name(name), kind, "{name}");
        }
    }

    #[test]
    fn facts_of_linux_come_before_names() {
        for (name, devtype, files, kind) in [
            ("enp3s0", None, "device", Kind::Wired),
            ("usb0", None, "device", Kind::Wired),
            ("lab", None, "tun_flags", Kind::Tunnel),
            ("lab", Some("wireguard"), "", Kind::Tunnel),
            ("lan", Some("wlan"), "device phy80211", Kind::Wifi),
            ("lan", None, "device wireless", Kind::Wifi),
            ("p2p-wlan0-0", Some("wlan"), "phy80211", Kind::PeerToPeer),
            ("eth0", None, "device brport", Kind::BridgePort),
            ("veth7", None, "brport", Kind::BridgePort),
            ("br0", Some("bridge"), "bridge", Kind::Bridge),
            ("docker0", Some("bridge"), "bridge", Kind::Container),
            ("virbr0", Some("bridge"), "bridge", Kind::Virtual),
            ("eth0.7", Some("vlan"), "", Kind::Wired),
            ("eth0", None, "", Kind::Wired),
            ("e0", None, "", Kind::Other),
        ] {
            let has = |file: &str| files.split(' ').any(|other| other == file);
            assert_eq!(Kind::of_facts(name, devtype, has), kind, "{name} {files}");
        }
    }

    #[test]
    fn adapters_of_windows() {
        for (if_type, description, name, kind) in [
            (
                6,
                "Intel(R) Ethernet Connection I219-LM",
                "LAN",
                Kind::Wired,
            ),
            (71, "Intel(R) Wi-Fi 6 AX201", "WLAN", Kind::Wifi),
            (
                71,
                "Microsoft Wi-Fi Direct Virtual Adapter",
                "x",
                Kind::PeerToPeer,
            ),
            (6, "TAP-Windows Adapter V9", "Ethernet 3", Kind::Tunnel),
            (53, "WireGuard Tunnel", "wg0", Kind::Tunnel),
            (
                6,
                "Hyper-V Virtual Ethernet Adapter",
                "vEthernet",
                Kind::Virtual,
            ),
            // The only card of a virtual machine.
            (
                6,
                "Microsoft Hyper-V Network Adapter",
                "Ethernet",
                Kind::Wired,
            ),
            (24, "Software Loopback Interface 1", "x", Kind::Loopback),
            (144, "IEEE 1394", "x", Kind::Other),
        ] {
            assert_eq!(
                Kind::of_adapter(if_type, description, name),
                kind,
                "{description}"
            );
        }
    }
}
