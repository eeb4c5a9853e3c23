//! An established session of an inlet, beside the bytes: who is at the other end, what auditors and people
//! are told, and how others end it. Spec: LSS/1 §8, §9.5, §10.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use lsl_platform::clock::local_clock;
use lsl_proto::security::SessionEvents;
use lsl_secure::audit::{Event, EventKind};
use lsl_secure::handshake::Trail;
use lsl_secure::{
    Cause, Descriptor, Role, Security, SessionGuard, SessionInfo, TimeKeys, TimeProber, Totals,
};

use crate::drive_clock::pings::Pings;
use crate::drive_inlet::peers::Peers;
use crate::net::monitor::lock_ignoring_poison;
use crate::stats::Encryption;

/// A session and those who want to know how it goes.
#[derive(Debug)]
pub(crate) struct InletSession {
    events: SessionEvents,
    descriptor: Descriptor,
    registration: Registration,
    /// Those that the clock asks for; they do not count as signs that the outlet is silent.
    pub(crate) pings: Arc<Pings>,
    prober: Option<TimeProber>,
    started: f64,
    /// Changes of the outlet's key that auditors do not know of yet.
    key_updates: u64,
    /// Nothing may be sent any more.
    pub(crate) is_failed: bool,
}

/// Registration of a session with `Security`, which ends it, and with what the inlet remembers of peers.
#[derive(Debug)]
pub(crate) struct Registration {
    pub(crate) security: Arc<Security>,
    pub(crate) peers: Arc<Peers>,
    pub(crate) ending: Arc<Ending>,
    /// Keeps the session registered until it is dropped.
    pub(crate) guard: SessionGuard,
    pub(crate) peer: SocketAddr,
    pub(crate) trail: Arc<Trail>,
}

impl InletSession {
    /// `descriptor` is what the outlet said of its stream; `time_keys` are those of the session.
    pub(crate) fn new(
        info: Arc<SessionInfo>,
        descriptor: Descriptor,
        time_keys: Option<TimeKeys>,
        registration: Registration,
    ) -> Self {
        let uid = String::from_utf8_lossy(&descriptor.uid).into_owned();
        Self {
            events: SessionEvents::new(
                info,
                Role::Inlet,
                registration.peer,
                uid,
                registration.trail.span(),
            ),
            descriptor,
            registration,
            pings: Arc::default(),
            prober: time_keys.map(TimeKeys::into_prober),
            started: local_clock(),
            key_updates: 0,
            is_failed: false,
        }
    }

    fn record(&self, kind: EventKind, event: impl FnOnce(EventKind) -> Event) {
        let security = &self.registration.security;
        security.audit().record_with(kind, |kind| {
            let suite = self.events.info().suite;
            event(kind).suite(suite).policy(security.policy())
        });
    }

    /// Gives the session away: what auditors are told, and its registration.
    pub(crate) fn into_parts(self) -> (SessionEvents, Registration) {
        (self.events, self.registration)
    }

    /// Audits the success of the handshake.
    pub(crate) fn begun(&self) {
        self.record(EventKind::HandshakeOk, |kind| {
            let event = self.events.event(kind);
            event.trail(&self.registration.trail, local_clock())
        });
    }

    /// Counts a change of the outlet's key. Who reads holds a lock, so that others tell auditors of it.
    pub(crate) fn key_updated(&mut self) {
        self.key_updates += 1;
    }

    /// Returns what tells auditors of changes of keys that they do not know of, if there are any.
    pub(crate) fn take_key_updates(&mut self) -> Option<impl FnOnce() + use<>> {
        let count = std::mem::take(&mut self.key_updates);
        (count > 0).then(|| {
            let (events, security) = self.events();
            let suite = events.info().suite;
            move || {
                for _ in 0..count {
                    let event = |kind| events.event(kind).suite(suite);
                    security.audit().record_with(EventKind::KeyUpdate, event);
                }
            }
        })
    }

    /// Audits the end; `totals` are those of both directions.
    pub(crate) fn ended(&mut self, totals: [Totals; 2]) {
        if let Some(tell) = self.take_key_updates() {
            tell();
        }
        let lasted_secs = local_clock() - self.started;
        self.record(EventKind::SessionClosed, |_| {
            self.events.closed(totals, lasted_secs, !self.is_failed)
        });
    }

    /// Notes that the session ends because of `error`. Returns the text for people.
    pub(crate) fn fail(&mut self, error: &lsl_secure::Error) -> String {
        if let Some(event) = self.events.failure(error) {
            self.record(event.kind(), |_| event.cause(error.cause()));
        }
        self.is_failed = true;
        let name = &self.events.info().peer_name;
        let text = format!("{name} at {}: {error}", self.registration.peer);
        self.registration.peers.ended(error.cause(), &text);
        text
    }

    /// Returns what the outlet said of its stream.
    pub(crate) fn descriptor(&self) -> &Descriptor {
        &self.descriptor
    }

    /// Returns the peer and the cipher, for people.
    pub(crate) fn encryption(&self) -> Encryption {
        let info = self.events.info();
        Encryption {
            peer_name: info.peer_name.clone(),
            fingerprint: info.peer.fingerprint().to_string(),
            suite: info.suite.name(),
        }
    }

    /// Returns the key that the outlet has proved to own.
    pub(crate) fn peer_key(&self) -> lsl_secure::PublicKey {
        self.events.info().peer
    }

    /// Returns the builder of events about the clock, and where they go.
    pub(crate) fn events(&self) -> (SessionEvents, Arc<Security>) {
        (self.events.clone(), Arc::clone(&self.registration.security))
    }

    /// Takes the means to ask the outlet's clock; it is of use while this session lives.
    pub(crate) fn take_prober(&mut self) -> Option<TimeProber> {
        self.prober.take()
    }

    /// Ends the session as if the outlet had lost our trust.
    #[cfg(test)]
    pub(crate) fn end(&self, cause: Cause) {
        self.registration.ending.end(cause);
    }

    /// Ends the session if the outlet lost our trust; else `context` is woken when it does.
    pub(crate) fn poll_end(&self, context: &Context<'_>) -> lsl_secure::Result<()> {
        match self.registration.ending.poll(context) {
            Poll::Pending => Ok(()),
            Poll::Ready(cause) => {
                let text = "the outlet is no longer trusted";
                Err(lsl_secure::Error::session(cause, text))
            }
        }
    }
}

/// Tells a session that its peer lost our trust.
#[derive(Debug, Default)]
pub(crate) struct Ending {
    state: Mutex<(Option<Cause>, Option<Waker>)>,
}

impl Ending {
    /// Ends the session, from any thread.
    pub(crate) fn end(&self, cause: Cause) {
        let mut state = lock_ignoring_poison(&self.state);
        state.0 = Some(cause);
        let waker = state.1.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Returns why the session ends; else `context` is woken when it does.
    pub(crate) fn poll(&self, context: &Context<'_>) -> Poll<Cause> {
        let mut state = lock_ignoring_poison(&self.state);
        if let Some(cause) = state.0 {
            return Poll::Ready(cause);
        }
        match &mut state.1 {
            Some(waker) => waker.clone_from(context.waker()),
            none => *none = Some(context.waker().clone()),
        }
        Poll::Pending
    }
}
