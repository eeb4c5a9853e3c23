//! Everything of an inlet that pulls share: the ring, the counters, the corrections of timestamps and the
//! loss. Callers hold it behind one lock, together with the connection that fills it.
//! Spec: lsl-protocol §9.4, §11.

mod run;

pub use run::Run;

use super::resumption::{Asked, LostSamples, Reconnection, ResumeCounts, Resumption};
use super::suspicion::{Flow, Pauses};
use super::{Connection, Disconnect, FeedDecoder, SampleRing};
use crate::clock::{ClockOffset, ClockSuspect, PostProcessor, StampWatch, TimeCorrection};
use crate::limits::TokenBucket;
use crate::value::{PullElement, read_raw};
use crate::wire::sequence::{GapReason, Position};
use crate::{ChannelFormat, Error, ProcessingOptions, Result};

/// Samples of one stream and what is known of it.
#[derive(Debug)]
pub struct Feed {
    /// Samples that wait for a pull.
    pub ring: SampleRing,
    /// Corrections that pulls apply to timestamps.
    pub processing: PostProcessor,
    channels: usize,
    format: ChannelFormat,
    /// Whether a loss is reported only once no sample waits.
    samples_first: bool,
    /// Reason of the final loss, as returned to callers. Never reset.
    lost: Option<String>,
    /// Whether a connection was complete at least once since the last [`clear`](Self::clear).
    is_opened: bool,
    /// Offset of the outlet's clock in seconds, once it is known.
    offset_secs: Option<f64>,
    /// Whether a known clock was replaced by another one since somebody asked.
    was_clock_reset: bool,
    counts: FeedCounts,
    pauses: Pauses,
    stamps: StampWatch,
    resumption: Resumption,
    /// How often the log is told of losses.
    reports: TokenBucket,
}

/// Counters of a feed since it was created.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct FeedCounts {
    /// Samples received on all data connections.
    pub samples: u64,
    /// Bytes received on data connections.
    pub bytes: u64,
    /// Connections that were made again after a loss.
    pub reconnects: u64,
    /// Time of the last sample or connection, in seconds of `local_clock`.
    pub last_arrival: Option<f64>,
}

/// Result of one read of the socket.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Read {
    /// Samples put into the ring.
    pub samples: u64,
    /// Whether the connection has just become complete.
    pub has_opened: bool,
}

/// Destination of a pull: one value per channel and sample, and the timestamps if they are wanted.
#[derive(Debug)]
pub struct Pull<'a, T> {
    values: &'a mut [T],
    timestamps: Option<&'a mut [f64]>,
    /// Number of samples that fit; the pull is complete with them.
    wanted: usize,
    /// Number of samples taken so far.
    pulled: usize,
}

/// Result of [`Feed::take`]: whether samples came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taken {
    /// At least one sample was taken.
    Samples,
    /// No sample waits in the ring.
    Nothing,
    /// Clock synchronisation is on, and the outlet's clock is not known yet.
    NeedsClock,
}

impl<'a, T> Pull<'a, T> {
    /// Creates a pull of samples with `channels` values each. `timestamps`, if given, has one place per
    /// sample.
    #[inline]
    pub fn new(values: &'a mut [T], timestamps: Option<&'a mut [f64]>, channels: usize) -> Self {
        Self {
            wanted: values.len().checked_div(channels).unwrap_or(1),
            values,
            timestamps,
            pulled: 0,
        }
    }

    /// Returns whether no further sample fits.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.pulled >= self.wanted
    }

    /// Returns the number of samples taken.
    #[inline]
    pub fn pulled(&self) -> usize {
        self.pulled
    }

    /// Returns the number of samples taken, or `error` if there are none: samples already taken are worth
    /// more than an error that the next call reports again.
    ///
    /// # Errors
    /// `error`.
    pub fn or(&self, error: Error) -> Result<usize> {
        if self.pulled > 0 {
            Ok(self.pulled)
        } else {
            Err(error)
        }
    }
}

impl Feed {
    /// Creates an empty feed of samples with so many channels of this format. `samples_first` if those that
    /// arrived before a loss are pulled before it is reported.
    pub fn new(
        ring: SampleRing,
        processing: PostProcessor,
        (channels, format): (usize, ChannelFormat),
        samples_first: bool,
    ) -> Self {
        Self {
            ring,
            processing,
            channels,
            format,
            samples_first,
            lost: None,
            is_opened: false,
            offset_secs: None,
            was_clock_reset: false,
            counts: FeedCounts::default(),
            pauses: Pauses::default(),
            stamps: StampWatch::default(),
            resumption: Resumption::default(),
            reports: TokenBucket::new(1.0 / REPORT_SECS, MOST_REPORTS),
        }
    }

    /// Takes bytes of `connection`'s socket, none at the end of the stream, read at `now`. Returns what
    /// came of them, and why the connection ends if it does.
    #[inline]
    pub fn handle_input(
        &mut self,
        connection: &mut Connection,
        bytes: &mut [u8],
        now: impl Fn() -> f64,
    ) -> (Read, std::result::Result<(), Disconnect>) {
        self.receive(connection, &now, |connection, ring| {
            connection.handle_input(bytes, &now, ring)
        })
    }

    /// Takes what `connection` received before and the ring had no room for, as
    /// [`handle_input`](Self::handle_input).
    pub fn refill(
        &mut self,
        connection: &mut Connection,
        now: impl Fn() -> f64,
    ) -> (Read, std::result::Result<(), Disconnect>) {
        self.receive(connection, now, Connection::refill)
    }

    #[inline]
    fn receive(
        &mut self,
        connection: &mut Connection,
        now: impl Fn() -> f64,
        receive: impl FnOnce(&mut Connection, &mut SampleRing) -> std::result::Result<(), Disconnect>,
    ) -> (Read, std::result::Result<(), Disconnect>) {
        let before = (connection.samples(), connection.bytes());
        let was_opened = connection.is_opened();
        let received = receive(connection, &mut self.ring);
        let read = Read {
            samples: connection.samples() - before.0,
            has_opened: connection.is_opened() && !was_opened,
        };
        self.counts.bytes += connection.bytes() - before.1;
        self.counts.samples += read.samples;
        if read.samples > 0 || read.has_opened {
            let now = now();
            match self.counts.last_arrival.replace(now) {
                Some(before) if !read.has_opened => self.pauses.note(now - before, now),
                _ => self.pauses.begin(now),
            }
            if read.has_opened {
                self.stamps.begin();
            }
            if now >= self.stamps.next_look() && read.samples > 0 {
                self.look_at_stamps(connection, now);
            }
        }
        if read.has_opened {
            let is_again = std::mem::replace(&mut self.is_opened, true);
            self.counts.reconnects += u64::from(is_again);
            if let Some(decoder) = connection.feed() {
                self.processing.set_nominal_srate(decoder.nominal_srate());
                self.stamps.set_nominal_srate(decoder.nominal_srate());
                self.pauses.is_regular = decoder.nominal_srate() > 0.0;
                let granted = decoder.granted();
                (self.resumption).opened(
                    granted,
                    self.counts.samples - read.samples,
                    is_again,
                    now(),
                );
            }
        }
        let is_opened = connection.is_opened();
        if let Some(decoder) = connection.feed_mut() {
            let before = self.counts.samples - decoder.samples();
            if is_opened {
                self.resumption.advance(decoder, before);
            }
            if received.is_err() {
                (self.resumption).broken(decoder.is_contradictory(), now());
            }
        }
        (read, received)
    }

    /// Judges the clock of the stream by its newest sample, unless that was pushed long ago.
    #[cold]
    fn look_at_stamps(&mut self, connection: &Connection, now: f64) {
        let is_live = !(connection.feed()).is_some_and(FeedDecoder::is_replaying);
        if let Some(stamp) = self.ring.newest().filter(|_| is_live) {
            self.stamps.look(stamp, self.counts.samples, now);
        }
    }

    /// Returns whether the socket of `connection` shall wait: what comes is replay, and the ring is full.
    /// Spec: resume §5.4.
    #[inline]
    pub fn is_held_back(&self, connection: &Connection) -> bool {
        connection.feed().is_some_and(FeedDecoder::is_replaying) && self.ring.room() == 0
    }

    /// Returns how `connection` flows. One that waits for room is not silent, nor one that has not begun.
    pub fn flow(&self, connection: Option<&Connection>) -> Flow {
        let is_flowing = |it: &Connection| it.is_opened() && !self.is_held_back(it);
        let last_arrival = self.counts.last_arrival;
        Flow {
            samples: self.counts.samples,
            last_arrival,
            patience_secs: last_arrival
                .filter(|_| connection.is_some_and(is_flowing))
                .and_then(|arrival| self.pauses.patience_secs(arrival)),
            is_numbered: self.resumption.can_go_on(),
        }
    }

    /// Takes as many samples as there are and fit, in runs: nothing is done per sample that can be done
    /// per call. `now` is read only if timestamps are corrected.
    ///
    /// # Errors
    /// [`Error::Lost`]; [`Error::Argument`] if the values cannot be converted.
    #[inline]
    pub fn take<T: PullElement>(
        &mut self,
        pull: &mut Pull<'_, T>,
        now: impl FnOnce() -> f64,
    ) -> Result<Taken> {
        let waits = !self.ring.is_empty();
        if let Some(reason) = &self.lost
            && !(waits && self.samples_first)
        {
            let reason = reason.clone();
            return Err(Error::Lost { reason });
        }
        if !waits {
            return Ok(Taken::Nothing);
        }
        let now = (self.processing.options() != ProcessingOptions::NONE).then(now);
        let before = pull.pulled;
        while !pull.is_full() {
            let mut most = pull.wanted - pull.pulled;
            if self.resumption.has_unpassed() {
                most = self.pass_losses(most);
            }
            let (stamps, _) = self.ring.front_run(most);
            let mut count = stamps.len();
            if count == 0 {
                break;
            }
            let slots = (pull.timestamps.as_deref_mut())
                .and_then(|slots| slots.get_mut(pull.pulled..pull.pulled + count));
            if let Some(now) = now {
                let offset = || {
                    self.offset_secs.map(|offset_secs| ClockOffset {
                        offset_secs,
                        was_reset: std::mem::take(&mut self.was_clock_reset),
                    })
                };
                count = process(&mut self.processing, stamps, slots, now, offset);
                if count == 0 {
                    return Ok(Taken::NeedsClock);
                }
            } else if let Some(slots) = slots {
                slots.copy_from_slice(stamps);
            }
            let (_, raw) = self.ring.front_run(count);
            let room = pull.pulled * self.channels..(pull.pulled + count) * self.channels;
            let values = pull.values.get_mut(room).unwrap_or_default();
            let read = read_raw(raw, self.format, values);
            self.ring.pop_many(count);
            read?;
            pull.pulled += count;
        }
        Ok(if pull.pulled > before {
            Taken::Samples
        } else {
            Taken::Nothing
        })
    }

    /// Has the corrections count the samples that were lost before the oldest one that waits. Returns how many of
    /// the next `samples` come before another loss. Spec: resume §5.6.
    #[cold]
    fn pass_losses(&mut self, samples: usize) -> usize {
        let oldest = self.counts.samples - self.ring.len() as u64;
        let (lost, next) = self.resumption.pass(oldest);
        self.processing.flush(lost);
        let before = next.map_or(usize::MAX, |next| {
            usize::try_from(next - oldest).unwrap_or(usize::MAX)
        });
        samples.min(before)
    }

    /// Forgets the samples that wait, for good: the next connection is a first one. Returns nothing of
    /// them to the statistics.
    pub fn clear(&mut self) {
        self.ring.clear();
        self.resumption.clear();
        self.is_opened = false;
    }

    /// Has connections ask where they shall begin, the first one for `asked`. Spec: resume §5.2.
    pub fn ask_for(&mut self, asked: impl Into<Asked>) {
        self.resumption.begin(asked.into());
    }

    /// Returns what a connection of now asks for, if anything.
    pub fn asked(&self, now: f64) -> Option<Asked> {
        let silent_secs = self.counts.last_arrival.map(|arrival| now - arrival);
        self.resumption.asked(silent_secs)
    }

    /// Returns the number of the first sample that was not received yet; `None` before the stream flows, and if
    /// nobody numbers them.
    pub fn position(&self) -> Option<Position> {
        self.resumption.position().filter(|_| self.is_opened)
    }

    /// Returns whether a feed that broke can go on where it was. Spec: resume §5.7.
    pub fn can_resume(&self) -> bool {
        self.is_opened && self.resumption.can_go_on()
    }

    /// Returns whether the stream is over, and all of it was received.
    pub fn has_ended(&self) -> bool {
        self.is_opened && self.resumption.position().is_some() && !self.resumption.can_go_on()
    }

    /// Returns whether the outlet contradicted the position, so that the next connection begins live.
    /// Spec: resume §2.2.
    pub fn is_contradicted(&self) -> bool {
        self.resumption.is_contradicted()
    }

    /// Returns the losses that were not returned before, the oldest so many.
    pub fn take_gaps(&mut self, most: usize) -> Vec<LostSamples> {
        self.resumption.take_gaps(most)
    }

    /// Returns what came of the last connection that was made again, once.
    pub fn take_reconnection(&mut self) -> Option<Reconnection> {
        self.resumption.take_reconnection()
    }

    /// Returns how many samples were lost since the last call while a connection lasted, and why, for the log: from
    /// time to time, as an outlet may tell of loss after loss.
    pub fn take_lost(&mut self, now: impl FnOnce() -> f64) -> Option<(u64, GapReason)> {
        let is_due = self.resumption.has_unreported() && self.reports.take(now());
        is_due.then(|| self.resumption.take_unreported()).flatten()
    }

    /// Notes that the connection is over, if it is not known yet: it was when samples ceased to come.
    pub fn disconnected(&mut self, now: f64) {
        let patience = |at: f64| self.pauses.patience_secs(at);
        let is_late = |&at: &f64| patience(at).is_some_and(|secs| now - at >= secs);
        let since = self.counts.last_arrival.filter(is_late);
        self.resumption.broken(false, since.unwrap_or(now));
    }

    /// Returns the counters of what was lost and resumed.
    pub fn resume_counts(&self) -> &ResumeCounts {
        &self.resumption.counts
    }

    /// Forgets the samples that wait and returns their number, which the corrections count as pulled.
    pub fn flush(&mut self) -> usize {
        let count = self.ring.clear();
        self.processing.flush(count as u64);
        count
    }

    /// Ends the stream for every later call.
    pub fn lose(&mut self, reason: &str) {
        self.lost = Some(reason.to_owned());
    }

    /// Returns the reason of the final loss.
    #[inline]
    pub fn lost(&self) -> Option<&str> {
        self.lost.as_deref()
    }

    /// Returns whether the stream flows or did, or that it is lost; `None` while it is being opened.
    pub fn opened(&self) -> Option<Result<()>> {
        match &self.lost {
            Some(reason) => Some(Err(Error::Lost {
                reason: reason.clone(),
            })),
            None => self.is_opened.then_some(Ok(())),
        }
    }

    /// Returns whether a pull would return at once.
    pub fn is_ready(&self) -> bool {
        !self.ring.is_empty() || self.lost.is_some()
    }

    /// Takes over the estimate of the outlet's clock, `None` while it is not known, and whether a known clock was
    /// replaced by another one. The time of day is so far ahead of `local_clock`.
    pub fn set_clock(
        &mut self,
        correction: Option<&TimeCorrection>,
        was_reset: bool,
        unix_ahead_secs: f64,
    ) {
        self.offset_secs = correction.map(|it| it.offset_secs);
        self.was_clock_reset |= was_reset;
        self.stamps.set_clock(correction, unix_ahead_secs);
    }

    /// Returns what is wrong with the stamps of the samples that come, if their clock is known.
    pub fn clock_suspect(&self) -> Option<ClockSuspect> {
        self.stamps.verdict()
    }

    /// Returns the same for the log, once.
    pub fn take_clock_warning(&mut self) -> Option<ClockSuspect> {
        self.stamps.take_warning()
    }

    /// Returns whether the outlet's clock became another one since the last call.
    pub fn take_was_clock_reset(&mut self) -> bool {
        std::mem::take(&mut self.was_clock_reset)
    }

    /// Returns the counters since the feed was created.
    #[inline]
    pub fn counts(&self) -> &FeedCounts {
        &self.counts
    }
}

/// Corrects `stamps` into `slots`, if there are any; returns how many before the clock was needed.
fn process(
    processing: &mut PostProcessor,
    stamps: &[f64],
    mut slots: Option<&mut [f64]>,
    now: f64,
    mut offset: impl FnMut() -> Option<ClockOffset>,
) -> usize {
    for (index, &raw) in stamps.iter().enumerate() {
        let Ok(processed) = processing.process(raw, now, &mut offset) else {
            return index;
        };
        if let Some(slot) = slots.as_deref_mut().and_then(|it| it.get_mut(index)) {
            *slot = processed;
        }
    }
    stamps.len()
}

/// How often the log is told of losses, after the first ones, in seconds.
const REPORT_SECS: f64 = 60.0;

/// Losses of which the log is told one by one.
const MOST_REPORTS: f64 = 10.0;

#[cfg(test)]
mod tests {
    use super::*;

    fn feed(options: ProcessingOptions, samples_first: bool) -> Feed {
        let mut processing = PostProcessor::new(1.0, 90.0);
        processing.set_options(options);
        let mut feed = Feed::new(
            SampleRing::new(10, usize::MAX),
            processing,
            (2, ChannelFormat::Int8),
            samples_first,
        );
        for number in 0..3_u8 {
            feed.ring
                .push(f64::from(number + 1), &[number, 10 + number]);
        }
        feed
    }

    #[test]
    fn a_pull_takes_whole_samples_and_their_stamps() {
        let mut feed = feed(ProcessingOptions::NONE, false);
        let (mut values, mut stamps) = ([0_i8; 4], [0.0; 2]);
        let mut pull = Pull::new(&mut values, Some(&mut stamps), 2);
        assert_eq!(feed.take(&mut pull, || 0.0).unwrap(), Taken::Samples);
        assert!(pull.is_full());
        assert_eq!(
            format!("{values:?} {stamps:?}"),
            "[0, 10, 1, 11] [1.0, 2.0]"
        );
        let mut values = [0.0_f64; 4];
        let mut pull = Pull::new(&mut values, None, 2);
        assert_eq!(feed.take(&mut pull, || 0.0).unwrap(), Taken::Samples);
        assert_eq!(feed.take(&mut pull, || 0.0).unwrap(), Taken::Nothing);
        assert_eq!((pull.pulled(), pull.is_full()), (1, false));
        assert_eq!(format!("{values:?}"), "[2.0, 12.0, 0.0, 0.0]");
    }

    #[test]
    fn without_the_clock_nothing_is_taken_and_its_reset_is_told_once() {
        let mut feed = feed(ProcessingOptions::CLOCKSYNC, false);
        let correction = TimeCorrection {
            offset_secs: 100.0,
            uncertainty_secs: 0.001,
            remote_time: 0.0,
            is_low_quality: false,
        };
        let (mut values, mut stamps) = ([0_i8; 2], [0.0; 1]);
        let mut pull = Pull::new(&mut values, Some(&mut stamps), 2);
        assert_eq!(feed.take(&mut pull, || 5.0).unwrap(), Taken::NeedsClock);
        assert_eq!((pull.pulled(), feed.ring.len()), (0, 3));
        feed.set_clock(Some(&correction), true, 0.0);
        assert_eq!(feed.take(&mut pull, || 5.0).unwrap(), Taken::Samples);
        assert_eq!(format!("{stamps:?}"), "[101.0]");
        assert!(!feed.take_was_clock_reset(), "the corrections know");
        feed.set_clock(None, true, 0.0);
        assert!(feed.take_was_clock_reset() && !feed.take_was_clock_reset());
    }

    #[test]
    fn a_loss_comes_first_unless_samples_shall() {
        for samples_first in [false, true] {
            let mut feed = feed(ProcessingOptions::NONE, samples_first);
            feed.lose("gone");
            let mut values = [0_i8; 8];
            let mut pull = Pull::new(&mut values, None, 2);
            let taken = feed.take(&mut pull, || 0.0);
            assert_eq!(taken.is_ok(), samples_first);
            assert!(matches!(
                feed.take(&mut pull, || 0.0),
                Err(Error::Lost { .. })
            ));
            assert!(feed.is_ready() && matches!(feed.opened(), Some(Err(_))));
        }
    }

    #[test]
    fn forgetting_samples_is_no_loss_and_the_next_connection_a_first_one() {
        let mut feed = feed(ProcessingOptions::NONE, false);
        assert_eq!((feed.flush(), feed.ring.dropped()), (3, 0));
        assert!(!feed.is_ready() && feed.opened().is_none());
        feed.clear();
        assert_eq!(feed.counts().reconnects, 0);
    }
}
