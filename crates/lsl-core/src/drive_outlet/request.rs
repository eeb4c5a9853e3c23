//! Answers the request of a connection. Every connection serves one. Spec: lsl-protocol §6, §7.

use std::net::Shutdown;
use std::sync::Arc;

use lsl_platform::clock::local_clock;
use lsl_proto::outlet::connection::Event;
use lsl_proto::outlet::request::{Feed, Offer, Permission, Refused, Reply, plaintext_permission};
use lsl_proto::wire::request::Request;
use lsl_proto::wire::response::Refusal;
use lsl_secure::audit::EventKind;
use lsl_secure::{Cause, SessionGuard};

use crate::Result;
use crate::drive_outlet::connection::Connection;
use crate::drive_outlet::identity::{Accept, Identity};
use crate::drive_outlet::link::Link;
use crate::drive_outlet::push::OutletShared;
use crate::drive_outlet::refusal;
use crate::net::trust_watch;

impl Accept for Arc<OutletShared> {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    async fn answer(&self, connection: Connection) -> Result<()> {
        answer(connection, self).await
    }
}

async fn answer(mut connection: Connection, shared: &Arc<OutletShared>) -> Result<()> {
    let next = match reply(&mut connection, shared).await {
        Ok(next) => next,
        Err(error) => {
            if connection.link().session().is_some() {
                connection.close().await;
            }
            return Err(error);
        }
    };
    match next {
        Next::Done => {}
        Next::Hold(text) => refusal::hold_open(connection, text),
        Next::TimeKeys => shared.serve_time_keys(connection),
        Next::Feed(feed) => {
            if let Err((mut connection, refusal)) = shared.join(connection, &feed) {
                return connection.finish(&refused(shared, refusal)).await;
            }
        }
    }
    Ok(())
}

/// What becomes of a connection after its request.
enum Next {
    /// It was answered.
    Done,
    /// It is refused with this text, or none, and held.
    Hold(&'static [u8]),
    /// It lends the keys of its session.
    TimeKeys,
    /// It becomes a consumer.
    Feed(Box<Feed>),
}

async fn reply(connection: &mut Connection, shared: &Arc<OutletShared>) -> Result<Next> {
    let request = loop {
        match connection.event().await? {
            Event::Request(request) => break request,
            Event::TimeKeys => return Ok(Next::TimeKeys),
            Event::Control(_) => {}
        }
    };
    let is_sealed = connection.link().session().is_some();
    let is_protected = is_sealed || connection.stream.is_protected();
    if !is_protected && let Some(text) = refused_plaintext(connection.link(), shared, &request) {
        return Ok(Next::Hold(text));
    }
    let Identity {
        context,
        info,
        security,
        ..
    } = &shared.identity;
    let offer = Offer {
        info,
        shortinfo: &shared.shortinfo,
        options: &shared.options,
        coalesces: is_sealed && !shared.coalesce.is_zero(),
    };
    let peer = connection.link().peer.ip();
    let shortinfo = |query: &[u8]| {
        let shown = shared.advertised.view(security.policy());
        // Whoever has a session may ask about everything.
        let (document, shortinfo) = if is_sealed {
            (info.document(), &shared.shortinfo)
        } else {
            (&shown.document, &shown.shortinfo)
        };
        let service = context.service();
        let is_meant = service.selects(query, peer, document, local_clock())?;
        Ok(if is_meant { shortinfo.as_slice() } else { &[] })
    };
    let reply = match offer.reply(&request, shortinfo, |from| shared.retained(from))? {
        Reply::Feed(feed) => return Ok(Next::Feed(feed)),
        Reply::Bytes(bytes) => bytes,
        Reply::Refusal(refusal) => refused(shared, refusal),
    };
    connection.finish(&reply).await?;
    Ok(Next::Done)
}

fn refused(shared: &OutletShared, refusal: Refusal) -> Vec<u8> {
    shared.identity.refused.add(1);
    refusal.to_bytes(shared.identity.info.version())
}

/// Returns what the peer of a request in plaintext is told that is refused; `None` if it is answered.
fn refused_plaintext(
    link: &Arc<Link>,
    shared: &Arc<OutletShared>,
    request: &Request,
) -> Option<&'static [u8]> {
    let identity = &shared.identity;
    let plaintext = |kind, method| identity.event(kind, link.peer).detail(method);
    let policy = identity.security.policy();
    let Refused { method, text } = match plaintext_permission(policy, request) {
        Permission::Granted => return None,
        Permission::Denied(refused) => refused,
        Permission::Migrating(refused) => {
            if let Some(enrolled) = register_plaintext(link, shared) {
                // A connection asks for one feed.
                let _ = link.plaintext.set(enrolled);
                trust_watch::watch(&identity.security);
                identity.audit(plaintext(EventKind::PlaintextAccepted, refused.method));
                return None;
            }
            refused
        }
    };
    let refused = plaintext(EventKind::PlaintextRefused, method);
    identity.audit(refused.cause(Cause::PlaintextRefused));
    identity.refused.add(1);
    Some(text)
}

/// Makes a plaintext connection end when `migrate` does; `None` if that is over by now.
fn register_plaintext(link: &Arc<Link>, shared: &Arc<OutletShared>) -> Option<SessionGuard> {
    let (connection, outlet) = (Arc::downgrade(link), Arc::downgrade(shared));
    let end = move || {
        if let (Some(link), Some(shared)) = (connection.upgrade(), outlet.upgrade()) {
            let identity = &shared.identity;
            let event = identity.event(EventKind::PlaintextRefused, link.peer);
            let event = event.cause(Cause::PlaintextRefused);
            identity.audit(event.detail("migrate_until has passed; the reader is cut off"));
            link.shut_down(Shutdown::Both);
        }
    };
    let security = &shared.identity.security;
    security.register_plaintext(end).ok()
}
