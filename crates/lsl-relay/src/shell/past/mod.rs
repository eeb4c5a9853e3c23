//! What is kept of a stream elsewhere than in its outlet, from all places that have some of it: first the history of
//! this relay, then its engine, then the relay that the stream comes from. Spec: relay §9, §12.

mod chain;
mod ended;
mod far;

use std::sync::Arc;

use lsl_core::relay::{Past, ReplayFrom};
use lsl_core::{Generation, Outlet};

use crate::book::Uid;
use crate::engine::Meta;
use crate::shell::engine::Running;
use crate::shell::state::Shared;

pub(super) use ended::{Elsewhere, ended, serve, uids};
pub(super) use far::Feeds;

use chain::Chain;

/// Returns what a reader who asks for the past of a stream may need besides what its outlet retains.
pub(super) async fn of(
    shared: &Arc<Shared>,
    uid: &Uid,
    outlet: &Outlet,
    from: Option<ReplayFrom>,
) -> Option<Past> {
    let from = from.filter(|from| !outlet.has_all(from))?;
    let generation = outlet.generation()?;
    let mut chain = here(shared, uid, outlet, (generation, &from)).await;
    let is_here = chain.begins(&from, outlet.live_edge());
    if let Some(past) = far::past(shared, uid, outlet, (generation, from), is_here).await {
        chain.add(past);
    }
    chain.into_past()
}

/// Returns what history and engine have of it.
async fn here(
    shared: &Arc<Shared>,
    uid: &Uid,
    outlet: &Outlet,
    (generation, from): (Generation, &ReplayFrom),
) -> Chain {
    let mut chain = Chain::new(outlet.info());
    if let Some(history) = &shared.history
        && let Some(past) = history.past(uid, &generation, from).await
    {
        chain.add(past);
    }
    let edge = outlet.live_edge();
    if let Some(reading) = shared.engine.get().and_then(Running::reading) {
        let meta = Meta {
            generation,
            info: Arc::new(outlet.info().clone()),
        };
        let past = reading.past(meta, from, edge, chain.begins(from, edge));
        if let Some(past) = past.await {
            chain.add(past);
        }
    }
    chain
}
