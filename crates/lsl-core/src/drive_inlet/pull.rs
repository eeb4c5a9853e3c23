//! Pulls, and who reads the socket for them. Who waits for it when is decided in `inlet::reader`.
//!
//! Whoever holds the lock of the feed may read, without blocking, so `samples_available` is exact
//! whoever waits. A thread that leads waits outside of the lock and holds only the descriptor.

use std::sync::Arc;
use std::task::Poll;

use lsl_platform::probe;
use lsl_platform::wait::Woken;
use lsl_proto::inlet::{Feed, LeaderId};

use crate::byte_stream::Waiter;
use crate::drive_inlet::connection::Connection;
use crate::drive_inlet::feed_state::{FeedState, ReadBy};
use crate::drive_inlet::shared::InletShared;
use crate::net::monitor::has_passed;
use crate::net::sync::{Interrupt, local_clock};

/// Result of one turn of a wait for a sample.
enum Turn<R> {
    Found(R),
    /// This thread waits for the socket itself.
    Lead(Lead),
}

/// The right and the duty to wait for the socket.
struct Lead {
    id: LeaderId,
    waiter: Waiter,
    interrupt: Arc<Interrupt>,
    /// The socket was registered with the reactor: the inlet's task must learn that it is not any more.
    was_registered: bool,
    /// When the stream counts as quiet.
    quiet_at: f64,
}

impl InletShared {
    /// Takes what `take` gives of the ring and the socket, without waiting.
    pub(crate) fn try_pull<R>(&self, mut take: impl FnMut(&mut Feed) -> Option<R>) -> Option<R> {
        let mut state = self.feed.lock();
        if let Some(found) = self.take(&mut state, &mut take) {
            return Some(found);
        }
        let arrived = self.read_now(&mut state);
        let found = if arrived {
            self.take(&mut state, &mut take)
        } else {
            None
        };
        drop(state);
        if arrived {
            self.feed.wake();
        }
        found
    }

    /// Looks at the feed after a read of everything there is.
    pub(crate) fn look<R>(&self, look: impl FnOnce(&mut Feed) -> R) -> R {
        let mut state = self.feed.lock();
        let arrived = self.read_now(&mut state);
        let found = self.take(&mut state, look);
        drop(state);
        if arrived {
            self.feed.wake();
        }
        found
    }

    /// Blocks until `take` gives something, at the latest at `deadline`. Waits for the socket itself if
    /// it can.
    pub(crate) fn pull_blocking<R>(
        &self,
        deadline: f64,
        mut take: impl FnMut(&mut Feed) -> Option<R>,
    ) -> Option<R> {
        let mut state = self.feed.lock();
        if let Some(found) = self.take(&mut state, &mut take) {
            return Some(found);
        }
        let now = local_clock();
        if has_passed(deadline - now) {
            drop(state);
            return self.try_pull(take);
        }
        // The usual case, without waiting for anybody else.
        let mut first = self.take_lead(&mut state, now);
        drop(state);
        loop {
            let turn = match first.take() {
                Some(lead) => Some(Turn::Lead(lead)),
                None => self.feed.wait_blocking(deadline, |state| {
                    if let Some(found) = self.take(state, &mut take) {
                        return Some(Turn::Found(found));
                    }
                    let now = local_clock();
                    let lead = (deadline > now)
                        .then(|| self.take_lead(state, now))
                        .flatten();
                    if lead.is_none() {
                        self.request_reactor(state, now);
                    }
                    lead.map(Turn::Lead)
                }),
            };
            let lead = match turn {
                Some(Turn::Found(found)) => return Some(found),
                Some(Turn::Lead(lead)) => lead,
                None => return None,
            };
            if lead.was_registered {
                self.work.notify_one();
            }
            if let Poll::Ready(found) = self.lead(&lead, deadline, &mut take) {
                return found;
            }
        }
    }

    /// Waits until `take` gives something, as [`pull_blocking`](Self::pull_blocking): the inlet's task
    /// reads for it.
    pub(crate) async fn pull<R>(
        &self,
        deadline: f64,
        mut take: impl FnMut(&mut Feed) -> Option<R>,
    ) -> Option<R> {
        if has_passed(deadline - local_clock()) {
            return self.try_pull(take);
        }
        let look = |state: &mut FeedState| {
            let found = self.take(state, &mut take);
            if found.is_none() {
                self.request_reactor(state, local_clock());
            }
            found
        };
        self.feed.wait(deadline, look).await
    }

    /// Looks at the feed for a caller with the lock. Has the inlet's task go on if that made room for replay.
    #[inline]
    fn take<R>(&self, state: &mut FeedState, take: impl FnOnce(&mut Feed) -> R) -> R {
        let taken = take(&mut state.feed);
        if state.take_room() && self.owner.is_current() {
            self.work.notify_one();
        }
        taken
    }

    /// Tells those who look by probes of samples that were just taken. With the lock, in the order of the samples: what
    /// is told is known there alone, and to keep it until the lock is released would cost every pull something.
    #[inline]
    pub(crate) fn note_pull(&self, feed: &Feed, samples: usize) {
        probe::pull(&move || {
            let bytes = self.info.channel_format().value_size() * self.channels * samples;
            let [samples, bytes] = [samples, bytes].map(|it| it as u64);
            let received = feed.counts().samples - feed.ring.len() as u64;
            let next = (feed.first_of_ring()).map_or(received, |position| position.next);
            [
                probe::word_of(self),
                next.saturating_sub(samples),
                samples,
                bytes,
            ]
        });
    }

    /// Takes the lead for a thread that found nothing, if it can be had.
    fn take_lead(&self, state: &mut FeedState, now: f64) -> Option<Lead> {
        if !self.may_read() || state.feed.lost().is_some() {
            return None;
        }
        let interrupt = Interrupt::of_thread().ok()?;
        let waiter = state.readable().filter(|it| !it.has_held())?;
        let waiter = waiter.writer()?.waiter()?;
        let id = state.reader.lead(now, &interrupt)?;
        let was_registered = state.readable().is_some_and(Connection::unregister);
        Some(Lead {
            id,
            waiter,
            interrupt,
            was_registered,
            quiet_at: state.reader.quiet_at(),
        })
    }

    /// Has the inlet's task read for somebody who waits.
    fn request_reactor(&self, state: &mut FeedState, now: f64) {
        if self.owner.is_current()
            && state.reader.request_reactor(now)
            && state
                .readable()
                .is_some_and(|it| !it.is_registered() || it.has_held())
        {
            self.work.notify_one();
        }
    }

    /// Waits for the socket and reads it until `take` has what it wants: `None` at the deadline. Pending if the
    /// lead ended before.
    fn lead<R>(
        &self,
        lead: &Lead,
        deadline: f64,
        take: &mut impl FnMut(&mut Feed) -> Option<R>,
    ) -> Poll<Option<R>> {
        let mut quiet_at = lead.quiet_at;
        loop {
            let until = deadline.min(quiet_at);
            let woken = lead.waiter.wait_readable_or(&lead.interrupt, until);
            if matches!(woken, Ok(Woken::Interrupted)) {
                lead.interrupt.lower();
            }
            let mut state = self.feed.lock();
            let is_leader = state.reader.is_leader(lead.id);
            let received = match woken {
                Ok(Woken::Readable) if is_leader => state.receive(None, ReadBy::Leader),
                _ => None,
            };
            let found = self.take(&mut state, &mut *take);
            let now = local_clock();
            quiet_at = state.reader.quiet_at();
            if woken.is_err() {
                state.reader.back_off();
            }
            let stays = is_leader
                && woken.is_ok()
                && found.is_none()
                && now < deadline
                && now < quiet_at
                && self.may_read()
                && state.disconnect.is_none();
            if stays {
                // Nobody else is interested in samples that were not enough for this pull.
                continue;
            }
            state.reader.resign(lead.id);
            // On Windows a socket wakes only the thread that waited for it last. A deposed leader that was late took
            // that from its successor, which waits for it anew once it is interrupted.
            if let Some(present) = state.reader.leader() {
                present.raise();
            }
            // An answer to the clock must not lie in the socket until somebody leads again.
            let concerns_task = state.disconnect.is_some() || state.is_urgent();
            drop(state);
            // The next leader, and those for whom there is something too.
            self.feed.wake();
            if concerns_task {
                self.work.notify_one();
            }
            if received.is_some_and(|it| it.samples > 0) && self.notifier.get().is_some() {
                self.notify();
            }
            return match found {
                None if now < deadline => Poll::Pending,
                found => Poll::Ready(found),
            };
        }
    }

    /// Returns whether callers may read the socket: not in a forked child, whose parent's it is, and not
    /// if somebody is to be told of samples, which is the business of the inlet's task.
    fn may_read(&self) -> bool {
        self.notifier.get().is_none() && self.owner.is_current()
    }

    /// Reads for a caller with the lock who does not wait. Returns true if samples came: others must be
    /// woken.
    fn read_now(&self, state: &mut FeedState) -> bool {
        // What comes before the stream flows is for the inlet's task.
        if !self.may_read() || !state.is_opened() {
            return false;
        }
        let arrived = state.drain();
        let is_prompt = self.feed.has_waiters() || state.is_urgent();
        let was_registered = state
            .reader
            .on_caller_read(local_clock(), arrived, is_prompt)
            && state.readable().is_some_and(Connection::unregister);
        if was_registered || state.disconnect.is_some() {
            self.work.notify_one();
        }
        arrived
    }

    /// Makes the leader look again.
    pub(crate) fn interrupt_leader(&self) {
        if let Some(leader) = self.feed.lock().reader.leader() {
            leader.raise();
        }
    }
}
