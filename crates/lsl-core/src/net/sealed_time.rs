//! Clock probes under the keys of live sessions: which session a packet of the service port belongs
//! to, and in which clock it is answered. What is authentic and new is for `lsl-secure` to say. Spec: LSS/1 §9.3.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex};

use lsl_platform::clock::local_clock;
use lsl_secure::{TIME_PACKET_LEN, TimeResponder, session_prefix};

use crate::drive_outlet::origin::StreamClock;
use crate::net::monitor::lock_ignoring_poison;

/// The sessions whose probes this context answers, by the first bytes of their ids.
#[derive(Debug, Default)]
pub(crate) struct SealedClocks {
    sessions: Mutex<HashMap<[u8; 8], Arc<SealedClock>>>,
}

#[derive(Debug)]
struct SealedClock {
    responder: Mutex<TimeResponder>,
    /// Clock to answer in, if it is not ours.
    source: Option<Arc<StreamClock>>,
}

impl SealedClocks {
    /// Answers the probes of a session until the registration is dropped, in the clock of a source unless it is our
    /// own. Of two sessions that share a prefix the newer has no time over UDP.
    pub(crate) fn register(
        self: &Arc<Self>,
        responder: TimeResponder,
        source: Option<Arc<StreamClock>>,
    ) -> Registration {
        let prefix = responder.prefix();
        let fresh = match lock_ignoring_poison(&self.sessions).entry(prefix) {
            Entry::Occupied(_) => false,
            Entry::Vacant(place) => {
                let responder = Mutex::new(responder);
                place.insert(Arc::new(SealedClock { responder, source }));
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
        let clock = lock_ignoring_poison(&self.sessions).get(&prefix).cloned()?;
        let times = || match &clock.source {
            None => Some([received_at, local_clock()]),
            Some(source) => {
                let (first, second) = source.shifts()?;
                Some([received_at + first, local_clock() + second])
            }
        };
        // Of one session there is one socket that asks, so nobody waits for this lock.
        lock_ignoring_poison(&clock.responder).answer_with(datagram, times)
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
