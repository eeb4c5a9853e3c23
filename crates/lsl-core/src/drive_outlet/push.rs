//! What an outlet, its acceptors and the tasks of its connections share, and the push path.
//!
//! Pushing encodes each sample once per wire variant that somebody reads and hands it to the
//! [`Fanout`], which sends on the pushing thread where it can. What it leaves is sent by the outlet's
//! flush task. Lock order: `encoder`, then `fanout`.

use std::net::{Shutdown, SocketAddr};
use std::ops::Range;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lsl_platform::probe;
use lsl_proto::outlet::encoder::{Encoder, Variant};
use lsl_proto::outlet::fanout::{ConsumerId, Fanout, Inline, Position};
use lsl_proto::outlet::request::OutletOptions;
use lsl_proto::outlet::retention::Retention;
use lsl_proto::outlet::{Pushthrough, Stamps, Timestamps};
use lsl_proto::value::{PushElement, RawSamples};
use lsl_proto::wire::sequence::{GapReason, Generation};
use lsl_secure::{Cause, PublicKey};

use crate::context::Context;
use crate::drive_outlet::identity::Identity;
use crate::drive_outlet::link::{Link, Sender};
use crate::drive_outlet::numbers::Numbers;
use crate::drive_outlet::origin::{Origin, StreamClock};
use crate::drive_outlet::session::Session;
use crate::drive_outlet::shown::Shown;
use crate::net::monitor::{Monitor, lock_ignoring_poison};
use crate::net::sync::{Notify, local_clock};
use crate::stats::{ConsumerStats, Counter, OutletStats};
use crate::{ChannelFormat, Error, Result, StreamInfo};

/// The part of an outlet that its handle, its acceptors and its connections' tasks hold together.
#[derive(Debug)]
pub(crate) struct OutletShared {
    pub(crate) identity: Arc<Identity>,
    pub(crate) shown: Shown,
    /// How long small records wait for more.
    pub(crate) coalesce: Duration,
    pub(crate) channels: usize,
    pub(crate) options: OutletOptions,
    pub(crate) consumers_seen: Counter,
    /// Held by the one thread that pushes, also while it encodes.
    encoder: Mutex<Encoder>,
    pub(crate) fanout: Monitor<Fanout<Sender>>,
    pub(super) numbers: Numbers,
    /// Number of the first sample.
    pub(super) first: u64,
    /// Clock of the source, if it is not ours.
    pub(super) clock: Option<Arc<StreamClock>>,
    /// Name of the numbering: the uid, or what the origin of the stream calls it.
    pub(crate) generation: Option<Generation>,
    /// Rate in Hz as receivers read it.
    pub(super) nominal_srate: f64,
    pub(super) resumed: Counter,
    skipped: Counter,
    /// Tells the flush task that there is something to send.
    pub(crate) flusher: Notify,
    pub(crate) has_flusher: AtomicBool,
    /// Tells sessions that are no consumers of the end.
    pub(crate) closed: Notify,
    /// Whether somebody was refused for want of room since there was some.
    pub(crate) is_full: AtomicBool,
}

impl OutletShared {
    /// # Errors
    /// [`Error::Security`] if the security configuration cannot be used.
    pub(crate) fn new(context: Context, info: StreamInfo, options: OutletOptions) -> Result<Self> {
        Self::with_origin(context, info, options, None)
    }

    /// Creates an outlet that may pass on what comes from an origin.
    ///
    /// # Errors
    /// As [`new`](Self::new); [`Error::Argument`] for a first number of 2^60 or more.
    pub(crate) fn with_origin(
        context: Context,
        info: StreamInfo,
        options: OutletOptions,
        origin: Option<Origin>,
    ) -> Result<Self> {
        let (generation, first, clock) = match origin {
            Some(Origin { first, clock }) => (Some(first.generation), first.next, Some(clock)),
            None => (Generation::parse(info.uid_bytes()), 0, None),
        };
        let too_many = || Error::Argument("no stream has so many samples".into());
        let numbers = Numbers::starting_at(first).ok_or_else(too_many)?;
        let identity = Identity::new(context, info)?;
        let Identity {
            context,
            info,
            security,
            descriptor,
            ..
        } = &identity;
        // As receivers read it.
        let nominal_srate = descriptor.nominal_srate;
        let mut fanout = Fanout::default();
        fanout.begin(Fanout::<Sender>::RETAINED, first);
        if options.retain.seconds > 0.0 && !options.synchronous {
            let share = Arc::clone(context.retained());
            let mut retention = Retention::new(options.retain, share, local_clock());
            // Many read from a relay what many others push: none of them decides how much it holds.
            if clock.is_some() {
                retention.bound_readers();
            }
            fanout.retain(retention, nominal_srate);
            numbers.expect_reader(Fanout::<Sender>::RETAINED);
        }
        // Synchronous pushes wait for nothing but sockets.
        let settings = security.settings().filter(|_| !options.synchronous);
        Ok(Self {
            channels: info.channel_count() as usize,
            shown: Shown::new(info, security),
            coalesce: settings.map_or(Duration::ZERO, |settings| {
                Duration::from_micros(settings.coalesce_us.into())
            }),
            nominal_srate,
            first,
            clock,
            generation,
            resumed: Counter::default(),
            skipped: Counter::default(),
            encoder: Mutex::new(Encoder::new(info)),
            identity: Arc::new(identity),
            options,
            consumers_seen: Counter::default(),
            fanout: Monitor::new(fanout),
            numbers,
            flusher: Notify::new(),
            has_flusher: AtomicBool::new(false),
            closed: Notify::new(),
            is_full: AtomicBool::new(false),
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
        if self.identity.info.channel_format() == ChannelFormat::Undefined {
            return Err(Error::Argument("this stream has no channel format".into()));
        }
        if samples == 0 {
            return Ok(());
        }
        if self.numbers.pass(samples as u64) {
            return Ok(());
        }
        let now = local_clock();
        let mut encoder = lock_ignoring_poison(&self.encoder);
        let mut room = std::mem::take(&mut encoder.stamps);
        let stamps = Timestamps::new(
            stamps,
            samples,
            self.identity.info.nominal_srate(),
            self.identity
                .context
                .config()
                .tuning()
                .force_default_timestamps,
            now,
            &mut room,
            local_clock,
        );
        let encode =
            |encoder: &mut Encoder, variant, rest| encoder.encode(variant, values, stamps, rest);
        let waits = self.publish_all(&mut encoder, samples, pushthrough, now, encode)?;
        encoder.stamps = room;
        encoder.trim();
        // Whoever is told may push.
        drop(encoder);
        if let Some(waits) = waits {
            waits.warn();
        }
        Ok(())
    }

    /// Pushes samples as they were received, values in the raw layout of `lsl_proto::value`, each with its timestamp.
    pub(crate) fn push_run(&self, values: &[u8], stamps: &[f64]) -> Result<()> {
        let samples = stamps.len();
        let format = self.identity.info.channel_format();
        let values = RawSamples::new(values, format, self.channels, samples)?;
        if samples == 0 || self.numbers.pass(samples as u64) {
            return Ok(());
        }
        let now = local_clock();
        let mut encoder = lock_ignoring_poison(&self.encoder);
        let mut room = std::mem::take(&mut encoder.stamps);
        let stamps = Timestamps::received(stamps, self.nominal_srate, &mut room);
        let mut unsent = values.clone();
        let encode = |encoder: &mut Encoder, variant, rest: Range<usize>| {
            if rest.start == 0 {
                unsent = values.clone();
            }
            encoder.encode_raw(variant, &mut unsent, stamps, rest)
        };
        self.publish_all(&mut encoder, samples, Pushthrough::Flush, now, encode)?;
        encoder.stamps = room;
        encoder.trim();
        drop(encoder);
        // Taps that wait look again.
        self.fanout.wake();
        Ok(())
    }

    /// Numbers the samples of a push and publishes them, in each variant that is read: `encode` does so with the
    /// first of those that it is given, as [`Encoder::encode`].
    #[inline]
    fn publish_all(
        &self,
        encoder: &mut Encoder,
        samples: usize,
        pushthrough: Pushthrough,
        now: f64,
        mut encode: impl FnMut(&mut Encoder, Variant, Range<usize>) -> Result<usize>,
    ) -> Result<Option<Waits>> {
        let mut waits = None;
        let (first, mut unsent) = self.numbers.take(samples as u64);
        probe::push(&move || {
            let bytes = self.identity.info.channel_format().value_size() * self.channels * samples;
            [probe::word_of(self), first, samples as u64, bytes as u64]
        });
        while unsent != 0 {
            let variant = Variant::ALL[unsent.trailing_zeros() as usize];
            unsent &= unsent - 1;
            let mut at = 0;
            while at < samples {
                let place = Position {
                    variant,
                    first: first + at as u64,
                };
                at = encode(encoder, variant, at..samples)?;
                self.publish(encoder, place, pushthrough, now, &mut waits);
            }
        }
        Ok(waits)
    }

    /// Hands what was just encoded to the readers of a variant. In a synchronous outlet waits for
    /// them.
    fn publish(
        &self,
        encoder: &mut Encoder,
        at: Position,
        pushthrough: Pushthrough,
        now: f64,
        waits: &mut Option<Waits>,
    ) {
        let (pushthrough, inline) = if self.options.synchronous {
            (Pushthrough::Flush, Inline::Always)
        } else {
            (pushthrough, Inline::Budget)
        };
        let mut fanout = self.fanout.lock();
        let (piece, readers) = (&encoder.piece, &*fanout);
        // With the lock, as `encoder` is held anyway: to count readers for nobody would cost every push something.
        probe::send(&move || {
            let sizes = [
                piece.ends.len(),
                piece.bytes.len(),
                readers.consumers().count(),
            ];
            let [samples, bytes, readers] = sizes.map(|it| it as u64);
            [probe::word_of(self), at.first, samples, bytes, readers]
        });
        let published = fanout.publish(&mut encoder.piece, at, pushthrough, inline, now);
        let must_wait = self.options.synchronous && !fanout.is_flushed();
        drop(fanout);
        if must_wait {
            self.wait_for_readers(waits.get_or_insert_default());
        } else if published.wake_flusher {
            // Without the lock, or the flush task would run into it at once.
            self.flusher.notify_one();
        }
    }

    /// Sends the rest to one reader after the other, waiting for the sockets, and ends the readers for
    /// which that takes too long. Each has the whole time: one that stalls must not use up that of the
    /// others. Needs no thread but this one, which may be the runtime's.
    #[cold]
    fn wait_for_readers(&self, waits: &mut Waits) {
        let limit_secs = self
            .identity
            .context
            .config()
            .tuning()
            .sync_send_timeout_secs;
        let fanout = self.fanout.lock();
        let unflushed = fanout.unflushed();
        let slow: Vec<_> = unflushed.map(|(id, link)| (id, Arc::clone(link))).collect();
        drop(fanout);
        for (id, link) in slow {
            let index = waits.secs.iter().position(|(of, _)| *of == id);
            let index = index.unwrap_or_else(|| {
                waits.secs.push((id, 0.0));
                waits.secs.len() - 1
            });
            let start = local_clock();
            let deadline = start + limit_secs - waits.secs[index].1;
            let is_sent = loop {
                if self.fanout.lock().send_ready(id) {
                    break true;
                }
                // `encoder` is locked: signal handlers must not push now.
                let has_waited = if let Some(waiter) = link.writer.waiter() {
                    waiter.wait_writable(deadline)
                } else {
                    // Only the reactor can wait for it.
                    std::thread::sleep(LOOK_AGAIN);
                    local_clock() < deadline
                };
                if !has_waited {
                    break false;
                }
            };
            if is_sent {
                waits.secs[index].1 += local_clock() - start;
                continue;
            }
            // The feed may be cut inside a sample: it cannot be continued.
            link.shut_down(Shutdown::Both);
            drop(self.remove(id, link.peer.ip().into()));
            self.identity.refused.add(1);
            waits.lost.push(link);
        }
        // Flushes that wait look again.
        self.fanout.wake();
    }

    /// Notes which variants are read; `fanout` is locked.
    pub(crate) fn note_read(&self, fanout: &Fanout<Sender>) {
        self.numbers.note_read(|variant| fanout.is_read(variant));
    }

    /// Numbers samples that were lost before they could be pushed.
    pub(crate) fn skip(&self, samples: u64, reason: GapReason) -> Result<()> {
        let _encoder = lock_ignoring_poison(&self.encoder);
        // Who joins meanwhile begins after them.
        let mut fanout = self.fanout.lock();
        if !self.numbers.skip(samples) {
            return Err(Error::Argument("no stream loses so many samples".into()));
        }
        if samples > 0 {
            fanout.lose(reason);
        }
        drop(fanout);
        self.skipped.add(samples);
        Ok(())
    }

    /// Lets go what was retained for long enough. Returns whether anything still is to be.
    pub(super) fn look_after_retention(&self, now: f64) -> bool {
        let mut fanout = self.fanout.lock();
        fanout.look_after_retention(now);
        self.note_read(&fanout);
        fanout.is_retaining()
    }

    /// Makes everything pushed so far ready to be sent.
    pub(crate) fn flush(&self) {
        if self.fanout.lock().flush() {
            self.flusher.notify_one();
        }
    }

    /// Ends the stream: no new readers; present ones get what was pushed, within a time limit.
    pub(crate) fn close(&self) {
        self.fanout.update(Fanout::close);
        self.closed.notify_waiters();
        self.flusher.notify_one();
    }

    pub(crate) fn stats(&self) -> OutletStats {
        let fanout = self.fanout.lock();
        let (bytes, dropped) = fanout.totals();
        let (retained_bytes, replayed, replay_refused) = fanout.retained();
        let skipped = self.skipped.value();
        OutletStats {
            samples: (self.numbers.count() - self.first).saturating_sub(skipped),
            resumed: self.resumed.value(),
            replayed,
            replay_refused,
            retained_bytes: retained_bytes as u64,
            skipped,
            sent: fanout.sent(),
            bytes,
            dropped,
            consumers_seen: self.consumers_seen.value(),
            refused: self.identity.refused.value(),
            backlog_bytes: fanout.backlog_bytes() as u64,
        }
    }

    pub(crate) fn consumers(&self) -> Vec<ConsumerStats> {
        let fanout = self.fanout.lock();
        let consumers = fanout.consumers().map(|(_, link, progress)| ConsumerStats {
            peer: link.peer,
            sent: progress.sent,
            dropped: progress.dropped,
            behind: progress.behind,
            encryption: link.session().map(Session::encryption),
        });
        consumers.collect()
    }
}

impl OutletShared {
    /// Ends the feeds of the readers, told by address and key, for whom `ends` says so.
    pub(crate) fn end_readers(&self, ends: impl Fn(SocketAddr, Option<PublicKey>) -> bool) {
        let fanout = self.fanout.lock();
        let links: Vec<_> = fanout.consumers().map(|it| Arc::clone(it.1)).collect();
        drop(fanout);
        for link in links {
            if !ends(link.peer, link.key) {
                continue;
            }
            match link.session() {
                Some(_) => link.end_session(Cause::NotAuthorised),
                None => link.shut_down(Shutdown::Both),
            }
        }
    }
}

/// How a synchronous push waited for its readers.
#[derive(Debug, Default)]
struct Waits {
    /// Seconds that it waited for each.
    secs: Vec<(ConsumerId, f64)>,
    /// Those that were ended.
    lost: Vec<Arc<Link>>,
}

impl Waits {
    #[cold]
    fn warn(self) {
        for link in self.lost {
            let error = std::io::Error::from(std::io::ErrorKind::TimedOut);
            tracing::warn!(peer = %link.peer, %error, "dropping a reader of a synchronous outlet");
        }
    }
}

/// Pause of a synchronous push before a stream that no thread can wait for.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use lsl_proto::config::Config;

    use super::*;
    use crate::Outlet;
    use crate::net::runtime;

    #[test]
    fn a_synchronous_push_on_the_runtime_s_own_thread_waits_for_nobody_but_its_reader() {
        // Far more than sockets take.
        const VALUES: usize = 1 << 22;
        let mut config = Config::loopback();
        config.set("tuning.SyncSendTimeout", "5").unwrap();
        let security = lsl_secure::Security::off(Vec::new()).unwrap();
        let context = Context::with_security(config, Arc::new(security));
        let info = StreamInfo::new("own", "", 1, 0.0, ChannelFormat::Double64, "own").unwrap();
        let outlet = Outlet::builder(info).context(&context).synchronous(true);
        let outlet = outlet.open().unwrap();
        let port = outlet.info().v4_data_port();
        let mut reader = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
        let request = b"LSL:streamfeed/110 \r\nMax-Buffer-Length: 1000\r\n\r\n";
        reader.write_all(request).unwrap();
        let is_there = outlet
            .blocking()
            .wait_for_consumers(Duration::from_secs(20));
        assert!(is_there);
        let outlet = Arc::new(outlet);
        let stats_of = Arc::clone(&outlet);
        let reading = std::thread::spawn(move || {
            while stats_of.stats().backlog_bytes == 0 {
                std::thread::yield_now();
            }
            let received = &mut vec![0; VALUES * 8];
            reader.read_exact(received).map(|()| reader)
        });
        let (sender, receiver) = std::sync::mpsc::channel();
        let pushing = async move {
            outlet.push_chunk(&vec![0.5; VALUES]).unwrap();
            sender.send((outlet.stats().refused, outlet)).unwrap();
        };
        runtime::spawn(pushing).unwrap();
        let (refused, outlet) = receiver.recv_timeout(Duration::from_mins(1)).unwrap();
        assert_eq!(refused, 0, "dropped a reader that reads");
        drop((reading.join().unwrap().unwrap(), outlet));
    }
}
