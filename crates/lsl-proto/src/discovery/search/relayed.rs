//! Streams that relays tell a search of, and outlets of relays that repeat a stream. Spec: relay §5.2.

use std::collections::HashMap;
use std::net::IpAddr;

use super::{Found, Goal, MAX_RESULT_BYTES, MAX_RESULTS, Received, ResolverEvent, Search, Veto};
use crate::StreamInfo;
use crate::query::Query;

impl Search {
    /// Takes in a stream that the relay with this number (below 64) tells of, of whose document `xml` is the text.
    /// `is_selected` if the relay has evaluated the query. It is found until the relay withdraws it.
    pub fn handle_relayed(
        &mut self,
        relay: u32,
        from: IpAddr,
        xml: &[u8],
        is_selected: bool,
        now: f64,
    ) -> Received {
        let Ok(info) = StreamInfo::from_xml(xml) else {
            self.invalid += 1;
            return Received::Invalid;
        };
        let selects = |query: &Query| info.matches(query).unwrap_or(false);
        if !is_selected && !self.parsed.as_ref().is_some_and(selects) {
            return Received::Foreign;
        }
        if info.uid_bytes().is_empty() || self.vetoes.iter().any(|Veto(veto)| veto(&info)) {
            self.invalid += 1;
            return Received::Invalid;
        }
        let uid = info.uid_bytes().to_vec();
        let mut relays = 1_u64.checked_shl(relay).unwrap_or(0);
        if let Some(found) = self.found.get_mut(&uid) {
            found.last_seen = found.last_seen.max(now);
            let is_known = found.relays & relays != 0;
            found.relays |= relays;
            // Its outlet is nearer than any relay. Of several relays the first counts.
            if found.is_direct || !is_known {
                return Received::Refreshed;
            }
            relays = found.relays;
        }
        let info = info.relayed();
        let text_bytes = info.document().size();
        if self.found.len() >= MAX_RESULTS || self.held.bytes + text_bytes > MAX_RESULT_BYTES {
            self.invalid += 1;
            return Received::Invalid;
        }
        let is_news = self.remove(&uid).is_none();
        let found = Found {
            info,
            sender: from.to_canonical(),
            first_seen: now,
            last_seen: now,
            wave: self.wave,
            text_bytes,
            relays,
            is_direct: false,
            origin: None,
            identity: None,
            hosts: Vec::new(),
        };
        if !is_news {
            self.push_event(ResolverEvent::Changed(found.info.clone()));
        }
        self.insert(uid, found, is_news);
        if is_news {
            Received::New
        } else {
            Received::Changed
        }
    }

    /// Returns the uids of the streams that the relay with this number tells of.
    pub fn relayed_by(&self, relay: u32) -> Vec<Vec<u8>> {
        let bit = 1_u64.checked_shl(relay).unwrap_or(0);
        let told = self
            .found
            .iter()
            .filter(|(_, found)| found.relays & bit != 0);
        told.map(|(uid, _)| uid.clone()).collect()
    }

    /// Takes note that a relay does not tell of a stream any more, because it is gone (`is_gone`) or the relay is:
    /// then it may still come back, from wherever, before it is forgotten. So may one that an outlet of a relay still
    /// repeats, which else would take its place for a while. Returns whether the stream is lost.
    pub fn handle_withdrawn(&mut self, relay: u32, uid: &[u8], is_gone: bool, now: f64) -> bool {
        let is_gone = is_gone && self.repetitions_of(uid).is_empty();
        let Some(found) = self.found.get_mut(uid) else {
            return false;
        };
        found.relays &= !1_u64.checked_shl(relay).unwrap_or(0);
        if found.relays != 0 {
            return false;
        }
        if is_gone && !found.is_direct {
            self.lose(uid);
            return true;
        }
        if !is_gone {
            found.last_seen = found.last_seen.max(now);
        }
        let last_seen = found.last_seen;
        if let Goal::Continuous { forget_after_secs } = self.goal {
            self.silent_at = self
                .silent_at
                .min((last_seen + forget_after_secs).next_up());
        }
        false
    }

    /// Returns the number of results that count towards the end of the search.
    pub(super) fn len_at(&self, now: f64) -> usize {
        if now >= self.relays_count_from || self.relayed == 0 {
            return self.len();
        }
        let counts = |found: &&Found| found.is_direct && self.is_shown(found);
        self.found.values().filter(counts).count()
    }

    /// Whether a stream is a result: not if it repeats another one.
    pub(super) fn is_shown(&self, found: &Found) -> bool {
        let origin = found.origin.as_ref();
        !origin.is_some_and(|origin| self.found.contains_key(origin))
    }

    /// Adds a stream, and tells of it if it is new.
    pub(super) fn insert(&mut self, uid: Vec<u8>, found: Found, is_news: bool) {
        self.held.add(found.text_bytes);
        self.held_of
            .entry(found.sender)
            .or_default()
            .add(found.text_bytes);
        if let Some(identity) = &found.identity {
            self.conflicts.add(identity, &uid);
        }
        self.offered_again += usize::from(found.origin.is_some());
        self.relayed += usize::from(!found.is_direct);
        if is_news && self.is_shown(&found) {
            self.push_event(ResolverEvent::Appeared(found.info.clone()));
        }
        if is_news {
            for repeated in self.repetitions_of(&uid) {
                self.push_event(ResolverEvent::Lost(repeated));
            }
        }
        self.found.insert(uid, found);
    }

    /// Removes a stream, and tells of that.
    pub(super) fn lose(&mut self, uid: &[u8]) {
        let was_shown = self
            .found
            .get(uid)
            .is_some_and(|found| self.is_shown(found));
        let Some(found) = self.remove(uid) else {
            return;
        };
        if was_shown {
            self.push_event(ResolverEvent::Lost(found.info));
        }
        for repeated in self.repetitions_of(uid) {
            self.push_event(ResolverEvent::Appeared(repeated));
        }
    }

    /// Returns when each of these streams last answered, or an outlet that repeats it did.
    pub(super) fn last_heard(&self) -> HashMap<&[u8], f64> {
        let mut heard = HashMap::new();
        if self.offered_again == 0 {
            return heard;
        }
        for found in self.found.values() {
            if let Some(origin) = &found.origin {
                let last = heard.entry(origin.as_slice()).or_insert(found.last_seen);
                *last = last.max(found.last_seen);
            }
        }
        heard
    }

    fn repetitions_of(&self, uid: &[u8]) -> Vec<StreamInfo> {
        if self.offered_again == 0 {
            return Vec::new();
        }
        let repeats = |found: &&Found| found.origin.as_deref() == Some(uid);
        let repetitions = self.found.values().filter(repeats);
        repetitions.map(|found| found.info.clone()).collect()
    }
}
