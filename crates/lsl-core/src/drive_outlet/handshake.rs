//! Accepts a connection: reads its first bytes, and shakes hands if they begin a session.
//! Spec: LSS/1 §4.2-4.4, §5.7, §6.2.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lsl_platform::clock::local_clock;
use lsl_platform::fork::PerProcess;
use lsl_proto::outlet::connection::{self as proto, Event as Asked};
use lsl_proto::security::failure_kind;
use lsl_proto::transport::{Rx, Tx};
use lsl_secure::admission::{Arrival, Ticket, Turn};
use lsl_secure::audit::EventKind;
use lsl_secure::connection::{self as secure, Answer, Question};
use lsl_secure::handshake::PREAMBLE;
use lsl_secure::policy::{REFUSAL_501, REFUSAL_503};
use lsl_secure::{Cause, Descriptor, Local, Policy, PublicKey, Role, Security, SessionEntry};
use tokio::sync::Notify;

use crate::byte_stream::ByteStream;
use crate::drive_outlet::connection::Connection;
use crate::drive_outlet::link::Link;
use crate::drive_outlet::push::OutletShared;
use crate::drive_outlet::refusal;
use crate::drive_outlet::request::{HANDSHAKE_SECS, answer, audit, event, within};
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
    shared: &Arc<OutletShared>,
) -> Result<()> {
    let security = &shared.security;
    let mut machine = proto::Connection::new();
    let Some(local) = counted(shared) else {
        let deadline = local_clock() + HANDSHAKE_SECS;
        let asked = within(deadline, first_bytes(&mut stream, &mut machine)).await?;
        if asked == Some(Asked::Handshake) {
            refusal::refuse(&mut stream, peer.ip(), REFUSAL_501).await;
            return Err(Error::Protocol("secure sessions are not enabled".into()));
        }
        let connection = Connection::plain(stream, peer);
        return Box::pin(answer(connection, shared, machine, asked)).await;
    };
    let Some(pending) = PendingHandshake::arrive(security, peer.ip()) else {
        let event = event(EventKind::LimitsHit, peer, shared).cause(Cause::Busy);
        audit(shared, event.detail("connections of one source"));
        refusal::refuse(&mut stream, peer.ip(), REFUSAL_503).await;
        return Err(Error::Protocol("too many connections".into()));
    };
    let deadline = local_clock() + PREAMBLE_SECS;
    let first = within(deadline, first_bytes(&mut stream, &mut machine));
    match select2(first, pending.evicted()).await {
        Either::First(asked) => match asked? {
            // On the heap: a connection that says nothing should cost next to nothing.
            Some(Asked::Handshake) => Box::pin(secure(stream, peer, shared, local, pending)).await,
            asked => {
                let connection = Connection::plain(stream, peer);
                let served = Box::pin(answer(connection, shared, machine, asked));
                match select2(served, pending.evicted()).await {
                    Either::First(served) => served,
                    Either::Second(()) => Err(evicted(peer, shared)),
                }
            }
        },
        Either::Second(()) => {
            refusal::refuse(&mut stream, peer.ip(), REFUSAL_503).await;
            Err(evicted(peer, shared))
        }
    }
}

/// What a connection needs that the limits of the process count; `None` if there is no encryption,
/// and its number is for the acceptor to limit.
pub(crate) fn counted(shared: &OutletShared) -> Option<Arc<Local>> {
    match shared.security.policy() {
        Policy::Off => None,
        Policy::Migrate | Policy::Required => shared.security.local().cloned(),
    }
}

/// Reads not one byte more than it takes to tell what a connection is. Returns what it asks for, if it is
/// decided by then.
async fn first_bytes(
    stream: &mut ByteStream,
    machine: &mut proto::Connection,
) -> Result<Option<Asked>> {
    let mut buffer = [0; PREAMBLE.len()];
    loop {
        let most = machine.max_read().min(buffer.len());
        let received = stream.read(&mut buffer[..most]).await;
        let received = received.map_err(|source| Error::io("connection", source))?;
        let asked = machine.handle_input(&buffer[..received])?;
        if asked.is_some() || !machine.is_undecided() {
            return Ok(asked);
        }
    }
}

/// Handshakes, and answers the request inside the session.
async fn secure(
    mut stream: ByteStream,
    peer: SocketAddr,
    shared: &Arc<OutletShared>,
    local: Arc<Local>,
    pending: PendingHandshake,
) -> Result<()> {
    let io = |source| Error::io("connection", source);
    let here = stream.local_addr().map_err(io)?;
    let mut questions = Questions {
        security: &shared.security,
        stream: &shared.descriptor,
        pending: &pending,
        remote: peer.ip(),
        local: here.ip(),
        admitted: false,
        asked: None,
    };
    let now = local_clock();
    let mut handshake = secure::Connection::responder(local, Arc::clone(&shared.descriptor), now);
    let shaking = Box::pin(questions.shake_hands(&mut stream, &mut handshake));
    let outcome = select2(shaking, pending.evicted()).await;
    let Questions {
        admitted, asked, ..
    } = questions;
    match outcome {
        Either::First(Ok(())) => {}
        Either::First(Err(error)) => {
            drop(pending);
            audit_failure(peer, shared, asked, &error);
            refusal::refuse(&mut stream, peer.ip(), b"").await;
            return Err(Error::Security(error.to_string()));
        }
        Either::Second(()) => {
            if admitted {
                refusal::refuse(&mut stream, peer.ip(), b"").await;
            } else {
                refusal::refuse(&mut stream, peer.ip(), REFUSAL_503).await;
            }
            return Err(evicted(peer, shared));
        }
    }
    pending.succeeded();
    let Some(mut connection) = established(stream, peer, shared, handshake) else {
        return Err(Error::Security("the handshake gave no session".into()));
    };
    if let Err(cause) = register(connection.link(), shared, here.ip()) {
        connection.link().end_session(cause);
        connection.close().await;
        return Err(Error::Security(cause.name().to_owned()));
    }
    let machine = proto::Connection::in_session();
    Box::pin(answer(connection, shared, machine, None)).await
}

/// Makes a connection with the session that a handshake has established.
fn established(
    stream: ByteStream,
    peer: SocketAddr,
    shared: &OutletShared,
    mut handshake: secure::Connection,
) -> Option<Connection> {
    let time = handshake.take_time_keys()?;
    let (sender, receiver) = handshake.split()?;
    let clocks = shared.context.service().clocks();
    let clock = clocks.register(time.into_responder());
    let uid = shared.info.uid().into_owned();
    let session = Session::new(sender.info(), &shared.security, peer, uid, clock);
    let halves = (Tx::secure(sender), Rx::secure(receiver));
    let session = Some(Box::new(session));
    Some(Connection::new(stream, peer, halves, session))
}

/// Registers a session: it ends when its peer is no longer trusted.
fn register(link: &Arc<Link>, shared: &Arc<OutletShared>, local: IpAddr) -> Result<(), Cause> {
    let (security, session) = (&shared.security, link.session().ok_or(Cause::Internal)?);
    let policy = security.policy();
    audit(shared, session.event(EventKind::HandshakeOk).policy(policy));
    let live = SessionEntry {
        peer: session.peer(),
        role: Role::Inlet,
        remote: link.peer.ip(),
        local,
        stream: (*shared.descriptor).clone(),
    };
    let (watched, outlet) = (Arc::downgrade(link), Arc::downgrade(shared));
    let end = move |cause| {
        if let (Some(link), Some(shared)) = (watched.upgrade(), outlet.upgrade())
            && let Some(consumer) = link.end_session(cause)
        {
            shared.alert(consumer, cause);
        }
    };
    match security.register(live, end) {
        Ok(guard) => session.keep(guard),
        Err(cause) => {
            let kind = match cause {
                Cause::Busy => EventKind::LimitsHit,
                _ => EventKind::PolicyRefused,
            };
            audit(shared, session.event(kind).policy(policy).cause(cause));
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
    evict: Arc<Notify>,
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
            evict: Arc::default(),
        };
        let mut waiting = lock_ignoring_poison(waiting());
        waiting.insert(pending.key(ticket), Arc::clone(&pending.evict));
        let victim = victim.and_then(|victim| waiting.remove(&pending.key(victim)));
        drop(waiting);
        if let Some(victim) = victim {
            victim.notify_one();
        }
        Some(pending)
    }

    /// Waits until somebody else needs the place more.
    async fn evicted(&self) {
        self.evict.notified().await;
    }

    /// Waits until asymmetric work may start.
    async fn turn(&self, deadline: f64) -> Result<(), Cause> {
        loop {
            let now = local_clock();
            let turn = lock_ignoring_poison(self.security.admission()).turn(self.ticket, now);
            match turn {
                Turn::Now => return Ok(()),
                Turn::Wait(_) if now >= deadline => return Err(Cause::Busy),
                Turn::Wait(until) => {
                    let secs = (until.min(deadline) - now).max(SHORTEST_WAIT_SECS);
                    tokio::time::sleep(Duration::from_secs_f64(secs)).await;
                }
            }
        }
    }

    fn succeeded(self) {
        let now = local_clock();
        lock_ignoring_poison(self.security.admission()).succeeded(self.ticket, now);
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
        lock_ignoring_poison(self.security.admission()).failed(self.ticket, local_clock());
    }
}

type Waiting = HashMap<(usize, Ticket), Arc<Notify>>;

fn waiting() -> &'static Mutex<Waiting> {
    static WAITING: PerProcess<Mutex<Waiting>> = PerProcess::new();
    WAITING.get()
}

fn evicted(peer: SocketAddr, shared: &OutletShared) -> Error {
    let event = event(EventKind::LimitsHit, peer, shared).cause(Cause::Busy);
    audit(shared, event.detail("connections before authentication"));
    Error::Protocol("given up in favour of another connection".into())
}

fn audit_failure(
    peer: SocketAddr,
    shared: &OutletShared,
    asked: Option<PublicKey>,
    error: &lsl_secure::Error,
) {
    let cause = error.cause();
    let kind = failure_kind(Role::Outlet, error, asked.is_some());
    let mut event = event(kind, peer, shared)
        .cause(cause)
        .detail(error.to_string());
    if let Some(key) = asked {
        event = event.peer(key.fingerprint());
    }
    audit(shared, event);
}

/// Time for the first bytes to show what a connection is. Spec: LSS/1 §4.2.
const PREAMBLE_SECS: f64 = 3.0;

/// Between two questions whether it is our turn.
const SHORTEST_WAIT_SECS: f64 = 0.001;
