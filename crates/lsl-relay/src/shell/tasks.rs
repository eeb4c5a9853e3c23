//! The tasks of a relay, on the runtime of the process, which outlives them.

use std::future::Future;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::runtime::{EnterGuard, Handle};
use tokio::task::{AbortHandle, JoinSet};

/// Tasks that end with their relay.
#[derive(Debug)]
pub(super) struct Tasks {
    handle: Handle,
    running: Mutex<JoinSet<()>>,
}

impl Tasks {
    pub(super) fn on(handle: Handle) -> Self {
        Self {
            handle,
            running: Mutex::default(),
        }
    }

    /// Makes the calling thread one of the runtime's, as sockets want it.
    pub(super) fn enter(&self) -> EnterGuard<'_> {
        self.handle.enter()
    }

    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
        let mut running = self.lock();
        while running.try_join_next().is_some() {}
        running.spawn_on(task, &self.handle)
    }

    /// Ends all of them, soon.
    pub(super) fn end(&self) {
        self.lock().abort_all();
    }

    /// Whether none is left.
    pub(super) fn are_over(&self) -> bool {
        let mut running = self.lock();
        while running.try_join_next().is_some() {}
        running.is_empty()
    }

    fn lock(&self) -> MutexGuard<'_, JoinSet<()>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
