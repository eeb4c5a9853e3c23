//! The tokio shell: sockets, timers and tasks around the protocol modules. Nothing here decides what
//! a byte means, and nothing outside `sockets` sets a socket option.

pub(crate) mod changes;
pub(crate) mod monitor;
pub(crate) mod overruns;
pub(crate) mod runtime;
pub(crate) mod scope;
pub(crate) mod sealed_time;
pub(crate) mod secure_driver;
pub(crate) mod select2;
pub(crate) mod sockets;
#[cfg_attr(lsl_loom, path = "sync_loom.rs")]
pub(crate) mod sync;
pub(crate) mod trust_watch;
pub(crate) mod uid;
