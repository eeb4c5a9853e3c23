//! DESCRIPTOR: the outlet's description of its stream, sent inside the session, so that forged
//! discovery cannot swap streams. Spec: LSS/1 §7.4.

use std::borrow::Cow;

use sha2::{Digest, Sha256};

use crate::{Cause, Error, Result};

/// The values a receiver reads from the outlet's unredacted shortinfo. Strings longer than 1024
/// bytes are already cut to 992 bytes and their SHA-256, so that comparison is equality.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Descriptor {
    /// Shortinfo element `uid`, which changes with each start.
    pub uid: Vec<u8>,
    /// Shortinfo element `name` of the stream.
    pub name: Vec<u8>,
    /// Shortinfo element `type`, the content type.
    pub stream_type: Vec<u8>,
    /// Shortinfo element `source_id`; empty if none.
    pub source_id: Vec<u8>,
    /// Shortinfo element `hostname` of the outlet's machine.
    pub hostname: Vec<u8>,
    /// Shortinfo element `session_id` of the outlet's configuration.
    pub session_id: Vec<u8>,
    /// Shortinfo element `channel_count`: values per sample.
    pub channel_count: u32,
    /// `nominal_srate` in Hz, compared as bits
    pub nominal_srate: f64,
    /// `channel_format`, 1 to 7 as liblsl numbers them
    pub channel_format: u8,
    /// `created_at` in seconds, compared as bits
    pub created_at: f64,
}

impl Descriptor {
    /// Cuts over-long strings; call it once after filling the fields from a stream info. Calling it
    /// again changes nothing.
    #[must_use]
    pub fn canonical(mut self) -> Self {
        for text in [
            &mut self.uid,
            &mut self.name,
            &mut self.stream_type,
            &mut self.source_id,
            &mut self.hostname,
            &mut self.session_id,
        ] {
            if text.len() > MAX_TEXT {
                let hash = Sha256::digest(&*text);
                text.truncate(KEPT_TEXT);
                text.extend_from_slice(&hash);
            }
        }
        self
    }

    /// The payload of the record. Over-long strings are cut here if they are not yet.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut payload = Vec::new();
        for (field_type, (_, value)) in (1_u16..).zip(self.clone().canonical().fields()) {
            // `canonical` keeps every text below 64 KiB.
            let len = u16::try_from(value.len()).unwrap_or(u16::MAX);
            payload.extend_from_slice(&field_type.to_be_bytes());
            payload.extend_from_slice(&len.to_be_bytes());
            payload.extend_from_slice(&value);
        }
        payload
    }

    /// Returns the fields in the order of the record, with their LSL names.
    fn fields(&self) -> [(&'static str, Cow<'_, [u8]>); 10] {
        let number = |bytes: &[u8]| Cow::Owned(bytes.to_vec());
        [
            ("uid", self.uid.as_slice().into()),
            ("name", self.name.as_slice().into()),
            ("type", self.stream_type.as_slice().into()),
            ("source_id", self.source_id.as_slice().into()),
            ("hostname", self.hostname.as_slice().into()),
            ("session_id", self.session_id.as_slice().into()),
            ("channel_count", number(&self.channel_count.to_be_bytes())),
            ("nominal_srate", number(&self.nominal_srate.to_be_bytes())),
            ("channel_format", number(&[self.channel_format])),
            ("created_at", number(&self.created_at.to_be_bytes())),
        ]
    }

    /// # Errors
    /// [`Cause::Malformed`] unless every field is there once, in order, with its length. Fields of
    /// later versions may follow, in order, and are ignored.
    pub fn parse(payload: &[u8]) -> Result<Self> {
        let mut fields = Fields { rest: payload };
        let descriptor = Self {
            uid: fields.text(1)?,
            name: fields.text(2)?,
            stream_type: fields.text(3)?,
            source_id: fields.text(4)?,
            hostname: fields.text(5)?,
            session_id: fields.text(6)?,
            channel_count: u32::from_be_bytes(fields.exactly(7)?),
            nominal_srate: f64::from_be_bytes(fields.exactly(8)?),
            channel_format: match fields.exactly(9)? {
                [format @ 1..=7] => format,
                _ => return Err(malformed("a channel format that LSL does not have")),
            },
            created_at: f64::from_be_bytes(fields.exactly(10)?),
        };
        let mut last = 10;
        while !fields.rest.is_empty() {
            let (field_type, _) = fields.next()?;
            if field_type <= last {
                return Err(malformed("fields that are not in order"));
            }
            last = field_type;
        }
        Ok(descriptor)
    }

    /// The first field in which `self` (received) is not `expected`, by its LSL name, uid first.
    pub fn differs_from(&self, expected: &Self) -> Option<&'static str> {
        let mut fields = self.fields().into_iter().zip(expected.fields());
        fields.find_map(|((field, own), (_, other))| (own != other).then_some(field))
    }

    /// Like [`differs_from`](Self::differs_from), of what identifies a stream across restarts
    /// (`channel_count`, `channel_format`, and the non-empty ones of `original`'s name, type,
    /// source_id).
    pub fn is_other_stream_than(&self, original: &Self) -> Option<&'static str> {
        let free_or_equal = |own: &[u8], original: &[u8]| original.is_empty() || own == original;
        [
            (
                "channel_count",
                self.channel_count == original.channel_count,
            ),
            (
                "channel_format",
                self.channel_format == original.channel_format,
            ),
            ("name", free_or_equal(&self.name, &original.name)),
            (
                "type",
                free_or_equal(&self.stream_type, &original.stream_type),
            ),
            (
                "source_id",
                free_or_equal(&self.source_id, &original.source_id),
            ),
        ]
        .into_iter()
        .find_map(|(field, equal)| (!equal).then_some(field))
    }
}

/// Reads `u16 type | u16 len | value`, one after the other.
struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    fn next(&mut self) -> Result<(u16, &'a [u8])> {
        let split = || {
            let (field_type, rest) = self.rest.split_first_chunk()?;
            let (len, rest) = rest.split_first_chunk()?;
            let (value, rest) = rest.split_at_checked(u16::from_be_bytes(*len).into())?;
            Some((u16::from_be_bytes(*field_type), value, rest))
        };
        let (field_type, value, rest) =
            split().ok_or_else(|| malformed("a field that does not end"))?;
        self.rest = rest;
        Ok((field_type, value))
    }

    fn required(&mut self, field_type: u16) -> Result<&'a [u8]> {
        match self.next()? {
            (found, value) if found == field_type => Ok(value),
            _ => Err(malformed("a field is missing or not in its place")),
        }
    }

    fn text(&mut self, field_type: u16) -> Result<Vec<u8>> {
        let text = self.required(field_type)?;
        if text.len() > MAX_TEXT {
            return Err(malformed("a text that should have been cut"));
        }
        Ok(text.to_vec())
    }

    fn exactly<const N: usize>(&mut self, field_type: u16) -> Result<[u8; N]> {
        self.required(field_type)?
            .try_into()
            .map_err(|_| malformed("a number of another length"))
    }
}

fn malformed(detail: &'static str) -> Error {
    Error::session(Cause::Malformed, detail)
}

/// A longer text is sent, and compared, as its beginning and its hash.
const MAX_TEXT: usize = 1024;
const KEPT_TEXT: usize = MAX_TEXT - 32;

#[cfg(test)]
mod tests;
