//! The receiving role: what arrives on a data connection, the samples that wait for the caller, who
//! waits for the socket, and which outlet succeeds a lost one.

mod byte_queue;
mod connection;
mod decoder;
mod endpoint;
mod feed;
pub mod reader;
pub mod recovery;
mod resumption;
mod ring;
pub mod successor;
mod suspicion;
pub mod ways;

pub use connection::{Connection, Disconnect, Exchange};
pub use decoder::{FeedDecoder, FeedOptions, FeedState};
pub use feed::{Feed, FeedCounts, Pull, Read, Run, Taken};
pub use reader::{LeaderId, Reader};
pub use resumption::{Asked, LostSamples, Reconnection, ResumeCounts};
pub use ring::SampleRing;
