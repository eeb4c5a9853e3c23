//! What must hold for every input of a parser, of the record layer and of two sessions with an
//! attacker between them. One module per target, each with a `check` that panics when something does
//! not hold.
//!
//! The fuzz binaries call these, and `cargo test` calls them on the corpus (`tests/it/corpus.rs`
//! includes this file), so only the public interface of `lsl_secure` is used. Some inputs begin with
//! control bytes (see [`Controls`]). Nothing is random: one input, one run.
#![forbid(unsafe_code)]

use std::sync::Arc;

use lsl_secure::{Descriptor, Local, Random, Result, SecretKey, Suites};

pub mod descriptor;
pub mod m1;
pub mod m2;
pub mod m3_plain;
pub mod pem;
pub mod record_stream;
mod reference;
pub mod refusal_line;
pub mod time_packet;
pub mod trusted_peers;
pub mod two_party;

/// What a target does with one input.
pub type Check = fn(&[u8]);

/// Every target by name.
pub const TARGETS: [(&str, Check); 10] = [
    ("descriptor", descriptor::check),
    ("m1", m1::check),
    ("m2", m2::check),
    ("m3_plain", m3_plain::check),
    ("pem", pem::check),
    ("record_stream", record_stream::check),
    ("refusal_line", refusal_line::check),
    ("time_packet", time_packet::check),
    ("trusted_peers", trusted_peers::check),
    ("two_party", two_party::check),
];

/// Takes control bytes off the head of an input; what is missing is 0.
struct Controls<'a> {
    rest: &'a [u8],
}

impl<'a> Controls<'a> {
    fn byte(&mut self) -> u8 {
        let Some((byte, rest)) = self.rest.split_first() else {
            return 0;
        };
        self.rest = rest;
        *byte
    }

    fn word(&mut self) -> u16 {
        u16::from_be_bytes([self.byte(), self.byte()])
    }

    /// The next `len` bytes, or what is left.
    fn take(&mut self, len: usize) -> &'a [u8] {
        let (taken, rest) = self.rest.split_at(len.min(self.rest.len()));
        self.rest = rest;
        taken
    }

    /// Changes `text` as the next bytes say: not at all, or up to four edits.
    fn edit(&mut self, text: &mut Vec<u8>) {
        for _ in 0..self.byte() % 5 {
            let at = usize::from(self.word()) % (text.len() + 1);
            match self.byte() % 5 {
                0 => text.truncate(at),
                1 => text.insert(at, self.byte()),
                2 => {
                    let len = usize::from(self.byte());
                    text.extend_from_slice(self.take(len));
                }
                3 => {
                    if let Some(byte) = text.get_mut(at) {
                        *byte = self.byte();
                    }
                }
                _ => {
                    let len = usize::from(self.word());
                    *text = self.take(len).to_vec();
                }
            }
        }
    }
}

/// Cuts bytes where `seed` says, as a network would: 0 not at all, 1 after every byte.
fn pieces(seed: u8, mut bytes: &[u8]) -> Vec<&[u8]> {
    let mut state = u32::from(seed);
    let mut pieces = Vec::new();
    while seed != 0 && !bytes.is_empty() {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let longest = if seed == 1 { 1 } else { 1 + (state >> 24) };
        let len = 1 + (state >> 8) % longest;
        let (piece, rest) = bytes.split_at((len as usize).min(bytes.len()));
        pieces.push(piece);
        bytes = rest;
    }
    pieces.push(bytes);
    pieces
}

/// "Random" bytes that are always the same.
struct Fixed(u8);

impl Random for Fixed {
    fn fill(&mut self, bytes: &mut [u8]) -> Result<()> {
        bytes.fill(self.0);
        Ok(())
    }
}

const INLET: u8 = 3;
const OUTLET: u8 = 4;

/// Whose key has this seed. ChaCha20 alone, so that inputs mean the same on every machine.
fn local(seed: u8) -> Arc<Local> {
    Arc::new(Local {
        key: SecretKey::from_seed(&[seed; 32]),
        psk: None,
        suites: Suites::ChaCha20Only,
        pad_to: 0,
    })
}

fn a_descriptor() -> Descriptor {
    Descriptor {
        uid: b"uid".to_vec(),
        name: b"name".to_vec(),
        stream_type: b"EEG".to_vec(),
        source_id: b"source".to_vec(),
        hostname: b"host".to_vec(),
        session_id: b"default".to_vec(),
        channel_count: 8,
        nominal_srate: 250.0,
        channel_format: 1,
        created_at: 12.5,
    }
}
