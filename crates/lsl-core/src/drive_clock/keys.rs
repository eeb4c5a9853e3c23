//! Keys for the clock of an outlet that encrypts, lent by whichever session lives. A session for the clock
//! alone is opened while there is no feed. Spec: LSS/1 §9.2.

use std::sync::Arc;
use std::time::Duration;

use lsl_platform::clock::local_clock;

use crate::drive_clock::session::{ClockSession, LentKeys};
use crate::drive_inlet::connection::Connection;
use crate::drive_inlet::shared::{Facts, InletShared};
use crate::net::monitor::Monitor;
use crate::net::select2::{Either, select2};
use crate::{Error, Result};

/// Takes the keys back when the session ends.
#[derive(Debug)]
pub(crate) struct KeysGuard<'a> {
    facts: &'a Monitor<Facts>,
    id: u64,
}

impl Drop for KeysGuard<'_> {
    fn drop(&mut self) {
        self.facts.update(|facts| {
            facts.keys.take_if(|keys| keys.id == self.id);
        });
    }
}

/// Lends the keys of a session to the clock; `None` for a connection without encryption, and if a feed's
/// are lent already.
pub(crate) fn lend<'a>(
    facts: &'a Monitor<Facts>,
    connection: &mut Connection,
    is_of_feed: bool,
) -> Option<KeysGuard<'a>> {
    let session = connection.session()?;
    let (prober, (events, security)) = (session.take_prober()?, session.events());
    let pings = Arc::clone(&session.pings);
    let id = facts.update(|facts| {
        if !is_of_feed && facts.keys.is_some() {
            // The feed was faster.
            return None;
        }
        facts.last_keys += 1;
        let id = facts.last_keys;
        facts.keys = Some(LentKeys {
            id,
            is_of_feed,
            prober,
            session: ClockSession {
                id,
                pings,
                events,
                security,
            },
        });
        Some(id)
    })?;
    Some(KeysGuard { facts, id })
}

/// Opens a session for the clock by `dial` whenever no feed lends its keys. Returns why that failed.
pub(crate) async fn keep_keys<F: Future<Output = Result<Connection>>>(
    shared: &InletShared,
    dial: impl Fn() -> F,
) -> Error {
    let facts = &shared.facts;
    loop {
        if shared.is_receiving() {
            // The feed will have a session any moment.
            let known = |facts: &mut Facts| facts.has_keys().then_some(());
            facts.wait(local_clock() + FEED_GRACE_SECS, known).await;
        }
        if !facts.lock().has_keys()
            && let Err(error) = hold_session(shared, dial()).await
        {
            return error;
        }
        let none = |facts: &mut Facts| (!facts.has_keys()).then_some(());
        facts.wait(f64::INFINITY, none).await;
    }
}

/// Holds a session for its keys alone, until a feed has one or it fails.
async fn hold_session(
    shared: &InletShared,
    connecting: impl Future<Output = Result<Connection>>,
) -> Result<()> {
    let facts = &shared.facts;
    let mut connection = connecting.await?;
    let Some(_guard) = lend(facts, &mut connection, false) else {
        if facts.lock().has_keys() {
            // The feed was faster.
            return Ok(());
        }
        return Err(Error::Security(
            "the outlet's clock needs encryption".into(),
        ));
    };
    let of_feed = |facts: &mut Facts| {
        let keys = facts.keys.as_ref();
        keys.is_some_and(|keys| keys.is_of_feed).then_some(())
    };
    match select2(connection.hold(), facts.wait(f64::INFINITY, of_feed)).await {
        Either::First(error) => Err(error),
        Either::Second(_) => Ok(()),
    }
}

/// Time to connect for the clock alone.
pub(crate) const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// How long the clock waits for the session of a feed that is being opened.
const FEED_GRACE_SECS: f64 = 2.0;
