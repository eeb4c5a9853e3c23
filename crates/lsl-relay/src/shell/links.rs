//! Links to other relays, from their first bytes to their end. Spec: relay §4.1, §4.3.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use lsl_core::relay::{Duplex, Either, Peer, dial, select2};
use lsl_core::{Context, Error};
use lsl_proto::security::not_a_relay_text;
use lsl_secure::Fingerprint;
use lsl_secure::audit::Span;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::Notify;

use crate::book::Uid;
use crate::hello::{HELLO_SECS, Hello, HelloError, HelloParser, RELAY_COMMAND, Refusal};
use crate::id::RelayId;
use crate::link::{LinkEnd, LinkEvent, LinkId};
use crate::mux::{Code, Limits, Side};
use crate::shell::audit;
use crate::shell::clocks::AbortOnDrop;
use crate::shell::link::{DirectoryNews, Link, LinkNews, drive, read_directory, read_document};
use crate::shell::state::{Shared, State};
use crate::shell::totals::Why;

/// A connection that is a link, or becomes one.
#[derive(Debug)]
pub(super) struct Connection {
    link: Link,
    peer: RelayId,
    /// Name of the peer for people: that of the trust file, or what it calls itself.
    name: String,
    /// Key that it has proved to own.
    key: Option<Fingerprint>,
    address: SocketAddr,
    /// Told when the directory is to be read anew.
    anew: Arc<Notify>,
    /// Tree of its events.
    span: Span,
}

/// Answers a request to link, and has the link carried by tasks of the relay.
pub(super) async fn accept(shared: &Arc<Shared>, headers: &[u8], peer: Peer, mut duplex: Duplex) {
    let text = [RELAY_COMMAND, b"1\r\n", headers].concat();
    let hello = match HelloParser::of_request().feed(&text) {
        Ok(Some((hello, _))) => hello,
        Err(HelloError::Refused(refusal)) => return refuse(refusal, duplex).await,
        Ok(None) | Err(HelloError::Malformed(_)) => return duplex.close(None).await,
    };
    let own = own_hello(shared);
    let link = Link::new(Side::Acceptor, own.limits, hello.limits);
    let accepted: Result<_, Refusal> = shared.act(|state, now| {
        let may_link = peer.is_relay && is_its_own(hello.id, &peer);
        let id = state.links.accept(&hello, may_link, now)?;
        let connection = Connection::new(&link, &hello, &peer);
        state.connections.insert(id, connection);
        Ok(id)
    });
    match accepted {
        Err(refusal) => {
            tracing::warn!("{}", refused_text(refusal, hello.id, &peer));
            shared.totals.refuse(Why::Link);
            refuse(refusal, duplex).await;
        }
        Ok(id) => {
            let shared_too = Arc::clone(shared);
            shared.tasks.spawn(async move {
                // Without an answer the end comes soon.
                let _ = duplex.write_all(&own.reply()).await;
                let peer = through(hello.id, peer);
                run(shared_too, (id, link), peer, duplex, &[]).await;
            });
        }
    }
}

/// Returns the peer of a link as the one that asks on its substreams.
fn through(id: RelayId, mut peer: Peer) -> Peer {
    peer.link = Some(id.0);
    peer
}

/// Whether a peer has the identity that it says: one with a key has that of the key. Spec: relay §3.1.
fn is_its_own(id: RelayId, peer: &Peer) -> bool {
    let trusted = peer.trusted.as_ref();
    trusted.is_none_or(|(key, _)| RelayId::of_key(key) == id)
}

/// Says why a relay that dialled is not linked, and what to run if that is wrong.
fn refused_text(refusal: Refusal, id: RelayId, peer: &Peer) -> String {
    match (&peer.trusted, refusal) {
        (Some((key, name)), Refusal::NotARelay) if !peer.is_relay => not_a_relay_text(name, key),
        (_, refusal) => format!("relay {id} is refused a link: {}", refusal.text()),
    }
}

/// Dials a relay, and has the link carried by a task of its own.
async fn connect(shared: Arc<Shared>, id: LinkId, address: String) {
    let greeted = greet(&shared.context, &own_hello(&shared), &address).await;
    shared.act(|state, now| {
        state.dialling.remove(&id);
        match greeted {
            Ok((link, hello, peer, duplex, early)) => {
                state.failures.remove(&address);
                let connection = Connection::new(&link, &hello, &peer);
                state.connections.insert(id, connection);
                state.links.replied(id, &hello, now);
                let (shared_too, peer) = (Arc::clone(&shared), through(hello.id, peer));
                shared.tasks.spawn(async move {
                    run(shared_too, (id, link), peer, duplex, &early).await;
                });
            }
            Err((end, text)) => {
                state.note_failure(address, end, text);
                state.links.ended(id, end, now);
            }
        }
    });
}

type Greeted = (Link, Hello, Peer, Duplex, Vec<u8>);

/// Connects, and exchanges hellos. What the peer sent behind its own is returned, too.
pub(super) async fn greet(
    context: &Context,
    own: &Hello,
    address: &str,
) -> Result<Greeted, (LinkEnd, String)> {
    let lost = |error: Error| (LinkEnd::Lost, error.to_string());
    let limit = Duration::from_secs_f64(HELLO_SECS);
    let request = own.request();
    let dialling = dial(context, address, limit, &request);
    let (mut duplex, peer) = dialling.await.map_err(lost)?;
    let mut parser = HelloParser::of_reply();
    let mut buffer = vec![0; 4096];
    loop {
        let count = match duplex.read(&mut buffer).await {
            // It did not even read.
            Err(error) if error.kind() == ErrorKind::ConnectionReset => 0,
            read => read.map_err(|error| (LinkEnd::Lost, error.to_string()))?,
        };
        let bytes = buffer.get(..count).unwrap_or_default();
        if bytes.is_empty() {
            let text = format!("{address} is no relay (it closed the connection)");
            return Err((LinkEnd::Lost, text));
        }
        match parser.feed(bytes) {
            Ok(None) => {}
            Ok(Some((hello, _))) if !is_its_own(hello.id, &peer) => {
                let text = format!("{address} says an identity that is not that of its key");
                return Err((LinkEnd::Lost, text));
            }
            Ok(Some((hello, taken))) => {
                let early = bytes.get(taken..).unwrap_or_default().to_vec();
                let link = Link::new(Side::Dialler, own.limits, hello.limits);
                return Ok((link, hello, peer, duplex, early));
            }
            Err(HelloError::Refused(refusal)) => {
                let end = LinkEnd::Refused(refusal);
                let name = peer.trusted.map_or_else(|| address.to_owned(), |it| it.1);
                return Err((
                    end,
                    match refusal {
                        Refusal::NotARelay => {
                            format!("{name} does not let us link: ask there for --role relay")
                        }
                        Refusal::OwnId => {
                            format!("this relay's own address is among connect (508): {address}")
                        }
                        other => format!("{name} refuses a link: {}", other.text()),
                    },
                ));
            }
            Err(error @ HelloError::Malformed(_)) => {
                return Err((LinkEnd::Lost, format!("{address} is no relay: {error}")));
            }
        }
    }
}

async fn refuse(refusal: Refusal, mut duplex: Duplex) {
    let _ = duplex.write_all(&refusal.to_bytes()).await;
    duplex.close(None).await;
}

/// Carries a link to its end.
async fn run(
    shared: Arc<Shared>,
    (id, link): (LinkId, Link),
    peer: Peer,
    mut duplex: Duplex,
    early: &[u8],
) {
    let tell = |news| match news {
        LinkNews::Opened { id, request } => {
            let substream = link.opened(id, &request);
            if let Some(port) = shared.port() {
                port.serve(substream, request, peer.clone());
            }
        }
        LinkNews::Pong(times) => shared.act(|state, now| state.link_answered(id, times, now)),
        LinkNews::Closed { .. } => {}
    };
    let (end, text) = drive(&link, &mut duplex, early, tell).await;
    shared.act(|state, now| state.link_ended(&shared, (id, end, &text), now));
    duplex.close(None).await;
}

/// Keeps what the peer of a link tells of its streams, until the link ends. A directory that ends before is asked for
/// again, as what it said holds no more.
async fn watch(shared: Arc<Shared>, (id, peer): (LinkId, RelayId), link: Link, anew: Arc<Notify>) {
    let mut failures = 0;
    loop {
        let reading = pin!(read_news(&shared, (id, peer), &link));
        let pause = match select2(reading, anew.notified()).await {
            Either::First(text) => {
                tracing::debug!("directory of relay {peer}: {text}");
                failures += 1;
                REWATCH_SECS * f64::from(1 << failures.min(4))
            }
            Either::Second(()) => 0.0,
        };
        tokio::time::sleep(Duration::from_secs_f64(pause)).await;
        let is_up = shared.act(|state, now| {
            let is_up = state.links.of(peer) == Some(id);
            if is_up {
                state.book.lose_ways(peer, now);
            }
            is_up
        });
        if !is_up {
            return;
        }
    }
}

/// Reads the directory of a link to its end, which is told.
async fn read_news(shared: &Arc<Shared>, (id, peer): (LinkId, RelayId), link: &Link) -> String {
    let take = |all: Vec<DirectoryNews>| {
        shared.act(|state, now| {
            if state.links.of(peer) != Some(id) {
                return;
            }
            for news in all {
                match news {
                    DirectoryNews::Here(uid, info) => state.book.announced(peer, &uid, *info, now),
                    DirectoryNews::Gone(uid, reason) => {
                        state.book.withdrawn(peer, &uid, reason, now);
                    }
                    DirectoryNews::Clock(uid, clock) => {
                        state.clocks.told(peer, &uid, clock, now);
                    }
                }
            }
        });
    };
    read_directory(link, take).await
}

/// Asks a relay again for a stream that the directory had no room for.
pub(super) fn ask_again(shared: &Arc<Shared>, state: &State, relay: RelayId, uid: Uid) {
    let Some(link) = state.link_to(relay).cloned() else {
        return;
    };
    let shared_too = Arc::clone(shared);
    shared.tasks.spawn(async move {
        let info = read_document(&link, &uid).await;
        shared_too.act(|state, now| state.book.announced_again(relay, &uid, info, now));
    });
}

fn own_hello(shared: &Shared) -> Hello {
    Hello {
        id: shared.id,
        name: shared.name.clone(),
        limits: Limits {
            window: WINDOW,
            streams: shared.substreams.load(Ordering::Relaxed),
        },
    }
}

impl Connection {
    fn new(link: &Link, hello: &Hello, peer: &Peer) -> Self {
        let trusted = peer.trusted.as_ref();
        Self {
            link: link.clone(),
            peer: hello.id,
            name: trusted.map_or_else(|| hello.name.clone(), |(_, name)| name.clone()),
            key: trusted.map(|(key, _)| key.fingerprint()),
            address: peer.address,
            anew: Arc::default(),
            span: Span::begin(),
        }
    }

    /// Returns what auditors are told of it.
    fn facts(&self) -> (SocketAddr, Option<Fingerprint>, &str) {
        (self.address, self.key, &self.name)
    }
}

impl State {
    /// Does what the links want.
    pub(super) fn follow_links(&mut self, event: &LinkEvent, shared: &Arc<Shared>, now: f64) {
        match *event {
            LinkEvent::Dial {
                link: id,
                ref address,
            } => {
                let dialling = connect(Arc::clone(shared), id, address.clone());
                let task = AbortOnDrop(shared.tasks.spawn(dialling));
                self.dialling.insert(id, task);
            }
            LinkEvent::Up { link: id, peer, .. } => {
                if let Some(connection) = self.connections.get(&id) {
                    self.book.link_up(peer, connection.key, now);
                    tracing::info!("link to relay {} ({peer}) is up", connection.name);
                    audit::link(shared, connection.span, connection.facts(), None);
                    // One that is replaced has no other end than this.
                    self.clocks.machine.link_down(peer);
                    let (link, anew) = (connection.link.clone(), Arc::clone(&connection.anew));
                    let watching = watch(Arc::clone(shared), (id, peer), link, anew);
                    shared.tasks.spawn(watching);
                }
            }
            LinkEvent::Close { link, code } => {
                self.dialling.remove(&link);
                if let Some(connection) = self.connections.get(&link) {
                    connection.link.close(code, &code.to_string());
                }
            }
        }
    }

    /// Logs why a relay cannot be linked: again only if that is new, or for people alone to mend.
    fn note_failure(&mut self, address: String, end: LinkEnd, text: String) {
        let is_lasting = matches!(end, LinkEnd::Refused(Refusal::NotARelay | Refusal::OwnId));
        if is_lasting {
            tracing::error!("{text}");
        } else if self.failures.get(&address) != Some(&text) {
            tracing::warn!("no link to {address}: {text}");
        }
        self.failures.insert(address, text);
    }

    /// Reads the directories of all links anew: other streams may be wanted of them.
    pub(super) fn watch_anew(&self) {
        for connection in self.connections.values() {
            connection.anew.notify_one();
        }
    }

    /// Ends all links, as the relay ends.
    pub(super) fn close_links(&mut self, now: f64) {
        for connection in self.connections.values() {
            connection.link.close(Code::SHUTDOWN, "shutting down");
        }
        self.links.set_targets(&[], now);
    }

    /// Returns the link to a relay.
    pub(super) fn link_to(&self, relay: RelayId) -> Option<&Link> {
        let connection = self.connections.get(&self.links.of(relay)?)?;
        Some(&connection.link)
    }

    /// Returns the links that are up, and the relays at their other ends.
    pub(super) fn links_up(&self) -> Vec<(RelayId, Link)> {
        let connections = self.connections.iter();
        let up = connections.filter(|(id, it)| self.links.of(it.peer) == Some(**id));
        up.map(|(_, it)| (it.peer, it.link.clone())).collect()
    }

    /// Returns the relay whose link comes from an address; its substreams have that, too.
    pub(super) fn link_at(&self, address: SocketAddr) -> Option<RelayId> {
        let mut connections = self.connections.values();
        let found = connections.find(|connection| connection.address == address);
        found.map(|connection| connection.peer)
    }

    fn link_answered(&mut self, id: LinkId, times: [f64; 4], now: f64) {
        let peer = self.connections.get(&id).map(|it| it.peer);
        if let Some(peer) = peer.filter(|peer| self.links.of(*peer) == Some(id))
            && let Some(rtt) = self.clocks.pong(peer, times, now)
        {
            self.book.set_rtt(peer, rtt, now);
        }
    }

    fn link_ended(&mut self, shared: &Shared, (id, end, text): (LinkId, LinkEnd, &str), now: f64) {
        if let Some(connection) = self.connections.remove(&id)
            && self.links.of(connection.peer) == Some(id)
        {
            let peer = connection.peer;
            tracing::info!("link to relay {} ({peer}) is down: {text}", connection.name);
            audit::link(shared, connection.span, connection.facts(), Some(text));
            self.book.link_down(peer, now);
            self.clocks.machine.link_down(peer);
        }
        self.links.ended(id, end, now);
    }

    /// Describes the links for the status. Spec: relay §13.
    pub(super) fn links_status(&self) -> Vec<Value> {
        let up = self.connections.iter();
        let up = up.filter(|(id, connection)| self.links.of(connection.peer) == Some(**id));
        let up = up.map(|(_, connection)| {
            let peer = connection.peer;
            let targets = self.links.targets();
            let targets = targets.filter(|(_, found, is_up)| *is_up && *found == Some(peer));
            let [came, sent, behind] = connection.link.bytes();
            json!({
                "name": connection.name,
                "id": peer.to_string(),
                "state": "up",
                "targets": targets.map(|(address, ..)| address).collect::<Vec<_>>(),
                "rtt_ms": self.clocks.machine.rtt(peer).map(|secs| secs * 1e3),
                "in": came,
                "out": sent,
                "behind_bytes": behind,
                "substreams": connection.link.substreams(),
            })
        });
        let down = self.links.targets().filter(|(.., is_up)| !is_up);
        let down = down.map(|(address, peer, _)| {
            json!({
                "name": address,
                "id": peer.map(|peer| peer.to_string()),
                "state": "down",
                "targets": [address],
                "error": self.failures.get(address),
            })
        });
        up.chain(down).collect()
    }
}

/// Time in seconds after which a directory that ended is read again, the first time; it doubles four times.
const REWATCH_SECS: f64 = 0.5;

/// Bytes that a peer may send on a substream before it gets more credit: what one fast stream has on its way.
pub(super) const WINDOW: u32 = 512 * 1024;
