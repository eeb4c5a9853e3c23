//! A stream of a relay, offered again: an outlet that anybody finds, and that is read from its origin only while
//! somebody reads it. Spec: relay §6, §7.

use std::fmt;
use std::sync::{Arc, Mutex, Weak};

use lsl_proto::discovery::advert;
use lsl_proto::outlet::connection::Event;
use lsl_proto::outlet::request::{Feed, Reply};
use lsl_proto::wire::request::Request;
use lsl_proto::wire::response::Refusal;

use super::handler::{Handler, Peer};
use super::passing::{find, lend_keys, negotiate, unknown};
use crate::drive_discovery::serve::own_security;
use crate::drive_outlet::connection::Connection;
use crate::drive_outlet::identity::{Accept, Identity};
use crate::drive_outlet::link::Link;
use crate::drive_outlet::listen::{Acceptors, Ports, Service};
use crate::drive_outlet::origin::StreamClock;
use crate::drive_outlet::past::Served;
use crate::drive_outlet::refusal;
use crate::drive_outlet::shown::Shown;
use crate::net::monitor::lock_ignoring_poison;
use crate::net::scope::Scope;
use crate::net::uid;
use crate::{Context, Result, StreamInfo};

/// An outlet for a stream that comes from elsewhere. Dropping it ends the feeds that it gave, as if the stream ended;
/// others read on.
pub struct Offer {
    acceptors: Acceptors,
    identity: Arc<Identity>,
    front: Arc<Mutex<Arc<Front>>>,
    readers: Arc<Mutex<Readers>>,
    scope: Scope,
}

impl Offer {
    /// Announces a stream in a context, as that of an outlet with a uid and ports of its own. `info` is the document of
    /// the origin with the mark of relays. The handler is asked for the stream of this origin once for each feed, and
    /// all clock probes are answered in `clock`, or not at all.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io) if no port can be bound, or no UDP socket beside it;
    /// [`Error::Security`](crate::Error::Security) if the security configuration cannot be used.
    pub fn open(
        context: &Context,
        mut info: StreamInfo,
        (origin, clock): (&[u8], Arc<StreamClock>),
        handler: Arc<impl Handler>,
    ) -> Result<Self> {
        let ports = Ports::bind(context, Service::Own)?;
        info.reset_uid(&uid::random()?);
        ports.complete(&mut info, context)?;
        let identity = Identity::with_clock(context.clone(), info, Arc::clone(&clock))?;
        let front = Arc::new(Front {
            shown: Shown::new(&identity.info, &identity.security),
            info: identity.info.clone(),
        });
        let shared = Arc::new(Shared {
            identity: Arc::new(identity),
            front: Arc::new(Mutex::new(Arc::clone(&front))),
            origin: origin.into(),
            clock,
            handler,
            readers: Arc::default(),
            scope: Scope::default(),
        });
        Ok(Self {
            acceptors: ports.accept(&shared, &front.shown)?,
            identity: Arc::clone(&shared.identity),
            front: Arc::clone(&shared.front),
            readers: Arc::clone(&shared.readers),
            scope: shared.scope.clone(),
        })
    }

    /// Returns the stream as it was announced first.
    pub fn info(&self) -> &StreamInfo {
        &self.identity.info
    }

    /// Changes what is said of the stream, such as the path in its mark; uid, ports and feeds stay.
    pub fn describe(&self, mut info: StreamInfo) {
        let Identity {
            info: own,
            security,
            ..
        } = &*self.identity;
        info.reset_uid(&own.uid());
        info.set_version(own.version());
        info.set_v4_ports(own.v4_data_port(), own.v4_service_port());
        info.set_v6_ports(own.v6_data_port(), own.v6_service_port());
        advert::write_advert(&mut info, &own_security(security));
        let shown = Shown::new(&info, security);
        self.acceptors.announce(&shown);
        *lock_ignoring_poison(&self.front) = Arc::new(Front { info, shown });
    }
}

impl Drop for Offer {
    fn drop(&mut self) {
        self.acceptors.stop();
        self.scope.close();
        let readers = {
            let mut readers = lock_ignoring_poison(&self.readers);
            readers.have_ended = true;
            std::mem::take(&mut readers.links)
        };
        for link in readers.iter().filter_map(Weak::upgrade) {
            link.end_feed();
        }
    }
}

impl fmt::Debug for Offer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Offer")
            .field("uid", &self.info().uid())
            .finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct Shared<H> {
    identity: Arc<Identity>,
    front: Arc<Mutex<Arc<Front>>>,
    origin: Box<[u8]>,
    clock: Arc<StreamClock>,
    handler: Arc<H>,
    readers: Arc<Mutex<Readers>>,
    scope: Scope,
}

/// What is said of the stream.
#[derive(Debug)]
struct Front {
    info: StreamInfo,
    shown: Shown,
}

/// Feeds that were given.
#[derive(Debug, Default)]
struct Readers {
    links: Vec<Weak<Link>>,
    have_ended: bool,
}

/// What becomes of a connection after its request.
enum Next {
    /// It was answered.
    Done,
    /// It is refused with this text, or none, and held.
    Hold(&'static [u8]),
    /// It lends the keys of its session.
    TimeKeys,
    /// It becomes a consumer of this stream.
    Feed(Served, Box<Feed>),
}

impl<H: Handler> Accept for Arc<Shared<H>> {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    async fn answer(&self, mut connection: Connection) -> Result<()> {
        let next = match self.reply(&mut connection).await {
            Ok(next) => next,
            Err(error) => {
                if connection.link().session().is_some() {
                    connection.close().await;
                }
                return Err(error);
            }
        };
        match next {
            Next::Done => Ok(()),
            Next::Hold(text) => {
                refusal::hold_open(connection, text);
                Ok(())
            }
            Next::TimeKeys => {
                let clock = Arc::clone(&self.clock);
                self.scope.spawn(lend_keys(connection, clock));
                Ok(())
            }
            Next::Feed(served, feed) => self.feed(served, &feed, connection).await,
        }
    }
}

impl<H: Handler> Shared<H> {
    async fn reply(&self, connection: &mut Connection) -> Result<Next> {
        let request = loop {
            match connection.event().await? {
                Event::Request(request) => break request,
                Event::TimeKeys => return Ok(Next::TimeKeys),
                Event::Control(_) => {}
            }
        };
        let link = connection.link();
        let is_sealed = link.session().is_some();
        if !(is_sealed || connection.stream.is_protected())
            && let Some(text) = self.identity.refused_plaintext(link, &request)
        {
            return Ok(Next::Hold(text));
        }
        let front = Arc::clone(&lock_ignoring_poison(&self.front));
        let Front { info, shown } = &*front;
        let bytes = match &request {
            Request::ShortInfo { query } => {
                let asker = (link.peer.ip(), is_sealed);
                shown.answer(info, &self.identity, query, asker)?.to_vec()
            }
            Request::FullInfo => info.to_xml(),
            // Not worth asking the origin.
            Request::StreamFeed { uid, .. } if !uid.is_empty() && *uid != info.uid_bytes() => {
                self.refused(Refusal::NotFound)
            }
            Request::StreamFeed { .. } | Request::StreamFeed100 { .. } => {
                let peer = Peer::of(connection, &self.identity.security)?;
                let (handler, origin) = (&*self.handler, &self.origin);
                match find(handler, connection, &request, origin, &peer).await? {
                    Err(refusal) => self.refused(refusal),
                    Ok(served) => {
                        let shown = (info, &*shown.shortinfo);
                        match negotiate(&served, shown, connection, &request)? {
                            Reply::Feed(feed) => return Ok(Next::Feed(served, feed)),
                            Reply::Bytes(bytes) => bytes,
                            Reply::Refusal(refusal) => self.refused(refusal),
                        }
                    }
                }
            }
            Request::Unknown | Request::Port(_) => return Err(unknown()),
        };
        connection.finish(&bytes).await?;
        Ok(Next::Done)
    }

    async fn feed(&self, served: Served, feed: &Feed, connection: Connection) -> Result<()> {
        let link = Arc::clone(connection.link());
        {
            let mut readers = lock_ignoring_poison(&self.readers);
            readers.links.retain(|reader| reader.strong_count() > 0);
            readers.links.push(Arc::downgrade(&link));
        }
        let Served { outlet, past } = served;
        let joined = (outlet.shared).join(connection, feed, &self.identity.info, past);
        if let Err((mut connection, refusal)) = joined {
            return connection.finish(&self.refused(refusal)).await;
        }
        if lock_ignoring_poison(&self.readers).have_ended {
            // Its end came before it was a feed.
            link.end_feed();
        }
        Ok(())
    }

    fn refused(&self, refusal: Refusal) -> Vec<u8> {
        self.identity.refused.add(1);
        refusal.to_bytes(self.identity.info.version())
    }
}
