//! Where an outlet can be reached. Spec: lsl-protocol §2.4.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};

use crate::config::Ipv6Mode;
use crate::{Error, StreamInfo};

/// Addresses of one outlet in one family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Endpoint {
    /// Address that accepts data connections by TCP.
    pub data: SocketAddr,
    /// Address that answers queries and clock probes by UDP.
    pub service: SocketAddr,
    /// Index of the interface that sockets are bound to, if the system would send by another one.
    pub device: Option<u32>,
}

impl Endpoint {
    /// Prefers IPv4, or IPv6 if that was in use. Spec: lsl-protocol §2.4.
    pub(super) fn of(
        info: &StreamInfo,
        is_v6: Option<bool>,
        (ipv6, scope_of): (Ipv6Mode, fn(&str) -> u32),
    ) -> Option<Self> {
        let v4 = || {
            let address = IpAddr::V4(info.v4_address().parse().ok()?);
            let allowed = ipv6 != Ipv6Mode::Force;
            (allowed.then(|| endpoint(address, 0, info.v4_data_port(), info.v4_service_port())))?
        };
        let v6 = || {
            let text = info.v6_address();
            let (address, scope) = text.split_once('%').unwrap_or((&text, ""));
            let address = IpAddr::V6(address.parse().ok()?);
            let allowed = ipv6 != Ipv6Mode::Disable;
            let scope = match scope {
                "" => 0,
                name => (name.parse()).unwrap_or_else(|_| scope_of(name)),
            };
            (allowed
                .then(|| endpoint(address, scope, info.v6_data_port(), info.v6_service_port())))?
        };
        if is_v6 == Some(true) {
            v6().or_else(v4)
        } else {
            v4().or_else(v6)
        }
    }

    /// The outlet of `info` at another address of its host.
    pub(super) fn at(info: &StreamInfo, host: SocketAddr) -> Option<Self> {
        match host {
            SocketAddr::V4(_) => {
                endpoint(host.ip(), 0, info.v4_data_port(), info.v4_service_port())
            }
            SocketAddr::V6(v6) => {
                let (data, service) = (info.v6_data_port(), info.v6_service_port());
                endpoint(host.ip(), v6.scope_id(), data, service)
            }
        }
    }
}

/// Returns whether nobody accepts connections there. What happens after that is no reason to try elsewhere.
pub fn is_unreachable(error: &Error) -> bool {
    match error {
        Error::Timeout { .. } => true,
        Error::Io { source, .. } => matches!(
            source.kind(),
            ErrorKind::ConnectionRefused
                | ErrorKind::HostUnreachable
                | ErrorKind::NetworkUnreachable
                | ErrorKind::TimedOut
                | ErrorKind::AddrNotAvailable
                | ErrorKind::PermissionDenied
        ),
        _ => false,
    }
}

fn endpoint(address: IpAddr, scope: u32, data: u16, service: u16) -> Option<Endpoint> {
    let at = |port| match address {
        IpAddr::V4(_) => SocketAddr::new(address, port),
        IpAddr::V6(address) => SocketAddr::V6(SocketAddrV6::new(address, port, 0, scope)),
    };
    (data != 0 && service != 0).then(|| Endpoint {
        data: at(data),
        service: at(service),
        device: None,
    })
}
