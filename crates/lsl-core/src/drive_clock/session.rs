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
    /// Taken by the clock.
    pub(super) prober: Option<TimeProber>,
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
    /// Takes over the keys that are lent now. Returns whether there are any.
    pub(super) fn follow(
        present: &mut Option<Self>,
        lent: &mut Option<LentKeys>,
        clock: &mut Clock,
    ) -> bool {
        let id = lent.as_ref().map(|keys| keys.id);
        if id != present.as_ref().map(|session| session.id) {
            let prober = (lent.as_mut()).and_then(|keys| keys.prober.take());
            clock.set_keys(prober, local_clock());
            *present = lent.as_ref().map(|keys| keys.session.clone());
        }
        id.is_some()
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
