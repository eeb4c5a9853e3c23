//! Documents that C destroyed and may still use: those of destroyed infos, and removed nodes.
//!
//! Wrappers in C++, C#, Java and Python destroy an info before they use its nodes, as in
//! `inlet.info().desc().child("channels")`. On liblsl that memory is freed and mostly still intact;
//! here it is kept, by age and amount.

use std::collections::VecDeque;
use std::ptr;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lsl_core::local_clock;

use crate::handle::{self, Handle};
use crate::streaminfo::InfoObject;

/// Keeps a document that C has destroyed, and drops documents beyond the limits. `handle` ends with it.
/// Does nothing if it is kept already.
pub(crate) fn keep(object: &Arc<InfoObject>, handle: Option<Handle>) {
    let dropped = {
        // Held while the size is entered, so that no edit between goes uncounted.
        let state = object.lock();
        let (object, size) = (Arc::clone(object), state.size());
        if handle.is_some() && state.is_unread() && size <= SMALL {
            lock().push_unread(object, handle)
        } else {
            lock().push(object, handle, size, local_clock())
        }
    };
    // Without the locks, since dropping may take a while.
    drop(dropped);
}

/// Updates the size of a kept document, and ignores any other. Returns the entries beyond the limits, which
/// the caller drops without a lock.
#[must_use]
pub(crate) fn resize(object: &InfoObject, size: impl FnOnce() -> usize) -> Vec<KeptDocument> {
    if !object.kept.is_in() {
        return Vec::new();
    }
    lock().resize(object, size(), local_clock())
}

/// Drops the oldest document, even one of the newest, for want of handles. Returns false if none is kept.
pub(crate) fn drop_oldest() -> bool {
    let oldest = {
        let mut kept = lock();
        kept.unread.pop_front().or_else(|| kept.pop())
    };
    oldest.is_some()
}

/// Records a call on a handle that has ended: counts it, and logs the first.
pub(crate) fn found_nothing(handle: Handle) {
    if !handle::has_ended(handle) {
        return;
    }
    let before = DROPPED_READS.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |reads| {
        reads.checked_add(1)
    });
    if before == Ok(0) {
        tracing::debug!(
            "a node or text of a stream info was asked for that was destroyed long ago and is dropped: \
             keep the info as long as what was got from it (lslx_dropped_reads counts these calls)"
        );
    }
}

/// Returns the number of calls on dropped documents.
pub(crate) fn dropped_reads() -> i32 {
    DROPPED_READS.load(Ordering::Relaxed)
}

/// Locks the list. A forking thread holds it, because the child could never open a lock of another thread.
pub(crate) fn lock() -> MutexGuard<'static, Kept> {
    KEPT.lock().unwrap_or_else(PoisonError::into_inner)
}

static KEPT: Mutex<Kept> = Mutex::new(Kept {
    entries: VecDeque::new(),
    bytes: 0,
    unread: VecDeque::new(),
});

static DROPPED_READS: AtomicI32 = AtomicI32::new(0);

/// Kept documents, the oldest first. Their lock is the last of all: no other is taken under it.
pub(crate) struct Kept {
    entries: VecDeque<KeptDocument>,
    bytes: usize,
    /// Small infos of which C has no pointer: `push_numeric_struct` of `lsl_cpp.h` makes and destroys one with each
    /// sample. They take nobody's place.
    unread: VecDeque<KeptDocument>,
}

/// A kept document. Its handle ends when this is dropped.
pub(crate) struct KeptDocument {
    object: Arc<InfoObject>,
    /// Handle of the info as a number; 0 for a removed node.
    handle: usize,
    since: f64,
}

/// Bytes that a document is counted with while it is kept; 0 otherwise.
#[derive(Debug, Default)]
pub(crate) struct Share(AtomicUsize);

/// Limits within which documents are kept whatever their age. Beyond them those older than [`AGE_SECS`] go.
const AMPLE: Limits = Limits {
    documents: 4_096,
    bytes: 64 << 20,
};

/// Limits beyond which documents go, however young.
const MOST: Limits = Limits {
    documents: 8_192,
    bytes: 128 << 20,
};

/// Limits of those that C has no pointer into.
const MOST_UNREAD: usize = 64;
const SMALL: usize = 64 << 10;

/// Number of the newest documents, which are kept however large.
const NEWEST: usize = 16;

const AGE_SECS: f64 = 60.0;

/// Number of aged documents dropped at a time, so that no call takes long.
const AT_ONCE: usize = 8;

struct Limits {
    documents: usize,
    bytes: usize,
}

impl Kept {
    /// Adds a document and returns the entries beyond the limits.
    fn push(
        &mut self,
        object: Arc<InfoObject>,
        handle: Option<Handle>,
        bytes: usize,
        now: f64,
    ) -> Vec<KeptDocument> {
        if object.kept.is_in() {
            return Vec::new();
        }
        self.bytes += object.kept.enter(bytes);
        self.entries.push_back(KeptDocument {
            object,
            handle: handle.map_or(0, Handle::addr),
            since: now,
        });
        self.make_room(now)
    }

    /// Adds an info that C has no pointer into and returns the entries beyond the limit.
    fn push_unread(
        &mut self,
        object: Arc<InfoObject>,
        handle: Option<Handle>,
    ) -> Vec<KeptDocument> {
        self.unread.push_back(KeptDocument {
            object,
            handle: handle.map_or(0, Handle::addr),
            since: 0.0,
        });
        let is_full = self.unread.len() > MOST_UNREAD;
        let oldest = is_full.then(|| self.unread.pop_front()).flatten();
        oldest.into_iter().collect()
    }

    /// Removes and returns the entries beyond the limits.
    fn make_room(&mut self, now: f64) -> Vec<KeptDocument> {
        let mut dropped = Vec::new();
        while let Some(entry) = self.next_to_go(now, dropped.len()) {
            dropped.push(entry);
        }
        dropped
    }

    fn next_to_go(&mut self, now: f64, gone: usize) -> Option<KeptDocument> {
        let is_above =
            |limits: &Limits| self.entries.len() > limits.documents || self.bytes > limits.bytes;
        let oldest = self.entries.front()?;
        let is_aged = now - oldest.since > AGE_SECS && gone < AT_ONCE;
        if self.entries.len() <= NEWEST || !(is_above(&MOST) || is_aged && is_above(&AMPLE)) {
            return None;
        }
        self.pop()
    }

    fn pop(&mut self) -> Option<KeptDocument> {
        let entry = self.entries.pop_front()?;
        self.bytes -= entry.object.kept.leave();
        Some(entry)
    }

    /// Updates the size of a document and returns the entries beyond the limits.
    fn resize(&mut self, object: &InfoObject, bytes: usize, now: f64) -> Vec<KeptDocument> {
        // It may have been dropped meanwhile.
        if !object.kept.is_in() {
            return Vec::new();
        }
        let before = object.kept.leave();
        self.bytes -= before;
        self.bytes += object.kept.enter(bytes);
        if bytes <= before || self.bytes <= AMPLE.bytes {
            return Vec::new();
        }
        // A growing document is in use: its call may return a pointer into it. It becomes the newest, which
        // stays.
        let is_it = |entry: &KeptDocument| ptr::eq(Arc::as_ptr(&entry.object), object);
        let place = self.entries.iter().rposition(is_it);
        if let Some(mut entry) = place.and_then(|place| self.entries.remove(place)) {
            entry.since = now;
            self.entries.push_back(entry);
        }
        self.make_room(now)
    }
}

/// Drops a destroyed info, as age and amount would. For tests, which share the list.
#[cfg(test)]
pub(crate) fn forget(handle: Handle) {
    let mut kept = lock();
    let place = kept
        .entries
        .iter()
        .position(|entry| entry.handle == handle.addr());
    let entry = place.and_then(|place| kept.entries.remove(place));
    kept.bytes -= entry.as_ref().map_or(0, |entry| entry.object.kept.leave());
    drop(kept);
    assert!(entry.is_some(), "it is not kept");
}

/// Changes only under the lock of the list.
impl Share {
    fn is_in(&self) -> bool {
        self.0.load(Ordering::Relaxed) != 0
    }

    fn enter(&self, bytes: usize) -> usize {
        let bytes = bytes.max(1);
        self.0.store(bytes, Ordering::Relaxed);
        bytes
    }

    fn leave(&self) -> usize {
        self.0.swap(0, Ordering::Relaxed)
    }
}

impl Drop for KeptDocument {
    fn drop(&mut self) {
        handle::remove(ptr::without_provenance_mut(self.handle));
    }
}

#[cfg(test)]
mod tests;
