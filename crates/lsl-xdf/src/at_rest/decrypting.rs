//! Reading an encrypted file as the plain bytes it holds, whole or cut off.

use std::io::{self, BufReader, Read};

use zeroize::Zeroizing;

use super::error::{Error, Result};
use super::header::Header;
use super::keys::Identities;
use super::payload::{CHUNK_LEN, NONCE_LEN, Opened, PayloadKey, SEALED_LEN};

/// Behaviour of a reader where the file ends too early.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Ending {
    /// The last read fails, with [`Error::CutOff`] or [`Error::Damaged`] inside: for callers that need the
    /// file whole. The bytes read before are authentic all the same.
    #[default]
    Strict,
    /// Reading ends there without an error, and `end` tells the reason: for repairs after a crash.
    Tolerant,
}

/// Way in which an encrypted file ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum End {
    /// As written: complete and unchanged.
    Whole,
    /// Too early. The rest behind the last whole chunk cannot be opened: it may be cut or changed.
    CutOff,
    /// A whole chunk was changed, or something was appended. Nothing behind it was read.
    Damaged,
}

impl End {
    /// Returns the error of this end for callers that need the file whole.
    pub(super) fn error(self, plain_bytes: u64) -> Option<Error> {
        match self {
            Self::Whole => None,
            Self::CutOff => Some(Error::CutOff { plain_bytes }),
            Self::Damaged => Some(Error::Damaged { plain_bytes }),
        }
    }
}

/// Reader of the plain bytes of an encrypted file. Holds one chunk of 64 KiB in memory and gives out
/// authentic bytes only.
///
/// Works on any input, pipes too. A failed read of the source may be repeated.
pub struct Decrypting<R> {
    input: BufReader<R>,
    key: PayloadKey,
    ending: Ending,
    end: Option<End>,
    number: u64,
    plain_bytes: u64,
    /// One sealed chunk and one byte ahead, which shows that another chunk follows.
    buffer: Zeroizing<Vec<u8>>,
    filled: usize,
    /// Range of the plaintext in the buffer that was not given out yet.
    ready: std::ops::Range<usize>,
}

impl<R: Read> Decrypting<R> {
    /// Reads the header and opens it with the identity that fits.
    ///
    /// # Errors
    /// Those of [`ErrorKind::Key`](super::ErrorKind::Key) if no identity fits; [`Error::NotAge`],
    /// [`Error::BadHeader`] and the like. [`Error::CutOff`] if the file ends before the first chunk, with
    /// either [`Ending`].
    pub fn new(input: R, identities: &Identities, ending: Ending) -> Result<Self> {
        let (key, input) = open(input, identities)?;
        Ok(Self {
            input,
            key,
            ending,
            end: None,
            number: 0,
            plain_bytes: 0,
            buffer: Zeroizing::new(vec![0; SEALED_LEN + 1]),
            filled: 0,
            ready: 0..0,
        })
    }

    /// Returns the way in which the file ended, once it was read to its end; `None` before.
    pub fn end(&self) -> Option<End> {
        self.end.filter(|_| self.ready.is_empty())
    }

    /// Returns the number of plain bytes opened so far.
    pub fn plain_bytes(&self) -> u64 {
        self.plain_bytes
    }

    /// Opens the next chunk, or finds the end.
    fn advance(&mut self) -> io::Result<()> {
        // Keep the byte that was read ahead; the chunk before it was given out.
        if self.filled > SEALED_LEN {
            self.buffer[0] = self.buffer[SEALED_LEN];
            self.filled = 1;
        }
        fill(&mut self.input, &mut self.buffer, &mut self.filled)?;
        let len = self.filled.min(SEALED_LEN);
        let sealed = &mut self.buffer[..len];
        let opened = if self.filled > SEALED_LEN {
            self.key.open_inner(self.number, sealed)
        } else {
            self.key.open_at_end(self.number, sealed)
        };
        let (len, end) = judge(opened);
        self.end = end;
        self.number += 1;
        self.plain_bytes += len as u64;
        self.ready = 0..len;
        Ok(())
    }
}

impl<R: Read> Read for Decrypting<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if out.is_empty() {
            return Ok(0);
        }
        while self.ready.is_empty() {
            match self.end {
                None => self.advance()?,
                Some(end) => {
                    return match end.error(self.plain_bytes) {
                        Some(error) if self.ending == Ending::Strict => Err(error.into()),
                        _ => Ok(0),
                    };
                }
            }
        }
        let len = out.len().min(self.ready.len());
        let from = self.ready.start;
        out[..len].copy_from_slice(&self.buffer[from..from + len]);
        self.ready.start += len;
        Ok(len)
    }
}

impl<R> std::fmt::Debug for Decrypting<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Decrypting")
            .field("ending", &self.ending)
            .field("end", &self.end)
            .field("plain_bytes", &self.plain_bytes)
            .finish_non_exhaustive()
    }
}

/// Reads header and nonce, up to the first chunk.
pub(super) fn open<R: Read>(
    input: R,
    identities: &Identities,
) -> Result<(PayloadKey, BufReader<R>)> {
    // Small, so that reads of whole chunks bypass it after the header.
    let mut input = BufReader::with_capacity(HEADER_BUFFER_LEN, input);
    let header = Header::read(&mut input)?;
    let file_key = identities.unwrap(&header)?;
    let mut nonce = [0; NONCE_LEN];
    input
        .read_exact(&mut nonce)
        .map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => Error::CutOff { plain_bytes: 0 },
            _ => Error::Io(error),
        })?;
    Ok((PayloadKey::derive(&file_key, &nonce), input))
}

/// Returns the bytes of plaintext in a chunk, and the end of the file if it ends there.
pub(super) fn judge(opened: Opened) -> (usize, Option<End>) {
    match opened {
        Opened::Inner => (CHUNK_LEN, None),
        Opened::Last(len) => (len, Some(End::Whole)),
        Opened::InnerAtEnd => (CHUNK_LEN, Some(End::CutOff)),
        Opened::Stump => (0, Some(End::CutOff)),
        Opened::Damaged => (0, Some(End::Damaged)),
    }
}

/// Reads until `buffer` is full or the input ends; `filled` is right even where reading fails.
pub(super) fn fill(input: &mut impl Read, buffer: &mut [u8], filled: &mut usize) -> io::Result<()> {
    while *filled < buffer.len() {
        match input.read(&mut buffer[*filled..]) {
            Ok(0) => break,
            Ok(len) => *filled += len,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

const HEADER_BUFFER_LEN: usize = 4096;
