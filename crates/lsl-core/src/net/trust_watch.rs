//! Looks at the trust file every two seconds while there are sessions that it could end. A process
//! without sessions sleeps. Spec: LSS/1 §3.2.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lsl_secure::Security;

use crate::net::monitor::lock_ignoring_poison;
use crate::net::per_process::PerProcess;
use crate::net::runtime;

/// Makes sure that `security` is watched as long as it has live sessions; call it after each
/// `Security::enrol`. Does not block.
pub(crate) fn watch(security: &Arc<Security>) {
    let key = key(security);
    if !lock_ignoring_poison(watched()).insert(key) {
        return;
    }
    let watching = {
        let security = Arc::clone(security);
        runtime::spawn(async move {
            loop {
                tokio::time::sleep(PERIOD).await;
                let looking = Arc::clone(&security);
                // A trust file may lie on a network share that hangs.
                let looked = tokio::task::spawn_blocking(move || looking.refresh_if_idle()).await;
                if let Err(error) = looked {
                    tracing::warn!(%error, "cannot look at the trust file");
                }
                // Under the lock: who enrols after this look finds the place free.
                let mut watched = lock_ignoring_poison(watched());
                if !security.has_live_sessions() {
                    watched.remove(&key);
                    return;
                }
            }
        })
    };
    if let Err(error) = watching {
        tracing::warn!(%error, "nobody watches the trust file");
        lock_ignoring_poison(watched()).remove(&key);
    }
}

/// A watched security is held by its watcher, so its address is its own.
type Key = usize;

fn key(security: &Arc<Security>) -> Key {
    Arc::as_ptr(security).addr()
}

/// A forked child has none of its parent's tasks.
fn watched() -> &'static Mutex<HashSet<Key>> {
    static WATCHED: PerProcess<Mutex<HashSet<Key>>> = PerProcess::new();
    WATCHED.get()
}

const PERIOD: Duration = Duration::from_secs(2);
