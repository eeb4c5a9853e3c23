//! Keys that a session lends to the clock, and the session as the clock sees it. Spec: LSS/1 §9.

use std::sync::Arc;

use lsl_platform::clock::local_clock;
use lsl_proto::clock::{Clock, TimeAlarm, TimeCorrection};
use lsl_proto::security::SessionEvents;
use lsl_secure::audit::EventKind;
use lsl_secure::{Security, TimeProber};

use crate::drive_clock::pings::Pings;

/// A session that lends its keys.
#[derive(Debug)]
pub(crate) struct LentKeys {
    pub(super) id: u64,
    pub(super) is_of_feed: bool,
    /// Lent to the clock for single calls, so that it ends with the session.
    pub(super) prober: TimeProber,
    pub(super) session: ClockSession,
}

/// What the clock uses of a session besides its keys.
#[derive(Debug, Clone)]
pub(crate) struct ClockSession {
    pub(super) id: u64,
    pub(crate) pings: Arc<Pings>,
    pub(super) events: SessionEvents,
    pub(super) security: Arc<Security>,
}

impl LentKeys {
    /// Returns the way to ask through the session that the samples come by.
    pub(crate) fn pings_of_feed(&self) -> Option<Arc<Pings>> {
        self.is_of_feed.then(|| Arc::clone(&self.session.pings))
    }
}

impl ClockSession {
    /// Goes over to the session that lends its keys now. Returns these keys.
    pub(super) fn follow<'a>(
        present: &mut Option<Self>,
        lent: Option<&'a mut LentKeys>,
        clock: &mut Clock,
    ) -> Option<&'a mut TimeProber> {
        let id = lent.as_ref().map(|keys| keys.id);
        if id != present.as_ref().map(|session| session.id) {
            if present.is_none() {
                clock.resume(local_clock());
            }
            *present = lent.as_ref().map(|keys| keys.session.clone());
        }
        lent.map(|keys| &mut keys.prober)
    }

    /// Tells auditors what is odd about an authentic clock.
    pub(crate) fn report(&self, alarm: TimeAlarm, estimate: TimeCorrection) {
        let milliseconds = |secs: f64| secs * 1000.0;
        let (kind, mut detail) = match alarm {
            TimeAlarm::Step {
                change_secs,
                possible_secs,
            } => (
                EventKind::TimeStep,
                format!(
                    "the clock offset changed by {:.3} ms, at most {:.3} ms are possible",
                    milliseconds(change_secs),
                    milliseconds(possible_secs)
                ),
            ),
            TimeAlarm::RttRise {
                before_secs,
                now_secs,
            } => (
                EventKind::TimeRttRise,
                format!(
                    "the shortest round trip grew from {:.3} ms to {:.3} ms",
                    milliseconds(before_secs),
                    milliseconds(now_secs)
                ),
            ),
            TimeAlarm::Uncertain { error_secs } => (
                EventKind::TimeUncertain,
                format!(
                    "the clock offset may be wrong by {:.3} ms",
                    milliseconds(error_secs)
                ),
            ),
        };
        if estimate.is_low_quality() {
            detail.push_str("; measured over the data connection, as nobody answers over UDP");
        }
        let event = self.events.event(kind).detail(detail);
        self.security.audit().record(event);
    }
}
