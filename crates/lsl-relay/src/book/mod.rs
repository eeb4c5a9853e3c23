//! Directory of a relay: streams, the ways to them, and who is told of them. Spec: relay §2, §5, §6.
//!
//! Facts come in (seen on a face, announced by a link, a feed began or ended, a reader came), and after each of
//! them the stream is reviewed: which way is used, whether it is read, where it is offered, what is announced.
//! Drain [`Book::poll_event`] after each call.

mod event;
mod review;
mod room;
mod stream;
mod taking;
#[cfg(test)]
mod tests;

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use lsl_proto::StreamInfo;
use lsl_proto::describe::{described_by, descriptor};
use lsl_proto::query::Query;
use lsl_secure::Fingerprint;

use crate::document::{Provenance, bare, write, write_whole};
use crate::id::RelayId;
use crate::rules::{Bounds, Reader, Rule, Rules, Source, selects};

pub use event::BookEvent;
pub use room::Refusal;
pub use stream::{Stage, Way};

use room::Room;
use stream::{Known, Stream};

/// Uid of a stream's origin.
pub type Uid = Arc<str>;

/// Number of a local face.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FaceId(pub usize);

/// Number of somebody who watches the directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WatcherId(pub u64);

/// Reason for which a stream is told of no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// Its origin ended.
    Ended,
    /// No way leads to it.
    Lost,
    /// The asker may not read it any more, or is the way to it.
    Hidden,
}

/// Settings of a directory.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Most relays that an accepted path may have, this one included.
    pub max_hops: usize,
    /// Time in seconds for which a stream without readers is read on.
    pub linger_secs: f64,
    /// Most streams that are known.
    pub streams: usize,
    /// Number of faces.
    pub faces: usize,
    /// Whether streams are offered on faces.
    pub reoffer: bool,
    /// Whether there is a history, and an engine, that rules may send streams to.
    pub keeps: [bool; 2],
    /// Streams that links may see, within the rules; `None`: all.
    pub publish: Option<Query>,
    /// Streams that are taken from links; `None`: all.
    pub import: Option<Query>,
    /// Who may read what.
    pub rules: Rules,
}

/// Somebody who asks for streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asker {
    /// Rights of the asker.
    pub reader: Reader,
    /// Relay of the link it came through; `None` for clients.
    pub link: Option<RelayId>,
}

/// Somebody who watches the directory.
#[derive(Debug, Clone)]
pub struct Watch {
    /// Rights and link of the asker.
    pub asker: Asker,
    /// Predicate on the full document; `None`: every stream.
    pub query: Option<Query>,
}

/// Directory of one relay.
#[derive(Debug)]
pub struct Book {
    own: RelayId,
    settings: Settings,
    bounds: Bounds,
    streams: BTreeMap<Uid, Stream>,
    room: Room,
    links: BTreeMap<RelayId, LinkFacts>,
    watchers: BTreeMap<WatcherId, Watcher>,
    /// Times at which streams are reviewed again, as bits; times are not negative.
    wakes: BTreeSet<(u64, Uid)>,
    /// Time in seconds after which an unseen outlet of another relay is silent.
    silence_secs: f64,
    revision: u64,
    events: VecDeque<BookEvent>,
}

#[derive(Debug, Clone, Copy)]
struct LinkFacts {
    key: Option<Fingerprint>,
    /// Round trip in steps of [`RTT_STEP_SECS`]; the highest while it is not known.
    rtt_step: u32,
}

#[derive(Debug)]
struct Watcher {
    watch: Watch,
    /// Revision of each stream that it was told of.
    told: HashMap<Uid, u64>,
}

impl Book {
    /// Creates the empty directory of the relay `own`.
    pub fn new(own: RelayId, settings: Settings) -> Self {
        Self {
            own,
            settings,
            bounds: Bounds::default(),
            streams: BTreeMap::new(),
            room: Room::new(),
            links: BTreeMap::new(),
            watchers: BTreeMap::new(),
            wakes: BTreeSet::new(),
            silence_secs: SILENCE_SECS,
            revision: 0,
            events: VecDeque::new(),
        }
    }

    /// Replaces settings and rules. The number of faces stays. Feeds of those who may read no more are the
    /// driver's to end: see [`Book::may_read`].
    pub fn set_settings(&mut self, settings: Settings, now: f64) {
        let faces = self.settings.faces;
        self.settings = Settings { faces, ..settings };
        self.rights_changed(now);
        self.ask_more();
    }

    /// Replaces what keys are bound to. Returns `None` if nothing changed, else whether the directories of links are
    /// to be read anew.
    pub fn set_bounds(&mut self, bounds: Bounds, now: f64) -> Option<bool> {
        if self.bounds == bounds {
            return None;
        }
        let mut keys = self.links.values().filter_map(|link| link.key);
        let of_links = keys.any(|key| !self.bounds.is_alike(&bounds, key));
        self.bounds = bounds;
        self.rights_changed(now);
        Some(of_links)
    }

    fn rights_changed(&mut self, now: f64) {
        for uid in self.streams.keys().cloned().collect::<Vec<_>>() {
            if let Some(stream) = self.streams.get_mut(&uid) {
                stream.rights_changed = true;
            }
            self.review(&uid, now);
        }
    }

    /// Sets the time between the waves of searches on faces; an outlet of another relay is silent after 5 s or
    /// three waves, whichever is longer.
    pub fn set_wave_secs(&mut self, secs: f64) {
        self.silence_secs = SILENCE_SECS.max(3.0 * secs);
    }

    /// Notes an outlet seen on a face, with its full document. Call it in every wave for outlets with an
    /// `lsl_relay` element: silence is told by their absence.
    pub fn seen(&mut self, face: FaceId, info: StreamInfo, now: f64) {
        if let Some(provenance) = Provenance::of(&info) {
            // Never a source, but perhaps an outlet that stands where ours would.
            let Some(offerer) = provenance.path.last().filter(|id| **id != self.own) else {
                return;
            };
            let rival = (provenance.path.len(), *offerer);
            let uid: Uid = provenance.origin.into();
            if let Some(stream) = self.streams.get_mut(&uid) {
                stream.note_rival(face, rival, now);
                self.review(&uid, now);
            }
            return;
        }
        let uid: Uid = info.uid().into();
        let known = Known::new(Way::Direct(face), Vec::new(), bare(info));
        self.known(uid, known, now);
    }

    /// Notes that an outlet was not seen on a face for three waves.
    pub fn unseen(&mut self, face: FaceId, uid: &str, now: f64) {
        let way = Way::Direct(face);
        self.room.forget(&uid.into(), way);
        self.change(uid, now, |stream| {
            if let Some(known) = stream.known_mut(way) {
                known.is_seen = false;
                stream.lost_way(Reason::Ended, now);
            }
        });
    }

    /// Returns how many streams of others there may be.
    pub fn most_streams(&self) -> usize {
        self.settings.streams
    }

    /// Notes a stream that River keeps; `writer` is the relay that it has it from. What a relay writes never comes back to
    /// it: it would not end.
    pub fn stored(&mut self, info: StreamInfo, writer: Option<RelayId>, now: f64) {
        let uid: Uid = info.uid().into();
        let known = Known::new(Way::River, Vec::from_iter(writer), bare(info));
        self.known(uid, known, now);
    }

    /// Notes that a stream that River keeps ended, or is not to be offered any more.
    pub fn unstored(&mut self, uid: &str, reason: Reason, now: f64) {
        let way = Way::River;
        self.room.forget(&uid.into(), way);
        self.change(uid, now, |stream| {
            if stream.remove_way(way) {
                stream.lost_way(reason, now);
            }
        });
    }

    /// Notes that a link is up; `key` is that of its relay.
    pub fn link_up(&mut self, link: RelayId, key: Option<Fingerprint>, now: f64) {
        self.link_down(link, now);
        let rtt_step = u32::MAX;
        self.links.insert(link, LinkFacts { key, rtt_step });
    }

    /// Notes that a link is down: its ways are lost and its watchers gone.
    pub fn link_down(&mut self, link: RelayId, now: f64) {
        if self.links.remove(&link).is_none() {
            return;
        }
        self.watchers
            .retain(|_, watcher| watcher.watch.asker.link != Some(link));
        self.lose_ways(link, now);
    }

    /// Notes that the directory of a link began anew: what it said before holds no more.
    pub fn lose_ways(&mut self, link: RelayId, now: f64) {
        let way = Way::Link(link);
        self.room.forget_way(way);
        for uid in self.streams_by(|stream| stream.has_way(way)) {
            self.change(&uid, now, |stream| {
                stream.remove_way(way);
                stream.lost_way(Reason::Lost, now);
            });
        }
    }

    /// Notes the round trip of a link in seconds.
    pub fn set_rtt(&mut self, link: RelayId, secs: f64, now: f64) {
        // The number is small and not negative, or it is clamped.
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "clamped to the range"
        )]
        let rtt_step = (secs / RTT_STEP_SECS).clamp(0.0, 1e6) as u32;
        let Some(facts) = self.links.get_mut(&link) else {
            return;
        };
        if std::mem::replace(&mut facts.rtt_step, rtt_step) != rtt_step {
            let way = Way::Link(link);
            for uid in self.streams_by(|stream| stream.ways.len() > 1 && stream.has_way(way)) {
                self.change(&uid, now, |_| {});
            }
        }
    }

    fn streams_by(&self, selects: impl Fn(&Stream) -> bool) -> Vec<Uid> {
        let streams = self.streams.iter();
        let streams = streams.filter(|(_, stream)| selects(stream));
        streams.map(|(uid, _)| Uid::clone(uid)).collect()
    }

    /// Notes that a feed by this way began. Late news of another way is ignored.
    pub fn feed_up(&mut self, uid: &str, way: Way, now: f64) {
        self.change(uid, now, |stream| stream.feed_up(way));
    }

    /// Notes that a feed by this way ended or was refused. Late news of another way is ignored.
    pub fn feed_lost(&mut self, uid: &str, way: Way, now: f64) {
        self.change(uid, now, |stream| stream.feed_lost(way, now));
    }

    /// Notes a new reader: a client, a substream, or a listener of a re-offered outlet.
    pub fn reader_joined(&mut self, uid: &str, now: f64) {
        self.change(uid, now, |stream| stream.readers += 1);
    }

    /// Notes that a reader left.
    pub fn reader_left(&mut self, uid: &str, now: f64) {
        self.change(uid, now, |stream| {
            stream.readers = stream.readers.saturating_sub(1);
        });
    }

    /// Adds somebody who watches, and tells of all streams that are known.
    pub fn watch(&mut self, id: WatcherId, watch: Watch) {
        let told = HashMap::new();
        self.watchers.insert(id, Watcher { watch, told });
        for uid in self.streams.keys().cloned().collect::<Vec<_>>() {
            self.tell(&uid, Some(id));
        }
        self.events.push_back(BookEvent::Synced(id));
    }

    /// Removes somebody who watched.
    pub fn unwatch(&mut self, id: WatcherId) {
        self.watchers.remove(&id);
    }

    /// Whether a watcher was told of a stream that it still may know of.
    pub fn is_told(&self, id: WatcherId, uid: &str) -> bool {
        let watcher = self.watchers.get(&id);
        watcher.is_some_and(|watcher| {
            watcher.told.contains_key(uid) && self.may_read(uid, watcher.watch.asker)
        })
    }

    /// Whether somebody may read a stream: what is unknown may nobody read, and a link neither what is not
    /// published nor what comes from it.
    pub fn may_read(&self, uid: &str, asker: Asker) -> bool {
        let stream = self.streams.get(uid);
        stream.is_some_and(|stream| {
            let rule = self.settings.rules.decide(stream.info(), stream.source);
            self.is_open(stream, rule, (stream.info(), stream.way()), asker)
        })
    }

    /// Whether somebody may read a stream that only history has.
    pub fn may_read_past(&self, info: &StreamInfo, Asker { reader, link }: Asker) -> bool {
        let shape = || described_by(&descriptor(info));
        let shape = OnceCell::from(shape());
        (link.is_none() || selects(self.settings.publish.as_ref(), info))
            && self.settings.rules.may_read_past(info, reader)
            && self.bounds.cover(reader, || shape.get()?.as_ref())
    }

    /// Whether a stream with this rule, document and way may be known to somebody.
    fn is_open(
        &self,
        stream: &Stream,
        rule: &Rule,
        (info, way): (&StreamInfo, Option<Way>),
        Asker { reader, link }: Asker,
    ) -> bool {
        let is_published =
            |link| way != Some(Way::Link(link)) && selects(self.settings.publish.as_ref(), info);
        link.is_none_or(is_published)
            && rule.may_read(reader)
            && self.bounds.cover(reader, || stream.shape())
    }

    /// Returns the document of a stream, as its origin wrote it.
    pub fn info(&self, uid: &str) -> Option<&Arc<StreamInfo>> {
        self.streams.get(uid).map(Stream::info)
    }

    /// Returns the document of a stream to those who ask for all of it, also a description that directories are not
    /// told.
    pub fn whole_document(&self, uid: &str) -> Option<Vec<u8>> {
        let stream = self.streams.get(uid)?;
        let path: Vec<_> = stream.path().iter().copied().chain([self.own]).collect();
        Some(write_whole(stream.info(), &path))
    }

    /// Returns the document of a stream as others are given it, with the path and this relay last.
    pub fn document(&self, uid: &str) -> Option<Vec<u8>> {
        let stream = self.streams.get(uid)?;
        // What was told is mostly what is so.
        let told = stream
            .told
            .as_ref()
            .filter(|told| Arc::ptr_eq(&told.info, stream.info()) && told.path == *stream.path());
        if let Some(told) = told {
            return Some(told.xml.to_vec());
        }
        let path: Vec<_> = stream.path().iter().copied().chain([self.own]).collect();
        Some(write(stream.info(), &path))
    }

    /// Returns the way in use, or the last one.
    pub fn way(&self, uid: &str) -> Option<Way> {
        self.streams.get(uid).and_then(Stream::way)
    }

    /// Returns all streams with their stage and way, for status. Ways have hops: see [`Book::hops`].
    pub fn streams(&self) -> impl ExactSizeIterator<Item = (&Uid, Stage, Option<Way>)> {
        let streams = self.streams.iter();
        streams.map(|(uid, stream)| (uid, stream.stage(), stream.way()))
    }

    /// Returns the relays between the origin and this one, on the way in use.
    pub fn hops(&self, uid: &str) -> usize {
        self.streams
            .get(uid)
            .map_or(0, |stream| stream.path().len())
    }

    /// Returns what happened next; drain it after each call.
    pub fn poll_event(&mut self) -> Option<BookEvent> {
        self.events.pop_front()
    }

    /// Returns when to call [`Book::handle_timeout`].
    pub fn poll_timeout(&self) -> Option<f64> {
        self.wakes.first().map(|(at, _)| f64::from_bits(*at))
    }

    /// Reviews the streams whose time has come, 64 of them at the most: others wait for the directory.
    pub fn handle_timeout(&mut self, now: f64) {
        for _ in 0..MOST_REVIEWS {
            let due = self
                .wakes
                .first()
                .filter(|(at, _)| f64::from_bits(*at) <= now);
            let Some((at, uid)) = due.cloned() else {
                return;
            };
            self.wakes.remove(&(at, uid.clone()));
            self.review(&uid, now);
        }
    }

    /// Applies facts to a known stream, and reviews it.
    fn change(&mut self, uid: &str, now: f64, apply: impl FnOnce(&mut Stream)) {
        let Some(uid) = self.streams.get_key_value(uid).map(|(uid, _)| uid.clone()) else {
            return;
        };
        if let Some(stream) = self.streams.get_mut(&uid) {
            apply(stream);
        }
        self.review(&uid, now);
    }

    fn source(&self, way: Way) -> Source {
        match way {
            Way::Link(link) => Source::Link(self.links.get(&link).and_then(|facts| facts.key)),
            Way::Direct(_) => Source::Local,
            Way::River => Source::River,
        }
    }
}

/// Streams that are reviewed at a time.
const MOST_REVIEWS: usize = 64;

/// Width of the steps in which round trips of links are compared, in seconds.
const RTT_STEP_SECS: f64 = 0.008;

/// Time in seconds without a sign of another relay's outlet after which ours takes over.
const SILENCE_SECS: f64 = 5.0;
