//! Decisions about one stream after its facts changed or its time came. Spec: relay §2, §5.1, §6.

use std::sync::Arc;

use super::stream::{Feed, Session, Stream, Told, Way};
use super::{Book, BookEvent, FaceId, Reason, Uid, Watch, WatcherId};
use crate::document;
use crate::id::RelayId;
use crate::rules::selects_for_peer;

impl Book {
    /// Brings everything that depends on a stream's facts up to date.
    pub(super) fn review(&mut self, uid: &Uid, now: f64) {
        let Some(mut stream) = self.streams.remove(uid) else {
            return;
        };
        if let Some(at) = stream.wake.take() {
            self.wakes.remove(&(at, uid.clone()));
        }
        let mut wake = Wake(None);
        self.choose_way(uid, &mut stream, now, &mut wake);
        self.read(uid, &mut stream, now, &mut wake);
        if let Some(reason) = end_of(&stream, now) {
            return self.forget(uid, &stream, reason);
        }
        self.offer(uid, &mut stream, now, &mut wake);
        let is_due = self.note_change(uid, &mut stream, now, &mut wake);
        stream.wake = wake.0.map(f64::to_bits);
        if let Some(at) = stream.wake {
            self.wakes.insert((at, uid.clone()));
        }
        self.streams.insert(uid.clone(), stream);
        if is_due {
            self.tell(uid, None);
        }
    }

    /// Direct first, then fewest hops, then the round trip in steps, then the smallest relay; what failed just
    /// now comes last.
    fn rank(&self, stream: &Stream, way: Way, now: f64) -> Rank {
        let known = stream.ways.iter().find(|known| known.way == way);
        let hops = known.map_or(usize::MAX, |known| known.path.len());
        let has_failed = known.is_none_or(|known| known.retry_at > now);
        match way {
            Way::Direct(FaceId(face)) => (has_failed, 0, 0, face as u64),
            // All others are there earlier.
            Way::River => (has_failed, usize::MAX, u32::MAX, u64::MAX),
            Way::Link(RelayId(id)) => {
                let step = self
                    .links
                    .get(&RelayId(id))
                    .map_or(u32::MAX, |link| link.rtt_step);
                (has_failed, hops, step, id)
            }
        }
    }

    fn choose_way(&mut self, uid: &Uid, stream: &mut Stream, now: f64, wake: &mut Wake) {
        // A direct way outlives its last sight only as long as its feed flows.
        let fed = stream
            .session
            .as_ref()
            .and_then(|session| match session.feed {
                Feed::Flowing(way) => Some(way),
                _ => None,
            });
        stream
            .ways
            .retain(|known| known.is_seen || fed == Some(known.way));
        let ranked = stream
            .ways
            .iter()
            .map(|known| (self.rank(stream, known.way, now), known.way));
        let best = ranked.min();
        let current = stream.way();
        let is_current = |way: &Way| stream.ways.iter().any(|known| known.way == *way);
        let next = match (current.filter(is_current), best) {
            (_, None) => None,
            (None, Some((_, best))) => Some(best),
            (Some(way), Some((rank, best))) => {
                let own = self.rank(stream, way, now);
                if rank >= own {
                    stream.better = None;
                    Some(way)
                } else if own.0 && !rank.0 {
                    Some(best)
                } else {
                    let since = stream.better.filter(|(known, _)| *known == best);
                    let since = since.map_or(now, |(_, since)| since);
                    stream.better = Some((best, since));
                    if now >= since + STEADY_SECS {
                        Some(best)
                    } else {
                        wake.at(since + STEADY_SECS);
                        Some(way)
                    }
                }
            }
        };
        if let Some(way) = next {
            stream.source = self.source(way);
        }
        if next != current {
            stream.better = None;
            stream.use_way(next);
            let uid = uid.clone();
            self.events
                .push_back(BookEvent::WayChanged { uid, way: next });
        }
    }

    /// Subscribes, switches, lingers and unsubscribes.
    fn read(&mut self, uid: &Uid, stream: &mut Stream, now: f64, wake: &mut Wake) {
        let rule = self.settings.rules.decide(stream.info(), stream.source);
        let [history, engine] = self.settings.keeps;
        let [_, was_stored] = stream.kept;
        let engine = match stream.way() {
            // The engine has what comes from it.
            Some(Way::River) => false,
            Some(_) => engine,
            None => engine && was_stored,
        };
        let kept = [history && rule.history, engine && rule.engine];
        if stream.kept != kept {
            stream.kept = kept;
            let (uid, by) = (uid.clone(), kept);
            self.events.push_back(BookEvent::Keep { uid, by });
        }
        let is_wanted = stream.readers > 0 || kept.contains(&true);
        let way = stream.way();
        if stream.session.is_none() && is_wanted && way.is_some() {
            stream.session = Some(Session {
                feed: Feed::Waiting,
                has_flowed: false,
                linger_until: None,
                wayless_since: None,
            });
        }
        let Some(session) = &mut stream.session else {
            return;
        };
        if is_wanted {
            session.linger_until = None;
        } else {
            let linger = self.settings.linger_secs;
            let until = *session.linger_until.get_or_insert(now + linger);
            if now >= until || !session.has_flowed {
                stream.session = None;
                self.events.push_back(BookEvent::Unsubscribe(uid.clone()));
                return;
            }
            wake.at(until);
        }
        session.wayless_since = match way {
            Some(_) => None,
            None => session.wayless_since.or(Some(now)),
        };
        if let Some(since) = session.wayless_since {
            wake.at(since + WAYLESS_SECS);
        }
        if session.feed.way() == way && way.is_some() {
            return;
        }
        session.feed = Feed::Waiting;
        let known = way.and_then(|way| stream.ways.iter().find(|known| known.way == way));
        if let Some(known) = known {
            if known.retry_at > now {
                wake.at(known.retry_at);
            } else {
                session.feed = Feed::Asked(known.way);
                let (uid, way) = (uid.clone(), known.way);
                self.events.push_back(BookEvent::Subscribe { uid, way });
            }
        }
    }

    /// Offers the stream where its origin is not seen and nobody else offers it first.
    fn offer(&mut self, uid: &Uid, stream: &mut Stream, now: f64, wake: &mut Wake) {
        let rule = self.settings.rules.decide(stream.info(), stream.source);
        let is_allowed = self.settings.reoffer
            && rule.offers()
            && (!stream.is_superseded || stream.is_flowing());
        let own = (stream.path().len() + 1, self.own);
        let (path, info) = (Arc::clone(stream.path()), Arc::clone(stream.info()));
        for face in (0..stream.places.len()).map(FaceId) {
            let is_visible = stream.is_visible(face);
            let has_way = stream.way().is_some();
            let Some(place) = stream.places.get_mut(face.0) else {
                continue;
            };
            if let Some((_, _, last)) = place.rival {
                if now >= last + self.silence_secs {
                    place.rival = None;
                } else {
                    wake.at(last + self.silence_secs);
                }
            }
            let is_first = place.rival.is_none_or(|(hops, id, _)| own < (hops, id));
            // While there is no way, the outlet stays as it is: readers see a pause.
            let is_offered = is_allowed && !is_visible && is_first && (has_way || place.is_offered);
            let is_news = std::mem::replace(&mut place.is_offered, is_offered) != is_offered;
            let is_told = (place.offered.as_ref())
                .is_some_and(|told| told.0 == path && Arc::ptr_eq(&told.1, &info));
            if is_news || is_offered && !is_told {
                place.offered = is_offered.then(|| (Arc::clone(&path), Arc::clone(&info)));
                let uid = uid.clone();
                self.events.push_back(if is_offered {
                    BookEvent::Offer { face, uid }
                } else {
                    BookEvent::Unoffer { face, uid }
                });
            }
        }
    }

    /// Whether changes of a stream are to be told now; they are gathered for [`MERGE_SECS`].
    fn note_change(&mut self, uid: &Uid, stream: &mut Stream, now: f64, wake: &mut Wake) -> bool {
        let has_changed = match (&stream.told, stream.way()) {
            (None, None) => false,
            (Some(told), Some(way)) => {
                told.way != way
                    || told.path != *stream.path()
                    || !Arc::ptr_eq(&told.info, stream.info())
            }
            _ => true,
        };
        if !has_changed && !stream.rights_changed {
            stream.change_due = None;
            return false;
        }
        let due = *stream.change_due.get_or_insert(now + MERGE_SECS);
        if now < due {
            wake.at(due);
            return false;
        }
        stream.change_due = None;
        stream.rights_changed = false;
        if has_changed {
            let before = stream.told.as_ref();
            if before.is_some_and(|told| !Arc::ptr_eq(&told.info, stream.info())) {
                self.events.push_back(BookEvent::Changed(uid.clone()));
            }
            self.revision += 1;
            let mut path = stream.path().to_vec();
            path.push(self.own);
            stream.told = stream.way().map(|way| Told {
                way,
                source: stream.source,
                path: Arc::clone(stream.path()),
                info: Arc::clone(stream.info()),
                revision: self.revision,
                xml: document::write(stream.info(), &path).into(),
            });
        }
        true
    }

    /// Brings watchers up to date about one stream: the one named, or all.
    pub(super) fn tell(&mut self, uid: &Uid, only: Option<WatcherId>) {
        let Some(stream) = self.streams.get(uid) else {
            return;
        };
        // One look at the rules for all watchers.
        let told = stream.told.as_ref();
        let told = told.map(|it| (it, self.settings.rules.decide(&it.info, it.source)));
        let mut watchers = std::mem::take(&mut self.watchers);
        let mut events = std::mem::take(&mut self.events);
        for (id, watcher) in &mut watchers {
            if only.is_some_and(|only| only != *id) {
                continue;
            }
            let Watch { asker, query } = &watcher.watch;
            let visible = told.filter(|(told, rule)| {
                self.is_open(stream, rule, (&told.info, Some(told.way)), *asker)
                    && selects_for_peer(query.as_ref(), &told.info)
            });
            let before = watcher.told.get(uid).copied();
            let watcher_id = *id;
            if let Some((told, _)) = visible {
                if before != Some(told.revision) {
                    watcher.told.insert(uid.clone(), told.revision);
                    events.push_back(BookEvent::Announce {
                        watcher: watcher_id,
                        uid: uid.clone(),
                        xml: Arc::clone(&told.xml),
                    });
                }
            } else if before.is_some() {
                watcher.told.remove(uid);
                let reason = if told.is_some() {
                    Reason::Hidden
                } else {
                    Reason::Lost
                };
                events.push_back(BookEvent::Withdraw {
                    watcher: watcher_id,
                    uid: uid.clone(),
                    reason,
                });
            }
        }
        self.watchers = watchers;
        self.events = events;
    }

    /// Ends everything that was made of a stream that is gone.
    fn forget(&mut self, uid: &Uid, stream: &Stream, reason: Reason) {
        for (face, place) in stream.places.iter().enumerate() {
            if place.is_offered {
                let (face, uid) = (FaceId(face), uid.clone());
                self.events.push_back(BookEvent::Unoffer { face, uid });
            }
        }
        if stream.session.is_some() {
            self.events.push_back(BookEvent::Unsubscribe(uid.clone()));
        }
        for (watcher, it) in &mut self.watchers {
            if it.told.remove(uid).is_some() {
                let (watcher, uid) = (*watcher, uid.clone());
                self.events.push_back(BookEvent::Withdraw {
                    watcher,
                    uid,
                    reason,
                });
            }
        }
        for way in &stream.strangers {
            self.room.expect(uid.clone(), *way);
            let (uid, way) = (uid.clone(), *way);
            self.events.push_back(BookEvent::Ask { uid, way });
        }
        let uid = uid.clone();
        self.events.push_back(BookEvent::Gone { uid, reason });
        self.ask_more();
    }
}

/// Returns why a stream without a way is gone; `None` while one may come back.
fn end_of(stream: &Stream, now: f64) -> Option<Reason> {
    if stream.way().is_some() {
        return None;
    }
    let session = stream.session.as_ref().filter(|session| session.has_flowed);
    let since = session.and_then(|session| session.wayless_since);
    let may_return = stream.ended != Reason::Ended
        && !stream.is_superseded
        && since.is_some_and(|since| now < since + WAYLESS_SECS);
    (!may_return).then_some(stream.ended)
}

type Rank = (bool, usize, u32, u64);

/// The earliest of the times at which a stream is reviewed again.
struct Wake(Option<f64>);

impl Wake {
    fn at(&mut self, time: f64) {
        self.0 = Some(self.0.map_or(time, |earlier| earlier.min(time)));
    }
}

/// Time in seconds for which a better way must be that.
const STEADY_SECS: f64 = 5.0;

/// Time in seconds for which a stream that flowed waits for a way.
const WAYLESS_SECS: f64 = 60.0;

/// Time in seconds for which changes of a stream are gathered.
const MERGE_SECS: f64 = 0.1;
