//! Tests that need more than one file of the module.

mod damage;
mod files;
mod keys;
mod pipe;
mod testkit;
mod writer;

use std::io::{self, Read, Write};
use std::path::PathBuf;

use zeroize::Zeroizing;

use super::payload::CHUNK_LEN;
use super::{
    Decrypting, Encrypting, End, Ending, Error, Identities, KeyPair, Passphrase, Recipients,
};

/// Creates a key pair, ready for use on both sides.
fn pair() -> (Recipients, Identities) {
    let pair = KeyPair::generate();
    let mut recipients = Recipients::new();
    recipients.add("test", &pair.recipient).unwrap();
    let mut identities = Identities::new();
    identities.add("test", &pair.identity).unwrap();
    (recipients, identities)
}

fn phrase(text: &str) -> Passphrase {
    Zeroizing::new(text.to_owned())
}

/// Returns bytes that repeat nowhere near a chunk's length, so that chunks in the wrong order show.
fn bytes(len: usize) -> Vec<u8> {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

/// Returns the lengths around all special cases.
fn lengths() -> Vec<usize> {
    let mut lengths = vec![0, 1, 15, 16, 17, 1000];
    for chunks in [1, 2, 4, 5, 8] {
        let whole = chunks * CHUNK_LEN;
        lengths.extend([whole - 1, whole, whole + 1]);
    }
    lengths
}

fn encrypt(plain: &[u8], recipients: &Recipients) -> Vec<u8> {
    let mut writer = Encrypting::new(Vec::new(), recipients).unwrap();
    writer.write_all(plain).unwrap();
    writer.finish().unwrap()
}

/// Returns the readable bytes, and the way in which the file ended.
fn decrypt(file: &[u8], identities: &Identities) -> Result<(Vec<u8>, End), Error> {
    let mut reader = Decrypting::new(file, identities, Ending::Tolerant)?;
    let mut plain = Vec::new();
    reader.read_to_end(&mut plain).map_err(Error::from_io)?;
    assert_eq!(reader.plain_bytes(), plain.len() as u64);
    Ok((plain, reader.end().unwrap()))
}

/// Returns the bytes that a strict reader gives out, and its result.
fn decrypt_strictly(file: &[u8], identities: &Identities) -> (Vec<u8>, Result<(), Error>) {
    let mut plain = Vec::new();
    let result = Decrypting::new(file, identities, Ending::Strict)
        .and_then(|mut reader| reader.read_to_end(&mut plain).map_err(Error::from_io))
        .map(|_| ());
    (plain, result)
}

/// Returns the number of bytes before the first chunk.
fn head_len(file: &[u8]) -> usize {
    let end = file
        .windows(5)
        .position(|window| window == b"\n--- ")
        .unwrap()
        + 1;
    end + file[end..].iter().position(|&byte| byte == b'\n').unwrap() + 1 + 16
}

fn key_file(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/vectors/keys")
        .join(name)
}

/// Output that takes little at a time and can be told to fail.
#[derive(Debug, Default)]
struct Fussy {
    taken: Vec<u8>,
    room: usize,
    interrupted: bool,
}

impl Write for Fussy {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.interrupted = !self.interrupted;
        if self.interrupted {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let len = bytes.len().min(self.room).min(1009);
        if len == 0 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.room -= len;
        self.taken.extend_from_slice(&bytes[..len]);
        Ok(len)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Input that gives little at a time, after an interruption each.
struct Trickle<'a>(&'a [u8], bool);

impl Read for Trickle<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.1 = !self.1;
        if self.1 {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let len = out.len().min(self.0.len()).min(997);
        let (now, later) = self.0.split_at(len);
        out[..len].copy_from_slice(now);
        self.0 = later;
        Ok(len)
    }
}
