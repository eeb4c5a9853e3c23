//! Looks at the trust file every two seconds while there are sessions that it could end. A process
//! without sessions sleeps. Spec: LSS/1 §3.2.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lsl_platform::fork::PerProcess;
use lsl_secure::Security;

use crate::net::monitor::lock_ignoring_poison;
use crate::net::runtime;

/// Makes sure that `security` is watched as long as it has live sessions; call it after each
/// `Security::register`. Does not block.
pub(crate) fn watch(security: &Arc<Security>) {
    let key = key(security);
    if !lock_ignoring_poison(watched()).insert(key) {
        return;
    }
    let watching = {
        let security = Arc::clone(security);
        let looking = Arc::clone(&security);
        let look = move || {
            looking.refresh_if_idle();
        };
        let goes_on = move || {
            // Under the lock: who registers after this look finds the place free.
            let mut watched = lock_ignoring_poison(watched());
            let goes_on = security.has_live_sessions();
            if !goes_on {
                watched.remove(&key);
            }
            goes_on
        };
        runtime::spawn(look_every(PERIOD, look, goes_on))
    };
    if let Err(error) = watching {
        tracing::warn!(%error, "nobody watches the trust file");
        lock_ignoring_poison(watched()).remove(&key);
    }
}

/// Looks after each `period` for as long as it `goes_on`. A look at a network share that hangs may take for
/// ever, and whatever else a look does is due all the same.
async fn look_every(
    period: Duration,
    look: impl Fn() + Clone + Send + 'static,
    goes_on: impl Fn() -> bool,
) {
    loop {
        tokio::time::sleep(period).await;
        let looked = tokio::task::spawn_blocking(look.clone());
        if let Ok(Err(error)) = tokio::time::timeout(period, looked).await {
            tracing::warn!(%error, "cannot look at the trust file");
        }
        if !goes_on() {
            return;
        }
    }
}

/// Looks at the trust file where it delays no samples: it may lie on a network share. Without an answer
/// the last good list counts.
pub(crate) async fn refresh(security: &Arc<Security>) {
    let looking = Arc::clone(security);
    let looked = tokio::task::spawn_blocking(move || looking.refresh_if_idle());
    // Fails otherwise only while the runtime ends.
    let _ = tokio::time::timeout(LOOK_LIMIT, looked).await;
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

/// How long a look at the trust file may hold up a connection.
const LOOK_LIMIT: Duration = Duration::from_secs(1);

const PERIOD: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::sync::mpsc;

    use super::*;

    /// Each look also ends a migration whose time is over.
    #[test]
    fn looks_again_while_a_look_hangs() {
        const MILLISECOND: Duration = Duration::from_millis(1);
        const PATIENCE: Duration = Duration::from_secs(30);
        let (release, hangs) = mpsc::channel::<()>();
        let hangs = Arc::new(Mutex::new(hangs));
        let looks = Arc::new(AtomicU32::new(0));
        let look = {
            let looks = Arc::clone(&looks);
            move || {
                if looks.fetch_add(1, Ordering::Relaxed) == 0 {
                    let _ = hangs.lock().unwrap().recv();
                }
            }
        };
        let goes_on = {
            let looks = Arc::clone(&looks);
            move || looks.load(Ordering::Relaxed) < 3
        };
        let (done, seen) = mpsc::channel();
        runtime::spawn(async move {
            look_every(MILLISECOND, look, goes_on).await;
            let _ = done.send(());
        })
        .unwrap();
        let ended = seen.recv_timeout(PATIENCE);
        drop(release);
        assert!(ended.is_ok(), "{} looks", looks.load(Ordering::Relaxed));
    }
}
