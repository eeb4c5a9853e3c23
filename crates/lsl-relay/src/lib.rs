//! The relay of `lsl relay`: a directory of streams, links to other relays, and who may read what.
//!
//! Its machines take bytes, facts and `now`, and return bytes and events; one driver owns them. Nothing here
//! knows a socket, a file, a thread or a clock. Everything is public for that driver; nothing is promised to
//! others. Spec: relay §2.
//!
//! * [`link::Links`] says whom to dial and which links stay; [`hello`] is their first exchange; each that is up has
//!   a [`mux::Mux`].
//! * [`book::Book`] is the directory. Links and clients are watchers of it; what it says of ways goes to
//!   [`clock::Clocks`] (`WayChanged`, `Gone`), and the round trips of links come back ([`clock::Clocks::rtt`] to
//!   [`book::Book::set_rtt`]).
//! * [`clock::Clocks`] takes the PONGs of every multiplexer and says how often they ask.
//! * [`history`] says where samples of the past lie on disk, and what of them goes.
//! * [`http`] is what monitoring speaks; it knows nothing of relays.
//! * [`engine`] has what is kept elsewhere: commands, replies and decisions of each layout, and the samples that wait.
//! * [`config::Config`] has the [`rules::Rules`] that the book applies.
//!
//! After each call drain the machine's events; then look at its next timeout.
#![forbid(unsafe_code)]
#![deny(clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
#![cfg_attr(
    test,
    allow(
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::panic,
        reason = "tests know their data"
    )
)]

pub mod book;
pub mod clock;
pub mod config;
pub mod document;
pub mod engine;
pub mod hello;
pub mod history;
pub mod http;
mod id;
pub mod link;
pub mod mux;
pub mod rules;
pub mod shell;

pub use id::{NoRelayId, RelayId};
