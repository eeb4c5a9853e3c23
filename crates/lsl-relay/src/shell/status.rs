//! Tells what a relay does. Spec: relay §13.

use std::sync::atomic::{AtomicU64, Ordering};

use lsl_core::local_clock;
use serde_json::{Value, json};

use crate::shell::state::{Numbers, Shared, name_of};

/// Returns what the relay does, as one object.
pub(super) fn of(shared: &Shared) -> Value {
    let now = local_clock();
    shared.look(|state| {
        let streams: Vec<Value> = state
            .book
            .streams()
            .map(|(uid, stage, way)| {
                let info = state.book.info(uid);
                let flow = state.flows.get(uid);
                let count = |counter: fn(&Numbers) -> &AtomicU64| {
                    flow.map_or(0, |flow| counter(&flow.numbers).load(Ordering::Relaxed))
                };
                let outlet = flow.and_then(|flow| flow.outlet.borrow().clone());
                json!({
                    "uid": &**uid,
                    "name": info.map(|info| info.name()),
                    "type": info.map(|info| info.stream_type()),
                    "hostname": info.map(|info| info.hostname()),
                    "state": format!("{stage:?}").to_lowercase(),
                    "way": name_of(way),
                    "hops": state.book.hops(uid),
                    "gen": flow.and_then(|flow| flow.generation).map(|it| it.to_string()),
                    "next": count(|numbers| &numbers.next),
                    "received": count(|numbers| &numbers.received),
                    "bytes": count(|numbers| &numbers.bytes),
                    "lost_exact": count(|numbers| &numbers.lost_exact),
                    "lost_unknown": count(|numbers| &numbers.lost_unknown),
                    "readers": outlet.as_ref().map_or(0, |outlet| outlet.consumers().len()),
                    "reader_dropped": outlet.map_or(0, |outlet| outlet.stats().dropped),
                })
            })
            .collect();
        json!({
            "relay": shared.id.to_string(),
            "name": shared.name,
            "uptime_s": now - shared.started,
            "links": state.links_status(),
            "streams": streams,
            "watchers": state.watchers.len(),
            "refused_streams": state.refused,
        })
    })
}
