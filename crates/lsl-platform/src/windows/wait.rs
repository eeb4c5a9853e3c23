//! Waits of one thread for a socket, which other threads can end; see the Unix version.
//!
//! A socket sets an event once data are there or it was closed. Each wait asks for that anew: it then tells
//! too what is true already, so that a wait that begins late misses nothing, as with `poll`.

use std::cell::Cell;
use std::io;
use std::os::windows::io::{AsRawHandle, AsRawSocket, AsSocket, BorrowedSocket, OwnedHandle};
use std::sync::Arc;

use windows_sys::Win32::Foundation::{WAIT_FAILED, WAIT_OBJECT_0, WAIT_TIMEOUT};
use windows_sys::Win32::Networking::WinSock::{FD_CLOSE, FD_READ, WSAEventSelect};
use windows_sys::Win32::System::Threading::WaitForMultipleObjects;

use crate::clock::local_clock;
pub use crate::readiness::{wait_readable, wait_writable};
use crate::reentry::interruptible;
use crate::signal::{Reset, Signal, event};

/// Flag that one thread can wait for together with a socket, see [`wait_readable_or`]. It stays raised until
/// that thread lowers it, so raising may precede waiting.
#[derive(Debug)]
pub struct Interrupt {
    flag: Signal,
    /// Set by the socket, and reset by the wait that it ends.
    data: OwnedHandle,
}

impl Interrupt {
    /// Returns the flag of the calling thread, created once. It holds two handles for as long as the thread
    /// lives.
    ///
    /// # Errors
    /// No memory is left.
    pub fn of_thread() -> io::Result<Arc<Self>> {
        // The thread-local of an ending thread is gone: then a new flag is made.
        let own = match OWN.try_with(Cell::take).ok().flatten() {
            Some(own) => own,
            None => Arc::new(Self {
                flag: Signal::new()?,
                data: event(Reset::Auto)?,
            }),
        };
        let _ = OWN.try_with(|kept| kept.set(Some(Arc::clone(&own))));
        Ok(own)
    }

    /// Raises the flag, from any thread.
    pub fn raise(&self) {
        self.flag.raise();
    }

    /// Lowers the flag. Only the waiting thread may do so.
    pub fn lower(&self) {
        self.flag.clear();
    }
}

thread_local! {
    static OWN: Cell<Option<Arc<Interrupt>>> = const { Cell::new(None) };
}

/// Reason why a wait for a socket and a flag ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Woken {
    /// Reading from the socket would not block; rarely a read in vain.
    Readable,
    /// Only the flag is raised.
    Interrupted,
    /// The deadline passed before either.
    Late,
}

/// Waits as [`wait_readable`] does, until `socket` is readable or the flag is raised.
///
/// # Errors
/// Those of `WSAEventSelect` and of the wait.
pub fn wait_readable_or(
    socket: impl AsSocket,
    interrupt: &Interrupt,
    deadline: f64,
) -> io::Result<Woken> {
    interruptible(|| {
        select(socket.as_socket(), &interrupt.data)?;
        wait_any(interrupt, deadline)
    })
}

/// Lets a socket set an event, in place of the one that it set before.
#[expect(unsafe_code, reason = "std has no events")]
fn select(socket: BorrowedSocket<'_>, event: &OwnedHandle) -> io::Result<()> {
    let interest = (FD_READ | FD_CLOSE).cast_signed();
    let socket = usize::try_from(socket.as_raw_socket()).map_err(io::Error::other)?;
    // SAFETY: both are open. The system keeps the event for as long as the socket may set it.
    match unsafe { WSAEventSelect(socket, event.as_raw_handle() as isize, interest) } {
        0 => Ok(()),
        // The same as WSAGetLastError.
        _ => Err(io::Error::last_os_error()),
    }
}

#[expect(unsafe_code, reason = "std waits for one thing at a time")]
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a hop is at most an hour, and never negative"
)]
fn wait_any(interrupt: &Interrupt, deadline: f64) -> io::Result<Woken> {
    // Bytes come before a flag.
    let handles = [interrupt.data.as_raw_handle(), interrupt.flag.handle()];
    loop {
        let remaining_secs = (deadline - local_clock()).max(0.0);
        let hop_secs = remaining_secs.min(LONGEST_HOP_SECS);
        let hop_ms = (hop_secs * 1e3).ceil() as u32;
        // SAFETY: two open handles.
        match unsafe { WaitForMultipleObjects(2, handles.as_ptr(), 0, hop_ms) } {
            WAIT_OBJECT_0 => return Ok(Woken::Readable),
            WAIT_TIMEOUT if remaining_secs <= hop_secs => return Ok(Woken::Late),
            WAIT_TIMEOUT => {}
            WAIT_FAILED => return Err(io::Error::last_os_error()),
            _ => return Ok(Woken::Interrupted),
        }
    }
}

const LONGEST_HOP_SECS: f64 = 3600.0;

#[cfg(test)]
#[path = "../wait/tests.rs"]
mod tests;
