//! What must hold for every input of a parser. One module per parser, each with a `check` that
//! panics when something does not hold.
//!
//! The fuzz binaries call these, and `cargo test` calls them on the corpus (`tests/it/corpus.rs`
//! includes this file), so only the public interface of `lsl_proto` is used. Some inputs begin with
//! control bytes (see [`Controls`]) that choose what the rest is parsed as.
#![forbid(unsafe_code)]

pub mod archive100;
pub mod config_ini;
pub mod directory;
pub mod discovery_datagram;
pub mod query;
pub mod request;
pub mod response;
pub mod sample110;
pub mod sequence;
pub mod stream_info;
pub mod timedata;
pub mod value_text;
pub mod xml_parse;

/// What a target does with one input.
pub type Check = fn(&[u8]);

/// Every target by name.
pub const TARGETS: [(&str, Check); 13] = [
    ("archive100", archive100::check),
    ("config_ini", config_ini::check),
    ("directory", directory::check),
    ("discovery_datagram", discovery_datagram::check),
    ("query", query::check),
    ("request", request::check),
    ("response", response::check),
    ("sample110", sample110::check),
    ("sequence", sequence::check),
    ("stream_info", stream_info::check),
    ("timedata", timedata::check),
    ("value_text", value_text::check),
    ("xml_parse", xml_parse::check),
];

/// Takes control bytes off the head of an input; what is missing is 0.
struct Controls<'a> {
    rest: &'a [u8],
}

impl Controls<'_> {
    fn byte(&mut self) -> u8 {
        let Some((byte, rest)) = self.rest.split_first() else {
            return 0;
        };
        self.rest = rest;
        *byte
    }

    fn choose<T: Copy, const N: usize>(&mut self, from: [T; N]) -> T {
        from[usize::from(self.byte()) % N]
    }
}

/// Cuts bytes where `seed` says, as a network would: 0 not at all, 1 after every byte. Without bytes
/// there is one empty piece.
fn pieces(seed: u8, mut bytes: &[u8]) -> Vec<&[u8]> {
    let mut state = u32::from(seed);
    let mut pieces = Vec::new();
    while seed != 0 && !bytes.is_empty() {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let longest = if seed == 1 { 1 } else { 1 + (state >> 28) };
        let len = 1 + (state >> 8) % longest;
        let (piece, rest) = bytes.split_at((len as usize).min(bytes.len()));
        pieces.push(piece);
        bytes = rest;
    }
    if !bytes.is_empty() || pieces.is_empty() {
        pieces.push(bytes);
    }
    pieces
}
