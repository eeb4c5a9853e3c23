//! The tokio shell: sockets, timers and tasks around the protocol modules. Nothing here decides what
//! a byte means, and nothing outside `sockets` sets a socket option.

pub(crate) mod acceptor;
#[cfg(feature = "secure")]
pub(crate) mod advert;
pub(crate) mod consumer;
#[cfg(feature = "secure")]
pub(crate) mod describe;
pub(crate) mod dial;
pub(crate) mod feed;
pub(crate) mod full_info;
#[cfg(feature = "secure")]
pub(crate) mod handshake;
#[cfg(feature = "secure")]
pub(crate) mod inlet_tunnel;
pub(crate) mod link;
pub(crate) mod monitor;
#[cfg(feature = "secure")]
pub(crate) mod peers;
pub(crate) mod ports;
pub(crate) mod race;
pub(crate) mod reach;
pub(crate) mod registry;
pub(crate) mod resolver;
pub(crate) mod responder;
pub(crate) mod runtime;
#[cfg(feature = "secure")]
pub(crate) mod sealed_time;
#[cfg(feature = "secure")]
pub(crate) mod secure_clock;
pub(crate) mod service;
pub(crate) mod sockets;
pub(crate) mod source;
pub(crate) mod time_probe;
pub(crate) mod uid;
#[cfg(feature = "secure")]
pub(crate) mod unveil;
