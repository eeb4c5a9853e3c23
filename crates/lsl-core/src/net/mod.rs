//! The tokio shell: sockets, timers and tasks around the protocol modules. Nothing here decides what
//! a byte means, and nothing outside `sockets` sets a socket option.

pub(crate) mod acceptor;
pub(crate) mod consumer;
pub(crate) mod custody;
pub(crate) mod dial;
pub(crate) mod echo;
pub(crate) mod entrance;
pub(crate) mod feed;
pub(crate) mod full_info;
pub(crate) mod handshake;
pub(crate) mod inlet_tunnel;
pub(crate) mod lingering;
pub(crate) mod link;
pub(crate) mod lost;
pub(crate) mod monitor;
pub(crate) mod pace;
pub(crate) mod peers;
pub(crate) mod pings;
pub(crate) mod ports;
pub(crate) mod race;
pub(crate) mod refusal;
pub(crate) mod runtime;
pub(crate) mod sealed_time;
pub(crate) mod secure_clock;
pub(crate) mod secure_driver;
pub(crate) mod sockets;
pub(crate) mod source;
pub(crate) mod time_probe;
pub(crate) mod trust_watch;
pub(crate) mod tunnel;
pub(crate) mod turns;
pub(crate) mod uid;
#[cfg_attr(windows, path = "watched_windows.rs")]
pub(crate) mod watched;
