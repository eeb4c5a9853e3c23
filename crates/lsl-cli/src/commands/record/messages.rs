//! Remarks for people. While a table is redrawn in place they wait until it makes room, so that the
//! two do not mix. Otherwise a thread of its own writes them: a full pipe blocks its writer, which
//! must not be a stream or the writer of a recording.

use std::fmt::Display;
use std::sync::mpsc::{self, Receiver, Sender, SyncSender};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use crate::ui::notice::note;

struct Remarks {
    is_held: bool,
    waiting: Vec<String>,
}

/// One for the process, as it has one terminal.
static REMARKS: Mutex<Remarks> = Mutex::new(Remarks {
    is_held: false,
    waiting: Vec::new(),
});

fn lock() -> MutexGuard<'static, Remarks> {
    REMARKS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Message to the thread that writes.
enum Word {
    Line(String),
    /// Answered once all earlier messages are written.
    Mark(Sender<()>),
}

/// The way to that thread; `None` if there can be none.
fn words() -> Option<&'static SyncSender<Word>> {
    static WORDS: OnceLock<Option<SyncSender<Word>>> = OnceLock::new();
    let start = || {
        let (sender, receiver) = mpsc::sync_channel(MOST);
        thread::Builder::new()
            .name("lsl-remarks".into())
            .spawn(move || write(&receiver))
            .ok()?;
        Some(sender)
    };
    WORDS.get_or_init(start).as_ref()
}

fn write(words: &Receiver<Word>) {
    for word in words {
        match word {
            Word::Line(line) => note(line),
            // Nobody waits any more.
            Word::Mark(written) => drop(written.send(())),
        }
    }
}

/// Says something about the recording; never waits.
pub(super) fn say(text: impl Display) {
    let text = text.to_string();
    let mut remarks = lock();
    if remarks.is_held && remarks.waiting.len() < MOST {
        remarks.waiting.push(text);
        return;
    }
    drop(remarks);
    hand_over(text);
}

fn hand_over(text: String) {
    match words() {
        // The queue is full, so that no reader takes them.
        Some(words) => drop(words.try_send(Word::Line(text))),
        None => note(text),
    }
}

/// Waits until everything has been written, with a limit; false if the limit passed.
pub(super) fn flush() -> bool {
    let Some(words) = words() else {
        return true;
    };
    let (written, mark) = mpsc::channel();
    words.try_send(Word::Mark(written)).is_ok() && mark.recv_timeout(PATIENCE).is_ok()
}

/// Makes remarks wait for [`release`] from now on.
pub(super) fn hold() {
    // Earlier messages stand above the table.
    flush();
    lock().is_held = true;
}

/// Returns true if a remark waits for the display.
pub(super) fn is_waiting() -> bool {
    !lock().waiting.is_empty()
}

/// Writes what waits. For the thread that draws: it may wait for the terminal.
pub(super) fn release() {
    let waiting = std::mem::take(&mut lock().waiting);
    waiting.iter().for_each(note);
}

/// Writes what waits, and everything from now on at once.
pub(super) fn release_all() {
    lock().is_held = false;
    release();
}

/// Releases the remarks without waiting, for tables that are not redrawn any more.
pub(super) fn let_go() {
    let waiting = {
        let mut remarks = lock();
        remarks.is_held = false;
        std::mem::take(&mut remarks.waiting)
    };
    waiting.into_iter().for_each(hand_over);
}

/// A table that is not redrawn must not swallow them.
const MOST: usize = 1000;
const PATIENCE: Duration = Duration::from_secs(2);
