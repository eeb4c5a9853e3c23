//! Keys for the clock of an outlet that encrypts, lent by whichever session lives. A session for the clock
//! alone is opened while there is no feed. Spec: LSS/1 §9.2.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use lsl_platform::clock::local_clock;
use lsl_proto::clock::{Clock, TimeAlarm, TimeCorrection};
use lsl_proto::inlet::Exchange;
use lsl_proto::security::SessionEvents;
use lsl_secure::audit::EventKind;
use lsl_secure::{Security, TimeProber};

use crate::drive_clock::pings::Pings;
use crate::drive_inlet::connection::Connection;
use crate::drive_inlet::task::{Facts, InletShared};
use crate::net::monitor::Monitor;
use crate::net::race::{Winner, race};
use crate::{Error, Result};

/// A session that lends its keys.
#[derive(Debug)]
pub(crate) struct LentKeys {
    id: u64,
    is_of_feed: bool,
    /// Taken by the clock.
    prober: Option<TimeProber>,
    session: ClockSession,
}

/// What the clock uses of a session besides its keys.
#[derive(Debug, Clone)]
pub(crate) struct ClockSession {
    id: u64,
    pub(crate) pings: Arc<Pings>,
    events: SessionEvents,
    security: Arc<Security>,
}

impl LentKeys {
    /// Returns the way to ask through the session that the samples come by.
    pub(crate) fn pings_of_feed(&self) -> Option<Arc<Pings>> {
        self.is_of_feed.then(|| Arc::clone(&self.session.pings))
    }
}

impl ClockSession {
    /// Takes over the keys that are lent now. Returns whether there are any.
    pub(crate) fn follow(
        present: &mut Option<Self>,
        shared: &InletShared,
        clock: &mut Clock,
    ) -> bool {
        let mut facts = shared.facts.lock();
        let id = facts.keys.as_ref().map(|keys| keys.id);
        if id != present.as_ref().map(|session| session.id) {
            let keys = facts.keys.as_mut();
            let prober = keys.and_then(|keys| keys.prober.take());
            clock.set_keys(prober, local_clock());
            *present = facts.keys.as_ref().map(|keys| keys.session.clone());
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

/// Takes the keys back when the session ends.
#[derive(Debug)]
pub(crate) struct KeysGuard<'a> {
    facts: &'a Monitor<Facts>,
    id: u64,
}

impl Drop for KeysGuard<'_> {
    fn drop(&mut self) {
        self.facts.update(|facts| {
            facts.keys.take_if(|keys| keys.id == self.id);
        });
    }
}

/// Lends the keys of a session to the clock; `None` for a connection without encryption, and if a feed's
/// are lent already.
pub(crate) fn lend<'a>(
    facts: &'a Monitor<Facts>,
    connection: &mut Connection,
    is_of_feed: bool,
) -> Option<KeysGuard<'a>> {
    let session = connection.session()?;
    let (prober, (events, security)) = (session.take_prober()?, session.events());
    let pings = Arc::clone(&session.pings);
    let id = facts.update(|facts| {
        if !is_of_feed && facts.keys.is_some() {
            // The feed was faster.
            return None;
        }
        facts.last_keys += 1;
        let id = facts.last_keys;
        facts.keys = Some(LentKeys {
            id,
            is_of_feed,
            prober: Some(prober),
            session: ClockSession {
                id,
                pings,
                events,
                security,
            },
        });
        Some(id)
    })?;
    Some(KeysGuard { facts, id })
}

/// Opens a session for the clock whenever no feed lends its keys. Returns why that failed.
pub(crate) async fn keep_keys(shared: &InletShared, address: SocketAddr) -> Error {
    let facts = &shared.facts;
    loop {
        if shared.is_receiving() {
            // The feed will have a session any moment.
            let known = |facts: &mut Facts| facts.has_keys().then_some(());
            facts.wait(local_clock() + FEED_GRACE_SECS, known).await;
        }
        if !facts.lock().has_keys()
            && let Err(error) = hold_session(shared, address).await
        {
            return error;
        }
        let none = |facts: &mut Facts| (!facts.has_keys()).then_some(());
        facts.wait(f64::INFINITY, none).await;
    }
}

/// Holds a session for its keys alone, until a feed has one or it fails.
async fn hold_session(shared: &InletShared, address: SocketAddr) -> Result<()> {
    let facts = &shared.facts;
    let info = shared.source.info();
    let connecting = shared
        .source
        .dial(&info, address, || Exchange::TimeKeys, CONNECT_LIMIT);
    let mut connection = connecting.await?;
    let Some(_guard) = lend(facts, &mut connection, false) else {
        if facts.lock().has_keys() {
            // The feed was faster.
            return Ok(());
        }
        return Err(Error::Security(
            "the outlet's clock needs encryption".into(),
        ));
    };
    let of_feed = |facts: &mut Facts| {
        let keys = facts.keys.as_ref();
        keys.is_some_and(|keys| keys.is_of_feed).then_some(())
    };
    match race(connection.hold(), facts.wait(f64::INFINITY, of_feed)).await {
        Winner::First(error) => Err(error),
        Winner::Second(_) => Ok(()),
    }
}

const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// How long the clock waits for the session of a feed that is being opened.
const FEED_GRACE_SECS: f64 = 2.0;
