//! Drives discovery: the UDP sockets of searches, of the service and of the multicast responder.

pub(crate) mod known_hosts;
pub(crate) mod lingering;
pub(crate) mod network_config;
pub(crate) mod redacted;
pub(crate) mod relays;
mod replies;
pub(crate) mod responder;
pub(crate) mod search;
pub(crate) mod serve;
mod tcp_probe;
