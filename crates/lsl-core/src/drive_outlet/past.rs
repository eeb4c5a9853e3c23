//! Sends what is kept of a stream elsewhere than in its outlet, before a reader joins those of the outlet: the task
//! of its connection has the sender meanwhile. Spec: relay §9.

use std::fmt::Debug;
use std::future::{Future, ready};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use lsl_proto::ByteOrder;
use lsl_proto::outlet::connection::Event;
use lsl_proto::outlet::fanout::{Caller, ConsumerId, Live, Status, Transmit};
use lsl_proto::outlet::frames::Frames;
use lsl_proto::wire::sequence::{Gap, GapReason, ReplayFrom};

use crate::drive_outlet::connection::Connection;
use crate::drive_outlet::link::Sender;
use crate::drive_outlet::push::OutletShared;
use crate::net::select2::{Either, select2};
use crate::{Error, Outlet, Result};

/// Stream that a peer may read, and what is kept of it elsewhere.
#[derive(Debug)]
pub struct Served {
    /// What the stream passes through. That of one that is over is closed, with all that is kept in `past`.
    pub outlet: Arc<Outlet>,
    /// Samples from before those that the outlet retains.
    pub past: Option<Past>,
}

/// Samples of a stream that are kept elsewhere than in its outlet, for one reader.
#[derive(Debug)]
pub struct Past {
    /// Number of the first sample that is kept, in the numbering of the outlet.
    pub oldest: u64,
    /// Number of the first sample that came within the time for which the reader asked, if it asked so.
    pub since: Option<u64>,
    /// Where they are read.
    pub reader: Box<dyn ReadPast>,
}

/// Future of [`ReadPast::read`].
pub type ReadingPast<'a> = Pin<Box<dyn Future<Output = Result<Option<Frames>>> + Send + 'a>>;

/// Reads samples that are kept elsewhere than in an outlet.
pub trait ReadPast: Debug + Send {
    /// Reads the first of those from number `from` on and before `until`, as many as are together, about 64 KiB;
    /// `None` if none is kept. Waits for others who read. Dropped if the reader leaves.
    fn read(&mut self, from: u64, until: u64) -> ReadingPast<'_>;
}

impl From<Arc<Outlet>> for Served {
    fn from(outlet: Arc<Outlet>) -> Self {
        Self { outlet, past: None }
    }
}

impl Past {
    /// Returns the number of the first sample for a reader that asks for this; `None` if nothing of it is needed.
    pub(super) fn first_of(&self, from: &ReplayFrom, live: Live<'_>) -> Option<u64> {
        let first = match *from {
            ReplayFrom::At(position, _) if live.has(&position) => position.next,
            // What another numbering had before is not told by this one's past.
            ReplayFrom::Live | ReplayFrom::At(..) => return None,
            ReplayFrom::LastSamples(samples) => live.edge.saturating_sub(samples),
            ReplayFrom::LastMillis(_) => self.since?,
            ReplayFrom::Oldest => self.oldest,
        };
        Some(first.max(self.oldest))
    }
}

impl OutletShared {
    /// Sends a reader the samples from `next` on that are not retained here, and lets it join those who read what is.
    /// Ends early, with the reader as one that gets nothing more, if that fails.
    pub(super) async fn serve_past(
        &self,
        (id, mut sender, mut next): (ConsumerId, Sender, u64),
        mut past: Past,
        connection: &mut Connection,
    ) -> Result<()> {
        connection.link().writer.set_history(true);
        let sent = self
            .send_past(id, &mut sender, &mut next, &mut past, connection)
            .await;
        connection.link().writer.set_history(false);
        self.fanout.lock().rejoin(id, sender, next);
        // There may be something to send, or the end to be told.
        self.flusher.notify_one();
        sent
    }

    async fn send_past(
        &self,
        id: ConsumerId,
        sender: &mut Sender,
        next: &mut u64,
        past: &mut Past,
        connection: &mut Connection,
    ) -> Result<()> {
        loop {
            let stored = self.fanout.lock().next_stored(*next);
            if stored <= *next {
                return Ok(());
            }
            let frames = {
                let reading = past.reader.read(*next, stored);
                self.attend_past(reading, (id, sender), connection)
                    .await??
            };
            if frames
                .as_ref()
                .is_some_and(|it| it.count == 0 || it.first < *next)
            {
                return Err(Error::Protocol("samples of the past come again".into()));
            }
            let frames = frames.filter(|frames| frames.first < stored);
            let first = frames.as_ref().map_or(stored, |frames| frames.first);
            if first > *next {
                let gap = Gap {
                    reason: GapReason::LostBefore,
                    to: first,
                };
                sender.queue(&gap.to_bytes(ByteOrder::NATIVE));
                *next = first;
            }
            if let Some(frames) = frames {
                sender.queue(&frames.bytes);
                *next = frames.end();
            }
            self.flush_past((id, sender), connection).await?;
        }
    }

    /// Sends what is queued, however long its peer reads on.
    async fn flush_past(
        &self,
        (id, sender): (ConsumerId, &mut Sender),
        connection: &mut Connection,
    ) -> Result<()> {
        let failed = |source| Error::io("connection", source);
        let link = Arc::clone(connection.link());
        while !sender.flush(Caller::Task).map_err(failed)? {
            let writable = tokio::time::timeout(STALL_LIMIT, link.writer.writable());
            let late = |_| Error::Timeout {
                operation: "read the past",
            };
            let writable = self.attend_past(writable, (id, sender), connection).await?;
            writable.map_err(late)?.map_err(failed)?;
        }
        // Peers that are far behind must not delay a clock probe.
        tokio::task::yield_now().await;
        self.attend_past(ready(()), (id, sender), connection).await
    }

    /// Awaits something while the connection is read, and its questions are answered.
    async fn attend_past<R>(
        &self,
        awaited: impl Future<Output = R>,
        (id, sender): (ConsumerId, &mut Sender),
        connection: &mut Connection,
    ) -> Result<R> {
        let mut awaited = pin!(awaited);
        loop {
            match select2(connection.step(), awaited.as_mut()).await {
                Either::Second(result) => return Ok(result),
                Either::First(stepped) => stepped?,
            }
            if self.fanout.lock().status(id) == Status::Ended {
                return Err(Error::Protocol("its feed was ended".into()));
            }
            if connection.machine.is_closed() {
                return Err(Error::Protocol("the peer has left".into()));
            }
            if let Some(Event::Control(control)) = connection.machine.poll_event()
                && let Some(control) = self.in_source_clock(control)
            {
                sender.control(control);
            }
        }
    }
}

/// How long a reader of the past may take nothing.
const STALL_LIMIT: Duration = Duration::from_mins(1);
