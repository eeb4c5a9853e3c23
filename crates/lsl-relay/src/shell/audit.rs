//! Tells auditors of what a relay does not let pass, and of what it lets pass in plaintext. Spec: relay §10.

use std::net::SocketAddr;

use lsl_core::relay::Peer;
use lsl_core::secure::audit::{Event, EventKind};
use lsl_core::secure::{Cause, Fingerprint, PublicKey};
use lsl_core::{Context, StreamInfo};

use crate::shell::state::Shared;
use crate::shell::totals::Why;

/// Records that a peer may not read a stream, or not any more. Both are limited to ten lines a second.
pub(super) fn refused(
    shared: &Shared,
    uid: &str,
    (address, key): (SocketAddr, Option<&PublicKey>),
    is_ended: bool,
) {
    shared.totals.refuse(Why::Rule);
    let Ok(security) = shared.context.security() else {
        return;
    };
    let name = key.map_or_else(
        || "programs without a key".to_owned(),
        |key| {
            let trust = security.trust();
            trust
                .find(key)
                .map_or_else(|| key.fingerprint().to_string(), |peer| peer.name.clone())
        },
    );
    let stream = shared.look(|state| state.book.info(uid).map(|info| info.name().into_owned()));
    let stream = stream.unwrap_or_default();
    let detail = if is_ended {
        format!("stream \"{stream}\": ended, no rule lets {name} read it any more")
    } else {
        format!("stream \"{stream}\": refused, no rule lets {name} read it")
    };
    let mut event = Event::new(EventKind::StreamRefused)
        .peer_addr(address)
        .stream_uid(uid)
        .detail(detail);
    if let Some(key) = key {
        event = event.peer(key.fingerprint()).peer_name(name);
    }
    security.audit().record(event);
}

/// Records that a peer asks for more than it may have.
pub(super) fn limit(shared: &Shared, peer: &Peer, what: &str) {
    shared.totals.refuse(Why::Questions);
    let Ok(security) = shared.context.security() else {
        return;
    };
    let event = Event::new(EventKind::LimitsHit).cause(Cause::Busy);
    let mut event = event.peer_addr(peer.address).detail(what);
    if let Some((key, name)) = &peer.trusted {
        event = event.peer(key.fingerprint()).peer_name(name);
    }
    security.audit().record(event);
}

/// Records and logs the addresses where whoever comes reads in plaintext.
pub(super) fn insecure(context: &Context, addresses: &[SocketAddr]) {
    let Ok(security) = context.security() else {
        return;
    };
    for address in addresses {
        let detail = format!(
            "{address} answers programs that do not encrypt: whoever reaches it reads every stream"
        );
        let event = Event::new(EventKind::RelayInsecure).detail(detail);
        security.audit().record(event);
    }
}

/// Records that a link to this relay is up, or how it ended.
pub(super) fn link(
    shared: &Shared,
    (address, key, name): (SocketAddr, Option<Fingerprint>, &str),
    ended: Option<&str>,
) {
    let Ok(security) = shared.context.security() else {
        return;
    };
    let kind = ended.map_or(EventKind::LinkUp, |_| EventKind::LinkDown);
    let mut event = Event::new(kind).peer_addr(address).peer_name(name);
    if let Some(key) = key {
        event = event.peer(key);
    }
    if let Some(text) = ended {
        event = event.detail(text);
    }
    security.audit().record(event);
}

/// Records that an engine refuses a stream.
pub(super) fn engine_denied(shared: &Shared, info: &StreamInfo, text: &str) {
    let Ok(security) = shared.context.security() else {
        return;
    };
    let event = Event::new(EventKind::EngineDenied).stream_uid(info.uid());
    let event = event.detail(format!("stream \"{}\": {text}", info.name()));
    security.audit().record(event);
}
