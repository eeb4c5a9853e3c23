//! The frame of an XDF file: `XDF:`, then chunks of `[NumLengthBytes] [Length] [Tag] [Content]`. Knows the
//! begin and end of a chunk, not its content. A length that a file claims is a number here and never an
//! allocation. Spec: recorder §1.

/// The first four bytes of a file.
pub const MAGIC: [u8; 4] = *b"XDF:";

/// Content of a boundary chunk, which readers search for after damage.
pub const BOUNDARY_UUID: [u8; 16] = [
    0x43, 0xA5, 0x46, 0xDC, 0xCB, 0xF5, 0x41, 0x0F, 0xB3, 0x0E, 0xD5, 0x46, 0x73, 0x83, 0xCB, 0xE4,
];

/// First tag that XDF 1.0 leaves unassigned. Ours lie from here on; other readers skip them.
pub const FIRST_PRIVATE_TAG: u16 = 0x7A00;

/// A private chunk without meaning, which fills a block of an encrypted file.
pub const PADDING_TAG: u16 = 0x7A00;

/// A private chunk of the signed hash chain.
pub const INTEGRITY_TAG: u16 = 0x7A01;

/// A private chunk that numbers the samples of the chunk behind it. Spec: relay §9.
pub const NUMBERS_TAG: u16 = 0x7A02;

/// Kind of a chunk, by its tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Tag {
    /// XML about the file, the first chunk.
    FileHeader,
    /// XML that describes a stream.
    StreamHeader,
    /// Samples of a stream and their timestamps.
    Samples,
    /// One measured offset between the clock of a stream and that of the recorder.
    ClockOffset,
    /// Place where a reader resumes after damage.
    Boundary,
    /// XML about a stream that has ended.
    StreamFooter,
    /// Any other tag, private or unknown.
    Other(u16),
}

impl Tag {
    /// Returns the number of the tag in a file.
    pub const fn code(self) -> u16 {
        match self {
            Self::FileHeader => 1,
            Self::StreamHeader => 2,
            Self::Samples => 3,
            Self::ClockOffset => 4,
            Self::Boundary => 5,
            Self::StreamFooter => 6,
            Self::Other(code) => code,
        }
    }

    /// Returns the tag of a number.
    pub const fn from_code(code: u16) -> Self {
        match code {
            1 => Self::FileHeader,
            2 => Self::StreamHeader,
            3 => Self::Samples,
            4 => Self::ClockOffset,
            5 => Self::Boundary,
            6 => Self::StreamFooter,
            other => Self::Other(other),
        }
    }

    /// Returns whether the content begins with the number of a stream.
    pub const fn is_of_stream(self) -> bool {
        matches!(
            self,
            Self::StreamHeader | Self::Samples | Self::ClockOffset | Self::StreamFooter
        )
    }
}

impl std::fmt::Display for Tag {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::FileHeader => f.pad("file header"),
            Self::StreamHeader => f.pad("stream header"),
            Self::Samples => f.pad("samples"),
            Self::ClockOffset => f.pad("clock offset"),
            Self::Boundary => f.pad("boundary"),
            Self::StreamFooter => f.pad("stream footer"),
            Self::Other(code) => write!(f, "chunk of tag {code:#06x}"),
        }
    }
}

/// Result of parsing a number or a chunk head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parsed<T> {
    /// Too few bytes were given: these many are needed.
    Need(usize),
    /// Bytes that no writer makes, with the reason.
    Bad(&'static str),
    /// The value and its length in bytes.
    Done(T, usize),
}

/// Head of a chunk, tag included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// Kind of the chunk, by its tag.
    pub tag: Tag,
    /// Bytes of content that follow the tag, as claimed.
    pub content_len: u64,
}

/// Reads a number of variable length: one byte gives the number of those that follow (1, 4 or 8).
pub fn read_varlen(bytes: &[u8]) -> Parsed<u64> {
    let Some((&width, rest)) = bytes.split_first() else {
        return Parsed::Need(1);
    };
    let width = usize::from(width);
    if !matches!(width, 1 | 4 | 8) {
        return Parsed::Bad("the length of a length is neither 1, 4 nor 8");
    }
    let Some(digits) = rest.get(..width) else {
        return Parsed::Need(1 + width);
    };
    let value = digits
        .iter()
        .rev()
        .fold(0, |value, &digit| value << 8 | u64::from(digit));
    Parsed::Done(value, 1 + width)
}

/// Reads the head of a chunk, the tag included.
pub fn read_head(bytes: &[u8]) -> Parsed<Head> {
    let (len, at) = match read_varlen(bytes) {
        Parsed::Done(len, at) => (len, at),
        Parsed::Need(need) => return Parsed::Need(need),
        Parsed::Bad(reason) => return Parsed::Bad(reason),
    };
    let Some(content_len) = len.checked_sub(2) else {
        return Parsed::Bad("a chunk without room for its tag");
    };
    match bytes.get(at..).and_then(<[u8]>::first_chunk::<2>) {
        None => Parsed::Need(at + 2),
        Some(&tag) => Parsed::Done(
            Head {
                tag: Tag::from_code(u16::from_le_bytes(tag)),
                content_len,
            },
            at + 2,
        ),
    }
}

/// Appends a number in the shortest of the three widths.
pub fn append_varlen(out: &mut Vec<u8>, value: u64) {
    if let Ok(value) = u8::try_from(value) {
        out.extend_from_slice(&[1, value]);
    } else if let Ok(value) = u32::try_from(value) {
        out.push(4);
        out.extend_from_slice(&value.to_le_bytes());
    } else {
        out.push(8);
        out.extend_from_slice(&value.to_le_bytes());
    }
}

/// Appends a whole chunk, its content given in parts.
pub fn append_chunk(out: &mut Vec<u8>, tag: Tag, content: &[&[u8]]) {
    let len: usize = content.iter().map(|part| part.len()).sum();
    append_varlen(out, len as u64 + 2);
    out.extend_from_slice(&tag.code().to_le_bytes());
    for part in content {
        out.extend_from_slice(part);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_take_the_shortest_width_and_come_back() {
        for (value, len) in [
            (0, 2),
            (255, 2),
            (256, 5),
            (u64::from(u32::MAX), 5),
            (u64::from(u32::MAX) + 1, 9),
            (u64::MAX, 9),
        ] {
            let mut bytes = Vec::new();
            append_varlen(&mut bytes, value);
            assert_eq!(read_varlen(&bytes), Parsed::Done(value, len), "{value}");
            for cut in 0..len {
                assert!(
                    matches!(read_varlen(&bytes[..cut]), Parsed::Need(need) if need > cut),
                    "{value} cut at {cut}"
                );
            }
        }
        for width in [0_u8, 2, 3, 5, 6, 7, 9, 255] {
            assert!(matches!(read_varlen(&[width; 12]), Parsed::Bad(_)));
        }
    }

    #[test]
    fn a_head_needs_room_for_its_tag() {
        assert!(matches!(read_head(&[1, 1, 5, 0]), Parsed::Bad(_)));
        assert_eq!(
            read_head(&[1, 2, 0x01, 0x7A]),
            Parsed::Done(
                Head {
                    tag: Tag::Other(INTEGRITY_TAG),
                    content_len: 0
                },
                4
            )
        );
        assert_eq!(read_head(&[4, 2, 0, 0, 0, 5]), Parsed::Need(7));
    }

    #[test]
    fn tags_keep_their_numbers() {
        for code in 0..300 {
            assert_eq!(Tag::from_code(code).code(), code);
        }
    }
}
