//! Links to other relays, from their first bytes to their end. Spec: relay §4.1, §4.3.

use std::sync::Arc;

use lsl_core::relay::{Duplex, Peer};
use lsl_secure::Fingerprint;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;

use crate::hello::{Hello, HelloError, HelloParser, RELAY_COMMAND, Refusal};
use crate::id::RelayId;
use crate::link::{LinkEnd, LinkEvent, LinkId};
use crate::mux::{Code, Limits, Side};
use crate::shell::link::{DirectoryNews, Link, LinkNews, drive, read_directory};
use crate::shell::state::{Shared, State};

/// A connection that is a link, or becomes one.
#[derive(Debug)]
pub(super) struct Connection {
    link: Link,
    peer: RelayId,
    /// Name of the peer for people: that of the trust file, or what it calls itself.
    name: String,
    /// Key that it has proved to own.
    key: Option<Fingerprint>,
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
        let id = state.links.accept(&hello, peer.is_local(), now)?;
        let connection = Connection::new(&link, &hello, &peer);
        state.connections.insert(id, connection);
        Ok(id)
    });
    match accepted {
        Err(refusal) => {
            let id = hello.id;
            tracing::warn!("relay {id} is refused a link: {}", refusal.status());
            refuse(refusal, duplex).await;
        }
        Ok(id) => {
            let (shared_too, link_of) = (Arc::clone(shared), Some(hello.id.0));
            let peer = Peer {
                link: link_of,
                ..peer
            };
            shared.runtime.spawn(async move {
                // Without an answer the end comes soon.
                let _ = duplex.write_all(&own.reply()).await;
                run(shared_too, (id, link), peer, duplex, &[]).await;
            });
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
            let substream = link.opened(id);
            if let Some(port) = shared.port() {
                port.serve(substream, request, peer.clone());
            }
        }
        LinkNews::Pong(times) => shared.act(|state, now| state.link_answered(id, times, now)),
        LinkNews::Closed { .. } => {}
    };
    let (end, text) = drive(&link, &mut duplex, early, tell).await;
    shared.act(|state, now| state.link_ended(id, end, &text, now));
    duplex.close(None).await;
}

/// Keeps what the peer of a link tells of its streams, until the link ends.
async fn watch(shared: Arc<Shared>, (id, peer): (LinkId, RelayId), link: Link) {
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
                        let told = [clock.offset_secs, clock.uncertainty_secs, clock.age_secs];
                        state.clocks.told(peer, &uid, told, now);
                    }
                }
            }
        });
    };
    let ended = read_directory(&link, take).await;
    tracing::debug!("directory of relay {peer}: {ended}");
}

fn own_hello(shared: &Shared) -> Hello {
    Hello {
        id: shared.id,
        name: shared.name.clone(),
        limits: Limits {
            window: WINDOW,
            streams: shared.substreams,
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
        }
    }
}

impl State {
    /// Does what the links want.
    pub(super) fn follow_links(&mut self, event: &LinkEvent, shared: &Arc<Shared>, now: f64) {
        match *event {
            // There is nobody to dial yet.
            LinkEvent::Dial { .. } => {}
            LinkEvent::Up { link: id, peer, .. } => {
                if let Some(connection) = self.connections.get(&id) {
                    self.book.link_up(peer, connection.key, now);
                    tracing::info!("link to relay {} ({peer}) is up", connection.name);
                    let link = connection.link.clone();
                    shared
                        .runtime
                        .spawn(watch(Arc::clone(shared), (id, peer), link));
                }
            }
            LinkEvent::Close { link, code } => {
                if let Some(connection) = self.connections.get(&link) {
                    connection.link.close(code, &code.to_string());
                }
            }
        }
    }

    /// Ends all links, as the relay ends.
    pub(super) fn close_links(&mut self) {
        for connection in self.connections.values() {
            connection.link.close(Code::SHUTDOWN, "shutting down");
        }
    }

    /// Returns the link to a relay.
    pub(super) fn link_to(&self, relay: RelayId) -> Option<&Link> {
        let connection = self.connections.get(&self.links.of(relay)?)?;
        Some(&connection.link)
    }

    fn link_answered(&mut self, id: LinkId, times: [f64; 4], now: f64) {
        let peer = self.connections.get(&id).map(|it| it.peer);
        if let Some(peer) = peer.filter(|peer| self.links.of(*peer) == Some(id))
            && let Some(rtt) = self.clocks.pong(peer, times, now)
        {
            self.book.set_rtt(peer, rtt, now);
        }
    }

    fn link_ended(&mut self, id: LinkId, end: LinkEnd, text: &str, now: f64) {
        if let Some(Connection { peer, name, .. }) = self.connections.remove(&id)
            && self.links.of(peer) == Some(id)
        {
            tracing::info!("link to relay {name} ({peer}) is down: {text}");
            self.book.link_down(peer, now);
            self.clocks.machine.link_down(peer);
        }
        self.links.ended(id, end, now);
    }

    /// Describes the links for the status. Spec: relay §13.
    pub(super) fn links_status(&self) -> Vec<Value> {
        let up = self.connections.iter();
        let up = up.filter(|(id, connection)| self.links.of(connection.peer) == Some(**id));
        up.map(|(_, connection)| {
            json!({
                "name": connection.name,
                "id": connection.peer.to_string(),
                "state": "up",
                "rtt_ms": self.clocks.machine.rtt(connection.peer).map(|secs| secs * 1e3),
                "substreams": connection.link.substreams(),
            })
        })
        .collect()
    }
}

/// Bytes that a peer may send on a substream before it gets more credit.
const WINDOW: u32 = 65_536;
