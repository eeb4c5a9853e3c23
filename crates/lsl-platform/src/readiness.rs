//! Waiting for one descriptor, on the calling thread, up to a point on `local_clock`.
//!
//! Used where the thread that pushes or pulls does the socket work itself; everything else waits in
//! the runtime's reactor.
#![cfg_attr(
    windows,
    expect(
        clippy::needless_pass_by_value,
        reason = "callers give references, as on Unix"
    )
)]

use std::io;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
// Sockets implement it on Windows.
use rustix::fd::AsFd;
use rustix::io::Errno;

use crate::clock::local_clock;

/// Waits until reading from `fd` would not block: data, end of stream or a pending error.
///
/// `deadline` is in seconds of [`local_clock`]. Infinity waits without a limit; a time in the past checks
/// once. Returns whether the descriptor is ready.
///
/// # Errors
/// Those of `poll(2)` (`WSAPoll` on Windows). An interrupting signal is not an error: the wait continues.
pub fn wait_readable(fd: impl AsFd, deadline: f64) -> io::Result<bool> {
    wait(fd, PollFlags::IN, deadline)
}

/// Waits until writing to `fd` would not block, or would report an error at once.
///
/// # Errors
/// As [`wait_readable`].
pub fn wait_writable(fd: impl AsFd, deadline: f64) -> io::Result<bool> {
    wait(fd, PollFlags::OUT, deadline)
}

fn wait(fd: impl AsFd, interest: PollFlags, deadline: f64) -> io::Result<bool> {
    wait_any(
        &mut [PollFd::from_borrowed_fd(fd.as_fd(), interest)],
        deadline,
    )
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "a hop is at most an hour, and cutting off fractions of a nanosecond is meant"
)]
pub(crate) fn wait_any(fds: &mut [PollFd<'_>], deadline: f64) -> io::Result<bool> {
    loop {
        let remaining_secs = (deadline - local_clock()).max(0.0);
        // Long waits go in hops: some systems refuse timeouts beyond 2^31 milliseconds.
        let hop_secs = remaining_secs.min(LONGEST_HOP_SECS);
        let timeout = Timespec {
            tv_sec: hop_secs as i64,
            tv_nsec: (hop_secs.fract() * 1e9) as _,
        };
        match poll(fds, Some(&timeout)) {
            Ok(0) if remaining_secs <= hop_secs => return Ok(false),
            Ok(0) | Err(Errno::INTR) => {}
            Ok(_) => return Ok(true),
            Err(error) => return Err(error.into()),
        }
    }
}

const LONGEST_HOP_SECS: f64 = 3600.0;

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn readable_only_once_something_was_written() {
        let (mut near, far) = UnixStream::pair().unwrap();
        assert!(!wait_readable(&far, 0.0).unwrap());
        assert!(!wait_readable(&far, local_clock() + 0.002).unwrap());
        near.write_all(b"x").unwrap();
        assert!(wait_readable(&far, f64::INFINITY).unwrap());
    }

    #[test]
    fn a_closed_peer_counts_as_readable() {
        let (near, far) = UnixStream::pair().unwrap();
        drop(near);
        assert!(wait_readable(&far, f64::INFINITY).unwrap());
    }

    #[test]
    fn writable_until_the_buffer_is_full() {
        let (mut near, _far) = UnixStream::pair().unwrap();
        assert!(wait_writable(&near, f64::INFINITY).unwrap());
        near.set_nonblocking(true).unwrap();
        while near.write(&[0; 4096]).is_ok() {}
        assert!(!wait_writable(&near, 0.0).unwrap());
    }
}
