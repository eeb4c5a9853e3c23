//! Clock probes under the keys of live sessions: which session a packet of the service port belongs
//! to. What is authentic and new is for `lsl-secure` to say. Spec: LSS/1 §9.3.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex};

use lsl_platform::clock::local_clock;
use lsl_secure::{TIME_PACKET_LEN, TimeResponder, session_prefix};

use crate::net::monitor::lock_ignoring_poison;

/// The sessions whose probes this context answers, by the first bytes of their ids.
#[derive(Debug, Default)]
pub(crate) struct SealedClocks {
    sessions: Mutex<HashMap<[u8; 8], Arc<Mutex<TimeResponder>>>>,
}

impl SealedClocks {
    /// Answers the probes of a session until the registration is dropped. Of two sessions that share a
    /// prefix the newer has no time over UDP.
    pub(crate) fn register(self: &Arc<Self>, responder: TimeResponder) -> Registration {
        let prefix = responder.prefix();
        let fresh = match lock_ignoring_poison(&self.sessions).entry(prefix) {
            Entry::Occupied(_) => false,
            Entry::Vacant(place) => {
                place.insert(Arc::new(Mutex::new(responder)));
                true
            }
        };
        Registration {
            clocks: Arc::clone(self),
            prefix: fresh.then_some(prefix),
        }
    }

    /// The answer to a probe that arrived at `received_at`; `None` for all that deserves none.
    pub(crate) fn answer(
        &self,
        datagram: &[u8],
        received_at: f64,
    ) -> Option<[u8; TIME_PACKET_LEN]> {
        let prefix = session_prefix(datagram)?;
        let responder = lock_ignoring_poison(&self.sessions).get(&prefix).cloned()?;
        // Of one session there is one socket that asks, so nobody waits for this lock.
        lock_ignoring_poison(&responder).answer(datagram, received_at, local_clock)
    }
}

/// Keeps a session's clock answered; the keys are erased when it is dropped.
#[derive(Debug)]
pub(crate) struct Registration {
    clocks: Arc<SealedClocks>,
    prefix: Option<[u8; 8]>,
}

impl Drop for Registration {
    fn drop(&mut self) {
        if let Some(prefix) = self.prefix {
            lock_ignoring_poison(&self.clocks.sessions).remove(&prefix);
        }
    }
}
