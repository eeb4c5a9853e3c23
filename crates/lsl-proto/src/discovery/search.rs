//! A search for streams: when queries leave, which answers count, and when they are enough.
//! Spec: lsl-protocol §2.4, §3.2, §3.4.
//!
//! The driver asks [`Search::poll`] what to do, does it, and hands in what it receives. When a wave begins,
//! the driver says where its queries go, as that depends on the interfaces of the moment.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, SocketAddr};

use super::fallback::Fallback;
use super::neighbours::Neighbours;
use super::queries::{EventWaves, QueryPacer, Transmit};
use super::reply::{REPLY_LIMITS, contradicts, fill_address, is_redacted};
use super::tcp_probes::TcpProbes;
use super::ways::{DirectWay, Medium};
use crate::StreamInfo;
use crate::query::Query;
use crate::wire::discovery::{QueryDatagram, ReplyDatagram, query_id};

/// Periods of the query waves, in seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WaveTimes {
    /// From a multicast query to the unicast queries after it (`MulticastMinRTT`).
    pub multicast_min_rtt_secs: f64,
    /// From the unicast queries to the next wave (`UnicastMinRTT`).
    pub unicast_min_rtt_secs: f64,
    /// Extra pause between the waves of a continuous search (`ContinuousResolveInterval`).
    pub continuous_interval_secs: f64,
}

impl WaveTimes {
    /// How long a stream may be silent in a continuous search that may miss one of its answers.
    pub fn patience_secs(&self) -> f64 {
        let period =
            self.multicast_min_rtt_secs + self.unicast_min_rtt_secs + self.continuous_interval_secs;
        2.0 * period + 0.5
    }
}

impl Default for WaveTimes {
    fn default() -> Self {
        Self {
            multicast_min_rtt_secs: 0.5,
            unicast_min_rtt_secs: 0.75,
            continuous_interval_secs: 0.5,
        }
    }
}

/// Condition under which a search ends.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Goal {
    /// Ends at `deadline`, or before it once there are `minimum` results and it is `not_before`.
    /// A `minimum` of 0 always lasts until the deadline.
    Once {
        /// Number of results that is enough.
        minimum: usize,
        /// Earliest end, in seconds of `local_clock`.
        not_before: f64,
        /// Latest end, in seconds of `local_clock`; may be infinite.
        deadline: f64,
    },
    /// Never ends. A stream that did not answer for `forget_after_secs` counts as lost.
    Continuous {
        /// Seconds of silence until a stream is lost; infinite keeps every stream.
        forget_after_secs: f64,
    },
}

/// Result of [`Search::poll`]: what the driver has to do now.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum SearchAction {
    /// Say to which groups and broadcast addresses the queries of this wave go, by
    /// [`send_multicast`](Search::send_multicast); with `lab.ResolveOverTCP`, also which ports to
    /// [`probe`](Search::probe_tcp).
    SendMulticast,
    /// Say to which ports of this host and of the known peers the queries of this wave go, by
    /// [`send_unicast`](Search::send_unicast).
    SendUnicast,
    /// Send this datagram of the query.
    Send(Transmit),
    /// Ask the hosts that the system knows on its networks at the multicast port.
    AskNeighbours,
    /// Ask this data port over TCP, then call [`handle_probe_ended`](Search::handle_probe_ended).
    ProbeTcp(SocketAddr),
    /// Nothing before this time, unless a reply arrives or a probe ends.
    WaitUntil(f64),
    /// The search is over; nothing remains to be done.
    Done,
}

/// Change of a stream during a continuous search.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum ResolverEvent {
    /// A stream answered for the first time.
    Appeared(StreamInfo),
    /// A known stream can be reached in one more way.
    Changed(StreamInfo),
    /// A stream did not answer for too long; this is what was last known of it.
    Lost(StreamInfo),
    /// Two streams are there that cannot be told apart: they have the same source id, name and type, or the same uid
    /// on two hosts. Told once.
    Conflict(Box<[StreamInfo; 2]>),
}

/// Fate of a received reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Received {
    /// A stream that was not known.
    New,
    /// Something new about a known stream.
    Changed,
    /// An answer that only shows that a known stream lives.
    Refreshed,
    /// No answer to this search.
    Foreign,
    /// An answer to a [sweep](super::sweep): there is somebody.
    Present,
    /// An outlet that hides what it is; only after [`Search::with_open_query`].
    Redacted,
    /// An answer that describes no stream, or one too many.
    Invalid,
}

/// A running search. See the module's documentation.
#[derive(Debug)]
pub struct Search {
    query: Vec<u8>,
    id: Vec<u8>,
    /// Of the empty query, if outlets that hide what they are shall answer too.
    open_id: Option<Vec<u8>>,
    /// Of the empty query to hosts of whom nothing is known.
    sweep_id: Option<Vec<u8>>,
    /// `None` if it does not parse.
    parsed: Option<Query>,
    times: WaveTimes,
    goal: Goal,
    next_multicast: f64,
    next_unicast: f64,
    last_unicast: f64,
    queries: QueryPacer,
    event_waves: EventWaves,
    probes: TcpProbes,
    fallback: Option<Fallback>,
    neighbours: Option<Neighbours>,
    /// Time before which no stream of a continuous search is forgotten, in seconds of `local_clock`.
    silent_at: f64,
    /// Whether streams were forgotten since [`take_forgotten`](Self::take_forgotten).
    has_forgotten: bool,
    /// By uid, so that results come out in the order of liblsl.
    found: BTreeMap<Vec<u8>, Found>,
    /// What `found` holds of all senders, and of each.
    held: Held,
    held_of: HashMap<IpAddr, Held>,
    /// The uid in a text that was read before, by hash: most replies are repetitions, and reading
    /// one again costs far more than recognising it.
    known_texts: HashMap<u64, Vec<u8>>,
    hasher: RandomState,
    events: VecDeque<ResolverEvent>,
    /// Streams found that a relay offers again, which are not shown beside their origins.
    offered_again: usize,
    /// Streams found that only relays tell of.
    relayed: usize,
    /// When streams that only relays tell of are enough: their outlets answer by then, if they can.
    relays_count_from: f64,
    is_repeated: bool,
    /// Of a repeated search: how many waves there were.
    wave: u64,
    invalid: u64,
    vetoes: Vec<Veto>,
    /// Hosts that were asked by unicast.
    asked: HashSet<IpAddr>,
    /// When questions began to leave last, and those to groups.
    asked_at: f64,
    group_asked_at: f64,
    /// Ways to streams that nobody took yet.
    ways: Vec<(Vec<u8>, DirectWay)>,
    /// Of a search for lost streams.
    rescue: Option<rescue::Rescue>,
    conflicts: conflicts::Conflicts,
}

/// Leaves out answers that are not to be believed or not wanted, by what they say of themselves.
#[derive(Clone)]
pub struct Veto(pub std::sync::Arc<dyn Fn(&StreamInfo) -> bool + Send + Sync>);

impl std::fmt::Debug for Veto {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Veto")
    }
}

#[derive(Debug)]
struct Found {
    info: StreamInfo,
    /// Host that told of it first.
    sender: IpAddr,
    first_seen: f64,
    last_seen: f64,
    /// The wave that `info` answers.
    wave: u64,
    /// Length of the reply, to bound what all results take.
    text_bytes: usize,
    /// Relays that tell of it, one bit each; and whether its outlet answered.
    relays: u64,
    is_direct: bool,
    /// Uid of the stream that it repeats, if it is an outlet of a relay.
    origin: Option<Vec<u8>>,
    /// What another outlet of this stream has, too.
    identity: Option<Vec<u8>>,
    /// Hosts that it answered from, without ports, and when that was told.
    hosts: Vec<(SocketAddr, f64)>,
}

/// Memory that results take up, for its limits.
#[derive(Debug, Clone, Copy, Default)]
struct Held {
    streams: usize,
    /// Length of the text they were made of.
    bytes: usize,
}

impl Held {
    fn add(&mut self, bytes: usize) {
        self.streams += 1;
        self.bytes += bytes;
    }

    fn remove(&mut self, bytes: usize) {
        self.streams -= 1;
        self.bytes -= bytes;
    }
}

impl Search {
    /// Makes a search that starts `now` (seconds of `local_clock`) for what matches `query`.
    pub fn new(query: impl Into<Vec<u8>>, times: WaveTimes, goal: Goal, now: f64) -> Self {
        let query = query.into();
        Self {
            id: query_id(&query).to_string().into_bytes(),
            parsed: Query::parse(&query).ok(),
            query,
            open_id: None,
            sweep_id: None,
            times,
            goal,
            next_multicast: now,
            // liblsl waits before it asks by unicast. Asking at once as well finds the streams of a
            // host without multicast within a millisecond, not after half a second.
            next_unicast: now,
            last_unicast: f64::NEG_INFINITY,
            queries: QueryPacer::default(),
            event_waves: EventWaves::default(),
            probes: TcpProbes::default(),
            fallback: None,
            neighbours: None,
            silent_at: f64::INFINITY,
            has_forgotten: false,
            found: BTreeMap::new(),
            held: Held::default(),
            held_of: HashMap::new(),
            known_texts: HashMap::new(),
            hasher: RandomState::new(),
            events: VecDeque::new(),
            offered_again: 0,
            relayed: 0,
            relays_count_from: now + OUTLETS_FIRST_SECS,
            is_repeated: false,
            wave: 0,
            invalid: 0,
            vetoes: Vec::new(),
            asked: HashSet::new(),
            asked_at: now,
            group_asked_at: now,
            ways: Vec::new(),
            rescue: None,
            conflicts: conflicts::Conflicts::default(),
        }
    }

    /// Also leaves out answers that somebody has reason not to believe, or does not want.
    #[must_use]
    pub fn with_veto(mut self, veto: Veto) -> Self {
        self.vetoes.push(veto);
        self
    }

    /// Uses another query id than liblsl's, which follows from the query. A random one keeps late
    /// replies to an earlier search on the same port, and forged ones, out of the results.
    #[must_use]
    pub fn with_id(mut self, id: u64) -> Self {
        self.id = id.to_string().into_bytes();
        self
    }

    /// Stands for a search that begins anew with each wave: the first answer to a wave counts, whatever
    /// earlier ones said, because the host of a stream may have moved. Keeps no events.
    #[must_use]
    pub fn repeated(mut self) -> Self {
        self.is_repeated = true;
        self
    }

    /// Also asks every outlet for what it shows to strangers, under a query id of its own: one that
    /// hides what it is cannot say whether it matches. Spec: LSS/1 §7.3.
    #[must_use]
    pub fn with_open_query(mut self, id: u64) -> Self {
        if self.query.trim_ascii().is_empty() {
            // Once is enough.
            self.id = Vec::new();
        }
        self.open_id = Some(id.to_string().into_bytes());
        self
    }

    /// Asks with the empty query alone and sorts the answers itself: what is looked for is as telling
    /// as what hides, and a recovery names the stream that was lost. Finds what the query would have
    /// found, but for what only a full info says. A query that does not parse finds nothing.
    #[must_use]
    pub fn with_open_query_alone(mut self, id: u64) -> Self {
        self = self.with_open_query(id);
        self.id = Vec::new();
        self
    }

    /// Returns whether the query goes over the network, see
    /// [`with_open_query_alone`](Self::with_open_query_alone).
    pub fn is_query_sent(&self) -> bool {
        !self.id.is_empty()
    }

    /// Returns the second datagram to send after [`with_open_query`](Self::with_open_query).
    pub fn open_datagram(&self, return_port: u16) -> Option<Vec<u8>> {
        let id = self.open_id.as_deref()?;
        let datagram = QueryDatagram {
            query: b"",
            return_port,
            id,
        };
        Some(datagram.to_bytes())
    }

    /// Returns the datagram to send when replies shall come to `return_port`; `None` after
    /// [`with_open_query_alone`](Self::with_open_query_alone).
    pub fn datagram(&self, return_port: u16) -> Option<Vec<u8>> {
        let datagram = QueryDatagram {
            query: &self.query,
            return_port,
            id: &self.id,
        };
        self.is_query_sent().then(|| datagram.to_bytes())
    }

    /// Returns whether the search has an end.
    pub fn is_once(&self) -> bool {
        matches!(self.goal, Goal::Once { .. })
    }

    /// Returns the text that is searched for.
    pub fn query(&self) -> &[u8] {
        &self.query
    }

    /// Starts the multicast queries of a wave, in this order. Those of the last wave, if they are still on
    /// their way, go on instead.
    pub fn send_multicast(&mut self, queries: Vec<Transmit>, now: f64) {
        self.queries.spread(queries, now);
    }

    /// Returns whether the multicast queries of the last wave are still on their way.
    pub fn is_spreading(&self) -> bool {
        self.queries.is_spreading()
    }

    /// Begins a wave soon, because the network changed. Not oftener than once a second and six times a minute, however
    /// it flaps. Spec: doctor §2.2.
    pub fn handle_network_change(&mut self, now: f64) {
        if let Some(at) = self.event_waves.schedule(now) {
            self.next_multicast = self.next_multicast.min(at);
            self.next_unicast = self.next_unicast.min(at);
        }
    }

    /// Begins a wave at once, and lets the copies of queries leave more slowly from now on, because answers came faster
    /// than they were read. Not again. Spec: doctor §2.4.
    pub fn handle_overrun(&mut self, now: f64) {
        if self.queries.slow_down() {
            self.next_multicast = self.next_multicast.min(now);
        }
    }

    /// Returns what to do at `now`. Ask again after doing it, and at the time of
    /// [`SearchAction::WaitUntil`].
    pub fn poll(&mut self, now: f64) -> SearchAction {
        if self.is_done(now) {
            return SearchAction::Done;
        }
        if now >= self.next_multicast {
            if let Some(rescue) = &mut self.rescue {
                rescue.begin_wave(now);
            }
            self.next_multicast = after(self.next_multicast, self.period_secs(), now);
            self.wave += u64::from(self.is_repeated);
            let period = self.period_secs();
            if let (Some(fallback), Goal::Continuous { .. }) = (&mut self.fallback, self.goal) {
                fallback.begin_wave(period);
            }
            (self.asked_at, self.group_asked_at) = (now, now);
            return SearchAction::SendMulticast;
        }
        if now >= self.next_unicast {
            (self.last_unicast, self.asked_at) = (now, now);
            let wave = self.next_multicast - self.period_secs();
            let regular = wave + self.times.multicast_min_rtt_secs;
            // The unicast queries that went at once are repeated at the usual time.
            self.next_unicast = if now < regular {
                regular
            } else {
                regular + self.period_secs()
            };
            return SearchAction::SendUnicast;
        }
        if let Some(query) = self.queries.poll_transmit(now) {
            return SearchAction::Send(query);
        }
        if let Some(target) = self.probes.poll() {
            return SearchAction::ProbeTcp(target);
        }
        let mut fallback_at = f64::INFINITY;
        if let Some(fallback) = self.fallback(now) {
            if let Some(target) = fallback.poll(now) {
                return SearchAction::ProbeTcp(target);
            }
            fallback_at = fallback.poll_timeout();
        }
        self.forget_silent(now);
        let neighbours = self.neighbours.as_ref().filter(|_| self.found.is_empty());
        if neighbours.is_some_and(|neighbours| neighbours.poll(now)) {
            return SearchAction::AskNeighbours;
        }
        fallback_at = fallback_at.min(neighbours.map_or(f64::INFINITY, Neighbours::due));
        let mut wake = self.next_multicast.min(self.next_unicast);
        wake = wake.min(self.queries.poll_timeout()).min(fallback_at);
        match self.goal {
            Goal::Once {
                not_before,
                deadline,
                ..
            } => {
                wake = wake.min(deadline);
                if not_before > now {
                    wake = wake.min(not_before);
                }
                if self.relays_count_from > now && self.relayed > 0 {
                    wake = wake.min(self.relays_count_from);
                }
            }
            Goal::Continuous { .. } => wake = wake.min(self.silent_at),
        }
        SearchAction::WaitUntil(wake)
    }

    /// Returns whether a search with an end has reached it.
    pub fn is_done(&self, now: f64) -> bool {
        match self.goal {
            Goal::Once {
                minimum,
                not_before,
                deadline,
            } => {
                let enough = minimum > 0 && self.len_at(now) >= minimum && now >= not_before;
                enough || now >= deadline
            }
            Goal::Continuous { .. } => false,
        }
    }

    /// Takes in a datagram that came to the return port. Replies to other queries are ignored.
    pub fn handle_datagram(&mut self, from: SocketAddr, datagram: &[u8], now: f64) -> Received {
        self.queries.on_datagram();
        let Ok(reply) = ReplyDatagram::parse(datagram) else {
            return Received::Foreign;
        };
        let is_swept = self.sweep_id.as_deref() == Some(reply.id);
        let is_open = self.open_id.as_deref() == Some(reply.id);
        let is_answer = self.is_query_sent() && reply.id == self.id;
        if !is_answer && !is_open && !is_swept {
            return Received::Foreign;
        }
        if let Some(fallback) = &mut self.fallback {
            fallback.heard(from.ip(), now);
        }
        if is_swept {
            return Received::Present;
        }
        let by = if self.asked.contains(&from.ip()) {
            Medium::Unicast
        } else {
            Medium::Group
        };
        if is_answer && !(self.open_id.is_some() && is_redacted(reply.xml)) {
            return self.take_reply((from, by), reply.xml, now);
        }
        self.take_open_reply((from, by), reply.xml, now)
    }

    fn take_reply(&mut self, (from, by): (SocketAddr, Medium), xml: &[u8], now: f64) -> Received {
        let reply = answering::Reply {
            from,
            by,
            asked_at: match by {
                Medium::Group => self.group_asked_at,
                Medium::Unicast | Medium::Tcp => self.asked_at,
            },
            now,
        };
        let text = self.hasher.hash_one(xml);
        if let Some(found) = self
            .known_texts
            .get(&text)
            .and_then(|uid| self.found.get_mut(uid))
            .filter(|found| found.wave == self.wave)
        {
            let changed = found.refresh(reply, &mut self.ways);
            let uid = self
                .conflicts
                .may_be()
                .then(|| found.info.uid_bytes().to_vec());
            return self.on_refreshed(&uid.unwrap_or_default(), changed);
        }
        let mut info = match StreamInfo::from_xml_with(xml, &REPLY_LIMITS) {
            Ok(info) if !info.uid_bytes().is_empty() => info,
            Ok(_) | Err(_) => {
                self.invalid += 1;
                return Received::Invalid;
            }
        };
        if self.vetoes.iter().any(|Veto(veto)| veto(&info)) {
            self.invalid += 1;
            return Received::Invalid;
        }
        if contradicts(self.parsed.as_ref(), &info, xml) {
            return Received::Foreign;
        }
        let uid = info.uid_bytes().to_vec();
        if self.known_texts.len() >= MAX_RESULTS {
            self.known_texts.clear();
        }
        self.known_texts.insert(text, uid.clone());
        if let Some(found) = self.found.get_mut(&uid)
            && found.wave == self.wave
            && found.is_direct
        {
            // Another text of the same outlet: the first one stays (§2.4).
            let changed = found.refresh(reply, &mut self.ways);
            if self.look_for_clone(info) {
                return Received::Changed;
            }
            return self.on_refreshed(&uid, changed);
        }
        let before = self.remove(&uid);
        let sender = from.ip().to_canonical();
        let of_sender = self.held_of.get(&sender).copied().unwrap_or_default();
        // A sender has at most a third of what is left: whoever makes up streams hides no real one.
        if 3 * of_sender.streams + self.held.streams >= MAX_RESULTS
            || 3 * of_sender.bytes + self.held.bytes + xml.len() > MAX_RESULT_BYTES
        {
            self.invalid += 1;
            return Received::Invalid;
        }
        fill_address(&mut info, from);
        if let Goal::Continuous { forget_after_secs } = self.goal {
            self.silent_at = self.silent_at.min((now + forget_after_secs).next_up());
        }
        // The way to its outlet comes before that through a relay.
        let was_relayed = before.as_ref().is_some_and(|before| !before.is_direct);
        let relays = before.as_ref().map_or(0, |before| before.relays);
        let origin = info.relay_advert().map(|advert| advert.origin);
        let origin = origin.filter(|origin| *origin != uid);
        if was_relayed {
            self.push_event(ResolverEvent::Changed(info.clone()));
        }
        let mut found = Found {
            first_seen: before.as_ref().map_or(now, |before| before.first_seen),
            identity: conflicts::Conflicts::identity(&info),
            info,
            sender,
            last_seen: now,
            wave: self.wave,
            text_bytes: xml.len(),
            relays,
            is_direct: true,
            origin,
            hosts: Vec::new(),
        };
        found.note_way(reply, &mut self.ways);
        self.insert(uid.clone(), found, !was_relayed);
        // One that has just come did not answer later.
        let has_twin = before.is_some() && self.look_for_twin(&uid);
        match before {
            Some(_) if has_twin => Received::Changed,
            None => Received::New,
            Some(_) if was_relayed => Received::Changed,
            Some(_) => Received::Refreshed,
        }
    }

    /// Returns the streams found and not forgotten, ordered by uid.
    pub fn results(&mut self, now: f64) -> Vec<StreamInfo> {
        self.forget_silent(now);
        let shown = self.found.values().filter(|found| self.is_shown(found));
        shown.map(|found| found.info.clone()).collect()
    }

    /// Returns the streams found and not forgotten as of the last call, with the time of the last answer.
    pub fn answers(&self) -> impl Iterator<Item = (&StreamInfo, f64)> {
        // What a relay tells of is there as long as it does.
        let last_seen = |found: &Found| match found.relays {
            0 => found.last_seen,
            _ => f64::INFINITY,
        };
        let shown = self.found.values().filter(|found| self.is_shown(found));
        shown.map(move |found| (&found.info, last_seen(found)))
    }

    /// Returns the host that told first of the stream with this uid, as of the last call. It need not be the one that
    /// the answer names, which anybody can make up.
    pub fn sender_of(&self, uid: &[u8]) -> Option<IpAddr> {
        self.found.get(uid).map(|found| found.sender)
    }

    /// Returns when the stream with this uid last answered, as of the last call.
    pub fn last_answer_of(&self, uid: &[u8]) -> Option<f64> {
        self.found.get(uid).map(|found| found.last_seen)
    }

    /// Returns the number of streams found and not forgotten as of the last call.
    pub fn len(&self) -> usize {
        match self.offered_again {
            0 => self.found.len(),
            _ => (self.found.values())
                .filter(|found| self.is_shown(found))
                .count(),
        }
    }

    /// Returns whether no stream is found.
    pub fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// Returns the next event of a continuous search that nobody took yet. Of events that nobody takes only
    /// the newest 65,536 are kept.
    pub fn poll_event(&mut self, now: f64) -> Option<ResolverEvent> {
        // Once for all that wait, as every stream is looked at.
        if self.events.is_empty() {
            self.forget_silent(now);
        }
        self.events.pop_front()
    }

    /// Returns the number of answers that described no stream.
    pub fn invalid(&self) -> u64 {
        self.invalid
    }

    fn remove(&mut self, uid: &[u8]) -> Option<Found> {
        let found = self.found.remove(uid)?;
        if let Some(identity) = &found.identity {
            self.conflicts.remove(identity, uid);
        }
        self.offered_again -= usize::from(found.origin.is_some());
        self.relayed -= usize::from(!found.is_direct);
        self.held.remove(found.text_bytes);
        if let Entry::Occupied(mut of_sender) = self.held_of.entry(found.sender) {
            of_sender.get_mut().remove(found.text_bytes);
            if of_sender.get().streams == 0 {
                of_sender.remove();
            }
        }
        Some(found)
    }

    fn on_refreshed(&mut self, uid: &[u8], changed: Option<StreamInfo>) -> Received {
        let has_twin = self.look_for_twin(uid);
        // Nobody was told of one that is not shown.
        let is_shown = |info: &StreamInfo| {
            let found = self.found.get(info.uid_bytes());
            found.is_some_and(|found| self.is_shown(found))
        };
        let Some(info) = changed.filter(is_shown) else {
            return if has_twin {
                Received::Changed
            } else {
                Received::Refreshed
            };
        };
        self.push_event(ResolverEvent::Changed(info));
        Received::Changed
    }

    /// Returns whether streams were forgotten since the last call: news to those who wait.
    pub fn take_forgotten(&mut self) -> bool {
        std::mem::take(&mut self.has_forgotten)
    }

    fn push_event(&mut self, event: ResolverEvent) {
        if matches!(self.goal, Goal::Continuous { .. }) && !self.is_repeated {
            if self.events.len() >= MAX_RESULTS {
                self.events.pop_front();
            }
            self.events.push_back(event);
        }
    }

    fn forget_silent(&mut self, now: f64) {
        let Goal::Continuous { forget_after_secs } = self.goal else {
            return;
        };
        if now < self.silent_at {
            return;
        }
        let heard = self.last_heard();
        let last_seen = |(uid, found): (&Vec<u8>, &Found)| match heard.get(uid.as_slice()) {
            // Only relays told of it, and one still has it.
            Some(heard) if !found.is_direct => found.last_seen.max(*heard),
            _ => found.last_seen,
        };
        let (mut lost, mut first) = (Vec::new(), f64::INFINITY);
        for (uid, found) in self.found.iter().filter(|(_, found)| found.relays == 0) {
            let last_seen = last_seen((uid, found));
            if now > last_seen + forget_after_secs {
                lost.push((found.origin.is_none(), uid.clone()));
            } else {
                first = first.min(last_seen);
            }
        }
        self.has_forgotten |= !lost.is_empty();
        // What repeats another one first, or it would be shown for a moment.
        lost.sort_unstable();
        for (_, uid) in lost {
            self.lose(&uid);
        }
        // A moment later, as a stream may be silent for so long.
        self.silent_at = (first + forget_after_secs).next_up();
    }

    fn period_secs(&self) -> f64 {
        if let Some(rescue) = &self.rescue {
            return rescue.period_secs;
        }
        let extra = match self.goal {
            Goal::Once { .. } => 0.0,
            Goal::Continuous { .. } => self.times.continuous_interval_secs,
        };
        let period = self.times.multicast_min_rtt_secs + self.times.unicast_min_rtt_secs + extra;
        period.max(SHORTEST_PERIOD_SECS)
    }
}

/// Returns the first time after `now` on the grid that `last` lies on; a suspended host does not catch up.
fn after(last: f64, period: f64, now: f64) -> f64 {
    let next = last + period;
    if next > now { next } else { now + period }
}

/// Replies kept, in bytes of their text; what is made of them takes a few times as much.
const MAX_RESULT_BYTES: usize = 64 << 20;

/// How long a search waits for the outlets of streams that a relay told of: they answer within milliseconds, and
/// samples that come from them directly come sooner.
const OUTLETS_FIRST_SECS: f64 = 0.25;

/// More streams than any network has; fewer than it takes to exhaust memory by lying.
const MAX_RESULTS: usize = 65_536;

/// From one round of unicast queries to the next, when hosts that are new come one after the other.
const SHORTEST_UNICAST_SECS: f64 = 0.1;

/// Keeps a misconfigured resolver from flooding the network.
const SHORTEST_PERIOD_SECS: f64 = 0.01;

mod answering;
mod asking;
mod conflicts;
mod relayed;
mod rescue;
#[cfg(test)]
mod tests;
