//! What the probes of crypto-auditing tell of events and handshakes, to whoever looks at the running program.
//! Spec: audit §2.
//!
//! A context is a word: the number of a span, and which part of its handshake it is. An event that ends no handshake
//! is a context of its own.

use lsl_platform::probe::{self, Elements};

use super::Audit;
use super::context::{Constant, HANDSHAKE, Named, PARTS, SESSION, context_name, contexts_of};
use super::event::{Event, EventKind, Extra, role_name};
use super::span::Span;
use super::text::safe;
use crate::Role;
use crate::handshake::Step;

/// Tells that a connection shakes hands.
pub(crate) fn begin_handshake(span: Span, role: Role) {
    probe::new_context_with_data(&mut |made| {
        made.text("name", SESSION);
        made.text("lsl::role", role_name(role));
        [word(span, SESSION), NO_PARENT]
    });
    probe::new_context_with_data(&mut |made| {
        made.text("name", HANDSHAKE);
        made.text("lsl::role", role_name(role));
        [word(span, HANDSHAKE), word(span, SESSION)]
    });
}

/// Tells that a step of it begins.
pub(crate) fn begin_step(span: Span, role: Role, step: Step) {
    let contexts = || contexts_of(step.name(), role == Role::Outlet);
    // Both steps of the key exchange lie in one context, which the first of them begins.
    if step != Step::Derive {
        probe::new_context_with_data(&mut |made| {
            let (group, _) = contexts().unwrap_or_default();
            describe(made, group);
            [word(span, group.0), word(span, HANDSHAKE)]
        });
    }
    // That one is its context alone.
    if step != Step::Schedule {
        probe::new_context_with_data(&mut |made| {
            let (group, own) = contexts().unwrap_or_default();
            let own = own.unwrap_or_default();
            describe(made, own);
            [word(span, own.0), word(span, group.0)]
        });
    }
}

/// Tells of an event, which is made if somebody looks.
pub(super) fn record<'a>(audit: &Audit, kind: EventKind, event: &dyn Fn() -> &'a Event) {
    let ends_handshake = matches!(
        kind,
        EventKind::HandshakeOk | EventKind::HandshakeFailed | EventKind::PolicyRefused
    );
    if !ends_handshake {
        probe::new_context_with_data(&mut |made| {
            let event = event();
            made.text("name", &context_name(kind.name()).0);
            if event.span.is_none() {
                connection(made, event);
            }
            results(made, event, audit);
            let parent = event.span.map(|span| word(span, SESSION));
            [word(Span::begin(), SESSION), parent.unwrap_or(NO_PARENT)]
        });
        return;
    }
    probe::data(&mut |made| {
        let event = event();
        let span = event.span.unwrap_or_else(|| {
            // Refused before there was any.
            let span = Span::begin();
            begin_handshake(span, event.role.unwrap_or(Role::Inlet));
            span
        });
        probe::data(&mut |made| {
            connection(made, event);
            word(span, SESSION)
        });
        results(made, event, audit);
        word(span, HANDSHAKE)
    });
}

/// Returns the word of a context of a handshake.
fn word(span: Span, name: &str) -> u64 {
    let part = PARTS.iter().position(|part| *part == name);
    span.number() << PART_BITS | part.unwrap_or_default() as u64
}

fn describe(made: &mut Elements, (name, keys): Named) {
    made.text("name", name);
    for (key, value) in keys {
        match *value {
            Constant::Word(number) => made.word(key, number.into()),
            Constant::Text(text) => made.text(key, text),
        }
    }
}

/// What all events of a connection have in common.
fn connection(made: &mut Elements, event: &Event) {
    if let Some(id) = event.session {
        made.bytes("lsl::session_id", &id.0);
    }
    if let Some(role) = event.role {
        made.text("lsl::role", role_name(role));
    }
    if let Some(address) = event.peer_addr {
        made.text("lsl::peer_addr", &address.to_string());
    }
    outside(made, "lsl::stream_uid", event.stream_uid.as_deref());
}

/// What an event tells beyond that, what matters most first: there may be too much.
fn results(made: &mut Elements, event: &Event, audit: &Audit) {
    let (_, outcome) = context_name(event.kind.name());
    let plain = |made: &mut Elements, key, text: Option<&str>| {
        if let Some(text) = text {
            made.text(key, text);
        }
    };
    plain(made, "lsl::outcome", outcome);
    plain(
        made,
        "lsl::event",
        outcome.is_none().then(|| event.kind.name()),
    );
    plain(made, "lsl::cause", event.cause.map(crate::Cause::name));
    if let Some(cause) = event.cause {
        made.word("lsl::code", cause.code().into());
    }
    if let Some(suite) = event.suite {
        made.word("lsl::ciphersuite", suite.id().into());
        made.text("lsl::cipher", suite.name());
    }
    plain(made, "lsl::policy", event.policy.map(crate::Policy::name));
    if let Some(fingerprint) = event.peer {
        made.text("lsl::peer_key", &fingerprint.to_string());
    }
    outside(made, "lsl::peer_name", event.peer_name.as_deref());
    if let Some(traffic) = event.traffic {
        made.word("lsl::bytes", traffic.bytes);
        made.word("lsl::records", traffic.records);
        made.word("lsl::clean", traffic.clean.into());
    }
    let dropped = audit.dropped();
    if dropped > 0 {
        made.word("lsl::dropped", dropped);
    }
    for (key, value) in event.more.iter().flatten() {
        let key = format!("lsl::{key}");
        match value {
            Extra::Number(number) => made.word(&key, *number),
            Extra::Truth(truth) => made.word(&key, (*truth).into()),
            Extra::Text(text) => outside(made, &key, Some(text)),
            Extra::Texts(texts) => outside(made, &key, Some(&texts.join(","))),
        }
    }
    outside(made, "lsl::detail", event.detail.as_deref());
}

/// Adds a text from outside, made safe.
fn outside(made: &mut Elements, key: &str, text: Option<&str>) {
    if let Some(text) = text {
        made.text(key, &safe(text, super::text::MAX_OUTSIDE));
    }
}

/// Where others have a context that they lie in: no context is 0, and who looks need not take a 0.
const NO_PARENT: u64 = u64::MAX;

/// Holds the index of each part.
const PART_BITS: u32 = 8;
