//! The outlet an inlet is connected with, and finding its successor when it is gone.
//!
//! Every task of an inlet asks here where to connect, and starts over when the outlet or its address
//! changes. Spec: lsl-protocol §2.4, §10.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lsl_platform::fork::PerProcess;
use lsl_proto::describe::descriptor;
use lsl_proto::inlet::Exchange;
use lsl_proto::inlet::recovery::{Endpoint, RETRY_SECS, Recovered, Recovery, is_described_alike};
use lsl_proto::query::quote_bytes;
use lsl_proto::wire::discovery::{QueryDatagram, ReplyDatagram, SHORTINFO_COMMAND, query_id};
use lsl_secure::trust::TrustList;
use tokio::net::UdpSocket;

use crate::StreamInfo;
use crate::context::Context;
use crate::drive_inlet::connection::Connection;
use crate::drive_inlet::handshake::{self, ExpectedIdentity, Target};
use crate::drive_inlet::lost::LONGEST_ROUND_SECS;
use crate::drive_inlet::pacer;
use crate::drive_inlet::peers::Peers;
use crate::drive_inlet::turns::Turns;
use crate::net::monitor::{Monitor, lock_ignoring_poison};
use crate::net::select2::select2;
use crate::net::sockets::{self, Family};
use crate::net::trust_watch;
use crate::{Error, Result};

/// Where an inlet's outlet is at present.
#[derive(Debug)]
pub(crate) struct Source {
    context: Context,
    recovery: Monitor<Recovery>,
    /// Trust list under which the last successor was refused.
    refused_under: Mutex<Option<Arc<TrustList>>>,
    /// One recovery at a time, whichever task noticed.
    turn: tokio::sync::Mutex<()>,
    /// The stream as the user chose it.
    original: lsl_secure::Descriptor,
    /// Whether it was found, and not described by the program itself.
    was_found: bool,
    peers: Arc<Peers>,
}

static HOPELESS: PerProcess<Turns> = PerProcess::new();

/// Opens a socket from which the outlet's service port can be reached.
pub(crate) fn service_socket(endpoint: Endpoint) -> Result<UdpSocket> {
    let (address, family) = (endpoint.service.ip(), Family::of(endpoint.service.ip()));
    let local = if address.is_loopback() {
        family.loopback()
    } else {
        family.wildcard()
    };
    let socket = sockets::udp_ephemeral(local);
    sockets::into_tokio_udp(socket.map_err(|source| Error::io("UDP socket", source))?)
}

impl Source {
    pub(crate) fn new(context: Context, info: StreamInfo) -> Self {
        let original = descriptor(&info);
        // Whoever answers a search gets an address, if not the ports: those are for liars to leave out.
        let was_found = !info.v4_address_bytes().is_empty() || !info.v6_address_bytes().is_empty();
        let recovery = Recovery::new(info, context.config().ports().ipv6, scope_index);
        Self {
            context,
            recovery: Monitor::new(recovery),
            refused_under: Mutex::default(),
            turn: tokio::sync::Mutex::new(()),
            original,
            was_found,
            peers: Arc::default(),
        }
    }

    /// Connects with the outlet that `info` describes, as policy demands, for an exchange: at `peer`
    /// or, if nobody accepts there for a moment, at its address in the other family, which is remembered.
    ///
    /// # Errors
    /// [`Error::Io`]; with encryption also [`Error::Security`] and [`Error::Protocol`].
    pub(crate) async fn dial(
        &self,
        info: &StreamInfo,
        peer: SocketAddr,
        exchange: impl Fn() -> Exchange,
        limit: Duration,
    ) -> Result<Connection> {
        let other = self.recovery.lock().other_endpoint(info, peer);
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
            limit,
        ))
        .await
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
            let connection = self.dial(info, peer, exchange, limit).await?;
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

    /// Waits before the next try after `error`, if the outlet only has no place just now.
    /// False if that is not what is wrong.
    pub(crate) async fn wait_if_busy(&self, error: &Error) -> bool {
        let is_busy = matches!(error, Error::Security(_)) && self.peers.is_busy();
        if is_busy {
            self.pause(error).await;
        }
        is_busy
    }

    /// Waits before connecting again to an outlet that answers queries but not us.
    pub(crate) async fn pause(&self, error: &Error) {
        if let (Error::Security(_), Ok(security)) = (error, self.context.security()) {
            return self.peers.pause(security).await;
        }
        tokio::time::sleep(Duration::from_secs_f64(RETRY_SECS)).await;
    }

    /// The stream as the present outlet describes it.
    pub(crate) fn info(&self) -> StreamInfo {
        self.recovery.lock().info().clone()
    }

    /// Number of changes of outlet or address so far.
    pub(crate) fn moves(&self) -> u64 {
        self.recovery.lock().moves()
    }

    /// Where to connect now; `None` if no address is known or allowed. With the number of changes so far.
    pub(crate) fn endpoint(&self) -> (Option<Endpoint>, u64) {
        let mut recovery = self.recovery.lock();
        (recovery.endpoint(), recovery.moves())
    }

    /// Notes that the feed flows, or that it will not soon.
    pub(crate) fn on_connected(&self) {
        self.recovery.update(Recovery::on_connected);
    }

    /// Counts a try to connect the feed that came to nothing.
    pub(crate) fn on_failed(&self) {
        self.recovery.update(Recovery::on_failed);
    }

    /// Remembers that a feed from this outlet was refused, by either end, if it is a successor.
    pub(crate) fn on_refused(&self, uid: &[u8], error: &Error) {
        let Ok(security) = self.context.security() else {
            return;
        };
        if !matches!(error, Error::Security(_)) || self.peers.is_busy() {
            return;
        }
        if self.recovery.lock().on_refused(uid) {
            *lock_ignoring_poison(&self.refused_under) = Some(security.trust());
        }
    }

    /// Forgets which successors were refused, if others are trusted now.
    async fn reconsider_refusals(&self) {
        let Ok(security) = self.context.security() else {
            return;
        };
        if !self.recovery.lock().has_refusals() {
            return;
        }
        trust_watch::refresh(security).await;
        let trust = security.trust();
        let under = lock_ignoring_poison(&self.refused_under).clone();
        if !under.is_some_and(|under| Arc::ptr_eq(&under, &trust)) {
            self.recovery.lock().forget_refusals();
        }
    }

    /// Waits until the feed seems to be hopeless, or with `false` until it does not.
    pub(crate) async fn is_hopeless(&self, wanted: bool) {
        let is = |recovery: &mut Recovery| (recovery.is_hopeless() == wanted).then_some(());
        self.recovery.wait(f64::INFINITY, is).await;
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

    /// Waits ever longer, the more often the feed failed.
    pub(crate) async fn back_off(&self) {
        let (pause_secs, moves) = {
            let recovery = self.recovery.lock();
            (recovery.pause_secs(), recovery.moves())
        };
        if let Some(pause_secs) = pause_secs {
            let pause = Duration::from_secs_f64(pause_secs);
            select2(tokio::time::sleep(pause), self.moved(moves)).await;
        }
    }

    /// Waits until there were more changes than `moves`.
    pub(crate) async fn moved(&self, moves: u64) {
        let moved = |recovery: &mut Recovery| (recovery.moves() != moves).then_some(());
        self.recovery.wait(f64::INFINITY, moved).await;
    }

    /// Looks for the outlet, or its one successor, until there is one. For a caller that found the outlet
    /// gone or silent, when there had been so many changes. Returns whether there is another one.
    pub(crate) async fn recover(&self, moves: u64) -> bool {
        let _turn = self.turn.lock().await;
        if self.moves() != moves {
            return true;
        }
        let info = self.info();
        let mut minimum_secs = FIRST_ROUND_SECS;
        loop {
            self.reconsider_refusals().await;
            let sought = self.recovery.lock().sought();
            let search = (self.context.lost()).find(&self.context, &sought, minimum_secs);
            let answers = match search.await {
                Ok(answers) => answers,
                Err(error) => {
                    tracing::warn!(%error, "cannot look for a lost stream; trying again");
                    tokio::time::sleep(SEARCH_RETRY).await;
                    continue;
                }
            };
            let recovered = self.recovery.lock().on_answers(answers);
            match recovered {
                Recovered::Same => return false,
                Recovered::AskWhereItWas(found) => {
                    if self.is_where_it_was(&info).await {
                        return false;
                    }
                    // Same outlet, other address: the host moved to another network.
                    self.recovery.update(|recovery| recovery.move_to(*found));
                    return true;
                }
                Recovered::Moved => {
                    self.recovery.wake();
                    let found = self.info();
                    tracing::info!(name = ?found.name(), uid = ?found.uid(), "stream is back at another outlet");
                    return true;
                }
                Recovered::SearchAgain { candidates } => {
                    if candidates > 1 {
                        tracing::warn!(
                            candidates, name = ?info.name(),
                            "several outlets could be the one that was lost; waiting until only one is left"
                        );
                    }
                    minimum_secs = LATER_ROUNDS_SECS;
                }
            }
        }
    }

    /// Whether the outlet answers where we know it, and as we know it: one question instead of a search
    /// over all networks, for streams that are silent by nature.
    pub(crate) async fn answers_in_place(&self) -> bool {
        self.asked_in_place().await.is_some()
    }

    /// The same; if it does, also whether that was from this very machine.
    pub(crate) async fn asked_in_place(&self) -> Option<bool> {
        let endpoint = self.endpoint().0?;
        let info = self.info();
        // The watchdogs of all inlets look in the same millisecond, and one socket may have to hear all
        // their questions.
        pacer::questions().turn().await;
        let asking = ask_by_udp(endpoint, &info);
        match tokio::time::timeout(IN_PLACE_LIMIT, asking).await {
            Ok(Ok((found, is_local))) => {
                let is_ours = found.uid_bytes() == info.uid_bytes();
                (is_ours && is_described_alike(&found, &info)).then_some(is_local)
            }
            Ok(Err(_)) | Err(_) => None,
        }
    }

    /// Whether our outlet can still be reached at the address in use. A host with two networks
    /// answers by either; that is no reason to leave a connection that works.
    async fn is_where_it_was(&self, info: &StreamInfo) -> bool {
        let Some(endpoint) = self.endpoint().0 else {
            return false;
        };
        let query = [b"uid=", &*quote_bytes(info.uid_bytes())].concat();
        let request = [SHORTINFO_COMMAND, b"\r\n", &query, b"\r\n"].concat();
        let asking = self.exchange(
            info,
            endpoint.data,
            &request,
            MAX_ANSWER_BYTES,
            ANSWER_LIMIT,
        );
        asking.await.is_ok_and(|answer| !answer.is_empty())
    }
}

/// Asks the service port of an outlet whether it is the one with this uid, until it says so; also whether
/// it is on this machine.
async fn ask_by_udp(endpoint: Endpoint, info: &StreamInfo) -> Result<(StreamInfo, bool)> {
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
    socket.send(&question.to_bytes()).await.map_err(io)?;
    let mut buffer = vec![0; USUAL_ANSWER_BYTES];
    loop {
        let received = socket.recv(&mut buffer).await.map_err(io)?;
        if let Ok(reply) = ReplyDatagram::parse(&buffer[..received])
            && reply.id == id
        {
            return Ok((StreamInfo::from_xml(reply.xml)?, is_local));
        }
    }
}

/// Whether nobody accepts connections there. What happens after that is no reason to try elsewhere.
fn is_unreachable(error: &Error) -> bool {
    use std::io::ErrorKind;

    match error {
        Error::Timeout { .. } => true,
        Error::Io { source, .. } => matches!(
            source.kind(),
            ErrorKind::ConnectionRefused
                | ErrorKind::HostUnreachable
                | ErrorKind::NetworkUnreachable
                | ErrorKind::TimedOut
                | ErrorKind::AddrNotAvailable
                | ErrorKind::PermissionDenied
        ),
        _ => false,
    }
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
const ANSWER_LIMIT: Duration = Duration::from_secs(3);

/// Time for an outlet to answer where it was, before it is looked for elsewhere.
const IN_PLACE_LIMIT: Duration = Duration::from_secs(1);

/// Time to connect where there is another address: two tries of TCP.
const FIRST_WAY_LIMIT: Duration = Duration::from_millis(1500);

/// Pause after a search that could not be started: out of descriptors, most likely.
const SEARCH_RETRY: Duration = Duration::from_secs(1);

/// How long the first round collects answers, so that a second candidate is noticed. liblsl waits
/// twice as long; answers come within milliseconds, and samples are being lost meanwhile.
const FIRST_ROUND_SECS: f64 = 0.5;

/// The same for later rounds, when there were several.
const LATER_ROUNDS_SECS: f64 = LONGEST_ROUND_SECS;

#[cfg(test)]
mod tests;
