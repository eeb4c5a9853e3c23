//! Tells those who watch the directory what is new. Spec: relay §5.1.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lsl_core::relay::{Duplex, Either, Peer, SourceClock, select2};
use lsl_proto::query::Query;
use lsl_proto::wire::directory::{Record, Withdrawal};
use lsl_proto::wire::request::PROTOCOL_VERSION;
use lsl_proto::wire::response::Refusal;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::Notify;

use crate::book::{Asker, Reason, Uid, Watch, WatcherId};
use crate::rules::selects_for_peer;
use crate::shell::audit;
use crate::shell::limits::Who;
use crate::shell::past;
use crate::shell::state::Shared;

/// What a watcher must be told: of each stream the newest alone, so that a slow one keeps nothing long.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    pending: Mutex<Pending>,
    ready: Notify,
}

#[derive(Debug, Default)]
struct Pending {
    order: VecDeque<Uid>,
    news: HashMap<Uid, News>,
    clocks: HashMap<Uid, SourceClock>,
    /// Whether all that was known at the beginning is in here, or was told.
    is_complete: bool,
}

/// News of a stream.
#[derive(Debug)]
pub(super) enum News {
    /// Its document is new, or changed.
    Here(Arc<[u8]>),
    Gone(Reason),
}

impl Outbox {
    pub(super) fn put(&self, uid: Uid, news: News) {
        let mut pending = self.lock();
        if pending.news.insert(uid.clone(), news).is_none() {
            pending.order.push_back(uid);
        }
        drop(pending);
        self.ready.notify_one();
    }

    pub(super) fn put_clock(&self, uid: Uid, clock: SourceClock) {
        self.lock().clocks.insert(uid, clock);
        self.ready.notify_one();
    }

    /// Notes that all known streams were told of.
    pub(super) fn all_is_told(&self) {
        self.lock().is_complete = true;
        self.ready.notify_one();
    }

    /// Moves the oldest news behind `out`, about as much as `most` bytes. Returns whether nothing is left.
    fn take(&self, most: usize, out: &mut Vec<u8>) -> Option<bool> {
        let mut pending = self.lock();
        for (uid, clock) in pending.clocks.drain() {
            let uid = uid.as_bytes();
            // Its uid was announced, so it fits.
            let _ = Record::Clock { uid, clock }.append_to(out);
        }
        while out.len() < most {
            let Some(uid) = pending.order.pop_front() else {
                return Some(pending.is_complete);
            };
            let record = match pending.news.remove(&uid) {
                Some(News::Here(xml)) => Record::Stream {
                    uid: uid.as_bytes(),
                    xml: &xml,
                }
                .append_to(out),
                Some(News::Gone(reason)) => Record::Gone {
                    uid: uid.as_bytes(),
                    reason: match reason {
                        Reason::Ended => Withdrawal::Ended,
                        Reason::Lost => Withdrawal::Lost,
                        Reason::Hidden => Withdrawal::Hidden,
                    },
                }
                .append_to(out),
                None => Ok(()),
            };
            if let Err(error) = record {
                tracing::warn!("stream {uid} cannot be told of: {error}");
            }
        }
        None
    }

    fn lock(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A watcher that the directory knows.
struct Watching<'a> {
    shared: &'a Arc<Shared>,
    id: WatcherId,
    who: Who,
}

impl Drop for Watching<'_> {
    fn drop(&mut self) {
        self.shared.act(|state, _| {
            state.watchers.remove(&self.id);
            state.book.unwatch(self.id);
            state.limits.leave(self.who);
        });
    }
}

/// Moves streams of `uids` that are over behind `out`, as [`Outbox::take`] does news. They may be
/// many: a slow watcher keeps none of their documents.
pub(super) fn take_past(
    (shared, query, asker): (&Arc<Shared>, Option<&Query>, Asker),
    uids: &mut Vec<Uid>,
    most: usize,
    out: &mut Vec<u8>,
) {
    for _ in 0..LOOKS_IN_A_ROW {
        let Some(uid) = uids.pop_if(|_| out.len() < most) else {
            break;
        };
        let ended = past::ended(shared, &uid, asker);
        if let Some(ended) = ended.filter(|it| selects_for_peer(query, &it.info)) {
            let xml = ended.document(shared.id, false);
            let uid = uid.as_bytes();
            let record = Record::Stream { uid, xml: &xml };
            if let Err(error) = record.append_to(out) {
                tracing::warn!("a stream of the past cannot be told of: {error}");
            }
        }
    }
}

/// Serves a watcher until it leaves, or was told once.
pub(super) async fn serve(
    shared: &Arc<Shared>,
    query: Option<Query>,
    (once, past): (bool, bool),
    (peer, asker): (&Peer, Asker),
    mut duplex: Duplex,
) {
    let outbox = Arc::new(Outbox::default());
    let who = Who::of(peer);
    let admitted = shared.act(|state, now| {
        let streams = state.book.streams().len();
        let wait = state.limits.watch(who, streams, now)?;
        state.last_watcher += 1;
        Some((WatcherId(state.last_watcher), wait))
    });
    let Some((id, wait)) = admitted else {
        audit::limit(shared, peer, "watches and questions of a peer of a relay");
        let refused = Refusal::RelayLimit.to_bytes(PROTOCOL_VERSION);
        let _ = duplex.write_all(&refused).await;
        return duplex.close(None).await;
    };
    let _watching = Watching { shared, id, who };
    if wait > 0.0 {
        tokio::time::sleep(Duration::from_secs_f64(wait)).await;
    }
    let mut uids = if past {
        past::uids(shared, asker).await
    } else {
        Vec::new()
    };
    shared.act(|state, _| {
        let outbox = Arc::clone(&outbox);
        state.watchers.insert(id, (asker.link, outbox));
        let query = query.clone();
        state.book.watch(id, Watch { asker, query });
    });

    let mut was_complete = false;
    let mut out = Vec::new();
    loop {
        out.clear();
        let is_complete = match outbox.take(MOST_BYTES, &mut out) {
            None => was_complete,
            // Behind the news, so that none says less of them.
            Some(_) if !uids.is_empty() => {
                let asking = (shared, query.as_ref(), asker);
                take_past(asking, &mut uids, MOST_BYTES, &mut out);
                if out.is_empty() {
                    tokio::task::yield_now().await;
                    continue;
                }
                false
            }
            Some(is_complete) => is_complete,
        };
        if is_complete && !was_complete {
            was_complete = true;
            // A line of its own cannot fail.
            let _ = Record::Known.append_to(&mut out);
        }
        if !out.is_empty() {
            let sent = async {
                duplex.write_all(&out).await?;
                duplex.flush().await
            };
            let sent = tokio::time::timeout(SEND_LIMIT, sent).await;
            if !matches!(sent, Ok(Ok(()))) {
                return;
            }
            if once && was_complete {
                return duplex.close(None).await;
            }
            continue;
        }
        let mut byte = [0];
        // It says nothing more, but may leave.
        let leaving = async { duplex.read(&mut byte).await };
        let news = tokio::time::timeout(SIGN_OF_LIFE, outbox.ready.notified());
        match select2(leaving, news).await {
            Either::First(_) => return,
            Either::Second(Ok(())) => {}
            Either::Second(Err(_)) => was_complete = false,
        }
    }
}

/// Bytes of records that are sent at a time.
const MOST_BYTES: usize = 64 * 1024;

/// Streams of the past that are looked at before others have their turn.
const LOOKS_IN_A_ROW: usize = 64;

/// How long a watcher may take to read them.
const SEND_LIMIT: Duration = Duration::from_secs(30);

const SIGN_OF_LIFE: Duration = Duration::from_secs(10);
