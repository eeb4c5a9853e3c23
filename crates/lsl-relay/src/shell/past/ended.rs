//! Streams that are over, of which something is kept here or by the relays that this one has links to. Spec: relay §5.1,
//! §9.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lsl_core::relay::{Origin, ReplayFrom, Served};
use lsl_core::{Outlet, Position, Result, StreamInfo, local_clock};
use lsl_proto::describe::descriptor;
use tokio::sync::Mutex as AsyncMutex;
use tokio::sync::mpsc::unbounded_channel;
use tokio::time::timeout;

use super::far;
use crate::book::{Asker, Uid};
use crate::document::{bare, ended_at, write_ended};
use crate::engine::Stored;
use crate::id::RelayId;
use crate::shell::engine::{Reading, Running};
use crate::shell::limits::Who;
use crate::shell::link::{Link, read_past};
use crate::shell::source;
use crate::shell::state::{Shared, State};

/// A stream that is over.
#[derive(Debug, Clone)]
pub(in crate::shell) struct Ended {
    pub(in crate::shell) info: Arc<StreamInfo>,
    /// Relays that it passed before this one.
    path: Vec<RelayId>,
    /// When its last samples came, in seconds since 1970.
    last_came: f64,
    place: Place,
}

/// Who keeps it.
#[derive(Debug, Clone, Copy)]
enum Place {
    /// This relay, or its engine, up to this position.
    Here(Position),
    /// The relay of a link; this one, or its engine, has less: up to this position.
    Far(RelayId, Option<Position>),
}

/// What the engine and other relays have, as they were last asked: who lists what is past reads it then.
#[derive(Debug, Default)]
pub(in crate::shell) struct Elsewhere {
    engine: Listed,
    far: Listed,
}

#[derive(Debug, Default)]
struct Listed {
    known: Mutex<HashMap<Uid, Ended>>,
    /// When it was last asked. Held by who asks.
    asked: AsyncMutex<Option<f64>>,
}

impl Listed {
    fn known(&self) -> MutexGuard<'_, HashMap<Uid, Ended>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn get(&self, uid: &Uid) -> Option<Ended> {
        self.known().get(uid).cloned()
    }

    /// Lists anew, unless that was just done. What was known stays if there is no answer.
    async fn refresh(&self, list: impl Future<Output = Option<HashMap<Uid, Ended>>>) {
        let mut asked = self.asked.lock().await;
        if asked.is_none_or(|at| local_clock() - at >= FRESH_SECS) {
            if let Some(known) = list.await {
                *self.known() = known;
            }
            *asked = Some(local_clock());
        }
    }
}

impl Elsewhere {
    /// Returns the relay that keeps a stream, if what it tells of is this one.
    pub(super) fn relay(&self, uid: &Uid, info: &StreamInfo) -> Option<RelayId> {
        let ended = self.far.get(uid)?;
        ended.relay().filter(|_| is_same_stream(&ended.info, info))
    }
}

impl Ended {
    fn relay(&self) -> Option<RelayId> {
        match self.place {
            Place::Far(relay, _) => Some(relay),
            Place::Here(_) => None,
        }
    }

    /// Returns of what two places have what came later, under the document of this one. What tells of another stream
    /// is none of it.
    fn or_newer(self, other: Option<Self>) -> Self {
        let is_newer = |other: &Self| other.last_came > self.last_came + SAME_SECS;
        let is_same = |other: &Self| is_same_stream(&other.info, &self.info);
        let Some(other) = other.filter(|it| is_newer(it) && is_same(it)) else {
            return self;
        };
        let place = match (self.place, other.place) {
            (Place::Here(end), Place::Far(relay, _)) => Place::Far(relay, Some(end)),
            (_, place) => place,
        };
        Self {
            info: self.info,
            place,
            ..other
        }
    }

    /// Returns its document as the relay of this identity gives it out: for directories, or whole.
    pub(in crate::shell) fn document(&self, own: RelayId, is_whole: bool) -> Vec<u8> {
        let path: Vec<_> = self.path.iter().copied().chain([own]).collect();
        write_ended(&self.info, &path, self.last_came, is_whole)
    }
}

/// Returns a stream that is over, if somebody may read it.
pub(in crate::shell) fn ended(shared: &Shared, uid: &Uid, asker: Asker) -> Option<Ended> {
    let kept = shared.history.as_ref().and_then(|it| it.ended(uid));
    let kept = kept.map(|kept| Ended {
        info: kept.info,
        path: Vec::new(),
        last_came: kept.ended,
        place: Place::Here(kept.end),
    });
    let elsewhere = &shared.elsewhere;
    let stored = newest(kept, elsewhere.engine.get(uid));
    let ended = match asker.link {
        None => newest(stored, elsewhere.far.get(uid))?,
        // What a link tells is told to no other, as nothing says when it came round.
        Some(_) => stored?,
    };
    shared.look(|state| {
        let is_over = state.book.info(uid).is_none();
        let may_read = is_over && state.book.may_read_past(&ended.info, asker);
        may_read.then_some(ended)
    })
}

fn newest(one: Option<Ended>, other: Option<Ended>) -> Option<Ended> {
    match one {
        Some(one) => Some(one.or_newer(other)),
        None => other,
    }
}

/// Whether two documents tell of one stream. Spec: LSS/1 §7.4.
fn is_same_stream(one: &StreamInfo, other: &StreamInfo) -> bool {
    descriptor(one).differs_from(&descriptor(other)).is_none()
}

/// Returns the uids of all streams that are over, and of others.
pub(in crate::shell) async fn uids(shared: &Arc<Shared>, asker: Asker) -> Vec<Uid> {
    let Elsewhere { engine, far } = &shared.elsewhere;
    let history = shared.history.as_ref();
    let mut uids = history.map_or_else(Vec::new, |it| it.uids());
    if let Some(reading) = shared.engine.get().and_then(Running::reading) {
        engine.refresh(ask_engine(reading)).await;
        uids.extend(engine.known().keys().cloned());
    }
    if asker.link.is_none() {
        far.refresh(ask_links(shared)).await;
        uids.extend(far.known().keys().cloned());
    }
    uids.sort_unstable();
    uids.dedup();
    uids
}

/// Asks the engine what it has of streams that are over; of a stream with several numberings that is the newest.
async fn ask_engine(reading: &Reading) -> Option<HashMap<Uid, Ended>> {
    let mut stored = reading.ended().await?;
    let written = |it: &Stored| it.written.unwrap_or_default();
    stored.sort_by(|one, other| written(one).total_cmp(&written(other)));
    let known = stored.into_iter().filter_map(|it| {
        let end = Position {
            generation: it.meta.generation,
            next: it.end?,
        };
        let ended = Ended {
            last_came: written(&it),
            info: Arc::new(bare(StreamInfo::clone(&it.meta.info))),
            path: Vec::new(),
            place: Place::Here(end),
        };
        Some((Uid::from(ended.info.uid()), ended))
    });
    Some(known.collect())
}

/// Asks the relays of all links what they keep of streams that are over. What one was known to keep that does not tell
/// all, it keeps.
async fn ask_links(shared: &Arc<Shared>) -> Option<HashMap<Uid, Ended>> {
    let links = shared.look(State::links_up);
    let mut silent: HashSet<_> = links.iter().map(|(relay, _)| *relay).collect();
    let (answer, mut answers) = unbounded_channel();
    for (relay, link) in links {
        let (shared_too, answer) = (Arc::clone(shared), answer.clone());
        let asking = async move {
            // Nobody waits for it once the asker has left.
            let _ = answer.send((relay, ask_one(&shared_too, relay, &link).await));
        };
        shared.tasks.spawn(asking);
    }
    drop(answer);
    let mut all = Vec::new();
    while let Some((relay, (told, is_all))) = answers.recv().await {
        all.extend(told);
        if is_all {
            silent.remove(&relay);
        }
    }
    let before = shared.elsewhere.far.known().clone().into_iter();
    all.extend(before.filter(|(_, it)| it.relay().is_some_and(|it| silent.contains(&it))));
    let mut known = HashMap::new();
    for (uid, ended) in all {
        let ended = newest(known.remove(&uid), Some(ended));
        known.extend(ended.map(|ended| (uid, ended)));
    }
    Some(known)
}

/// Returns what a relay tells of, and whether that is all.
async fn ask_one(shared: &Shared, relay: RelayId, link: &Link) -> (Vec<(Uid, Ended)>, bool) {
    let mut told = Vec::new();
    let (mut bytes, mut all) = (0, Vec::new());
    let reading = read_past(link, |uid, info, len| {
        let Some(last_came) = ended_at(&info) else {
            return;
        };
        bytes += len;
        if bytes <= MOST_BYTES {
            told.push((uid, info, last_came));
        }
    });
    let read = timeout(ASK_LIMIT, reading).await;
    if read.is_err() {
        tracing::warn!("relay {relay} takes long to tell what is past; the rest is left out");
    }
    shared.look(|state| {
        for (uid, info, last_came) in told {
            if let Some((path, info)) = state.book.usable(relay, &uid, info) {
                let ended = Ended {
                    info: Arc::new(info),
                    path,
                    last_came,
                    place: Place::Far(relay, None),
                };
                all.push((uid, ended));
            }
        }
    });
    (all, matches!(read, Ok(Ok(()))))
}

/// Returns a stream that is over for a reader; `None` if nothing of it is there any more.
///
/// # Errors
/// If there can be no outlet for it.
pub(in crate::shell) async fn serve(
    shared: &Arc<Shared>,
    uid: &Uid,
    ended: Ended,
    (from, who): (Option<ReplayFrom>, Who),
) -> Result<Option<Served>> {
    let (end, far) = match ended.place {
        Place::Here(end) => (end, None),
        Place::Far(relay, here) => {
            let from = from.unwrap_or(ReplayFrom::Live);
            let far = far::ended(shared, (uid, relay), &ended.info, from).await;
            match (here, far) {
                // Clocks may differ by more than the ends do.
                (Some(here), Some((end, _)))
                    if here.generation == end.generation && here.next > end.next =>
                {
                    (here, None)
                }
                (_, Some((end, past))) => (end, Some(past)),
                (Some(here), None) => (here, None),
                (None, None) => return Ok(None),
            }
        }
    };
    let outlet = Outlet::builder(StreamInfo::clone(&ended.info))
        .context(&shared.context)
        .retain(source::RETAINED)
        .relayed(Origin {
            first: end,
            clock: Arc::default(),
        })?;
    let outlet = Arc::new(outlet);
    outlet.close();
    shared.serve_over(Arc::clone(&outlet), Some(who));
    let past = match (far, from) {
        (Some(far), Some(from)) => {
            let mut chain = super::here(shared, uid, &outlet, (end.generation, &from)).await;
            chain.add(far);
            chain.into_past()
        }
        _ => super::of(shared, uid, &outlet, from).await,
    };
    Ok(Some(Served { outlet, past }))
}

/// Time in seconds for which what was told is taken for new.
const FRESH_SECS: f64 = 2.0;

/// Time in seconds by which what two places have last may differ though it is the same: engines write later.
const SAME_SECS: f64 = 5.0;

/// How long a relay may take to tell, which waits for its engine first, and the bytes of documents that are kept of it.
const ASK_LIMIT: Duration = Duration::from_secs(5);
const MOST_BYTES: usize = 16 << 20;

#[cfg(test)]
mod tests {
    use lsl_core::{ChannelFormat, Generation};

    use super::*;

    fn ended(kind: &str, last_came: f64, place: Place) -> Ended {
        let info = StreamInfo::new("s", kind, 1, 0.0, ChannelFormat::Int8, "s");
        let mut info = info.expect("an info");
        info.reset_uid("5f3c");
        Ended {
            info: Arc::new(info),
            path: Vec::new(),
            last_came,
            place,
        }
    }

    fn end() -> Position {
        Position {
            generation: Generation::parse(b"5f3c").expect("a generation"),
            next: 1000,
        }
    }

    #[test]
    fn of_two_places_the_one_counts_that_has_what_came_later_of_the_same_stream() {
        let far = RelayId(7);
        let chosen = |kind: &str, last_came| {
            let here = ended("EEG", 100.0, Place::Here(end()));
            let told = ended(kind, last_came, Place::Far(far, None));
            let chosen = newest(Some(here), Some(told)).expect("one");
            match chosen.place {
                Place::Here(_) => None,
                Place::Far(relay, here) => Some((relay, here)),
            }
        };
        assert_eq!(chosen("EEG", 104.0), None);
        assert_eq!(chosen("EEG", 200.0), Some((far, Some(end()))));
        // A relay whose key is for other streams tells of one under this uid.
        assert_eq!(chosen("X", 200.0), None);
        let elsewhere = Elsewhere::default();
        let uid = Uid::from("5f3c");
        let told = ended("X", 200.0, Place::Far(far, None));
        elsewhere.far.known().insert(Uid::clone(&uid), told);
        let relay = |kind| elsewhere.relay(&uid, &ended(kind, 0.0, Place::Here(end())).info);
        assert_eq!((relay("EEG"), relay("X")), (None, Some(far)));
    }
}
