//! What the two directions of a session with a consumer share: its registrations, and what auditors are
//! told. Spec: LSS/1 §8, §10.
//!
//! In a forked child everything stays silent: keys, counters and the connection are the parent's.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use lsl_platform::clock::local_clock;
use lsl_platform::fork::Generation;
use lsl_proto::security::SessionEvents;
use lsl_proto::transport::Rx;
use lsl_secure::audit::{Event, EventKind};
use lsl_secure::connection::SendHalf;
use lsl_secure::{Cause, PublicKey, Role, Security, SessionGuard, SessionInfo, Totals};

use crate::net::monitor::lock_ignoring_poison;
use crate::net::sealed_time::Registration;
use crate::stats::Encryption;

/// An established session. The last direction that is dropped ends it.
#[derive(Debug)]
pub(crate) struct Session {
    owner: Generation,
    security: Arc<Security>,
    events: SessionEvents,
    started: f64,
    registrations: Mutex<Registrations>,
    /// Key changes of this side that are not audited yet: senders hold locks.
    key_updates: AtomicU64,
    outcome: Mutex<Outcome>,
}

/// Watches the trust in the peer and answers its clock probes, until dropped.
#[derive(Debug)]
struct Registrations {
    trust: Option<SessionGuard>,
    clock: Option<Registration>,
}

/// What the directions left behind.
#[derive(Debug, Default)]
struct Outcome {
    sent: Totals,
    received: Totals,
    is_closed: bool,
    failure: Option<Cause>,
}

impl Session {
    pub(crate) fn new(
        events: SessionEvents,
        security: &Arc<Security>,
        clock: Option<Registration>,
    ) -> Self {
        Self {
            owner: Generation::current(),
            security: Arc::clone(security),
            events,
            started: local_clock(),
            registrations: Mutex::new(Registrations { trust: None, clock }),
            key_updates: AtomicU64::new(0),
            outcome: Mutex::default(),
        }
    }

    /// Whether this process is the one whose session it is.
    pub(crate) fn is_ours(&self) -> bool {
        self.owner.is_current()
    }

    /// Builds an event of this session.
    pub(crate) fn event(&self, kind: EventKind) -> Event {
        self.events.event(kind).suite(self.info().suite)
    }

    fn info(&self) -> &SessionInfo {
        self.events.info()
    }

    /// Returns the authenticated peer.
    pub(crate) fn peer(&self) -> PublicKey {
        self.info().peer
    }

    /// Returns the name of the peer in our trust file.
    pub(crate) fn peer_name(&self) -> &str {
        &self.info().peer_name
    }

    /// Returns what people are told of the session.
    pub(crate) fn encryption(&self) -> Encryption {
        Encryption {
            peer_name: self.info().peer_name.clone(),
            fingerprint: self.info().peer.fingerprint().to_string(),
            suite: self.info().suite.name(),
        }
    }

    /// Keeps the session registered as long as it lives.
    pub(crate) fn keep(&self, guard: SessionGuard) {
        lock_ignoring_poison(&self.registrations).trust = Some(guard);
    }

    /// Answers no clock probe any more.
    pub(crate) fn stop_clock(&self) {
        let clock = lock_ignoring_poison(&self.registrations).clock.take();
        drop(clock);
    }

    /// Counts key changes of the sending direction.
    pub(crate) fn add_key_updates(&self, count: u64) {
        self.key_updates.fetch_add(count, Ordering::Relaxed);
    }

    /// Audits the key changes of this side, and those of the peer that were just received.
    pub(crate) fn record_key_updates(&self, received: u64) {
        let sent = self.key_updates.swap(0, Ordering::Relaxed);
        for _ in 0..sent + received {
            let audit = self.security.audit();
            audit.record_with(EventKind::KeyUpdate, |kind| self.event(kind));
        }
    }

    /// Audits an error that ends the session, if an auditor wants to know it.
    pub(crate) fn record_failure(&self, error: &lsl_secure::Error) {
        if let Some(event) = self.events.failure(error) {
            let event = event.suite(self.info().suite);
            self.security.audit().record(event);
        }
    }

    /// Takes the end of the sending direction.
    pub(crate) fn note_sender(&self, half: &SendHalf) {
        if self.is_ours() {
            let mut outcome = lock_ignoring_poison(&self.outcome);
            outcome.sent = half.totals();
            outcome.is_closed |= half.is_closed();
            outcome.failure = half.failure();
        }
    }

    /// Takes the end of the receiving direction.
    pub(crate) fn note_receiver(&self, rx: &Rx) {
        if self.is_ours() {
            let mut outcome = lock_ignoring_poison(&self.outcome);
            outcome.received = rx.totals();
            outcome.is_closed |= rx.is_closed();
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let registrations = self.registrations.get_mut();
        let registrations = registrations.unwrap_or_else(PoisonError::into_inner);
        if !self.owner.is_current() {
            // What they drop takes locks that a thread of the parent may have held at the fork.
            std::mem::forget(registrations.trust.take());
            std::mem::forget(registrations.clock.take());
            return;
        }
        self.record_key_updates(0);
        let now = local_clock();
        if self.events.role() == Role::Outlet {
            let peer = self.events.peer().ip();
            lock_ignoring_poison(self.security.admission()).session_closed(peer, now);
        }
        let outcome = std::mem::take(&mut *lock_ignoring_poison(&self.outcome));
        let clean = outcome.failure.is_none() && outcome.is_closed;
        let totals = [outcome.sent, outcome.received];
        let audit = self.security.audit();
        audit.record_with(EventKind::SessionClosed, |_| {
            let event = self.events.closed(totals, now - self.started, clean);
            let event = event.suite(self.info().suite);
            if clean {
                return event;
            }
            event.cause(outcome.failure.unwrap_or(Cause::Truncated))
        });
    }
}
