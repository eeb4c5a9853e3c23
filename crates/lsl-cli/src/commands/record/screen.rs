//! Writes lines and pictures of a recording on a thread of its own, since a stuck reader blocks the
//! writer, and must not block a recording. Pieces not taken in time are left out. A failed output
//! is reported once, and then nothing is shown.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender, TrySendError};
use std::thread;
use std::time::Duration;

use lsl_core::local_clock;

use super::messages::{self, say};

/// Piece of output for the writing thread.
#[derive(Debug)]
pub(super) enum Piece {
    /// A line of its own, with its end.
    Line(String),
    /// Takes the place of the picture before it, below the remarks that wait.
    Picture(String),
    /// The last picture, which stays.
    Last(String),
}

/// The other end of the thread that shows.
#[derive(Debug)]
pub(super) struct Screen {
    pieces: Option<SyncSender<Piece>>,
    /// Closes when the thread has ended.
    over: Option<Receiver<()>>,
    has_failed: Arc<AtomicBool>,
}

impl Screen {
    /// Starts the thread that writes pieces to `out`.
    pub(super) fn start(out: impl Write + Send + 'static) -> Self {
        let (pieces, handed) = mpsc::sync_channel(MOST);
        let (ending, over) = mpsc::channel();
        let has_failed = Arc::new(AtomicBool::new(false));
        let failed = Arc::clone(&has_failed);
        let thread = thread::Builder::new()
            .name("lsl-display".into())
            .spawn(move || {
                write_all(out, &handed, &failed);
                drop(ending);
            });
        if let Err(error) = thread {
            give_up(&error);
            has_failed.store(true, Ordering::Relaxed);
        }
        Self {
            pieces: Some(pieces),
            over: Some(over),
            has_failed,
        }
    }

    /// Queues a piece, unless the earlier ones were not taken.
    pub(super) fn show(&self, piece: Piece) {
        if let Some(pieces) = &self.pieces {
            // A dropped piece comes again in a moment, with newer numbers.
            let _ = pieces.try_send(piece);
        }
    }

    /// Whether it makes sense to show more.
    pub(super) fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Relaxed)
    }

    /// Shows the last, and waits until it is there; not for ever.
    pub(super) fn end(&mut self, last: Piece) {
        let limit = local_clock() + PATIENCE_SECS;
        let Some(pieces) = self.pieces.take() else {
            return;
        };
        let mut piece = last;
        loop {
            match pieces.try_send(piece) {
                Ok(()) | Err(TrySendError::Disconnected(_)) => break,
                Err(TrySendError::Full(_)) if local_clock() >= limit => break,
                Err(TrySendError::Full(back)) => piece = back,
            }
            thread::sleep(NAP);
        }
        drop(pieces);
        if let Some(over) = self.over.take() {
            let left = (limit - local_clock()).max(0.0);
            let ended = over.recv_timeout(Duration::from_secs_f64(left));
            if ended == Err(RecvTimeoutError::Timeout) {
                // It does not get to the remarks that wait for it.
                messages::let_go();
            }
        }
    }
}

fn write_all(mut out: impl Write, pieces: &Receiver<Piece>, failed: &AtomicBool) {
    // Lines on the terminal that the next picture replaces.
    let mut drawn = 0;
    for piece in pieces {
        match write(&mut out, &piece, &mut drawn) {
            Ok(()) => {}
            Err(error) => {
                failed.store(true, Ordering::Relaxed);
                give_up(&error);
                return;
            }
        }
    }
}

fn give_up(error: &io::Error) {
    messages::let_go();
    // The reader of the lines has gone on purpose: no message is needed.
    if error.kind() != io::ErrorKind::BrokenPipe {
        say(format_args!(
            "lsl record: nothing can be shown any more: {error}. The recording goes on."
        ));
    }
}

fn write(out: &mut impl Write, piece: &Piece, drawn: &mut usize) -> io::Result<()> {
    match piece {
        Piece::Line(line) => out.write_all(line.as_bytes())?,
        Piece::Picture(picture) => {
            erase(out, drawn)?;
            if messages::is_waiting() {
                out.flush()?;
                messages::release();
            }
            // Lines that wrap on a narrow terminal could not be counted.
            write!(out, "\x1b[?7l{picture}\x1b[?7h")?;
            *drawn = picture.lines().count();
        }
        Piece::Last(picture) => {
            erase(out, drawn)?;
            out.flush()?;
            messages::release_all();
            out.write_all(picture.as_bytes())?;
        }
    }
    out.flush()
}

fn erase(out: &mut impl Write, drawn: &mut usize) -> io::Result<()> {
    match std::mem::take(drawn) {
        0 => Ok(()),
        // Up that many lines, to their start, and clear from there to the end of the screen.
        lines => write!(out, "\x1b[{lines}F\x1b[J"),
    }
}

/// Older ones say nothing new.
const MOST: usize = 4;
/// Longest wait for a slow reader at the end of a recording.
const PATIENCE_SECS: f64 = 2.0;
const NAP: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// Takes nothing until it is let go.
    struct Stuck(Receiver<()>);

    impl Write for Stuck {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let _ = self.0.recv();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[derive(Clone, Default)]
    struct Shared(Arc<Mutex<Vec<u8>>>);

    impl Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn line(number: u32) -> Piece {
        Piece::Line(format!("{number}\n"))
    }

    #[test]
    fn nobody_waits_for_a_reader_that_takes_nothing() {
        let (held, stuck) = mpsc::channel();
        let mut screen = Screen::start(Stuck(stuck));
        (0..1000).for_each(|number| screen.show(line(number)));
        screen.end(line(1000));
        drop(held);
    }

    #[test]
    fn the_last_line_is_there_at_the_end() {
        let out = Shared::default();
        let mut screen = Screen::start(out.clone());
        screen.show(line(1));
        screen.end(line(2));
        assert_eq!(*out.0.lock().unwrap(), b"1\n2\n");
    }

    #[test]
    fn an_output_that_fails_is_left_alone() {
        let mut none = [0_u8; 0];
        // A slice of no length takes nothing: `WriteZero`.
        let pieces = {
            let (sender, receiver) = mpsc::sync_channel(MOST);
            (0..3).for_each(|number| sender.try_send(line(number)).unwrap());
            receiver
        };
        let failed = AtomicBool::new(false);
        write_all(&mut none[..], &pieces, &failed);
        assert!(failed.load(Ordering::Relaxed));
        assert_eq!(pieces.try_iter().count(), 2);
    }

    #[test]
    fn a_picture_takes_the_place_of_the_one_before() {
        let (mut out, mut drawn) = (Vec::new(), 0);
        let picture = Piece::Picture("a\nb\n".into());
        write(&mut out, &picture, &mut drawn).unwrap();
        write(&mut out, &picture, &mut drawn).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text.matches("\x1b[2F\x1b[J").count(), 1, "{text:?}");
    }
}
