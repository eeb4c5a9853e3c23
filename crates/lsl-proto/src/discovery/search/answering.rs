//! By which ways streams answer a search. Spec: doctor §2.3.

use std::net::SocketAddr;

use super::{Found, Received, Search};
use crate::StreamInfo;
use crate::discovery::reply::{REPLY_LIMITS, fill_address, is_redacted};
use crate::discovery::ways::{DirectWay, MAX_DIRECT, Medium, host_of};

/// One answer of an outlet.
#[derive(Clone, Copy)]
pub(super) struct Reply {
    pub(super) from: SocketAddr,
    pub(super) by: Medium,
    pub(super) asked_at: f64,
    pub(super) now: f64,
}

impl Found {
    /// Takes note of one more answer. Returns the info if it has a new address.
    pub(super) fn refresh(
        &mut self,
        reply: Reply,
        ways: &mut Vec<(Vec<u8>, DirectWay)>,
    ) -> Option<StreamInfo> {
        self.last_seen = self.last_seen.max(reply.now);
        self.note_way(reply, ways);
        fill_address(&mut self.info, reply.from).then(|| self.info.clone())
    }

    /// Tells of a host that it did not answer from in the last minute: whoever keeps ways keeps some of them.
    pub(super) fn note_way(&mut self, reply: Reply, ways: &mut Vec<(Vec<u8>, DirectWay)>) {
        let (host, uid) = (host_of(reply.from), self.info.uid_bytes());
        self.hosts.retain(|(_, at)| reply.now - at < TOLD_SECS);
        let is_told = self.hosts.iter().any(|(told, _)| *told == host);
        if !is_told && self.hosts.len() < MAX_DIRECT && uid.len() <= MAX_UID_BYTES {
            self.hosts.push((host, reply.now));
            let way = DirectWay {
                host,
                by: reply.by,
                round_trip_secs: (reply.now - reply.asked_at).max(0.0),
            };
            ways.push((uid.to_vec(), way));
        }
    }
}

impl Search {
    /// Takes in a short info that answers the empty query and came over TCP.
    pub fn handle_open_reply(&mut self, from: SocketAddr, xml: &[u8], now: f64) -> Received {
        self.take_open_reply((from, Medium::Tcp), xml, now)
    }

    pub(super) fn take_open_reply(
        &mut self,
        from: (SocketAddr, Medium),
        xml: &[u8],
        now: f64,
    ) -> Received {
        if is_redacted(xml) {
            return Received::Redacted;
        }
        // Where the query was sent, what matches it answers that one too.
        let query = self.parsed.as_ref().filter(|_| !self.is_query_sent());
        let is_sought = query.is_some_and(|query| {
            let info = StreamInfo::from_xml_with(xml, &REPLY_LIMITS);
            // A query too costly to evaluate counts as "no match", as with outlets.
            info.is_ok_and(|info| info.matches(query).unwrap_or(false))
        });
        if is_sought {
            self.take_reply(from, xml, now)
        } else {
            Received::Foreign
        }
    }

    /// Takes in a short info that came over TCP, where it has no query id (§3.6).
    pub fn handle_reply(&mut self, from: SocketAddr, xml: &[u8], now: f64) -> Received {
        self.take_reply((from, Medium::Tcp), xml, now)
    }

    /// Returns the ways to streams that became known since the last call.
    pub fn take_ways(&mut self) -> Vec<(Vec<u8>, DirectWay)> {
        std::mem::take(&mut self.ways)
    }
}

/// How long a way is told, in seconds.
const TOLD_SECS: f64 = 60.0;

/// Longest uid whose ways are told; those of outlets have 36.
const MAX_UID_BYTES: usize = 64;
