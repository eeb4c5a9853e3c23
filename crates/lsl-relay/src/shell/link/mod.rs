//! One link that is up: its multiplexer, shared by the driver and the tasks of its substreams. Spec: relay §4.2.
//!
//! The lock of a link is held for calls of its machine alone. It may be taken under that of the state, never the
//! other way round.

mod directory;
mod drive;
mod feed;
mod substream;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use lsl_core::local_clock;
use lsl_core::relay::{OpenSubstream, Substream};
use tokio::sync::Notify;

use crate::mux::{Code, Event, Gathered, Limits, Mux, OpenError, Read, Side};

pub(super) use directory::{DirectoryNews, read_directory, read_document, read_past};
pub(super) use drive::{LinkNews, drive};
pub(super) use feed::PastFeed;

use substream::LinkSubstream;

/// One end of a link, from its hello to its end. Clones are the same one.
#[derive(Clone)]
pub(super) struct Link(Arc<LinkShared>);

struct LinkShared {
    state: Mutex<LinkState>,
    /// Told when the driver has something to send.
    work: Notify,
    /// Bytes that came, and that were sent.
    carried: [AtomicU64; 2],
}

struct LinkState {
    mux: Mux,
    /// Substreams that tasks of this side know.
    ends: HashMap<u32, SubstreamEnd>,
}

/// Handle's side of a substream.
#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each says what one side did")]
struct SubstreamEnd {
    reader: Option<Waker>,
    writer: Option<Waker>,
    /// Whether a write was cut short, and the multiplexer has not said that there is room again.
    is_full: bool,
    is_finished: bool,
    /// Whether nobody reads it any more; bytes that come are dropped.
    is_left: bool,
    /// Whether there is no handle any more.
    is_dropped: bool,
    failure: Option<io::ErrorKind>,
}

impl Link {
    pub(super) fn new(side: Side, own: Limits, peer: Limits) -> Self {
        Self(Arc::new(LinkShared {
            state: Mutex::new(LinkState {
                mux: Mux::new(side, own, peer, local_clock()),
                ends: HashMap::new(),
            }),
            work: Notify::new(),
            carried: Default::default(),
        }))
    }

    /// Returns the handle of a substream that the peer opened with this request; to be called once for each.
    pub(super) fn opened(&self, id: u32, request: &[u8]) -> Arc<dyn Substream> {
        let is_past = feed::is_for_past(request);
        if is_past {
            self.with(|state, _| state.mux.set_history(id, true));
        }
        Arc::new(LinkSubstream::new(self.clone(), id, is_past))
    }

    /// Opens a substream with a complete request for what is past: it gives way to what is live.
    fn open_past(&self, request: &[u8]) -> io::Result<Arc<dyn Substream>> {
        self.open_as(request, true)
    }

    fn open_as(&self, request: &[u8], is_past: bool) -> io::Result<Arc<dyn Substream>> {
        let id = self.with(|state, _| {
            let id = state.mux.open(request, is_past)?;
            state.ends.insert(id, SubstreamEnd::default());
            Ok(id)
        });
        let id = id.map_err(|error: OpenError| io::Error::other(error))?;
        Ok(Arc::new(LinkSubstream::new(self.clone(), id, is_past)))
    }

    /// Sends BYE, and nothing else any more. Substreams fail.
    pub(super) fn close(&self, code: Code, text: &str) {
        self.with(|state, _| state.mux.close(code, text));
    }

    /// Sets the time between PINGs in seconds.
    pub(super) fn set_ping_secs(&self, secs: f64) {
        self.with(|state, now| state.mux.set_ping_secs(secs, now));
        // The next one may be due earlier than the driver thinks.
        self.0.work.notify_one();
    }

    /// Returns the bytes that came, that were sent, and that wait to be sent.
    pub(super) fn bytes(&self) -> [u64; 3] {
        let [came, sent] = &self.0.carried;
        let unsent = self.lock().mux.unsent_bytes() as u64;
        [
            came.load(Ordering::Relaxed),
            sent.load(Ordering::Relaxed),
            unsent,
        ]
    }

    /// Counts bytes that came, and that were sent.
    fn count(&self, carried: [usize; 2]) {
        for (total, bytes) in self.0.carried.iter().zip(carried) {
            total.fetch_add(bytes as u64, Ordering::Relaxed);
        }
    }

    /// Returns the number of open substreams.
    pub(super) fn substreams(&self) -> usize {
        self.lock().mux.substreams()
    }

    /// Calls the multiplexer, and has the driver send what is due then.
    fn with<R>(&self, act: impl FnOnce(&mut LinkState, f64) -> R) -> R {
        let mut state = self.lock();
        let done = act(&mut state, local_clock());
        let is_due = state.mux.is_due();
        drop(state);
        if is_due {
            self.0.work.notify_one();
        }
        done
    }

    /// Hands the multiplexer what came, or lets it do what is due; adds what the driver must know to `news`.
    fn step<R>(&self, step: impl FnOnce(&mut Mux, f64) -> R, news: &mut Vec<LinkNews>) -> R {
        let mut state = self.lock();
        let done = step(&mut state.mux, local_clock());
        let wakers = state.follow(news);
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
        done
    }

    /// Gathers what is due into `to`; false if nothing is. Returns also the time of the next timeout.
    fn gather(&self, to: &mut Gathered, news: &mut Vec<LinkNews>) -> (bool, Option<f64>) {
        let mut state = self.lock();
        let is_due = state.mux.poll_transmit(local_clock(), to);
        let timeout = state.mux.poll_timeout();
        let wakers = state.follow(news);
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
        (is_due, timeout)
    }

    fn lock(&self) -> MutexGuard<'_, LinkState> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OpenSubstream for Link {
    fn open(&self, request: Vec<u8>) -> io::Result<Arc<dyn Substream>> {
        self.open_as(&request, false)
    }
}

impl LinkState {
    /// Handles the events of the multiplexer. Returns whom to wake once the lock is free.
    fn follow(&mut self, news: &mut Vec<LinkNews>) -> Vec<Waker> {
        let mut wakers = Vec::new();
        while let Some(event) = self.mux.poll_event() {
            match event {
                Event::Opened { id, request } => {
                    self.ends.insert(id, SubstreamEnd::default());
                    news.push(LinkNews::Opened { id, request });
                }
                Event::Readable(id) => {
                    let end = self.ends.get_mut(&id);
                    wakers.extend(end.and_then(|end| end.reader.take()));
                    self.drop_unread(id);
                }
                Event::Writable(id) => {
                    if let Some(end) = self.ends.get_mut(&id) {
                        end.is_full = false;
                        wakers.extend(end.writer.take());
                    }
                }
                Event::Reset { id, code, .. } => {
                    let kind = match code {
                        Code::TOO_SLOW => io::ErrorKind::TimedOut,
                        _ => io::ErrorKind::ConnectionReset,
                    };
                    wakers.extend(self.fail(id, kind));
                }
                Event::Pong(times) => news.push(LinkNews::Pong(times)),
                Event::Closed { code, text, by } => {
                    for id in self.ends.keys().copied().collect::<Vec<_>>() {
                        wakers.extend(self.fail(id, io::ErrorKind::ConnectionAborted));
                    }
                    news.push(LinkNews::Closed { code, text, by });
                }
            }
        }
        wakers
    }

    /// Ends a substream with an error. Returns the tasks that wait for it.
    fn fail(&mut self, id: u32, kind: io::ErrorKind) -> impl Iterator<Item = Waker> + use<> {
        let end = self.ends.get_mut(&id);
        let (reader, writer, is_dropped) = end.map_or((None, None, false), |end| {
            end.failure = Some(kind);
            (end.reader.take(), end.writer.take(), end.is_dropped)
        });
        if is_dropped {
            self.ends.remove(&id);
        }
        reader.into_iter().chain(writer)
    }

    /// Drops what came on a substream that nobody reads any more, and forgets one without a handle at its end.
    fn drop_unread(&mut self, id: u32) {
        let Some(end) = self.ends.get(&id).filter(|end| end.is_left) else {
            return;
        };
        let is_dropped = end.is_dropped;
        let mut dropped = [0; 4096];
        let last = loop {
            match self.mux.read(id, &mut dropped) {
                Read::Bytes(_) => {}
                last => break last,
            }
        };
        if last == Read::End && is_dropped {
            self.ends.remove(&id);
        }
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").finish_non_exhaustive()
    }
}
