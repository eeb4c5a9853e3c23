//! M1, M2 and M3 up to their ciphertexts, byte for byte. Every message is filled exactly: a missing
//! or left-over byte at any level is `malformed`. Spec: LSS/1 §5.1 to §5.3.

use super::{MAX_M1_LEN, MAX_M2_M3_LEN, VERSION};
use crate::suite::TAG_LEN;
use crate::{Cause, Error, Result, Suite};

const M1: u8 = 0x01;
const M2: u8 = 0x02;
const M3: u8 = 0x03;
const ROLE_INLET: u8 = 0x01;
const MAX_SUITES: u8 = 8;

/// A cursor that never reads beyond its bytes.
pub(super) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// A whole message: its length field, at most `max_len`, counts all bytes after itself; the type
    /// follows.
    fn message(bytes: &'a [u8], max_len: usize, message_type: u8) -> Result<Self> {
        let mut reader = Self(bytes);
        let len = usize::from(reader.u16()?);
        if len > max_len {
            return Err(malformed("a message longer than allowed"));
        }
        if len != reader.0.len() {
            return Err(malformed("a message of another length than it says"));
        }
        if reader.u8()? != message_type {
            return Err(malformed("another message was expected"));
        }
        Ok(reader)
    }

    pub(super) fn take(&mut self, len: usize) -> Result<&'a [u8]> {
        let (taken, rest) = self
            .0
            .split_at_checked(len)
            .ok_or_else(|| malformed("a message ends too early"))?;
        self.0 = rest;
        Ok(taken)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<&'a [u8; N]> {
        let (taken, rest) = self
            .0
            .split_first_chunk()
            .ok_or_else(|| malformed("a message ends too early"))?;
        self.0 = rest;
        Ok(taken)
    }

    pub(super) fn u8(&mut self) -> Result<u8> {
        self.array::<1>().map(|[byte]| *byte)
    }

    pub(super) fn u16(&mut self) -> Result<u16> {
        self.array().map(|bytes| u16::from_be_bytes(*bytes))
    }

    /// Takes a byte string: `len u16 | bytes`.
    pub(super) fn counted(&mut self) -> Result<&'a [u8]> {
        let len = self.u16()?;
        self.take(len.into())
    }

    /// `ext_len u16 | ext`: extensions, each type at most once. All are unknown in version 1 and
    /// ignored.
    pub(super) fn extensions(&mut self) -> Result<()> {
        let mut list = Self(self.counted()?);
        let mut types = Vec::new();
        while !list.0.is_empty() {
            types.push(list.u16()?);
            list.counted()?;
        }
        types.sort_unstable();
        if types
            .windows(2)
            .any(|pair| matches!(pair, [a, b] if a == b))
        {
            return Err(malformed("an extension is there twice"));
        }
        Ok(())
    }

    pub(super) fn rest(self) -> &'a [u8] {
        self.0
    }

    pub(super) fn end(self) -> Result<()> {
        if self.0.is_empty() {
            Ok(())
        } else {
            Err(malformed("bytes after the end of a message"))
        }
    }
}

/// M1, the inlet's offer: versions, suites and key share.
pub(super) struct Hello {
    pub(super) ver_min: u8,
    pub(super) ver_max: u8,
    /// Suites that this side knows, in the inlet's order.
    pub(super) suites: Vec<Suite>,
    pub(super) share: [u8; 32],
}

impl Hello {
    pub(super) fn parse(m1: &[u8]) -> Result<Self> {
        let mut reader = Reader::message(m1, MAX_M1_LEN, M1)?;
        let (ver_min, ver_max) = (reader.u8()?, reader.u8()?);
        if ver_min > ver_max {
            return Err(malformed("an empty range of versions"));
        }
        if reader.u8()? != ROLE_INLET {
            return Err(malformed("a reserved role"));
        }
        let n_suites = reader.u8()?;
        if n_suites == 0 || n_suites > MAX_SUITES {
            return Err(malformed("not 1 to 8 suites"));
        }
        let mut ids = Vec::with_capacity(n_suites.into());
        for _ in 0..n_suites {
            let id = reader.u16()?;
            if ids.contains(&id) {
                return Err(malformed("a suite is offered twice"));
            }
            ids.push(id);
        }
        let share = *reader.array()?;
        reader.extensions()?;
        reader.end()?;
        Ok(Self {
            ver_min,
            ver_max,
            suites: ids.into_iter().filter_map(Suite::from_id).collect(),
            share,
        })
    }

    /// The highest version that both sides know: there is only one.
    pub(super) fn check_version(&self) -> Result<()> {
        if (self.ver_min..=self.ver_max).contains(&VERSION) {
            return Ok(());
        }
        Err(Error::session(
            Cause::Version,
            format!(
                "the peer speaks versions {} to {}",
                self.ver_min, self.ver_max
            ),
        ))
    }

    /// AES only where both sides offer it, else ChaCha, whatever the order: §5.4.
    pub(super) fn choose_suite(&self, own: &[Suite]) -> Result<Suite> {
        [Suite::Aes256Gcm, Suite::ChaCha20Poly1305]
            .into_iter()
            .find(|suite| own.contains(suite) && self.suites.contains(suite))
            .ok_or_else(|| Error::session(Cause::NoCommonSuite, "no suite in common"))
    }
}

/// Encodes a whole M1 with its length field.
pub(super) fn m1(suites: &[Suite], share: &[u8; 32]) -> Vec<u8> {
    let ids = suites.iter().flat_map(|suite| suite.id().to_be_bytes());
    // `Suites` lists at most two.
    let n_suites = u8::try_from(suites.len()).unwrap_or(MAX_SUITES);
    let mut body = vec![M1, VERSION, VERSION, ROLE_INLET, n_suites];
    body.extend(ids);
    body.extend_from_slice(share);
    body.extend_from_slice(&[0, 0]);
    let mut message = length(body.len()).to_vec();
    message.append(&mut body);
    message
}

/// M2, the outlet's answer; its identity is still sealed.
pub(super) struct ParsedM2<'a> {
    /// Bytes before C2, which the transcript takes first.
    pub(super) head: &'a [u8],
    pub(super) suite: Suite,
    pub(super) share: &'a [u8; 32],
    /// C2, the sealed identity of the outlet.
    pub(super) sealed: &'a [u8],
}

impl<'a> ParsedM2<'a> {
    /// Parses M2; `offered` are the suites of our M1.
    pub(super) fn parse(m2: &'a [u8], offered: &[Suite]) -> Result<Self> {
        let mut reader = Reader::message(m2, MAX_M2_M3_LEN, M2)?;
        let version = reader.u8()?;
        let id = reader.u16()?;
        let share = reader.array()?;
        let (head, sealed) = split_sealed(m2, reader)?;
        if version != VERSION {
            return Err(Error::session(
                Cause::Version,
                format!("the peer chose version {version}, which was not offered"),
            ));
        }
        let suite = Suite::from_id(id)
            .filter(|suite| offered.contains(suite))
            .ok_or_else(|| {
                Error::session(
                    Cause::NoCommonSuite,
                    format!("the peer chose suite {id:#06x}, which was not offered"),
                )
            })?;
        Ok(Self {
            head,
            suite,
            share,
            sealed,
        })
    }
}

/// M2 up to C2, whose plaintext has `plain_len` bytes.
pub(super) fn m2_head(suite: Suite, share: &[u8; 32], plain_len: usize) -> Vec<u8> {
    let mut head = length(1 + 1 + 2 + 32 + plain_len + TAG_LEN).to_vec();
    head.extend_from_slice(&[M2, VERSION]);
    head.extend_from_slice(&suite.id().to_be_bytes());
    head.extend_from_slice(share);
    head
}

/// The bytes before C3, and C3.
pub(super) fn parse_m3(m3: &[u8]) -> Result<(&[u8], &[u8])> {
    split_sealed(m3, Reader::message(m3, MAX_M2_M3_LEN, M3)?)
}

/// M3 up to C3, whose plaintext has `plain_len` bytes.
pub(super) fn m3_head(plain_len: usize) -> Vec<u8> {
    let mut head = length(1 + plain_len + TAG_LEN).to_vec();
    head.push(M3);
    head
}

pub(super) fn malformed(detail: &'static str) -> Error {
    Error::session(Cause::Malformed, detail)
}

/// Splits a message into the part already read and the ciphertext behind it, which is at least a
/// tag.
fn split_sealed<'a>(message: &'a [u8], reader: Reader<'a>) -> Result<(&'a [u8], &'a [u8])> {
    let sealed = reader.rest();
    let head = message
        .len()
        .checked_sub(sealed.len())
        .and_then(|len| message.get(..len));
    match head {
        Some(head) if sealed.len() >= TAG_LEN => Ok((head, sealed)),
        _ => Err(malformed("a ciphertext shorter than its tag")),
    }
}

/// Our own messages have fixed lengths far below 64 KiB.
fn length(len: usize) -> [u8; 2] {
    u16::try_from(len).unwrap_or(u16::MAX).to_be_bytes()
}
