//! What an inlet remembers of the outlets it met encrypted, or was refused by: whose key it was, what
//! went wrong last, and how long to wait before the next try. Spec: LSS/1 §4.2, §7.4.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use lsl_platform::clock::local_clock;
use lsl_proto::limits::{self, TokenBucket};
pub use lsl_proto::security::KeyChange;
use lsl_proto::security::PeerKeys;
use lsl_secure::Cause;

use crate::net::monitor::lock_ignoring_poison;
use crate::net::uid;
use crate::stats::Encryption;

/// What was learnt of the outlets of one stream: whose key they have, and that they encrypt.
///
/// An inlet has one of its own, which ends with it. Whoever makes several inlets for one stream, one
/// after the other, gives all of them the same ([`InletBuilder::peer_history`]): else a reconnect
/// forgets `pin_peer`, and that the stream was encrypted. Clones are the same history.
///
/// [`InletBuilder::peer_history`]: crate::InletBuilder::peer_history
#[derive(Debug, Clone, Default)]
pub struct PeerHistory {
    keys: Arc<Mutex<PeerKeys>>,
}

impl PeerHistory {
    /// Lets keys change, unless the configuration says `pin_peer`.
    pub fn new() -> Self {
        Self::default()
    }

    /// Refuses every other key than the first one, whatever the configuration says.
    pub fn pinned() -> Self {
        let history = Self::default();
        history.lock().pins = true;
        history
    }

    /// Whose key the outlet had that was accepted last, as `SHA256:…`.
    pub fn fingerprint(&self) -> Option<String> {
        self.lock().key.map(|key| key.fingerprint().to_string())
    }

    /// Changes of the key so far, each pair of keys once, the first sixteen.
    pub fn key_changes(&self) -> Vec<KeyChange> {
        self.lock().changes.clone()
    }

    fn lock(&self) -> MutexGuard<'_, PeerKeys> {
        lock_ignoring_poison(&self.keys)
    }
}

/// The memory of one inlet; its tasks share it.
#[derive(Debug, Default)]
pub(crate) struct Peers {
    state: Mutex<State>,
    history: PeerHistory,
    /// Whether nobody asked for this connection in particular.
    is_of_strangers: bool,
}

#[derive(Debug, Default)]
struct State {
    /// Of the data connection, while there is one.
    encryption: Option<Encryption>,
    last_error: Option<String>,
    /// Failed tries since the last success.
    failures: u32,
    busy: bool,
    /// Whether the last failure was that the network ended a handshake.
    was_cut: bool,
    /// How often each cause may be logged.
    logged: HashMap<Cause, TokenBucket>,
}

impl Peers {
    /// For a look at an outlet that happens to be there. Its failures are nobody's worry.
    pub(crate) fn of_strangers() -> Self {
        Self {
            is_of_strangers: true,
            ..Self::default()
        }
    }

    /// With what earlier inlets of the stream learnt.
    pub(crate) fn with_history(history: PeerHistory) -> Self {
        Self {
            history,
            ..Self::default()
        }
    }

    /// Keys of the stream's outlets, locked.
    pub(crate) fn keys(&self) -> MutexGuard<'_, PeerKeys> {
        self.history.lock()
    }

    /// An outlet was accepted: forgets failures.
    pub(crate) fn accepted(&self) {
        let mut state = self.lock();
        state.failures = 0;
        (state.busy, state.was_cut) = (false, false);
        state.last_error = None;
    }

    /// There is no connection, for a reason of security. Logged once a minute per cause.
    pub(crate) fn failed(&self, cause: Cause, text: &str) {
        self.note(cause, text, cause == Cause::Busy);
    }

    /// The network ended a handshake before anybody refused anything.
    pub(crate) fn cut(&self, cause: Cause, text: &str) {
        self.note(cause, text, false);
        self.lock().was_cut = true;
    }

    /// A connection that there was ended for a reason of security.
    pub(crate) fn ended(&self, cause: Cause, text: &str) {
        self.note(cause, text, false);
    }

    fn note(&self, cause: Cause, text: &str, busy: bool) {
        let mut state = self.lock();
        state.failures = state.failures.saturating_add(1);
        (state.busy, state.was_cut) = (busy, false);
        state.last_error = Some(text.to_owned());
        let once = || TokenBucket::new(1.0 / LOG_INTERVAL_SECS, 1.0);
        let logged = state.logged.entry(cause).or_insert_with(once);
        let is_due = logged.take(local_clock());
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

    /// Whether the last failure was that the network ended a handshake: another one may do better at once. What was
    /// tried with encryption is not tried without, as ever.
    pub(crate) fn was_cut(&self) -> bool {
        self.lock().was_cut
    }

    /// How the data connection is encrypted.
    pub(crate) fn encryption(&self) -> Option<Encryption> {
        self.lock().encryption.clone()
    }

    pub(crate) fn set_encryption(&self, encryption: Option<Encryption>) {
        self.lock().encryption = encryption;
    }

    /// Pause before the next try in seconds.
    pub(crate) fn retry_delay_secs(&self) -> f64 {
        let state = self.lock();
        limits::retry_delay_secs(state.busy, state.failures, uid::random_number())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock_ignoring_poison(&self.state)
    }
}

/// How often the same cause is logged.
const LOG_INTERVAL_SECS: f64 = 60.0;

#[cfg(test)]
mod tests {
    use super::*;

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
