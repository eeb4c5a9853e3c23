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
}
