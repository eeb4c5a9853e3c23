//! Answers the requests at the port. Spec: relay §3.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use lsl_core::relay::{
    Duplex, Handler, Peer, PortRequest, Refused, ReplayFrom, Served, StreamClock,
};
use lsl_core::secure::Cause;
use lsl_core::{Position, StreamInfo, local_clock};
use lsl_proto::query::Query;
use tokio::io::AsyncWriteExt;

use crate::book::{Asker, Uid};
use crate::hello::Refusal;
use crate::id::RelayId;
use crate::rules::{Reader, selects_for_peer};
use crate::shell::limits::Who;
use crate::shell::state::Shared;
use crate::shell::totals::Why;
use crate::shell::{audit, links, past, status, watch};

/// The side of a relay that its peers see.
#[derive(Debug)]
pub(super) struct Desk(pub(super) Arc<Shared>);

impl Handler for Desk {
    async fn stream(
        &self,
        uid: &[u8],
        from: Option<ReplayFrom>,
        peer: &Peer,
    ) -> Result<Served, Refused> {
        let uid: Uid = text(uid).ok_or(Refused::NotFound)?.into();
        let wants_past = from.is_some_and(|from| from != ReplayFrom::Live);
        let outlet = self.0.act(|state, now| {
            let may_read = state.book.may_read(&uid, asker(peer));
            may_read.then(|| state.await_outlet(&uid, wants_past, now))
        });
        let Some(mut outlet) = outlet else {
            self.admit(&uid, peer);
            return self.ended(&uid, from, peer).await;
        };
        let found = outlet.wait_for(Option::is_some).await;
        let found = found.ok().and_then(|found| found.clone());
        let found = found.ok_or(Refused::NotFound)?;
        if let Some(ReplayFrom::At(position, _)) = from {
            self.wait_for_past(&uid, position).await;
        }
        let past = past::of(&self.0, &uid, &found, from).await;
        // What was allowed before all this waiting may not be any more.
        self.admit(&uid, peer).ok_or(Refused::NotFound)?;
        Ok(Served {
            outlet: found,
            past,
        })
    }

    fn shortinfo(&self, query: &[u8], peer: &Peer) -> Vec<u8> {
        let Some(query) = parse(query) else {
            return Vec::new();
        };
        let asker = asker(peer);
        // Nobody waits here: this is no task of its own.
        let is_due = self.0.act(|state, now| {
            let streams = state.book.streams().len();
            state.limits.ask(Who::of(peer), streams, now) == Some(0.0)
        });
        if !is_due {
            audit::limit(&self.0, peer, "questions of a peer of a relay");
            return Vec::new();
        }
        let first = self.0.look(|state| {
            let mut streams = state.book.streams();
            streams.find_map(|(uid, ..)| {
                let info = state.book.info(uid)?;
                let is_meant =
                    selects_for_peer(query.as_ref(), info) && state.book.may_read(uid, asker);
                is_meant.then(|| state.book.document(uid)).flatten()
            })
        });
        let info = first.and_then(|document| StreamInfo::from_xml(&document).ok());
        info.map_or_else(Vec::new, |info| info.to_shortinfo_xml())
    }

    fn fullinfo(&self, uid: &[u8], peer: &Peer) -> Option<Vec<u8>> {
        let uid = text(uid)?;
        if self.admit(uid, peer).is_some() {
            return self.0.look(|state| state.book.whole_document(uid));
        }
        let ended = past::ended(&self.0, &uid.into(), asker(peer))?;
        Some(ended.document(self.0.id, true))
    }

    fn clock(&self, uid: &[u8], peer: &Peer) -> Option<Arc<StreamClock>> {
        let uid: Uid = text(uid)?.into();
        self.admit(&uid, peer)?;
        let clock = self.0.act(|state, now| {
            let asker = asker(peer);
            if asker.link.is_some() {
                let way = state.book.way(&uid);
                state.clocks.machine.asked(&uid, asker.link, way, now);
            }
            state.clocks.lend(&uid, (peer, asker))
        });
        Some(clock)
    }

    async fn serve(&self, request: PortRequest, peer: Peer, mut duplex: Duplex) {
        match request {
            PortRequest::Watch { once, past, query } => {
                let Some(query) = parse(&query) else {
                    return duplex.close(None).await;
                };
                let terms = (once, past);
                watch::serve(&self.0, query, terms, (&peer, asker(&peer)), duplex).await;
            }
            PortRequest::Status => {
                let answer = if peer.is_local() || peer.is_relay {
                    format!("{}\n", status::of(&self.0)).into()
                } else {
                    Refusal::NotARelay.to_bytes()
                };
                let _ = duplex.write_all(&answer).await;
                duplex.close(None).await;
            }
            PortRequest::Link { headers } if peer.link.is_none() => {
                links::accept(&self.0, &headers, peer, duplex).await;
            }
            _ => duplex.close(None).await,
        }
    }

    fn refused(&self, cause: Cause) {
        self.0.totals.refuse(match cause {
            Cause::Busy => Why::Clients,
            _ => Why::Plaintext,
        });
    }
}

impl Desk {
    /// Returns a stream that is over.
    async fn ended(
        &self,
        uid: &Uid,
        from: Option<ReplayFrom>,
        peer: &Peer,
    ) -> Result<Served, Refused> {
        let ended = past::ended(&self.0, uid, asker(peer)).ok_or(Refused::NotFound)?;
        let who = Who::of(peer);
        if !self.0.may_serve_over(who) {
            audit::limit(&self.0, peer, "streams that are over of a peer of a relay");
            return Err(Refused::Busy);
        }
        let served = past::serve(&self.0, uid, ended, (from, who)).await;
        let served = served.inspect_err(|error| {
            tracing::warn!("the past of stream {uid} cannot be served: {error}");
        });
        let served = served.ok().flatten().ok_or(Refused::NotFound)?;
        // As in `stream`: another relay may have been waited for.
        past::ended(&self.0, uid, asker(peer)).ok_or(Refused::NotFound)?;
        Ok(served)
    }

    /// Waits while a stream whose past was asked for has not come to where a reader was.
    async fn wait_for_past(&self, uid: &Uid, reader: Position) {
        let numbers = self.0.look(|state| {
            let flow = state.flows.get(uid);
            let flow = flow.filter(|flow| flow.generation == Some(reader.generation))?;
            Some(Arc::clone(&flow.numbers))
        });
        let Some(numbers) = numbers else {
            return;
        };
        let until = local_clock() + PAST_LIMIT_SECS;
        while local_clock() < until && numbers.next.load(Ordering::Relaxed) < reader.next {
            tokio::time::sleep(LOOK_AT_PAST).await;
        }
    }

    /// Returns something if a peer may read a stream. It cannot tell a refusal, which is audited, from an unknown
    /// stream.
    fn admit(&self, uid: &str, peer: &Peer) -> Option<()> {
        let (is_known, may_read) = self.0.look(|state| {
            let may_read = state.book.may_read(uid, asker(peer));
            (state.book.info(uid).is_some(), may_read)
        });
        if is_known && !may_read {
            let key = peer.trusted.as_ref().map(|(key, _)| key);
            audit::refused(&self.0, uid, (peer.address, key), false);
        }
        may_read.then_some(())
    }
}

/// How long readers wait for that, in seconds, and when they look.
const PAST_LIMIT_SECS: f64 = 5.0;
const LOOK_AT_PAST: Duration = Duration::from_millis(2);

/// Returns whose rights a peer has.
fn asker(peer: &Peer) -> Asker {
    let reader = match &peer.trusted {
        Some((key, _)) => Reader::Key(key.fingerprint()),
        None if peer.is_local() => Reader::Local,
        None => Reader::Stranger,
    };
    let link = peer.link.map(RelayId);
    Asker { reader, link }
}

fn text(uid: &[u8]) -> Option<&str> {
    std::str::from_utf8(uid).ok()
}

/// Parses a predicate; the inner `None` selects all streams.
#[expect(clippy::option_option, reason = "a mistake differs from no predicate")]
fn parse(query: &[u8]) -> Option<Option<Query>> {
    match query {
        b"" => Some(None),
        query => Query::parse(query).ok().map(Some),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::{Readers, Rule};

    #[test]
    fn who_reads_without_a_key_from_elsewhere_is_no_program_of_this_machine() {
        let reads = |address: &str| {
            let address = address.parse().expect("an address");
            let peer = Peer::unknown(address);
            let local = Readers::Only {
                keys: std::collections::HashSet::new(),
                local: true,
            };
            [local, Readers::Everybody].map(|readers| {
                let rule = Rule {
                    readers,
                    ..Rule::default()
                };
                rule.may_read(asker(&peer).reader)
            })
        };
        assert_eq!(reads("127.0.0.1:5"), [true, true]);
        assert_eq!(reads("[::ffff:127.0.0.1]:5"), [true, true]);
        assert_eq!(reads("10.0.0.5:5"), [false, true]);
    }
}
