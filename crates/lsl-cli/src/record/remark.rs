//! Remarks for people while a table is redrawn in place: they wait until it makes room, so that the two
//! do not mix. Without a table they are written at once.

use std::fmt::Display;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::note::note;

struct Remarks {
    is_held: bool,
    waiting: Vec<String>,
}

/// There is one terminal.
static REMARKS: Mutex<Remarks> = Mutex::new(Remarks {
    is_held: false,
    waiting: Vec::new(),
});

fn lock() -> MutexGuard<'static, Remarks> {
    REMARKS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Says something about the recording.
pub(super) fn say(text: impl Display) {
    let mut remarks = lock();
    if remarks.is_held && remarks.waiting.len() < MOST {
        remarks.waiting.push(text.to_string());
    } else {
        drop(remarks);
        note(text);
    }
}

/// From now on remarks wait for [`release`].
pub(super) fn hold() {
    lock().is_held = true;
}

/// Whether one waits.
pub(super) fn is_waiting() -> bool {
    !lock().waiting.is_empty()
}

/// Writes what waits.
pub(super) fn release() {
    let waiting = std::mem::take(&mut lock().waiting);
    waiting.iter().for_each(note);
}

/// Writes what waits, and everything from now on at once.
pub(super) fn release_all() {
    lock().is_held = false;
    release();
}

/// A table that is not redrawn must not swallow them.
const MOST: usize = 1000;
