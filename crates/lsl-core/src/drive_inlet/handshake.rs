//! How an inlet connects: in plaintext, through a handshake, or not at all. Decided by policy before
//! anything is sent, and never changed by what the other side answers: a secure attempt that fails is
//! not repeated in plaintext. Spec: LSS/1 §4.2-§4.4, §5.7, §7.4.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use lsl_platform::clock::local_clock;
use lsl_platform::fork::PerProcess;
use lsl_proto::describe::descriptor;
use lsl_proto::inlet::Exchange;
use lsl_secure::audit::{Event, EventKind};
use lsl_secure::connection::{self, Answer, Question};
use lsl_secure::policy::{self, Advert, Way};
use lsl_secure::{
    Cause, Descriptor, Local, OsRandom, Policy, PublicKey, Role, Security, SessionEntry,
    SessionInfo,
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::byte_stream::{ByteStream, Writer};
use crate::context::Context;
use crate::drive_inlet::connection::Connection;
use crate::drive_inlet::peers::Peers;
use crate::drive_inlet::session::{Ending, Registration};
use crate::net::monitor::lock_ignoring_poison;
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

/// Identity that a DESCRIPTOR must prove. Spec: LSS/1 §7.4.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ExpectedIdentity<'a> {
    /// All of the outlet's info, and the stream that the user chose at first.
    Stream {
        /// Descriptor of the stream that the user chose.
        original: &'a Descriptor,
        /// Whether the choice was made among found streams, by anything that discovery said of them.
        was_found: bool,
    },
    /// Only what a redacted info shows: the rest is about to be asked for.
    Redacted,
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
    if way != Way::Plaintext || !peers.has_tried() {
        return way;
    }
    let name = lsl_secure::audit::printable(info.name_bytes());
    Way::Refuse {
        cause: Cause::PlaintextRefused,
        text: format!(
            "stream \"{name}\" offered encryption before but offers only plaintext now: possible \
             downgrade; refused"
        ),
    }
}

fn way_by_policy(security: &Security, info: &StreamInfo, address: SocketAddr) -> Way {
    let advert = info.security_advert().map(|advert| Advert {
        policy: advert.policy,
        fingerprint: advert.fingerprint,
        minimal: advert.minimal,
    });
    security.way_of_inlet(
        info.name_bytes(),
        info.stream_type_bytes(),
        info.source_id_bytes(),
        &address.to_string(),
        advert.as_ref(),
    )
}

/// Connects as policy demands and sends the request of `exchange`. `limit` is for the TCP connection; a handshake has
/// limits of its own (10 s for each of two answers).
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
    limit: Duration,
) -> Result<Connection> {
    let security = context.security()?;
    let (cause, text) = match way(security, target.peers, target.info, peer).await {
        Way::Secure => return secure(security, target, peer, exchange, limit).await,
        Way::Plaintext => {
            let mut connection = Connection::plain(peer, exchange, limit).await?;
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
    let event = event(EventKind::PolicyRefused, security, target.info, peer);
    let event = event.cause(cause).detail(text.as_str());
    security.audit().record(event);
    target.peers.failed(cause, &text);
    Err(Error::Security(text))
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
    let Some(local) = security.local() else {
        // Whoever has no key has policy `off`, and that does not come here.
        return Err(Error::Security("there is no key to encrypt with".into()));
    };
    target.peers.tries();
    let _turn = turn(peer.ip()).await;
    refresh(security).await;
    let stream = sockets::tcp_connect(peer, limit).await?;
    let own_address = stream
        .local_addr()
        .map_err(|source| crate::drive_inlet::connection::failed(peer, source))?;
    let mut judge = Judge {
        security,
        target,
        peer,
        own_address,
        found: Found::default(),
        wrong: None,
        accepted: None,
    };
    let failure = match judge.connect(stream, local, exchange).await {
        Ok(connection) => {
            trust_watch::watch(security);
            return Ok(connection);
        }
        Err(error) => error,
    };
    Err(target.refused(security, peer, &failure, &judge.found, judge.wrong))
}

/// Answers what a handshake asks, and keeps what it showed.
struct Judge<'a> {
    security: &'a Arc<Security>,
    target: Target<'a>,
    peer: SocketAddr,
    own_address: SocketAddr,
    found: Found,
    wrong: Option<Wrong>,
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
        let starting = in_background(move || {
            lsl_secure::Connection::initiator(local, &request, local_clock(), &mut OsRandom)
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
        self.found.pinned = self.pinned_before(info.peer);
        connection.refuse(Cause::NotAuthorised);
        let text = "no longer trusted";
        Err(lsl_secure::Error::session(Cause::NotAuthorised, text))
    }

    fn judge_key(&mut self, key: PublicKey) -> Result<String, Cause> {
        let (security, found) = (self.security, &mut self.found);
        found.key = Some(key);
        let (remote, own) = (self.peer.ip(), self.own_address.ip());
        found.name = security.authorise(&key, Role::Outlet, remote, own)?;
        let peers = self.target.peers;
        found.pinned = peers.pinned_against(key, &found.name, pins(security));
        match found.pinned {
            None => Ok(found.name.clone()),
            Some(_) => Err(Cause::NotAuthorised),
        }
    }

    async fn judge_stream(&mut self, said: Descriptor) -> Result<(), Cause> {
        self.wrong = self.target.compare(&said);
        if self.wrong.is_some() {
            return Err(Cause::DescriptorMismatch);
        }
        let key = self.found.key.ok_or(Cause::Internal)?;
        let guard = self.register(key, &said).await;
        if guard.is_err() {
            self.found.pinned = self.pinned_before(key);
        }
        self.accepted = Some((guard?, said));
        Ok(())
    }

    /// Has the session watched: it ends when the outlet is no longer trusted.
    async fn register(&mut self, key: PublicKey, said: &Descriptor) -> Result<Registration, Cause> {
        let security = self.security;
        let (remote, local) = (self.peer.ip(), self.own_address.ip());
        let admitted = security.admits_stream(&key, remote, local, said);
        self.found.is_for_other_streams = admitted.is_err();
        admitted?;
        note(security, said, key).await;
        let live = SessionEntry {
            peer: key,
            role: Role::Outlet,
            remote,
            local,
            stream: said.clone(),
        };
        let ending = Arc::new(Ending::default());
        let to_end = Arc::clone(&ending);
        Ok(Registration {
            _guard: security.register(live, move |cause| to_end.end(cause))?,
            security: Arc::clone(security),
            peers: Arc::clone(self.target.peers),
            ending,
            peer: self.peer,
        })
    }

    /// Remembers the outlet's key; an error if another one was pinned meanwhile.
    fn remember(&self, info: &SessionInfo) -> Result<(), PublicKey> {
        let Self { security, peer, .. } = *self;
        let peers = self.target.peers;
        if let Some(before) = peers.accepted(info.peer, &info.peer_name, pins(security))? {
            let event = event(EventKind::PeerChanged, security, self.target.info, peer)
                .session(info.id)
                .peer(info.peer.fingerprint())
                .peer_name(info.peer_name.as_str())
                .detail(format!("before: {}", before.fingerprint()));
            security.audit().record(event);
        }
        Ok(())
    }

    /// The key that this stream's outlet had, if it is another one.
    fn pinned_before(&self, key: PublicKey) -> Option<PublicKey> {
        self.target.peers.key().filter(|before| *before != key)
    }
}

/// What the handshake showed of the outlet before it failed.
#[derive(Debug, Default)]
struct Found {
    key: Option<PublicKey>,
    /// Empty until the key is known to be trusted.
    name: String,
    /// Whether its entry in the trust file covers other streams only.
    is_for_other_streams: bool,
    /// The key that it would have to have.
    pinned: Option<PublicKey>,
}

/// A DESCRIPTOR that is not what was expected, and in which field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wrong {
    /// Another outlet lives at that address now: an ordinary event.
    Outlet,
    /// The outlet is the right one and not what discovery said: somebody lied.
    Field(&'static str),
}

impl Target<'_> {
    fn compare(&self, said: &Descriptor) -> Option<Wrong> {
        let known = descriptor(self.info);
        let field = match self.expected {
            ExpectedIdentity::Stream {
                original,
                was_found,
            } => said.differs_from(&known).or_else(|| {
                if was_found && said.uid == original.uid {
                    // The very outlet of the choice: recovery must not wash off what was a lie of it.
                    said.differs_from(original)
                } else {
                    said.is_other_stream_than(original)
                }
            }),
            ExpectedIdentity::Redacted => {
                let shown = Descriptor {
                    uid: known.uid,
                    channel_count: known.channel_count,
                    nominal_srate: known.nominal_srate,
                    channel_format: known.channel_format,
                    ..said.clone()
                };
                said.differs_from(&shown)
            }
        }?;
        let is_other = said.uid != self.info.uid_bytes();
        Some(if is_other {
            Wrong::Outlet
        } else {
            Wrong::Field(field)
        })
    }

    /// Puts a failed handshake into words: for the audit log, for people, and for the next try.
    fn refused(
        &self,
        security: &Security,
        peer: SocketAddr,
        error: &lsl_secure::Error,
        found: &Found,
        wrong: Option<Wrong>,
    ) -> Error {
        let cause = error.cause();
        let kind = match error {
            lsl_secure::Error::Alert { .. } => EventKind::PeerAlert,
            // The cryptography was right, and it is the wrong one.
            lsl_secure::Error::Session { .. } if found.key.is_some() && cause.is_verdict() => {
                EventKind::PolicyRefused
            }
            _ => EventKind::HandshakeFailed,
        };
        let mut event = event(kind, security, self.info, peer).cause(cause);
        if let Some(key) = found.key {
            // From here on the outlet has proved to own its key.
            event = event.peer(key.fingerprint());
        }
        if !found.name.is_empty() {
            event = event.peer_name(found.name.as_str());
        }
        if wrong == Some(Wrong::Outlet) {
            security
                .audit()
                .record(event.detail("another outlet (uid) is at this address"));
            return another_outlet();
        }
        let text = self.words(security, peer, error, found, wrong);
        security.audit().record(event.detail(text.as_str()));
        self.peers.failed(cause, &text);
        Error::Security(text)
    }

    fn words(
        &self,
        security: &Security,
        peer: SocketAddr,
        error: &lsl_secure::Error,
        found: &Found,
        wrong: Option<Wrong>,
    ) -> String {
        let name = lsl_secure::audit::printable(self.info.name_bytes());
        let stream = format!("stream \"{name}\" at {peer}");
        match (error, found.key, wrong) {
            (lsl_secure::Error::Session { .. }, _, Some(Wrong::Field(field))) => {
                let hides = self.info.security_advert();
                let advice = if hides.is_some_and(|advert| advert.minimal) {
                    " (it shows itself only to programs with security.discovery = \"minimal\")"
                } else {
                    ""
                };
                format!(
                    "{stream} is not what discovery said of it: its {field} is another one; \
                     refused{advice}"
                )
            }
            (
                lsl_secure::Error::Alert {
                    cause: Cause::NotAuthorised,
                    ..
                },
                Some(key),
                _,
            ) => security.not_trusted_text(&key),
            (
                lsl_secure::Error::Session {
                    cause: Cause::PeerNotSecure,
                    ..
                },
                ..,
            ) => policy::not_secure_text(&peer.to_string()),
            (lsl_secure::Error::Session { cause, .. }, Some(key), _) => {
                let fingerprint = key.fingerprint();
                if let (Cause::NotAuthorised, Some(before)) = (cause, found.pinned) {
                    let by = if pins(security) {
                        "security.pin_peer is set"
                    } else {
                        "the reader pins it"
                    };
                    return format!(
                        "{stream}: its key {fingerprint} is another one than before ({}), and {by}",
                        before.fingerprint()
                    );
                }
                let reason = match cause {
                    Cause::NotAuthorised => "is not trusted by this device",
                    Cause::RoleNotAllowed if found.is_for_other_streams => {
                        "is trusted for other streams only: see `streams` of its entry in the trust \
                         file"
                    }
                    Cause::RoleNotAllowed => "may not send streams to this device",
                    Cause::Expired => "is trusted no longer: its not_after has passed",
                    Cause::SelfKey => {
                        "is our own, but it is another machine (was a disk image copied?)"
                    }
                    _ => return format!("{stream}: {error}"),
                };
                let name = cause.name();
                format!("{stream}: its key {fingerprint} {reason} ({name})")
            }
            _ => format!("{stream}: {error}"),
        }
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

/// What LSL's status 404 means too: look for the stream again.
fn another_outlet() -> Error {
    Error::Protocol("another outlet is at this address".into())
}

fn event(kind: EventKind, security: &Security, info: &StreamInfo, peer: SocketAddr) -> Event {
    Event::new(kind)
        .peer_addr(peer)
        .role(Role::Inlet)
        .policy(security.policy())
        .stream_uid(info.uid())
}

/// Waits until few handshakes with this address are under way in this process, so that many inlets
/// of one program stay below what an outlet's host grants to one source. Spec: LSS/1 §6.2.
async fn turn(address: IpAddr) -> Option<OwnedSemaphorePermit> {
    let address = address.to_canonical();
    let queue = {
        let mut queues = lock_ignoring_poison(QUEUES.get());
        queues.retain(|_, queue| queue.strong_count() > 0);
        let queue = queues.get(&address).and_then(Weak::upgrade);
        queue.unwrap_or_else(|| {
            let queue = Arc::new(Semaphore::new(MAX_IN_FLIGHT));
            queues.insert(address, Arc::downgrade(&queue));
            queue
        })
    };
    // Nobody ever closes the semaphore.
    queue.acquire_owned().await.ok()
}

static QUEUES: PerProcess<Mutex<HashMap<IpAddr, Weak<Semaphore>>>> = PerProcess::new();

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
        let queues = lock_ignoring_poison(QUEUES.get());
        let left = queues.iter().filter(|(address, queue)| {
            let is_ours = address.to_string().starts_with("192.0.2.");
            is_ours && queue.strong_count() > 0
        });
        assert_eq!(left.count(), 0);
    }
}
