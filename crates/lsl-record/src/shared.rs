//! What the streams of a recording share: settings, queues, and which outlet belongs to which of them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use lsl_core::{Context, History};
use tokio::sync::watch;

use crate::event::Events;
use crate::halt::Halt;
use crate::live::Stamps;
use crate::queue::{Queue, Slot};
use crate::strangers::StrangerEvents;

/// Which outlet is recorded as which stream, so that none is recorded twice.
#[derive(Debug, Default)]
pub(crate) struct Claims(Mutex<HashMap<Vec<u8>, Slot>>);

impl Claims {
    /// Whether the outlet is, or now became, that of this stream.
    pub(crate) fn claim(&self, uid: &[u8], slot: Slot) -> bool {
        let mut claims = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *claims.entry(uid.to_vec()).or_insert(slot) == slot
    }

    /// Gives up the outlet `uid`, if this stream owns it.
    pub(crate) fn release(&self, uid: &[u8], slot: Slot) {
        let mut claims = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if claims.get(uid) == Some(&slot) {
            claims.remove(uid);
        }
    }

    /// Whether a stream other than this one has it.
    pub(crate) fn is_of_another(&self, uid: &[u8], slot: Slot) -> bool {
        let claims = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        claims.get(uid).is_some_and(|owner| *owner != slot)
    }

    /// Returns true if a stream owns this outlet.
    pub(crate) fn is_claimed(&self, uid: &[u8]) -> bool {
        let claims = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        claims.contains_key(uid)
    }
}

/// Treatment of a stream that comes back with another trusted key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OtherKeys {
    /// The stream is refused until the first key is back.
    Refuse,
    /// The stream goes on, unless the configuration pins keys.
    Allow,
}

/// Treatment of all streams of a recording.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StreamSettings {
    /// Seconds of samples that may wait in each inlet.
    pub(crate) buffer_secs: f64,
    /// Treatment of timestamps on their way into the file.
    pub(crate) stamps: Stamps,
    pub(crate) other_keys: OtherKeys,
    /// Past with which each stream begins.
    pub(crate) history: History,
}

/// Settings and queues that all streams of a recording share.
#[derive(Debug, Clone)]
pub(crate) struct Common {
    pub(crate) context: Context,
    pub(crate) queue: Queue,
    pub(crate) claims: Arc<Claims>,
    pub(crate) events: Events,
    pub(crate) stranger_events: Arc<StrangerEvents>,
    pub(crate) settings: StreamSettings,
    pub(crate) halt: watch::Receiver<Halt>,
    /// When the recording ends, by our clock, once that is known.
    pub(crate) end: Arc<OnceLock<f64>>,
}
