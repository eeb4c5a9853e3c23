//! A second connection for a feed that is silent although its outlet answers. Whichever says something first stays:
//! the first one is kept until then, as a network may only be slow. Spec: doctor §2.4.

use std::time::Duration;

use lsl_platform::clock::local_clock;
use lsl_proto::inlet::recovery::{Attempt, Flow, Purpose};
use lsl_proto::inlet::{Exchange, FeedDecoder};

use crate::drive_inlet::connection::Connection;
use crate::drive_inlet::reach::Way;
use crate::drive_inlet::shared::InletShared;
use crate::net::monitor::lock_ignoring_poison;

/// A connection over which the outlet has answered, and nothing was read of that.
#[derive(Debug)]
pub(crate) struct Spare {
    connection: Connection,
    way: Option<Way>,
    epoch: u64,
    /// Samples that had come when it was asked for what follows them.
    samples: u64,
}

impl InletShared {
    /// Returns how the feed flows. Reads it before it says that nothing came.
    pub(super) fn flow(&self) -> Flow {
        let mut state = self.feed.lock();
        let flow = state.flow();
        if !flow.is_silent(local_clock()) || !self.owner.is_current() {
            return flow;
        }
        let arrived = state.drain();
        let flow = state.flow();
        let is_broken = state.disconnect.is_some();
        drop(state);
        if arrived {
            self.feed.wake();
            self.notify();
        }
        if is_broken {
            self.work.notify_one();
        }
        flow
    }

    /// Dials the outlet once more, for what follows the last sample. Returns whether it answered before the first
    /// connection brought anything; then the next attempt has it.
    pub(super) async fn redial(&self) -> bool {
        let silent = self.flow();
        let Some((endpoint, info)) = self.source.present() else {
            return false;
        };
        if !silent.is_silent(local_clock()) {
            return false;
        }
        let (epoch, asked) = {
            let state = self.feed.lock();
            (state.epoch, state.feed.asked(local_clock()))
        };
        let attempt = Attempt {
            id: 0,
            purpose: Purpose::Feed,
            info,
            endpoint: Some(endpoint),
            moves: self.source.moves(),
        };
        let Ok(ways) = self.ways(&attempt) else {
            return false;
        };
        let info = &attempt.info;
        let feed =
            |_: &Way| Exchange::Feed(Box::new(FeedDecoder::asking(info, self.options, asked)));
        let dialling = async {
            let (mut connection, number) = self.reach(info, &ways, feed, REDIAL_LIMIT).await?;
            connection.answered().await?;
            Ok::<_, crate::Error>((connection, ways.get(number).cloned()))
        };
        let (connection, way) = match tokio::time::timeout(REDIAL_LIMIT, dialling).await {
            Ok(Ok(dialled)) => dialled,
            Ok(Err(error)) => {
                tracing::debug!(name = ?self.info.name(), %error, "no second connection");
                return false;
            }
            Err(_) => return false,
        };
        if self.flow().samples != silent.samples {
            return false;
        }
        let spare = Spare {
            connection,
            way,
            epoch,
            samples: silent.samples,
        };
        *lock_ignoring_poison(&self.source.spare) = Some(spare);
        true
    }

    /// Takes the connection that was dialled beside the last one, unless that brought something after all.
    pub(super) fn take_spare(&self, epoch: u64) -> Option<(Connection, Option<Way>)> {
        let spare = lock_ignoring_poison(&self.source.spare).take()?;
        let samples = self.feed.lock().feed.counts().samples;
        (spare.epoch == epoch && spare.samples == samples).then_some((spare.connection, spare.way))
    }
}

/// Time to connect, and for the outlet to answer.
const REDIAL_LIMIT: Duration = Duration::from_secs(5);
