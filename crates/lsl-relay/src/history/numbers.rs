//! The private chunk that numbers the samples of the chunk behind it. Spec: relay §9.

use sha2::{Digest, Sha256};

/// Bytes of the chunk's content.
pub const NUMBERS_BYTES: usize = 41;

/// Name of a numbering in 16 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GenerationId(pub [u8; 16]);

impl GenerationId {
    /// Returns that of a generation: the bytes of its UUID; of other names the first of their SHA-256.
    pub fn of(generation: &str) -> Self {
        let hash = || {
            let hash: [u8; 32] = Sha256::digest(generation.as_bytes()).into();
            hash.first_chunk().copied().unwrap_or_default()
        };
        Self(uuid(generation).unwrap_or_else(hash))
    }
}

/// Parses the bytes of a UUID.
fn uuid(text: &str) -> Option<[u8; 16]> {
    let groups: Vec<_> = text.split('-').collect();
    if !groups.iter().map(|group| group.len()).eq([8, 4, 4, 4, 12]) {
        return None;
    }
    let digits = u128::from_str_radix(&groups.concat(), 16).ok()?;
    Some(digits.to_be_bytes())
}

/// Numbers of the samples of one chunk.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Numbers {
    /// Number of the stream in the segment.
    pub stream: u32,
    /// Numbering of the samples.
    pub generation: GenerationId,
    /// Sequence number of the first sample.
    pub first: u64,
    /// Number of samples.
    pub count: u32,
    /// Time at which the first sample arrived, in seconds since 1970.
    pub arrival: f64,
}

impl Numbers {
    /// Returns the content of the chunk.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(NUMBERS_BYTES);
        bytes.extend_from_slice(&self.stream.to_le_bytes());
        bytes.extend_from_slice(&self.generation.0);
        bytes.extend_from_slice(&self.first.to_le_bytes());
        bytes.extend_from_slice(&self.count.to_le_bytes());
        bytes.push(0);
        bytes.extend_from_slice(&self.arrival.to_le_bytes());
        bytes
    }

    /// Parses the content of the chunk; `None` for another length, flags that nobody knows, and numbers that nobody
    /// gives.
    pub fn parse(content: &[u8]) -> Option<Self> {
        let mut rest = content;
        let numbers = Self {
            stream: u32::from_le_bytes(take(&mut rest)?),
            generation: GenerationId(take(&mut rest)?),
            first: u64::from_le_bytes(take(&mut rest)?),
            count: u32::from_le_bytes(take(&mut rest)?),
            arrival: {
                let [0] = take(&mut rest)? else {
                    return None;
                };
                f64::from_le_bytes(take(&mut rest)?)
            },
        };
        let is_sound = rest.is_empty() && is_sound(numbers.first, numbers.arrival);
        is_sound.then_some(numbers)
    }
}

/// Whether a sequence number and a time can be of samples.
pub(super) fn is_sound(first: u64, arrival: f64) -> bool {
    first < 1 << 62 && arrival.is_finite()
}

/// Takes so many bytes from the front.
pub(super) fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, after) = rest.split_first_chunk()?;
    *rest = after;
    Some(*taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back_and_nothing_else_is_taken() {
        let numbers = Numbers {
            stream: 3,
            generation: GenerationId::of("0f6c2f4e-8c50-4f53-9a5e-7d5c6b1a2f3d"),
            first: 1 << 40,
            count: 700,
            arrival: 1.75e9,
        };
        let bytes = numbers.to_bytes();
        assert_eq!(bytes.len(), NUMBERS_BYTES);
        assert_eq!(Numbers::parse(&bytes), Some(numbers));
        assert_eq!(bytes.get(4..8), Some(&[0x0f, 0x6c, 0x2f, 0x4e][..]));
        assert_eq!(Numbers::parse(&bytes[1..]), None);
        assert_eq!(Numbers::parse(&[&bytes[..], &[0]].concat()), None);
        for (at, byte) in [(32, 1), (27, 0xff), (40, 0x7f)] {
            let mut other = bytes.clone();
            other[at] = byte;
            if at == 40 {
                other[39] = 0xf0;
            }
            assert_eq!(Numbers::parse(&other), None, "{at}");
        }
    }

    #[test]
    fn generations_that_are_no_uuid_are_hashed() {
        let id = GenerationId::of("0-a");
        assert_ne!(id, GenerationId::of("0-b"));
        // $ printf 0-a | sha256sum
        let hash: [u8; 32] = Sha256::digest(b"0-a").into();
        assert_eq!(id.0[..], hash[..16]);
    }
}
