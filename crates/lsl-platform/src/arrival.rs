//! Arrival times of datagrams as the kernel knows them: the process may have been busy since.
//!
//! Linux stamps datagrams by the wall clock at sockets that ask for it; the time passed since then is the
//! same by every clock. On other systems the arrival time is unknown, and callers use the current time.

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
    use std::sync::atomic::{AtomicI64, Ordering};
    use std::time::Duration;

    use rustix::ioctl::{Getter, Opcode, ioctl};
    use rustix::time::{ClockId, Timespec, clock_gettime};

    /// Asks the kernel to stamp every datagram from now on.
    ///
    /// # Errors
    /// Those of `ioctl(2)`, where stamps are not supported.
    pub fn stamp(socket: impl AsFd) -> io::Result<()> {
        match last_stamp(&socket) {
            // Nothing has arrived yet.
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => {
                if let Some(readings) = readings() {
                    WALL.observe(&readings);
                }
                Ok(())
            }
        }
    }

    /// Returns the arrival time of the datagram received last, in seconds of `local_clock`; `None` if it is
    /// unknown. For the one thread that receives.
    pub fn arrived_at(socket: impl AsFd) -> Option<f64> {
        let stamp = last_stamp(&socket).ok()?;
        let readings = readings()?;
        let arrived = u64::try_from(WALL.arrival(&readings, stamp)?).ok()?;
        let arrived = Duration::from_nanos(arrived);
        #[expect(clippy::cast_precision_loss, reason = "seconds since boot fit 52 bits")]
        let secs = arrived.as_secs() as f64;
        Some(secs + f64::from(arrived.subsec_nanos()) / 1e9)
    }

    /// The wall clock between two readings of `local_clock`, in nanoseconds.
    pub(super) struct Readings {
        pub(super) before: i128,
        pub(super) wall: i128,
        pub(super) after: i128,
    }

    impl Readings {
        fn width(&self) -> i128 {
            self.after - self.before
        }

        fn now(&self) -> i128 {
            i128::midpoint(self.before, self.after)
        }
    }

    /// Reads both clocks. Returns `None` if the thread was put to sleep during each attempt.
    fn readings() -> Option<Readings> {
        let read = || Readings {
            before: nanos(clock_gettime(ClockId::Monotonic)),
            wall: nanos(clock_gettime(ClockId::Realtime)),
            after: nanos(clock_gettime(ClockId::Monotonic)),
        };
        let mut closest = read();
        for _ in 0..RETRIES {
            if closest.width() <= PROMPT_NANOS {
                break;
            }
            closest = std::cmp::min_by_key(closest, read(), Readings::width);
        }
        (closest.width() <= WORST_NANOS).then_some(closest)
    }

    /// Relation of the wall clock to `local_clock`. Both are slewed alike: their difference changes by
    /// steps alone.
    pub(super) struct Wall {
        /// Nanoseconds by which it is ahead of `local_clock`; [`UNKNOWN`] at first.
        ahead: AtomicI64,
        /// Time until which a stamp may be from before a step, in nanoseconds of `local_clock`.
        unsure_until: AtomicI64,
    }

    static WALL: Wall = Wall::new();

    impl Wall {
        pub(super) const fn new() -> Self {
            Self {
                ahead: AtomicI64::new(UNKNOWN),
                unsure_until: AtomicI64::new(i64::MIN),
            }
        }

        /// Detects that the wall clock was set since the last call.
        fn observe(&self, readings: &Readings) {
            let now = readings.now();
            let ahead = readings.wall - now;
            let known = self.ahead.load(Ordering::Acquire);
            if (ahead - i128::from(known)).abs() <= WORST_NANOS {
                return;
            }
            let saturated = |nanos: i128| i64::try_from(nanos).unwrap_or(i64::MAX);
            if known != UNKNOWN {
                let until = saturated(now + LONGEST_NANOS);
                self.unsure_until.store(until, Ordering::Relaxed);
            }
            self.ahead.store(saturated(ahead), Ordering::Release);
        }

        /// Returns the arrival time for a stamp, in nanoseconds of `local_clock`. `None` if the wall clock
        /// may have been set since or the wait was too long.
        pub(super) fn arrival(&self, readings: &Readings, stamp: i128) -> Option<i128> {
            self.observe(readings);
            let now = readings.now();
            let waited = readings.wall - stamp;
            let is_sure = now > i128::from(self.unsure_until.load(Ordering::Relaxed));
            (is_sure && (0..=LONGEST_NANOS).contains(&waited)).then_some(now - waited)
        }
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

    /// `SIOCGSTAMPNS`, which gives two 64-bit numbers where an address has 64 bits.
    #[cfg(target_pointer_width = "64")]
    const SIOCGSTAMPNS: Opcode = 0x8907;
    /// `SIOCGSTAMPNS_NEW`, which gives two 64-bit numbers since Linux 5.1.
    #[cfg(not(target_pointer_width = "64"))]
    const SIOCGSTAMPNS: Opcode = rustix::ioctl::opcode::read::<[i64; 2]>(0x89, 7);

    const RETRIES: u32 = 3;
    const PROMPT_NANOS: i128 = 5_000;
    /// Largest distance of useful readings: beyond it the time of receiving is more exact.
    const WORST_NANOS: i128 = 50_000;
    /// Longest wait of a datagram with a valid stamp.
    const LONGEST_NANOS: i128 = 1_000_000_000;
    const UNKNOWN: i64 = i64::MIN;
}

/// Fails: stamps are used on Linux alone.
///
/// # Errors
/// Always `Unsupported`.
#[cfg(not(target_os = "linux"))]
pub fn stamp(_socket: impl AsSocket) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Returns `None`: there are no stamps.
#[cfg(not(target_os = "linux"))]
pub fn arrived_at(_socket: impl AsSocket) -> Option<f64> {
    None
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use std::net::{Ipv4Addr, UdpSocket};
    use std::time::Duration;

    use super::linux::{Readings, Wall};
    use super::*;
    use crate::clock::local_clock;

    #[test]
    fn a_step_of_the_wall_clock_moves_no_arrival() {
        const MS: i128 = 1_000_000;
        let wall = Wall::new();
        // Times in milliseconds of `local_clock`; `ahead` is the lead of the wall clock.
        let arrival = |arrived: i128, ahead: i128, now: i128, ahead_now: i128| {
            let readings = Readings {
                before: now * MS,
                wall: (now + ahead_now) * MS,
                after: now * MS,
            };
            let arrival = wall.arrival(&readings, (arrived + ahead) * MS);
            arrival.map(|arrival| arrival / MS)
        };
        assert_eq!(arrival(90, 7000, 100, 7000), Some(90));
        // Forward by 300 ms, backward by 5, both while a datagram waited.
        for (start, before, after) in [(1000, 7000, 7300), (5000, 7300, 7295)] {
            assert_eq!(arrival(start, before, start + 20, after), None);
            // So did one at another socket.
            assert_eq!(arrival(start + 5, before, start + 30, after), None);
            let later = start + 2000;
            assert_eq!(arrival(later, after, later + 10, after), Some(later));
        }
    }

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
