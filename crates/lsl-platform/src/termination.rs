//! Requests of the user or the system that a program ends: Ctrl-C and its like.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::readiness::wait_readable;
use crate::signal::Signal;

/// Request that this program ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request {
    /// It may take the time that it needs.
    End,
    /// The system ends it within seconds, whatever it does: its window was closed. Only on Windows.
    EndNow,
}

/// Calls `on_request` from now on, in place of ending the process at once, for SIGINT, SIGTERM and SIGHUP.
/// It runs on a thread of its own, never in a signal handler. SIGHUP stays ignored in a program that
/// `nohup` started.
///
/// # Errors
/// Those of the system; [`io::ErrorKind::AlreadyExists`] the second time.
pub fn catch(mut on_request: impl FnMut(Request) + Send + 'static) -> io::Result<()> {
    let ours = Signal::new()?;
    if CAUGHT.set(ours).is_err() {
        return Err(io::ErrorKind::AlreadyExists.into());
    }
    let run = move || {
        while let Some(caught) = CAUGHT.get()
            && wait_readable(descriptor(caught), f64::INFINITY).is_ok()
        {
            caught.clear();
            on_request(Request::End);
        }
    };
    let thread = std::thread::Builder::new().name("ctrl-c".into());
    thread.spawn(run)?;
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        handle(signal, signal == libc::SIGHUP)?;
    }
    Ok(())
}

/// Makes SIGHUP a wish for new settings from now on, in place of one to end: see [`take_hangup`]. Windows knows no
/// such signal.
///
/// # Errors
/// Those of the system.
pub fn catch_hangup() -> io::Result<()> {
    IS_HANGUP_A_WISH.store(true, Ordering::Relaxed);
    handle(libc::SIGHUP, false)
}

/// Returns whether SIGHUP came since the last call. Never blocks.
pub fn take_hangup() -> bool {
    HAS_HUNG_UP.swap(false, Ordering::Relaxed)
}

static IS_HANGUP_A_WISH: AtomicBool = AtomicBool::new(false);

static HAS_HUNG_UP: AtomicBool = AtomicBool::new(false);

/// Raised by the signal handler. Kept for ever, as the handler is.
static CAUGHT: OnceLock<Signal> = OnceLock::new();

/// Runs on any thread, between any two instructions: reads what was set before, and writes to a descriptor.
extern "C" fn on_signal(signal: libc::c_int) {
    if signal == libc::SIGHUP && IS_HANGUP_A_WISH.load(Ordering::Relaxed) {
        HAS_HUNG_UP.store(true, Ordering::Relaxed);
    } else if let Some(caught) = CAUGHT.get() {
        caught.raise();
    }
}

#[expect(unsafe_code, reason = "signals have numbers of descriptors")]
fn descriptor(signal: &'static Signal) -> BorrowedFd<'static> {
    // SAFETY: it is open for as long as the signal lives, which is for ever.
    unsafe { BorrowedFd::borrow_raw(signal.descriptor()) }
}

#[expect(
    unsafe_code,
    reason = "std and rustix know nothing of signals' dispositions"
)]
fn handle(signal: libc::c_int, may_stay_ignored: bool) -> io::Result<()> {
    // SAFETY: it is a structure of numbers and null pointers.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: only asks, and writes into that structure.
    let asked = unsafe { libc::sigaction(signal, std::ptr::null(), &raw mut action) };
    if asked == 0 && may_stay_ignored && action.sa_sigaction == libc::SIG_IGN {
        return Ok(());
    }
    action.sa_sigaction = on_signal as extern "C" fn(libc::c_int) as usize;
    action.sa_flags = libc::SA_RESTART;
    // SAFETY: writes into the structure.
    unsafe { libc::sigemptyset(&raw mut action.sa_mask) };
    // SAFETY: the handler does nothing that is not allowed in one: it takes no lock, allocates nothing and
    // makes one system call.
    match unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use rustix::process::{Signal as Number, getpid, kill_process};

    use super::*;

    #[test]
    fn an_interrupt_is_a_request_and_so_is_a_termination() {
        let (sender, requests) = channel();
        catch(move |request| sender.send(request).unwrap()).unwrap();
        let again = catch(|_| ()).unwrap_err();
        assert_eq!(again.kind(), io::ErrorKind::AlreadyExists);
        for signal in [Number::INT, Number::TERM] {
            kill_process(getpid(), signal).unwrap();
            assert_eq!(requests.recv().unwrap(), Request::End);
        }
        catch_hangup().unwrap();
        assert!(!take_hangup());
        kill_process(getpid(), Number::HUP).unwrap();
        while !take_hangup() {
            std::thread::yield_now();
        }
        assert!(requests.try_recv().is_err() && !take_hangup());
    }
}
