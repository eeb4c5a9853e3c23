//! Writing plain bytes that reach the disk only encrypted.

use std::io::{self, Write};

use zeroize::Zeroizing;

use super::error::Result;
use super::header::encode;
use super::keys::Recipients;
use super::payload::{CHUNK_LEN, ChunkPosition, PayloadKey, SEALED_LEN};
use super::stanzas::random;

/// Writer that encrypts into `W`, an age v1 file, in one pass and with one chunk of 64 KiB in memory.
///
/// The format seals whole chunks: up to 64 KiB wait in memory for more, and no flush writes them.
/// [`bytes_to_seal`](Self::bytes_to_seal) tells the number of missing bytes. Without
/// [`finish`](Self::finish) (dropped writer, killed program) the file opens up to its last whole chunk,
/// here and with stock age. It is reported as cut off.
///
/// A failed write of the output loses nothing: none of the call's bytes were taken. The next call resumes
/// the sealed bytes where they stopped.
pub struct Encrypting<W: Write> {
    /// `None` only after `finish` took it.
    output: Option<W>,
    key: PayloadKey,
    number: u64,
    /// Plaintext of a chunk, or, while `draining`, the sealed chunk.
    buffer: Zeroizing<Vec<u8>>,
    /// Bytes of the sealed buffer that the output took; `None` when it has taken all.
    draining: Option<usize>,
    last_sealed: bool,
    accepted: u64,
    sealed: u64,
    output_len: u64,
}

impl<W: Write> Encrypting<W> {
    /// Creates a file key and writes the header by which `recipients` recover it.
    ///
    /// # Errors
    /// [`Error::NoRecipients`](super::Error::NoRecipients),
    /// [`Error::MixedRecipients`](super::Error::MixedRecipients); [`Error::Io`](super::Error::Io) if the
    /// output fails, which may then hold part of the header.
    pub fn new(mut output: W, recipients: &Recipients) -> Result<Self> {
        let (key, head) = start(recipients)?;
        output.write_all(&head)?;
        Ok(Self {
            output: Some(output),
            key,
            number: 0,
            buffer: Zeroizing::new(Vec::with_capacity(SEALED_LEN)),
            draining: None,
            last_sealed: false,
            accepted: 0,
            sealed: 0,
            output_len: head.len() as u64,
        })
    }

    /// Returns the plain bytes taken so far, sealed or waiting.
    pub fn accepted_bytes(&self) -> u64 {
        self.accepted
    }

    /// Returns the plain bytes that the output holds in whole chunks: a crash cannot lose them once it is
    /// synced. A multiple of 64 KiB until the file is finished.
    pub fn sealed_bytes(&self) -> u64 {
        self.sealed
    }

    /// Returns the number of further bytes after which everything accepted so far is sealed; 0 if it is.
    ///
    /// At most 64 KiB and one byte: a chunk is sealed when the first byte of the next one arrives. The last
    /// chunk of a file is sealed in another way.
    pub fn bytes_to_seal(&self) -> usize {
        if self.draining.is_some() || self.buffer.is_empty() {
            0
        } else {
            CHUNK_LEN - self.buffer.len() + 1
        }
    }

    /// Returns the bytes of the encrypted file that the output took, the header among them.
    pub fn output_bytes(&self) -> u64 {
        self.output_len
    }

    /// Borrows the output, for instance to sync it. Writing to it damages the file.
    #[expect(
        clippy::missing_panics_doc,
        reason = "it cannot happen, as the message says"
    )]
    pub fn get_ref(&self) -> &W {
        self.output
            .as_ref()
            .expect("only `finish` takes the output, and it takes the writer too")
    }

    /// Borrows the output mutably. Writing to it damages the file.
    #[expect(
        clippy::missing_panics_doc,
        reason = "it cannot happen, as the message says"
    )]
    pub fn get_mut(&mut self) -> &mut W {
        self.output
            .as_mut()
            .expect("only `finish` takes the output, and it takes the writer too")
    }

    /// Seals the rest as the end of the file and flushes the output. May be repeated after a failure;
    /// afterwards nothing more can be written.
    ///
    /// # Errors
    /// Those of the output.
    pub fn try_finish(&mut self) -> io::Result<()> {
        self.drain()?;
        if !self.last_sealed {
            self.seal(ChunkPosition::Last);
            self.drain()?;
        }
        self.get_mut().flush()
    }

    /// Calls [`try_finish`](Self::try_finish) and returns the output.
    ///
    /// # Errors
    /// Those of the output; to survive a failure, call `try_finish` first.
    pub fn finish(mut self) -> io::Result<W> {
        self.try_finish()?;
        self.output
            .take()
            .ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    /// Seals the plaintext in the buffer as a chunk that waits to be written.
    fn seal(&mut self, place: ChunkPosition) {
        let tag = self.key.seal(self.number, place, &mut self.buffer);
        self.buffer.extend_from_slice(&tag);
        self.number += 1;
        self.draining = Some(0);
        self.last_sealed = place == ChunkPosition::Last;
    }

    /// Writes the rest of a sealed chunk, if there is one.
    fn drain(&mut self) -> io::Result<()> {
        let (Some(mut done), Some(output)) = (self.draining, &mut self.output) else {
            return Ok(());
        };
        while done < self.buffer.len() {
            match output.write(&self.buffer[done..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(len) => {
                    done += len;
                    self.draining = Some(done);
                    self.output_len += len as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.sealed = self.accepted;
        self.buffer.clear();
        self.draining = None;
        Ok(())
    }
}

impl<W: Write> Write for Encrypting<W> {
    /// Takes as many bytes as fit into the chunk; call again with the rest, as `write_all` does.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.drain()?;
        if bytes.is_empty() {
            return Ok(0);
        }
        if self.last_sealed {
            return Err(io::Error::other("the encrypted file is finished already"));
        }
        if self.buffer.len() == CHUNK_LEN {
            self.seal(ChunkPosition::Inner);
            self.drain()?;
        }
        let len = bytes.len().min(CHUNK_LEN - self.buffer.len());
        self.buffer.extend_from_slice(&bytes[..len]);
        self.accepted += len as u64;
        Ok(len)
    }

    /// Flushes the output. A chunk that is not full stays in memory: the format has no way to write it.
    fn flush(&mut self) -> io::Result<()> {
        self.drain()?;
        self.get_mut().flush()
    }
}

impl<W: Write> Drop for Encrypting<W> {
    /// Leaves the file cut off without `finish`, on purpose: the caller has not declared it complete.
    /// Writes a chunk that is full, so that less than one is lost.
    fn drop(&mut self) {
        if self.output.is_none() || self.drain().is_err() || self.last_sealed {
            return;
        }
        if self.buffer.len() == CHUNK_LEN {
            self.seal(ChunkPosition::Inner);
            // A drop cannot report an error; the file shows as cut off.
            let _ = self.drain();
        }
    }
}

impl<W: Write> std::fmt::Debug for Encrypting<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Encrypting")
            .field("accepted", &self.accepted)
            .field("sealed", &self.sealed)
            .field("finished", &self.last_sealed)
            .finish_non_exhaustive()
    }
}

/// Creates a file key and everything that stands before the first chunk.
pub(super) fn start(recipients: &Recipients) -> Result<(PayloadKey, Vec<u8>)> {
    let (file_key, nonce) = (random()?, random()?);
    let mut head = encode(&file_key, &recipients.wrap(&file_key)?);
    head.extend_from_slice(&nonce[..]);
    Ok((PayloadKey::derive(&file_key, &nonce), head))
}
