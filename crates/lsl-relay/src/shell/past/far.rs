//! The past of streams that other relays keep: it is read through a link, and passed on. Nothing of it stays here.
//! Spec: relay §9.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lsl_core::relay::{FrameCodec, Frames, Past, ReadPast, ReadingPast, ReplayFrom, Run};
use lsl_core::{Error, GapReason, Generation, Outlet, Position, Result, StreamInfo, local_clock};
use lsl_proto::inlet::LostSamples;
use lsl_proto::wire::sequence::Granted;
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

use crate::book::{Uid, Way};
use crate::id::RelayId;
use crate::shell::link::PastFeed;
use crate::shell::state::Shared;

/// Feeds of the past that are open at other relays.
#[derive(Debug)]
pub(in crate::shell) struct Feeds {
    /// Of those that are read at the same time.
    places: Semaphore,
    idle: Mutex<Idle>,
}

/// Feeds whose readers take nothing at the moment, the one that waits longest first.
#[derive(Debug, Default)]
struct Idle {
    feeds: VecDeque<(u64, PastFeed)>,
    last: u64,
}

impl Default for Feeds {
    fn default() -> Self {
        Self {
            places: Semaphore::new(READERS),
            idle: Mutex::default(),
        }
    }
}

impl Feeds {
    fn idle(&self) -> MutexGuard<'_, Idle> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a feed until its reader reads on, or others need the room: then it is opened anew. Returns its number.
    fn park(&self, feed: PastFeed) -> u64 {
        let mut idle = self.idle();
        idle.last += 1;
        let number = idle.last;
        idle.feeds.push_back((number, feed));
        let oldest = (idle.feeds.len() > READERS).then(|| idle.feeds.pop_front());
        drop(idle);
        // To end it takes the lock of its link.
        drop(oldest);
        number
    }

    fn take(&self, number: u64) -> Option<PastFeed> {
        let mut idle = self.idle();
        let at = idle.feeds.iter().position(|(it, _)| *it == number)?;
        Some(idle.feeds.remove(at)?.1)
    }
}

/// Returns what the relay that a stream comes from, or else one that lists it as over, has of its past. It is asked at
/// once unless the beginning of what a reader wants `is_here`; then it is asked for what is missing in between.
pub(super) async fn past(
    shared: &Arc<Shared>,
    uid: &Uid,
    outlet: &Outlet,
    (generation, from): (Generation, ReplayFrom),
    is_here: bool,
) -> Option<Past> {
    let info = Arc::new(outlet.info().clone());
    let listed = shared.elsewhere.relay(uid, &info);
    let relay = listed.filter(|relay| {
        // Unlike a way, nothing says that it comes back.
        shared.look(|state| state.link_to(*relay).is_some() && state.book.may_serve(*relay, &info))
    });
    let mut reader = FarReader::new(shared, (uid, relay), info, generation);
    if is_here {
        return reader.relay().map(|_| reader.into_past(u64::MAX, None));
    }
    let hops = shared.look(|state| state.book.hops(uid));
    let asking = timeout(ask_limit(hops), reader.ask(from));
    let Ok(Some(begin)) = asking.await else {
        return None;
    };
    Some(reader.into_past(begin, Some(begin)))
}

/// Returns what another relay has of a stream that is over, and the position behind its last sample.
pub(super) async fn ended(
    shared: &Arc<Shared>,
    (uid, relay): (&Uid, RelayId),
    info: &Arc<StreamInfo>,
    from: ReplayFrom,
) -> Option<(Position, Past)> {
    let link = shared.look(|state| state.link_to(relay).cloned())?;
    // It asks no other relay.
    let opening = timeout(ask_limit(2), PastFeed::open(&link, info, from));
    let feed = opening.await.ok()?.ok()?;
    let Granted {
        generation,
        begin,
        end,
        ..
    } = *feed.granted();
    let end = Position {
        generation,
        next: end?,
    };
    let mut reader = FarReader::new(shared, (uid, Some(relay)), Arc::clone(info), generation);
    reader.feed = Some(shared.past_feeds.park(feed));
    Some((end, reader.into_past(begin, Some(begin))))
}

/// Reads one numbering through the link that it comes by.
#[derive(Debug)]
struct FarReader {
    shared: Arc<Shared>,
    uid: Uid,
    info: Arc<StreamInfo>,
    generation: Generation,
    /// Relay that was asked last.
    relay: Option<RelayId>,
    codec: FrameCodec,
    /// Number of a feed among those that wait.
    feed: Option<u64>,
}

impl FarReader {
    fn new(
        shared: &Arc<Shared>,
        (uid, relay): (&Uid, Option<RelayId>),
        info: Arc<StreamInfo>,
        generation: Generation,
    ) -> Self {
        Self {
            shared: Arc::clone(shared),
            uid: Uid::clone(uid),
            codec: FrameCodec::new(&info),
            info,
            generation,
            relay,
            feed: None,
        }
    }

    fn into_past(self, oldest: u64, since: Option<u64>) -> Past {
        Past {
            oldest,
            since,
            reader: Box::new(self),
        }
    }

    /// Returns the relay to ask: where the stream comes from, or came from last.
    fn relay(&mut self) -> Option<RelayId> {
        let way = self.shared.look(|state| state.book.way(&self.uid));
        if let Some(Way::Link(relay)) = way {
            self.relay = Some(relay);
        }
        self.relay
    }

    /// Asks for the past as a reader does. Returns the number of the first sample that is there; `None` if the stream
    /// comes by no link, or has other numbers there.
    async fn ask(&mut self, from: ReplayFrom) -> Option<u64> {
        let shared = Arc::clone(&self.shared);
        let feeds = &shared.past_feeds;
        loop {
            self.relay()?;
            let place = feeds.places.acquire().await.ok()?;
            let opened = self.open(from).await;
            drop(place);
            match opened {
                Ok(feed) if feed.granted().generation == self.generation => {
                    let begin = feed.granted().begin;
                    self.feed = Some(feeds.park(feed));
                    return Some(begin);
                }
                Ok(_) => return None,
                Err(error) => tracing::debug!("past of stream {}: {error}", self.uid),
            }
            sleep(RETRY).await;
        }
    }

    async fn open(&mut self, from: ReplayFrom) -> Result<PastFeed> {
        let relay = self.relay();
        let link = self
            .shared
            .look(|state| state.link_to(relay?).cloned())
            .ok_or_else(|| Error::Protocol("there is no link".into()))?;
        PastFeed::open(&link, &self.info, from).await
    }

    /// Reads on; tries for a while if the link is down.
    async fn next(&mut self, from: u64, until: u64) -> Result<Option<Frames>> {
        let shared = Arc::clone(&self.shared);
        let closed = |_| Error::Protocol("the relay ends".into());
        let give_up_at = local_clock() + PATIENCE_SECS;
        loop {
            let place = shared.past_feeds.places.acquire().await.map_err(closed)?;
            let read = timeout(READ_LIMIT, self.try_next(from, until)).await;
            drop(place);
            let late = |_| {
                Err(Error::Timeout {
                    operation: "read the past of another relay",
                })
            };
            let error = match read.unwrap_or_else(late) {
                Ok(read) => return Ok(read),
                Err(error) => error,
            };
            if local_clock() > give_up_at {
                return Err(error);
            }
            tracing::debug!("past of stream {}: {error}", self.uid);
            sleep(RETRY).await;
        }
    }

    async fn try_next(&mut self, from: u64, until: u64) -> Result<Option<Frames>> {
        let shared = Arc::clone(&self.shared);
        let parked = self.feed.take().and_then(|it| shared.past_feeds.take(it));
        let mut parked = parked.filter(|feed| feed.next() == Some(from));
        let mut run = Run::default();
        // What the other relay let go while this reader was slow, and keeps elsewhere, is asked for once.
        let mut is_again = false;
        loop {
            let is_new = parked.is_none();
            let mut feed = if let Some(feed) = parked.take() {
                feed
            } else {
                let position = Position {
                    generation: self.generation,
                    next: from,
                };
                self.open(ReplayFrom::At(position, None)).await?
            };
            let Granted {
                generation, begin, ..
            } = feed.granted();
            if *generation != self.generation || is_new && *begin >= until {
                return Ok(None);
            }
            if !feed.read(&mut run).await? {
                // More may have come since it began.
                if is_new || feed.next().is_none_or(|next| next >= until) {
                    return Ok(None);
                }
                continue;
            }
            let was_slow = |it: &LostSamples| it.reason == GapReason::ReaderTooSlow;
            if !is_again && run.losses.iter().any(was_slow) {
                is_again = true;
                continue;
            }
            let first = run.first.ok_or_else(unnumbered)?.next;
            let mut frames = Frames {
                first,
                ..Frames::default()
            };
            (self.codec).encode(&run.stamps, &run.values, &mut frames)?;
            self.feed = Some(shared.past_feeds.park(feed));
            return Ok(Some(frames));
        }
    }
}

impl ReadPast for FarReader {
    fn read(&mut self, from: u64, until: u64) -> ReadingPast<'_> {
        Box::pin(self.next(from, until))
    }
}

impl Drop for FarReader {
    fn drop(&mut self) {
        let feed = self.feed.take();
        drop(feed.and_then(|feed| self.shared.past_feeds.take(feed)));
    }
}

fn unnumbered() -> Error {
    Error::Protocol("samples without numbers".into())
}

/// Feeds that are read at a time, and those besides that wait for their readers. Spec: relay §9.
const READERS: usize = 16;

/// Returns how long a reader waits to hear what another relay has, `hops` relays from the origin: longer than that one
/// waits for its engine, and the relay before it.
fn ask_limit(hops: usize) -> Duration {
    ASK_LIMIT * u32::try_from(hops.clamp(1, MOST_HOPS)).unwrap_or(1)
}

const ASK_LIMIT: Duration = Duration::from_secs(4);
const MOST_HOPS: usize = 3;

/// How long samples may take to come, and how long it is tried in all, in seconds.
const READ_LIMIT: Duration = Duration::from_secs(30);
const PATIENCE_SECS: f64 = 10.0;

const RETRY: Duration = Duration::from_millis(250);
