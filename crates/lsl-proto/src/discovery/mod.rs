//! Finding streams and being found: searches, and the answers to those of others.

pub mod advert;
pub mod answers;
pub mod asked;
pub mod evaluation;
pub mod fallback;
pub mod lost;
pub mod neighbours;
pub mod queries;
pub mod redacted;
pub mod registry;
pub mod reply;
pub mod search;
pub mod seen;
pub mod sweep;
mod tcp_probes;
pub mod ways;
