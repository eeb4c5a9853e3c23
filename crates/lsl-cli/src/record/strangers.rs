//! Streams of which nothing is known but an advert, which anybody on the network can make up: how many of
//! them are tried at a time, whose turn it is, and how much is said of them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};

use lsl_core::StreamInfo;

use super::remark::say;

/// Whose turn it is to be connected. An advert that was not tried yet comes first, then one at an address
/// where little has failed: whoever makes up thousands at one place keeps nobody else out.
#[derive(Debug, Default)]
pub(super) struct Turns {
    tried: HashMap<Vec<u8>, u32>,
    failures: HashMap<Place, u32>,
}

/// Where an outlet would take connections.
type Place = (String, u16);

fn place(info: &StreamInfo) -> Place {
    match info.v4_data_port() {
        0 => (info.v6_address().into_owned(), info.v6_data_port()),
        port => (info.v4_address().into_owned(), port),
    }
}

impl Turns {
    /// Least is first.
    pub(super) fn key(&self, info: &StreamInfo) -> (u32, u32) {
        let tried = self.tried.get(info.uid_bytes());
        let failed = self.failures.get(&place(info));
        (tried.copied().unwrap_or(0), failed.copied().unwrap_or(0))
    }

    /// It had its turn, and did not connect.
    pub(super) fn note_failure(&mut self, info: &StreamInfo) {
        if self.failures.len() >= MOST_PLACES {
            self.failures.clear();
        }
        *self.failures.entry(place(info)).or_default() += 1;
        *self.tried.entry(info.uid_bytes().to_vec()).or_default() += 1;
    }

    /// Forgets those that are gone.
    pub(super) fn retain(&mut self, is_there: impl Fn(&[u8]) -> bool) {
        self.tried.retain(|uid, _| is_there(uid));
    }
}

/// Whose turn it is of the outlets that say to be a stream which was lost: a queue. Whoever was tried, and
/// whoever is new, goes to its end, so that each has its turn however many are made up.
#[derive(Debug, Default)]
pub(super) struct Candidates {
    /// By uid; least is first.
    places: HashMap<Vec<u8>, u64>,
    end: u64,
}

impl Candidates {
    /// The outlet of a stream that flows is the first to be tried when that is lost.
    pub(super) fn after(uid: &[u8]) -> Self {
        Self {
            places: HashMap::from([(uid.to_vec(), 0)]),
            end: 1,
        }
    }

    /// Puts what is on offer into the order in which to try it, and forgets all others.
    pub(super) fn sort(&mut self, offered: &mut [StreamInfo]) {
        if offered.is_empty() {
            return;
        }
        let mut before = std::mem::take(&mut self.places);
        for info in &*offered {
            let place = before.remove(info.uid_bytes());
            let place = place.unwrap_or_else(|| self.take_end());
            self.places.insert(info.uid_bytes().to_vec(), place);
        }
        offered.sort_by_key(|info| self.places.get(info.uid_bytes()).copied());
    }

    /// It has its turn now.
    pub(super) fn note_tried(&mut self, uid: &[u8]) {
        let place = self.take_end();
        self.places.insert(uid.to_vec(), place);
    }

    /// It had its turn, and encryption kept us out: its next one comes after those of many others.
    pub(super) fn note_refused(&mut self, uid: &[u8]) {
        let place = self.take_end() + REFUSED_TURNS;
        self.places.insert(uid.to_vec(), place);
    }

    fn take_end(&mut self) -> u64 {
        self.end += 1;
        self.end
    }
}

/// What is said of strangers: a bounded number of lines, as they decide how many there are.
#[derive(Debug, Default)]
pub(super) struct Voice(AtomicU32);

impl Voice {
    pub(super) fn say(&self, text: impl std::fmt::Display) {
        match self.0.fetch_add(1, Ordering::Relaxed) {
            ..MOST_LINES => say(text),
            MOST_LINES => say(
                "lsl record: more streams are advertised that cannot be connected; nothing more is said \
                 of them.",
            ),
            // Does not come round to the first line.
            _ => self.0.store(MOST_LINES + 1, Ordering::Relaxed),
        }
    }
}

/// Streams that may be tried at a time. Each takes a few descriptors and some 100 KB.
pub(super) const MOST_TRIED: usize = 64;
/// How long one may take while others wait.
pub(super) const TURN_SECS: f64 = 3.0;
const MOST_PLACES: usize = 4096;
/// Turns that an outlet misses which was refused.
const REFUSED_TURNS: u64 = 64;
const MOST_LINES: u32 = 20;

#[cfg(test)]
mod tests {
    use lsl_core::ChannelFormat;

    use super::*;

    fn advert(name: &str, port: u16) -> StreamInfo {
        let info = StreamInfo::new(name, "", 1, 0.0, ChannelFormat::Int8, name).unwrap();
        let xml = String::from_utf8(info.to_shortinfo_xml()).unwrap();
        let xml = xml
            .replace("<v4data_port>0<", &format!("<v4data_port>{port}<"))
            .replace("<uid></uid>", &format!("<uid>{name}</uid>"))
            .replace("<uid />", &format!("<uid>{name}</uid>"));
        StreamInfo::from_xml(xml.as_bytes()).unwrap()
    }

    #[test]
    fn whoever_fails_often_comes_last() {
        let mut turns = Turns::default();
        let forged: Vec<_> = (0..50).map(|n| advert(&format!("f{n}"), 7)).collect();
        for one in &forged {
            turns.note_failure(one);
        }
        let (new_there, elsewhere) = (advert("new", 7), advert("real", 8));
        assert!(turns.key(&elsewhere) < turns.key(&new_there));
        assert!(turns.key(&new_there) < turns.key(&forged[0]));
        turns.retain(|uid| uid == b"f1");
        assert_eq!(turns.tried.len(), 1);
    }

    /// The uid of the one that is tried first.
    fn choose(candidates: &mut Candidates, offered: &[StreamInfo]) -> String {
        let mut offered = offered.to_vec();
        candidates.sort(&mut offered);
        candidates.note_tried(offered[0].uid_bytes());
        offered[0].uid().into_owned()
    }

    #[test]
    fn silent_forged_adverts_do_not_keep_a_lost_stream_from_its_successor() {
        let mut candidates = Candidates::after(b"own");
        let mut offered = vec![advert("own", 1)];
        offered.extend((0..19).map(|n| advert(&format!("f{n}"), 7)));
        offered.push(advert("real", 8));
        // As an order without one has it: the worst.
        let mut reversed = offered.clone();
        reversed.reverse();
        assert_eq!(choose(&mut candidates, &offered), "own");
        for turn in 2.. {
            let of_turn = [&offered, &reversed][turn % 2];
            if choose(&mut candidates, of_turn) == "real" {
                break;
            }
            assert!(turn < 21, "not chosen");
        }
        // Nor do new ones with each look, though it was tried before.
        for turn in 0.. {
            let mut offered = vec![advert("real", 8)];
            offered.extend((0..3).map(|n| advert(&format!("new{n}-{turn}"), 7)));
            offered.extend((0..3).map(|n| advert(&format!("new{n}-{}", turn + 1), 7)));
            if choose(&mut candidates, &offered) == "real" {
                break;
            }
            assert!(turn < 21, "not chosen again");
        }
        assert!(candidates.places.len() <= 21);
    }

    #[test]
    fn whoever_was_refused_is_tried_after_others_and_does_not_stay_away() {
        let mut candidates = Candidates::after(b"own");
        let refused = [advert("refused", 7)];
        for _ in 0..3 {
            assert_eq!(choose(&mut candidates, &refused), "refused");
            candidates.note_refused(b"refused");
        }
        let [other] = [advert("other", 8)];
        let both = [refused[0].clone(), other];
        for _ in 0..5 {
            assert_eq!(choose(&mut candidates, &both), "other");
        }
        let mut turns = (0..100).map(|_| choose(&mut candidates, &both));
        assert!(turns.any(|uid| uid == "refused"));
    }
}
