//! Locks, wake-ups, threads' flags and the clock of the files that loom runs. Models have `sync_loom.rs` in place
//! of this file.

pub(crate) use std::sync::atomic::{AtomicU64, AtomicUsize};
pub(crate) use std::sync::{Mutex, MutexGuard};

pub(crate) use lsl_platform::clock::local_clock;
pub(crate) use lsl_platform::event_count::EventCount;
pub(crate) use lsl_platform::wait::Interrupt;
pub(crate) use tokio::spawn;
pub(crate) use tokio::sync::Notify;
