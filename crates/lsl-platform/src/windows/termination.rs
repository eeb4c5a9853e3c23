//! Requests of the user or the system that a program ends; see the Unix version.

use std::io;
use std::sync::{Mutex, PoisonError};

use windows_sys::Win32::System::Console::{CTRL_BREAK_EVENT, CTRL_C_EVENT, SetConsoleCtrlHandler};

use crate::disk::checked;

/// Request that this program ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request {
    /// It may take the time that it needs.
    End,
    /// The system ends it within seconds, whatever it does: its window was closed, or the user logs off.
    EndNow,
}

/// Calls `on_request` from now on, in place of ending the process at once, for Ctrl-C, Ctrl-Break, a closed
/// window, and the ends of a session and of the system. It runs on a thread of the system's.
///
/// # Errors
/// Those of the system; [`io::ErrorKind::AlreadyExists`] the second time.
#[expect(unsafe_code, reason = "std knows nothing of the console's events")]
pub fn catch(on_request: impl FnMut(Request) + Send + 'static) -> io::Result<()> {
    let mut kept = ON_REQUEST.lock().unwrap_or_else(PoisonError::into_inner);
    if kept.is_some() {
        return Err(io::ErrorKind::AlreadyExists.into());
    }
    *kept = Some(Box::new(on_request));
    // SAFETY: a function of this program, which is never unloaded.
    checked(unsafe { SetConsoleCtrlHandler(Some(on_event), 1) })
}

/// Does nothing here: see the Unix version.
///
/// # Errors
/// None.
pub fn catch_hangup() -> io::Result<()> {
    Ok(())
}

/// Returns false: see the Unix version.
pub fn take_hangup() -> bool {
    false
}

type OnRequest = Box<dyn FnMut(Request) + Send>;

static ON_REQUEST: Mutex<Option<OnRequest>> = Mutex::new(None);

#[expect(unsafe_code, reason = "the signature that the system calls")]
unsafe extern "system" fn on_event(event: u32) -> i32 {
    let may_last = matches!(event, CTRL_C_EVENT | CTRL_BREAK_EVENT);
    tell(if may_last {
        Request::End
    } else {
        Request::EndNow
    });
    if may_last {
        return 1;
    }
    loop {
        // The process ends as soon as this returns, and after some five seconds.
        std::thread::park();
    }
}

fn tell(request: Request) {
    let mut kept = ON_REQUEST.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(on_request) = kept.as_mut() {
        on_request(request);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::thread::spawn;

    use windows_sys::Win32::System::Console::{
        CTRL_CLOSE_EVENT, CTRL_LOGOFF_EVENT, CTRL_SHUTDOWN_EVENT,
    };

    use super::*;

    #[test]
    #[expect(unsafe_code, reason = "calls what the system calls")]
    fn events_of_the_console_are_requests() {
        let (sender, requests) = channel();
        catch(move |request| sender.send(request).unwrap()).unwrap();
        let again = catch(|_| ()).unwrap_err();
        assert_eq!(again.kind(), io::ErrorKind::AlreadyExists);
        for event in [CTRL_C_EVENT, CTRL_BREAK_EVENT] {
            // SAFETY: it takes any number.
            assert_eq!(unsafe { on_event(event) }, 1);
            assert_eq!(requests.recv().unwrap(), Request::End);
        }
        for event in [CTRL_CLOSE_EVENT, CTRL_LOGOFF_EVENT, CTRL_SHUTDOWN_EVENT] {
            // SAFETY: as above.
            let ending = spawn(move || unsafe { on_event(event) });
            assert_eq!(requests.recv().unwrap(), Request::EndNow);
            assert!(!ending.is_finished(), "that would end the process");
        }
    }
}
