//! The header of age v1: read within bounds, written, and authenticated.
//!
//! The length of a hostile header is limited. The meaning of a stanza is left to `stanzas`.

use std::io::{BufRead, Read};

use base64ct::{Base64Unpadded, Encoding};
use ring::hmac;

use super::error::{Error, Result};
use super::payload::{FileKey, derive};

/// First line of a file, without its end.
pub(super) const VERSION_LINE: &[u8] = b"age-encryption.org/v1";
/// Tag of the stanza of a passphrase, which must stand alone.
pub(super) const SCRYPT: &str = "scrypt";

/// Data by which one recipient recovers the file key.
#[derive(Debug)]
pub(super) struct Stanza {
    /// Kind of the recipient, such as `X25519`.
    pub(super) tag: String,
    pub(super) args: Vec<String>,
    pub(super) body: Vec<u8>,
}

/// Header as read. It is authentic only after [`verify`](Self::verify).
#[derive(Debug)]
pub(super) struct Header {
    stanzas: Vec<Stanza>,
    mac: [u8; 32],
    /// Bytes that the MAC covers: from the first line up to the dashes of the last.
    covered: Vec<u8>,
    len: u64,
}

impl Header {
    /// Reads the header and not a byte further.
    pub(super) fn read(input: &mut impl BufRead) -> Result<Self> {
        let mut text = Vec::new();
        version_line(input, &mut text)?;

        let mut stanzas: Vec<Stanza> = Vec::new();
        // The body of the last stanza, while it may have further lines.
        let mut body: Option<Vec<u8>> = None;
        loop {
            let start = text.len();
            read_line(input, &mut text, MAX_LEN)?;
            let line = text
                .get(start..)
                .and_then(<[u8]>::split_last)
                .map_or(&[][..], |(_, line)| line);
            if let Some(mut collected) = body.take() {
                if line.len() > BODY_LINE_LEN {
                    return Err(Error::BadHeader("a line of a stanza is too long"));
                }
                collected.extend_from_slice(line);
                if line.len() == BODY_LINE_LEN {
                    body = Some(collected);
                } else if let Some(stanza) = stanzas.last_mut() {
                    stanza.body = decode(&collected)?;
                }
            } else if let Some(rest) = line.strip_prefix(b"-> ") {
                stanzas.push(first_line(rest)?);
                body = Some(Vec::new());
            } else if let Some(mac) = line.strip_prefix(b"--- ") {
                let mac = decode(mac)?
                    .try_into()
                    .map_err(|_| Error::BadHeader("its checksum has the wrong length"))?;
                let len = text.len() as u64;
                text.truncate(start + b"---".len());
                return Self::checked(stanzas, mac, text, len);
            } else {
                return Err(Error::BadHeader("a line is neither a stanza nor the end"));
            }
        }
    }

    fn checked(stanzas: Vec<Stanza>, mac: [u8; 32], covered: Vec<u8>, len: u64) -> Result<Self> {
        if stanzas.is_empty() {
            return Err(Error::BadHeader("it names no recipient"));
        }
        if stanzas.len() > 1 && stanzas.iter().any(|stanza| stanza.tag == SCRYPT) {
            return Err(Error::BadHeader(
                "a passphrase stands beside other recipients",
            ));
        }
        Ok(Self {
            stanzas,
            mac,
            covered,
            len,
        })
    }

    /// Returns the bytes that the header takes in the file.
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    pub(super) fn stanzas(&self) -> &[Stanza] {
        &self.stanzas
    }

    pub(super) fn wants_passphrase(&self) -> bool {
        self.stanzas.iter().any(|stanza| stanza.tag == SCRYPT)
    }

    /// Checks that the header was made together with the file key.
    pub(super) fn verify(&self, file_key: &FileKey) -> Result<()> {
        hmac::verify(&mac_key(file_key), &self.covered, &self.mac)
            .map_err(|_| Error::BadHeader("its checksum does not fit"))
    }
}

/// Encodes a whole header for `file_key`.
pub(super) fn encode(file_key: &FileKey, stanzas: &[Stanza]) -> Vec<u8> {
    let mut text = Vec::with_capacity(256);
    text.extend_from_slice(VERSION_LINE);
    text.push(b'\n');
    for stanza in stanzas {
        text.extend_from_slice(b"-> ");
        text.extend_from_slice(stanza.tag.as_bytes());
        for arg in &stanza.args {
            text.push(b' ');
            text.extend_from_slice(arg.as_bytes());
        }
        text.push(b'\n');
        let body = Base64Unpadded::encode_string(&stanza.body);
        let mut rest = body.as_bytes();
        // The last line is always shorter than a full one, possibly empty.
        while let Some((line, more)) = rest.split_at_checked(BODY_LINE_LEN) {
            text.extend_from_slice(line);
            text.push(b'\n');
            rest = more;
        }
        text.extend_from_slice(rest);
        text.push(b'\n');
    }
    text.extend_from_slice(b"---");
    let mac = hmac::sign(&mac_key(file_key), &text);
    text.push(b' ');
    text.extend_from_slice(Base64Unpadded::encode_string(mac.as_ref()).as_bytes());
    text.push(b'\n');
    text
}

fn mac_key(file_key: &FileKey) -> hmac::Key {
    let key = derive(&[], &file_key[..], b"header");
    hmac::Key::new(hmac::HMAC_SHA256, key.as_slice())
}

/// Reads the first line, which tells the kind of file. Of other files no more is read.
fn version_line(input: &mut impl BufRead, text: &mut Vec<u8>) -> Result<()> {
    let outcome = read_line(input, text, 2 * VERSION_LINE.len());
    if text.strip_suffix(b"\n") == Some(VERSION_LINE) {
        return Ok(());
    }
    if text.starts_with(b"-----BEGIN AGE ENCRYPTED FILE") {
        return Err(Error::Armored);
    }
    if text.starts_with(b"age-encryption.org/") && !VERSION_LINE.starts_with(text) {
        return Err(Error::UnknownVersion);
    }
    match outcome {
        // A file that was cut within its first line, or before it.
        Err(Error::CutOff { plain_bytes }) if VERSION_LINE.starts_with(text) => {
            Err(Error::CutOff { plain_bytes })
        }
        Err(Error::Io(error)) => Err(Error::Io(error)),
        _ => Err(Error::NotAge),
    }
}

/// Appends a line with its end to `text`, which may not grow beyond `limit`.
fn read_line(input: &mut impl BufRead, text: &mut Vec<u8>, limit: usize) -> Result<()> {
    let room = limit.saturating_sub(text.len()) as u64;
    let read = input.by_ref().take(room).read_until(b'\n', text)?;
    if read > 0 && text.ends_with(b"\n") {
        Ok(())
    } else if text.len() >= limit {
        Err(Error::BadHeader("it is longer than any header needs to be"))
    } else {
        Err(Error::CutOff { plain_bytes: 0 })
    }
}

/// Parses the first line of a stanza: words of visible ASCII with one blank between.
fn first_line(line: &[u8]) -> Result<Stanza> {
    let mut words = line.split(|&byte| byte == b' ').map(|word| {
        let visible = !word.is_empty() && word.iter().all(u8::is_ascii_graphic);
        visible
            .then(|| word.iter().copied().map(char::from).collect::<String>())
            .ok_or(Error::BadHeader("a stanza has an argument that is none"))
    });
    let tag = words
        .next()
        .unwrap_or(Err(Error::BadHeader("a stanza has no type")))?;
    Ok(Stanza {
        tag,
        args: words.collect::<Result<_>>()?,
        body: Vec::new(),
    })
}

/// Decodes base64 as the format wants it: no padding, no bits left over.
fn decode(text: &[u8]) -> Result<Vec<u8>> {
    let bad = Error::BadHeader("its base64 is not canonical");
    let Ok(text) = std::str::from_utf8(text) else {
        return Err(bad);
    };
    Base64Unpadded::decode_vec(text).map_err(|_| bad)
}

/// Columns of a full line of a stanza's body.
const BODY_LINE_LEN: usize = 64;

/// Longest header, in bytes: some ten thousand recipients, or a thousand of stock age's ssh-rsa. It limits
/// the memory that a hostile file can claim.
const MAX_LEN: usize = 1024 * 1024;
