//! Reads the name of this host; and processes that this one starts.

use std::io;
use std::process::{Child, Command};

/// The host's name as raw bytes, exactly what `gethostname` gives. Spec: lsl-protocol §2.1.
#[cfg(unix)]
pub fn hostname() -> Vec<u8> {
    rustix::system::uname().nodename().to_bytes().to_vec()
}

/// The host's name in UTF-8, which is what `gethostname` gives for names of ASCII. Empty if the system
/// does not tell.
#[cfg(windows)]
#[expect(unsafe_code, reason = "std does not tell the name of the host")]
pub fn hostname() -> Vec<u8> {
    use windows_sys::Win32::System::SystemInformation::{
        ComputerNamePhysicalDnsHostname, GetComputerNameExW,
    };

    // A label of the domain name system has 63 characters at most.
    let mut name = [0_u16; 256];
    let mut length = 256_u32;
    // SAFETY: the system writes at most as many units as there is room for, and says how many.
    let done = unsafe {
        GetComputerNameExW(
            ComputerNamePhysicalDnsHostname,
            name.as_mut_ptr(),
            &raw mut length,
        )
    };
    let name = usize::try_from(length)
        .ok()
        .filter(|_| done != 0)
        .and_then(|length| name.get(..length));
    String::from_utf16_lossy(name.unwrap_or_default()).into_bytes()
}

/// Keeps Ctrl-C at the terminal from a process that is yet to be started: it is this program's to handle.
pub fn separate(command: &mut Command) {
    #[cfg(unix)]
    std::os::unix::process::CommandExt::process_group(command, 0);
    #[cfg(windows)]
    std::os::windows::process::CommandExt::creation_flags(
        command,
        windows_sys::Win32::System::Threading::CREATE_NEW_PROCESS_GROUP,
    );
}

/// Asks a [`separate`] process to end, as Ctrl-C does, if it still runs. On Windows by Ctrl-Break, which only
/// programs of this console get: others are killed.
///
/// # Errors
/// Those of the system.
#[cfg_attr(
    windows,
    expect(unsafe_code, reason = "std sends nothing to other processes")
)]
pub fn interrupt(child: &mut Child) -> io::Result<()> {
    // Only a process not yet waited for: the number of others may belong to a new one.
    if child.try_wait()?.is_some() {
        return Ok(());
    }
    #[cfg(unix)]
    if let Some(id) = i32::try_from(child.id())
        .ok()
        .and_then(rustix::process::Pid::from_raw)
    {
        rustix::process::kill_process(id, rustix::process::Signal::INT)?;
    }
    #[cfg(windows)]
    {
        use windows_sys::Win32::System::Console::{CTRL_BREAK_EVENT, GenerateConsoleCtrlEvent};

        // SAFETY: takes numbers; the process is a group of its own.
        if unsafe { GenerateConsoleCtrlEvent(CTRL_BREAK_EVENT, child.id()) } == 0 {
            child.kill()?;
        }
    }
    Ok(())
}

/// Ends a [`separate`] process at once, on Unix with all that it started, and waits for it.
///
/// # Errors
/// Those of the system.
pub fn kill(child: &mut Child) -> io::Result<()> {
    // As above.
    if child.try_wait()?.is_none() {
        #[cfg(unix)]
        if let Some(id) = i32::try_from(child.id())
            .ok()
            .and_then(rustix::process::Pid::from_raw)
        {
            rustix::process::kill_process_group(id, rustix::process::Signal::KILL)?;
        }
        #[cfg(windows)]
        child.kill()?;
        child.wait()?;
    }
    Ok(())
}

/// Runs `command` in place of this process. Returns only if that fails, with the error. On Windows this one
/// waits for it, ignores Ctrl-C, and ends with its status.
pub fn become_program(command: &mut Command) -> io::Error {
    #[cfg(unix)]
    let error = std::os::unix::process::CommandExt::exec(command);
    #[cfg(windows)]
    let error = {
        // Before there is a child, which Ctrl-C would leave alone; it does not inherit this.
        let ended = crate::termination::catch(|_| ()).and_then(|()| command.spawn()?.wait());
        match ended {
            Ok(status) => crate::exit::leave(status.code().unwrap_or(1)),
            Err(error) => error,
        }
    };
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_has_a_name() {
        assert!(!hostname().is_empty());
    }
}
