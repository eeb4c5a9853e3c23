//! liblsl's C ABI over `lsl-core`: argument checks, one call into the core, result mapping. There is
//! no protocol logic here.
//!
//! Every entry runs inside [`guard`], takes handles through [`handle`] and hands out strings through
//! [`strings`]. A handle is a number, never an address: a stale or made-up one is detected, not
//! dereferenced. One file per liblsl header.
#![expect(
    unsafe_code,
    reason = "a C ABI is made of exported functions and of the callers' pointers"
)]
#![expect(
    unreachable_pub,
    reason = "entries are reached by their symbols; `pub` marks them for the header"
)]

mod common;
mod context;
mod ext;
mod guard;
mod handle;
mod inlet;
mod kept;
mod log;
mod memory;
mod outlet;
mod resolver;
mod resume;
mod security;
#[rustfmt::skip]
mod signatures;
mod streaminfo;
mod strings;
#[cfg(test)]
mod testing;
mod turns;
mod xml;
