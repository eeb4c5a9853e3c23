//! Encryption of whole streams: any reader to any writer, nothing staged, in constant memory. The chunks of
//! one stream are spread over several threads.
//!
//! Reading and writing stay on the calling thread; the others only seal and open. They get batches in turn
//! and return them in the same turn, so that the order needs no bookkeeping.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use zeroize::Zeroize;

use super::decrypting::{End, Ending, fill, judge, open};
use super::encrypting::start;
use super::error::{Error, Result};
use super::keys::{Identities, Recipients};
use super::payload::{CHUNK_LEN, ChunkPosition, PayloadKey, SEALED_LEN};
use super::steps::{Step, Stopwatch};

/// A request to stop, for instance from Ctrl-C. Clones are the same request.
#[derive(Debug, Clone, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// Requests a stop of all work that has a clone of this. Any thread may call it, more than once.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Returns whether a stop was requested.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    pub(super) fn check(&self) -> Result<()> {
        if self.is_cancelled() {
            Err(Error::Cancelled)
        } else {
            Ok(())
        }
    }
}

/// Options for the work on a stream.
#[derive(Clone, Copy)]
pub struct Work<'a> {
    /// Threads that seal or open chunks beside the calling one, which reads and writes. With 0 the calling
    /// thread does it all. At most [`MAX_THREADS`](Self::MAX_THREADS) are started.
    pub threads: usize,
    /// Request to stop, checked between batches. A read or write that blocks is not interrupted.
    pub cancel: Option<&'a Cancel>,
    /// Called on the calling thread with the bytes of the source read so far.
    pub progress: Option<&'a dyn Fn(u64)>,
}

impl Work<'_> {
    /// Upper limit of threads. It bounds the memory, not the speed: disks are slower than this.
    pub const MAX_THREADS: usize = 8;

    /// Uses a thread for every processor, the calling one among them, and reports no progress.
    pub fn new() -> Self {
        let processors = thread::available_parallelism().map_or(1, NonZeroUsize::get);
        Self {
            threads: processors.saturating_sub(1),
            ..Self::quiet()
        }
    }

    /// Uses the calling thread alone, and reports no progress.
    pub fn quiet() -> Self {
        Self {
            threads: 0,
            cancel: None,
            progress: None,
        }
    }

    pub(super) fn check(&self) -> Result<()> {
        self.cancel.map_or(Ok(()), Cancel::check)
    }
}

impl Default for Work<'_> {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for Work<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Work")
            .field("threads", &self.threads)
            .field("cancel", &self.cancel)
            .finish_non_exhaustive()
    }
}

/// Result of the work on a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Passed {
    /// Plain bytes, read or written.
    pub plain_bytes: u64,
    /// Way in which the encrypted side ended; always whole when locking.
    pub end: End,
}

/// Encrypts all of `input` into `output`.
///
/// Memory does not depend on the length: some MiB, and 256 MiB for a passphrase while the header is made.
/// Bytes pass in batches of 256 KiB: for a slow source that must be safe at once, use
/// [`Encrypting`](super::Encrypting).
///
/// # Errors
/// As [`Encrypting::new`](super::Encrypting::new); [`Error::Io`] of either side; [`Error::Cancelled`]. The
/// `output` is then a cut off file.
pub fn lock_stream(
    mut input: impl Read,
    mut output: impl Write,
    recipients: &Recipients,
    work: &Work<'_>,
) -> Result<Passed> {
    seal_stream(
        &mut input,
        &mut output,
        recipients,
        work,
        &Stopwatch::start(),
    )
}

/// Works as [`lock_stream`], and measures its steps.
pub(super) fn seal_stream(
    input: &mut impl Read,
    output: &mut impl Write,
    recipients: &Recipients,
    work: &Work<'_>,
    steps: &Stopwatch,
) -> Result<Passed> {
    let (key, head) = steps.time(Step::Wrap, || start(recipients))?;
    output.write_all(&head)?;
    steps.time(Step::Payload, || {
        run(Direction::Seal, &key, input, output, work)
    })
}

/// Decrypts all of `input` into `output`.
///
/// Only authentic bytes are written. With [`Ending::Tolerant`] a cut off file gives all that is whole, and
/// [`Passed::end`] tells.
///
/// # Errors
/// As [`Decrypting`](super::Decrypting); [`Error::Io`] of either side; [`Error::Cancelled`]. With
/// [`Ending::Strict`], [`Error::CutOff`] and [`Error::Damaged`] come after everything before was written.
pub fn unlock_stream(
    input: impl Read,
    mut output: impl Write,
    identities: &Identities,
    ending: Ending,
    work: &Work<'_>,
) -> Result<Passed> {
    open_stream(
        input,
        &mut output,
        identities,
        ending,
        work,
        &Stopwatch::start(),
    )
}

/// Works as [`unlock_stream`], and measures its steps.
pub(super) fn open_stream(
    input: impl Read,
    output: &mut impl Write,
    identities: &Identities,
    ending: Ending,
    work: &Work<'_>,
    steps: &Stopwatch,
) -> Result<Passed> {
    let (key, mut input) = steps.time(Step::Unwrap, || open(input, identities))?;
    let passed = steps.time(Step::Payload, || {
        run(Direction::Open, &key, &mut input, output, work)
    })?;
    match passed.end.error(passed.plain_bytes) {
        Some(error) if ending == Ending::Strict => Err(error),
        _ => Ok(passed),
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Seal,
    Open,
}

/// Consecutive chunks, each in a slot that has room for its tag, processed in place.
struct ChunkBatch {
    bytes: Vec<u8>,
    /// Bytes read into each slot; after the work, bytes to be written from it.
    lens: Vec<usize>,
    first_number: u64,
    at_end: bool,
    end: Option<End>,
}

impl ChunkBatch {
    fn new() -> Self {
        Self {
            bytes: vec![0; SLOTS * SEALED_LEN],
            lens: Vec::with_capacity(SLOTS),
            first_number: 0,
            at_end: false,
            end: None,
        }
    }

    /// Fills the slots; only at the end of the input some stay empty. Returns the bytes read.
    fn read(&mut self, direction: Direction, input: &mut impl Read) -> io::Result<usize> {
        let slot_len = match direction {
            Direction::Seal => CHUNK_LEN,
            Direction::Open => SEALED_LEN,
        };
        self.lens.clear();
        self.end = None;
        self.at_end = false;
        let mut total = 0;
        for slot in self.bytes.chunks_exact_mut(SEALED_LEN) {
            let mut filled = 0;
            fill(input, &mut slot[..slot_len], &mut filled)?;
            total += filled;
            if filled > 0 {
                self.lens.push(filled);
            }
            if filled < slot_len {
                break;
            }
        }
        Ok(total)
    }

    fn work(&mut self, direction: Direction, key: &PayloadKey) {
        if self.at_end && self.lens.is_empty() {
            // Empty input: sealed it is one empty chunk, opened it is a cut off file.
            self.lens.push(0);
        }
        let count = self.lens.len();
        let slots = self.bytes.chunks_exact_mut(SEALED_LEN);
        for (index, (slot, len)) in slots.zip(&mut self.lens).enumerate() {
            let number = self.first_number + index as u64;
            let last = self.at_end && index + 1 == count;
            match direction {
                Direction::Seal => {
                    let place = if last {
                        ChunkPosition::Last
                    } else {
                        ChunkPosition::Inner
                    };
                    let (text, rest) = slot.split_at_mut(*len);
                    let tag = key.seal(number, place, text);
                    rest[..tag.len()].copy_from_slice(&tag);
                    *len += tag.len();
                    if last {
                        self.end = Some(End::Whole);
                    }
                }
                Direction::Open => {
                    let opened = if last {
                        key.open_at_end(number, &mut slot[..*len])
                    } else {
                        key.open_inner(number, &mut slot[..*len])
                    };
                    let (plain, end) = judge(opened);
                    *len = plain;
                    self.end = end;
                    if end.is_some() {
                        self.lens.truncate(index + 1);
                        return;
                    }
                }
            }
        }
    }

    fn write(&self, output: &mut impl Write) -> io::Result<u64> {
        let mut total = 0;
        for (slot, &len) in self.bytes.chunks_exact(SEALED_LEN).zip(&self.lens) {
            output.write_all(&slot[..len])?;
            total += len as u64;
        }
        Ok(total)
    }
}

impl Drop for ChunkBatch {
    fn drop(&mut self) {
        self.bytes.zeroize();
    }
}

/// Channels to and from a thread that works on batches.
struct Lane {
    give: SyncSender<ChunkBatch>,
    take: Receiver<ChunkBatch>,
}

fn run(
    direction: Direction,
    key: &PayloadKey,
    input: &mut impl Read,
    output: &mut impl Write,
    work: &Work<'_>,
) -> Result<Passed> {
    thread::scope(|scope| {
        let mut lanes = Vec::new();
        for _ in 0..work.threads.min(Work::MAX_THREADS) {
            let (give, jobs) = sync_channel::<ChunkBatch>(LANE_DEPTH);
            let (results, take) = sync_channel(LANE_DEPTH);
            let spawned = thread::Builder::new()
                .name("lsl-at-rest".into())
                .spawn_scoped(scope, move || {
                    for mut batch in jobs {
                        batch.work(direction, key);
                        if results.send(batch).is_err() {
                            return;
                        }
                    }
                });
            // Without a further thread those that exist do the work.
            if spawned.is_ok() {
                lanes.push(Lane { give, take });
            }
        }
        Flow {
            direction,
            key,
            lanes,
            next_give: 0,
            next_take: 0,
            in_flight: 0,
            spare: VecDeque::new(),
            end: None,
            plain_bytes: 0,
        }
        .run(input, output, work)
    })
}

/// State of the calling thread for one stream.
struct Flow<'a> {
    direction: Direction,
    key: &'a PayloadKey,
    lanes: Vec<Lane>,
    next_give: usize,
    next_take: usize,
    in_flight: usize,
    spare: VecDeque<ChunkBatch>,
    end: Option<End>,
    plain_bytes: u64,
}

impl Flow<'_> {
    fn run(
        mut self,
        input: &mut impl Read,
        output: &mut impl Write,
        work: &Work<'_>,
    ) -> Result<Passed> {
        let mut read_bytes = 0;
        let mut number = 0;
        // The last chunk is processed in another way, so a batch waits until the next one has begun.
        let mut held: Option<ChunkBatch> = None;
        loop {
            work.check()?;
            let mut batch = self.spare.pop_front().unwrap_or_else(ChunkBatch::new);
            batch.first_number = number;
            self.take_ready(output)?;
            let read = batch.read(self.direction, input).map_err(Error::from_io)?;
            number += batch.lens.len() as u64;
            read_bytes += read as u64;
            if let Some(progress) = work.progress {
                progress(read_bytes);
            }
            if read == 0 {
                let mut last = held.take().unwrap_or(batch);
                last.at_end = true;
                self.give(last, output)?;
                break;
            }
            if let Some(before) = held.replace(batch) {
                self.give(before, output)?;
            }
            if self.end.is_some() {
                break;
            }
        }
        while self.in_flight > 0 {
            work.check()?;
            self.take(output)?;
        }
        output.flush()?;
        Ok(Passed {
            plain_bytes: self.plain_bytes,
            end: self.end.unwrap_or(End::CutOff),
        })
    }

    /// Passes a batch to the next thread; takes one back before if all are busy.
    fn give(&mut self, mut batch: ChunkBatch, output: &mut impl Write) -> Result<()> {
        if self.lanes.is_empty() {
            batch.work(self.direction, self.key);
            return self.put(batch, output);
        }
        if self.in_flight == self.lanes.len() * LANE_DEPTH {
            self.take(output)?;
        }
        let lane = &self.lanes[self.next_give];
        lane.give.send(batch).map_err(|_| gone())?;
        self.next_give = (self.next_give + 1) % self.lanes.len();
        self.in_flight += 1;
        Ok(())
    }

    fn take(&mut self, output: &mut impl Write) -> Result<()> {
        let batch = self.lanes[self.next_take].take.recv().map_err(|_| gone())?;
        self.next_take = (self.next_take + 1) % self.lanes.len();
        self.in_flight -= 1;
        self.put(batch, output)
    }

    /// Writes finished batches, so that they do not wait for a slow source.
    fn take_ready(&mut self, output: &mut impl Write) -> Result<()> {
        while self.in_flight > 0 {
            let Ok(batch) = self.lanes[self.next_take].take.try_recv() else {
                break;
            };
            self.next_take = (self.next_take + 1) % self.lanes.len();
            self.in_flight -= 1;
            self.put(batch, output)?;
        }
        Ok(())
    }

    fn put(&mut self, batch: ChunkBatch, output: &mut impl Write) -> Result<()> {
        // Nothing behind the chunk that ended the file is trusted.
        if self.end.is_none() {
            let written = batch.write(output)?;
            self.plain_bytes += match self.direction {
                Direction::Open => written,
                Direction::Seal => written - (batch.lens.len() * TAG) as u64,
            };
            self.end = batch.end;
        }
        self.spare.push_back(batch);
        Ok(())
    }
}

/// Returns the error for a thread that ended early: it panicked, and `scope` will say so.
fn gone() -> Error {
    Error::Io(io::Error::other("a thread that encrypts ended"))
}

const TAG: usize = SEALED_LEN - CHUNK_LEN;

/// Chunks that are passed as one batch.
const SLOTS: usize = 4;

/// Most batches of a thread: one in work, one waiting.
const LANE_DEPTH: usize = 2;
