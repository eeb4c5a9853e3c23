//! Sending side: the public handle of a stream that this program offers. Start at `Outlet::push`.

use std::net::SocketAddr;
use std::sync::Arc;

use lsl_platform::clock::local_clock;
use lsl_proto::outlet::fanout::Fanout;
use lsl_proto::outlet::request::OutletOptions;
use lsl_proto::outlet::retention::Retain;
use lsl_proto::outlet::{Pushthrough, Stamps};
use lsl_proto::value::PushElement;
use lsl_proto::wire::sequence::{GapReason, Generation, ReplayFrom};
use lsl_secure::PublicKey;

use crate::context::Context;
use crate::drive_outlet::listen::Acceptors;
use crate::drive_outlet::origin::Origin;
use crate::drive_outlet::push::OutletShared;
use crate::stats::{ConsumerStats, OutletStats};
use crate::{BufferLength, ChannelFormat, Error, Result, StreamInfo, Timeout};

/// A stream offered to the network: found by resolvers, read by any number of inlets.
///
/// Pushing never blocks and costs little when nobody reads (except for synchronous outlets, see
/// [`OutletBuilder::synchronous`]). A handle may be shared between threads; concurrent pushes are
/// safe. Dropping it ends the stream: what was pushed is still handed to connected readers for up
/// to a second, in the background.
///
/// ```no_run
/// use lsl_core::{ChannelFormat, Outlet, StreamInfo};
///
/// let info = StreamInfo::new("Demo", "EEG", 8, 250.0, ChannelFormat::Float32, "demo-1")?;
/// let outlet = Outlet::new(info)?;
/// outlet.push(&[0.0_f32; 8])?;
/// # Ok::<(), lsl_core::Error>(())
/// ```
#[derive(Debug)]
pub struct Outlet {
    pub(crate) shared: Arc<OutletShared>,
    acceptors: Acceptors,
}

/// Settings of an outlet before it goes on the network; see [`Outlet::builder`].
#[derive(Debug)]
pub struct OutletBuilder {
    info: StreamInfo,
    context: Option<Context>,
    buffer: BufferLength,
    chunk_samples: usize,
    synchronous: bool,
    retain: Option<Retain>,
}

impl Outlet {
    /// Offers the stream with default settings in the process-wide context.
    ///
    /// # Errors
    /// As [`OutletBuilder::open`].
    pub fn new(info: StreamInfo) -> Result<Self> {
        Self::builder(info).open()
    }

    /// Offers the stream with settings of your own.
    pub fn builder(info: StreamInfo) -> OutletBuilder {
        OutletBuilder {
            info,
            context: None,
            buffer: BufferLength::default(),
            chunk_samples: 0,
            synchronous: false,
            retain: None,
        }
    }

    /// Pushes one sample (one value per channel), stamped now and sent at once.
    ///
    /// # Errors
    /// [`Error::Argument`] if the number of values is not the number of channels.
    pub fn push<T: PushElement>(&self, values: &[T]) -> Result<()> {
        self.push_with(values, 0.0, Pushthrough::Flush)
    }

    /// Pushes one sample with its timestamp (0.0 = now), sent at once.
    ///
    /// # Errors
    /// As [`push`](Self::push).
    pub fn push_at<T: PushElement>(&self, values: &[T], timestamp: f64) -> Result<()> {
        self.push_with(values, timestamp, Pushthrough::Flush)
    }

    /// Pushes one sample with its timestamp (0.0 = now), and says whether to send it now.
    ///
    /// # Errors
    /// As [`push`](Self::push).
    pub fn push_with<T: PushElement>(
        &self,
        values: &[T],
        timestamp: f64,
        pushthrough: Pushthrough,
    ) -> Result<()> {
        if values.len() != self.shared.channels {
            return Err(Error::Argument(format!(
                "a sample of this stream has {} values, got {}",
                self.shared.channels,
                values.len()
            )));
        }
        self.shared
            .push(values, 1, Stamps::Last(timestamp), pushthrough)
    }

    /// Pushes a chunk: samples one after the other, each with one value per channel
    /// (`[s0c0, s0c1, …, s1c0, …]`). The last sample is stamped now; sent at once.
    ///
    /// # Errors
    /// [`Error::Argument`] if the number of values is not a multiple of the channels.
    pub fn push_chunk<T: PushElement>(&self, values: &[T]) -> Result<()> {
        self.push_chunk_with(values, Stamps::Now, Pushthrough::Flush)
    }

    /// Pushes a chunk whose last sample was taken at `timestamp`.
    ///
    /// # Errors
    /// As [`push_chunk`](Self::push_chunk).
    pub fn push_chunk_at<T: PushElement>(&self, values: &[T], timestamp: f64) -> Result<()> {
        self.push_chunk_with(values, Stamps::Last(timestamp), Pushthrough::Flush)
    }

    /// Pushes a chunk with any kind of timestamps, and says whether to send it now.
    ///
    /// # Errors
    /// As [`push_chunk`](Self::push_chunk), and if [`Stamps::Each`] has another number of stamps
    /// than there are samples.
    pub fn push_chunk_with<T: PushElement>(
        &self,
        values: &[T],
        stamps: Stamps<'_>,
        pushthrough: Pushthrough,
    ) -> Result<()> {
        let channels = self.shared.channels;
        if channels == 0 || !values.len().is_multiple_of(channels) {
            return Err(Error::Argument(format!(
                "the number of values ({}) must be a multiple of the number of channels ({channels})",
                values.len(),
            )));
        }
        let samples = values.len() / channels;
        if let Stamps::Each(stamps) = stamps
            && stamps.len() != samples
        {
            return Err(Error::Argument(format!(
                "the chunk has {samples} samples but {} timestamps",
                stamps.len()
            )));
        }
        self.shared.push(values, samples, stamps, pushthrough)
    }

    /// Says that samples were lost before they could be pushed, by the device or on the way from it. Readers of
    /// lsl-rs learn how many; others are told nothing. Spec: resume §3.
    ///
    /// # Errors
    /// [`Error::Argument`] if the stream would have 2^60 samples then; none are skipped.
    pub fn skip(&self, samples: u64) -> Result<()> {
        self.shared.skip(samples, GapReason::Skipped)
    }

    /// Does the same as [`skip`](Self::skip), and tells readers why: for `lsl-relay`. Spec: resume §2.4.
    ///
    /// # Errors
    /// As [`skip`](Self::skip).
    #[doc(hidden)]
    pub fn lose(&self, samples: u64, reason: GapReason) -> Result<()> {
        self.shared.skip(samples, reason)
    }

    /// Pushes samples as they were received, sent at once, for `lsl-relay`: nothing about them is converted, rounded
    /// or guessed. `values` are those of all samples in the raw layout of `lsl_proto::value`: numbers in the byte
    /// order of this host; each text behind its length, 8 bytes in that order. `stamps` has the timestamp of each
    /// sample in seconds, as its reader computed it. Spec: relay §6.
    ///
    /// # Errors
    /// [`Error::Argument`] if `values` are not so many samples of this stream; none is pushed.
    #[doc(hidden)]
    pub fn push_run(&self, values: &[u8], stamps: &[f64]) -> Result<()> {
        self.shared.push_run(values, stamps)
    }

    /// Ends the feeds of those readers for whom `ends` says so, given their address and the key that they have proved
    /// to own, for `lsl-relay`: its rules may change. Spec: relay §10.
    #[doc(hidden)]
    pub fn end_readers(&self, ends: impl Fn(SocketAddr, Option<PublicKey>) -> bool) {
        self.shared.end_readers(ends);
    }

    /// Returns the name of the numbering, for `lsl-relay`.
    #[doc(hidden)]
    pub fn generation(&self) -> Option<Generation> {
        self.shared.generation
    }

    /// Whether all that a reader who asks for this can have is retained, for `lsl-relay`: then nothing that is kept of
    /// the stream elsewhere comes before it. Spec: relay §9.
    #[doc(hidden)]
    pub fn has_all(&self, from: &ReplayFrom) -> bool {
        self.shared.has_all(from)
    }

    /// Returns the number that the next sample gets, for `lsl-relay`.
    #[doc(hidden)]
    pub fn live_edge(&self) -> u64 {
        self.shared.live_edge()
    }

    /// Whether any inlet reads this stream now.
    pub fn have_consumers(&self) -> bool {
        !self.shared.fanout.lock().is_empty()
    }

    /// Waits until an inlet reads this stream; false if none came in time.
    pub async fn wait_for_consumers(&self, timeout: impl Into<Timeout>) -> bool {
        let deadline = timeout.into().deadline(local_clock());
        let known = |fanout: &mut Fanout<_>| fanout.has_consumers();
        self.shared.fanout.wait(deadline, known).await == Some(true)
    }

    /// Sends everything pushed so far, held or not, and waits until it was handed to every reader's
    /// socket; false if a reader was too slow. A program that ends right after its last push should
    /// call it, because what still waits in the outlet ends with the process.
    pub async fn flush(&self, timeout: impl Into<Timeout>) -> bool {
        let deadline = timeout.into().deadline(local_clock());
        self.shared.flush();
        let flushed = |fanout: &mut Fanout<_>| fanout.is_flushed().then_some(());
        self.shared.fanout.wait(deadline, flushed).await.is_some()
    }

    /// The blocking twins of the async methods.
    pub fn blocking(&self) -> BlockingOutlet<'_> {
        BlockingOutlet { outlet: self }
    }

    /// The stream as it is announced: with uid, ports, session and host name.
    pub fn info(&self) -> &StreamInfo {
        &self.shared.identity.info
    }

    /// Returns the counters since the outlet was created, and its present backlog.
    pub fn stats(&self) -> OutletStats {
        self.shared.stats()
    }

    /// Returns the inlets that read this stream now, each with its counters.
    pub fn consumers(&self) -> Vec<ConsumerStats> {
        self.shared.consumers()
    }

    /// Ends the stream as dropping the handle does, while other threads may still use it: waits for
    /// consumers end, pushes go nowhere.
    pub fn close(&self) {
        self.acceptors.stop();
        self.shared.close();
    }
}

impl Drop for Outlet {
    fn drop(&mut self) {
        self.close();
    }
}

/// Blocking twins of [`Outlet`]'s async methods. They wait on condition variables and never enter
/// an async runtime, so they work on any thread.
#[derive(Debug, Clone, Copy)]
pub struct BlockingOutlet<'a> {
    outlet: &'a Outlet,
}

impl BlockingOutlet<'_> {
    /// Blocks until an inlet reads the stream; false if none came in time.
    pub fn wait_for_consumers(&self, timeout: impl Into<Timeout>) -> bool {
        let deadline = timeout.into().deadline(local_clock());
        let known = |fanout: &mut Fanout<_>| fanout.has_consumers();
        (self.outlet.shared.fanout).wait_blocking(deadline, known) == Some(true)
    }

    /// Does the same as [`Outlet::flush`], but blocks the calling thread.
    pub fn flush(&self, timeout: impl Into<Timeout>) -> bool {
        let deadline = timeout.into().deadline(local_clock());
        let shared = &self.outlet.shared;
        shared.flush();
        let flushed = |fanout: &mut Fanout<_>| fanout.is_flushed().then_some(());
        shared.fanout.wait_blocking(deadline, flushed).is_some()
    }
}

impl OutletBuilder {
    /// Uses this context instead of the process-wide one.
    #[must_use]
    pub fn context(mut self, context: &Context) -> Self {
        self.context = Some(context.clone());
        self
    }

    /// How much a reader may lag before its oldest samples are dropped. Default: 360 s.
    #[must_use]
    pub fn buffer(mut self, length: BufferLength) -> Self {
        self.buffer = length;
        self
    }

    /// Samples that are sent together when pushes hold ([`Pushthrough::Hold`]); 0 means as many as
    /// the buffer takes. A reader's own wish has precedence.
    #[must_use]
    pub fn chunk_size(mut self, samples: usize) -> Self {
        self.chunk_samples = samples;
        self
    }

    /// Keeps samples for readers that come back, or join late, within these limits instead of those of the
    /// configuration ([`Retain::NOTHING`] to keep none). They lie in memory only, and go with the outlet.
    /// Spec: resume §4.
    #[must_use]
    pub fn retain(mut self, retain: Retain) -> Self {
        self.retain = Some(retain);
        self
    }

    /// Makes pushes write to every reader before they return, waiting for slow ones up to
    /// `tuning.SyncSendTimeout`, after which such a reader is disconnected. Not for string streams.
    /// Spec: lsl-protocol §13.
    #[must_use]
    pub fn synchronous(mut self, synchronous: bool) -> Self {
        self.synchronous = synchronous;
        self
    }

    /// Binds the ports, announces the stream and starts to accept readers.
    ///
    /// # Errors
    /// [`Error::Argument`] for a synchronous string stream, [`Error::Io`] if no port can be bound,
    /// [`Error::Security`] if there is a security configuration that cannot be used.
    pub fn open(self) -> Result<Outlet> {
        let (context, info, options) = self.checked()?;
        let (shared, acceptors) = Acceptors::open(&context, info, options)?;
        Ok(Outlet { shared, acceptors })
    }

    /// Creates an outlet that nobody finds or can connect with: what is given to it is read through a relay alone,
    /// as the stream of the info, which was received.
    ///
    /// # Errors
    /// As [`open`](Self::open); [`Error::Argument`] for a first number of 2^60 or more.
    #[doc(hidden)]
    pub fn relayed(self, origin: Origin) -> Result<Outlet> {
        let (context, info, options) = self.checked()?;
        let (shared, acceptors) = Acceptors::without(&context, &info, options, origin)?;
        Ok(Outlet { shared, acceptors })
    }

    fn checked(self) -> Result<(Context, StreamInfo, OutletOptions)> {
        if self.synchronous && self.info.channel_format() == ChannelFormat::String {
            return Err(Error::Argument(
                "Synchronous (zero-copy) mode is not supported for string-format streams".into(),
            ));
        }
        let context = self.context.unwrap_or_else(Context::global);
        context.security()?;
        let tuning = context.config().tuning();
        let capacity_samples = self.buffer.to_samples(self.info.nominal_srate());
        let options = OutletOptions {
            capacity_samples,
            chunk_samples: match self.chunk_samples {
                0 => capacity_samples,
                samples => samples,
            },
            synchronous: self.synchronous,
            retain: self.retain.unwrap_or_else(|| Retain {
                seconds: tuning.retain_secs,
                bytes: usize::try_from(tuning.retain_bytes).unwrap_or(usize::MAX),
                unread: tuning.retain_unread,
            }),
        };
        Ok((context, self.info, options))
    }
}
