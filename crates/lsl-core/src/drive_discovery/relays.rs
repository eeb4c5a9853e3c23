//! Relays that a program asks for streams: their directories, for searches, and the ways to what is in them, for
//! inlets. A relay that cannot be reached costs no search anything. Spec: relay §5.2.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak, mpsc};
use std::time::Duration;

use lsl_platform::clock::local_clock;
use lsl_proto::describe::descriptor;
use lsl_proto::discovery::search::Search;
use lsl_proto::discovery::ways::Ways;
use lsl_proto::inlet::Exchange;
use lsl_proto::limits::{TokenBucket, retry_delay_secs};
use lsl_proto::security::{ExpectedIdentity, RELAY_TYPE};
use lsl_proto::wire::directory::{MAX_DOCUMENT_BYTES, Record, RecordParser, WatchRequest};
use lsl_secure::{Descriptor, PublicKey};
use tokio::sync::Semaphore;

use crate::context::Context;
use crate::drive_discovery::known_hosts::addresses_of;
use crate::drive_discovery::replies::take_in;
use crate::drive_inlet::connection::Connection;
use crate::drive_inlet::handshake::{self, Target};
use crate::drive_inlet::peers::Peers;
use crate::net::monitor::{Monitor, lock_ignoring_poison};
use crate::net::runtime::{self, AbortOnDrop};
use crate::net::sockets::Family;
use crate::net::uid;
use crate::{ChannelFormat, Error, Result, StreamInfo};

/// Way to a stream behind a relay: where it told of it, and the key that it has proved to own there; `None` without
/// encryption, on this host.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RelayWay {
    pub(crate) host: Arc<str>,
    pub(crate) peer: SocketAddr,
    pub(crate) key: Option<PublicKey>,
    /// The stream as the relay told of it: no other one is read there under this uid. Spec: relay §3.1.
    pub(crate) told: Arc<Descriptor>,
}

/// Knowledge of a context about its relays, which are numbered as the configuration names them.
#[derive(Debug)]
pub(crate) struct Relays {
    ways: Mutex<Ways<RelayWay>>,
    /// Directories that are watched at present.
    watches: Mutex<HashMap<u32, Weak<Watch>>>,
    failures: Mutex<HashMap<u32, Failures>>,
    /// Of searches that ask a relay alone: it lets a program have few of them.
    turns: Arc<Semaphore>,
    /// Whether streams are wanted that are over, and the past of others.
    past: AtomicBool,
}

/// Failures of one relay, for the log.
#[derive(Debug)]
struct Failures {
    peers: Arc<Peers>,
    bucket: TokenBucket,
}

impl Default for Relays {
    fn default() -> Self {
        Self {
            ways: Mutex::new(Ways::new(MAX_STREAMS)),
            watches: Mutex::default(),
            failures: Mutex::default(),
            turns: Arc::new(Semaphore::new(MAX_ASKING)),
            past: AtomicBool::new(false),
        }
    }
}

impl Relays {
    /// Has all that is asked from now on include the past.
    pub(crate) fn include_past(&self) {
        self.past.store(true, Ordering::Relaxed);
    }

    /// Whether the past is wanted, which relays have.
    pub(crate) fn want_past(&self) -> bool {
        self.past.load(Ordering::Relaxed)
    }

    /// Returns the ways to the stream with this uid.
    pub(crate) fn ways_to(&self, uid: &[u8]) -> Vec<RelayWay> {
        lock_ignoring_poison(&self.ways).of(uid)
    }

    /// Returns what a relay tells of, and has it watched for as long as somebody holds this.
    fn watch(&self, context: &Context, relay: u32) -> Result<Arc<Watch>> {
        let mut watches = lock_ignoring_poison(&self.watches);
        if let Some(watch) = watches.get(&relay).and_then(Weak::upgrade) {
            return Ok(watch);
        }
        let directory = Arc::new(Monitor::new(Directory::default()));
        let watching = watch(context.clone(), relay, Arc::clone(&directory));
        let watch = Arc::new(Watch {
            directory,
            _task: AbortOnDrop(runtime::spawn(watching)?),
        });
        watches.insert(relay, Arc::downgrade(&watch));
        Ok(watch)
    }

    fn is_watched(&self, relay: u32) -> bool {
        let watches = lock_ignoring_poison(&self.watches);
        let watch = watches.get(&relay).and_then(Weak::upgrade);
        watch.is_some_and(|watch| watch.directory.lock().is_known)
    }

    /// Takes note of what a relay tells.
    fn learn(&self, relay: u32, way: &RelayWay, record: Record<'_>) {
        match record {
            Record::Stream { uid, xml } => {
                // One that cannot be read is no stream that somebody could have chosen.
                let told = StreamInfo::from_xml(xml).map(|info| Arc::new(descriptor(&info)));
                let way = told.map(|told| RelayWay {
                    told,
                    ..way.clone()
                });
                let mut ways = lock_ignoring_poison(&self.ways);
                match way {
                    Ok(way) => ways.add(uid, relay, way),
                    Err(_) => ways.remove(uid, relay),
                }
            }
            Record::Gone { uid, .. } => lock_ignoring_poison(&self.ways).remove(uid, relay),
            Record::Clock { .. } | Record::Known => {}
        }
    }

    fn peers(&self, relay: u32) -> Arc<Peers> {
        self.with_failures(relay, |failures| Arc::clone(&failures.peers))
    }

    /// Logs once a minute why a relay tells nothing. What encryption forbids is logged where it is found.
    fn failed(&self, relay: u32, host: &str, error: &Error) {
        let is_due = self.with_failures(relay, |failures| failures.bucket.take(local_clock()));
        if is_due && !matches!(error, Error::Security(_)) {
            tracing::warn!(relay = host, %error, "no streams of this relay");
        }
    }

    fn with_failures<R>(&self, relay: u32, look: impl FnOnce(&mut Failures) -> R) -> R {
        let mut failures = lock_ignoring_poison(&self.failures);
        look(failures.entry(relay).or_insert_with(|| Failures {
            peers: Arc::default(),
            bucket: TokenBucket::new(1.0 / LOG_INTERVAL_SECS, 1.0),
        }))
    }
}

/// Streams that a relay tells of.
#[derive(Debug, Default)]
struct Directory {
    /// Documents by uid, with the revision in which each came.
    streams: BTreeMap<Vec<u8>, (u64, Arc<[u8]>)>,
    bytes: usize,
    revision: u64,
    /// Address of the relay while it is connected.
    relay: Option<IpAddr>,
    /// Whether all that it knew has been said.
    is_known: bool,
}

impl Directory {
    fn begin(&mut self, relay: IpAddr) {
        *self = Self {
            revision: self.revision + 1,
            relay: Some(relay),
            ..Self::default()
        };
    }

    fn end(&mut self) {
        self.revision += 1;
        (self.relay, self.is_known) = (None, false);
    }

    fn take(&mut self, record: Record<'_>) {
        match record {
            Record::Stream { uid, xml } => {
                self.remove(uid);
                let has_room = self.streams.len() < MAX_STREAMS;
                if !has_room || self.bytes + xml.len() > MAX_DIRECTORY_BYTES {
                    return;
                }
                self.revision += 1;
                self.bytes += xml.len();
                (self.streams).insert(uid.to_vec(), (self.revision, Arc::from(xml)));
            }
            Record::Gone { uid, .. } => {
                self.remove(uid);
                self.revision += 1;
            }
            Record::Known => {
                self.revision += u64::from(!self.is_known);
                self.is_known = true;
            }
            Record::Clock { .. } => {}
        }
    }

    fn remove(&mut self, uid: &[u8]) {
        if let Some((_, xml)) = self.streams.remove(uid) {
            self.bytes -= xml.len();
        }
    }
}

/// A directory that is watched.
#[derive(Debug)]
struct Watch {
    directory: Arc<Monitor<Directory>>,
    _task: AbortOnDrop<()>,
}

/// Hands a search what a relay tells of, for ever. One that ends asks for what it looks for alone, and goes on as
/// others if that was not enough.
pub(crate) async fn follow(context: Context, relay: u32, search: Arc<Monitor<Search>>) {
    let (is_once, query) = {
        let search = search.lock();
        (search.is_once(), search.query().to_vec())
    };
    if is_once && !context.relays().is_watched(relay) {
        let turns = Arc::clone(&context.relays().turns);
        let Ok(turn) = turns.acquire_owned().await else {
            return;
        };
        let request = WatchRequest {
            once: true,
            past: context.relays().want_past(),
            query,
        };
        let asking = ask_once(context.clone(), relay, request, Arc::downgrade(&search));
        // Not ended with the search: if the outlet answers first, the way through the relay is still the second.
        let asking = runtime::spawn(async move {
            let asked = tokio::time::timeout(ONCE_LIMIT, Box::pin(asking)).await;
            drop(turn);
            asked
        });
        if let Ok(asking) = asking {
            let asked = asking.await;
            tracing::debug!(relay, ?asked, "a relay was asked");
        }
        tokio::time::sleep(WATCH_AFTER).await;
    }
    let watch = match context.relays().watch(&context, relay) {
        Ok(watch) => watch,
        Err(error) => return tracing::debug!(%error, "a relay is not watched"),
    };
    let mut seen = None;
    loop {
        let directory = &watch.directory;
        let is_new = |directory: &mut Directory| {
            (seen != Some(directory.revision)).then_some(directory.revision)
        };
        let Some(revision) = directory.wait(f64::INFINITY, is_new).await else {
            continue;
        };
        show(directory, relay, seen.unwrap_or(0), &search);
        seen = Some(revision);
        // The documents of a thousand streams come one by one.
        tokio::time::sleep(GATHER).await;
    }
}

/// Asks a relay for what a search looks for.
async fn ask_once(
    context: Context,
    relay: u32,
    request: WatchRequest,
    search: Weak<Monitor<Search>>,
) -> Result<()> {
    read(&context, relay, &request, |way, record| {
        if let (Record::Stream { xml, .. }, Some(search)) = (record, search.upgrade()) {
            take_in(&search, |search, now| {
                search.handle_relayed(relay, way.peer.ip(), xml, true, now)
            });
        }
    })
    .await
}

/// Hands a search the changes of a directory since a revision.
fn show(directory: &Monitor<Directory>, relay: u32, since: u64, search: &Monitor<Search>) {
    let (at, is_known, changed) = {
        let directory = directory.lock();
        let changed = directory.streams.values();
        let changed = changed.filter(|(revision, _)| *revision > since);
        let changed: Vec<_> = changed.map(|(_, xml)| Arc::clone(xml)).collect();
        (directory.relay, directory.is_known, changed)
    };
    if let Some(at) = at {
        for xml in changed {
            take_in(search, |search, now| {
                search.handle_relayed(relay, at, &xml, false, now)
            });
        }
        if !is_known {
            return;
        }
    }
    let told = search.lock().relayed_by(relay);
    let now = local_clock();
    let mut is_news = false;
    for uid in told {
        let is_gone = at.is_some();
        if is_gone && directory.lock().streams.contains_key(&uid) {
            continue;
        }
        is_news |= search.lock().handle_withdrawn(relay, &uid, is_gone, now);
    }
    if is_news {
        search.wake();
    }
}

/// Keeps a directory up to date for ever.
async fn watch(context: Context, relay: u32, directory: Arc<Monitor<Directory>>) {
    let request = WatchRequest {
        past: context.relays().want_past(),
        ..WatchRequest::default()
    };
    let mut failures = 0;
    loop {
        let mut has_begun = false;
        let reading = read(&context, relay, &request, |way, record| {
            directory.update(|directory| {
                if !std::mem::replace(&mut has_begun, true) {
                    directory.begin(way.peer.ip());
                }
                directory.take(record);
            });
        });
        let ended = Box::pin(reading).await;
        tracing::debug!(relay, ?ended, "the directory of a relay ended");
        directory.update(Directory::end);
        failures = if has_begun { 1 } else { failures + 1 };
        let pause = retry_delay_secs(false, failures, uid::random_number());
        tokio::time::sleep(Duration::from_secs_f64(pause)).await;
    }
}

/// Reads the directory of a relay to its end, and remembers the ways.
async fn read(
    context: &Context,
    relay: u32,
    request: &WatchRequest,
    mut take: impl FnMut(&RelayWay, Record<'_>),
) -> Result<()> {
    let relays = context.relays();
    let (host, port) = (context.network().relays.get(relay as usize))
        .ok_or_else(|| Error::Config("no such relay".into()))?;
    let reading = async {
        let (peers, expected) = (relays.peers(relay), ExpectedIdentity::Relay { key: None });
        let (at, request) = ((&**host, *port), request.to_bytes());
        let connecting = connect(context, at, expected, &peers, &request);
        let mut connection = connecting.await?;
        let way = RelayWay {
            host: (**host).into(),
            peer: connection.peer(),
            key: connection.peer_key(),
            told: Arc::default(),
        };
        let mut parser = RecordParser::new();
        let mut is_relay = false;
        loop {
            let bytes = tokio::time::timeout(SILENCE_LIMIT, connection.next_bytes()).await;
            let silent = |_| Error::Protocol("the relay is silent".into());
            let Some(bytes) = bytes.map_err(silent)?? else {
                break;
            };
            let mut input = &bytes[..];
            while let Some(record) = parser.next(&mut input)? {
                is_relay = true;
                relays.learn(relay, &way, record);
                take(&way, record);
            }
        }
        if is_relay {
            return Ok(());
        }
        Err(Error::Protocol(format!(
            "{host}:{port} is no relay (it closed the connection)"
        )))
    };
    reading
        .await
        .inspect_err(|error| relays.failed(relay, host, error))
}

/// Asks a relay, by its number among those of the configuration, for all that it knows. Returns how many streams that
/// are. Blocks, for `limit` at most, or until `stop`.
///
/// # Errors
/// Why it tells nothing: [`Error::Security`] with a text for people, [`Error::Io`], [`Error::Protocol`],
/// [`Error::Timeout`].
pub fn ask_all(
    context: &Context,
    relay: u32,
    limit: Duration,
    stop: &dyn Fn() -> bool,
) -> Result<usize> {
    let (sender, receiver) = mpsc::channel();
    let context = context.clone();
    let asking = runtime::spawn(async move {
        let request = WatchRequest {
            once: true,
            ..WatchRequest::default()
        };
        let mut streams = 0;
        let count = |_: &RelayWay, record: Record<'_>| {
            streams += usize::from(matches!(record, Record::Stream { .. }));
        };
        let asked = Box::pin(read(&context, relay, &request, count)).await;
        // Who asked may have given up.
        let _ = sender.send(asked.map(|()| streams));
    });
    let _asking = AbortOnDrop(asking?);
    let end = local_clock() + limit.as_secs_f64();
    while local_clock() < end && !stop() {
        match receiver.recv_timeout(STOP_LATENCY.min(limit)) {
            Ok(told) => return told,
            Err(mpsc::RecvTimeoutError::Timeout) => {}
            Err(mpsc::RecvTimeoutError::Disconnected) => break,
        }
    }
    Err(Error::Timeout { operation: "watch" })
}

/// Connects with a relay at the first of its addresses that lets us, and sends it a request.
///
/// # Errors
/// As [`handshake::dial_relay`].
pub(crate) async fn connect(
    context: &Context,
    (host, port): (&str, u16),
    expected: ExpectedIdentity<'_>,
    peers: &Arc<Peers>,
    request: &[u8],
) -> Result<Connection> {
    let found: Vec<IpAddr> = if let Ok(address) = host.parse() {
        vec![address]
    } else {
        let found = addresses_of(host.to_owned()).await;
        let found = found.map_err(|source| Error::io(format!("relay {host}"), source))?;
        found.iter().map(SocketAddr::ip).collect()
    };
    let network = context.network();
    let is_usable = |address: &IpAddr| {
        network.uses(Family::of(*address)) && (!network.loopback_only || address.is_loopback())
    };
    let info = StreamInfo::new(host, RELAY_TYPE, 0, 0.0, ChannelFormat::String, "")?;
    let target = Target {
        info: &info,
        expected,
        peers,
    };
    let none = io::Error::new(
        io::ErrorKind::AddrNotAvailable,
        "no address of a family in use",
    );
    let mut failure = Error::io(format!("relay {host}"), none);
    for address in found.into_iter().filter(is_usable).take(MAX_ADDRESSES) {
        let peer = SocketAddr::new(address, port);
        let exchange = Exchange::reply(request, MAX_DOCUMENT_BYTES);
        let dialling =
            handshake::dial_relay(context, target, (host, peer), exchange, CONNECT_LIMIT);
        match dialling.await {
            Ok(connection) => return Ok(connection),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

/// Streams that are kept of one relay, and ways of all.
const MAX_STREAMS: usize = 65_536;

/// Documents that are kept of one relay.
const MAX_DIRECTORY_BYTES: usize = 64 << 20;

/// Searches that ask at the same time. A relay allows 16 watches of one program. Spec: relay §5.1.
const MAX_ASKING: usize = 8;

/// Addresses of one name that are tried.
const MAX_ADDRESSES: usize = 8;

/// How soon it is seen that the user does not want to wait.
const STOP_LATENCY: Duration = Duration::from_millis(100);

const CONNECT_LIMIT: Duration = Duration::from_secs(3);

/// Time for a relay to say all that a search looks for.
const ONCE_LIMIT: Duration = Duration::from_secs(20);

/// How long a search that still goes on waits after that before it has the relay watched.
const WATCH_AFTER: Duration = Duration::from_secs(1);

/// A relay gives a sign of life every 10 s.
const SILENCE_LIMIT: Duration = Duration::from_secs(25);

/// How long changes are gathered before they are looked at again.
const GATHER: Duration = Duration::from_millis(20);

/// How often the same failure is logged.
const LOG_INTERVAL_SECS: f64 = 60.0;
