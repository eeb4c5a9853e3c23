//! Addresses and ports of a stream, per address family. Spec: lsl-protocol §2.4.

use std::borrow::Cow;

use super::StreamInfo;

/// Address and ports of one family as the info has them; any part may be missing.
#[derive(Debug, Clone, Default)]
pub(super) struct Family {
    pub(super) address: Vec<u8>,
    pub(super) data_port: u16,
    pub(super) service_port: u16,
}

impl Family {
    fn endpoint(&self) -> Option<Endpoint<'_>> {
        let usable = !self.address.is_empty() && self.data_port != 0 && self.service_port != 0;
        usable.then(|| Endpoint {
            address: String::from_utf8_lossy(&self.address),
            data_port: self.data_port,
            service_port: self.service_port,
        })
    }
}

/// Usable address of a stream: address text and both ports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint<'a> {
    /// Address as text, not validated; IPv6 link-local addresses carry their `%scope`.
    pub address: Cow<'a, str>,
    /// TCP port of the stream and the infos.
    pub data_port: u16,
    /// UDP port of the clock.
    pub service_port: u16,
}

impl StreamInfo {
    /// Returns the IPv4 address of the serving host; empty until a receiver filled it in.
    pub fn v4_address(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.fields.v4.address)
    }

    /// Returns the IPv4 address, as it was received.
    pub fn v4_address_bytes(&self) -> &[u8] {
        &self.fields.v4.address
    }

    /// Returns the TCP port over IPv4; 0 if there is none.
    pub fn v4_data_port(&self) -> u16 {
        self.fields.v4.data_port
    }

    /// Returns the UDP port over IPv4; 0 if there is none.
    pub fn v4_service_port(&self) -> u16 {
        self.fields.v4.service_port
    }

    /// Returns the IPv6 address of the serving host; empty until a receiver filled it in.
    pub fn v6_address(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.fields.v6.address)
    }

    /// Returns the IPv6 address, as it was received.
    pub fn v6_address_bytes(&self) -> &[u8] {
        &self.fields.v6.address
    }

    /// Returns the TCP port over IPv6; 0 if there is none.
    pub fn v6_data_port(&self) -> u16 {
        self.fields.v6.data_port
    }

    /// Returns the UDP port over IPv6; 0 if there is none.
    pub fn v6_service_port(&self) -> u16 {
        self.fields.v6.service_port
    }

    /// Returns the IPv4 endpoint, if address and both ports are known.
    pub fn v4_endpoint(&self) -> Option<Endpoint<'_>> {
        self.fields.v4.endpoint()
    }

    /// Returns the IPv6 endpoint, if address and both ports are known.
    pub fn v6_endpoint(&self) -> Option<Endpoint<'_>> {
        self.fields.v6.endpoint()
    }

    /// Returns whether neither family has an endpoint: an info made by hand or read from a file,
    /// which an inlet has to resolve by its content first.
    pub fn is_unresolved(&self) -> bool {
        self.v4_endpoint().is_none() && self.v6_endpoint().is_none()
    }
}
