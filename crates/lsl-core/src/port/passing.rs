//! What the port of a relay and its offers do alike: they find the stream that a connection asks for, negotiate its
//! feed, and answer for its clock. Spec: relay §3, §6, §7.

use std::sync::Arc;

use lsl_platform::clock::local_clock;
use lsl_proto::outlet::connection::Event;
use lsl_proto::outlet::request::{Offer, Reply};
use lsl_proto::wire::request::Request;
use lsl_proto::wire::response::Refusal;

use super::handler::{Handler, Peer, Refused};
use crate::drive_outlet::connection::Connection;
use crate::drive_outlet::origin::StreamClock;
use crate::drive_outlet::past::Served;
use crate::net::select2::{Either, select2};
use crate::{Error, Result, StreamInfo};

/// Asks for the outlet of a stream as long as its peer waits; returns it, or what the peer is told instead.
pub(super) async fn find(
    handler: &impl Handler,
    connection: &mut Connection,
    request: &Request,
    uid: &[u8],
    peer: &Peer,
) -> Result<Result<Served, Refusal>> {
    let from = match request {
        Request::StreamFeed { headers, .. } => headers.replay_from,
        _ => None,
    };
    let finding = Box::pin(handler.stream(uid, from, peer));
    match select2(finding, connection.until_gone()).await {
        Either::First(Ok(served)) => Ok(Ok(served)),
        Either::First(Err(Refused::NotFound)) => Ok(Err(Refusal::NotFound)),
        Either::First(Err(Refused::Busy)) => Ok(Err(Refusal::RelayLimit)),
        Either::Second(gone) => Err(gone),
    }
}

/// Negotiates a feed of a stream that is passed on, for a peer who asked the outlet of this info and short info.
///
/// # Errors
/// [`Error::Protocol`] for what asks for no feed.
pub(super) fn negotiate(
    Served { outlet, past }: &Served,
    (info, shortinfo): (&StreamInfo, &[u8]),
    connection: &Connection,
    request: &Request,
) -> Result<Reply> {
    let shared = &outlet.shared;
    let offer = Offer {
        info,
        shortinfo,
        options: &shared.options,
        coalesces: connection.link().session().is_some() && !shared.coalesce.is_zero(),
    };
    offer.reply(
        request,
        |_| Ok(b""),
        |from| shared.retained(from, past.as_ref()),
    )
}

/// Keeps a connection that only asks for the clock of a stream.
pub(super) async fn lend_keys(mut connection: Connection, clock: Arc<StreamClock>) {
    connection.machine.lend_keys(local_clock());
    let serving = async {
        while !connection.machine.is_closed() && !clock.is_taken_back() {
            connection.step().await?;
            if let Some(Event::Control(pong)) = connection.machine.poll_event()
                && let Some(pong) = clock.answer(pong)
            {
                connection.machine.control(pong);
            }
        }
        Ok::<_, Error>(())
    };
    let ended = serving.await;
    tracing::debug!(peer = %connection.link().peer, ?ended, "time keys gone");
    connection.close().await;
}

pub(super) fn unknown() -> Error {
    Error::Protocol("unknown request".into())
}
