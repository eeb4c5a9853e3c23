//! When a datagram arrived, as the kernel knows it: the process may have been busy with other things since.
//!
//! Linux stamps what arrives at a socket that asks for it, by the wall clock; what has passed since then is
//! the same by every clock. Other systems have no such stamp that is worth the code: there it is now.

#[cfg(not(target_os = "linux"))]
use std::io;

#[cfg(target_os = "linux")]
pub use linux::{arrived_at, stamp};

#[cfg(not(target_os = "linux"))]
use crate::socket::AsSocket;

#[cfg(target_os = "linux")]
mod linux {
    use std::io;
    use std::os::fd::AsFd;
    use std::time::Duration;

    use rustix::ioctl::{Getter, Opcode, ioctl};
    use rustix::time::{ClockId, Timespec, clock_gettime};

    /// Asks for a stamp on every datagram from now on.
    ///
    /// # Errors
    /// What `ioctl(2)` reports, where stamps are not to be had.
    pub fn stamp(socket: impl AsFd) -> io::Result<()> {
        match last_stamp(&socket) {
            // Nothing has arrived yet.
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// When the datagram arrived that was received last, in seconds of `local_clock`; `None` if nobody
    /// knows. For the one thread that receives.
    pub fn arrived_at(socket: impl AsFd) -> Option<f64> {
        let stamp = last_stamp(&socket).ok()?;
        // Between two readings of the one clock there is one of the other. A thread that was put to
        // sleep among them reads once more.
        let mut closest = readings();
        for _ in 0..RETRIES {
            if closest.0.1 - closest.0.0 <= PROMPT_NANOS {
                break;
            }
            closest = std::cmp::min_by_key(closest, readings(), |(now, _)| now.1 - now.0);
        }
        let (now, wall) = closest;
        if now.1 - now.0 > WORST_NANOS {
            return None;
        }
        let waited = wall - stamp;
        // Later than now, or long ago: somebody set the wall clock.
        if !(0..=LONGEST_NANOS).contains(&waited) {
            return None;
        }
        let arrived = u64::try_from(i128::midpoint(now.0, now.1) - waited).ok()?;
        let arrived = Duration::from_nanos(arrived);
        #[expect(clippy::cast_precision_loss, reason = "seconds since boot fit 52 bits")]
        let secs = arrived.as_secs() as f64;
        Some(secs + f64::from(arrived.subsec_nanos()) / 1e9)
    }

    fn readings() -> ((i128, i128), i128) {
        let before = nanos(clock_gettime(ClockId::Monotonic));
        let wall = nanos(clock_gettime(ClockId::Realtime));
        ((before, nanos(clock_gettime(ClockId::Monotonic))), wall)
    }

    fn nanos(time: Timespec) -> i128 {
        i128::from(time.tv_sec) * 1_000_000_000 + i128::from(time.tv_nsec)
    }

    #[expect(unsafe_code, reason = "rustix knows ioctls by number alone")]
    fn last_stamp(socket: impl AsFd) -> io::Result<i128> {
        // SAFETY: this request writes two 64-bit integers, seconds and nanoseconds.
        let request = unsafe { Getter::<SIOCGSTAMPNS, [i64; 2]>::new() };
        // SAFETY: as above; the system checks that the descriptor is a socket.
        let [secs, nanos] = unsafe { ioctl(socket, request) }?;
        Ok(i128::from(secs) * 1_000_000_000 + i128::from(nanos))
    }

    /// `SIOCGSTAMPNS`, whose structure has 64 bits twice where an address has 64.
    #[cfg(target_pointer_width = "64")]
    const SIOCGSTAMPNS: Opcode = 0x8907;
    /// `SIOCGSTAMPNS_NEW`: Linux 5.1.
    #[cfg(not(target_pointer_width = "64"))]
    const SIOCGSTAMPNS: Opcode = rustix::ioctl::opcode::read::<[i64; 2]>(0x89, 7);

    const RETRIES: u32 = 3;
    const PROMPT_NANOS: i128 = 5_000;
    /// Farther apart, the readings say less than the time of receiving.
    const WORST_NANOS: i128 = 50_000;
    const LONGEST_NANOS: i128 = 1_000_000_000;
}

/// There are no stamps.
///
/// # Errors
/// Always `Unsupported`.
#[cfg(not(target_os = "linux"))]
pub fn stamp(_socket: impl AsSocket) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Nobody knows.
#[cfg(not(target_os = "linux"))]
pub fn arrived_at(_socket: impl AsSocket) -> Option<f64> {
    None
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use std::net::{Ipv4Addr, UdpSocket};
    use std::time::Duration;

    use super::*;
    use crate::clock::local_clock;

    #[test]
    fn tells_when_a_datagram_arrived_not_when_it_was_read() {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let to = socket.local_addr().unwrap();
        stamp(&socket).unwrap();
        let mut buffer = [0; 8];
        // The kernel may need a moment to begin with stamps.
        let arrived = (0..100).any(|_| {
            let before = local_clock();
            socket.send_to(b"x", to).unwrap();
            let after = local_clock();
            std::thread::sleep(Duration::from_millis(5));
            socket.recv(&mut buffer).unwrap();
            let arrived = arrived_at(&socket).unwrap();
            assert!(arrived >= before - 1e-4, "{arrived} is before {before}");
            arrived <= after + 1e-4
        });
        assert!(arrived, "all stamps were late");
    }
}
