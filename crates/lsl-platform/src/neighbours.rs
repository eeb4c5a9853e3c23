//! Hosts on the same link, as the system remembers having asked for them (IPv4).

use std::io;
use std::net::Ipv4Addr;

/// A host that the system looked for on a link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Neighbour {
    /// Address that was asked for.
    pub address: Ipv4Addr,
    /// Whether somebody answered.
    pub is_complete: bool,
    /// Name of the interface that leads to the link.
    pub interface: String,
}

/// Lists the neighbours that the system knows, or lately looked for in vain.
///
/// # Errors
/// Those of reading `/proc/net/arp`; on other systems than Linux always `Unsupported`.
pub fn neighbours() -> io::Result<Vec<Neighbour>> {
    if cfg!(not(target_os = "linux")) {
        return Err(io::ErrorKind::Unsupported.into());
    }
    Ok(parse(&std::fs::read_to_string("/proc/net/arp")?))
}

/// Lines that are none are left out.
fn parse(text: &str) -> Vec<Neighbour> {
    let read = |line: &str| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let flags = fields.get(2)?.strip_prefix("0x")?;
        Some(Neighbour {
            address: fields.first()?.parse().ok()?,
            is_complete: u32::from_str_radix(flags, 16).ok()? & ATF_COM != 0,
            interface: (*fields.get(5)?).to_owned(),
        })
    };
    text.lines().filter_map(read).collect()
}

const ATF_COM: u32 = 0x2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_answered_or_did_not() {
        let text = "IP address       HW type     Flags       HW address            Mask     Device\n\
            10.50.0.1        0x1         0x2         02:00:00:00:00:01     *        eth0\n\
            10.50.0.9        0x1         0x0         00:00:00:00:00:00     *        eth0\n";
        let found = parse(text);
        let found: Vec<_> = found
            .iter()
            .map(|it| (it.address.octets()[3], it.is_complete, &*it.interface))
            .collect();
        assert_eq!(found, [(1, true, "eth0"), (9, false, "eth0")]);
    }
}
