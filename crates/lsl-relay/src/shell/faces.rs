//! Looks for the streams of the networks that a relay is in. Spec: relay §2.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use lsl_core::{
    Context, ContinuousResolver, Inlet, ResolverEvent, Result, Selector, StreamInfo, local_clock,
};
use tokio::sync::Semaphore;

use crate::book::{FaceId, Uid, Way};
use crate::document::Provenance;
use crate::shell::clocks::AbortOnDrop;
use crate::shell::state::{Shared, State};

/// Searches for as long as the relay lives.
pub(super) async fn search(shared: Arc<Shared>, face: FaceId) {
    let context = shared.context_of(Way::Direct(face)).clone();
    // Three waves of a search and what they take, at least.
    let forget = Duration::from_secs_f64((3.0 * wave_secs(&context)).max(FORGET_SECS));
    let resolver = loop {
        let found =
            all_sessions().and_then(|all| ContinuousResolver::in_context(&context, &all, forget));
        match found {
            Ok(resolver) => break resolver,
            Err(error) => tracing::error!("no search for streams: {error}; tried again"),
        }
        tokio::time::sleep(RETRY).await;
    };
    let places = Arc::new(Places::new());
    let mut asking = HashMap::new();
    let mut rivals = Rivals::default();
    loop {
        let look = rivals.look_at - local_clock();
        let look = Duration::from_secs_f64(look.clamp(0.0, LONGEST_SECS));
        match tokio::time::timeout(look, resolver.next_event()).await {
            Ok(ResolverEvent::Appeared(info) | ResolverEvent::Changed(info)) => {
                let uid: Uid = info.uid().into();
                if let Some(Provenance { origin, path }) = Provenance::of(&info) {
                    // Never a source. Of itself it tells where an outlet of another relay is one.
                    if origin != *uid && path.last().is_some_and(|last| *last != shared.id) {
                        rivals.known.insert(uid, (info, f64::NEG_INFINITY));
                        rivals.look_at = local_clock();
                    }
                    continue;
                }
                let key = (face, uid.clone());
                shared.act(|state, _| state.found.insert(key, info.clone()));
                let question = ask(Arc::clone(&shared), face, info, Arc::clone(&places));
                let task = AbortOnDrop(shared.tasks.spawn(question));
                // Not two at a time: the one before asks where it was.
                asking.insert(uid, task);
            }
            Ok(ResolverEvent::Lost(info)) => {
                let uid: Uid = info.uid().into();
                asking.remove(&uid);
                if rivals.known.remove(&uid).is_none() {
                    shared.act(|state, now| {
                        state.found.remove(&(face, uid.clone()));
                        state.book.unseen(face, &uid, now);
                    });
                }
            }
            Ok(_) => {}
            Err(_) => rivals.report(&shared, face, &resolver),
        }
    }
}

/// Outlets of other relays on a face, with the time of the last answer that the directory knows of.
struct Rivals {
    known: HashMap<Uid, (StreamInfo, f64)>,
    look_at: f64,
}

impl Default for Rivals {
    fn default() -> Self {
        Self {
            known: HashMap::new(),
            look_at: f64::INFINITY,
        }
    }
}

impl Rivals {
    /// Tells the directory which of them answered since the last look.
    fn report(&mut self, shared: &Arc<Shared>, face: FaceId, resolver: &ContinuousResolver) {
        let mut seen = Vec::new();
        for (uid, (info, reported)) in &mut self.known {
            if let Some(answered) = resolver.last_answer_of(uid.as_bytes())
                && answered > *reported
            {
                *reported = answered;
                seen.push(info.clone());
            }
        }
        shared.act(|state, now| {
            for info in seen {
                state.book.seen(face, info, now);
            }
        });
        self.look_at = if self.known.is_empty() {
            f64::INFINITY
        } else {
            local_clock() + LOOK_SECS
        };
    }
}

/// Returns the time between the waves of a search in seconds.
pub(super) fn wave_secs(context: &Context) -> f64 {
    let tuning = context.config().tuning();
    tuning.multicast_min_rtt_secs
        + tuning.unicast_min_rtt_secs
        + tuning.continuous_resolve_interval_secs
}

/// Selects the streams of all sessions: what comes after `or` is searched for in each.
fn all_sessions() -> Result<Selector> {
    Selector::predicate("channel_count>=0 or channel_count>=0")
}

/// Asks an outlet again that the directory had no room for.
pub(super) fn ask_again(shared: &Arc<Shared>, state: &State, face: FaceId, uid: &Uid) {
    if let Some(info) = state.found.get(&(face, uid.clone())) {
        let places = Arc::new(Places::new());
        let asking = ask(Arc::clone(shared), face, info.clone(), places);
        shared.tasks.spawn(asking);
    }
}

/// Asks an outlet for its whole description, until it says it or is gone.
async fn ask(shared: Arc<Shared>, face: FaceId, info: StreamInfo, places: Arc<Places>) {
    for tries in 0.. {
        let described = {
            let _place = places.of(tries).acquire().await;
            let context = shared.context_of(Way::Direct(face));
            let inlet = Inlet::builder(&info).context(context).recover(false);
            match inlet.create() {
                Ok(inlet) => inlet.full_info(ANSWER_LIMIT).await,
                Err(error) => Err(error),
            }
        };
        let is_there = shared.act(|state, now| {
            let is_there = state.found.contains_key(&(face, info.uid().into()));
            if let (Ok(full), true) = (&described, is_there) {
                state.book.seen(face, full.clone(), now);
            }
            is_there
        });
        let Err(error) = described else {
            return;
        };
        if !is_there {
            return;
        }
        let name = info.name();
        if tries == 0 {
            tracing::warn!("stream \"{name}\" does not describe itself: {error}; asked again");
        }
        tokio::time::sleep(RETRY).await;
    }
}

/// Places of those that ask. Outlets that once gave no answer have others than those that are new: many that nobody
/// reaches, behind a firewall say, hold up none that answers.
struct Places {
    first: Semaphore,
    again: Semaphore,
}

impl Places {
    fn new() -> Self {
        let [first, again] = MOST_QUESTIONS.map(Semaphore::new);
        Self { first, again }
    }

    /// Returns the places for somebody who has asked so many times.
    fn of(&self, tries: usize) -> &Semaphore {
        if tries == 0 { &self.first } else { &self.again }
    }
}

/// Silence in seconds after which an outlet is gone.
const FORGET_SECS: f64 = 5.0;

/// Time in seconds between looks at outlets of other relays.
const LOOK_SECS: f64 = 1.0;

const LONGEST_SECS: f64 = 3600.0;

/// Outlets that are asked for their description at a time: for the first time, and again.
const MOST_QUESTIONS: [usize; 2] = [32, 8];

const ANSWER_LIMIT: Duration = Duration::from_secs(5);

const RETRY: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outlets_that_give_no_answer_hold_up_no_new_one() {
        let places = Places::new();
        let taken: Vec<_> = (1..100)
            .filter_map(|tries| places.of(tries).try_acquire().ok())
            .collect();
        assert_eq!(taken.len(), 8);
        assert!(places.of(0).try_acquire().is_ok());
    }
}
