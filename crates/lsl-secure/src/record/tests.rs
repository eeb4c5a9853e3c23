//! Round trips of the record layer without a handshake.

use super::kind::{Kind, PADDED};
use super::seal::{MOST_BYTES, MOST_RECORDS, UPDATE_SECS};
use super::*;
use crate::kdf::Secret;
use crate::{AeadKey, Cause, Error, Result, Role, Suite};

mod hostile;
mod limits;
mod padding;
mod random;
mod round_trip;
mod vectors;

/// Records that an opener returned, owned.
#[derive(Debug, Clone, PartialEq)]
enum Event {
    Data(Vec<u8>),
    Descriptor(Vec<u8>),
    Ping(f64),
    Pong([f64; 3]),
    Close,
    Alert(Cause, String),
}

impl From<Record<'_>> for Event {
    fn from(record: Record<'_>) -> Self {
        match record {
            Record::Data(bytes) => Self::Data(bytes.to_vec()),
            Record::Descriptor(bytes) => Self::Descriptor(bytes.to_vec()),
            Record::Ping(t0) => Self::Ping(t0),
            Record::Pong(times) => Self::Pong(times),
            Record::Close => Self::Close,
            Record::Alert(cause, text) => Self::Alert(cause, text.to_owned()),
        }
    }
}

const SUITES: [Suite; 2] = [Suite::ChaCha20Poly1305, Suite::Aes256Gcm];
/// A value of `local_clock` in seconds.
const NOW: f64 = 1000.0;

fn secret(seed: u8) -> Secret {
    Secret::new([seed; 32])
}

/// Creates the sealer of `role` and the opener of its peer.
fn direction(suite: Suite, role: Role, pad_to: u16) -> (Sealer, Opener) {
    let (seed, peer) = match role {
        Role::Inlet => (1, Role::Outlet),
        Role::Outlet => (2, Role::Inlet),
    };
    (
        Sealer::new(suite, &secret(seed), role, pad_to),
        Opener::new(suite, &secret(seed), peer),
    )
}

/// Creates both halves of an outlet's direction after its DESCRIPTOR.
fn introduced(suite: Suite, pad_to: u16) -> (Sealer, Opener) {
    let (mut sealer, mut opener) = direction(suite, Role::Outlet, pad_to);
    let mut wire = Vec::new();
    sealer.seal_descriptor(b"descriptor", &mut wire).unwrap();
    opener.receive(&mut wire, NOW, |_| Ok(())).unwrap();
    (sealer, opener)
}

/// Opens `wire` in pieces of these sizes, the last one again and again.
fn open_in_pieces(
    opener: &mut Opener,
    wire: &[u8],
    now: f64,
    sizes: &[usize],
) -> (Vec<Event>, Result<()>) {
    let (mut events, mut rest) = (Vec::new(), wire);
    let mut sizes = sizes.iter().copied().filter(|&size| size > 0);
    let mut size = usize::MAX;
    while !rest.is_empty() {
        size = sizes.next().unwrap_or(size);
        let (piece, later) = rest.split_at(size.min(rest.len()));
        rest = later;
        let mut piece = piece.to_vec();
        let received = opener.receive(&mut piece, now, |record| {
            events.push(Event::from(record));
            Ok(())
        });
        if received.is_err() {
            return (events, received);
        }
    }
    (events, Ok(()))
}

/// Opens `wire` at once, not in pieces.
fn open(opener: &mut Opener, wire: &[u8]) -> (Vec<Event>, Result<()>) {
    open_in_pieces(opener, wire, NOW, &[])
}

fn cause_of(result: Result<()>) -> Option<Cause> {
    result.err().map(|error| error.cause())
}

/// A record with any plaintext, authentic under the key of `seed`.
fn forge(suite: Suite, seed: u8, counter: u64, text: &[u8]) -> Vec<u8> {
    let key = AeadKey::from_secret(suite, &secret(seed));
    let len = u16::try_from(text.len() + 16).unwrap().to_be_bytes();
    let mut body = text.to_vec();
    let tag = key.seal(counter, &len, &mut body);
    [&len, body.as_slice(), &tag].concat()
}

/// The records of `wire`, each with its length field.
fn split_records(mut wire: &[u8]) -> Vec<Vec<u8>> {
    let mut records = Vec::new();
    while let [high, low, ..] = *wire {
        let (record, rest) = wire.split_at(2 + usize::from(u16::from_be_bytes([high, low])));
        records.push(record.to_vec());
        wire = rest;
    }
    records
}
