//! What an outlet and its connected readers share: the push path and the task of each reader.
//!
//! Pushing encodes each sample once per wire variant that somebody reads and hands it to the
//! variant's `Fanout`, which sends on the pushing thread where it can. What it leaves is sent by the
//! outlet's flush task, or by the task of a reader whose socket is full. Lock order: `turn` or
//! `caught_up`, then `fan`, then `audience`.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lsl_platform::clock::local_clock;
use lsl_proto::describe;
use lsl_proto::discovery::advert;
use lsl_proto::discovery::registry::AnnouncedStream;
use lsl_proto::limits::Host;
use lsl_proto::outlet::encoder::{Encoder, Variant};
use lsl_proto::outlet::fanout::{
    Batch, ConsumerId, Drain, Fanout, FeedLimits, InlineBudget, SendBy, Transmit,
};
use lsl_proto::outlet::{Pushthrough, Stamps, Timestamps};
use lsl_proto::value::PushElement;
use lsl_proto::wire::response::Refusal;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use crate::context::Context;
use crate::drive_discovery::serve::own_security;
use crate::drive_outlet::link::Link;
use crate::drive_outlet::places::has_place;
use crate::net::monitor::{Monitor, lock_ignoring_poison};
use crate::net::race::race;
use crate::stats::{ConsumerStats, Counter, OutletStats};
use crate::{ChannelFormat, Error, Result, StreamInfo};

/// How an outlet treats its readers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OutletOptions {
    /// Samples a reader may lag.
    pub(crate) capacity_samples: usize,
    /// Samples sent together when pushes hold and the reader has no wish.
    pub(crate) chunk_samples: usize,
    /// Whether pushes wait for every reader.
    pub(crate) synchronous: bool,
}

/// Who reads an outlet, as far as somebody may wait for it.
#[derive(Debug, Default)]
pub(crate) struct Audience {
    pub(crate) consumers: usize,
    closed: bool,
}

impl Audience {
    /// Whether there are consumers; `None` if there are none yet.
    pub(crate) fn known(&mut self) -> Option<bool> {
        match self {
            Self { closed: true, .. } => Some(false),
            Self { consumers: 0, .. } => None,
            Self { .. } => Some(true),
        }
    }
}

/// The part of an outlet that its handle, its acceptors and its readers' tasks hold together.
#[derive(Debug)]
pub(crate) struct OutletShared {
    pub(crate) context: Context,
    pub(crate) info: StreamInfo,
    /// The short form, for those who may see all of it.
    pub(crate) shortinfo: Vec<u8>,
    /// What everybody may see.
    pub(crate) advertised: Arc<AnnouncedStream>,
    /// Who we are and whom we let in.
    pub(crate) security: Arc<lsl_secure::Security>,
    /// What the DESCRIPTOR of every session says.
    pub(crate) descriptor: lsl_secure::Descriptor,
    /// How long small records wait for more; zero in plaintext.
    coalesce: Duration,
    pub(crate) channels: usize,
    pub(crate) options: OutletOptions,
    pub(crate) audience: Monitor<Audience>,
    /// Woken whenever a reader has caught up or left.
    pub(crate) caught_up: Monitor<()>,
    pub(crate) refused: Counter,
    samples: Counter,
    bytes: Counter,
    dropped: Counter,
    consumers_seen: Counter,
    fan: Mutex<Fan>,
    /// Variants somebody reads, a bit for each: changes under `fan`, read without it.
    read: AtomicU8,
    /// Tells the flush task that there is something to send.
    flusher: Notify,
    /// Held by the one thread that pushes, also while it encodes.
    turn: Mutex<Turn>,
}

/// What a pushing thread works with.
#[derive(Debug)]
struct Turn {
    encoder: Encoder,
    budget: InlineBudget,
}

#[derive(Debug)]
struct Fan {
    fanouts: [Fanout<Arc<Link>>; Variant::ALL.len()],
    synchronous: Vec<Arc<SyncReader>>,
    tasks: Vec<(ConsumerId, Host, AbortHandle)>,
    next_id: u64,
    has_flusher: bool,
    /// Whether somebody was refused for want of room since there was some.
    is_full: bool,
    closed: bool,
}

/// A reader of a synchronous outlet.
#[derive(Debug)]
struct SyncReader {
    id: ConsumerId,
    variant: Variant,
    link: Arc<Link>,
    /// What of the preamble is still to be sent. Its task sends it without blocking; a push that
    /// comes first waits for the socket and sends it itself, so that no sample is lost in between.
    preamble: Mutex<Vec<u8>>,
    sent: Counter,
}

impl OutletShared {
    /// # Errors
    /// [`Error::Security`] if the security configuration cannot be used.
    pub(crate) fn new(context: Context, info: StreamInfo, options: OutletOptions) -> Result<Self> {
        let security = Arc::clone(context.security()?);
        let own = own_security(&security);
        Ok(Self {
            context,
            channels: info.channel_count() as usize,
            shortinfo: advert::shortinfo(&info, &own),
            advertised: Arc::new(advert::announced(&info, &own)),
            coalesce: (security.settings()).map_or(Duration::ZERO, |settings| {
                Duration::from_micros(settings.coalesce_us.into())
            }),
            security,
            descriptor: describe::descriptor(&describe::as_received(&info)),
            turn: Mutex::new(Turn {
                encoder: Encoder::new(&info),
                budget: InlineBudget::default(),
            }),
            info,
            options,
            audience: Monitor::default(),
            caught_up: Monitor::default(),
            refused: Counter::default(),
            samples: Counter::default(),
            bytes: Counter::default(),
            dropped: Counter::default(),
            consumers_seen: Counter::default(),
            fan: Mutex::new(Fan {
                fanouts: Default::default(),
                synchronous: Vec::new(),
                tasks: Vec::new(),
                next_id: 0,
                has_flusher: false,
                is_full: false,
                closed: false,
            }),
            read: AtomicU8::new(0),
            flusher: Notify::new(),
        })
    }

    /// Pushes `samples` samples, already known to match the stream's shape.
    pub(crate) fn push<T: PushElement>(
        &self,
        values: &[T],
        samples: usize,
        stamps: Stamps<'_>,
        pushthrough: Pushthrough,
    ) -> Result<()> {
        if self.info.channel_format() == ChannelFormat::Undefined {
            return Err(Error::Argument("this stream has no channel format".into()));
        }
        if samples == 0 {
            return Ok(());
        }
        self.samples.add(samples as u64);
        let now = local_clock();
        let read = self.read.load(Ordering::Acquire);
        if read == 0 && !self.options.synchronous {
            return Ok(());
        }
        let mut turn = lock_ignoring_poison(&self.turn);
        let mut room = std::mem::take(&mut turn.encoder.stamps);
        let timestamps = Timestamps::new(
            stamps,
            samples,
            self.info.nominal_srate(),
            self.context.config().tuning().force_default_timestamps,
            now,
            &mut room,
            local_clock,
        );
        let lost = if self.options.synchronous {
            self.push_blocking(&mut turn.encoder, values, samples, timestamps)?
        } else {
            Vec::new()
        };
        for variant in Variant::ALL {
            let mut at = if read & bit(variant) == 0 { samples } else { 0 };
            while at < samples {
                at = (turn.encoder).encode(variant, values, timestamps, at..samples)?;
                self.publish(&mut turn, variant, pushthrough, now);
            }
        }
        turn.encoder.stamps = room;
        turn.encoder.trim();
        // Whoever is told may push.
        drop(turn);
        for (peer, error) in lost {
            tracing::warn!(%peer, %error, "dropping a reader of a synchronous outlet");
        }
        Ok(())
    }

    /// Hands what was just encoded to the readers of a variant.
    fn publish(&self, turn: &mut Turn, variant: Variant, pushthrough: Pushthrough, now: f64) {
        let mut fan = lock_ignoring_poison(&self.fan);
        let Turn { encoder, budget } = turn;
        let by = if self.coalesce.is_zero() {
            budget.who_sends(encoder.bytes.len(), fan.readers(), now)
        } else {
            // Each reader's task waits for more.
            SendBy::Task
        };
        let fanout = &mut fan.fanouts[variant.index()];
        let bytes = encoder.bytes.len() * fanout.len();
        let published = fanout.publish(&mut encoder.bytes, &mut encoder.ends, pushthrough, by);
        drop(fan);
        if published.flusher {
            // Without the lock, or the flush task would run into it at once.
            self.flusher.notify_one();
        }
        self.bytes.add(bytes as u64);
        if published.dropped > 0 {
            self.dropped.add(published.dropped);
        }
    }

    /// Sends to every reader; those that were dropped, and why.
    fn push_blocking<T: PushElement>(
        &self,
        encoder: &mut Encoder,
        values: &[T],
        samples: usize,
        stamps: Timestamps<'_>,
    ) -> Result<Vec<(SocketAddr, std::io::Error)>> {
        let mut lost = Vec::new();
        let readers = lock_ignoring_poison(&self.fan).synchronous.clone();
        let limit_secs = self.context.config().tuning().sync_send_timeout_secs;
        for reader in readers {
            let mut preamble = lock_ignoring_poison(&reader.preamble);
            // Each reader has the whole time: one that stalls must not use up that of the others.
            let deadline = local_clock() + limit_secs;
            let mut sent = reader.link.send_blocking(&preamble, deadline);
            let (mut at, mut bytes) = (0, 0);
            while at < samples && sent.is_ok() {
                at = encoder.encode(reader.variant, values, stamps, at..samples)?;
                sent = reader.link.send_blocking(&encoder.bytes, deadline);
                bytes += encoder.bytes.len();
            }
            preamble.clear();
            match sent {
                Ok(()) => {
                    reader.sent.add(samples as u64);
                    self.bytes.add(bytes as u64);
                }
                Err(error) => {
                    // The feed may be cut inside a sample: it cannot be continued.
                    reader.link.shut_down();
                    self.remove(reader.id);
                    self.refused.add(1);
                    lost.push((reader.link.peer(), error));
                }
            }
        }
        Ok(lost)
    }

    /// Adds a reader and serves it until it leaves or the outlet closes. `preamble` is everything it
    /// must get before the first sample; whatever is pushed after this call reaches it.
    pub(crate) fn admit(
        self: &Arc<Self>,
        link: Arc<Link>,
        variant: Variant,
        limits: FeedLimits,
        preamble: Vec<u8>,
    ) -> std::result::Result<(), Refusal> {
        // Nobody begins in the middle of a chunk, whose later samples say nothing about when they were
        // taken. (A push into a synchronous outlet may wait for readers, and takes those it finds.)
        let turn = (!self.options.synchronous).then(|| lock_ignoring_poison(&self.turn));
        let mut fan = lock_ignoring_poison(&self.fan);
        if fan.closed {
            drop(fan);
            link.finish_sending();
            return Ok(());
        }
        let most = self.context.config().tuning().max_consumers;
        let host = Host::from(link.peer().ip());
        let present = fan.tasks.iter().map(|(_, host, _)| *host);
        if !has_place(present, host, most as usize) {
            let is_news = !std::mem::replace(&mut fan.is_full, true);
            drop(fan);
            drop(turn);
            if is_news {
                tracing::warn!(
                    name = %self.info.name(), peer = %link.peer(),
                    "reader refused: the outlet has no place left for this host (tuning.MaxConsumers is {most})"
                );
            }
            return Err(match variant {
                Variant::V110(_) => Refusal::TooManyReaders,
                Variant::V100 => Refusal::Silent,
            });
        }
        fan.is_full = false;
        let id = ConsumerId(fan.next_id);
        fan.next_id += 1;
        let task = if self.options.synchronous {
            let reader = Arc::new(SyncReader {
                id,
                variant,
                link: Arc::clone(&link),
                preamble: Mutex::new(preamble),
                sent: Counter::default(),
            });
            fan.synchronous.push(Arc::clone(&reader));
            tokio::spawn(Arc::clone(self).serve_sync(reader))
        } else {
            let fanout = variant.index();
            fan.fanouts[fanout].register(id, Arc::clone(&link), limits, preamble);
            self.read.fetch_or(bit(variant), Ordering::Release);
            if !std::mem::replace(&mut fan.has_flusher, true) {
                tokio::spawn(Arc::clone(self).run_flusher());
            }
            tokio::spawn(Arc::clone(self).serve(id, fanout, link))
        };
        drop(turn);
        fan.tasks.push((id, host, task.abort_handle()));
        self.consumers_seen.add(1);
        // Still under `fan`, or a reader that leaves at once would be subtracted before it was added.
        self.audience.update(|audience| audience.consumers += 1);
        Ok(())
    }

    async fn serve(self: Arc<Self>, id: ConsumerId, fanout: usize, link: Arc<Link>) {
        let drain = async {
            let mut out = Vec::new();
            loop {
                let next = lock_ignoring_poison(&self.fan).fanouts[fanout].drain(
                    id,
                    DRAIN_BYTES,
                    &mut out,
                );
                match next {
                    Drain::Send => {
                        link.send(&out).await?;
                        // A reader that is far behind must not delay a clock probe.
                        tokio::task::yield_now().await;
                    }
                    Drain::Idle => {
                        link.flush().await?;
                        self.tell_caught_up();
                        if out.capacity() > 2 * DRAIN_BYTES {
                            out = Vec::new();
                        }
                        link.woken().await;
                        if link.is_sealed() && !self.coalesce.is_zero() {
                            tokio::time::sleep(self.coalesce).await;
                        }
                    }
                    Drain::Finished => return Ok::<(), std::io::Error>(()),
                }
            }
        };
        let ended = race(drain, link.closed_by_peer()).await;
        tracing::debug!(peer = %link.peer(), ?ended, "reader gone");
        link.finish_sending();
        self.remove(id);
        link.close_session().await;
    }

    /// Serves all readers that lag while their sockets take what they are given, until the outlet
    /// closes and nothing is left to do.
    async fn run_flusher(self: Arc<Self>) {
        let mut batches: [Batch<Arc<Link>>; Variant::ALL.len()] = Default::default();
        loop {
            let closed = {
                let mut fan = lock_ignoring_poison(&self.fan);
                for (fanout, batch) in fan.fanouts.iter_mut().zip(&mut batches) {
                    fanout.finish(batch);
                    fanout.fill(DRAIN_BYTES, batch);
                }
                fan.closed
            };
            batches.iter_mut().for_each(Batch::forget_gone);
            if batches.iter().all(Batch::is_empty) {
                self.tell_caught_up();
                if closed {
                    return;
                }
                for batch in &mut batches {
                    batch.shrink(2 * DRAIN_BYTES);
                }
                self.flusher.notified().await;
                continue;
            }
            let (mut bytes, mut calls) = (0, 0);
            for batch in &mut batches {
                while let Some(sent) = batch.send_next() {
                    bytes += sent;
                    calls += 1;
                    // Readers that are far behind must not delay a clock probe.
                    if bytes >= DRAIN_BYTES || calls >= CALLS_IN_A_ROW {
                        tokio::task::yield_now().await;
                        (bytes, calls) = (0, 0);
                    }
                }
            }
            tokio::task::yield_now().await;
        }
    }

    async fn serve_sync(self: Arc<Self>, reader: Arc<SyncReader>) {
        let ended = race(reader.send_own(), reader.link.closed_by_peer()).await;
        tracing::debug!(peer = %reader.link.peer(), ?ended, "reader gone");
        if reader.link.is_sealed() {
            self.remove(reader.id);
            reader.link.close_session().await;
            return;
        }
        reader.link.shut_down();
        self.remove(reader.id);
    }

    /// Keeps a session that only lends its keys, until it or the outlet ends. It is no consumer.
    pub(crate) fn lend_keys(self: &Arc<Self>, link: Arc<Link>) {
        let shared = Arc::clone(self);
        tokio::spawn(async move {
            let Some(tunnel) = link.tunnel() else { return };
            let closed =
                (shared.audience).wait(f64::INFINITY, |audience| audience.closed.then_some(()));
            let ended = race(link.lend_keys(tunnel, KEYS_LIMIT), closed).await;
            tracing::debug!(peer = %link.peer(), ?ended, "time keys gone");
            link.close_session().await;
        });
    }

    fn remove(&self, id: ConsumerId) {
        let mut fan = lock_ignoring_poison(&self.fan);
        fan.tasks.retain(|(task, ..)| *task != id);
        let was_synchronous = fan.synchronous.len();
        fan.synchronous.retain(|reader| reader.id != id);
        let mut removed = was_synchronous != fan.synchronous.len();
        for (index, fanout) in fan.fanouts.iter_mut().enumerate() {
            removed |= fanout.remove(id).is_some();
            if fanout.is_empty() {
                self.read.fetch_and(!(1 << index), Ordering::Release);
            }
        }
        drop(fan);
        if removed {
            self.audience.update(|audience| audience.consumers -= 1);
            self.tell_caught_up();
        }
    }

    /// Lets waiting flushes look again. Goes through the lock that they look under: what they look at
    /// is behind `fan`, and would otherwise change between their look and their sleep.
    fn tell_caught_up(&self) {
        self.caught_up.update(|()| ());
    }

    /// Makes everything pushed so far ready to be sent.
    pub(crate) fn flush(&self) {
        let mut flusher = false;
        for fanout in &mut lock_ignoring_poison(&self.fan).fanouts {
            flusher |= fanout.flush();
        }
        if flusher {
            self.flusher.notify_one();
        }
    }

    /// Whether everything that is ready was handed to the readers' sockets.
    pub(crate) fn is_drained(&self) -> bool {
        let fan = lock_ignoring_poison(&self.fan);
        fan.fanouts.iter().all(|fanout| {
            fanout.is_drained() && fanout.consumers().all(|(_, link, _)| !link.has_unsent())
        })
    }

    /// Ends the stream: no new readers; present ones get what was pushed, within a time limit.
    pub(crate) fn close(&self) {
        let mut fan = lock_ignoring_poison(&self.fan);
        fan.closed = true;
        for fanout in &mut fan.fanouts {
            // The flush task is called in any case: it ends with the outlet.
            let _ = fanout.close();
        }
        self.flusher.notify_one();
        for reader in fan.synchronous.drain(..) {
            if reader.link.is_sealed() {
                // Its task does the rest, for as long as it may.
                reader.link.finish_sending();
            } else {
                reader.link.shut_down();
            }
        }
        let tasks = std::mem::take(&mut fan.tasks);
        drop(fan);
        self.audience.update(|audience| audience.closed = true);
        if tasks.is_empty() {
            return;
        }
        let limit = async move {
            tokio::time::sleep(LINGER).await;
            for (.., task) in tasks {
                task.abort();
            }
        };
        // Without a runtime there are no tasks to end either.
        drop(crate::net::runtime::spawn(limit));
    }

    pub(crate) fn stats(&self) -> OutletStats {
        let backlog = lock_ignoring_poison(&self.fan)
            .fanouts
            .iter()
            .map(|fanout| fanout.backlog_bytes() as u64)
            .sum();
        OutletStats {
            samples: self.samples.value(),
            bytes: self.bytes.value(),
            dropped: self.dropped.value(),
            consumers_seen: self.consumers_seen.value(),
            refused: self.refused.value(),
            backlog_bytes: backlog,
        }
    }

    pub(crate) fn consumers(&self) -> Vec<ConsumerStats> {
        let fan = lock_ignoring_poison(&self.fan);
        let buffered = fan
            .fanouts
            .iter()
            .flat_map(Fanout::consumers)
            .map(|(_, link, progress)| ConsumerStats {
                peer: link.peer(),
                sent: progress.sent,
                dropped: progress.dropped,
                behind: progress.behind,
                encryption: link.encryption(),
            });
        let synchronous = fan.synchronous.iter().map(|reader| ConsumerStats {
            peer: reader.link.peer(),
            sent: reader.sent.value(),
            dropped: 0,
            behind: 0,
            encryption: reader.link.encryption(),
        });
        buffered.chain(synchronous).collect()
    }
}

/// The bit of a variant among those that are read.
fn bit(variant: Variant) -> u8 {
    1 << variant.index()
}

impl SyncReader {
    /// Sends what pushes do not: the preamble, and what a session has to say for itself. Ends only
    /// with an error.
    async fn send_own(&self) -> std::io::Result<Infallible> {
        while !self.send_preamble()? {
            tokio::time::sleep(PREAMBLE_RETRY).await;
        }
        loop {
            self.link.flush().await?;
            self.link.woken().await;
        }
    }

    /// Sends what fits of the preamble; true once all of it is sent.
    fn send_preamble(&self) -> std::io::Result<bool> {
        // Held elsewhere means that a push is sending it.
        let Ok(mut rest) = self.preamble.try_lock() else {
            return Ok(false);
        };
        if rest.is_empty() {
            return Ok(true);
        }
        match self.link.try_send(&rest) {
            Ok(sent) => drop(rest.drain(..sent)),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        Ok(rest.is_empty())
    }
}

impl Fan {
    fn readers(&self) -> usize {
        self.fanouts.iter().map(Fanout::len).sum()
    }
}

/// Sockets the flush task writes to before it lets others run.
const CALLS_IN_A_ROW: usize = 8;

/// Bytes handed to a socket at a time when catching up.
const DRAIN_BYTES: usize = 64 * 1024;

/// How long readers of a closed outlet may take to fetch what was pushed.
const LINGER: Duration = Duration::from_secs(1);

/// How long a session without feed is kept without a record. Spec: LSS/1 §9.2.
const KEYS_LIMIT: Duration = Duration::from_secs(100);

/// Pause before the rest of a preamble is tried again (it is a few hundred bytes: rare).
const PREAMBLE_RETRY: Duration = Duration::from_millis(5);
