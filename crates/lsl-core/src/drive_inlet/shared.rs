//! What an inlet's handle and its tasks share.
//!
//! Lock order: `tasks`, then `feed`; the others are taken alone.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use lsl_platform::clock::{local_clock, utc_now};
use lsl_platform::fork::Generation;
use lsl_proto::clock::{PostProcessor, TimeCorrection};
use lsl_proto::inlet::{Feed, FeedOptions, SampleRing};
use lsl_proto::wire::sequence::ReplayFrom;
use tokio::task::AbortHandle;

use crate::context::Context;
use crate::drive_clock::session::LentKeys;
use crate::drive_inlet::feed_state::FeedState;
use crate::drive_inlet::reach::Way;
use crate::drive_inlet::recovery::Source;
use crate::net::monitor::{Monitor, lock_ignoring_poison};
use crate::net::sync::Notify;
use crate::{Error, Result, StreamInfo};

/// The part of an inlet that its handle and its tasks hold together.
#[derive(Debug)]
pub(crate) struct InletShared {
    pub(crate) context: Context,
    /// The stream as the caller described it: the shape of the samples never changes.
    pub(crate) info: StreamInfo,
    pub(crate) channels: usize,
    /// Whether it can be found again by its source id.
    pub(crate) recoverable: bool,
    /// Whether the user wants it to be recovered.
    pub(super) recovers: bool,
    pub(crate) source: Source,
    pub(crate) feed: Monitor<FeedState>,
    /// Wakes the task of the data connection to look again.
    pub(crate) work: Notify,
    /// The connection of a forked child is its parent's.
    pub(crate) owner: Generation,
    /// Whether there ever was a task, and with it a connection or a key.
    pub(super) has_begun: AtomicBool,
    pub(super) capacity_samples: usize,
    pub(crate) facts: Monitor<Facts>,
    /// Told after each batch of samples and when the stream is lost.
    pub(crate) notifier: OnceLock<Notifier>,
    pub(super) options: FeedOptions,
    pub(super) samples_first: bool,
    pub(super) tasks: Mutex<Tasks>,
}

/// Knowledge about the outlet besides its samples.
#[derive(Debug, Default)]
pub(crate) struct Facts {
    /// Newest estimate of the outlet's clock; `None` while there is none.
    pub(crate) correction: Option<TimeCorrection>,
    /// Fetched when asked for, with the moves of the source it came from. Copied and dropped without the lock,
    /// which the I/O thread needs: it may be large.
    pub(crate) full_info: Option<(u64, Arc<StreamInfo>)>,
    /// Way by which the samples come, while there is a data connection and relays are known.
    pub(crate) way: Option<Way>,
    /// For the clock of an outlet that encrypts, lent by whichever session lives.
    pub(crate) keys: Option<LentKeys>,
    /// Id of the keys that were lent last.
    pub(crate) last_keys: u64,
    /// Reason of the final loss.
    lost: Option<String>,
}

impl Facts {
    /// Returns whether a session lends its keys.
    pub(crate) fn has_keys(&self) -> bool {
        self.keys.is_some()
    }

    /// Returns `known` or the loss, for those who wait for it.
    pub(crate) fn or_lost<T>(&self, known: Option<T>) -> Option<Result<T>> {
        match &self.lost {
            Some(reason) => Some(Err(Error::Lost {
                reason: reason.clone(),
            })),
            None => known.map(Ok),
        }
    }
}

/// Somebody else's function, to be called without any lock held.
pub(crate) struct Notifier(pub(crate) Box<dyn Fn() + Send + Sync>);

impl std::fmt::Debug for Notifier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Notifier")
    }
}

#[derive(Debug, Default)]
pub(super) struct Tasks {
    pub(super) data: Option<AbortHandle>,
    pub(super) clock: Option<AbortHandle>,
    pub(super) info: Option<AbortHandle>,
}

impl InletShared {
    pub(crate) fn new(
        context: Context,
        info: StreamInfo,
        capacity_samples: usize,
        max_chunk_samples: u32,
        (recoverable, recovers): (bool, bool),
        samples_first: bool,
    ) -> Self {
        let options = FeedOptions {
            version: context.config().tuning().protocol_version,
            // An outlet of liblsl loses samples with a queue of one (Q12).
            max_buffer_samples: u32::try_from(capacity_samples)
                .unwrap_or(i32::MAX as u32)
                .max(2),
            max_chunk_samples,
        };
        let tuning = context.config().tuning();
        let processing = PostProcessor::new(info.nominal_srate(), tuning.smoothing_halftime_secs);
        let mut byte_limit = (tuning.inlet_buffer_limit_mib as usize).saturating_mul(1 << 20);
        if info.channel_format().value_size() == 0 {
            // What a string takes is up to its sender.
            byte_limit = byte_limit.min(STRING_RING_BYTES);
        }
        let channels = info.channel_count() as usize;
        let ring = SampleRing::new(capacity_samples, byte_limit);
        let shape = (channels, info.channel_format());
        let mut feed = Feed::new(ring, processing, shape, samples_first);
        if tuning.resume {
            feed.ask_for(ReplayFrom::Live);
        }
        Self {
            channels,
            recoverable,
            recovers,
            source: Source::new(context.clone(), info.clone(), recoverable),
            feed: Monitor::new(FeedState::new(feed)),
            work: Notify::new(),
            owner: Generation::current(),
            has_begun: AtomicBool::new(false),
            capacity_samples,
            facts: Monitor::default(),
            notifier: OnceLock::new(),
            options,
            samples_first,
            tasks: Mutex::default(),
            context,
            info,
        }
    }

    /// The same inlet in a forked child, in `context`, which is the child's own. `None` if it had begun
    /// before the fork, has a notifier or a link: its connections, keys and threads are its parent's.
    ///
    /// Waits for no lock: threads that only the parent has may hold them.
    pub(crate) fn in_forked_child(&self, context: Context) -> Option<Self> {
        if self.has_begun() || self.notifier.get().is_some() || self.source.is_linked() {
            return None;
        }
        let anew = Self::new(
            context,
            self.info.clone(),
            self.capacity_samples,
            self.options.max_chunk_samples,
            (self.recoverable, self.recovers),
            self.samples_first,
        );
        // Held by somebody who was about to change it: as if that came too late.
        if let Some(state) = self.feed.try_lock() {
            let mut anew = anew.feed.lock();
            anew.feed.processing = state.feed.processing.clone();
            if let Some(asked) = state.feed.asked(0.0) {
                anew.feed.ask_for(asked);
            }
        }
        Some(anew)
    }

    /// Returns whether there ever was a task.
    pub(crate) fn has_begun(&self) -> bool {
        self.has_begun.load(Ordering::Relaxed)
    }

    /// Changes the feed of an inlet that has no task yet, and lets none start meanwhile; `None` if there was one.
    pub(crate) fn before_begin<R>(&self, change: impl FnOnce(&mut Feed) -> R) -> Option<R> {
        let _tasks = lock_ignoring_poison(&self.tasks);
        (!self.has_begun()).then(|| change(&mut self.feed.lock().feed))
    }

    /// Whether there is a data connection, or will be.
    pub(crate) fn is_receiving(&self) -> bool {
        lock_ignoring_poison(&self.tasks).data.is_some()
    }

    /// Shows what is known of the outlet's clock to pulls, and to those who wait for it.
    pub(crate) fn publish_clock(&self, correction: Option<TimeCorrection>, was_reset: bool) {
        if correction.is_none() {
            // First, or a pull that finds no offset would be given the old one here, again and again.
            self.facts.update(|facts| facts.correction = None);
        }
        let unix_ahead_secs = utc_now().as_secs_f64() - local_clock();
        let mut state = self.feed.lock();
        (state.feed).set_clock(correction.as_ref(), was_reset, unix_ahead_secs);
        drop(state);
        self.facts.update(|facts| facts.correction = correction);
    }

    /// Tells the notifier, if there is one, that a pull would not wait.
    pub(crate) fn notify(&self) {
        if let Some(notifier) = self.notifier.get() {
            (notifier.0)();
        }
    }

    /// No more of this stream, for any call. Final.
    pub(crate) fn lose(&self, reason: &str) {
        self.feed.update(|state| state.feed.lose(reason));
        self.interrupt_leader();
        self.facts
            .update(|facts| facts.lost = Some(reason.to_owned()));
        self.notify();
    }
}

/// Queued string data may take this much memory, whatever a peer sends.
const STRING_RING_BYTES: usize = 256 << 20;

#[cfg(test)]
mod tests {
    use lsl_proto::clock::{Action, OffsetEstimator};
    use lsl_proto::config::Config;

    use super::*;
    use crate::ChannelFormat;

    fn correction() -> TimeCorrection {
        let mut estimator = OffsetEstimator::new(Config::loopback().tuning().into(), 1);
        let mut now = 0.0;
        loop {
            match estimator.poll(now) {
                Action::SendProbe { wave_id, t0 } => {
                    let replied = estimator.on_reply(now, wave_id, t0, now, now);
                    replied.unwrap();
                }
                Action::WaitUntil(next) => now = next,
            }
            if let Some(correction) = estimator.estimate() {
                return correction;
            }
        }
    }

    /// A pull that finds no offset takes the correction, and would not wait for the old one.
    #[test]
    fn a_correction_that_does_not_hold_any_more_is_forgotten_before_its_offset() {
        let info = StreamInfo::new("n", "t", 1, 1.0, ChannelFormat::Int8, "clock-order");
        let context = Context::new(Config::loopback());
        let shared = InletShared::new(context, info.unwrap(), 1, 0, (true, true), false);
        shared.publish_clock(Some(correction()), false);
        std::thread::scope(|scope| {
            let feed = shared.feed.lock();
            scope.spawn(|| shared.publish_clock(None, true));
            let is_gone = |facts: &mut Facts| facts.correction.is_none().then_some(());
            let gone = (shared.facts).wait_blocking(local_clock() + 20.0, is_gone);
            drop(feed);
            assert!(gone.is_some());
        });
    }
}
