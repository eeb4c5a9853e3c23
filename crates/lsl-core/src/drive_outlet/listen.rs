//! An outlet's TCP side: its listeners and the first request of each connection, which decides what
//! the connection is. Every connection serves one request. Spec: lsl-protocol §6, §7.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lsl_platform::clock::local_clock;
use lsl_platform::descriptors;
use lsl_proto::ByteOrder;
use lsl_proto::discovery::advert;
use lsl_proto::outlet::encoder::Variant;
use lsl_proto::outlet::fanout::FeedLimits;
use lsl_proto::wire::archive100::Encoder100;
use lsl_proto::wire::negotiate::{Negotiated, OutletSide, Writing, negotiate, negotiate_100};
use lsl_proto::wire::request::{Request, RequestParser};
use lsl_proto::wire::response::{DataProtocol, Refusal};
use lsl_proto::wire::sample110::Encoder110;
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;

use crate::context::Context;
use crate::drive_discovery::serve::{Announcement, own_security};
use crate::drive_outlet::entrance::{self, within};
use crate::drive_outlet::link::Connection;
use crate::drive_outlet::push::{OutletOptions, OutletShared};
use crate::drive_outlet::refusal;
use crate::net::monitor::lock_ignoring_poison;
use crate::net::ports::PortSearch;
use crate::net::sockets::{self, Family};
use crate::net::{runtime, uid};
use crate::{Error, Result, StreamInfo};

/// The listeners of an outlet and its place in the context's registry. Dropping or stopping it makes
/// the outlet undiscoverable and refuses new connections at once.
#[derive(Debug)]
pub(crate) struct Acceptors {
    open: Mutex<Option<Open>>,
}

#[derive(Debug)]
struct Open {
    /// Held for its drop, which takes the stream back.
    _announcement: Announcement,
    tasks: Vec<AbortHandle>,
}

impl Acceptors {
    /// Binds the data ports, completes `info` with everything an outlet assigns, announces it and
    /// starts to accept.
    ///
    /// # Errors
    /// [`Error::Io`] if no address family can be bound.
    pub(crate) fn open(
        context: &Context,
        mut info: StreamInfo,
        options: OutletOptions,
    ) -> Result<(Arc<OutletShared>, Self)> {
        let config = context.config();
        // The shared UDP service is bound before TCP, as liblsl does with an outlet's own.
        let mut announcement = context.service().open()?;
        let mut service = announcement.service_ports();
        let network = context.network();
        let mut listeners = Vec::new();
        let mut services = Vec::new();
        let (mut v4_port, mut v6_port) = (0, 0);
        let mut failure = None;
        for &family in &network.families {
            let (data, service) = match family {
                Family::V4 => (&mut v4_port, &mut service.v4),
                Family::V6 => (&mut v6_port, &mut service.v6),
            };
            let place = announcement.place();
            let shared = place.is_some().then_some(*service);
            match bind(network.bind_address(family), network.ports, shared) {
                Ok((listener, port, own)) => {
                    *data = port;
                    if let (Some(own), Some(place)) = (own, place) {
                        *service = port;
                        services.push((own, place));
                    }
                    listeners.push(listener);
                }
                Err(error) => {
                    tracing::info!(%error, ?family, "no data port");
                    failure = Some(error);
                }
            }
        }
        if let (true, Some(error)) = (listeners.is_empty(), failure) {
            return Err(error);
        }
        info.reset_uid(&uid::random()?);
        info.set_created_at(local_clock());
        info.set_session_id(config.lab().session_id.as_str());
        info.set_hostname(uid::hostname());
        info.set_version(config.tuning().protocol_version);
        info.set_v4_ports(v4_port, service.v4);
        info.set_v6_ports(v6_port, service.v6);
        advert::write_advert(&mut info, &own_security(context.security()?));
        let shared = Arc::new(OutletShared::new(context.clone(), info, options)?);
        let mut tasks = Vec::new();
        for listener in listeners {
            let accepting = accept(listener, Arc::clone(&shared));
            tasks.push(runtime::spawn(accepting)?.abort_handle());
        }
        for (own, place) in services {
            tasks.push(announcement.listen(own, place)?.abort_handle());
        }
        announcement.publish(Arc::clone(&shared.advertised));
        let open = Open {
            _announcement: announcement,
            tasks,
        };
        Ok((
            shared,
            Self {
                open: Mutex::new(Some(open)),
            },
        ))
    }

    /// Ends discovery and stops accepting.
    pub(crate) fn stop(&self) {
        let open = lock_ignoring_poison(&self.open).take();
        for task in open.iter().flat_map(|open| &open.tasks) {
            task.abort();
        }
    }
}

/// The listener of a family, its port, and perhaps a UDP socket on the same one, if the outlet may have
/// one beside that at `shared`.
fn bind(
    address: IpAddr,
    search: PortSearch,
    shared: Option<u16>,
) -> Result<(TcpListener, u16, Option<UdpSocket>)> {
    let context = |source| Error::io(format!("cannot bind a data port at {address}"), source);
    let bound = match shared {
        Some(shared) => sockets::outlet_ports(address, search, shared),
        None => sockets::tcp_acceptor(address, search).map(|listener| (listener, None)),
    };
    let (listener, own) = bound.map_err(context)?;
    let port = listener.local_addr().map_err(context)?.port();
    let own = own.map(sockets::into_tokio_udp).transpose()?;
    Ok((sockets::into_tokio_listener(listener)?, port, own))
}

async fn accept(listener: TcpListener, shared: Arc<OutletShared>) {
    // Dropped with this task, and every unfinished handshake with it.
    let mut handshakes = JoinSet::new();
    let mut newest_last: VecDeque<AbortHandle> = VecDeque::new();
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                while handshakes.try_join_next().is_some() {}
                newest_last.retain(|handshake| !handshake.is_finished());
                if entrance::counted(&shared).is_none()
                    && newest_last.len() >= MAX_HANDSHAKES
                    && let Some(oldest) = newest_last.pop_front()
                {
                    // Idle connections must not keep a real inlet out.
                    oldest.abort();
                    shared.refused.add(1);
                }
                newest_last.push_back(handshakes.spawn(serve(stream, peer, Arc::clone(&shared))));
            }
            Err(error) => {
                if descriptors::made_room_after(&error) {
                    continue;
                }
                // Out of descriptors, most likely: others may be closed soon.
                let error = descriptors::explained(error);
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_RETRY).await;
            }
        }
    }
}

async fn serve(stream: TcpStream, peer: SocketAddr, shared: Arc<OutletShared>) {
    let config = shared.context.config();
    let tuning = config.tuning();
    if let Err(error) = sockets::prepare_accepted(
        &stream,
        tuning.send_socket_buffer_bytes as usize,
        tuning.receive_socket_buffer_bytes as usize,
    ) {
        tracing::debug!(%peer, %error, "cannot set socket options");
    }
    if let Err(error) = entrance::serve(stream, peer, &shared).await {
        shared.refused.add(1);
        tracing::debug!(%peer, %error, "connection ended");
    }
}

/// Reads the request, which begins with `first`, and answers it. A feed goes on in a task of its own.
pub(super) async fn answer(
    mut connection: Connection,
    shared: &Arc<OutletShared>,
    first: Vec<u8>,
) -> Result<()> {
    let deadline = Instant::now() + HANDSHAKE_LIMIT;
    let answered = within(deadline, reply(&mut connection, shared, first)).await;
    let next = match answered {
        Ok(next) => next,
        Err(error) => {
            if connection.link().session().is_some() {
                connection.close().await;
            }
            return Err(error);
        }
    };
    match next {
        Next::Done => {}
        Next::Hold(text) => refusal::hold(connection, text),
        Next::TimeKeys => shared.serve_time_keys(connection),
        Next::Feed(variant, limits, preamble) => {
            let joined = shared.join(connection, variant, limits, &preamble);
            if let Err((mut connection, refusal)) = joined {
                let reply = refused(shared, refusal);
                return within(deadline, finish(&mut connection, &reply)).await;
            }
        }
    }
    Ok(())
}

/// What becomes of a connection after its request.
enum Next {
    /// It was answered.
    Done,
    /// It is refused with this text, or none, and held.
    Hold(&'static [u8]),
    /// It lends the keys of its session.
    TimeKeys,
    /// It becomes a consumer, after these bytes.
    Feed(Variant, FeedLimits, Vec<u8>),
}

async fn reply(
    connection: &mut Connection,
    shared: &Arc<OutletShared>,
    first: Vec<u8>,
) -> Result<Next> {
    let mut parser = RequestParser::new();
    let mut head = Head::default();
    let mut received = first;
    let request = loop {
        head.take(&received);
        if let Some(request) = parser.feed(&received)? {
            break request;
        }
        received = connection.receive().await.map_err(failed)?;
        if received.is_empty() {
            let text = "closed before the request was complete";
            return Err(Error::Protocol(text.into()));
        }
    };
    let is_sealed = connection.link().session().is_some();
    if is_sealed && request == Request::Unknown && head.asks_for_keys() {
        return Ok(Next::TimeKeys);
    }
    if !is_sealed && let Err(text) = entrance::admits_plaintext(connection.link(), shared, &request)
    {
        return Ok(Next::Hold(text));
    }
    let side = outlet_side(shared);
    let reply = match request {
        Request::ShortInfo { query } => {
            let shown = shared.advertised.view(shared.security.policy());
            // Whoever has a session may ask about everything.
            let (document, shortinfo) = if is_sealed {
                (shared.info.document(), &shared.shortinfo)
            } else {
                (&shown.document, &shown.shortinfo)
            };
            let service = shared.context.service();
            let peer = connection.link().peer().ip();
            if service.selects(&query, peer, document, local_clock())? {
                shortinfo.clone()
            } else {
                Vec::new()
            }
        }
        Request::FullInfo => shared.info.to_xml(),
        Request::StreamFeed100 {
            max_buffer,
            max_chunk,
        } => match negotiate_100(&side, max_buffer, max_chunk) {
            Ok(negotiated) => return feed(connection, shared, negotiated).await,
            Err(refusal) => refused(shared, refusal),
        },
        Request::StreamFeed {
            version,
            uid,
            headers,
        } => match negotiate(&side, version, &uid, &headers) {
            Ok(negotiated) => return feed(connection, shared, negotiated).await,
            Err(refusal) => refused(shared, refusal),
        },
        Request::Unknown => return Err(Error::Protocol("unknown request".into())),
    };
    finish(connection, &reply).await?;
    Ok(Next::Done)
}

async fn finish(connection: &mut Connection, reply: &[u8]) -> Result<()> {
    connection.finish(reply).await.map_err(failed)
}

fn refused(shared: &OutletShared, refusal: Refusal) -> Vec<u8> {
    shared.refused.add(1);
    refusal.to_bytes(shared.info.version())
}

async fn feed(
    connection: &mut Connection,
    shared: &OutletShared,
    negotiated: Negotiated,
) -> Result<Next> {
    let info = &shared.info;
    let (format, channels) = (info.channel_format(), info.channel_count());
    let mut preamble = negotiated.preface_bytes(&outlet_side(shared));
    let variant = match negotiated.feed.data_protocol {
        DataProtocol::V110 => {
            let order = negotiated.feed.byte_order;
            Encoder110::new(format, channels, order).encode_test_patterns(&mut preamble);
            Variant::V110(order)
        }
        DataProtocol::V100 => {
            Encoder100::new(format, channels).encode_preamble(&mut preamble, &shared.shortinfo);
            Variant::V100
        }
    };
    let Some(max_buffer_samples) = negotiated.max_buffer_samples else {
        finish(connection, &preamble).await?;
        return Ok(Next::Done);
    };
    let options = &shared.options;
    let limits = FeedLimits {
        // Synchronous pushes wait, and drop nothing.
        capacity: if options.synchronous {
            usize::MAX
        } else {
            max_buffer_samples.min(options.capacity_samples)
        },
        chunk: match negotiated.max_chunk_samples {
            0 => options.chunk_samples,
            samples => samples,
        },
        coalesces: !shared.coalesce.is_zero() && connection.link().session().is_some(),
    };
    Ok(Next::Feed(variant, limits, preamble))
}

/// The first bytes of a request, in which the parser of LSL's own methods sees an unknown one.
#[derive(Debug, Default)]
struct Head {
    bytes: [u8; TIME_KEYS_REQUEST.len()],
    length: usize,
}

impl Head {
    fn take(&mut self, received: &[u8]) {
        let room = &mut self.bytes[self.length..];
        let taken = room.len().min(received.len());
        room[..taken].copy_from_slice(&received[..taken]);
        self.length += taken;
    }

    fn asks_for_keys(&self) -> bool {
        self.bytes == *TIME_KEYS_REQUEST
    }
}

/// Asks for nothing but a session, whose keys authenticate clock probes. Spec: LSS/1 §9.2.
const TIME_KEYS_REQUEST: &[u8; 16] = b"LSL:timekeys/1\r\n";

fn failed(source: std::io::Error) -> Error {
    Error::io("connection", source)
}

fn outlet_side(shared: &OutletShared) -> OutletSide<'_> {
    OutletSide {
        version: shared.info.version(),
        uid: shared.info.uid_bytes(),
        format: shared.info.channel_format(),
        byte_order: ByteOrder::NATIVE,
        writing: if shared.options.synchronous {
            Writing::Synchronous
        } else {
            Writing::Queued
        },
    }
}

/// Connections of one listener that may be waiting for their request at the same time.
const MAX_HANDSHAKES: usize = 256;

/// Time from connecting to a complete request. Spec: lsl-protocol §15.
pub(crate) const HANDSHAKE_LIMIT: Duration = Duration::from_secs(15);

/// Pause after a failed accept.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);
