//! Writing plain bytes that reach the disk only encrypted.

use std::io::{self, Write};

use zeroize::Zeroizing;

use super::error::Result;
use super::header::encode;
use super::keys::Recipients;
use super::payload::{CHUNK_LEN, PayloadKey, Place, SEALED_LEN};
use super::stanzas::random;

/// A writer that encrypts what it is given into `W`, an age v1 file, in one pass and with one chunk of
/// 64 KiB in memory.
///
/// The format seals whole chunks: up to 64 KiB of what was written wait in memory for more, and no flush
/// brings them out. [`bytes_to_seal`](Self::bytes_to_seal) tells how much more it takes. A file whose writer
/// was dropped without [`finish`](Self::finish), or whose program was killed, opens up to its last whole
/// chunk, here and with stock age, and is reported as cut off.
///
/// A failed write of the output loses nothing: nothing of the call's bytes was taken then, what was
/// sealed before is written where it stopped when the next call is made.
pub struct Encrypting<W: Write> {
    /// `None` only once `finish` took it.
    output: Option<W>,
    key: PayloadKey,
    number: u64,
    /// The plaintext of a chunk, or, while `draining`, the same sealed.
    buffer: Zeroizing<Vec<u8>>,
    /// How much of the sealed buffer the output took, while it has not taken all.
    draining: Option<usize>,
    last_sealed: bool,
    accepted: u64,
    sealed: u64,
    output_len: u64,
}

impl<W: Write> Encrypting<W> {
    /// Makes a new file key, and writes the header by which `recipients` recover it.
    ///
    /// # Errors
    /// [`Error::NoRecipients`](super::Error::NoRecipients),
    /// [`Error::MixedRecipients`](super::Error::MixedRecipients);
    /// [`Error::Io`](super::Error::Io) where the output fails: part of the header may be in it then.
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

    /// Plain bytes taken so far, sealed or waiting.
    pub fn accepted_bytes(&self) -> u64 {
        self.accepted
    }

    /// Plain bytes that the output holds, encrypted and whole: what a crash cannot take once the output
    /// is synced. A multiple of 64 KiB until the file is finished.
    pub fn sealed_bytes(&self) -> u64 {
        self.sealed
    }

    /// How many bytes more it takes until everything accepted so far is sealed; 0 if it is.
    ///
    /// At most 64 KiB and one byte: a chunk is sealed when the first byte of the next one arrives,
    /// because the last one of a file is sealed in another way.
    pub fn bytes_to_seal(&self) -> usize {
        if self.draining.is_some() || self.buffer.is_empty() {
            0
        } else {
            CHUNK_LEN - self.buffer.len() + 1
        }
    }

    /// Bytes of the encrypted file that the output took, the header among them.
    pub fn output_bytes(&self) -> u64 {
        self.output_len
    }

    /// The output, to sync it for instance. Writing to it damages the file.
    #[expect(
        clippy::missing_panics_doc,
        reason = "it cannot happen, as the message says"
    )]
    pub fn get_ref(&self) -> &W {
        self.output
            .as_ref()
            .expect("only `finish` takes the output, and it takes the writer too")
    }

    /// The output, mutable. Writing to it damages the file.
    #[expect(
        clippy::missing_panics_doc,
        reason = "it cannot happen, as the message says"
    )]
    pub fn get_mut(&mut self) -> &mut W {
        self.output
            .as_mut()
            .expect("only `finish` takes the output, and it takes the writer too")
    }

    /// Seals what is left as the end of the file and flushes the output. May be repeated where it
    /// failed; afterwards nothing more can be written.
    ///
    /// # Errors
    /// Those of the output.
    pub fn try_finish(&mut self) -> io::Result<()> {
        self.drain()?;
        if !self.last_sealed {
            self.seal(Place::Last);
            self.drain()?;
        }
        self.get_mut().flush()
    }

    /// [`try_finish`](Self::try_finish), and the output back.
    ///
    /// # Errors
    /// Those of the output; call `try_finish` first where a failure is to be survived.
    pub fn finish(mut self) -> io::Result<W> {
        self.try_finish()?;
        self.output
            .take()
            .ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    /// Turns the plaintext in the buffer into a sealed chunk that waits to be written.
    fn seal(&mut self, place: Place) {
        let tag = self.key.seal(self.number, place, &mut self.buffer);
        self.buffer.extend_from_slice(&tag);
        self.number += 1;
        self.draining = Some(0);
        self.last_sealed = place == Place::Last;
    }

    /// Writes what is left of a sealed chunk, if there is one.
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
            self.seal(Place::Inner);
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
    /// Without `finish` the file stays cut off, on purpose: nobody said that it is complete. A chunk that
    /// is full goes out, so that what is lost is less than one.
    fn drop(&mut self) {
        if self.output.is_none() || self.drain().is_err() || self.last_sealed {
            return;
        }
        if self.buffer.len() == CHUNK_LEN {
            self.seal(Place::Inner);
            // A drop cannot report; what was lost here shows as cut off.
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

/// A new file key, and everything that stands before the first chunk.
pub(super) fn start(recipients: &Recipients) -> Result<(PayloadKey, Vec<u8>)> {
    let (file_key, nonce) = (random()?, random()?);
    let mut head = encode(&file_key, &recipients.wrap(&file_key)?);
    head.extend_from_slice(&nonce[..]);
    Ok((PayloadKey::derive(&file_key, &nonce), head))
}
