//! The outlet an inlet is connected with, and finding its successor when it is gone.
//!
//! Every task of an inlet asks here where to connect. Each change of outlet or address raises the
//! `generation`; a task that used an older one starts over. Spec: lsl-protocol §2.4, §10.

use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::time::Duration;

use lsl_platform::fork::PerProcess;
use lsl_proto::describe::descriptor;
use lsl_proto::inlet::recovery::{Refused, SearchVerdict, judge};
use lsl_proto::query::quote_bytes;
use lsl_proto::wire::discovery::{QueryDatagram, ReplyDatagram, SHORTINFO_COMMAND, query_id};
use tokio::net::UdpSocket;

use crate::StreamInfo;
use crate::context::Context;
use crate::drive_inlet::connection::Dialled;
use crate::drive_inlet::handshake::{self, ExpectedIdentity, Target};
use crate::drive_inlet::lost::LONGEST_ROUND_SECS;
use crate::drive_inlet::pacer;
use crate::drive_inlet::peers::Peers;
use crate::drive_inlet::turns::Turns;
use crate::net::monitor::Monitor;
use crate::net::race::race;
use crate::net::sockets::{self, Family};
use crate::{Error, Result, config::Ipv6Mode};

/// Where an inlet's outlet is at present.
#[derive(Debug)]
pub(crate) struct Source {
    context: Context,
    present: Monitor<Present>,
    /// One recovery at a time, whichever task noticed.
    turn: tokio::sync::Mutex<()>,
    /// The stream as the user chose it.
    original: lsl_secure::Descriptor,
    /// Whether it was found, and not described by the program itself.
    was_found: bool,
    peers: std::sync::Arc<Peers>,
}

#[derive(Debug)]
struct Present {
    info: StreamInfo,
    /// The family in use; kept across a recovery if possible.
    family: Option<Family>,
    generation: u64,
    /// Tries in a row to connect the feed that came to nothing.
    failures: u32,
    /// Whether the outlet took the place of another.
    is_adopted: bool,
    /// Of those that did since there was a feed.
    refused: Refused,
    /// What counted when the last of them was refused.
    refused_under: Option<std::sync::Arc<lsl_secure::trust::TrustList>>,
}

impl Present {
    fn is_hopeless(&self) -> bool {
        self.failures >= HOPELESS_FAILURES
    }
}

static HOPELESS: PerProcess<Turns> = PerProcess::new();

/// The addresses of one outlet in one family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Endpoint {
    pub(crate) data: SocketAddr,
    pub(crate) service: SocketAddr,
    pub(crate) family: Family,
}

impl Endpoint {
    /// A socket from which the outlet's service port can be reached.
    pub(crate) fn service_socket(self) -> Result<UdpSocket> {
        let local = if self.service.ip().is_loopback() {
            self.family.loopback()
        } else {
            self.family.wildcard()
        };
        let socket = sockets::udp_ephemeral(local);
        sockets::into_tokio_udp(socket.map_err(|source| Error::io("UDP socket", source))?)
    }
}

/// What a recovery found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Recovered {
    /// The outlet we know answers: reconnect, but not in a hurry.
    Same,
    /// There is another outlet, or ours moved.
    Moved,
}

impl Source {
    pub(crate) fn new(context: Context, info: StreamInfo) -> Self {
        let original = descriptor(&info);
        // Whoever answers a search gets an address, if not the ports: those are for liars to leave out.
        let was_found = !info.v4_address_bytes().is_empty() || !info.v6_address_bytes().is_empty();
        let present = Monitor::new(Present {
            info,
            family: None,
            generation: 0,
            failures: 0,
            is_adopted: false,
            refused: Refused::default(),
            refused_under: None,
        });
        Self {
            context,
            present,
            turn: tokio::sync::Mutex::new(()),
            original,
            was_found,
            peers: std::sync::Arc::default(),
        }
    }

    /// Connects with the outlet that `info` describes, as policy demands, and sends `request`: at `peer`
    /// or, if nobody accepts there for a moment, at its address in the other family, which is remembered.
    ///
    /// # Errors
    /// [`Error::Io`]; with encryption also [`Error::Security`] and [`Error::Protocol`].
    pub(crate) async fn dial(
        &self,
        info: &StreamInfo,
        peer: SocketAddr,
        request: &[u8],
        limit: Duration,
    ) -> Result<Dialled> {
        let Some(other) = self.other_way(info, peer) else {
            return self.dial_at(info, peer, request, limit).await;
        };
        let first = self
            .dial_at(info, peer, request, FIRST_WAY_LIMIT.min(limit))
            .await;
        match first {
            Err(error) if is_unreachable(&error) => {
                tracing::debug!(%peer, %error, other = %other.data, "trying the other address");
                // Also if that fails: then the first has more time in the next try.
                self.present.lock().family = Some(other.family);
                self.dial_at(info, other.data, request, limit).await
            }
            outcome => outcome,
        }
    }

    /// Where the outlet can be reached besides `peer`.
    fn other_way(&self, info: &StreamInfo, peer: SocketAddr) -> Option<Endpoint> {
        let preferred = match Family::of(peer.ip()) {
            Family::V4 => Family::V6,
            Family::V6 => Family::V4,
        };
        let ipv6 = self.context.config().ports().ipv6;
        choose(info, Some(preferred), ipv6).filter(|other| other.family == preferred)
    }

    async fn dial_at(
        &self,
        info: &StreamInfo,
        peer: SocketAddr,
        request: &[u8],
        limit: Duration,
    ) -> Result<Dialled> {
        let target = Target {
            info,
            expected: ExpectedIdentity::Stream {
                original: &self.original,
                was_found: self.was_found,
            },
            peers: &self.peers,
        };
        // Boxed, because every inlet's tasks would else hold room for a handshake.
        Box::pin(handshake::dial(&self.context, target, peer, request, limit)).await
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
            let dialled = self.dial(info, peer, request, limit).await?;
            dialled.read_all(max_bytes, limit).await
        });
        self.in_turn(peer, exchanging).await
    }

    /// Goes on with what earlier inlets of the stream learnt.
    pub(crate) fn set_peer_history(&mut self, history: crate::PeerHistory) {
        self.peers = std::sync::Arc::new(Peers::with_history(history));
    }

    /// What is remembered of the outlets met so far.
    pub(crate) fn peers(&self) -> &std::sync::Arc<Peers> {
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
        tokio::time::sleep(RETRY).await;
    }

    /// The stream as the present outlet describes it.
    pub(crate) fn info(&self) -> StreamInfo {
        self.present.lock().info.clone()
    }

    pub(crate) fn generation(&self) -> u64 {
        self.present.lock().generation
    }

    /// Where to connect now; `None` if no address is known or allowed. Counts as being in use.
    pub(crate) fn endpoint(&self) -> (Option<Endpoint>, u64) {
        let mut present = self.present.lock();
        let endpoint = choose(
            &present.info,
            present.family,
            self.context.config().ports().ipv6,
        );
        if let Some(endpoint) = &endpoint {
            present.family = Some(endpoint.family);
        }
        (endpoint, present.generation)
    }

    /// Counts a try to connect the feed that came to nothing, or with `false` forgets them all.
    pub(crate) fn note(&self, has_failed: bool) {
        let count = |present: &mut Present| {
            present.failures = if has_failed {
                present.failures.saturating_add(1)
            } else {
                present.refused = Refused::default();
                0
            };
        };
        self.present.update(count);
    }

    /// Remembers that a feed from this outlet was refused, by either end, if it is a successor.
    pub(crate) fn note_refusal(&self, uid: &[u8], error: &Error) {
        let Ok(security) = self.context.security() else {
            return;
        };
        if !matches!(error, Error::Security(_)) || self.peers.is_busy() {
            return;
        }
        let mut present = self.present.lock();
        if present.is_adopted && present.info.uid_bytes() == uid {
            present.refused.note(uid);
            present.refused_under = Some(security.trust());
        }
    }

    /// Forgets which successors were refused, if others are trusted now.
    async fn reconsider_refusals(&self) {
        let Ok(security) = self.context.security() else {
            return;
        };
        if self.present.lock().refused.is_empty() {
            return;
        }
        handshake::refresh(security).await;
        let trust = security.trust();
        let mut present = self.present.lock();
        let under = present.refused_under.as_ref();
        if !under.is_some_and(|under| std::sync::Arc::ptr_eq(under, &trust)) {
            present.refused = Refused::default();
        }
    }

    /// Waits until the feed seems to be hopeless, or with `false` until it does not.
    pub(crate) async fn is_hopeless(&self, wanted: bool) {
        let is = |present: &mut Present| (present.is_hopeless() == wanted).then_some(());
        self.present.wait(f64::INFINITY, is).await;
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
        let is_hopeless = self.present.lock().is_hopeless();
        if is_hopeless {
            HOPELESS.get().take(peer.ip(), trying).await
        } else {
            trying.await
        }
    }

    /// Waits ever longer, the more often the feed failed.
    pub(crate) async fn back_off(&self) {
        let (failures, generation) = {
            let present = self.present.lock();
            (present.failures, present.generation)
        };
        if let Some(pause) = pause_after(failures) {
            race(tokio::time::sleep(pause), self.changed(generation)).await;
        }
    }

    /// Waits until the outlet is another than at `generation`.
    pub(crate) async fn changed(&self, generation: u64) {
        let other = |present: &mut Present| (present.generation != generation).then_some(());
        self.present.wait(f64::INFINITY, other).await;
    }

    /// Looks for the outlet, or its one successor, until there is one. For a caller that found the
    /// outlet of `generation` gone or silent.
    pub(crate) async fn recover(&self, generation: u64) -> Recovered {
        let _turn = self.turn.lock().await;
        if self.generation() != generation {
            return Recovered::Moved;
        }
        let info = self.info();
        let mut minimum_secs = FIRST_ROUND_SECS;
        loop {
            self.reconsider_refusals().await;
            let mut sought = info.clone();
            if self.present.lock().refused.contains(info.uid_bytes()) {
                // Its answer alone would not do.
                sought.reset_uid("");
            }
            let search = (self.context.lost()).find(&self.context, &sought, minimum_secs);
            let mut answers = match search.await {
                Ok(answers) => answers,
                Err(error) => {
                    tracing::warn!(%error, "cannot look for a lost stream; trying again");
                    tokio::time::sleep(SEARCH_RETRY).await;
                    continue;
                }
            };
            self.present.lock().refused.leave_out(&info, &mut answers);
            match judge(&info, answers) {
                SearchVerdict::Same(found) => {
                    // Somebody may have hidden from us that it encrypts, or make that up now.
                    let is_unchanged =
                        is_described_alike(&found, &info) && self.is_at_the_same_place(&found);
                    if is_unchanged || self.is_where_it_was(&info).await {
                        return Recovered::Same;
                    }
                    // Same outlet, other address: the host moved to another network.
                    self.present
                        .update(|present| drop(present_with(present, *found)));
                    return Recovered::Moved;
                }
                SearchVerdict::Adopt(found) => {
                    tracing::info!(name = ?found.name(), uid = ?found.uid(), "stream is back at another outlet");
                    self.present.update(|present| {
                        present.is_adopted = true;
                        drop(present_with(present, *found));
                    });
                    return Recovered::Moved;
                }
                SearchVerdict::AskAgain { candidates } => {
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

    /// Whether one would connect to the same address with this info as with the present one.
    fn is_at_the_same_place(&self, found: &StreamInfo) -> bool {
        let ipv6 = self.context.config().ports().ipv6;
        let present = self.present.lock();
        let family = present.family;
        choose(found, family, ipv6) == choose(&present.info, family, ipv6)
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
    let socket = endpoint.service_socket()?;
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

/// Whether discovery says the same of an outlet as before. If not, one of the two may be a lie.
fn is_described_alike(found: &StreamInfo, present: &StreamInfo) -> bool {
    let same_content = descriptor(found)
        .differs_from(&descriptor(present))
        .is_none();
    same_content && found.security_advert() == present.security_advert()
}

/// Before the next try after so many in vain.
fn pause_after(failures: u32) -> Option<Duration> {
    let doublings = failures.checked_sub(HOPELESS_FAILURES + 1)?;
    Some(RETRY * (1 << doublings.min(MAX_DOUBLINGS)))
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

fn present_with(present: &mut Present, info: StreamInfo) -> StreamInfo {
    present.generation += 1;
    std::mem::replace(&mut present.info, info)
}

/// Prefers IPv4, or IPv6 if that was in use. Spec: lsl-protocol §2.4.
fn choose(info: &StreamInfo, in_use: Option<Family>, ipv6: Ipv6Mode) -> Option<Endpoint> {
    let v4 = || {
        if ipv6 == Ipv6Mode::Force {
            return None;
        }
        let address = IpAddr::V4(info.v4_address().parse().ok()?);
        endpoint(
            address,
            0,
            info.v4_data_port(),
            info.v4_service_port(),
            Family::V4,
        )
    };
    let v6 = || {
        if ipv6 == Ipv6Mode::Disable {
            return None;
        }
        let text = info.v6_address();
        let (address, scope) = text.split_once('%').unwrap_or((&text, ""));
        let scope = scope_index(scope);
        let address = IpAddr::V6(address.parse().ok()?);
        endpoint(
            address,
            scope,
            info.v6_data_port(),
            info.v6_service_port(),
            Family::V6,
        )
    };
    if in_use == Some(Family::V6) {
        v6().or_else(v4)
    } else {
        v4().or_else(v6)
    }
}

fn endpoint(
    address: IpAddr,
    scope: u32,
    data: u16,
    service: u16,
    family: Family,
) -> Option<Endpoint> {
    if data == 0 || service == 0 {
        return None;
    }
    let at = |port| match address {
        IpAddr::V4(_) => SocketAddr::new(address, port),
        IpAddr::V6(address) => SocketAddr::V6(SocketAddrV6::new(address, port, 0, scope)),
    };
    Some(Endpoint {
        data: at(data),
        service: at(service),
        family,
    })
}

/// Index of the interface that a link-local address names, as a number or by name; 0 if unknown.
fn scope_index(scope: &str) -> u32 {
    if scope.is_empty() {
        return 0;
    }
    scope.parse().unwrap_or_else(|_| {
        let interfaces = lsl_platform::interfaces::interfaces().unwrap_or_default();
        interfaces
            .iter()
            .find(|each| each.name == scope)
            .map_or(0, |each| each.index)
    })
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

/// From so many tries in a row on a feed waits for its turn, and its clock for the feed.
const HOPELESS_FAILURES: u32 = 2;

/// Of the pause between their tries, up to 8 s.
const MAX_DOUBLINGS: u32 = 4;

/// Pause before connecting again to an outlet that answers queries but refused the connection.
const RETRY: Duration = Duration::from_millis(500);

/// Pause after a search that could not be started: out of descriptors, most likely.
const SEARCH_RETRY: Duration = Duration::from_secs(1);

/// How long the first round collects answers, so that a second candidate is noticed. liblsl waits
/// twice as long; answers come within milliseconds, and samples are being lost meanwhile.
const FIRST_ROUND_SECS: f64 = 0.5;

/// The same for later rounds, when there were several.
const LATER_ROUNDS_SECS: f64 = LONGEST_ROUND_SECS;

#[cfg(test)]
mod tests;
