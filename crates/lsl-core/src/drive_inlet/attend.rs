//! The inlet's task beside pulls: it reads the data connection whenever they do not. Who waits for the
//! socket when is decided in `inlet::reader`.

use std::future::poll_fn;
use std::pin::pin;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::drive_inlet::connection::Connection;
use crate::drive_inlet::feed_state::{FeedState, ReadBy, Received};
use crate::drive_inlet::session::InletSession;
use crate::drive_inlet::shared::InletShared;
use crate::net::sync::local_clock;
use crate::{Error, Result};

/// A data connection behind the lock of the feed. Dropping it ends the connection, also under a thread
/// that waits for it.
#[derive(Debug)]
pub(crate) struct Attendance<'a> {
    shared: &'a InletShared,
    number: u64,
}

/// How far to attend a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Until {
    Opened,
    End,
}

impl<'a> Attendance<'a> {
    /// Puts `connection`, whose request was sent, behind the lock.
    ///
    /// # Errors
    /// The inlet was closed meanwhile; the connection is.
    pub(crate) fn begin(
        shared: &'a InletShared,
        epoch: u64,
        connection: Connection,
    ) -> Result<Self> {
        // Not dropped under the lock: a session says goodbye.
        let connection = Box::new(connection);
        let begun = shared.feed.update(|state| {
            if state.epoch != epoch {
                return Err(connection);
            }
            debug_assert!(state.connection.is_none(), "one connection at a time");
            state.connection = Some(connection);
            state.disconnect = None;
            state.number += 1;
            state.reader.begin();
            Ok(state.number)
        });
        match begun {
            Ok(number) => Ok(Self { shared, number }),
            Err(_) => Err(closed()),
        }
    }

    /// Reads until the stream flows.
    ///
    /// # Errors
    /// Why it will not.
    pub(crate) async fn open(&self) -> Result<()> {
        self.attend_until(Until::Opened).await
    }

    /// Reads for as long as the connection lasts. Returns why it ended.
    pub(crate) async fn attend(self) -> Error {
        loop {
            if let Err(error) = self.attend_until(Until::End).await {
                return error;
            }
        }
    }

    async fn attend_until(&self, until: Until) -> Result<()> {
        let mut tick = pin!(tokio::time::sleep(TICK));
        let mut is_armed = false;
        let mut woken = pin!(self.shared.work.notified());
        poll_fn(|context| {
            // Before looking, so that what changes later wakes this task again.
            while woken.as_mut().poll(context).is_ready() {
                woken.set(self.shared.work.notified());
            }
            loop {
                let is_due = is_armed && tick.as_mut().poll(context).is_ready();
                match self.look(context, is_due, until) {
                    Next::Opened => return Poll::Ready(Ok(())),
                    Next::Ended(error) => return Poll::Ready(Err(error)),
                    Next::Again => {
                        // A feed that never runs dry must not keep a clock probe waiting.
                        context.waker().wake_by_ref();
                        return Poll::Pending;
                    }
                    Next::Reactor => {
                        is_armed = false;
                        return Poll::Pending;
                    }
                    Next::Timer(_) if is_armed && !is_due => return Poll::Pending,
                    Next::Timer(duration) => {
                        tick.as_mut().reset(tokio::time::Instant::now() + duration);
                        is_armed = true;
                    }
                }
            }
        })
        .await
    }

    /// Looks once; `is_due` if the timer has run off.
    fn look(&self, context: &mut Context<'_>, is_due: bool, until: Until) -> Next {
        let shared = self.shared;
        let mut state = shared.feed.lock();
        // Not the next one: whoever is woken for that is not this task.
        if state.number != self.number || state.connection.is_none() {
            return Next::Ended(closed());
        }
        let before = (state.feed.counts().samples, state.is_opened());
        let next = self.read(&mut state, context, is_due, until);
        let arrived = state.feed.counts().samples > before.0;
        let lost = state.feed.take_lost(local_clock);
        let warning = state.feed.take_clock_warning();
        let is_opened = state.is_opened();
        let connection = state.connection.as_deref_mut();
        let session = connection.and_then(Connection::session);
        let key_updates = session.and_then(InletSession::take_key_updates);
        let ended = state.disconnect.is_some().then(|| state.end());
        drop(state);
        if let Some(tell) = key_updates {
            tell();
        }
        if let Some((samples, reason)) = lost {
            let name = shared.info.name();
            tracing::warn!("stream {name:?}: {samples} samples lost ({reason})");
        }
        if let Some(suspect) = warning {
            let name = shared.info.name();
            tracing::warn!("stream {name:?}: its stamps are not on the clock of LSL: {suspect}");
        }
        if arrived || is_opened != before.1 || ended.is_some() {
            shared.feed.wake();
        }
        if arrived {
            shared.notify();
        }
        match ended {
            Some(ended) => Next::Ended(ended.finish().unwrap_or_else(closed)),
            None if until == Until::Opened && is_opened => Next::Opened,
            None => next,
        }
    }

    fn read(
        &self,
        state: &mut FeedState,
        context: &mut Context<'_>,
        is_due: bool,
        until: Until,
    ) -> Next {
        let shared = self.shared;
        let Some(connection) = state.readable() else {
            return Next::Reactor;
        };
        if let Err(disconnect) = connection.poll_signals(context) {
            state.disconnect = Some(disconnect);
            return Next::Reactor;
        }
        let is_registered = connection.is_registered();
        let is_urgent = until == Until::Opened || connection.is_urgent();
        let now = local_clock();
        if let Some(gone) = state.reader.depose(now) {
            gone.raise();
        }
        if state.reader.leader().is_some() && shared.notifier.get().is_none() {
            return Next::Timer(LEADER_TICK);
        }
        if state.is_held_back() {
            return Next::Reactor;
        }
        let is_wanted = |state: &FeedState| {
            let is_prompt =
                is_urgent || shared.feed.has_waiters() || shared.notifier.get().is_some();
            state.reader.needs_reactor(now, is_prompt)
        };
        let mut taken = 0;
        if !is_registered && !is_wanted(state) {
            if !is_due {
                return Next::Timer(TICK);
            }
            let is_read = state.reader.is_read_by_callers(now);
            let most = if is_read {
                BESIDE_CALLERS_BYTES
            } else {
                TURN_BYTES
            };
            while let Some(Received { progress, .. }) = state.receive(None, ReadBy::Other) {
                taken += progress.bytes;
                if progress.is_all || taken >= most {
                    break;
                }
            }
            if is_read || (0 < taken && taken < most) {
                // Those who left nothing keep up by themselves.
                let keep_up = is_read && taken == 0;
                return Next::Timer(if keep_up { CALLERS_TICK } else { TICK });
            }
            if taken > 0 {
                return Next::Again;
            }
        }
        let samples = state.feed.counts().samples;
        while let Some(Received { progress, .. }) = state.receive(Some(context), ReadBy::Other) {
            taken += progress.bytes;
            if state.disconnect.is_some() {
                return Next::Reactor;
            }
            if state.feed.counts().samples > samples && !is_wanted(state) {
                // It flows and nobody waits for it.
                if let Some(connection) = state.readable() {
                    connection.unregister();
                }
                return Next::Timer(TICK);
            }
            if until == Until::Opened && state.is_opened() {
                return Next::Again;
            }
            if taken >= TURN_BYTES {
                return Next::Again;
            }
        }
        if let Some(connection) = state.readable()
            && let Err(disconnect) = connection.poll_alarm(context)
        {
            state.disconnect = Some(disconnect);
        }
        Next::Reactor
    }
}

impl Drop for Attendance<'_> {
    fn drop(&mut self) {
        let mut state = self.shared.feed.lock();
        let is_own = self.shared.owner.is_current();
        let ended = (state.number == self.number).then(|| {
            // What arrived before the stream moved is not lost with its connection, unless its inlet was
            // closed, and then the connection is not here any more.
            if is_own {
                state.drain();
            }
            state.end()
        });
        drop(state);
        // Not under the lock: a session says goodbye, except in a forked child.
        if let Some(ended) = ended.filter(|_| is_own) {
            ended.finish();
        }
        self.shared.feed.wake();
    }
}

/// What the task does next.
enum Next {
    /// It is woken when the socket has something.
    Reactor,
    Timer(Duration),
    /// There is more, after others had their turn.
    Again,
    Opened,
    Ended(Error),
}

fn closed() -> Error {
    Error::Protocol("the inlet was closed".into())
}

/// The task looks that often while callers read.
const TICK: Duration = Duration::from_millis(20);

/// The same while they leave nothing behind.
const CALLERS_TICK: Duration = Duration::from_millis(100);

/// The same while a thread leads.
const LEADER_TICK: Duration = Duration::from_millis(100);

/// Read by the task before others get their turn.
const TURN_BYTES: usize = 64 * 1024;

/// Read by the task in a tick in which callers read, too. Those that keep up want the processor and the
/// lock for themselves; behind those that do not, a stream of 25 MB/s still goes into the ring, as if it
/// were the task's alone, and the outlet is not held up.
const BESIDE_CALLERS_BYTES: usize = 512 * 1024;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use lsl_proto::config::Config;
    use lsl_proto::inlet::Feed;

    use super::*;
    use crate::net::sync::Interrupt;
    use crate::{ChannelFormat, Outlet, StreamInfo};

    #[test]
    fn a_pull_gets_its_sample_after_the_leader_s_thread_was_ended() {
        let mut config = Config::loopback();
        config.set_ports(48_650, 20);
        config.set_session_id("attend-ended-leader").unwrap();
        let context = crate::Context::new(config);
        let info = StreamInfo::new("n", "t", 1, 0.0, ChannelFormat::Int8, "ended-leader");
        let outlet = Outlet::builder(info.unwrap()).context(&context).open();
        let outlet = outlet.unwrap();
        let mut info = outlet.info().clone();
        info.fill_v4_address("127.0.0.1");
        let inlet = InletShared::new(context, info, 10, 0, (true, true), false);
        let inlet = Arc::new(inlet);
        inlet.start_data().unwrap();
        let soon = local_clock() + 20.0;
        let opened = |state: &mut FeedState| state.is_opened().then_some(());
        inlet.feed.wait_blocking(soon, opened).unwrap();
        let interrupt = Interrupt::of_thread().unwrap();
        let lead = || {
            outlet.push(&[1_i8]).unwrap();
            inlet.look(Feed::flush);
            let mut state = inlet.feed.lock();
            let is_leader = state.reader.lead(local_clock(), &interrupt).is_some();
            if let Some(connection) = state.readable().filter(|_| is_leader) {
                connection.unregister();
            }
            is_leader
        };
        // As a pull does that then never comes back.
        while !lead() {
            assert!(local_clock() < soon, "nobody may lead");
            std::thread::yield_now();
        }
        inlet.work.notify_one();
        outlet.push(&[2_i8]).unwrap();
        let pulled = inlet.pull_blocking(soon, |feed| feed.is_ready().then_some(()));
        inlet.stop();
        assert_eq!(pulled, Some(()));
    }
}
