//! Accepts a connection: reads its first bytes, and shakes hands if they begin a session.
//! Spec: LSS/1 §4.2-4.4, §5.7, §6.2.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lsl_platform::clock::local_clock;
use lsl_platform::fork::PerProcess;
use lsl_proto::outlet::connection::{self as proto, Stage};
use lsl_proto::security::{SessionEvents, failure_kind};
use lsl_secure::admission::{Admission, Arrival, Ticket, Turn};
use lsl_secure::audit::EventKind;
use lsl_secure::connection::{self as secure, Answer, Question};
use lsl_secure::handshake::Trail;
use lsl_secure::policy::{REFUSAL_501, REFUSAL_503};
use lsl_secure::{Cause, Descriptor, Local, PublicKey, Role, Security, SessionEntry};
use tokio::sync::Notify;

use crate::byte_stream::ByteStream;
use crate::drive_outlet::connection::{Connection, transfer};
use crate::drive_outlet::identity::{Accept, Identity};
use crate::drive_outlet::link::Link;
use crate::drive_outlet::refusal;
use crate::drive_outlet::session::Session;
use crate::net::monitor::lock_ignoring_poison;
use crate::net::secure_driver::{in_time, proceed};
use crate::net::select2::{Either, select2};
use crate::net::trust_watch;
use crate::{Error, Result};

/// Serves a fresh connection up to its answer; feeds go on in tasks of their own.
pub(crate) async fn serve(
    mut stream: ByteStream,
    peer: SocketAddr,
    acceptor: &impl Accept,
) -> Result<()> {
    let identity = acceptor.identity();
    let local = identity.sessions();
    let machine = proto::Connection::new(local.is_some(), local_clock());
    let mut machine = identity.expecting(machine);
    let Some(local) = local else {
        first_bytes(&mut stream, &mut machine).await?;
        if machine.stage() == Stage::Hello {
            refusal::refuse(&mut stream, peer.ip(), REFUSAL_501).await;
            return Err(Error::Protocol("secure sessions are not enabled".into()));
        }
        let connection = Connection::new(stream, peer, machine, None);
        return Box::pin(acceptor.answer(connection)).await;
    };
    let audit = identity.security.audit();
    let clock = audit.wants(EventKind::HandshakeOk);
    let trail = Trail::begin(Role::Outlet, local_clock(), clock.then_some(local_clock));
    let trail = Arc::new(trail);
    let Some(pending) = PendingHandshake::arrive(&identity.security, peer.ip()) else {
        let event = (identity.event(EventKind::LimitsHit, peer)).cause(Cause::Busy);
        identity.audit(event.detail("connections of one source").span(trail.span()));
        refusal::refuse(&mut stream, peer.ip(), REFUSAL_503).await;
        return Err(Error::Protocol("too many connections".into()));
    };
    let first = first_bytes(&mut stream, &mut machine);
    let Either::First(decided) = select2(first, pending.evicted()).await else {
        refusal::refuse(&mut stream, peer.ip(), REFUSAL_503).await;
        return Err(evicted((peer, &trail), identity));
    };
    decided?;
    // On the heap: a connection that says nothing should cost next to nothing.
    if machine.stage() == Stage::Hello {
        return Box::pin(secure(stream, (peer, trail), acceptor, local, pending)).await;
    }
    let connection = Connection::new(stream, peer, machine, None);
    let answered = Box::pin(acceptor.answer(connection));
    match select2(answered, pending.evicted()).await {
        Either::First(answered) => answered,
        Either::Second(()) => Err(evicted((peer, &trail), identity)),
    }
}

/// Reads not one byte more than it takes to tell what a connection is.
async fn first_bytes(stream: &mut ByteStream, machine: &mut proto::Connection) -> Result<()> {
    while machine.stage() == Stage::Undecided {
        transfer(stream, machine).await?;
    }
    Ok(())
}

/// Handshakes, and answers the request inside the session.
async fn secure(
    mut stream: ByteStream,
    (peer, trail): (SocketAddr, Arc<Trail>),
    acceptor: &impl Accept,
    local: Arc<Local>,
    pending: PendingHandshake,
) -> Result<()> {
    let identity = acceptor.identity();
    let io = |source| Error::io("connection", source);
    let here = stream.local_addr().map_err(io)?;
    let mut questions = Questions {
        security: &identity.security,
        stream: &identity.descriptor,
        pending: &pending,
        remote: peer.ip(),
        local: here.ip(),
        admitted: false,
        asked: None,
    };
    let now = local_clock();
    let descriptor = Arc::clone(&identity.descriptor);
    let mut handshake =
        secure::Connection::responder_on(Arc::clone(&trail), local, descriptor, now);
    let shaking = Box::pin(questions.shake_hands(&mut stream, &mut handshake));
    let outcome = select2(shaking, pending.evicted()).await;
    let Questions {
        admitted, asked, ..
    } = questions;
    match outcome {
        Either::First(Ok(())) => {}
        Either::First(Err(error)) => {
            drop(pending);
            audit_failure((peer, &trail), identity, asked, &error);
            refusal::refuse(&mut stream, peer.ip(), b"").await;
            return Err(Error::Security(error.to_string()));
        }
        Either::Second(()) => {
            if admitted {
                refusal::refuse(&mut stream, peer.ip(), b"").await;
            } else {
                refusal::refuse(&mut stream, peer.ip(), REFUSAL_503).await;
            }
            return Err(evicted((peer, &trail), identity));
        }
    }
    pending.succeeded();
    let session = proto::Connection::in_session(handshake, local_clock());
    let Some((machine, info, time)) = session else {
        return Err(Error::Security("the handshake gave no session".into()));
    };
    let clocks = identity.context.service().clocks();
    // Behind a port the clocks are those of its streams.
    let clock =
        (!identity.is_port).then(|| clocks.register(time.into_responder(), identity.clock.clone()));
    let uid = identity.info.uid().into_owned();
    let events = SessionEvents::new(info, Role::Outlet, peer, uid, trail.span());
    let session = Session::new(events, &identity.security, clock);
    let machine = identity.expecting(machine);
    let mut connection = Connection::new(stream, peer, machine, Some(Box::new(session)));
    connection.begun = now;
    if let Err(cause) = register(connection.link(), identity, here.ip(), &trail) {
        connection.link().end_session(cause);
        connection.close().await;
        return Err(Error::Security(cause.name().to_owned()));
    }
    Box::pin(acceptor.answer(connection)).await
}

/// Registers a session: it ends when its peer is no longer trusted.
fn register(
    link: &Arc<Link>,
    identity: &Identity,
    local: IpAddr,
    trail: &Trail,
) -> Result<(), Cause> {
    let (security, session) = (&identity.security, link.session().ok_or(Cause::Internal)?);
    let policy = security.policy();
    let audit = security.audit();
    audit.record_with(EventKind::HandshakeOk, |kind| {
        session
            .event(kind)
            .policy(policy)
            .trail(trail, local_clock())
    });
    let live = SessionEntry {
        peer: session.peer(),
        role: Role::Inlet,
        remote: link.peer.ip(),
        local,
        stream: (*identity.descriptor).clone(),
        span: trail.span(),
    };
    let watched = Arc::downgrade(link);
    let end = move |cause| {
        if let Some(link) = watched.upgrade() {
            link.end_session(cause);
        }
    };
    match security.register(live, end) {
        Ok(guard) => session.keep(guard),
        Err(cause) => {
            let kind = match cause {
                Cause::Busy => EventKind::LimitsHit,
                _ => EventKind::PolicyRefused,
            };
            identity.audit(session.event(kind).policy(policy).cause(cause));
            return Err(cause);
        }
    }
    trust_watch::watch(security);
    Ok(())
}

/// Answers the questions of a handshake.
struct Questions<'a> {
    security: &'a Arc<Security>,
    stream: &'a Descriptor,
    pending: &'a PendingHandshake,
    remote: IpAddr,
    local: IpAddr,
    /// It was our turn: M2 may be on its way.
    admitted: bool,
    asked: Option<PublicKey>,
}

impl Questions<'_> {
    /// Handshakes, until there is a session.
    async fn shake_hands(
        &mut self,
        stream: &mut ByteStream,
        connection: &mut secure::Connection,
    ) -> lsl_secure::Result<()> {
        let mut answer = None;
        loop {
            answer = Some(match proceed(stream, connection, answer).await? {
                secure::Event::Question(Question::Turn) => {
                    let deadline = connection.poll_timeout();
                    let admitted = in_time(deadline, self.admit(deadline)).await;
                    Answer::Turn(admitted.unwrap_or(Err(Cause::Busy)))
                }
                secure::Event::Question(Question::PeerKey(peer)) => {
                    Answer::PeerKey(self.decide(peer))
                }
                secure::Event::Established(_) => return Ok(()),
                _ => return Err(lsl_secure::Error::session(Cause::Internal, "no session")),
            });
        }
    }

    async fn admit(&mut self, deadline: Option<f64>) -> Result<(), Cause> {
        self.pending.turn(deadline.unwrap_or_default()).await?;
        self.admitted = true;
        // Who was just removed is not let in. The file may lie on a share that hangs.
        let security = Arc::clone(self.security);
        let looked = tokio::task::spawn_blocking(move || security.refresh_if_idle()).await;
        looked.map(|_changed| ()).map_err(|_| Cause::Internal)
    }

    fn decide(&mut self, peer: PublicKey) -> Result<String, Cause> {
        self.asked = Some(peer);
        let name = (self.security).authorise(&peer, Role::Inlet, self.remote, self.local)?;
        (self.security).admits_stream(&peer, self.remote, self.local, self.stream)?;
        Ok(name)
    }
}

/// A connection that is not authenticated yet, as the limits of the process count it.
#[derive(Debug)]
struct PendingHandshake {
    security: Arc<Security>,
    ticket: Ticket,
    signals: Arc<Signals>,
}

/// Wakes the task of a pending handshake.
#[derive(Debug, Default)]
struct Signals {
    /// Somebody else needs the place more.
    evict: Notify,
    /// Asymmetric work may start.
    turn: Notify,
}

impl PendingHandshake {
    /// `None` if its source has too many.
    fn arrive(security: &Arc<Security>, source: IpAddr) -> Option<Self> {
        let now = local_clock();
        let arrival = lock_ignoring_poison(security.admission()).arrive(source, now);
        let Arrival::Serve(ticket, victim) = arrival else {
            return None;
        };
        let pending = Self {
            security: Arc::clone(security),
            ticket,
            signals: Arc::default(),
        };
        let mut waiting = lock_ignoring_poison(waiting());
        waiting.insert(pending.key(ticket), Arc::clone(&pending.signals));
        let victim = victim.and_then(|victim| waiting.remove(&pending.key(victim)));
        drop(waiting);
        if let Some(victim) = victim {
            victim.evict.notify_one();
        }
        Some(pending)
    }

    /// Waits until somebody else needs the place more.
    async fn evicted(&self) {
        self.signals.evict.notified().await;
    }

    /// Waits until asymmetric work may start.
    async fn turn(&self, deadline: f64) -> Result<(), Cause> {
        loop {
            let now = local_clock();
            match self.ask(|admission| admission.turn(self.ticket, now)) {
                Turn::Now => return Ok(()),
                Turn::Wait(_) if now >= deadline => return Err(Cause::Busy),
                Turn::Wait(until) => {
                    let secs = (until.min(deadline) - now).max(SHORTEST_WAIT_SECS);
                    let sleeping = tokio::time::sleep(Duration::from_secs_f64(secs));
                    select2(sleeping, self.signals.turn.notified()).await;
                }
            }
        }
    }

    fn succeeded(self) {
        self.ask(|admission| admission.succeeded(self.ticket, local_clock()));
    }

    /// Asks the limits of the process, and wakes those whose turn came by that.
    fn ask<T>(&self, question: impl FnOnce(&mut Admission) -> T) -> T {
        let mut admission = lock_ignoring_poison(self.security.admission());
        let answer = question(&mut admission);
        let next = admission.next(local_clock());
        drop(admission);
        if !next.is_empty() {
            let waiting = lock_ignoring_poison(waiting());
            let signals = next
                .iter()
                .filter_map(|&ticket| waiting.get(&self.key(ticket)));
            signals.for_each(|signals| signals.turn.notify_one());
        }
        answer
    }

    /// Securities of one process have limits of their own; one that is in use has its address alone.
    fn key(&self, ticket: Ticket) -> (usize, Ticket) {
        (Arc::as_ptr(&self.security).addr(), ticket)
    }
}

impl Drop for PendingHandshake {
    fn drop(&mut self) {
        lock_ignoring_poison(waiting()).remove(&self.key(self.ticket));
        // Says nothing new about one that succeeded.
        self.ask(|admission| admission.failed(self.ticket, local_clock()));
    }
}

type Waiting = HashMap<(usize, Ticket), Arc<Signals>>;

fn waiting() -> &'static Mutex<Waiting> {
    static WAITING: PerProcess<Mutex<Waiting>> = PerProcess::new();
    WAITING.get()
}

fn evicted((peer, trail): (SocketAddr, &Trail), identity: &Identity) -> Error {
    let event = (identity.event(EventKind::LimitsHit, peer)).cause(Cause::Busy);
    identity.audit(
        event
            .detail("connections before authentication")
            .span(trail.span()),
    );
    Error::Protocol("given up in favour of another connection".into())
}

fn audit_failure(
    (peer, trail): (SocketAddr, &Trail),
    identity: &Identity,
    asked: Option<PublicKey>,
    error: &lsl_secure::Error,
) {
    let cause = error.cause();
    let kind = failure_kind(Role::Outlet, error, asked.is_some());
    let mut event = identity
        .event(kind, peer)
        .trail(trail, local_clock())
        .cause(cause)
        .detail(error.to_string());
    if let Some(key) = asked {
        event = event.peer(key.fingerprint());
    }
    identity.audit(event);
}

/// Between two questions whether it is our turn.
const SHORTEST_WAIT_SECS: f64 = 0.001;

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::pin::pin;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::task::{Context, Wake, Waker};

    use lsl_secure::config::Settings;
    use lsl_secure::trust::TrustList;
    use lsl_secure::{Policy, SecretKey};

    use super::*;

    #[derive(Default)]
    struct Count(AtomicU32);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_token_that_comes_back_wakes_who_waits_for_it() {
        // Nobody drives it: no timer wakes anybody.
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_time().build().unwrap();
        let _context = runtime.enter();
        let woken = Arc::new(Count::default());
        let waker = Waker::from(Arc::clone(&woken));
        let mut context = Context::from_waker(&waker);
        let key = SecretKey::from_seed(&[7; 32]);
        let settings = Settings::new(Policy::Required);
        let security = Security::from_parts(settings, key, TrustList::default());
        let security = Arc::new(security.unwrap());
        let mut sources = (0..255).flat_map(|network| [Ipv4Addr::new(10, network, 0, 1); 100]);
        let mut arrive = || {
            let source = sources.next().unwrap().into();
            PendingHandshake::arrive(&security, source).unwrap()
        };
        let successful = arrive();
        let has_turn = pin!(successful.turn(f64::INFINITY)).poll(&mut context);
        assert!(has_turn.is_ready());
        loop {
            let pending = arrive();
            let mut turn = pin!(pending.turn(f64::INFINITY));
            if turn.as_mut().poll(&mut context).is_ready() {
                // Its token is lost with it.
                continue;
            }
            assert_eq!(woken.0.load(Ordering::Relaxed), 0);
            successful.succeeded();
            assert_eq!(woken.0.load(Ordering::Relaxed), 1);
            assert!(turn.as_mut().poll(&mut context).is_ready());
            return;
        }
    }
}
