//! The types of records on the wire. Spec: LSS/1 §8.1.

/// Types of records: the first byte of a plaintext, without the padding bit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Data,
    Descriptor,
    KeyUpdate,
    Close,
    Ping,
    Pong,
    Alert,
}

impl Kind {
    pub(super) const fn byte(self) -> u8 {
        match self {
            Self::Data => 1,
            Self::Descriptor => 2,
            Self::KeyUpdate => 3,
            Self::Close => 4,
            Self::Ping => 5,
            Self::Pong => 6,
            Self::Alert => 7,
        }
    }

    pub(super) fn from_byte(byte: u8) -> Option<Self> {
        Some(match byte {
            1 => Self::Data,
            2 => Self::Descriptor,
            3 => Self::KeyUpdate,
            4 => Self::Close,
            5 => Self::Ping,
            6 => Self::Pong,
            7 => Self::Alert,
            _ => return None,
        })
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
