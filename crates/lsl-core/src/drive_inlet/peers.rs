//! What an inlet remembers of the outlets it met encrypted, or was refused by: whose key it was, what
//! went wrong last, and how long to wait before the next try. Spec: LSS/1 §4.2, §7.4.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use lsl_platform::clock::local_clock;
use lsl_proto::limits::{self, TokenBucket};
use lsl_secure::{Cause, PublicKey};

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
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    pins: bool,
    learnt: Mutex<Learnt>,
}

#[derive(Debug, Default)]
struct Learnt {
    /// Of the outlet that was accepted last.
    key: Option<PublicKey>,
    /// Whether encryption was ever tried, with whatever result.
    has_tried: bool,
    changes: Vec<KeyChange>,
}

/// An outlet that was trusted and had another key than the one before.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct KeyChange {
    /// The key before the change, as `SHA256:…`.
    pub before: String,
    /// The key after the change, as `SHA256:…`.
    pub after: String,
    /// Name of the new key's owner in our trust file.
    pub peer_name: String,
    /// Whether the outlet was refused, because the key is pinned.
    pub is_refused: bool,
    /// When that was first seen, in seconds of [`local_clock`](crate::local_clock).
    pub time: f64,
}

impl PeerHistory {
    /// Lets keys change, unless the configuration says `pin_peer`.
    pub fn new() -> Self {
        Self::default()
    }

    /// Refuses every other key than the first one, whatever the configuration says.
    pub fn pinned() -> Self {
        let shared = Shared {
            pins: true,
            ..Shared::default()
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// Whose key the outlet had that was accepted last, as `SHA256:…`.
    pub fn fingerprint(&self) -> Option<String> {
        self.lock().key.map(|key| key.fingerprint().to_string())
    }

    /// Changes of the key so far, each pair of keys once, the first sixteen.
    pub fn key_changes(&self) -> Vec<KeyChange> {
        self.lock().changes.clone()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Learnt> {
        lock_ignoring_poison(&self.shared.learnt)
    }
}

impl Learnt {
    fn note(&mut self, before: PublicKey, after: PublicKey, peer_name: &str, is_refused: bool) {
        let change = KeyChange {
            before: before.fingerprint().to_string(),
            after: after.fingerprint().to_string(),
            peer_name: peer_name.to_owned(),
            is_refused,
            time: local_clock(),
        };
        let is_known = |known: &KeyChange| {
            (&known.before, &known.after, known.is_refused)
                == (&change.before, &change.after, is_refused)
        };
        if self.changes.len() < MAX_CHANGES && !self.changes.iter().any(is_known) {
            self.changes.push(change);
        }
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

    /// The key that the stream's outlet had last.
    pub(crate) fn key(&self) -> Option<PublicKey> {
        self.history.lock().key
    }

    /// Encryption is tried now. From here on there is no way back to plaintext.
    pub(crate) fn tries(&self) {
        self.history.lock().has_tried = true;
    }

    /// Whether encryption was ever tried.
    pub(crate) fn has_tried(&self) -> bool {
        self.history.lock().has_tried
    }

    /// The key that another one must not replace, if `key` is another one and the configuration
    /// (`pins`) or the history says so. Remembers such a try.
    pub(crate) fn pinned_against(
        &self,
        key: PublicKey,
        name: &str,
        pins: bool,
    ) -> Option<PublicKey> {
        let mut learnt = self.history.lock();
        let before = learnt.key.filter(|before| *before != key)?;
        if !pins && !self.history.shared.pins {
            return None;
        }
        learnt.note(before, key, name, true);
        Some(before)
    }

    /// An outlet was accepted. Gives the key that was there before if it is another one.
    ///
    /// # Errors
    /// That key, if it is pinned: another handshake of the stream was faster.
    pub(crate) fn accepted(
        &self,
        key: PublicKey,
        name: &str,
        pins: bool,
    ) -> Result<Option<PublicKey>, PublicKey> {
        let mut learnt = self.history.lock();
        let before = learnt.key.filter(|before| *before != key);
        if let Some(before) = before {
            let is_refused = pins || self.history.shared.pins;
            learnt.note(before, key, name, is_refused);
            if is_refused {
                return Err(before);
            }
        }
        learnt.key = Some(key);
        drop(learnt);
        let mut state = self.lock();
        state.failures = 0;
        state.busy = false;
        state.last_error = None;
        Ok(before)
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
        let mut state = self.lock();
        state.failures = state.failures.saturating_add(1);
        state.busy = busy;
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

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        lock_ignoring_poison(&self.state)
    }
}

/// Changes of keys that are remembered; a stream has few, and a trusted outlet may try many.
const MAX_CHANGES: usize = 16;

/// How often the same cause is logged.
const LOG_INTERVAL_SECS: f64 = 60.0;

#[cfg(test)]
mod tests {
    use lsl_secure::SecretKey;

    use super::*;

    #[test]
    fn a_pinned_key_outlives_the_inlet_that_learnt_it() {
        let [first, second] = [1, 2].map(|seed| SecretKey::from_seed(&[seed; 32]).public());
        let history = PeerHistory::pinned();
        let inlet = || Peers::with_history(history.clone());
        assert_eq!(inlet().accepted(first, "amp", false), Ok(None));
        inlet().tries();
        assert!(inlet().has_tried());
        assert_eq!(inlet().pinned_against(first, "amp", false), None);
        for _ in 0..3 {
            assert_eq!(inlet().pinned_against(second, "spare", false), Some(first));
            // The handshake of the first one may end between check and acceptance.
            assert_eq!(inlet().accepted(second, "spare", false), Err(first));
        }
        assert_eq!(inlet().key(), Some(first));
        let changes = history.key_changes();
        assert_eq!(changes.len(), 1, "{changes:?}");
        assert!(changes[0].is_refused && changes[0].peer_name == "spare");

        let history = PeerHistory::new();
        let inlet = || Peers::with_history(history.clone());
        assert_eq!(inlet().accepted(first, "amp", false), Ok(None));
        assert_eq!(inlet().pinned_against(second, "spare", true), Some(first));
        assert_eq!(inlet().accepted(second, "spare", false), Ok(Some(first)));
        let refused = history
            .key_changes()
            .iter()
            .map(|it| it.is_refused)
            .collect::<Vec<_>>();
        assert_eq!(refused, [true, false]);
        for seed in 3..60 {
            let other = SecretKey::from_seed(&[seed; 32]).public();
            inlet().pinned_against(other, "x", true);
        }
        assert_eq!(history.key_changes().len(), MAX_CHANGES);
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
