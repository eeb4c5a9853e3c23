//! Texts of Linux' `/proc/net`: which sockets there are and what they lost, and which neighbours are known.

use std::net::Ipv4Addr;

/// One line of `/proc/net/udp` or `udp6`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UdpSocket {
    /// Port that it is bound to.
    pub port: u16,
    /// The kernel's number of it, as `/proc/PID/fd` names it.
    pub inode: u64,
    /// Datagrams that it lost for want of room.
    pub drops: u64,
}

/// Reads `/proc/net/udp` or `udp6`. Lines that are none are left out.
pub fn udp_sockets(text: &str) -> Vec<UdpSocket> {
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

/// Reads the hosts of `/proc/net/arp` that answered when they were last asked for.
pub fn neighbours(text: &str) -> Vec<Ipv4Addr> {
    let read = |line: &str| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let flags = fields.get(2)?.strip_prefix("0x")?;
        let is_complete = u32::from_str_radix(flags, 16).ok()? & 2 != 0;
        fields.first()?.parse().ok().filter(|_| is_complete)
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
        let sockets = udp_sockets(text);
        let found: Vec<_> = sockets
            .iter()
            .map(|it| (it.port, it.inode, it.drops))
            .collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn neighbours_are_those_that_answered() {
        let text = "IP address       HW type     Flags       HW address            Mask     Device\n\
            10.50.0.1        0x1         0x2         02:00:00:00:00:01     *        eth0\n\
            10.50.0.9        0x1         0x0         00:00:00:00:00:00     *        eth0\n";
        assert_eq!(neighbours(text), [Ipv4Addr::new(10, 50, 0, 1)]);
    }
}
