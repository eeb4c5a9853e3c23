//! The receiving role: what arrives on a data connection, the samples that wait for the caller, who
//! waits for the socket, and which outlet succeeds a lost one.

mod byte_queue;
mod decoder;
pub mod reader;
pub mod recovery;
mod ring;

pub use decoder::{FeedDecoder, FeedOptions, FeedState};
pub use ring::SampleRing;
