//! Looks for the streams of the networks that a relay is in. Spec: relay §2.

use std::sync::Arc;
use std::time::Duration;

use lsl_core::{ContinuousResolver, Inlet, ResolverEvent, Result, Selector, StreamInfo};
use tokio::sync::Semaphore;

use crate::book::{FaceId, Uid};
use crate::shell::state::{Shared, State};

/// Searches for as long as the relay lives.
pub(super) async fn search(shared: Arc<Shared>, face: FaceId) {
    let resolver = loop {
        let found = all_sessions()
            .and_then(|all| ContinuousResolver::in_context(&shared.context, &all, FORGET));
        match found {
            Ok(resolver) => break resolver,
            Err(error) => tracing::error!("no search for streams: {error}; tried again"),
        }
        tokio::time::sleep(RETRY).await;
    };
    let places = Arc::new(Semaphore::new(MOST_QUESTIONS));
    loop {
        match resolver.next_event().await {
            ResolverEvent::Appeared(info) | ResolverEvent::Changed(info) => {
                let uid: Uid = info.uid().into();
                shared.act(|state, _| state.found.insert(uid.clone(), info.clone()));
                tokio::spawn(ask(Arc::clone(&shared), face, info, Arc::clone(&places)));
            }
            ResolverEvent::Lost(info) => {
                let uid = info.uid().into_owned();
                shared.act(|state, now| {
                    state.found.remove(uid.as_str());
                    state.book.unseen(face, &uid, now);
                });
            }
            _ => {}
        }
    }
}

/// Selects the streams of all sessions: what comes after `or` is searched for in each.
fn all_sessions() -> Result<Selector> {
    Selector::predicate("channel_count>=0 or channel_count>=0")
}

/// Asks an outlet again that the directory had no room for.
pub(super) fn ask_again(shared: &Arc<Shared>, state: &State, face: FaceId, uid: &Uid) {
    if let Some(info) = state.found.get(uid) {
        let place = Arc::new(Semaphore::new(1));
        let asking = ask(Arc::clone(shared), face, info.clone(), place);
        shared.runtime.spawn(asking);
    }
}

/// Asks an outlet for its whole description, until it says it or is gone.
async fn ask(shared: Arc<Shared>, face: FaceId, info: StreamInfo, places: Arc<Semaphore>) {
    loop {
        let described = {
            let _place = places.acquire().await;
            let inlet = Inlet::builder(&info)
                .context(&shared.context)
                .recover(false);
            match inlet.create() {
                Ok(inlet) => inlet.full_info(ANSWER_LIMIT).await,
                Err(error) => Err(error),
            }
        };
        let is_there = shared.act(|state, now| {
            let is_there = state.found.contains_key(&*info.uid());
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
        tracing::warn!("stream \"{name}\" does not describe itself: {error}; asked again");
        tokio::time::sleep(RETRY).await;
    }
}

/// Silence after which an outlet is gone: three waves of a search and what they take.
const FORGET: Duration = Duration::from_secs(5);

/// Outlets that are asked for their description at a time.
const MOST_QUESTIONS: usize = 8;

const ANSWER_LIMIT: Duration = Duration::from_secs(5);

const RETRY: Duration = Duration::from_secs(5);
