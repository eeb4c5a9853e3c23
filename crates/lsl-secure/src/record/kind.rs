//! The types of records on the wire. Spec: LSS/1 §8.1.

/// Types of records: the first byte of a plaintext, without the padding bit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    Data = 1,
    Descriptor = 2,
    KeyUpdate = 3,
    Close = 4,
    Ping = 5,
    Pong = 6,
    Alert = 7,
}

impl Kind {
    const ALL: [Self; 7] = [
        Self::Data,
        Self::Descriptor,
        Self::KeyUpdate,
        Self::Close,
        Self::Ping,
        Self::Pong,
        Self::Alert,
    ];

    pub(super) const fn byte(self) -> u8 {
        self as u8
    }

    pub(super) fn from_byte(byte: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.byte() == byte)
    }
}

/// Bit of the type byte: the plaintext ends with padding and its length.
pub(super) const PADDED: u8 = 0x80;

/// Bytes of the length field before each record.
pub(super) const LEN_BYTES: usize = 2;

/// Bytes of the tag behind each record.
pub(super) const TAG_BYTES: usize = 16;

/// Longest text of an ALERT.
pub(super) const MAX_ALERT_TEXT: usize = 255;
