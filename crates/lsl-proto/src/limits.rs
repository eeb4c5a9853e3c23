//! Limits of what peers, and many streams of one process, may ask for.

pub use lsl_secure::TokenBucket;
