//! Reads the past of streams from an engine, for readers of this relay. Spec: relay §12.

use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use lsl_core::relay::{FrameCodec, Frames, Past, ReadPast, ReadingPast, ReplayFrom};
use lsl_core::{Error, Result, local_clock};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

use super::Report;
use crate::engine::{self, Engine, EngineError, ErrorKind, Meta, Stored};

/// An engine that is read.
#[derive(Clone)]
pub(in crate::shell) struct Reading {
    engine: Arc<dyn Read>,
    /// What is to be written to it.
    report: Arc<Report>,
    /// Of those that ask it at the same time.
    places: Arc<Semaphore>,
}

type Asking<'a, T> = Pin<Box<dyn Future<Output = engine::Result<T>> + Send + 'a>>;

/// What readers want of an engine, of whatever kind it is.
trait Read: Send + Sync {
    fn read<'a>(&'a self, meta: &'a Meta, from: u64, most: usize) -> Asking<'a, Vec<Frames>>;
    fn list(&self) -> Asking<'_, Vec<Stored>>;
}

impl<E: Engine> Read for E {
    fn read<'a>(&'a self, meta: &'a Meta, from: u64, most: usize) -> Asking<'a, Vec<Frames>> {
        Box::pin(Engine::read(self, meta, from, most))
    }

    fn list(&self) -> Asking<'_, Vec<Stored>> {
        Box::pin(Engine::list(self))
    }
}

impl Reading {
    pub(super) fn new(engine: Arc<impl Engine>, report: Arc<Report>) -> Self {
        Self {
            engine,
            report,
            places: Arc::new(Semaphore::new(READERS)),
        }
    }

    /// Returns the streams that have ended, and when they were last written, in seconds since 1970; `None` if the
    /// engine does not tell.
    pub(in crate::shell) async fn ended(&self) -> Option<Vec<Stored>> {
        let listing = timeout(ASK_LIMIT, self.engine.list()).await;
        let listed = listing.unwrap_or_else(|_| Err(late()));
        let listed = listed.inspect_err(|error| {
            tracing::warn!("engine: what is past cannot be listed: {error}");
        });
        let mut streams = listed.ok()?;
        streams.retain(|stored| stored.end.is_some());
        Some(streams)
    }

    /// Returns what the engine has of a numbering for who asks for it. It is not asked yet if the beginning of that
    /// `is_elsewhere`. `edge` is the number of the next sample.
    pub(in crate::shell) async fn past(
        &self,
        meta: Meta,
        from: &ReplayFrom,
        edge: u64,
        is_elsewhere: bool,
    ) -> Option<Past> {
        let reader = Reader {
            codec: FrameCodec::new(&meta.info),
            reading: self.clone(),
            meta,
            batches: VecDeque::new(),
        };
        let (oldest, since) = if is_elsewhere {
            (u64::MAX, None)
        } else {
            let asking = timeout(ASK_LIMIT, reader.beginning(from, edge));
            let asked = asking.await.unwrap_or_else(|_| Err(late()));
            asked.unwrap_or_else(|error| {
                tracing::warn!("engine: the past is not read: {error}");
                None
            })?
        };
        Some(Past {
            oldest,
            since,
            reader: Box::new(reader),
        })
    }
}

/// Reads one numbering.
struct Reader {
    reading: Reading,
    meta: Meta,
    codec: FrameCodec,
    /// What was read ahead.
    batches: VecDeque<Frames>,
}

impl Reader {
    /// Returns the numbers of the first sample that is there, and of the first that came within the time asked for, or
    /// before.
    async fn beginning(
        &self,
        from: &ReplayFrom,
        edge: u64,
    ) -> engine::Result<Option<(u64, Option<u64>)>> {
        let Some(oldest) = self.batch_at(0).await?.map(|batch| batch.first) else {
            return Ok(None);
        };
        let ReplayFrom::LastMillis(millis) = *from else {
            return Ok(Some((oldest, None)));
        };
        #[expect(clippy::cast_precision_loss, reason = "nobody asks for centuries")]
        let secs = millis as f64 / 1e3;
        let srate = self.meta.info.nominal_srate();
        let since = if srate > 0.0 {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "not negative, and saturates"
            )]
            let samples = (secs * srate).ceil() as u64;
            edge.saturating_sub(samples)
        } else {
            self.stamped_since(oldest..edge, secs).await?
        };
        Ok(Some((oldest, Some(since.max(oldest)))))
    }

    /// Returns the number of the first sample of the last batch that begins so many seconds before the newest sample,
    /// by their timestamps: when they came the engine does not know.
    async fn stamped_since(&self, range: std::ops::Range<u64>, secs: f64) -> engine::Result<u64> {
        let mut since = range.start;
        // The last ones may not be stored yet.
        let (mut newest, mut back) = (None, 1);
        while newest.is_none() && back <= range.end - range.start {
            newest = self.batch_at(range.end - back).await?;
            back *= 2;
        }
        let newest = newest.and_then(|it| self.stamps(&it).last().copied());
        let Some(at) = newest.map(|stamp| stamp - secs) else {
            return Ok(since);
        };
        let (mut low, mut high) = (range.start, range.end);
        while low < high {
            let middle = low + (high - low) / 2;
            let batch = self.batch_at(middle).await?;
            let stamp = |batch: &Frames| self.stamps(batch).first().copied();
            match batch.filter(|it| it.first < high) {
                Some(batch) if stamp(&batch).is_some_and(|it| it < at) => {
                    since = since.max(batch.first);
                    low = batch.end().max(middle + 1);
                }
                _ => high = middle,
            }
        }
        Ok(since)
    }

    fn stamps(&self, batch: &Frames) -> Vec<f64> {
        let (mut stamps, mut values) = (Vec::new(), Vec::new());
        // What is no batch has none.
        let decoded = self.codec.decode(batch, &mut stamps, &mut values);
        decoded.map(|()| stamps).unwrap_or_default()
    }

    /// Returns the batch that has this number, or the next one.
    async fn batch_at(&self, number: u64) -> engine::Result<Option<Frames>> {
        let _place = self.reading.places.acquire().await.map_err(|_| late())?;
        let batches = self.reading.engine.read(&self.meta, number, 1).await?;
        Ok(batches.into_iter().next())
    }

    async fn next(&mut self, mut from: u64, until: u64) -> Result<Option<Frames>> {
        while from < until {
            self.batches.retain(|it| it.end() > from);
            if self.batches.is_empty() {
                self.batches = self.ask(from).await?.into();
                self.batches.retain(|it| it.end() > from);
            }
            let is_in = self.batches.front().is_some_and(|it| it.first < until);
            let Some(batch) = is_in.then(|| self.batches.pop_front()).flatten() else {
                break;
            };
            // What a server says is sent on only if it is samples of this stream.
            match batch.starting_at(from, &self.codec) {
                Ok(frames) => return Ok(Some(frames)),
                Err(error) => {
                    let name = self.meta.info.name();
                    tracing::warn!(
                        "engine: samples {} to {} of stream {name:?} are no samples: {error}",
                        batch.first,
                        batch.end()
                    );
                    // It goes on behind them, and the numbers tell.
                    from = batch.end();
                }
            }
        }
        Ok(None)
    }

    /// Asks for batches; tries for a while if the engine is away, or has not yet what this relay is about to write.
    async fn ask(&self, from: u64) -> Result<Vec<Frames>> {
        let failed = |error: EngineError| Error::Protocol(format!("engine: {error}"));
        let give_up_at = local_clock() + PATIENCE_SECS;
        loop {
            // Before it is asked: what waits may be written in between.
            let is_to_come = self.reading.report.waits(&self.meta.generation, from);
            let asked = {
                let _place = self.reading.places.acquire().await;
                self.reading.engine.read(&self.meta, from, READ_BYTES).await
            };
            match asked {
                Ok(batches) if !batches.is_empty() => return Ok(batches),
                Ok(none) if !is_to_come => return Ok(none),
                Err(error) if error.kind != ErrorKind::Retry => return Err(failed(error)),
                Ok(_) if local_clock() > give_up_at => return Err(failed(late())),
                Err(error) if local_clock() > give_up_at => return Err(failed(error)),
                Ok(_) | Err(_) => sleep(RETRY).await,
            }
        }
    }
}

impl ReadPast for Reader {
    fn read(&mut self, from: u64, until: u64) -> ReadingPast<'_> {
        Box::pin(self.next(from, until))
    }
}

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = &self.meta.generation;
        f.debug_struct("Reader")
            .field("generation", name)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Reading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reading").finish_non_exhaustive()
    }
}

fn late() -> EngineError {
    EngineError::new(ErrorKind::Retry, "it does not answer")
}

/// Readers that ask at a time. Spec: relay §9.
const READERS: usize = 16;

/// Bytes that are asked for at a time.
const READ_BYTES: usize = 256 << 10;

/// How long a reader waits to hear what is there: it waits for its own answer meanwhile.
const ASK_LIMIT: Duration = Duration::from_secs(3);

/// How long reading on is tried, in seconds.
const PATIENCE_SECS: f64 = 10.0;

const RETRY: Duration = Duration::from_millis(250);

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use lsl_core::{ChannelFormat, Generation, StreamInfo};

    use super::*;
    use crate::config::EngineConfig;
    use crate::engine::Address;
    use crate::engine::spool::{Lane, Source};

    /// Samples that are read once.
    #[derive(Debug, Clone)]
    struct Once(Option<Frames>);

    impl Source for Once {
        fn next(&self) -> u64 {
            0
        }

        fn seek(&mut self, _: u64) {}

        fn read(&mut self, _: usize, frames: &mut Frames) -> bool {
            self.0.take().map(|it| *frames = it).is_some()
        }

        fn end(&self) -> Option<u64> {
            None
        }
    }

    /// Has samples from the third question on.
    #[derive(Debug)]
    struct Slow(Frames, AtomicUsize);

    impl Read for Slow {
        fn read<'a>(&'a self, _: &'a Meta, _: u64, _: usize) -> Asking<'a, Vec<Frames>> {
            let is_there = self.1.fetch_add(1, Ordering::Relaxed) >= 2;
            let found = is_there.then(|| self.0.clone()).into_iter().collect();
            Box::pin(std::future::ready(Ok(found)))
        }

        fn list(&self) -> Asking<'_, Vec<Stored>> {
            Box::pin(std::future::ready(Ok(Vec::new())))
        }
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "readers are async")]
    fn what_waits_to_be_written_is_no_gap() {
        let info = StreamInfo::new("a", "", 1, 10.0, ChannelFormat::Int32, "a").expect("an info");
        let codec = FrameCodec::new(&info);
        let mut frames = Frames::default();
        let encoded = codec.encode(&[1.0, 1.1], &[0; 8], &mut frames);
        encoded.expect("samples");
        let meta = Meta {
            generation: Generation::parse(b"0-ab").expect("a generation"),
            info: Arc::new(info),
        };
        let address = Address::parse("redis://localhost").expect("an address");
        let report = Arc::new(Report::new(&EngineConfig::new(address)));
        let row = report.begin(&meta.generation);
        let mut lane = Lane::new(&meta.info, row.room());
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build();
        let runtime = runtime.expect("a runtime");
        let mut read = |waits: bool| {
            lane.read(&mut Once(waits.then(|| frames.clone())));
            row.set(&lane);
            let reading = Reading {
                engine: Arc::new(Slow(frames.clone(), AtomicUsize::new(0))),
                report: Arc::clone(&report),
                places: Arc::new(Semaphore::new(1)),
            };
            let mut reader = Reader {
                codec: codec.clone(),
                reading,
                meta: meta.clone(),
                batches: VecDeque::new(),
            };
            runtime.block_on(reader.next(0, 10)).expect("an answer")
        };
        assert_eq!(read(false), None);
        assert_eq!(read(true).map(|it| it.count), Some(2));
    }
}
