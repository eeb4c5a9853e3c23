//! Streams that are over, of which something is kept here or by the relays that this one has links to. Spec: relay §5.1,
//! §9.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lsl_core::relay::{Origin, ReplayFrom, Served};
use lsl_core::{Outlet, Position, Result, StreamInfo, local_clock};
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
    /// The relay of a link.
    Far(RelayId),
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

    /// Lists anew, unless that was just done.
    async fn refresh(&self, list: impl Future<Output = HashMap<Uid, Ended>>) {
        let mut asked = self.asked.lock().await;
        if asked.is_none_or(|at| local_clock() - at >= FRESH_SECS) {
            let known = list.await;
            *self.known() = known;
            *asked = Some(local_clock());
        }
    }
}

impl Elsewhere {
    /// Returns the relay that keeps a stream.
    pub(super) fn relay(&self, uid: &Uid) -> Option<RelayId> {
        match self.far.get(uid)?.place {
            Place::Far(relay) => Some(relay),
            Place::Here(_) => None,
        }
    }
}

impl Ended {
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
    let stored = kept.or_else(|| elsewhere.engine.get(uid));
    let ended = match asker.link {
        None => stored.or_else(|| elsewhere.far.get(uid))?,
        // What a link tells is told to no other, as nothing says when it came round.
        Some(_) => stored?,
    };
    shared.look(|state| {
        let is_over = state.book.info(uid).is_none();
        let may_read = is_over && state.book.may_read_past(&ended.info, asker);
        may_read.then_some(ended)
    })
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
async fn ask_engine(reading: &Reading) -> HashMap<Uid, Ended> {
    let mut stored = reading.ended().await;
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
    known.collect()
}

/// Asks the relays of all links what they keep of streams that are over.
async fn ask_links(shared: &Arc<Shared>) -> HashMap<Uid, Ended> {
    let links = shared.look(State::links_up);
    let (answer, mut answers) = unbounded_channel();
    for (relay, link) in links {
        let (shared_too, answer) = (Arc::clone(shared), answer.clone());
        let asking = async move {
            // Nobody waits for it once the asker has left.
            let _ = answer.send(ask_one(&shared_too, relay, &link).await);
        };
        shared.tasks.spawn(asking);
    }
    drop(answer);
    let mut known = HashMap::new();
    while let Some(answer) = answers.recv().await {
        known.extend(answer);
    }
    known
}

async fn ask_one(shared: &Shared, relay: RelayId, link: &Link) -> Vec<(Uid, Ended)> {
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
    if timeout(ASK_LIMIT, reading).await.is_err() {
        tracing::warn!("relay {relay} takes long to tell what is past; the rest is left out");
    }
    shared.look(|state| {
        for (uid, info, last_came) in told {
            if let Some((path, info)) = state.book.usable(relay, &uid, info) {
                let ended = Ended {
                    info: Arc::new(info),
                    path,
                    last_came,
                    place: Place::Far(relay),
                };
                all.push((uid, ended));
            }
        }
    });
    all
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
    let (end, past) = match ended.place {
        Place::Here(end) => (end, None),
        Place::Far(relay) => {
            let from = from.unwrap_or(ReplayFrom::Live);
            match far::ended(shared, (uid, relay), &ended.info, from).await {
                Some((end, past)) => (end, Some(past)),
                None => return Ok(None),
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
    let past = match past {
        Some(past) => Some(past),
        None => super::of(shared, uid, &outlet, from).await,
    };
    Ok(Some(Served { outlet, past }))
}

/// Time in seconds for which what was told is taken for new.
const FRESH_SECS: f64 = 2.0;

/// How long a relay may take to tell, and the bytes of documents that are kept of it.
const ASK_LIMIT: Duration = Duration::from_secs(3);
const MOST_BYTES: usize = 16 << 20;
