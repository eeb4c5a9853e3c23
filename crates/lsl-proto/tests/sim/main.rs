//! Peers on a virtual network in virtual time. What happens follows from a seed, which a failure prints; the
//! same again: `SIM_SEED=7 cargo test -p lsl-proto --test sim`.
#![expect(
    clippy::unwrap_used,
    clippy::print_stderr,
    clippy::disallowed_methods,
    reason = "a test, which may read its seed from the environment"
)]

mod clock;
mod dice;
mod discovering;
mod discovery;
mod hostile;
mod inlet;
mod network;
mod outlet;
mod peers;
mod programs;
mod recovery;
mod resuming;
mod secure;
mod streaming;
mod tcp;
mod world;
