//! Finding streams and being found: searches, and the answers to those of others.

pub mod search;
