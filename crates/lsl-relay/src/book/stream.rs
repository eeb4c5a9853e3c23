//! One stream of the directory: its ways, its session and its place on each face. Spec: relay §2, §6.

use std::sync::{Arc, OnceLock};

use lsl_proto::StreamInfo;
use lsl_proto::describe::{described_by, descriptor};

use super::room::Taken;
use super::{FaceId, Reason};
use crate::id::RelayId;
use crate::rules::Source;

/// How a relay can get a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Way {
    /// From its origin, which is seen on a face.
    Direct(FaceId),
    /// Through the link to a relay.
    Link(RelayId),
    /// From the server where River keeps it.
    River,
}

/// Stage of a stream's life, for status. Spec: relay §2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Nobody reads it.
    Known,
    /// It was asked for.
    Subscribing,
    /// Samples come.
    Flowing,
    /// It is read for a while without readers.
    Linger,
    /// It is asked for by another way.
    Switching,
}

/// A way, and what is known of the stream by it.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) way: Way,
    /// Relays between the origin and us, nearest to the origin first.
    pub(super) path: Arc<[RelayId]>,
    pub(super) info: Arc<StreamInfo>,
    /// Room that the document takes.
    pub(super) place: Option<Taken>,
    /// Whether the origin is seen; false only for a direct way that is kept for its feed.
    pub(super) is_seen: bool,
    /// Feeds that failed since the last that flowed, and when the next may be tried.
    failures: u32,
    pub(super) retry_at: f64,
}

impl Known {
    pub(super) fn new(way: Way, path: Vec<RelayId>, info: StreamInfo) -> Self {
        Self {
            way,
            path: path.into(),
            info: Arc::new(info),
            place: None,
            is_seen: true,
            failures: 0,
            retry_at: 0.0,
        }
    }
}

/// State of the one upstream feed of a stream that is read.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Feed {
    /// There is no way, or the next attempt is not due.
    Waiting,
    Asked(Way),
    Flowing(Way),
}

impl Feed {
    pub(super) fn way(self) -> Option<Way> {
        match self {
            Self::Waiting => None,
            Self::Asked(way) | Self::Flowing(way) => Some(way),
        }
    }
}

/// A stream that is read, or was until a moment ago.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) feed: Feed,
    pub(super) has_flowed: bool,
    pub(super) linger_until: Option<f64>,
    pub(super) wayless_since: Option<f64>,
}

/// A stream on one face.
#[derive(Debug, Clone, Default)]
pub(super) struct Place {
    pub(super) is_offered: bool,
    /// Path and document that were last offered.
    pub(super) offered: Option<(Arc<[RelayId]>, Arc<StreamInfo>)>,
    /// Length of the path and id of another relay that offers it there, and when that was last seen.
    pub(super) rival: Option<(usize, RelayId, f64)>,
}

/// What was last told of a stream.
#[derive(Debug)]
pub(super) struct Told {
    pub(super) way: Way,
    pub(super) source: Source,
    pub(super) path: Arc<[RelayId]>,
    pub(super) info: Arc<StreamInfo>,
    pub(super) revision: u64,
    pub(super) xml: Arc<[u8]>,
}

#[derive(Debug)]
pub(super) struct Stream {
    pub(super) ways: Vec<Known>,
    /// Ways that told of another stream under this uid.
    pub(super) strangers: Vec<Way>,
    /// Way in use, and what the stream was by it; kept while there is none.
    current: (Option<Way>, Arc<[RelayId]>, Arc<StreamInfo>),
    /// Place it comes from by the way in use, or came from by the last one.
    pub(super) source: Source,
    /// A better way, and since when it is that.
    pub(super) better: Option<(Way, f64)>,
    pub(super) session: Option<Session>,
    pub(super) readers: usize,
    /// Whether history and engine keep it.
    pub(super) kept: [bool; 2],
    pub(super) places: Vec<Place>,
    /// Reason for which a way was lost last.
    pub(super) ended: Reason,
    /// When somebody last said that the origin ended.
    ended_at: Option<f64>,
    /// Whether a newer stream of the same source is known.
    pub(super) is_superseded: bool,
    /// What its DESCRIPTOR says, which never changes, for those who are bound to streams.
    shape: OnceLock<Option<StreamInfo>>,
    /// Whether rights must be looked at again.
    pub(super) rights_changed: bool,
    pub(super) told: Option<Told>,
    /// When changes are told.
    pub(super) change_due: Option<f64>,
    /// Bits of the time of its entry in the book's wakes.
    pub(super) wake: Option<u64>,
}

impl Stream {
    pub(super) fn new(known: Known, faces: usize) -> Self {
        Self {
            current: (None, Arc::clone(&known.path), Arc::clone(&known.info)),
            ways: vec![known],
            strangers: Vec::new(),
            source: Source::Local,
            better: None,
            session: None,
            readers: 0,
            kept: [false; 2],
            places: vec![Place::default(); faces],
            ended: Reason::Lost,
            ended_at: None,
            is_superseded: false,
            shape: OnceLock::new(),
            rights_changed: false,
            told: None,
            change_due: None,
            wake: None,
        }
    }

    pub(super) fn shape(&self) -> Option<&StreamInfo> {
        let shape = || described_by(&descriptor(self.info()));
        self.shape.get_or_init(shape).as_ref()
    }

    pub(super) fn way(&self) -> Option<Way> {
        self.current.0
    }

    pub(super) fn path(&self) -> &Arc<[RelayId]> {
        &self.current.1
    }

    pub(super) fn info(&self) -> &Arc<StreamInfo> {
        &self.current.2
    }

    /// Takes over the way that is used from now on, or loses it. An equal document stays the same one, as what was
    /// told is not told again.
    pub(super) fn use_way(&mut self, way: Option<Way>) {
        self.current.0 = way;
        let known = self.ways.iter().find(|known| Some(known.way) == way);
        if let Some(known) = known {
            self.current.1 = Arc::clone(&known.path);
            if !Arc::ptr_eq(&known.info, self.info()) && known.info.to_xml() != self.info().to_xml()
            {
                self.current.2 = Arc::clone(&known.info);
            }
        }
    }

    /// Returns the field by which a way is none to this stream. What is read by one way goes out under the document
    /// of another, so all must tell of the same stream; one that was known first is believed. Spec: relay §2.
    pub(super) fn differs_from(&self, known: &Known) -> Option<&'static str> {
        let is_same = Arc::ptr_eq(&known.info, self.info());
        let differs = || descriptor(&known.info).differs_from(&descriptor(self.info()));
        (!is_same).then(differs).flatten()
    }

    pub(super) fn known_mut(&mut self, way: Way) -> Option<&mut Known> {
        self.ways.iter_mut().find(|known| known.way == way)
    }

    /// Adds a way, or renews what is known by it.
    pub(super) fn set_way(&mut self, new: Known) {
        match self.known_mut(new.way) {
            None => self.ways.push(new),
            Some(known) => {
                known.is_seen = true;
                known.path = new.path;
                known.info = new.info;
                known.place = new.place;
            }
        }
        if self.way().is_some() {
            self.use_way(self.way());
        }
    }

    pub(super) fn has_way(&self, way: Way) -> bool {
        self.ways.iter().any(|known| known.way == way)
    }

    /// Removes a way; false if it was not there.
    pub(super) fn remove_way(&mut self, way: Way) -> bool {
        let before = self.ways.len();
        self.ways.retain(|known| known.way != way);
        self.ways.len() < before
    }

    /// Notes why a way was lost. An end is remembered for [`END_SECS`]: others, which have not heard of it, may
    /// still announce and withdraw the stream.
    pub(super) fn lost_way(&mut self, reason: Reason, now: f64) {
        if reason == Reason::Ended {
            self.ended_at = Some(now);
        }
        let has_ended = self.ended_at.is_some_and(|at| now < at + END_SECS);
        self.ended = if has_ended { Reason::Ended } else { reason };
    }

    pub(super) fn feed_up(&mut self, way: Way) {
        if let Some(session) = &mut self.session
            && session.feed == Feed::Asked(way)
        {
            session.feed = Feed::Flowing(way);
            session.has_flowed = true;
            if let Some(known) = self.known_mut(way) {
                known.failures = 0;
            }
        }
    }

    pub(super) fn feed_lost(&mut self, way: Way, now: f64) {
        if let Some(session) = &mut self.session
            && session.feed.way() == Some(way)
        {
            session.feed = Feed::Waiting;
            if let Some(known) = self.known_mut(way) {
                let doublings = i32::try_from(known.failures.min(10)).unwrap_or(0);
                known.failures += 1;
                known.retry_at = now + (0.5 * 2_f64.powi(doublings)).min(10.0);
            }
        }
    }

    pub(super) fn is_flowing(&self) -> bool {
        let session = self.session.as_ref();
        session.is_some_and(|session| matches!(session.feed, Feed::Flowing(_)))
    }

    pub(super) fn stage(&self) -> Stage {
        match &self.session {
            None => Stage::Known,
            Some(session) if session.linger_until.is_some() => Stage::Linger,
            Some(session) if matches!(session.feed, Feed::Flowing(_)) => Stage::Flowing,
            Some(session) if session.has_flowed => Stage::Switching,
            Some(_) => Stage::Subscribing,
        }
    }

    /// Whether the origin is seen on a face.
    pub(super) fn is_visible(&self, face: FaceId) -> bool {
        let way = Way::Direct(face);
        self.ways
            .iter()
            .any(|known| known.way == way && known.is_seen)
    }

    /// Notes another relay's outlet on a face; of several the one that offers first counts.
    pub(super) fn note_rival(&mut self, face: FaceId, (hops, id): (usize, RelayId), now: f64) {
        if let Some(place) = self.places.get_mut(face.0) {
            let is_first = place
                .rival
                .is_none_or(|(other_hops, other, _)| (hops, id) <= (other_hops, other));
            let is_known = place.rival.is_some_and(|(_, other, _)| other == id);
            if is_first || is_known {
                place.rival = Some((hops, id, now));
            }
        }
    }
}

/// Whether two infos are of one device: the newer one is a restart of the older.
pub(super) fn is_same_source(one: &StreamInfo, other: &StreamInfo) -> bool {
    !one.source_id_bytes().is_empty()
        && one.source_id_bytes() == other.source_id_bytes()
        && one.name_bytes() == other.name_bytes()
        && one.stream_type_bytes() == other.stream_type_bytes()
        && one.hostname_bytes() == other.hostname_bytes()
}

/// Time in seconds for which the end of an origin outweighs what others say of it.
const END_SECS: f64 = 5.0;
