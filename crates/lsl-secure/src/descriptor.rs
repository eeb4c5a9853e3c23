//! DESCRIPTOR: what the outlet says of its stream inside the session, so that forged discovery
//! cannot swap streams. Spec: LSS/1 §7.4.

use crate::Result;

/// The values a receiver reads from the outlet's unredacted shortinfo. Strings longer than 1024
/// bytes are already cut to 992 bytes and their SHA-256, so that comparison is equality.
#[derive(Debug, Clone, PartialEq)]
pub struct Descriptor {
    /// `uid`
    pub uid: Vec<u8>,
    /// `name`
    pub name: Vec<u8>,
    /// `type`
    pub stream_type: Vec<u8>,
    /// `source_id`
    pub source_id: Vec<u8>,
    /// `hostname`
    pub hostname: Vec<u8>,
    /// `session_id`
    pub session_id: Vec<u8>,
    /// `channel_count`
    pub channel_count: u32,
    /// `nominal_srate` in Hz, compared as bits
    pub nominal_srate: f64,
    /// `channel_format`, 1 to 7 as liblsl numbers them
    pub channel_format: u8,
    /// `created_at` in seconds, compared as bits
    pub created_at: f64,
}

impl Descriptor {
    /// Cuts over-long strings; call it once after filling the fields from a stream info.
    #[must_use]
    pub fn canonical(self) -> Self {
        unimplemented!()
    }

    /// The payload of the record.
    pub fn to_bytes(&self) -> Vec<u8> {
        unimplemented!()
    }

    /// # Errors
    /// [`Cause::Malformed`](crate::Cause::Malformed) unless every field is there once, in order, with its length.
    pub fn parse(_payload: &[u8]) -> Result<Self> {
        unimplemented!()
    }

    /// The first field in which `self` (received) is not `expected`, by its LSL name, uid first.
    pub fn differs_from(&self, _expected: &Self) -> Option<&'static str> {
        unimplemented!()
    }

    /// Like [`differs_from`](Self::differs_from), of what identifies a stream across restarts
    /// (`channel_count`, `channel_format`, and the non-empty ones of name, type, source_id).
    pub fn is_other_stream_than(&self, _original: &Self) -> Option<&'static str> {
        unimplemented!()
    }
}
