//! Tasks that end with their owner. Nothing here knows LSL.

use std::sync::Arc;

use tokio::sync::Semaphore;

use crate::net::runtime;
use crate::net::select2::select2;

/// Tasks that are dropped when [`close`](Self::close) is called. Clones are the same scope.
#[derive(Debug, Clone)]
pub(crate) struct Scope(Arc<Semaphore>);

impl Default for Scope {
    fn default() -> Self {
        // Gives nothing.
        Self(Arc::new(Semaphore::new(0)))
    }
}

impl Scope {
    /// Runs a task on the process runtime; without one there is nobody to serve.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let ended = Arc::clone(&self.0);
        let _ = runtime::spawn(async move { drop(select2(task, ended.acquire()).await) });
    }

    /// Ends all tasks, and those that come later at once.
    pub(crate) fn close(&self) {
        self.0.close();
    }
}
