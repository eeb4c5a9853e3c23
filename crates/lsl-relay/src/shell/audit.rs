//! Tells auditors of what a relay does not let pass, and of what it lets pass in plaintext. Spec: relay §10.

use std::net::SocketAddr;

use lsl_core::relay::Peer;
use lsl_core::secure::audit::{Event, EventKind, Span};
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
    security
        .audit()
        .record_with(EventKind::StreamRefused, |kind| {
            let name = key.map_or_else(
                || "programs without a key".to_owned(),
                |key| {
                    let trust = security.trust();
                    trust
                        .find(key)
                        .map_or_else(|| key.fingerprint().to_string(), |peer| peer.name.clone())
                },
            );
            let stream =
                shared.look(|state| state.book.info(uid).map(|info| info.name().into_owned()));
            let stream = stream.unwrap_or_default();
            let detail = if is_ended {
                format!("stream \"{stream}\": ended, no rule lets {name} read it any more")
            } else {
                format!("stream \"{stream}\": refused, no rule lets {name} read it")
            };
            let event = Event::new(kind)
                .peer_addr(address)
                .stream_uid(uid)
                .detail(detail);
            match key {
                Some(key) => event.peer(key.fingerprint()).peer_name(name),
                None => event,
            }
        });
}

/// Records that a peer asks for more than it may have.
pub(super) fn limit(shared: &Shared, peer: &Peer, what: &str) {
    shared.totals.refuse(Why::Questions);
    let Ok(security) = shared.context.security() else {
        return;
    };
    security.audit().record_with(EventKind::LimitsHit, |kind| {
        let event = Event::new(kind).cause(Cause::Busy);
        let event = event.peer_addr(peer.address).detail(what);
        match &peer.trusted {
            Some((key, name)) => event.peer(key.fingerprint()).peer_name(name),
            None => event,
        }
    });
}

/// Records and logs the addresses where whoever comes reads in plaintext.
pub(super) fn insecure(context: &Context, addresses: &[SocketAddr]) {
    let Ok(security) = context.security() else {
        return;
    };
    for address in addresses {
        security.audit().record_with(EventKind::RelayInsecure, |kind| {
            Event::new(kind).detail(format!(
                "{address} answers programs that do not encrypt: whoever reaches it reads every stream"
            ))
        });
    }
}

/// Records that a link to this relay is up, or how it ended: both in the tree `span`.
pub(super) fn link(
    shared: &Shared,
    span: Span,
    (address, key, name): (SocketAddr, Option<Fingerprint>, &str),
    ended: Option<&str>,
) {
    let Ok(security) = shared.context.security() else {
        return;
    };
    let kind = ended.map_or(EventKind::LinkUp, |_| EventKind::LinkDown);
    security.audit().record_with(kind, |kind| {
        let event = Event::new(kind)
            .span(span)
            .peer_addr(address)
            .peer_name(name);
        let event = match key {
            Some(key) => event.peer(key),
            None => event,
        };
        match ended {
            Some(text) => event.detail(text),
            None => event,
        }
    });
}

/// Records that an engine refuses a stream.
pub(super) fn engine_denied(shared: &Shared, info: &StreamInfo, text: &str) {
    let Ok(security) = shared.context.security() else {
        return;
    };
    security
        .audit()
        .record_with(EventKind::EngineDenied, |kind| {
            let event = Event::new(kind).stream_uid(info.uid());
            event.detail(format!("stream \"{}\": {text}", info.name()))
        });
}
