//! Records one stream in a task of its own: connects, waits for the first clock offset, then pulls
//! samples ten times a second for the writer. It also measures the clock, finds a lost stream
//! again, and drains it at the end.
//!
//! Samples that do not fit into the queue stay in the inlet, which holds a bounded time of them.
//! Samples dropped there are a gap in the footer.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use lsl_core::{
    BufferLength, ChannelFormat, ClockSuspect, Error, Inlet, KeyChange, PeerHistory,
    ProcessingOptions, StreamInfo, TimeCorrection, local_clock,
};
use lsl_platform::terminal::printable;
use lsl_xdf::{Gap, StreamHeader};
use tokio::sync::watch;
use tokio::time::sleep;

use crate::drain::{Arrived, Drain};
use crate::event::Event;
use crate::halt::{Halt, first, unless_changed, unless_halted};
use crate::live::{Live, Stamps, StreamState};
use crate::losses::{Beginning, Interruption, Losses};
use crate::pending::{Pending, Recorded};
use crate::queue::{Job, Refused};
use crate::shared::{Common, OtherKeys};
use crate::strangers::{Advert, Candidates};

/// Records a stream until it is told to stop.
pub(crate) async fn record(common: Common, live: Arc<Live>, advert: Advert) {
    let history = match common.settings.other_keys {
        OtherKeys::Refuse => PeerHistory::pinned(),
        OtherKeys::Allow => PeerHistory::new(),
    };
    let mut recorder = StreamTask {
        beginning: Beginning::First(common.settings.history),
        common,
        history,
        key_changes: 0,
        live,
        info: advert.info,
        sender: advert.sender,
        last_stamp: None,
        newest: None,
        stamp_at_look: None,
        dropped: 0,
        interruption: None,
        losses: Losses::default(),
        offset: None,
        stamps: Stamps::Raw,
        has_header: false,
        has_ended: false,
        alien_reported: false,
        arrived: Arrived::default(),
    };
    recorder.run().await;
    let mut status = recorder.live.lock();
    status.ended_at = Some(local_clock());
    // The session judges those that never were there.
    status.is_lost = status.has_header
        && (status.is_away
            || matches!(
                status.state,
                StreamState::Lost | StreamState::Refused(_) | StreamState::Connecting
            ));
    if status.state == StreamState::Recording {
        status.state = StreamState::Done;
    }
}

struct StreamTask {
    common: Common,
    /// History of its outlets' keys, which each new inlet gets.
    history: PeerHistory,
    /// Number of key changes that stand in the footer.
    key_changes: usize,
    live: Arc<Live>,
    /// The outlet in use, or the last one that was tried.
    info: StreamInfo,
    /// Address that announced the outlet.
    sender: Option<IpAddr>,
    last_stamp: Option<f64>,
    /// Timestamp of the last sample that came, whether it is recorded or too late for that.
    newest: Option<f64>,
    /// The last timestamp when nothing was known to be missing.
    stamp_at_look: Option<f64>,
    /// Samples that the present inlet dropped, as far as they are accounted for.
    dropped: u64,
    /// Beginning of the next connection.
    beginning: Beginning,
    /// Interruption that no sample has ended yet.
    interruption: Option<Interruption>,
    /// Losses of the present connection.
    losses: Losses,
    /// The offset that was handed to the writer last.
    offset: Option<TimeCorrection>,
    /// Treatment of timestamps that the header states.
    stamps: Stamps,
    has_header: bool,
    /// Whether the last connection had all of a stream that is over.
    has_ended: bool,
    alien_reported: bool,
    /// Samples that may still be taken after the end if timestamps do not decide it.
    arrived: Arrived,
}

/// Reason for which a connection is over.
enum Over {
    Stopped,
    Lost(Error, Option<String>),
}

impl StreamTask {
    async fn run(&mut self) {
        loop {
            let over = match self.info.channel_format() {
                ChannelFormat::Float32 => self.connect::<f32>().await,
                ChannelFormat::Double64 => self.connect::<f64>().await,
                ChannelFormat::String => self.connect::<Vec<u8>>().await,
                ChannelFormat::Int32 => self.connect::<i32>().await,
                ChannelFormat::Int16 => self.connect::<i16>().await,
                ChannelFormat::Int8 => self.connect::<i8>().await,
                ChannelFormat::Int64 => self.connect::<i64>().await,
                ChannelFormat::Undefined => Over::Stopped,
            };
            let (error, refused) = match over {
                Over::Stopped => return,
                Over::Lost(error, refused) => (error, refused),
            };
            self.note_key_changes().await;
            if std::mem::take(&mut self.has_ended) {
                // Nothing is missing, and nothing comes.
                self.live.lock().state = StreamState::Done;
                return;
            }
            self.leave(&error, refused);
            match self.find_again().await {
                Some(advert) => (self.info, self.sender) = (advert.info, advert.sender),
                None => return,
            }
        }
    }

    /// Takes note of a loss.
    fn leave(&mut self, error: &Error, refused: Option<String>) {
        let mut status = self.live.lock();
        let uid = self.info.uid_bytes();
        if refused.is_none() && status.info.uid_bytes() != uid {
            // The outlet cannot continue this stream, and may be another one. A refused outlet is
            // no other stream: with a second key it would stand beside the first under the same
            // name.
            self.common.claims.release(uid, self.live.slot);
        }
        status.encryption = None;
        status.failures += 1;
        let before = status.state.clone();
        status.state = match refused {
            Some(reason) => StreamState::Refused(reason),
            None if self.has_header => StreamState::Lost,
            None => StreamState::Connecting,
        };
        if status.state != before {
            let name = status.info.name().into_owned();
            let (events, strangers) = (&self.common.events, &self.common.stranger_events);
            match &status.state {
                StreamState::Refused(reason) => {
                    let reason = reason.clone();
                    strangers.push(Event::Refused { name, reason });
                }
                // An outlet was tried that does not go on with it.
                StreamState::Lost if before != StreamState::Recording => {}
                StreamState::Lost => {
                    // The library's text tells programmers what to do; the recorder does it.
                    let reason = match error {
                        Error::Lost { reason } => reason.clone(),
                        error => error.to_string(),
                    };
                    events.push(Event::Lost { name, reason });
                }
                _ => {
                    let error = error.to_string();
                    strangers.push(Event::Unreachable { name, error });
                }
            }
        }
        drop(status);
        if !matches!(self.beginning, Beginning::First(_)) {
            self.interrupt();
        }
    }

    /// Returns the interruption under way, which begins now if there is none.
    fn interrupt(&mut self) -> &mut Interruption {
        self.interruption.get_or_insert(Interruption {
            after: self.last_stamp,
            lost: Some(0),
        })
    }

    /// Waits until the session has found the stream again; `None` if that is not wanted any more. One
    /// search for all of them: as many as are lost would ask the network as often.
    async fn find_again(&self) -> Option<Advert> {
        let mut halt = self.common.halt.clone();
        loop {
            // An outlet that answers and refuses us is not asked again in a hurry.
            unless_halted(&mut halt, sleep(RETRY)).await?;
            let (claims, slot) = (&self.common.claims, self.live.slot);
            let claim = |advert: &Advert| claims.claim(advert.uid(), slot);
            let wanted = self.live.candidates().take(claim);
            if wanted.is_some() {
                return wanted;
            }
            if !self.has_header {
                // Taken away once its advert disappears.
                let tries = u32::try_from(self.live.lock().failures).unwrap_or(u32::MAX);
                unless_halted(&mut halt, sleep(RETRY * tries.min(10))).await?;
                return Some(self.advert());
            }
        }
    }

    /// The outlet in use, or the last one that was tried.
    fn advert(&self) -> Advert {
        Advert {
            info: self.info.clone(),
            sender: self.sender,
        }
    }

    /// Writes into the footer that the stream came with another key.
    async fn note_key_changes(&mut self) {
        let changes = self.history.key_changes();
        if !self.has_header || changes.len() == self.key_changes {
            return;
        }
        self.key_changes = changes.len();
        let change = |it: &KeyChange| {
            let verdict = if it.is_refused { "refused" } else { "accepted" };
            let name = printable(it.peer_name.as_bytes(), usize::MAX);
            format!(
                "{verdict} {name} {} in place of {} at {:.3}",
                it.after, it.before, it.time
            )
        };
        let text = changes.iter().map(change).collect::<Vec<_>>().join("; ");
        let (slot, name) = (self.live.slot, "key_changes");
        self.common.queue.push(Job::Note { slot, name, text }).await;
    }

    /// One connection from its beginning to its end.
    async fn connect<T: Recorded>(&mut self) -> Over {
        let secs = self.common.settings.buffer_secs;
        let inlet = Inlet::builder(&self.info)
            .context(&self.common.context)
            .buffer(buffer::<T>(&self.info, secs, self.beginning.has_past()))
            // It would take a stream of another host for this one.
            .recover(false)
            .samples_first(true)
            .peer_history(&self.history);
        let inlet = match self.beginning.ask(inlet).create() {
            Ok(inlet) => inlet,
            Err(error) => return Over::Lost(error, None),
        };
        self.dropped = 0;
        let over = self.follow::<T>(&inlet).await;
        match over {
            Ok(()) => Over::Stopped,
            Err(error) => {
                self.has_ended = self.has_header && inlet.has_ended();
                let refused = inlet.last_security_error();
                Over::Lost(error, refused)
            }
        }
    }

    async fn follow<T: Recorded>(&mut self, inlet: &Inlet) -> Result<(), Error> {
        let mut halt = self.common.halt.clone();
        let overtaken = self.live.overtaken(self.info.uid_bytes());
        let opening = first(inlet.open(OPEN_LIMIT), overtaken);
        match unless_halted(&mut halt, opening).await {
            None => return Ok(()),
            // All of a stream that is over came before anybody could look.
            Some(Some(Err(_))) if inlet.has_ended() => {}
            Some(opened) => opened.unwrap_or_else(|| {
                let reason = "its outlet does not answer, and there is another one".to_owned();
                Err(Error::Lost { reason })
            })?,
        }
        let was_known = self.has_header;
        if !self.has_header {
            let full = match unless_halted(&mut halt, inlet.full_info(OPEN_LIMIT)).await {
                None => return Ok(()),
                Some(full) => full?,
            };
            let mut header = StreamHeader::from_info(&full)
                .map_err(|error| Error::InvalidInfo(error.to_string()))?;
            if self.common.settings.stamps == Stamps::Synced
                && self.can_sync(inlet, &mut halt).await
            {
                self.stamps = Stamps::Synced;
                self.live.lock().stamps = Stamps::Synced;
                let is_even = self.info.nominal_srate() > 0.0;
                header.set(
                    "synced",
                    ["clocksync", "clocksync dejitter"][usize::from(is_even)],
                );
            }
            let slot = self.live.slot;
            let header = Box::new(header);
            // From here on it is in the file, and counts as a real stream.
            if !self.live.prove() {
                return Ok(());
            }
            if !self.common.queue.push(Job::Stream { slot, header }).await {
                return Ok(());
            }
            self.has_header = true;
            if self.live.is_late {
                let name = self.info.name().into_owned();
                self.common.events.push(Event::Found(name));
            }
        }
        *self.live.candidates() = Candidates::after(&self.advert());
        self.note_key_changes().await;
        let lost = self.note_opening(inlet);
        {
            let mut status = self.live.lock();
            status.info = self.info.clone();
            let was_gone = matches!(status.state, StreamState::Lost | StreamState::Refused(_));
            let is_back = was_known && was_gone;
            status.failures = 0;
            status.encryption = inlet.encryption().map(|it| it.peer_name);
            if is_back {
                status.reconnects += 1;
                let name = status.info.name().into_owned();
                self.common.events.push(Event::Returned { name, lost });
            }
            status.state = StreamState::Recording;
        }
        // Readers need an offset to begin with, so samples wait for it; not for ever, since UDP may be
        // blocked.
        let mut measured = unless_halted(&mut halt, inlet.time_correction(FIRST_OFFSET)).await;
        if self.stamps == Stamps::Synced {
            // After a return: raw timestamps do not belong here any more, so samples wait in the inlet.
            while matches!(measured, Some(Err(Error::Timeout { .. }))) {
                measured = unless_halted(&mut halt, inlet.time_correction(FIRST_OFFSET)).await;
            }
            match measured {
                Some(measured) => drop(measured?),
                None => self.note_unsynced(inlet).await,
            }
            let both = ProcessingOptions::CLOCKSYNC | ProcessingOptions::DEJITTER;
            inlet.set_processing(both);
        }
        self.note_offset(inlet, true).await;
        self.flow::<T>(inlet, halt).await
    }

    /// The end came before the clock could be measured: what waits has no timestamps that belong here.
    async fn note_unsynced(&mut self, inlet: &Inlet) {
        let samples = inlet.samples_available() as u64;
        let Some(at) = self.last_stamp.filter(|_| samples > 0) else {
            return;
        };
        self.live.lock().missing += samples;
        let gap = Gap {
            from: at,
            to: at,
            samples: Some(samples),
            reason: "the clock could not be measured before the end".into(),
        };
        let slot = self.live.slot;
        self.common.queue.push(Job::Gap { slot, gap }).await;
    }

    /// Whether timestamps can be mapped to our clock; says so if not.
    async fn can_sync(&self, inlet: &Inlet, halt: &mut watch::Receiver<Halt>) -> bool {
        let measured = unless_halted(halt, inlet.time_correction(FIRST_OFFSET)).await;
        if matches!(measured, Some(Err(_))) {
            let name = self.info.name().into_owned();
            self.common.events.push(Event::NotSynced(name));
        }
        matches!(measured, Some(Ok(_)))
    }

    async fn flow<T: Recorded>(
        &mut self,
        inlet: &Inlet,
        mut halt: watch::Receiver<Halt>,
    ) -> Result<(), Error> {
        let channels = self.info.channel_count() as usize;
        let mut pending = Pending::<T>::new(channels);
        let mut offset_at = local_clock() + OFFSET_SECS;
        let mut drain = Drain::default();
        let mut asking = None;
        loop {
            let wish = *halt.borrow_and_update();
            if wish == Halt::Go {
                unless_changed(&mut halt, sleep(self.until_look())).await;
            }
            let wish = *halt.borrow();
            let before = self.live.lock().samples;
            let taken = self.take(inlet, &mut pending).await;
            let now = local_clock();
            if self.live.lock().samples > before {
                drain.came();
                asking = None;
            }
            if taken.is_err() || wish != Halt::Go || pending.is_due(now) {
                let is_last = taken.is_err() || wish != Halt::Go;
                self.hand_over(&mut pending, is_last).await;
            }
            if taken.is_err() || wish != Halt::Go {
                self.note_rest(inlet).await;
            }
            let lost = match taken {
                Ok(()) if self.live.is_replaced() => {
                    let reason = "its sender answers no more, and there is another one".to_owned();
                    self.hand_over(&mut pending, true).await;
                    // There is room now for what waits.
                    let _ = self.take(inlet, &mut pending).await;
                    self.hand_over(&mut pending, true).await;
                    self.note_rest(inlet).await;
                    Some(Error::Lost { reason })
                }
                taken => taken.err(),
            };
            if let Some(lost) = lost {
                self.beginning = Beginning::after(inlet, self.newest.unwrap_or(0.0));
                // The next connection begins behind what this one told of last.
                self.losses.add(inlet);
                let untold = self.losses.take_rest();
                self.interrupt().add(untold);
                return Err(lost);
            }
            if now >= offset_at {
                offset_at = now + OFFSET_SECS;
                self.note_offset(inlet, true).await;
            }
            match wish {
                Halt::Go => {}
                Halt::Drain(until, limit)
                    if !self.is_past(until).unwrap_or_else(|| drain.is_over(now))
                        && now < limit =>
                {
                    let nap = sleep(DRAIN_PERIOD);
                    if drain.is_answered() || self.is_past(until).is_some() {
                        unless_changed(&mut halt, nap).await;
                        continue;
                    }
                    let question = asking.get_or_insert_with(|| {
                        let limit = Duration::try_from_secs_f64((limit - now).max(0.0));
                        let limit = limit.unwrap_or(Duration::MAX);
                        Box::pin(inlet.echo(limit))
                    });
                    match unless_changed(&mut halt, first(question.as_mut(), nap)).await {
                        Some(Some(Ok(echo))) => drain.answered(echo, local_clock()),
                        // It has failed, and must not be polled again; nor does it fail in a hurry.
                        Some(Some(Err(_))) => {
                            asking = None;
                            unless_changed(&mut halt, sleep(DRAIN_PERIOD)).await;
                        }
                        _ => {}
                    }
                }
                Halt::Drain(..) | Halt::Now => break,
            }
        }
        self.note_offset(inlet, false).await;
        Ok(())
    }

    /// Returns the time until samples are taken again: ten times a second, and at the end.
    fn until_look(&self) -> Duration {
        let next = until_next(PERIOD);
        let left = self.end().map(|end| end - local_clock());
        let left = left.and_then(|left| Duration::try_from_secs_f64(left).ok());
        next.min(left.unwrap_or(next))
    }

    /// When the recording ends, by our clock; the user may end it before the time that was planned.
    fn end(&self) -> Option<f64> {
        match *self.common.halt.borrow() {
            Halt::Drain(until, _) => Some(until),
            Halt::Go | Halt::Now => self.common.end.get().copied(),
        }
    }

    /// Whether everything up to this time of our clock has come. Only samples at even intervals tell that
    /// there is none in between: `None` for others, which `Drain` ends.
    fn is_past(&self, until: f64) -> Option<bool> {
        let Some(to_ours) = self.to_ours() else {
            return Some(self.arrived.is_taken());
        };
        let is_past = |stamp| stamp + to_ours >= until;
        (self.info.nominal_srate() > 0.0).then(|| self.newest.is_some_and(is_past))
    }

    /// Returns the seconds to add to timestamps to get our time; `None` if they are not known, or
    /// the stamps are of another clock altogether.
    fn to_ours(&self) -> Option<f64> {
        match self.stamps {
            _ if self.alien_reported => None,
            Stamps::Synced => Some(0.0),
            Stamps::Raw => self.offset.map(|offset| offset.offset_secs),
        }
    }

    /// Forgets the samples from this one on that are stamped after the end of the recording, whenever
    /// they came, and the gaps before such samples.
    fn cut<T: Recorded>(&self, pending: &mut Pending<T>, from: usize, gaps: &mut Vec<Gap>) {
        if let (Some(end), Some(to_ours)) = (self.end(), self.to_ours()) {
            let is_wanted = |stamp: f64| stamp + to_ours <= end || stamp.is_nan();
            pending.retain_from(from, is_wanted);
            gaps.retain(|gap| is_wanted(gap.to));
        }
    }

    /// Takes what there is. Whatever the queue has no room for stays in the inlet.
    async fn take<T: Recorded>(
        &mut self,
        inlet: &Inlet,
        pending: &mut Pending<T>,
    ) -> Result<(), Error> {
        loop {
            let dropped = inlet.stats().dropped;
            let before = pending.stamps.len();
            let waiting = inlet.samples_available();
            let room = pending.room();
            if room == 0 {
                if self.hand_over(pending, false).await {
                    continue;
                }
                return Ok(());
            }
            // One more than is waiting: the inlet reports a loss only when pulled.
            let mut wanted = (waiting + 1).min(room);
            if self.to_ours().is_none() && self.end().is_some_and(|end| local_clock() >= end) {
                wanted = wanted.min(self.arrived.of(waiting));
            }
            if wanted == 0 {
                return Ok(());
            }
            let pulled = pending.pull(inlet, wanted);
            let came = pending.stamps.len() - before;
            self.arrived.took(came);
            let stats = inlet.stats();
            let end = stats.samples.saturating_sub(stats.available as u64);
            let stamps = pending.stamps.get(before..).unwrap_or_default();
            self.losses.add(inlet);
            let mut gaps = self.losses.take_until(end, stamps, self.last_stamp);
            let is_replay = end <= stats.replayed;
            if let Some(&newest) = stamps.last() {
                self.newest = Some(newest);
                if !is_replay {
                    // Before the cut, which would take stamps of another clock for later ones.
                    self.judge_clock(inlet, newest);
                }
            }
            self.cut(pending, before, &mut gaps);
            let stamps = pending.stamps.get(before..).unwrap_or_default();
            self.live.lock().idle_secs = stats.idle_secs;
            if let Some(&first) = stamps.first() {
                self.note_gaps(first, gaps).await;
                self.note_dropped(first, dropped).await;
                let stamps = pending.stamps.get(before..).unwrap_or_default();
                self.count(stamps, is_replay);
            }
            pulled?;
            if came < wanted {
                return Ok(());
            }
        }
    }

    fn count(&mut self, stamps: &[f64], is_replay: bool) {
        let Some(&last) = stamps.last() else {
            return;
        };
        self.last_stamp = Some(last);
        let now = local_clock();
        let mut status = self.live.lock();
        status.last_stamp = Some(last);
        status.samples += stamps.len() as u64;
        let samples = status.samples;
        if !is_replay {
            status.began.get_or_insert((now, samples));
        }
    }

    /// Says so if stamps are of no clock of LSL: those of the inlet, or the one of a sample that has just come.
    fn judge_clock(&mut self, inlet: &Inlet, stamp: f64) {
        let Some(to_ours) = self.to_ours() else {
            return;
        };
        let lag_secs = local_clock() - (stamp + to_ours);
        // A sample may have waited here, but none comes long before its time.
        let judged = ClockSuspect::of_sample(lag_secs.min(0.0), stamp, None, 0.0);
        let suspect = inlet.health().clock.or(judged);
        if suspect.is_some_and(ClockSuspect::is_other_clock) {
            self.alien_reported = true;
            let name = self.info.name().into_owned();
            self.common
                .events
                .push(Event::AlienClock { name, lag_secs });
        }
    }

    /// Notes samples that the inlet dropped before the one with this timestamp.
    async fn note_dropped(&mut self, first: f64, dropped: u64) {
        if dropped <= self.dropped {
            self.stamp_at_look = self.last_stamp;
            return;
        }
        let samples = dropped - self.dropped;
        self.dropped = dropped;
        let gap = Gap {
            from: self.stamp_at_look.unwrap_or(first),
            to: first,
            samples: Some(samples),
            reason: "the recorder was too slow".into(),
        };
        self.live.lock().missing += samples;
        self.note_gap(gap).await;
    }

    /// Notes samples that were lost before the inlet, and before or between samples of which the first one has this
    /// timestamp.
    async fn note_gaps(&mut self, first: f64, gaps: Vec<Gap>) {
        if let Some(gap) = self.interruption.take().and_then(|it| it.gap(first)) {
            self.note_lost(gap).await;
        }
        if let Some(gap) = gaps.first() {
            self.common.events.push(Event::Missing {
                name: self.info.name().into_owned(),
                lost: gaps.iter().filter_map(|gap| gap.samples).sum(),
                after: gap.from,
                reason: gap.reason.clone(),
            });
        }
        for gap in gaps {
            self.note_lost(gap).await;
        }
    }

    async fn note_lost(&self, gap: Gap) {
        {
            let mut status = self.live.lock();
            match gap.samples {
                Some(samples) => status.lost += samples,
                None => status.unknown_losses += 1,
            }
        }
        self.note_gap(gap).await;
    }

    async fn note_gap(&self, gap: Gap) {
        self.live.lock().gaps += 1;
        let slot = self.live.slot;
        self.common.queue.push(Job::Gap { slot, gap }).await;
    }

    /// Notes what was lost until this connection began, and returns it; `None` if nobody knows.
    fn note_opening(&mut self, inlet: &Inlet) -> Option<u64> {
        self.losses = Losses::default();
        self.losses.add(inlet);
        let lost = match self.beginning {
            Beginning::After(..) => self.losses.take_opening(&inlet.stats()),
            Beginning::First(_) | Beginning::Live => None,
        };
        let interruption = self.interruption.as_mut()?;
        interruption.add(lost);
        interruption.lost
    }

    /// Notes dropped samples that no later sample would reveal.
    async fn note_rest(&mut self, inlet: &Inlet) {
        let dropped = inlet.stats().dropped;
        if dropped > self.dropped
            && let Some(last) = self.last_stamp
        {
            self.note_dropped(last, dropped).await;
        }
    }

    /// Hands the clock offset over, if there is a new one; there must be one if it is due.
    async fn note_offset(&mut self, inlet: &Inlet, is_due: bool) {
        let measured = inlet.time_correction(lsl_core::Timeout::NOW).await.ok();
        let is_new = |found: &TimeCorrection| {
            let old = self.offset.map(|old| (old.remote_time, old.offset_secs));
            old != Some((found.remote_time, found.offset_secs))
        };
        let Some(found) = measured.filter(is_new) else {
            self.live.lock().failed_offsets += u64::from(is_due);
            return;
        };
        self.offset = Some(found);
        let job = Job::Offset {
            slot: self.live.slot,
            time: found.remote_time,
            value: found.offset_secs,
        };
        if self.stamps == Stamps::Raw {
            self.common.queue.push(job).await;
            self.live.lock().offsets += 1;
        }
        let mut status = self.live.lock();
        status.offset_secs = Some(found.offset_secs);
        status.uncertainty_secs = Some(found.uncertainty_secs);
    }

    /// Queues the pending samples for the writer; false if there is no room and it must not wait.
    async fn hand_over<T: Recorded>(&self, pending: &mut Pending<T>, may_wait: bool) -> bool {
        let Some((stamps, values)) = pending.empty() else {
            return true;
        };
        let job = Job::Samples {
            slot: self.live.slot,
            bytes: values.iter().map(T::bytes).sum::<usize>() + stamps.len() * size_of::<f64>(),
            stamps,
            values: T::pack(values),
        };
        match self.common.queue.try_push(job) {
            Ok(()) | Err(Refused::Closed) => true,
            Err(Refused::Full(job)) if may_wait => self.common.queue.push(job).await,
            Err(Refused::Full(Job::Samples { stamps, values, .. })) => {
                pending.put_back(stamps, values);
                false
            }
            Err(Refused::Full(_)) => false,
        }
    }
}

/// Returns the buffer length of an inlet. Irregular streams come in bursts, so that seconds do not
/// fit them. They get a number of samples, limited by memory alone, which is used as they come. So does the past of
/// any stream, beside the seconds: live samples shall not make it drop.
fn buffer<T: Recorded>(info: &StreamInfo, secs: f64, has_past: bool) -> BufferLength {
    let rate = info.nominal_srate();
    let seconds = BufferLength::Seconds(secs);
    if rate > 0.0 && !has_past {
        return seconds;
    }
    let sample = info.channel_count() as usize * T::BYTES + size_of::<f64>();
    let burst = (BURST_BYTES / sample).min(BURST_SAMPLES);
    let seconds = seconds.to_samples(rate);
    BufferLength::Samples(if rate > 0.0 {
        seconds.saturating_add(burst)
    } else {
        seconds.max(burst)
    })
}

/// All tasks wake in the same moment: an idle recorder of a hundred streams wakes as often as that of
/// one.
fn until_next(period_secs: f64) -> Duration {
    Duration::from_secs_f64((period_secs - local_clock() % period_secs).max(0.001))
}

/// Interval at which samples are taken.
const PERIOD: f64 = 0.1;
const DRAIN_PERIOD: Duration = Duration::from_millis(20);
/// Samples of an irregular stream that may wait.
const BURST_SAMPLES: usize = 1_000_000;
const BURST_BYTES: usize = 64 << 20;
/// Interval at which the clock offset is recorded.
const OFFSET_SECS: f64 = 5.0;
/// Time that samples wait for the first offset.
const FIRST_OFFSET: Duration = Duration::from_secs(3);
const OPEN_LIMIT: Duration = Duration::from_secs(10);
const RETRY: Duration = Duration::from_millis(300);

#[cfg(test)]
mod tests;
