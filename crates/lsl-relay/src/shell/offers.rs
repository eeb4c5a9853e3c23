//! Outlets of streams that are offered again, on each face where the directory says so. Spec: relay §6.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use lsl_core::relay::{Offer, StreamClock};
use lsl_core::{Error, Result, StreamInfo};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};

use crate::book::{FaceId, Uid, Way};
use crate::shell::desk::Desk;
use crate::shell::state::Shared;

/// Change of what is offered.
#[derive(Debug)]
pub(super) enum Change {
    Offer(FaceId, Uid),
    Unoffer(FaceId, Uid),
    /// What could not be opened is tried again.
    Retry(FaceId, Uid),
}

/// Keeps the outlets open that are wanted, for as long as the relay lives. Its own task: to bind ports takes longer
/// than the directory may be held up.
pub(super) async fn keep(
    shared: Arc<Shared>,
    changes: UnboundedSender<Change>,
    mut changed: UnboundedReceiver<Change>,
) {
    let desk = Arc::new(Desk(Arc::clone(&shared)));
    // `None` for those that could not be opened.
    let mut wanted: HashMap<(FaceId, Uid), Option<Offer>> = HashMap::new();
    while let Some(change) = changed.recv().await {
        let key = match change {
            Change::Unoffer(face, uid) => {
                wanted.remove(&(face, uid));
                continue;
            }
            Change::Retry(face, uid) if !matches!(wanted.get(&(face, uid.clone())), Some(None)) => {
                continue;
            }
            Change::Offer(face, uid) | Change::Retry(face, uid) => (face, uid),
        };
        let (face, uid) = key.clone();
        if let Some(Some(offer)) = wanted.get(&key) {
            if let Ok((info, _)) = described(&shared, &uid) {
                offer.describe(info);
            }
            continue;
        }
        let opened = described(&shared, &uid).and_then(|(info, clock)| {
            let context = shared.context_of(Way::Direct(face));
            Offer::open(context, info, (uid.as_bytes(), clock), Arc::clone(&desk))
        });
        let offer = match opened {
            Ok(offer) => Some(offer),
            Err(error) => {
                tracing::warn!("stream {uid} is not offered: {error}; tried again");
                let changes = changes.clone();
                tokio::spawn(async move {
                    tokio::time::sleep(RETRY).await;
                    // The relay may have ended.
                    let _ = changes.send(Change::Retry(face, uid));
                });
                None
            }
        };
        wanted.insert(key, offer);
    }
}

/// Returns a stream as it is offered, and its clock.
fn described(shared: &Arc<Shared>, uid: &Uid) -> Result<(StreamInfo, Arc<StreamClock>)> {
    let found = shared.act(|state, _| Some((state.book.document(uid)?, state.clocks.of(uid))));
    let (document, clock) = found.ok_or_else(|| Error::Argument("it is gone".into()))?;
    Ok((StreamInfo::from_xml(&document)?, clock))
}

const RETRY: Duration = Duration::from_secs(5);
