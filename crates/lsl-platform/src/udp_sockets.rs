//! UDP sockets of all programs of this host, and what they lost for want of room.

use std::io;

/// A UDP socket, whosever it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UdpSocket {
    /// Port that it is bound to.
    pub port: u16,
    /// The kernel's number of it, as `/proc/PID/fd` names it.
    pub inode: u64,
    /// Datagrams that it lost since it was opened.
    pub drops: u64,
}

/// Lists the sockets of this network namespace, of IPv4 and IPv6. Needs no rights.
///
/// # Errors
/// Those of reading `/proc/net/udp`; on other systems than Linux always `Unsupported`.
pub fn udp_sockets() -> io::Result<Vec<UdpSocket>> {
    if cfg!(not(target_os = "linux")) {
        return Err(io::ErrorKind::Unsupported.into());
    }
    let mut all = parse(&std::fs::read_to_string("/proc/net/udp")?);
    // Without IPv6 there is no such file.
    all.extend(parse(
        &std::fs::read_to_string("/proc/net/udp6").unwrap_or_default(),
    ));
    Ok(all)
}

/// Lines that are none are left out.
fn parse(text: &str) -> Vec<UdpSocket> {
    let read = |line: &str| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let port = fields.get(1)?.rsplit_once(':')?.1;
        Some(UdpSocket {
            port: u16::from_str_radix(port, 16).ok()?,
            inode: fields.get(9)?.parse().ok()?,
            drops: fields.get(12)?.parse().ok()?,
        })
    };
    text.lines().filter_map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_have_ports_and_losses() {
        let text = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops\n\
            1234: 00000000:40BB 00000000:0000 07 00000000:00000000 00:00000000 00000000  1000        0 4711 2 0000000000000000 17\n\
            1235: 00000000000000000000000000000000:40BC 00000000000000000000000000000000:0000 07 00000000:00000000 00:00000000 00000000 0 0 4712 2 0000000000000000 0\n\
            broken\n";
        let expected = [(16571, 4711, 17), (16572, 4712, 0)];
        let sockets = parse(text);
        let found: Vec<_> = sockets
            .iter()
            .map(|it| (it.port, it.inode, it.drops))
            .collect();
        assert_eq!(found, expected);
    }
}
