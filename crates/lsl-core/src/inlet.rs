//! Receiving side: the public handle of a stream that this program reads. Start at `Inlet::pull`.

pub(crate) mod history;
mod run;
mod turns;

use std::sync::Arc;

use lsl_platform::clock::local_clock;
use lsl_proto::clock::TimeCorrection;
use lsl_proto::inlet::{Asked, Feed, Pull, Taken};
use lsl_proto::value::PullElement;

use crate::byte_stream::substream::OpenSubstream;
use crate::context::Context;
use crate::drive_inlet::echo::{self, Echo};
use crate::drive_inlet::feed_state::FeedState;
use crate::drive_inlet::health::Health;
use crate::drive_inlet::shared::{Facts, InletShared, Notifier};
use crate::net::monitor::Monitor;
use crate::net::runtime::{self, AbortOnDrop};
use crate::stats::InletStats;
use crate::{BufferLength, ChannelFormat, Error, ProcessingOptions, Result, StreamInfo, Timeout};

/// A stream read from the network.
///
/// Nothing is sent until the first call that needs data (`open`, a pull, `full_info`,
/// `time_correction`). If the stream has a source id, the inlet survives restarts and moves of its
/// outlet without any action of the caller. A handle may be shared between threads; each sample goes
/// to exactly one of several concurrent pulls. Dropping it disconnects at once.
///
/// Async methods work inside any executor; [`blocking`](Self::blocking) has their twins.
///
/// ```no_run
/// use std::time::Duration;
/// use lsl_core::{Inlet, Selector, resolve_blocking};
///
/// let found = resolve_blocking(&Selector::property("type", "EEG")?, 1, Duration::from_secs(5))?;
/// let inlet = Inlet::new(found.first().ok_or("no EEG here")?)?;
/// let mut sample = vec![0.0_f32; inlet.info().channel_count() as usize];
/// while let Some(timestamp) = inlet.blocking().pull(&mut sample, Duration::from_secs(1))? {
///     println!("{timestamp:.6} {sample:?}");
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Inlet {
    shared: Arc<InletShared>,
}

/// Settings of an inlet before it is made; see [`Inlet::builder`].
#[derive(Debug)]
pub struct InletBuilder {
    info: StreamInfo,
    context: Option<Context>,
    buffer: BufferLength,
    max_chunk_samples: u32,
    recover: bool,
    samples_first: bool,
    processing: ProcessingOptions,
    peer_history: crate::PeerHistory,
    history: history::History,
    asked: Option<Asked>,
    link: Option<Arc<dyn OpenSubstream>>,
}

/// The place of an answer that is awaited.
type Answer = Monitor<Option<Echo>>;

impl Inlet {
    /// An inlet with default settings in the process-wide context.
    ///
    /// # Errors
    /// As [`InletBuilder::create`].
    pub fn new(info: &StreamInfo) -> Result<Self> {
        Self::builder(info).create()
    }

    /// An inlet with settings of your own.
    pub fn builder(info: &StreamInfo) -> InletBuilder {
        InletBuilder {
            info: info.clone(),
            context: None,
            buffer: BufferLength::default(),
            max_chunk_samples: 0,
            recover: true,
            samples_first: false,
            processing: ProcessingOptions::NONE,
            peer_history: crate::PeerHistory::default(),
            history: history::History::Live,
            asked: None,
            link: None,
        }
    }

    /// Connects and waits until the stream flows for the first time (since the last `close`). Every
    /// sample pushed after the first return is received, as long as the connection lasts.
    ///
    /// # Errors
    /// [`Error::Timeout`] (connecting goes on in the background), [`Error::Closed`], [`Error::Lost`].
    pub async fn open(&self, timeout: impl Into<Timeout>) -> Result<()> {
        let deadline = timeout.into().deadline(local_clock());
        let opened = opened(self.shared.start_epoch()?);
        let opened = self.shared.feed.wait(deadline, opened).await;
        opened.unwrap_or(Err(OPEN_TIMEOUT))
    }

    /// Disconnects and forgets queued samples. The next pull or `open` connects again. An `open` that waits
    /// fails with [`Error::Closed`]; a pull that waits goes on and does not connect.
    pub fn close(&self) {
        self.shared.close_data();
    }

    /// Pulls one sample: one value per channel into `values`. Returns its timestamp, or `None` if
    /// none came in time (`values` is untouched then).
    ///
    /// Dropping the future loses no sample. Spec: lsl-protocol §9.4, c-abi §8.3.
    ///
    /// # Errors
    /// [`Error::Argument`] if `values` is not one sample long (nothing is consumed);
    /// [`Error::Lost`]; [`Error::Timeout`] if clock synchronisation is on and the outlet's clock
    /// cannot be read within 5 s (nothing is consumed).
    pub async fn pull<T: PullElement>(
        &self,
        values: &mut [T],
        timeout: impl Into<Timeout>,
    ) -> Result<Option<f64>> {
        self.check_sample(values)?;
        let mut stamp = [0.0];
        let pull = Pull::new(values, Some(&mut stamp), self.shared.channels);
        let pulled = self.pull_all(pull, self.begin(timeout)?).await?;
        Ok((pulled > 0).then_some(stamp[0]))
    }

    /// Pulls samples until `values` is full or the time is up: `[s0c0, s0c1, …, s1c0, …]`, their
    /// timestamps into `timestamps` if given. Returns the number of samples.
    ///
    /// With [`Timeout::NOW`] it takes what is there. Dropping the future half-way loses the samples
    /// that were already taken: use the timeout instead. Spec: c-abi §8.4.
    ///
    /// # Errors
    /// As [`pull`](Self::pull); [`Error::Argument`] if `values` is not a whole number of samples or
    /// `timestamps` has another length. A stream lost half-way returns the samples first.
    pub async fn pull_chunk<T: PullElement>(
        &self,
        values: &mut [T],
        timestamps: Option<&mut [f64]>,
        timeout: impl Into<Timeout>,
    ) -> Result<usize> {
        self.check_chunk(values, timestamps.as_deref())?;
        let pull = Pull::new(values, timestamps, self.shared.channels);
        self.pull_all(pull, self.begin(timeout)?).await
    }

    async fn pull_all<T: PullElement>(
        &self,
        mut pull: Pull<'_, T>,
        deadline: f64,
    ) -> Result<usize> {
        while !pull.is_full() {
            let take = |feed: &mut Feed| take(&self.shared, feed, &mut pull);
            let error = match self.shared.pull(deadline, take).await {
                None => break,
                Some(Ok(Taken::NeedsClock)) => self.time_correction(OFFSET_LIMIT).await.err(),
                Some(taken) => taken.err(),
            };
            if let Some(error) = error {
                return pull.or(error);
            }
        }
        Ok(pull.pulled())
    }

    /// Pulls a sample if one is there; never waits. With clock synchronisation on, nothing is there
    /// until the outlet's clock is known. Spec: c-abi §8.3.
    ///
    /// # Errors
    /// As [`pull`](Self::pull).
    pub fn try_pull<T: PullElement>(&self, values: &mut [T]) -> Result<Option<f64>> {
        self.check_sample(values)?;
        let mut stamp = [0.0];
        let pull = Pull::new(values, Some(&mut stamp), self.shared.channels);
        let pulled = self.try_pull_all(pull)?;
        Ok((pulled > 0).then_some(stamp[0]))
    }

    /// Pulls what is there, as many samples as fit; never waits, as [`try_pull`](Self::try_pull).
    /// Spec: c-abi §8.4.
    ///
    /// # Errors
    /// As [`pull_chunk`](Self::pull_chunk).
    pub fn try_pull_chunk<T: PullElement>(
        &self,
        values: &mut [T],
        timestamps: Option<&mut [f64]>,
    ) -> Result<usize> {
        self.check_chunk(values, timestamps.as_deref())?;
        self.try_pull_all(Pull::new(values, timestamps, self.shared.channels))
    }

    fn try_pull_all<T: PullElement>(&self, mut pull: Pull<'_, T>) -> Result<usize> {
        self.shared.start_data()?;
        loop {
            match (self.shared).try_pull(|feed| take(&self.shared, feed, &mut pull)) {
                // After what was read before comes what is still in the socket.
                Some(Ok(Taken::Samples)) if !pull.is_full() => {}
                Some(Ok(Taken::NeedsClock)) => {
                    return self.shared.start_clock().map(|()| pull.pulled());
                }
                Some(Err(error)) => return pull.or(error),
                Some(Ok(_)) | None => return Ok(pull.pulled()),
            }
        }
    }

    /// Samples received and not yet pulled.
    pub fn samples_available(&self) -> usize {
        self.shared.look(|feed| feed.ring.len())
    }

    /// Whether a pull would return without waiting: samples are there, or the stream is lost.
    pub fn is_ready(&self) -> bool {
        let ready = |feed: &mut Feed| feed.is_ready().then_some(());
        self.shared.try_pull(ready).is_some()
    }

    /// Forgets all samples that are waiting and says how many those were.
    pub fn flush(&self) -> usize {
        self.shared.look(Feed::flush)
    }

    /// The full description of the stream with its metadata, fetched on the first call and after a
    /// recovery. Spec: c-abi §8.6.
    ///
    /// # Errors
    /// [`Error::Timeout`] (fetching goes on in the background), [`Error::Lost`].
    pub async fn full_info(&self, timeout: impl Into<Timeout>) -> Result<StreamInfo> {
        let deadline = timeout.into().deadline(local_clock());
        let moves = self.begin_full_info()?;
        let known = |facts: &mut Facts| known_info(facts, moves);
        let found = self.shared.facts.wait(deadline, known).await;
        own_info(found)
    }

    /// What to add to the outlet's timestamps to get ours, with its uncertainty. The first call
    /// starts measuring and waits for the first estimate (a few hundredths of a second and a round
    /// trip), which the next 0.6 s refine and later waves renew every 2 s; later calls return the
    /// latest at once. Spec: lsl-protocol §5.2.
    ///
    /// Where UDP is filtered an encrypted outlet is measured over its data connection, from about 2 s
    /// on; see [`TimeCorrection::is_low_quality`]. Spec: LSS/1 §9.5.
    ///
    /// # Errors
    /// [`Error::Timeout`] (measuring goes on in the background), [`Error::Lost`].
    pub async fn time_correction(&self, timeout: impl Into<Timeout>) -> Result<TimeCorrection> {
        let deadline = timeout.into().deadline(local_clock());
        self.shared.start_clock()?;
        let known = self.shared.facts.wait(deadline, known_offset).await;
        known.unwrap_or(Err(CORRECTION_TIMEOUT))
    }

    /// Asks the outlet for a sign of life now, of which [`Echo`] says what it proves about samples that
    /// are on their way. For an inlet that is connected.
    ///
    /// # Errors
    /// [`Error::Timeout`] if it does not answer in time.
    pub async fn echo(&self, timeout: impl Into<Timeout>) -> Result<Echo> {
        let deadline = timeout.into().deadline(local_clock());
        let (answer, _asking) = self.begin_echo()?;
        let answered = answer.wait(deadline, |place: &mut Option<Echo>| *place);
        answered.await.ok_or(ECHO_TIMEOUT)
    }

    /// Whether the outlet's clock became another one since the last call: the stream was recovered
    /// from another outlet instance.
    pub fn was_clock_reset(&self) -> bool {
        self.shared.feed.lock().feed.take_was_clock_reset()
    }

    /// Which corrections pulls apply to timestamps. Spec: lsl-protocol §11.
    pub fn set_processing(&self, options: ProcessingOptions) {
        (self.shared.feed.lock().feed.processing).set_options(options);
    }

    /// Half-time of the dejitter filter in seconds, used when it next starts.
    pub fn set_smoothing_halftime(&self, secs: f32) {
        (self.shared.feed.lock().feed.processing).set_halftime(secs);
    }

    /// The stream as it was described when this inlet was made; see
    /// [`full_info`](Self::full_info) for the metadata.
    pub fn info(&self) -> &StreamInfo {
        &self.shared.info
    }

    /// The stream as its present outlet announced it: uid, host and addresses change when the
    /// stream is recovered from another outlet.
    pub fn present_info(&self) -> StreamInfo {
        StreamInfo::clone(&self.shared.source.info())
    }

    /// With whom and how the data connection is encrypted; `None` while there is none, and in
    /// plaintext. Spec: LSS/1 §3.1.
    pub fn encryption(&self) -> Option<crate::Encryption> {
        self.shared.source.peers().encryption()
    }

    /// Why encryption, or its absence, keeps this inlet from its stream: who refuses whom, and what to
    /// do about it. `None` once it is connected. An inlet that can recover keeps trying meanwhile, so
    /// its calls only time out. Spec: LSS/1 §4.4.
    pub fn last_security_error(&self) -> Option<String> {
        self.shared.source.peers().last_error()
    }

    /// Returns the counters since the inlet was created, and its present state.
    pub fn stats(&self) -> InletStats {
        let state = self.shared.feed.lock();
        let (feed, counts) = (&state.feed, state.feed.counts());
        let resume = feed.resume_counts();
        InletStats {
            samples: counts.samples,
            bytes: counts.bytes,
            dropped: feed.ring.dropped(),
            reconnects: counts.reconnects,
            available: feed.ring.len(),
            available_bytes: feed.ring.len_bytes(),
            idle_secs: counts.last_arrival.map(|arrival| local_clock() - arrival),
            resumed: resume.resumed,
            replayed: resume.replayed,
            lost_exact: resume.lost_exact,
            lost_unknown: resume.lost_unknown,
            generations: resume.generations,
            gaps_forgotten: resume.forgotten,
        }
    }

    /// Returns how the inlet is doing: whether its outlet is there, and what is wrong with its stamps. Asks nobody.
    /// Spec: doctor §2.6.
    pub fn health(&self) -> Health {
        self.shared.health()
    }

    /// Calls `notifier` after samples arrived and when the stream is lost, for event loops that cannot
    /// await: on the I/O thread, or once on a thread that was pulling when it was set. It must return
    /// quickly and not call back. Only the first call counts; false if there is a notifier already.
    pub fn set_notifier(&self, notifier: impl Fn() + Send + Sync + 'static) -> bool {
        let notifier = Notifier(Box::new(notifier));
        let is_first = self.shared.notifier.set(notifier).is_ok();
        // From now on the inlet's task reads, whoever does now.
        self.shared.interrupt_leader();
        self.shared.work.notify_one();
        is_first
    }

    /// Ends the inlet as dropping it does, while other threads may still use the handle: every
    /// blocked and every later call returns [`Error::Lost`].
    pub fn shut_down(&self) {
        self.shared.stop();
        self.shared.lose("the inlet was destroyed");
    }

    /// An inlet like this one, for a forked child of the process that made this one: with the same
    /// settings and in `context`, which the child has made. `None` if this one was used before the
    /// fork, since its connections and keys are its parent's.
    ///
    /// # Errors
    /// [`Error::Security`] if the security configuration cannot be used.
    pub fn in_forked_child(&self, context: &Context) -> Result<Option<Self>> {
        context.security()?;
        let shared = self.shared.in_forked_child(context.clone());
        Ok(shared.map(|shared| Self {
            shared: Arc::new(shared),
        }))
    }

    /// The blocking twins of the async methods.
    pub fn blocking(&self) -> BlockingInlet<'_> {
        BlockingInlet {
            inlet: self,
            connects: true,
        }
    }

    fn begin(&self, timeout: impl Into<Timeout>) -> Result<f64> {
        self.shared.start_data()?;
        Ok(timeout.into().deadline(local_clock()))
    }

    fn begin_echo(&self) -> Result<(Arc<Answer>, AbortOnDrop<()>)> {
        let answer = Arc::new(Monitor::new(None));
        let (shared, place) = (Arc::clone(&self.shared), Arc::clone(&answer));
        let asking = runtime::spawn(async move {
            let echo = echo::ask(shared).await;
            place.update(|place| *place = Some(echo));
        })?;
        Ok((answer, AbortOnDrop(asking)))
    }

    fn begin_full_info(&self) -> Result<u64> {
        let moves = self.shared.source.moves();
        let facts = self.shared.facts.lock();
        let known = facts.full_info.as_ref();
        let fresh = known.is_some_and(|(known, _)| *known >= moves);
        drop(facts);
        if !fresh {
            self.shared.start_full_info()?;
        }
        Ok(moves)
    }

    fn check_sample<T>(&self, values: &[T]) -> Result<()> {
        if values.len() == self.shared.channels {
            return Ok(());
        }
        Err(Error::Argument(format!(
            "a sample of this stream has {} values, got room for {}",
            self.shared.channels,
            values.len()
        )))
    }

    fn check_chunk<T>(&self, values: &[T], timestamps: Option<&[f64]>) -> Result<()> {
        let channels = self.shared.channels;
        if channels == 0 || !values.len().is_multiple_of(channels) {
            return Err(Error::Argument(format!(
                "room for {} values is not a whole number of samples with {channels} channels",
                values.len()
            )));
        }
        let samples = values.len() / channels;
        match timestamps {
            Some(stamps) if stamps.len() != samples => Err(Error::Argument(format!(
                "room for {samples} samples but for {} timestamps",
                stamps.len()
            ))),
            _ => Ok(()),
        }
    }
}

impl Drop for Inlet {
    fn drop(&mut self) {
        self.shared.stop();
    }
}

/// Blocking twins of [`Inlet`]'s async methods. They wait on condition variables and never enter an
/// async runtime, so they work on any thread.
#[derive(Debug, Clone, Copy)]
pub struct BlockingInlet<'a> {
    inlet: &'a Inlet,
    /// Whether pulls connect.
    connects: bool,
}

impl BlockingInlet<'_> {
    /// As [`Inlet::open`].
    ///
    /// # Errors
    /// As [`Inlet::open`].
    pub fn open(&self, timeout: impl Into<Timeout>) -> Result<()> {
        self.opened(self.inlet.begin_open()?, timeout)
    }

    /// As [`Inlet::pull`].
    ///
    /// # Errors
    /// As [`Inlet::pull`].
    pub fn pull<T: PullElement>(
        &self,
        values: &mut [T],
        timeout: impl Into<Timeout>,
    ) -> Result<Option<f64>> {
        let inlet = self.inlet;
        inlet.check_sample(values)?;
        let mut stamp = [0.0];
        let pull = Pull::new(values, Some(&mut stamp), inlet.shared.channels);
        let pulled = self.pull_all(pull, self.begin(timeout)?)?;
        Ok((pulled > 0).then_some(stamp[0]))
    }

    /// As [`Inlet::pull_chunk`].
    ///
    /// # Errors
    /// As [`Inlet::pull_chunk`].
    pub fn pull_chunk<T: PullElement>(
        &self,
        values: &mut [T],
        timestamps: Option<&mut [f64]>,
        timeout: impl Into<Timeout>,
    ) -> Result<usize> {
        let inlet = self.inlet;
        inlet.check_chunk(values, timestamps.as_deref())?;
        let pull = Pull::new(values, timestamps, inlet.shared.channels);
        self.pull_all(pull, self.begin(timeout)?)
    }

    #[inline]
    fn pull_all<T: PullElement>(self, mut pull: Pull<'_, T>, deadline: f64) -> Result<usize> {
        while !pull.is_full() {
            let take = |feed: &mut Feed| take(&self.inlet.shared, feed, &mut pull);
            let error = match self.inlet.shared.pull_blocking(deadline, take) {
                None => break,
                Some(Ok(Taken::NeedsClock)) => self.time_correction(OFFSET_LIMIT).err(),
                Some(taken) => taken.err(),
            };
            if let Some(error) = error {
                return pull.or(error);
            }
        }
        Ok(pull.pulled())
    }

    /// As [`Inlet::full_info`].
    ///
    /// # Errors
    /// As [`Inlet::full_info`].
    pub fn full_info(&self, timeout: impl Into<Timeout>) -> Result<StreamInfo> {
        let deadline = timeout.into().deadline(local_clock());
        let moves = self.inlet.begin_full_info()?;
        let known = |facts: &mut Facts| known_info(facts, moves);
        let found = self.inlet.shared.facts.wait_blocking(deadline, known);
        own_info(found)
    }

    /// As [`Inlet::time_correction`].
    ///
    /// # Errors
    /// As [`Inlet::time_correction`].
    pub fn time_correction(&self, timeout: impl Into<Timeout>) -> Result<TimeCorrection> {
        let deadline = timeout.into().deadline(local_clock());
        self.inlet.shared.start_clock()?;
        let facts = &self.inlet.shared.facts;
        facts
            .wait_blocking(deadline, known_offset)
            .unwrap_or(Err(CORRECTION_TIMEOUT))
    }

    /// See [`Inlet::echo`].
    ///
    /// # Errors
    /// As [`Inlet::echo`].
    pub fn echo(&self, timeout: impl Into<Timeout>) -> Result<Echo> {
        let deadline = timeout.into().deadline(local_clock());
        let (answer, _asking) = self.inlet.begin_echo()?;
        let answered = answer.wait_blocking(deadline, |place: &mut Option<Echo>| *place);
        answered.ok_or(ECHO_TIMEOUT)
    }
}

impl InletBuilder {
    /// Uses this context instead of the process-wide one.
    #[must_use]
    pub fn context(mut self, context: &Context) -> Self {
        self.context = Some(context.clone());
        self
    }

    /// How much may wait here before the oldest samples are dropped. Default: 360 s.
    #[must_use]
    pub fn buffer(mut self, length: BufferLength) -> Self {
        self.buffer = length;
        self
    }

    /// How many samples the outlet shall send together at most, if its program leaves it the
    /// choice; 0 (default) means that program's own granularity.
    #[must_use]
    pub fn max_chunk(mut self, samples: u32) -> Self {
        self.max_chunk_samples = samples;
        self
    }

    /// Whether to look for the stream again when its outlet is gone (default). Needs a source id.
    #[must_use]
    pub fn recover(mut self, recover: bool) -> Self {
        self.recover = recover;
        self
    }

    /// Whether samples that arrived before the stream was lost are still pulled before the loss is
    /// reported. Default: no, as in liblsl: the loss comes first, and they are gone.
    #[must_use]
    pub fn samples_first(mut self, samples_first: bool) -> Self {
        self.samples_first = samples_first;
        self
    }

    /// Which corrections pulls apply to timestamps. Default: none.
    #[must_use]
    pub fn processing(mut self, options: ProcessingOptions) -> Self {
        self.processing = options;
        self
    }

    /// Goes on with what earlier inlets learnt of the same stream's outlets, and adds to it. Default: an
    /// inlet begins anew. Spec: LSS/1 §5.7, §11 (`pin_peer`).
    #[must_use]
    pub fn peer_history(mut self, history: &crate::PeerHistory) -> Self {
        self.peer_history = history.clone();
        self
    }

    /// Makes the inlet. No network traffic yet.
    ///
    /// An info without addresses (not from a resolver) makes an inlet that finds its stream by
    /// itself, by everything the info says.
    ///
    /// # Errors
    /// [`Error::Argument`] if the stream uses a newer protocol, or if an info without addresses does
    /// not say what to look for; for a past that cannot be asked for, as [`Inlet::ask_history`] and
    /// [`Inlet::ask_from`]; [`Error::Security`] if the security configuration cannot be used.
    pub fn create(self) -> Result<Inlet> {
        let context = self.context.unwrap_or_else(Context::global);
        // Fail closed: a configuration that cannot be read must not mean plaintext.
        context.security()?;
        let info = self.info;
        if info.version() / 100 > context.config().tuning().protocol_version / 100 {
            return Err(Error::Argument(format!(
                "The received stream ({}) uses a newer protocol version than this inlet. Please update.",
                lsl_platform::terminal::printable(info.name_bytes(), 256)
            )));
        }
        let unresolved = info.v4_address_bytes().is_empty() && info.v6_address_bytes().is_empty();
        if unresolved {
            let named = !info.name_bytes().is_empty()
                || !info.stream_type_bytes().is_empty()
                || !info.source_id_bytes().is_empty();
            let shaped =
                info.channel_count() > 0 && info.channel_format() != ChannelFormat::Undefined;
            if !named || !shaped {
                return Err(Error::Argument(
                    "When creating an inlet with a constructed (instead of resolved) stream_info, \
                     it must have a name, type or source_id, channels and a channel format."
                        .into(),
                ));
            }
        }
        let has_source_id = !info.source_id_bytes().is_empty();
        if self.recover && !has_source_id && !unresolved {
            tracing::info!(name = ?info.name(), "the stream has no source id: it cannot be recovered");
        }
        // A stream that a relay told of is found by its uid, as others by their addresses.
        let is_known = self.link.is_some()
            || (unresolved && !context.relays().ways_to(info.uid_bytes()).is_empty());
        let recoverable = (unresolved && !is_known) || (self.recover && has_source_id);
        let capacity_samples = self.buffer.to_samples(info.nominal_srate());
        let mut shared = InletShared::new(
            context,
            info,
            capacity_samples,
            self.max_chunk_samples,
            (recoverable, self.recover),
            self.samples_first,
        );
        shared.source.set_peer_history(self.peer_history);
        shared.source.set_link(self.link);
        let inlet = Inlet {
            shared: Arc::new(shared),
        };
        inlet.set_processing(self.processing);
        match self.asked {
            Some(asked) => inlet.ask(asked)?,
            None => inlet.ask_history(self.history)?,
        }
        Ok(inlet)
    }
}

/// Takes what is there, if there is anything.
#[inline]
fn take<T: PullElement>(
    shared: &InletShared,
    feed: &mut Feed,
    pull: &mut Pull<'_, T>,
) -> Option<Result<Taken>> {
    let before = pull.pulled();
    match feed.take(pull, local_clock) {
        Ok(Taken::Nothing) => None,
        Ok(Taken::Samples) => {
            shared.note_pull(feed, pull.pulled() - before);
            Some(Ok(Taken::Samples))
        }
        taken => Some(taken),
    }
}

/// Returns what an `open` waits for that began in this epoch.
fn opened(epoch: u64) -> impl Fn(&mut FeedState) -> Option<Result<()>> {
    move |state| {
        if state.epoch == epoch {
            state.feed.opened()
        } else {
            Some(Err(OPEN_CLOSED))
        }
    }
}

fn known_info(facts: &mut Facts, moves: u64) -> Option<Result<Arc<StreamInfo>>> {
    let known = facts.full_info.as_ref();
    let known = known.filter(|(known, _)| *known >= moves);
    facts.or_lost(known.map(|(_, info)| Arc::clone(info)))
}

fn own_info(found: Option<Result<Arc<StreamInfo>>>) -> Result<StreamInfo> {
    let found = found.unwrap_or(Err(Error::Timeout { operation: "info" }));
    found.map(Arc::unwrap_or_clone)
}

fn known_offset(facts: &mut Facts) -> Option<Result<TimeCorrection>> {
    facts.or_lost(facts.correction)
}

const OPEN_TIMEOUT: Error = Error::Timeout {
    operation: "open_stream",
};
const OPEN_CLOSED: Error = Error::Closed {
    operation: "open_stream",
};
const ECHO_TIMEOUT: Error = Error::Timeout { operation: "echo" };
const CORRECTION_TIMEOUT: Error = Error::Timeout {
    operation: "time_correction",
};

/// How long a pull waits for the outlet's clock, whatever its own timeout. Spec: lsl-protocol §11.
const OFFSET_LIMIT: Timeout = Timeout::After(std::time::Duration::from_secs(5));
