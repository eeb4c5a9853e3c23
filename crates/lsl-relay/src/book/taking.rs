//! Takes over ways to streams, or refuses them. Spec: relay §2, §5.1, §6.

use std::cell::OnceCell;

use lsl_proto::StreamInfo;
use lsl_proto::describe::{described_by, descriptor};

use super::stream::{self, Known, Stream};
use super::{Book, BookEvent, Reason, Refusal, Uid, Way};
use crate::document::{Provenance, bare};
use crate::id::RelayId;
use crate::rules::{Reader, selects};

impl Book {
    /// Takes an announcement of a link. What comes round in a loop, from too far, or is not to be imported is
    /// dropped, and withdraws what was announced before.
    pub fn announced(&mut self, link: RelayId, uid: &str, info: StreamInfo, now: f64) {
        if let Some((path, info)) = self.usable(link, uid, info) {
            let known = Known::new(Way::Link(link), path, info);
            self.known(uid.into(), known, now);
        } else {
            self.withdrawn(link, uid, Reason::Lost, now);
        }
    }

    /// Returns path and document of a stream that is told of by a link, if it may be taken from there.
    pub fn usable(
        &self,
        link: RelayId,
        uid: &str,
        info: StreamInfo,
    ) -> Option<(Vec<RelayId>, StreamInfo)> {
        let path = Provenance::of(&info).filter(|provenance| provenance.origin == uid);
        let path = path.map_or_else(Vec::new, |provenance| provenance.path);
        let is_usable = path.last() == Some(&link)
            && path.len() < self.settings.max_hops
            && !path.contains(&self.own)
            && self.links.contains_key(&link)
            && info.uid_bytes() == uid.as_bytes()
            && self.may_serve(link, &info)
            && selects(self.settings.import.as_ref(), &info);
        is_usable.then(|| (path, bare(info)))
    }

    /// Takes what a link says of a stream that it was asked for again, unless it has said more since.
    pub fn announced_again(
        &mut self,
        link: RelayId,
        uid: &Uid,
        info: Option<StreamInfo>,
        now: f64,
    ) {
        if self.room.forget(uid, Way::Link(link))
            && let Some(info) = info
        {
            self.announced(link, uid, info, now);
        }
    }

    /// Takes the end of an announcement.
    pub fn withdrawn(&mut self, link: RelayId, uid: &str, reason: Reason, now: f64) {
        self.room.forget(&uid.into(), Way::Link(link));
        self.change(uid, now, |stream| {
            if stream.remove_way(Way::Link(link)) {
                stream.lost_way(reason, now);
            }
        });
    }

    /// Whether the key of a link's relay is one for this stream: it serves no others.
    pub fn may_serve(&self, link: RelayId, info: &StreamInfo) -> bool {
        let key = self.links.get(&link).and_then(|facts| facts.key);
        let shape = OnceCell::new();
        let shape = || {
            let shape = shape.get_or_init(|| described_by(&descriptor(info)));
            shape.as_ref()
        };
        key.is_none_or(|key| self.bounds.cover(Reader::Key(key), shape))
    }

    /// Adds or changes a way; a stream that is new supersedes those of the same source.
    pub(super) fn known(&mut self, uid: Uid, mut known: Known, now: f64) {
        if uid.is_empty() {
            return;
        }
        let way = known.way;
        let was_asked = self.room.forget(&uid, way);
        if let Some(stream) = self.streams.get_mut(&uid) {
            if let Some(before) = stream.known_mut(way) {
                before.place = None;
            }
            stream.strangers.retain(|stranger| *stranger != way);
            let place = match stream.differs_from(&known) {
                Some(field) => {
                    stream.strangers.push(way);
                    Err(Refusal::Differs(field))
                }
                None => self.room.take(way, &known.info, None),
            };
            match place {
                Ok(place) => {
                    known.place = Some(place);
                    stream.set_way(known);
                }
                Err(why) => {
                    if stream.remove_way(way) {
                        stream.lost_way(Reason::Lost, now);
                    }
                    self.refuse(uid.clone(), way, why);
                }
            }
            return self.review(&uid, now);
        }
        let streams = (self.streams.len(), self.settings.streams);
        match self.room.take(way, &known.info, Some(streams)) {
            Ok(place) => known.place = Some(place),
            Err(why) => return self.refuse(uid, way, why),
        }
        let same = self.streams.iter_mut();
        let same = same.filter(|(_, it)| stream::is_same_source(it.info(), &known.info));
        let mut superseded = Vec::new();
        for (old, stream) in same {
            stream.is_superseded = true;
            superseded.push(old.clone());
        }
        let faces = self.settings.faces;
        self.streams.insert(uid.clone(), Stream::new(known, faces));
        for old in superseded {
            self.review(&old, now);
        }
        self.review(&uid, now);
        if was_asked {
            self.ask_more();
        }
    }

    /// Asks again for streams that found no room, if there is some.
    pub(super) fn ask_more(&mut self) {
        let places = self.settings.streams.saturating_sub(self.streams.len());
        let next = self.room.next(places).into_iter();
        let next = next.map(|(uid, way)| BookEvent::Ask { uid, way });
        self.events.extend(next);
    }

    fn refuse(&mut self, uid: Uid, way: Way, why: Refusal) {
        if !matches!(why, Refusal::Differs(_)) {
            self.room.wait(uid.clone(), way, self.settings.streams);
        }
        self.events.push_back(BookEvent::Refused { uid, way, why });
    }
}
