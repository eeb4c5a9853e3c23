//! Encrypted connections: our outlet and inlet with keys of their own, and scripted peers that hold a
//! key but lie, or hold none. Spec: LSS/1.

pub mod fake;
pub mod outlet;
pub mod people;

mod identity;
mod minimal;
mod policy;
mod proxy;
mod pulling;
mod streaming;
mod swap;
mod time;
mod truncation;
