//! `SampleLog` holds encoded samples for the consumers of an outlet. It drops the oldest samples and
//! counts the drops. Nothing here knows a socket or a lock.

mod sample_log;

pub use sample_log::SampleLog;
