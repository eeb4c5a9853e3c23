//! Answers the request of a connection. Every connection serves one. Spec: lsl-protocol §6, §7.

use std::sync::Arc;

use lsl_proto::outlet::connection::Event;
use lsl_proto::outlet::request::{Feed, Offer, Reply};
use lsl_proto::wire::response::Refusal;

use crate::Result;
use crate::drive_outlet::connection::Connection;
use crate::drive_outlet::identity::{Accept, Identity};
use crate::drive_outlet::push::OutletShared;
use crate::drive_outlet::refusal;

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
            let joined = shared.join(connection, &feed, &shared.identity.info, None);
            if let Err((mut connection, refusal)) = joined {
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
    if !is_protected
        && let Some(text) = (shared.identity).refused_plaintext(connection.link(), &request)
    {
        return Ok(Next::Hold(text));
    }
    let offer = Offer {
        info: &shared.identity.info,
        shortinfo: &shared.shown.shortinfo,
        options: &shared.options,
        coalesces: is_sealed && !shared.coalesce.is_zero(),
    };
    let peer = connection.link().peer.ip();
    let identity = &shared.identity;
    let shortinfo =
        |query: &[u8]| (shared.shown).answer(&identity.info, identity, query, (peer, is_sealed));
    let reply = match offer.reply(&request, shortinfo, |from| shared.retained(from, None))? {
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
