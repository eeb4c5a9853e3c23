//! The driver of `Recovery`: when the tasks of an inlet connect, and who searches for them meanwhile. Each task
//! waits here, and the first of them works for all.

use std::convert::Infallible;
use std::io;
use std::time::Duration;

use lsl_platform::clock::local_clock;
use lsl_proto::inlet::recovery::{
    Action, Attempt, AttemptId, Failure, Input, Notice, Purpose, Recovery,
};

use crate::Error;
use crate::drive_inlet::recovery::ANSWER_LIMIT;
use crate::drive_inlet::shared::InletShared;
use crate::net::changes::Subscription;
use crate::net::select2::{Either, select2};
use crate::net::trust_watch;

impl InletShared {
    /// Waits until a connection of this purpose may begin.
    pub(crate) async fn next_attempt(&self, purpose: Purpose) -> Attempt {
        let next = |recovery: &mut Recovery| recovery.poll_connect(purpose, local_clock());
        self.drive(next).await
    }

    /// Runs an attempt until it ends, or until it is of no use any more: then there is nothing to report.
    pub(crate) async fn attempt<T>(
        &self,
        id: AttemptId,
        trying: impl Future<Output = T>,
    ) -> Option<T> {
        let dropped = |recovery: &mut Recovery| (!recovery.is_current(id)).then_some(());
        match select2(trying, self.drive(dropped)).await {
            Either::First(outcome) => Some(outcome),
            Either::Second(()) => None,
        }
    }

    /// Reports that an attempt failed. False means that the stream is lost.
    pub(crate) fn failed(&self, attempt: &Attempt, error: &Error) -> bool {
        self.tell_trust();
        let mut failure = self.source.failure(error);
        let is_cut = is_cut(error, self.source.peers().was_cut());
        if attempt.purpose == Purpose::Feed && is_cut && self.can_resume() {
            failure = Failure::Resumable;
        }
        let notice = self.tell(Input::Failed(attempt.id, failure));
        if notice == Some(Notice::Lost) {
            // Said here and not in `lose`, which also ends inlets that nobody wants any more.
            tracing::info!(name = ?self.info.name(), %error, "stream lost");
            self.lose(&error.to_string());
            return false;
        }
        let purpose = attempt.purpose;
        tracing::debug!(name = ?self.info.name(), ?purpose, %error, "connection failed");
        true
    }

    /// Returns whether a feed can go on where it broke. One whose outlet contradicted its numbers begins live, for
    /// which it is looked for if it can be.
    fn can_resume(&self) -> bool {
        let state = self.feed.lock();
        let may_begin_live = state.feed.is_contradicted() && !self.recoverable;
        self.recovers && (state.feed.can_resume() || may_begin_live)
    }

    /// Tells the machine whom the trust file trusts now.
    pub(super) fn tell_trust(&self) {
        let security = self.context.security().ok();
        self.tell(Input::Trust(security.map(|security| security.trust())));
    }

    /// Tells the machine of an event, and all tasks to look.
    pub(crate) fn tell(&self, input: Input) -> Option<Notice> {
        let recovery = &self.source.recovery;
        let (notice, rescues) = recovery.update(|recovery| {
            let before = recovery.rescues();
            let notice = recovery.handle(input, local_clock());
            (notice, recovery.rescues() - before)
        });
        self.context.discovery_counters().rescued.add(rescues);
        match notice {
            Some(Notice::Adopted) => {
                let info = self.source.info();
                tracing::info!(name = ?info.name(), uid = ?info.uid(), "stream is back at another outlet");
            }
            Some(Notice::Ambiguous(candidates)) => tracing::warn!(
                candidates, name = ?self.info.name(),
                "several outlets could be the one that was lost; waiting until only one is left"
            ),
            Some(Notice::Lost) | None => {}
        }
        notice
    }

    /// Waits until `ready` gives something; works for the machine meanwhile, unless another task does.
    async fn drive<R>(&self, ready: impl FnMut(&mut Recovery) -> Option<R>) -> R {
        // Boxed, because every inlet's tasks would else hold room for it.
        let waiting = self.source.recovery.wait(f64::INFINITY, ready);
        match select2(waiting, Box::pin(self.work())).await {
            Either::First(Some(result)) => result,
            Either::First(None) => std::future::pending().await,
            Either::Second(never) => match never {},
        }
    }

    async fn work(&self) -> Infallible {
        let recovery = &self.source.recovery;
        let mut turn = self.source.turn.lock().await;
        recovery.lock().repeat_action();
        let changes = turn.get_or_insert_with(|| self.changes());
        let mut working = None;
        loop {
            let waits_for = |recovery: &Recovery| (recovery.poll_timeout(), recovery.has_action());
            let (due, has_action) = waits_for(&recovery.lock());
            working.take_if(|_| !has_action);
            let look = |recovery: &mut Recovery| match recovery.poll_action() {
                None if waits_for(recovery) == (due, has_action) => None,
                action => Some(action),
            };
            let looking = recovery.wait(due.unwrap_or(f64::INFINITY), look);
            let next = async {
                match &mut working {
                    Some(working) => select2(looking, working).await,
                    None => Either::First(looking.await),
                }
            };
            let next = match select2(next, changes.changed()).await {
                Either::First(next) => next,
                Either::Second(_) => {
                    let (flow, is_cut) = (self.flow(), self.is_cut());
                    self.tell(Input::Changed { flow, is_cut });
                    continue;
                }
            };
            match next {
                Either::First(Some(Some(action))) => working = Some(Box::pin(self.perform(action))),
                Either::First(Some(None)) => {}
                Either::First(None) => {
                    let flow = self.flow();
                    recovery.update(|recovery| recovery.handle_timeout(&flow, local_clock()));
                }
                Either::Second(()) => working = None,
            }
        }
    }

    /// Hears of changes of the network, if something can be done about them.
    fn changes(&self) -> Subscription {
        if self.recoverable {
            self.context.network().changes()
        } else {
            Subscription::none()
        }
    }

    /// Does what the machine wants, and tells it what came of that.
    async fn perform(&self, action: Action) {
        let (context, source) = (&self.context, &self.source);
        let input = match action {
            Action::Search(minimum_secs) => {
                let sought = source.recovery.lock().sought();
                let mut found = context.lost().find(context, &sought, minimum_secs).await;
                while let Err(error) = found {
                    tracing::warn!(%error, "cannot look for a lost stream; trying again");
                    tokio::time::sleep(SEARCH_RETRY).await;
                    found = context.lost().find(context, &sought, minimum_secs).await;
                }
                self.tell_trust();
                Input::Found(found.unwrap_or_default())
            }
            Action::AskByTcp => Input::InPlace(source.is_where_it_was(ANSWER_LIMIT).await),
            // A relay ends the feed of a stream that is gone, and a session shows that the relay is.
            Action::AskByUdp | Action::AskBoth if self.is_relayed() => Input::InPlace(true),
            Action::AskBoth => Input::InPlace(source.answers().await),
            Action::Probe => Input::Probed(self.probe().await),
            Action::AskByUdp => Input::InPlace(source.asked_in_place().await.is_some()),
            Action::LookAtTrust => {
                if let Ok(security) = context.security() {
                    trust_watch::refresh(security).await;
                }
                return self.tell_trust();
            }
        };
        self.tell(input);
    }
}

/// Returns whether another attempt at the same address may do better at once: the connection was cut, or refused
/// without a reason. Where nobody answers in time it takes too long.
fn is_cut(error: &Error, was_handshake_cut: bool) -> bool {
    match error {
        Error::Timeout { .. } | Error::InvalidInfo(_) => false,
        Error::Io { source, .. } => source.kind() != io::ErrorKind::TimedOut,
        Error::Security(_) => was_handshake_cut,
        _ => true,
    }
}

/// Pause after a search that could not be started: out of descriptors, most likely.
const SEARCH_RETRY: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests;
