//! Drives discovery: the UDP sockets of searches, of the service and of the multicast responder.

pub(crate) mod advert;
pub(crate) mod answers;
pub(crate) mod network_config;
pub(crate) mod query_budget;
pub(crate) mod redacted;
pub(crate) mod registry;
pub(crate) mod responder;
pub(crate) mod search;
pub(crate) mod serve;
