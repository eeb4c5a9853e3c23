//! The clock that every LSL program on a host shares. Spec: lsl-protocol §5.3.
//!
//! liblsl asks C++'s `steady_clock`, whose origin must be ours too. That is CLOCK_MONOTONIC in libstdc++
//! and CLOCK_MONOTONIC_RAW in Apple's libc++, which goes on while the machine sleeps. In Microsoft's
//! library it is the performance counter, as whole seconds and the rest in nanoseconds.

use std::time::Duration;

#[cfg(unix)]
use rustix::time::{ClockId, clock_gettime};

/// Returns seconds since boot, equal to liblsl's `lsl_local_clock` on the same host.
///
/// The origin belongs to the machine, not to the process: timestamps of two programs on one host compare
/// without any correction. Never blocks; safe from any thread.
#[expect(
    clippy::cast_precision_loss,
    reason = "seconds since boot and nanoseconds both fit 52 bits"
)]
pub fn local_clock() -> f64 {
    let now = steady();
    // Whole seconds and the remainder are added last, so that nanoseconds survive long uptimes.
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

/// Returns the wall clock time since 1970-01-01 UTC, for dates in logs and trust files; zero for earlier
/// times. It jumps when the clock is set: never use it to measure durations.
#[cfg(unix)]
pub fn utc_now() -> Duration {
    let now = clock_gettime(ClockId::Realtime);
    match (u64::try_from(now.tv_sec), u32::try_from(now.tv_nsec)) {
        (Ok(secs), Ok(nanos)) => Duration::new(secs, nanos),
        _ => Duration::ZERO,
    }
}

/// Returns the wall clock time since 1970-01-01 UTC, as on Unix.
#[cfg(windows)]
#[expect(
    clippy::disallowed_methods,
    reason = "everybody else asks here for the time"
)]
pub fn utc_now() -> Duration {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap_or_default()
}

/// Returns how long the machine slept since boot, in seconds, if the system tells it.
#[cfg(target_os = "linux")]
#[expect(clippy::cast_precision_loss, reason = "as in `local_clock`")]
pub fn slept_secs() -> Option<f64> {
    let (awake, all) = (local_clock(), clock_gettime(ClockId::Boottime));
    Some(all.tv_sec as f64 + all.tv_nsec as f64 / 1e9 - awake)
}

/// Returns nothing: here clocks that sleep and those that do not are told apart by nobody.
#[cfg(not(target_os = "linux"))]
pub fn slept_secs() -> Option<f64> {
    None
}

#[cfg(all(unix, not(target_vendor = "apple")))]
#[inline]
fn steady() -> rustix::time::Timespec {
    clock_gettime(ClockId::Monotonic)
}

#[cfg(target_vendor = "apple")]
#[expect(unsafe_code, reason = "rustix does not know this clock here")]
fn steady() -> libc::timespec {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the system writes one `timespec` where there is room for one.
    let result = unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_RAW, &raw mut now) };
    debug_assert_eq!(result, 0, "this clock exists since macOS 10.12");
    now
}

#[cfg(windows)]
use performance_counter::steady;

#[cfg(windows)]
mod performance_counter {
    use std::sync::OnceLock;

    use windows_sys::Win32::System::Performance::{
        QueryPerformanceCounter, QueryPerformanceFrequency,
    };

    /// Time in seconds and nanoseconds, with the field names of `timespec`.
    pub(super) struct Time {
        pub(super) tv_sec: i64,
        pub(super) tv_nsec: i64,
    }

    pub(super) fn steady() -> Time {
        let per_second = per_second();
        let count = count();
        Time {
            tv_sec: count / per_second,
            tv_nsec: count % per_second * 1_000_000_000 / per_second,
        }
    }

    #[expect(unsafe_code, reason = "std does not tell the origin of its clock")]
    fn count() -> i64 {
        let mut count = 0;
        // SAFETY: the system writes one number where there is room for one.
        let done = unsafe { QueryPerformanceCounter(&raw mut count) };
        debug_assert_ne!(done, 0, "never fails since Windows XP");
        count
    }

    /// Returns the ticks per second of the counter, which are fixed at boot.
    #[expect(unsafe_code, reason = "std does not tell it")]
    fn per_second() -> i64 {
        static KNOWN: OnceLock<i64> = OnceLock::new();
        *KNOWN.get_or_init(|| {
            let mut frequency = 0;
            // SAFETY: as above.
            let done = unsafe { QueryPerformanceFrequency(&raw mut frequency) };
            debug_assert_ne!(done, 0, "never fails since Windows XP");
            frequency.max(1)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{local_clock, utc_now};

    #[test]
    fn the_wall_clock_is_past_the_day_this_was_written() {
        assert!(utc_now().as_secs() > 1_700_000_000);
    }

    #[test]
    fn never_goes_backwards() {
        let mut last = local_clock();
        for _ in 0..1000 {
            let now = local_clock();
            assert!(now >= last);
            last = now;
        }
    }
}
