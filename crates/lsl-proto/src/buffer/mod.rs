//! Queues of samples: `SampleLog` holds encoded samples for the consumers of an outlet,
//! `SampleRing` holds decoded samples for the caller of an inlet. Dropping the oldest samples and
//! counting the drops happens here and nowhere else. Nothing here knows a socket or a lock.

mod byte_queue;
mod sample_log;
mod sample_ring;

pub use sample_log::SampleLog;
pub use sample_ring::SampleRing;
