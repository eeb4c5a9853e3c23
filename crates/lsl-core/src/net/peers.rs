//! What an inlet remembers of the outlets it met encrypted, or was refused by: whose key it was, what
//! went wrong last, and how long to wait before the next try. Spec: LSS/1 §4.2, §7.4.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use lsl_platform::clock::local_clock;
use lsl_secure::{Cause, PublicKey, Security};

use crate::net::handshake::refresh;
use crate::net::monitor::lock_ignoring_poison;
use crate::net::uid;
use crate::stats::Encryption;

/// The memory of one inlet; its tasks share it.
#[derive(Debug, Default)]
pub(crate) struct Peers {
    state: Mutex<State>,
    /// Whether nobody asked for this connection in particular.
    is_of_strangers: bool,
}

#[derive(Debug, Default)]
struct State {
    /// Of the outlet that was accepted last.
    key: Option<PublicKey>,
    /// Whether encryption was ever tried, with whatever result.
    has_tried: bool,
    /// Of the data connection, while there is one.
    encryption: Option<Encryption>,
    last_error: Option<String>,
    /// Since the last success.
    failures: u32,
    busy: bool,
    /// When each cause was logged.
    logged: Vec<(Cause, f64)>,
}

impl Peers {
    /// For a look at an outlet that happens to be there. Its failures are nobody's worry.
    pub(crate) fn of_strangers() -> Self {
        Self {
            is_of_strangers: true,
            ..Self::default()
        }
    }

    /// The key that the inlet was connected with last.
    pub(crate) fn key(&self) -> Option<PublicKey> {
        self.lock().key
    }

    /// Encryption is tried now. From here on there is no way back to plaintext.
    pub(crate) fn tries(&self) {
        self.lock().has_tried = true;
    }

    /// Whether encryption was ever tried.
    pub(crate) fn has_tried(&self) -> bool {
        self.lock().has_tried
    }

    /// An outlet was accepted. Gives the key that was there before if it is another one.
    pub(crate) fn accepted(&self, key: PublicKey) -> Option<PublicKey> {
        let mut state = self.lock();
        state.failures = 0;
        state.busy = false;
        state.last_error = None;
        state.key.replace(key).filter(|before| *before != key)
    }

    /// There is no connection, for a reason of security. Logged once a minute per cause.
    pub(crate) fn failed(&self, cause: Cause, text: &str) {
        self.note(cause, text, cause == Cause::Busy);
    }

    /// A connection that there was ended for a reason of security.
    pub(crate) fn ended(&self, cause: Cause, text: &str) {
        self.note(cause, text, false);
    }

    fn note(&self, cause: Cause, text: &str, busy: bool) {
        let now = local_clock();
        let mut state = self.lock();
        state.failures = state.failures.saturating_add(1);
        state.busy = busy;
        state.last_error = Some(text.to_owned());
        let known = state.logged.iter_mut().find(|(known, _)| *known == cause);
        let is_due = match known {
            Some((_, at)) if now - *at < LOG_INTERVAL_SECS => false,
            Some((_, at)) => {
                *at = now;
                true
            }
            None => {
                state.logged.push((cause, now));
                true
            }
        };
        drop(state);
        if is_due && !self.is_of_strangers {
            tracing::warn!(cause = cause.name(), "{text}");
        }
    }

    /// Why there is no connection; `None` once there is one.
    pub(crate) fn last_error(&self) -> Option<String> {
        self.lock().last_error.clone()
    }

    /// Whether the last failure was that the outlet has no place just now.
    pub(crate) fn is_busy(&self) -> bool {
        self.lock().busy
    }

    /// How the data connection is encrypted.
    pub(crate) fn encryption(&self) -> Option<Encryption> {
        self.lock().encryption.clone()
    }

    pub(crate) fn set_encryption(&self, encryption: Option<Encryption>) {
        self.lock().encryption = encryption;
    }

    /// Waits before the next try; not longer than until the trust list changes.
    pub(crate) async fn pause(&self, security: &Arc<Security>) {
        let (busy, failures) = {
            let state = self.lock();
            (state.busy, state.failures)
        };
        let mut left = retry_delay(busy, failures, uid::random_number());
        let before = security.trust();
        while !left.is_zero() {
            let nap = left.min(TRUST_CHECK);
            tokio::time::sleep(nap).await;
            left -= nap;
            refresh(security).await;
            if !Arc::ptr_eq(&before, &security.trust()) {
                return;
            }
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        lock_ignoring_poison(&self.state)
    }
}

/// After 503 0.25 to 1 s; else 0.5 s, doubling to 10 s with each failure, a quarter more or less.
/// Spec: LSS/1 §4.2.
fn retry_delay(busy: bool, failures: u32, random: u32) -> Duration {
    let fraction = f64::from(random) / f64::from(u32::MAX);
    if busy {
        return Duration::from_secs_f64(0.25 + 0.75 * fraction);
    }
    let doublings = i32::try_from(failures.saturating_sub(1).min(16)).unwrap_or(0);
    let secs = (0.5 * 2.0_f64.powi(doublings)).min(10.0);
    Duration::from_secs_f64(secs * (0.75 + 0.5 * fraction))
}

/// How often the same cause is logged.
const LOG_INTERVAL_SECS: f64 = 60.0;

/// How often a waiting inlet looks at the trust file.
const TRUST_CHECK: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retries_slow_down_but_never_stop() {
        let check = |busy, failures, shortest: f64, longest: f64| {
            for (random, secs) in [(0, shortest), (u32::MAX, longest)] {
                let delay = retry_delay(busy, failures, random).as_secs_f64();
                assert!((delay - secs).abs() < 1e-6, "{busy} {failures}: {delay}");
            }
        };
        check(true, 1, 0.25, 1.0);
        check(true, 50, 0.25, 1.0);
        check(false, 0, 0.375, 0.625);
        check(false, 1, 0.375, 0.625);
        check(false, 2, 0.75, 1.25);
        check(false, 5, 6.0, 10.0);
        check(false, 6, 7.5, 12.5);
        check(false, u32::MAX, 7.5, 12.5);
    }

    #[test]
    fn an_error_is_known_until_there_is_a_connection() {
        let peers = Peers::default();
        peers.failed(Cause::Busy, "no place");
        assert!(peers.is_busy());
        peers.failed(Cause::Expired, "too old");
        assert!(!peers.is_busy());
        assert_eq!(peers.last_error().as_deref(), Some("too old"));
    }
}
