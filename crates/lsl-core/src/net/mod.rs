//! The tokio shell: sockets, timers and tasks around the protocol modules. Nothing here decides what
//! a byte means, and nothing outside `sockets` sets a socket option.

pub(crate) mod monitor;
pub(crate) mod ports;
pub(crate) mod reach;
pub(crate) mod registry;
pub(crate) mod resolver;
pub(crate) mod responder;
pub(crate) mod runtime;
pub(crate) mod service;
pub(crate) mod sockets;
