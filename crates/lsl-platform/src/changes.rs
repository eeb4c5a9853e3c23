//! Word from the system that something about its interfaces or addresses changed, or that it woke up. What changed is
//! not read from it: whoever hears of it looks at the list of interfaces.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, bind, recv, socket_with};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

/// Descriptor that becomes readable when the system has something to tell.
#[derive(Debug)]
pub struct Notices {
    descriptor: OwnedFd,
    is_socket: bool,
}

impl Notices {
    /// Tells of interfaces and addresses that come, change and go.
    ///
    /// # Errors
    /// What `socket(2)` and `bind(2)` report, for example on Android, where programs may not.
    pub fn of_network() -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        // No protocol is number 0, `NETLINK_ROUTE`.
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
        bind(&socket, &SocketAddrNetlink::new(0, GROUPS))?;
        Ok(Self {
            descriptor: socket,
            is_socket: true,
        })
    }

    /// Tells that the wall clock was set, as it is when the machine wakes up: the only notice of that which costs
    /// nothing until then.
    ///
    /// # Errors
    /// What `timerfd_create(2)` and `timerfd_settime(2)` report.
    pub fn of_waking() -> io::Result<Self> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let notices = Self {
            descriptor: timerfd_create(TimerfdClockId::Realtime, flags)?,
            is_socket: false,
        };
        notices.arm()?;
        Ok(notices)
    }

    /// Takes all that was told, so that the descriptor is readable again only after more.
    ///
    /// # Errors
    /// What `recv(2)` or `timerfd_settime(2)` report; the descriptor tells nothing more then.
    pub fn take(&self) -> io::Result<()> {
        if !self.is_socket {
            // A clock that was set is told until somebody reads it or arms the timer anew, which says so once more.
            return match self.arm() {
                Err(Errno::CANCELED) => Ok(()),
                armed => Ok(armed?),
            };
        }
        let mut buffer = [0; 4096];
        loop {
            match recv(&self.descriptor, &mut buffer[..], RecvFlags::DONTWAIT) {
                // What did not fit, into the buffer or the queue, is a notice like any other.
                Ok(_) | Err(Errno::NOBUFS | Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Sets a time that never comes.
    fn arm(&self) -> rustix::io::Result<()> {
        let never = Itimerspec {
            it_interval: Timespec::default(),
            it_value: Timespec {
                tv_sec: NEVER_SECS,
                tv_nsec: 0,
            },
        };
        let flags = TimerfdTimerFlags::ABSTIME | TimerfdTimerFlags::CANCEL_ON_SET;
        timerfd_settime(&self.descriptor, flags, &never)?;
        Ok(())
    }
}

impl AsRawFd for Notices {
    fn as_raw_fd(&self) -> RawFd {
        self.descriptor.as_raw_fd()
    }
}

/// `RTMGRP_LINK`, `RTMGRP_IPV4_IFADDR`, `RTMGRP_IPV6_IFADDR` of `rtnetlink(7)`.
const GROUPS: u32 = 0x1 | 0x10 | 0x100;

/// In the year 2242, of which every `time_t` of 64 bits and the kernel's nanoseconds know.
const NEVER_SECS: i64 = 1 << 33;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_told_while_nothing_happens() {
        for notices in [
            Notices::of_network().unwrap(),
            Notices::of_waking().unwrap(),
        ] {
            notices.take().unwrap();
            notices.take().unwrap();
        }
    }
}
