//! The outlet an inlet is connected with, and ways to ask it. `Recovery` decides where to connect, and when.
//! Spec: lsl-protocol §2.4, §10.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lsl_platform::clock::local_clock;
use lsl_platform::fork::PerProcess;
use lsl_proto::describe::descriptor;
use lsl_proto::inlet::recovery::{Endpoint, Failure, Purpose, Recovery, is_unreachable};
use lsl_proto::inlet::successor::is_described_alike;
use lsl_proto::inlet::{Exchange, FeedDecoder, FeedOptions, SampleRing};
use lsl_proto::limits::Pacer;
use lsl_proto::query::quote_bytes;
use lsl_proto::security::ExpectedIdentity;
use lsl_proto::wire::discovery::{QueryDatagram, ReplyDatagram, query_id};
use lsl_proto::wire::request::shortinfo_request;
use lsl_proto::wire::sequence::{Granted, ReplayFrom};
use tokio::net::UdpSocket;

use crate::StreamInfo;
use crate::byte_stream::substream::OpenSubstream;
use crate::byte_stream::{ByteStream, NO_ADDRESS};
use crate::context::Context;
use crate::drive_discovery::relays::RelayWay;
use crate::drive_inlet::connection::Connection;
use crate::drive_inlet::full_info::MAX_INFO_BYTES;
use crate::drive_inlet::handshake::{self, Connected, Target};
use crate::drive_inlet::peers::Peers;
use crate::drive_inlet::turns::Turns;
use crate::net::changes::Subscription;
use crate::net::monitor::{Monitor, lock_ignoring_poison};
use crate::net::sockets::{self, Family};
use crate::{Error, Result};

/// Where an inlet's outlet is at present.
#[derive(Debug)]
pub(crate) struct Source {
    pub(super) context: Context,
    pub(super) recovery: Monitor<Recovery>,
    /// Taken by the task that works for the machine. What changes while it goes over to another one is not missed.
    pub(super) turn: tokio::sync::Mutex<Option<Subscription>>,
    /// The stream as the user chose it.
    original: lsl_secure::Descriptor,
    /// Whether it was found, and not described by the program itself.
    was_found: bool,
    peers: Arc<Peers>,
    /// The only way to the stream, if it comes through a link between relays.
    link: Option<Arc<dyn OpenSubstream>>,
    /// Number of the way that is tried first, as the ones before it led nowhere.
    pub(super) first_way: AtomicUsize,
}

static HOPELESS: PerProcess<Turns> = PerProcess::new();

/// Turns of the questions to outlets that are silent whether they are still there.
static QUESTIONS: PerProcess<Mutex<Pacer>> = PerProcess::new();

/// Opens a socket from which the outlet's service port can be reached.
pub(crate) fn service_socket(endpoint: Endpoint) -> Result<UdpSocket> {
    let (address, family) = (endpoint.service.ip(), Family::of(endpoint.service.ip()));
    let local = if address.is_loopback() {
        family.loopback()
    } else {
        family.wildcard()
    };
    let socket = sockets::udp_ephemeral(local);
    let socket = socket.map_err(|source| Error::io("UDP socket", source))?;
    if let Some(device) = endpoint.device {
        sockets::bind_device(&socket, device, family);
    }
    sockets::into_tokio_udp(socket)
}

impl Source {
    pub(crate) fn new(context: Context, info: StreamInfo, is_recoverable: bool) -> Self {
        let original = descriptor(&info);
        // Whoever answers a search gets an address, if not the ports: those are for liars to leave out.
        let was_found = !info.v4_address_bytes().is_empty() || !info.v6_address_bytes().is_empty();
        let recovery = Recovery::new(info, context.config(), is_recoverable, scope_index);
        Self {
            context,
            recovery: Monitor::new(recovery),
            turn: tokio::sync::Mutex::new(None),
            original,
            was_found,
            peers: Arc::default(),
            link: None,
            first_way: AtomicUsize::new(0),
        }
    }

    /// Connects with the outlet that `info` describes, as policy demands, for an exchange: at `peer` or, if nobody
    /// accepts there for a moment, by another of its ways, which is remembered. Without `lab.SelfHealing` that is its
    /// address in the other family.
    ///
    /// # Errors
    /// [`Error::Io`]; with encryption also [`Error::Security`] and [`Error::Protocol`].
    pub(crate) async fn dial(
        &self,
        purpose: Purpose,
        info: &StreamInfo,
        peer: SocketAddr,
        exchange: impl Fn() -> Exchange,
        limit: Duration,
    ) -> Result<Connection> {
        self.dial_for(Some(purpose), info, peer, exchange, limit)
            .await
    }

    async fn dial_for(
        &self,
        purpose: Option<Purpose>,
        info: &StreamInfo,
        peer: SocketAddr,
        exchange: impl Fn() -> Exchange,
        limit: Duration,
    ) -> Result<Connection> {
        if self.context.config().lab().self_healing {
            // Boxed, because every inlet's tasks would else hold room for it.
            let racing = Box::pin(self.race(purpose, info, peer, limit));
            return self.dial_over(info, peer, exchange(), racing).await;
        }
        let other = self
            .recovery
            .lock()
            .endpoints(info, peer, &[])
            .get(1)
            .copied();
        let Some(other) = other else {
            return self.dial_at(info, peer, exchange(), limit).await;
        };
        let first = self
            .dial_at(info, peer, exchange(), FIRST_WAY_LIMIT.min(limit))
            .await;
        match first {
            Err(error) if is_unreachable(&error) => {
                tracing::debug!(%peer, %error, other = %other.data, "trying the other address");
                // Also if that fails: then the first has more time in the next try.
                self.recovery.lock().use_endpoint(other);
                self.dial_at(info, other.data, exchange(), limit).await
            }
            outcome => outcome,
        }
    }

    async fn dial_at(
        &self,
        info: &StreamInfo,
        peer: SocketAddr,
        exchange: Exchange,
        limit: Duration,
    ) -> Result<Connection> {
        let connecting = handshake::connected(peer, limit);
        self.dial_over(info, peer, exchange, connecting).await
    }

    async fn dial_over(
        &self,
        info: &StreamInfo,
        peer: SocketAddr,
        exchange: Exchange,
        connecting: impl Future<Output = Result<Connected>>,
    ) -> Result<Connection> {
        let target = Target {
            info,
            expected: ExpectedIdentity::Stream {
                original: &self.original,
                was_found: self.was_found,
            },
            peers: &self.peers,
        };
        // Boxed, because every inlet's tasks would else hold room for a handshake.
        Box::pin(handshake::dial(
            &self.context,
            target,
            peer,
            exchange,
            connecting,
        ))
        .await
    }

    /// Connects with a relay for the stream that `info` describes, for an exchange.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Security`], also without a key if the relay is on another host, and if it told of the
    /// stream otherwise.
    pub(crate) async fn dial_relay(
        &self,
        info: &StreamInfo,
        relay: &RelayWay,
        exchange: Exchange,
        limit: Duration,
    ) -> Result<Connection> {
        self.check_told(info, relay)?;
        let target = Target {
            info,
            expected: ExpectedIdentity::Relay { key: relay.key },
            peers: &self.peers,
        };
        let at = (&*relay.host, relay.peer);
        let dialling = handshake::dial_relay(&self.context, target, at, exchange, limit);
        Box::pin(dialling).await
    }

    /// What was found otherwise must be what the relay told of, or an advert with the uid of one stream and the name
    /// of another would have the wrong one read. Spec: relay §3.1.
    fn check_told(&self, info: &StreamInfo, relay: &RelayWay) -> Result<()> {
        let Some(field) = relay.told.differs_from(&descriptor(info)) else {
            return Ok(());
        };
        let text = format!(
            "stream \"{}\" is not what relay {} told of it: its {field} is another one; refused",
            lsl_secure::audit::printable(info.name_bytes()),
            relay.host
        );
        handshake::mismatch(self.context.security()?, info, relay.peer, &text);
        (self.peers).failed(lsl_secure::Cause::DescriptorMismatch, &text);
        Err(Error::Security(text))
    }

    /// Opens a substream of the link that the stream comes through, for an exchange.
    ///
    /// # Errors
    /// [`Error::Io`] if the link opens none.
    pub(crate) fn open(&self, exchange: Exchange) -> Result<Connection> {
        let link = self.link.as_ref().ok_or(io::ErrorKind::NotConnected);
        let opened = link.map_err(io::Error::from);
        let opened = opened.and_then(|link| link.open(exchange.request().to_vec()));
        let stream = opened.map_err(|source| Error::io("link", source))?;
        let stream = ByteStream::substream(stream);
        Ok(Connection::requested(stream, NO_ADDRESS, exchange))
    }

    /// Returns whether the stream comes through a link between relays.
    pub(crate) fn is_linked(&self) -> bool {
        self.link.is_some()
    }

    /// Reads the stream through a link between relays from now on.
    pub(crate) fn set_link(&mut self, link: Option<Arc<dyn OpenSubstream>>) {
        self.link = link;
    }

    /// One short connection: sends `request` and returns all that comes back until the outlet ends it.
    ///
    /// # Errors
    /// As [`dial`](Self::dial); [`Error::Timeout`] after `limit`; [`Error::Protocol`] for more than
    /// `max_bytes`, and for an encrypted answer that was cut off.
    pub(crate) async fn exchange(
        &self,
        info: &StreamInfo,
        peer: SocketAddr,
        request: &[u8],
        max_bytes: usize,
        limit: Duration,
    ) -> Result<Vec<u8>> {
        // Boxed, because every inlet's tasks would else hold room for it.
        let exchanging = Box::pin(async {
            let exchange = || Exchange::reply(request, max_bytes);
            // Where it is thought to be, not where it may have gone meanwhile: it is asked whether it is still there.
            let connection = self.dial_for(None, info, peer, exchange, limit).await?;
            connection.reply(limit).await
        });
        self.in_turn(peer, exchanging).await
    }

    /// Goes on with what earlier inlets of the stream learnt.
    pub(crate) fn set_peer_history(&mut self, history: crate::PeerHistory) {
        self.peers = Arc::new(Peers::with_history(history));
    }

    /// What is remembered of the outlets met so far.
    pub(crate) fn peers(&self) -> &Arc<Peers> {
        &self.peers
    }

    /// Returns what kind of failure `error` is, and the pause that it asks for.
    pub(super) fn failure(&self, error: &Error) -> Failure {
        match error {
            Error::InvalidInfo(_) => Failure::NotReady,
            Error::Security(_) => Failure::Security {
                delay_secs: self.peers.retry_delay_secs(),
                is_busy: self.peers.is_busy(),
            },
            _ => Failure::Connection,
        }
    }

    /// The stream as the present outlet describes it.
    pub(crate) fn info(&self) -> Arc<StreamInfo> {
        Arc::clone(self.recovery.lock().info())
    }

    /// Number of changes of outlet or address so far.
    pub(crate) fn moves(&self) -> u64 {
        self.recovery.lock().moves()
    }

    /// Tries to connect with `peer`: at once, or in turn with others whose feed never came about.
    ///
    /// # Errors
    /// As `trying`; [`Error::Timeout`] if that took long and others wait.
    pub(crate) async fn in_turn<T>(
        &self,
        peer: SocketAddr,
        trying: impl Future<Output = Result<T>> + Unpin,
    ) -> Result<T> {
        let is_hopeless = self.recovery.lock().is_hopeless();
        if is_hopeless {
            HOPELESS.get().take(peer.ip(), trying).await
        } else {
            trying.await
        }
    }

    /// Asks the outlet where we know it whether it is there, and as we know it; if it is, returns whether that
    /// is this very machine. One question instead of a search over all networks, for streams that are silent
    /// by nature.
    pub(crate) async fn asked_in_place(&self) -> Option<bool> {
        self.asked_by_udp(&[IN_PLACE_LIMIT]).await
    }

    /// As [`asked_in_place`](Self::asked_in_place) of a stream that ought to flow: its outlet is asked by TCP where
    /// UDP does not pass.
    pub(super) async fn answers(&self) -> bool {
        self.asked_by_udp(&[QUESTION_WAIT; 3]).await.is_some()
            || self.is_where_it_was(LAST_QUESTION_LIMIT).await
    }

    /// Asks as often as there are times to wait for an answer.
    async fn asked_by_udp(&self, waits: &[Duration]) -> Option<bool> {
        let (endpoint, info) = self.present()?;
        // The watchdogs of all inlets look in the same millisecond, and one socket may have to hear all
        // their questions.
        let now = local_clock();
        let wait_secs = lock_ignoring_poison(QUESTIONS.get()).take(now) - now;
        tokio::time::sleep(Duration::from_secs_f64(wait_secs)).await;
        let (found, is_local) = ask_by_udp(endpoint, &info, waits).await.ok()?;
        let is_ours = found.uid_bytes() == info.uid_bytes();
        (is_ours && is_described_alike(&found, &info)).then_some(is_local)
    }

    /// Whether our outlet can still be reached at the address in use. A host with two networks
    /// answers by either; that is no reason to leave a connection that works.
    pub(super) async fn is_where_it_was(&self, limit: Duration) -> bool {
        let Some((endpoint, info)) = self.present() else {
            return false;
        };
        let query = [b"uid=", &*quote_bytes(info.uid_bytes())].concat();
        let request = shortinfo_request(&query);
        let asking = self.exchange(&info, endpoint.data, &request, MAX_ANSWER_BYTES, limit);
        asking.await.is_ok_and(|answer| !answer.is_empty())
    }

    /// Asks the outlet where we know it what it retains, without becoming its reader; `None` if it numbers nothing.
    /// Spec: resume §2.2.
    ///
    /// # Errors
    /// As [`exchange`](Self::exchange), and the refusals of the outlet.
    pub(crate) async fn retained(&self, limit: Duration) -> Result<Option<Granted>> {
        let unknown = || Error::Argument("the stream has no address yet".into());
        let (endpoint, info) = self.present().ok_or_else(unknown)?;
        let options = FeedOptions {
            version: self.context.config().tuning().protocol_version,
            max_buffer_samples: 0,
            max_chunk_samples: 0,
        };
        let mut decoder = FeedDecoder::asking(&info, options, Some(ReplayFrom::Oldest.into()));
        let request = decoder.request().to_vec();
        let asking = self.exchange(&info, endpoint.data, &request, MAX_INFO_BYTES, limit);
        decoder.receive(&asking.await?, &mut SampleRing::new(1, 0))?;
        Ok(decoder.granted().copied())
    }

    /// Where the outlet is, and how it describes itself.
    pub(super) fn present(&self) -> Option<(Endpoint, Arc<StreamInfo>)> {
        let mut recovery = self.recovery.lock();
        Some((recovery.endpoint()?, Arc::clone(recovery.info())))
    }
}

/// Asks the service port of an outlet whether it is the one with this uid, as often as there are times to wait for
/// that; also whether it is on this machine.
async fn ask_by_udp(
    endpoint: Endpoint,
    info: &StreamInfo,
    waits: &[Duration],
) -> Result<(StreamInfo, bool)> {
    let io = |source| Error::io("cannot ask an outlet", source);
    let socket = service_socket(endpoint)?;
    // From now on nobody else can answer.
    socket.connect(endpoint.service).await.map_err(io)?;
    // The system takes the other end's address for this one only where both are its own.
    let is_local = socket.local_addr().map_err(io)?.ip() == endpoint.service.ip();
    let query = [b"uid=", &*quote_bytes(info.uid_bytes())].concat();
    let id = query_id(&query).to_string().into_bytes();
    let question = QueryDatagram {
        query: &query,
        return_port: socket.local_addr().map_err(io)?.port(),
        id: &id,
    };
    let question = question.to_bytes();
    let mut buffer = vec![0; USUAL_ANSWER_BYTES];
    for wait in waits {
        socket.send(&question).await.map_err(io)?;
        let answer = async {
            loop {
                let received = sockets::receive(&socket, &mut buffer).await.map_err(io)?;
                if let Ok(reply) = ReplyDatagram::parse(&buffer[..received])
                    && reply.id == id
                {
                    return Ok((StreamInfo::from_xml(reply.xml)?, is_local));
                }
            }
        };
        if let Ok(answered) = tokio::time::timeout(*wait, answer).await {
            return answered;
        }
    }
    Err(Error::Timeout {
        operation: "question to an outlet",
    })
}

/// Index of the interface that a link-local address names, by name; 0 if unknown.
fn scope_index(scope: &str) -> u32 {
    let interfaces = lsl_platform::interfaces::interfaces().unwrap_or_default();
    interfaces
        .iter()
        .find(|each| each.name == scope)
        .map_or(0, |each| each.index)
}

/// Largest short info that is looked at.
const MAX_ANSWER_BYTES: usize = 64 * 1024;

/// Room for a short info of usual size: thousands of inlets may ask at the same time. One that does not
/// fit cannot be read, and its outlet is looked for in full.
const USUAL_ANSWER_BYTES: usize = 8 * 1024;

/// Time for an outlet to answer at an address that used to be its own.
pub(super) const ANSWER_LIMIT: Duration = Duration::from_secs(3);

/// Time for one whose stream is suddenly silent to answer by UDP, each time, and then by TCP.
const QUESTION_WAIT: Duration = Duration::from_millis(300);
const LAST_QUESTION_LIMIT: Duration = Duration::from_millis(500);

/// Time for an outlet to answer where it was, before it is looked for elsewhere.
const IN_PLACE_LIMIT: Duration = Duration::from_secs(1);

/// Time to connect where there is another address: two tries of TCP.
const FIRST_WAY_LIMIT: Duration = Duration::from_millis(1500);
