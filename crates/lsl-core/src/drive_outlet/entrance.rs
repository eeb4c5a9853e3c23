//! Where a connection is taken for what it is: plaintext or a session, decided by its first bytes and
//! the policy, once and for all. Spec: LSS/1 §4.2-4.4, §5.7, §6.2.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lsl_platform::clock::local_clock;
use lsl_platform::fork::PerProcess;
use lsl_proto::transport::{Control, Rx, Tx};
use lsl_proto::wire::request::{FIRST_VERSION_WITH_HEADERS, Request};
use lsl_secure::admission::{Arrival, Ticket, Turn};
use lsl_secure::audit::{Event, EventKind};
use lsl_secure::connection::{self as secure, Answer, Question};
use lsl_secure::handshake::PREAMBLE;
use lsl_secure::policy::{REFUSAL_403, REFUSAL_501, REFUSAL_503};
use lsl_secure::{Cause, Descriptor, Enrolled, Live, Local, Policy, PublicKey, Role, Security};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::drive_outlet::link::{Connection, Link};
use crate::drive_outlet::listen::{HANDSHAKE_LIMIT, answer};
use crate::drive_outlet::push::OutletShared;
use crate::drive_outlet::refusal;
use crate::drive_outlet::session::Session;
use crate::net::monitor::lock_ignoring_poison;
use crate::net::race::{Winner, race};
use crate::net::secure_driver::{in_time, proceed};
use crate::net::trust_watch;
use crate::{Error, Result};

/// Serves a fresh connection up to its answer; feeds go on in tasks of their own.
pub(crate) async fn serve(
    stream: TcpStream,
    peer: SocketAddr,
    shared: &Arc<OutletShared>,
) -> Result<()> {
    let security = &shared.security;
    let Some(local) = counted(shared) else {
        let deadline = Instant::now() + HANDSHAKE_LIMIT;
        return match within(deadline, first_bytes(&stream)).await? {
            First::Preamble => {
                refusal::refuse(&stream, peer.ip(), REFUSAL_501).await;
                Err(Error::Protocol("secure sessions are not enabled".into()))
            }
            First::Other(bytes) => {
                let connection = Connection::plain(stream, peer);
                Box::pin(answer(connection, shared, bytes)).await
            }
        };
    };
    let Some(pending) = Pending::arrive(security, peer.ip()) else {
        let event = event(EventKind::LimitsHit, peer, shared).cause(Cause::Busy);
        audit(shared, event.detail("connections of one source"));
        refusal::refuse(&stream, peer.ip(), REFUSAL_503).await;
        return Err(Error::Protocol("too many connections".into()));
    };
    let first = race(
        within(Instant::now() + PREAMBLE_LIMIT, first_bytes(&stream)),
        pending.evicted(),
    );
    match first.await {
        Winner::First(first) => match first? {
            // On the heap: a connection that says nothing should cost next to nothing.
            First::Preamble => Box::pin(secure(stream, peer, shared, local, pending)).await,
            First::Other(bytes) => {
                let connection = Connection::plain(stream, peer);
                let served = Box::pin(answer(connection, shared, bytes));
                match race(served, pending.evicted()).await {
                    Winner::First(served) => served,
                    Winner::Second(()) => Err(evicted(peer, shared)),
                }
            }
        },
        Winner::Second(()) => {
            refusal::refuse(&stream, peer.ip(), REFUSAL_503).await;
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

/// What a connection begins with.
#[derive(Debug, PartialEq, Eq)]
enum First {
    /// The preamble, and nothing was read beyond it.
    Preamble,
    /// These bytes, which are not the beginning of one.
    Other(Vec<u8>),
}

/// Reads not one byte more than it takes to tell.
async fn first_bytes(stream: &TcpStream) -> Result<First> {
    let io = |source| Error::io("connection", source);
    let mut buffer = [0; PREAMBLE.len()];
    let mut length = 0;
    loop {
        stream.readable().await.map_err(io)?;
        match stream.try_read(&mut buffer[length..]) {
            Ok(0) => {
                let text = "closed before the request was complete";
                return Err(Error::Protocol(text.into()));
            }
            Ok(received) => length += received,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            Err(error) => return Err(io(error)),
        }
        let bytes = &buffer[..length];
        if !PREAMBLE.starts_with(bytes) {
            return Ok(First::Other(bytes.to_vec()));
        }
        if length == PREAMBLE.len() {
            return Ok(First::Preamble);
        }
    }
}

/// Handshakes, and answers the request inside the session.
async fn secure(
    stream: TcpStream,
    peer: SocketAddr,
    shared: &Arc<OutletShared>,
    local: Arc<Local>,
    pending: Pending,
) -> Result<()> {
    let io = |source| Error::io("connection", source);
    let here = stream.local_addr().map_err(io)?;
    let mut door = Door {
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
    let shaking = Box::pin(door.shake_hands(&stream, &mut handshake));
    let outcome = race(shaking, pending.evicted()).await;
    let Door {
        admitted, asked, ..
    } = door;
    match outcome {
        Winner::First(Ok(())) => {}
        Winner::First(Err(error)) => {
            drop(pending);
            audit_failure(peer, shared, asked, &error);
            refusal::refuse(&stream, peer.ip(), b"").await;
            return Err(Error::Security(error.to_string()));
        }
        Winner::Second(()) => {
            if admitted {
                refusal::refuse(&stream, peer.ip(), b"").await;
            } else {
                refusal::refuse(&stream, peer.ip(), REFUSAL_503).await;
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
    Box::pin(answer(connection, shared, Vec::new())).await
}

/// Makes a connection of the session that a handshake has established.
fn established(
    stream: TcpStream,
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
    let (tx, rx) = (Tx::secure(sender), Rx::secure(receiver));
    Some(Connection::secure(stream, peer, session, tx, rx))
}

/// Registers a session: it ends when its peer is no longer trusted.
fn register(link: &Arc<Link>, shared: &Arc<OutletShared>, local: IpAddr) -> Result<(), Cause> {
    let (security, session) = (&shared.security, link.session().ok_or(Cause::Internal)?);
    let policy = security.policy();
    audit(shared, session.event(EventKind::HandshakeOk).policy(policy));
    let live = Live {
        peer: session.peer(),
        role: Role::Inlet,
        remote: link.peer().ip(),
        local,
        stream: (*shared.descriptor).clone(),
    };
    let (watched, outlet) = (Arc::downgrade(link), Arc::downgrade(shared));
    let end = move |cause| {
        if let (Some(link), Some(shared)) = (watched.upgrade(), outlet.upgrade())
            && let Some(consumer) = link.end_session(cause)
        {
            shared.control(consumer, Control::Alert(cause));
        }
    };
    match security.enrol(live, end) {
        Ok(enrolled) => session.keep(enrolled),
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

/// Answers what the handshake asks.
struct Door<'a> {
    security: &'a Arc<Security>,
    stream: &'a Descriptor,
    pending: &'a Pending,
    remote: IpAddr,
    local: IpAddr,
    /// It was our turn: M2 may be on its way.
    admitted: bool,
    asked: Option<PublicKey>,
}

impl Door<'_> {
    /// Handshakes, until there is a session.
    async fn shake_hands(
        &mut self,
        stream: &TcpStream,
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
                _ => return Ok(()),
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
struct Pending {
    security: Arc<Security>,
    ticket: Ticket,
    evict: Arc<Notify>,
}

impl Pending {
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

impl Drop for Pending {
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

/// Whether a request in plaintext may be answered. Queries are discovery and may
/// always be. Spec: LSS/1 §4.3, §4.4.
///
/// # Errors
/// What the peer of a refused request is told.
pub(super) fn admits_plaintext(
    link: &Arc<Link>,
    shared: &Arc<OutletShared>,
    request: &Request,
) -> Result<(), &'static [u8]> {
    let (method, refusal): (_, &'static [u8]) = match request {
        Request::ShortInfo { .. } | Request::Unknown => return Ok(()),
        Request::FullInfo => ("LSL:fullinfo", b""),
        Request::StreamFeed { version, .. } if *version >= FIRST_VERSION_WITH_HEADERS => {
            ("LSL:streamfeed/110", REFUSAL_403)
        }
        Request::StreamFeed { .. } | Request::StreamFeed100 { .. } => ("LSL:streamfeed", b""),
    };
    let plaintext = |kind| event(kind, link.peer(), shared).detail(method);
    match shared.security.policy() {
        Policy::Off => return Ok(()),
        Policy::Migrate => {
            if let Some(enrolled) = enrol_plaintext(link, shared) {
                link.keep(enrolled);
                trust_watch::watch(&shared.security);
                audit(shared, plaintext(EventKind::PlaintextAccepted));
                return Ok(());
            }
        }
        Policy::Required => {}
    }
    let refused = plaintext(EventKind::PlaintextRefused);
    audit(shared, refused.cause(Cause::PlaintextRefused));
    shared.refused.add(1);
    Err(refusal)
}

/// Makes a plaintext connection end when `migrate` does; `None` if that is over by now.
fn enrol_plaintext(link: &Arc<Link>, shared: &Arc<OutletShared>) -> Option<Enrolled> {
    let (connection, outlet) = (Arc::downgrade(link), Arc::downgrade(shared));
    let end = move || {
        if let (Some(link), Some(shared)) = (connection.upgrade(), outlet.upgrade()) {
            let event = event(EventKind::PlaintextRefused, link.peer(), &shared);
            let event = event.cause(Cause::PlaintextRefused);
            audit(
                &shared,
                event.detail("migrate_until has passed; the reader is cut off"),
            );
            link.shut_down();
        }
    };
    shared.security.enrol_plaintext(end).ok()
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
    let refused_here = matches!(error, lsl_secure::Error::Session { .. });
    let kind = match asked {
        // The key was proved before we were asked about it.
        Some(_) if refused_here => EventKind::PolicyRefused,
        _ => EventKind::HandshakeFailed,
    };
    let mut event = event(kind, peer, shared)
        .cause(cause)
        .detail(error.to_string());
    if let Some(key) = asked {
        event = event.peer(key.fingerprint());
    }
    audit(shared, event);
}

fn event(kind: EventKind, peer: SocketAddr, shared: &OutletShared) -> Event {
    Event::new(kind)
        .peer_addr(peer)
        .role(Role::Outlet)
        .policy(shared.security.policy())
        .stream_uid(shared.info.uid())
}

fn audit(shared: &OutletShared, event: Event) {
    shared.security.audit().record(event);
}

pub(super) async fn within<T>(
    deadline: Instant,
    work: impl Future<Output = Result<T>>,
) -> Result<T> {
    let late = || Err(Error::Protocol("no complete request in time".into()));
    let outcome = tokio::time::timeout_at(deadline, work).await;
    outcome.unwrap_or_else(|_| late())
}

/// Time for the first bytes to show what a connection is. Spec: LSS/1 §4.2.
const PREAMBLE_LIMIT: Duration = Duration::from_secs(3);

/// Between two questions whether it is our turn.
const SHORTEST_WAIT_SECS: f64 = 0.001;
