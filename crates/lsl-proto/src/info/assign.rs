//! Setters for outlets and receivers. Outlets change field and document alike, so that both agree
//! with the announcement; receivers change fields only. Spec: lsl-protocol §2.4.

use super::StreamInfo;
use super::shortinfo::version_text;
use crate::text::format_g16;
use crate::xml::NodeKind;

impl StreamInfo {
    /// Sets the identity, in field and document. An outlet replaces it with one of its own.
    pub fn reset_uid(&mut self, uid: &str) {
        self.fields.uid = uid.as_bytes().to_vec();
        self.mirror("uid", uid.as_bytes().to_vec());
    }
}

// For the crates of this workspace; hidden because `lsl-core` exports this type.
#[doc(hidden)]
impl StreamInfo {
    /// Sets the creation time, in seconds of `local_clock`.
    pub fn set_created_at(&mut self, created_at: f64) {
        self.fields.created_at = created_at;
        self.mirror("created_at", format_g16(created_at));
    }

    /// Sets the protocol version, times 100.
    pub fn set_version(&mut self, version: u32) {
        self.fields.version = version;
        self.mirror("version", version_text(version));
    }

    pub fn set_session_id(&mut self, session_id: impl Into<Vec<u8>>) {
        self.fields.session_id = session_id.into();
        self.mirror("session_id", self.fields.session_id.clone());
    }

    pub fn set_hostname(&mut self, hostname: impl Into<Vec<u8>>) {
        self.fields.hostname = hostname.into();
        self.mirror("hostname", self.fields.hostname.clone());
    }

    /// Sets the outlet's ports over IPv4; 0 if the family is not served.
    pub fn set_v4_ports(&mut self, data_port: u16, service_port: u16) {
        self.fields.v4.data_port = data_port;
        self.fields.v4.service_port = service_port;
        self.mirror("v4data_port", data_port.to_string().into_bytes());
        self.mirror("v4service_port", service_port.to_string().into_bytes());
    }

    /// Sets the outlet's ports over IPv6; 0 if the family is not served.
    pub fn set_v6_ports(&mut self, data_port: u16, service_port: u16) {
        self.fields.v6.data_port = data_port;
        self.fields.v6.service_port = service_port;
        self.mirror("v6data_port", data_port.to_string().into_bytes());
        self.mirror("v6service_port", service_port.to_string().into_bytes());
    }

    /// Fills in the source address of a discovery reply, in the field alone. False if an address is
    /// there: the first reply wins, and so does an address that the reply carried.
    pub fn fill_v4_address(&mut self, address: impl Into<Vec<u8>>) -> bool {
        fill(&mut self.fields.v4.address, address.into())
    }

    /// Like [`fill_v4_address`](Self::fill_v4_address) for IPv6; link-local text carries `%scope`.
    pub fn fill_v6_address(&mut self, address: impl Into<Vec<u8>>) -> bool {
        fill(&mut self.fields.v6.address, address.into())
    }
}

impl StreamInfo {
    /// Writes a field through to the document, if the element still has its text there. As in
    /// liblsl, elements that the application removed or a parser found empty stay so.
    fn mirror(&mut self, name: &str, text: Vec<u8>) {
        let document = &mut self.document;
        let text_node = document
            .child(document.root(), "info")
            .and_then(|info| document.child(info, name))
            .and_then(|element| document.first_child(element))
            .filter(|&node| document.kind(node) != Some(NodeKind::Element));
        if let Some(text_node) = text_node {
            document.set_text(text_node, text);
        }
    }
}

fn fill(held: &mut Vec<u8>, address: Vec<u8>) -> bool {
    let fresh = held.is_empty();
    if fresh {
        *held = address;
    }
    fresh
}
