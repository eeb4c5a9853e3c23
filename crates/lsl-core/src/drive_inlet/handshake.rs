//! How an inlet connects: in plaintext, through a handshake, or not at all. Decided by policy before
//! anything is sent, and never changed by what the other side answers: a secure attempt that fails is
//! not repeated in plaintext. Spec: LSS/1 §4.2-§4.4, §5.7, §7.4.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use lsl_platform::clock::local_clock;
use lsl_platform::fork::PerProcess;
use lsl_proto::describe::descriptor;
use lsl_proto::inlet::Exchange;
use lsl_proto::security::{ExpectedIdentity, Findings, Mismatch, connection_event, way_after};
use lsl_secure::audit::{Event, EventKind};
use lsl_secure::connection::{self, Answer, Question};
use lsl_secure::handshake::Trail;
use lsl_secure::policy::Way;
use lsl_secure::{
    Cause, Descriptor, Local, OsRandom, Policy, PublicKey, Role, Security, SessionEntry,
    SessionInfo,
};
use tokio::sync::OwnedSemaphorePermit;

use crate::byte_stream::{ByteStream, Writer};
use crate::context::Context;
use crate::drive_inlet::connection::Connection;
use crate::drive_inlet::peers::Peers;
use crate::drive_inlet::session::{Ending, Registration};
use crate::drive_inlet::turns::PerHost;
use crate::net::secure_driver::in_background;
use crate::net::sockets;
use crate::net::trust_watch::{self, refresh};
use crate::{Error, Result, StreamInfo};

/// Target of an outgoing connection: the outlet as last announced and the identity it must prove.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Target<'a> {
    /// The outlet, as discovery describes it now.
    pub(crate) info: &'a StreamInfo,
    /// What its DESCRIPTOR must say.
    pub(crate) expected: ExpectedIdentity<'a>,
    /// What became of earlier tries.
    pub(crate) peers: &'a Arc<Peers>,
}

/// Whether to encrypt, for this outlet at this address. What was tried with encryption once is not
/// tried without, whatever discovery says by then.
pub(crate) async fn way(
    security: &Arc<Security>,
    peers: &Peers,
    info: &StreamInfo,
    address: SocketAddr,
) -> Way {
    let settings = security.settings();
    let way = if settings.is_some_and(|settings| settings.policy == Policy::Migrate) {
        // Looks into a file, which others may have changed and which may lie on a network share.
        let (security, info) = (Arc::clone(security), info.clone());
        let looking = move || way_by_policy(&security, &info, address);
        let looked = tokio::task::spawn_blocking(looking).await;
        looked.unwrap_or_else(|error| Way::Refuse {
            cause: Cause::Internal,
            text: format!("cannot look into the list of encrypted streams: {error}"),
        })
    } else {
        way_by_policy(security, info, address)
    };
    way_after(peers.keys().has_tried, info, way)
}

fn way_by_policy(security: &Security, info: &StreamInfo, address: SocketAddr) -> Way {
    let advert = info.security_advert().map(|advert| advert.policy);
    security.way_of_inlet(
        info.name_bytes(),
        info.stream_type_bytes(),
        info.source_id_bytes(),
        &address.to_string(),
        advert.as_deref(),
    )
}

/// Connects as policy demands and sends the request of `exchange`. `connecting`, to `peer` as a rule, is the TCP
/// connection; it begins once policy allows it. A handshake has limits of its own (10 s for each of two answers).
///
/// # Errors
/// [`Error::Security`] for everything that encryption or its absence forbids, with a text for people,
/// which `target.peers` keeps too; [`Error::Protocol`] if another outlet is at that address;
/// [`Error::Io`].
pub(crate) async fn dial(
    context: &Context,
    target: Target<'_>,
    peer: SocketAddr,
    exchange: Exchange,
    connecting: impl Future<Output = Result<Connected>>,
) -> Result<Connection> {
    let security = context.security()?;
    let (cause, text) = match way(security, target.peers, target.info, peer).await {
        Way::Secure => return secure_over(security, target, peer, exchange, connecting).await,
        Way::Plaintext => {
            let (stream, peer) = connecting.await?;
            let mut connection = Connection::plain(stream, peer, exchange).await?;
            let source_id = target.info.source_id_bytes();
            let is_for_a_time = security
                .settings()
                .is_some_and(|it| it.policy == Policy::Migrate);
            if is_for_a_time && !security.is_plaintext_allowed(source_id) {
                register_plaintext(security, target.info, &mut connection, peer)?;
            }
            if security.policy() != Policy::Off {
                let event = event(EventKind::PlaintextAccepted, security, target.info, peer);
                security.audit().record(event);
            }
            return Ok(connection);
        }
        Way::Refuse { cause, text } => (cause, text),
    };
    // Without encryption only where there was some before, or the policy would have said so.
    let is_downgrade = cause == Cause::PlaintextRefused
        && (security.policy() == Policy::Migrate || target.peers.keys().has_tried);
    let kind = if is_downgrade {
        EventKind::DowngradeRefused
    } else {
        EventKind::PolicyRefused
    };
    security.audit().record_with(kind, |kind| {
        let event = event(kind, security, target.info, peer);
        event.cause(cause).detail(text.as_str())
    });
    target.peers.failed(cause, &text);
    Err(Error::Security(text))
}

/// Connects with the relay named `host` and sends the request of `exchange`: through a handshake if this program has
/// a key; without one only on this host. Spec: relay §3, §5.2.
///
/// # Errors
/// As [`dial`].
pub(crate) async fn dial_relay(
    context: &Context,
    target: Target<'_>,
    (host, peer): (&str, SocketAddr),
    exchange: Exchange,
    limit: Duration,
) -> Result<Connection> {
    let security = context.security()?;
    if security.local().is_some() {
        return secure(security, target, peer, exchange, limit).await;
    }
    if !peer.ip().to_canonical().is_loopback() {
        let text = security.no_key_text(host);
        target.peers.failed(Cause::PlaintextRefused, &text);
        return Err(Error::Security(text));
    }
    let (stream, peer) = connected(peer, limit).await?;
    Connection::plain(stream, peer, exchange).await
}

/// A TCP connection, and the address of its other end.
pub(crate) type Connected = (ByteStream, SocketAddr);

/// Connects with one address.
pub(crate) async fn connected(peer: SocketAddr, limit: Duration) -> Result<Connected> {
    Ok((sockets::tcp_connect(peer, None, limit).await?, peer))
}

/// Connects through a handshake, whatever the policy, and sends the request of `exchange`.
///
/// # Errors
/// As [`dial`].
pub(crate) async fn secure(
    security: &Arc<Security>,
    target: Target<'_>,
    peer: SocketAddr,
    exchange: Exchange,
    limit: Duration,
) -> Result<Connection> {
    secure_over(security, target, peer, exchange, connected(peer, limit)).await
}

async fn secure_over(
    security: &Arc<Security>,
    target: Target<'_>,
    peer: SocketAddr,
    exchange: Exchange,
    connecting: impl Future<Output = Result<Connected>>,
) -> Result<Connection> {
    let Some(local) = security.local() else {
        // Whoever has no key has policy `off`, and that does not come here.
        return Err(Error::Security("there is no key to encrypt with".into()));
    };
    // What a relay encrypts is no outlet's promise.
    let is_relay = target.expected.is_relay();
    target.peers.keys().has_tried |= !is_relay;
    let _turn = turn(peer.ip()).await;
    refresh(security).await;
    let (stream, peer) = connecting.await?;
    let own_address = stream
        .local_addr()
        .map_err(|source| crate::drive_inlet::connection::failed(peer, source))?;
    let clock = security.audit().wants(EventKind::HandshakeOk);
    let mut judge = Judge {
        security,
        target,
        peer,
        own_address,
        found: Findings {
            is_relay,
            ..Findings::default()
        },
        trail: Arc::new(Trail::begin(
            Role::Inlet,
            local_clock(),
            clock.then_some(local_clock),
        )),
        accepted: None,
    };
    let failure = match judge.connect(stream, local, exchange).await {
        Ok(connection) => {
            trust_watch::watch(security);
            return Ok(connection);
        }
        Err(error) => error,
    };
    Err(judge.refused(&failure))
}

/// Answers what a handshake asks, and keeps what it showed.
struct Judge<'a> {
    security: &'a Arc<Security>,
    target: Target<'a>,
    peer: SocketAddr,
    own_address: SocketAddr,
    found: Findings,
    trail: Arc<Trail>,
    /// What the session needs, and what the outlet said of its stream.
    accepted: Option<(Registration, Descriptor)>,
}

impl Judge<'_> {
    /// Handshakes, until there is a session.
    async fn connect(
        &mut self,
        stream: ByteStream,
        local: &Arc<Local>,
        exchange: Exchange,
    ) -> lsl_secure::Result<Connection> {
        let (local, request) = (Arc::clone(local), exchange.request().to_vec());
        let trail = Arc::clone(&self.trail);
        let starting = in_background(move || {
            let now = local_clock();
            lsl_secure::Connection::initiator_on(trail, local, &request, now, &mut OsRandom)
        });
        let handshake = starting.await??;
        let mut connection = Connection::secure(stream, self.peer, exchange, handshake);
        let mut answer = None;
        let info = loop {
            answer = Some(match connection.proceed(answer).await? {
                connection::Event::Question(Question::PeerKey(key)) => {
                    Answer::PeerKey(self.judge_key(key))
                }
                connection::Event::Question(Question::Descriptor(said)) => {
                    Answer::Descriptor(self.judge_stream(said).await)
                }
                connection::Event::Established(info) => break info,
                _ => return Err(lsl_secure::Error::session(Cause::Internal, "no session")),
            });
        };
        if let Some((registration, said)) = self.accepted.take()
            && self.remember(&info).is_ok()
        {
            connection.begin_session(info, said, registration);
            return Ok(connection);
        }
        self.found.pinned = self.key_before(info.peer);
        connection.refuse(Cause::NotAuthorised);
        let text = "no longer trusted";
        Err(lsl_secure::Error::session(Cause::NotAuthorised, text))
    }

    fn judge_key(&mut self, key: PublicKey) -> Result<String, Cause> {
        let (security, found) = (self.security, &mut self.found);
        found.key = Some(key);
        let (remote, own) = (self.peer.ip(), self.own_address.ip());
        let authorised = security.authorise(&key, Role::Outlet, remote, own);
        let is_known = matches!(authorised, Ok(_) | Err(Cause::RoleNotAllowed));
        let is_link = matches!(self.target.expected, ExpectedIdentity::Link);
        found.may_not_link = is_link && is_known && !may_link(security, &key);
        if found.may_not_link {
            let trust = security.trust();
            found.name = trust
                .find(&key)
                .map_or_else(String::new, |it| it.name.clone());
            return Err(Cause::RoleNotAllowed);
        }
        found.name = authorised?;
        found.pinned = if found.is_relay {
            let required = self.target.expected.required_key();
            required.filter(|required| *required != key)
        } else {
            let mut keys = self.target.peers.keys();
            keys.pinned_against(key, &found.name, pins(security), local_clock())
        };
        match found.pinned {
            None => Ok(found.name.clone()),
            Some(_) => Err(Cause::NotAuthorised),
        }
    }

    async fn judge_stream(&mut self, said: Descriptor) -> Result<(), Cause> {
        let expected = match self.target.expected {
            expected if expected.is_relay() => ExpectedIdentity::Relay {
                key: self.found.key,
            },
            expected => expected,
        };
        self.found.mismatch = expected.compare(self.target.info, &said);
        if self.found.mismatch.is_some() {
            return Err(Cause::DescriptorMismatch);
        }
        let key = self.found.key.ok_or(Cause::Internal)?;
        let guard = self.register(key, &said).await;
        if guard.is_err() {
            self.found.pinned = self.key_before(key);
        }
        self.accepted = Some((guard?, said));
        Ok(())
    }

    /// Has the session watched: it ends when the outlet is no longer trusted.
    async fn register(&mut self, key: PublicKey, said: &Descriptor) -> Result<Registration, Cause> {
        let security = self.security;
        let (remote, local) = (self.peer.ip(), self.own_address.ip());
        // Of a relay the entry in the trust file covers what is read through it.
        let stream = if self.found.is_relay {
            descriptor(self.target.info)
        } else {
            said.clone()
        };
        let admitted = security.admits_stream(&key, remote, local, &stream);
        self.found.is_for_other_streams = admitted.is_err();
        admitted?;
        if !self.found.is_relay {
            note(security, said, key).await;
        }
        let live = SessionEntry {
            peer: key,
            role: Role::Outlet,
            remote,
            local,
            stream,
            span: self.trail.span(),
        };
        let ending = Arc::new(Ending::default());
        let to_end = Arc::clone(&ending);
        Ok(Registration {
            guard: security.register(live, move |cause| to_end.end(cause))?,
            security: Arc::clone(security),
            peers: Arc::clone(self.target.peers),
            ending,
            peer: self.peer,
            trail: Arc::clone(&self.trail),
        })
    }

    /// Returns the key of the stream's outlet before; a relay has one of its own.
    fn key_before(&self, key: PublicKey) -> Option<PublicKey> {
        let keys = (!self.found.is_relay).then(|| self.target.peers.keys());
        keys.and_then(|keys| keys.before(key))
    }

    /// Remembers the outlet's key; an error if another one was pinned meanwhile.
    fn remember(&self, info: &SessionInfo) -> Result<(), PublicKey> {
        let Self { security, peer, .. } = *self;
        let (peers, now) = (self.target.peers, local_clock());
        if self.found.is_relay {
            peers.accepted();
            return Ok(());
        }
        let before = (peers.keys()).accept(info.peer, &info.peer_name, pins(security), now)?;
        peers.accepted();
        if let Some(before) = before {
            let event = event(EventKind::PeerChanged, security, self.target.info, peer)
                .span(self.trail.span())
                .session(info.id)
                .peer(info.peer.fingerprint())
                .peer_name(info.peer_name.as_str())
                .detail(format!("before: {}", before.fingerprint()));
            security.audit().record(event);
        }
        Ok(())
    }

    /// Puts a failed handshake into words: for the audit log, for people, and for the next try.
    fn refused(&self, error: &lsl_secure::Error) -> Error {
        let Self {
            security,
            target,
            peer,
            found,
            ..
        } = self;
        let event = found.failure(target.info, *peer, security.policy(), error);
        let event = event.trail(&self.trail, local_clock());
        if found.mismatch == Some(Mismatch::Outlet) {
            let event = event.detail("another outlet (uid) is at this address");
            security.audit().record(event);
            // What LSL's status 404 means too: look for the stream again.
            return Error::Protocol("another outlet is at this address".into());
        }
        let not_trusted = |key: &PublicKey| security.not_trusted_text(key);
        let text = found.text(target.info, *peer, error, pins(security), not_trusted);
        security.audit().record(event.detail(text.as_str()));
        if is_cut(error) {
            target.peers.cut(error.cause(), &text);
        } else {
            target.peers.failed(error.cause(), &text);
        }
        Error::Security(text)
    }
}

/// Returns whether this key, which was authorised, is that of a relay that may link with this one. Our own may: that
/// relay says that it is this one. Spec: relay §3.1.
pub(crate) fn may_link(security: &Security, key: &PublicKey) -> bool {
    let trust = security.trust();
    let is_relay = trust.find(key).is_some_and(|it| it.role.allows_links());
    is_relay || (security.local()).is_some_and(|local| local.key.public() == *key)
}

/// Returns whether the network ended a handshake, perhaps before a first answer, and nobody refused anything.
fn is_cut(error: &lsl_secure::Error) -> bool {
    match error {
        lsl_secure::Error::Session { cause, .. } => {
            matches!(cause, Cause::Truncated | Cause::PeerNotSecure)
        }
        lsl_secure::Error::Io { source, .. } => source.kind() != std::io::ErrorKind::TimedOut,
        _ => false,
    }
}

/// Whether the configuration demands that a stream keeps its key.
fn pins(security: &Security) -> bool {
    let settings = security.settings();
    settings.is_some_and(|settings| settings.pin_peer)
}

/// Remembers that a stream encrypts, before anything of it is delivered.
async fn note(security: &Arc<Security>, said: &Descriptor, key: PublicKey) {
    let (security, said) = (Arc::clone(security), said.clone());
    let _ = tokio::task::spawn_blocking(move || security.note_secure(&said, &key)).await;
}

/// Makes a plaintext connection end when `migrate` does.
fn register_plaintext(
    security: &Arc<Security>,
    info: &StreamInfo,
    connection: &mut Connection,
    peer: SocketAddr,
) -> Result<()> {
    let Some(close) = connection.writer().map(Writer::closer) else {
        return Ok(());
    };
    let ended = event(EventKind::PlaintextRefused, security, info, peer)
        .cause(Cause::PlaintextRefused)
        .detail("migrate_until has passed; the stream is not read any more");
    let to_audit = Arc::downgrade(security);
    let end = move || {
        if let Some(security) = to_audit.upgrade() {
            security.audit().record(ended.clone());
        }
        // Who waits for it, wherever, sees its end.
        close();
    };
    let guard = security.register_plaintext(end);
    let over = |_| Error::Security("migrate_until has passed: plaintext is not read".into());
    connection.keep(guard.map_err(over)?);
    trust_watch::watch(security);
    Ok(())
}

/// Audits that an outlet said of itself what its DESCRIPTOR does not say.
pub(crate) fn mismatch(security: &Security, info: &StreamInfo, peer: SocketAddr, text: &str) {
    let event = event(EventKind::HandshakeFailed, security, info, peer);
    let event = event.cause(Cause::DescriptorMismatch).detail(text);
    security.audit().record(event);
}

fn event(kind: EventKind, security: &Security, info: &StreamInfo, peer: SocketAddr) -> Event {
    connection_event(kind, Role::Inlet, security.policy(), peer, info)
}

/// Waits until few handshakes with this address are under way in this process, so that many inlets
/// of one program stay below what an outlet's host grants to one source. Spec: LSS/1 §6.2.
async fn turn(address: IpAddr) -> Option<OwnedSemaphorePermit> {
    let permits = HANDSHAKES.get().0.get(address.to_canonical());
    // Nobody ever closes the semaphore.
    permits.acquire_owned().await.ok()
}

static HANDSHAKES: PerProcess<Handshakes> = PerProcess::new();

struct Handshakes(PerHost<IpAddr>);

impl Default for Handshakes {
    fn default() -> Self {
        Self(PerHost::new(MAX_IN_FLIGHT))
    }
}

/// Handshakes with one address at the same time.
const MAX_IN_FLIGHT: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::runtime;

    #[test]
    fn at_most_64_handshakes_with_an_address_are_under_way() {
        let (sender, receiver) = std::sync::mpsc::channel();
        let task = async move {
            let address = IpAddr::from([192, 0, 2, 77]);
            let mut turns = Vec::new();
            for _ in 0..MAX_IN_FLIGHT {
                turns.push(turn(address).await);
            }
            let one_too_many = Duration::from_millis(20);
            let waits = tokio::time::timeout(one_too_many, turn(address)).await;
            let other = turn(IpAddr::from([192, 0, 2, 78])).await;
            turns.pop();
            let next = turn(address).await;
            let result = (waits.is_err(), other.is_some(), next.is_some());
            drop((turns, other, next));
            let _ = sender.send(result);
        };
        runtime::spawn(task).unwrap();
        let result = receiver.recv_timeout(Duration::from_secs(20)).unwrap();
        assert_eq!(result, (true, true, true));
    }
}
