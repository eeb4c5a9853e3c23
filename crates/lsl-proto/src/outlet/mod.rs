//! The sending side of a stream: samples are encoded once per wire variant, logged while somebody
//! lags, and sent to each consumer at its own pace.

pub mod connection;
pub mod encoder;
pub mod fanout;
pub mod frames;
mod log;
pub mod request;
pub mod retention;
mod timestamps;

pub use fanout::Pushthrough;
pub use log::SampleLog;
pub use timestamps::{Stamps, Timestamps};
