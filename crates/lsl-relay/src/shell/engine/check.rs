//! Asks a server whether it can be an engine, before it is one. Spec: relay §13.

use std::sync::mpsc;

use lsl_core::relay::runtime;

use super::redis::{Redis, Server};
use crate::config::EngineConfig;
#[cfg(feature = "nats")]
use crate::engine::Scheme;
use crate::engine::{EngineError, ErrorKind, Result, packed};

/// Opens an engine once: its connection, its settings, and what the user may do there. Nothing is written. Blocks for
/// some seconds at most.
///
/// # Errors
/// [`ErrorKind::Retry`] if it is not there now, another kind if it cannot be used as it is.
pub fn check_engine(config: &EngineConfig) -> Result<()> {
    let failed = |error: lsl_core::Error| EngineError::new(ErrorKind::Denied, error.to_string());
    let handle = runtime(1).map_err(failed)?;
    let (done, is_done) = mpsc::channel();
    #[cfg(feature = "nats")]
    if config.address.scheme == Scheme::Nats {
        let server = super::nats::Nats::new(config)?;
        handle.spawn(async move { done.send(super::jetstream::check(server).await) });
        return is_done.recv().map_err(unasked)?;
    }
    let server = Redis::new(config)?;
    handle.spawn(async move {
        let asked = server.run(None, packed::rehearse()).await;
        let _ = done.send(asked.and_then(|(replies, _)| packed::rehearsed(&replies)));
    });
    is_done.recv().map_err(unasked)?
}

fn unasked(_: mpsc::RecvError) -> EngineError {
    EngineError::new(ErrorKind::Retry, "it was not asked")
}
