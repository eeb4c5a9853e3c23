//! Tells what a relay does. Spec: relay §13.

use std::sync::atomic::{AtomicU64, Ordering};

use lsl_core::local_clock;
use serde_json::{Value, json};

use crate::book::{Stage, Uid, Way};
use crate::shell::state::{Flow, Numbers, Shared, State, name_of};

/// Returns what the relay does, as one object.
pub(super) fn of(shared: &Shared) -> Value {
    let now = local_clock();
    shared.look(|state| {
        let mut outlets = Vec::new();
        let streams = state.book.streams().map(|(uid, stage, way)| {
            let flow = state.flows.get(uid);
            let outlet = flow.and_then(|flow| flow.outlet.borrow().clone());
            let readers = outlet.as_ref().map_or(0, |outlet| outlet.consumers().len());
            let stats = outlet.map(|outlet| outlet.stats()).unwrap_or_default();
            outlets.push(stats);
            let kept = kept(shared, flow, uid);
            stream(
                state,
                (uid, stage, way),
                (readers, stats.dropped),
                kept,
                now,
            )
        });
        let streams: Vec<Value> = streams.collect();
        json!({
            "relay": shared.id.to_string(),
            "name": shared.name,
            "uptime_s": now - shared.started,
            "links": state.links_status(),
            "streams": streams,
            "totals": shared.totals.status(outlets.iter()),
            "watchers": state.watchers.len(),
            "refused_streams": state.refused,
            "history": shared.history.as_ref().map(|history| history.status()),
            "engine": shared.engine.get().map(|engine| engine.report().status()),
        })
    })
}

/// Returns the first number that history has of the numbering in use, and the one behind the last.
fn kept(shared: &Shared, flow: Option<&Flow>, uid: &Uid) -> Option<(u64, u64)> {
    let history = shared.history.as_ref()?;
    history.numbers(uid, &flow?.generation?)
}

fn stream(
    state: &State,
    (uid, stage, way): (&Uid, Stage, Option<Way>),
    (readers, reader_dropped): (usize, u64),
    kept: Option<(u64, u64)>,
    now: f64,
) -> Value {
    let info = state.book.info(uid);
    let flow = state.flows.get(uid);
    let count = |counter: fn(&Numbers) -> &AtomicU64| {
        flow.map_or(0, |flow| counter(&flow.numbers).load(Ordering::Relaxed))
    };
    let clock = state.clocks.machine.estimate(uid, now);
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
        "readers": readers,
        "reader_dropped": reader_dropped,
        "history": kept.map(|(from, to)| json!({ "from": from, "to": to })),
        "clock_ms": clock.map(|clock| clock.offset_secs * 1e3),
        "u_ms": clock.map(|clock| clock.uncertainty_secs * 1e3),
    })
}
