//! Processor time and context switches of this process.

/// Use of the processor since the process began, by all its threads, including those that ended.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Usage {
    /// Processor time in the program.
    pub user_secs: f64,
    /// Processor time in the kernel on its behalf.
    pub system_secs: f64,
    /// Number of times a thread gave up the processor to wait. `None` on Windows, which does not count them.
    pub voluntary_switches: Option<u64>,
    /// Number of times a thread was preempted. `None` on Windows.
    pub involuntary_switches: Option<u64>,
}

/// Whether the system counts the times that threads give up the processor.
pub const COUNTS_SWITCHES: bool = cfg!(unix);

impl Usage {
    /// Measures the use of this process until now.
    #[cfg(unix)]
    #[expect(unsafe_code, reason = "rustix has no getrusage")]
    pub fn now() -> Self {
        let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
        // SAFETY: the kernel writes one `rusage` where there is room for one.
        let result = unsafe { libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr()) };
        debug_assert_eq!(
            result, 0,
            "getrusage only fails for arguments that do not exist"
        );
        // SAFETY: written above; and all zeros, which it was before, is a valid value too.
        let usage = unsafe { usage.assume_init() };
        Self {
            user_secs: secs(usage.ru_utime),
            system_secs: secs(usage.ru_stime),
            voluntary_switches: Some(usage.ru_nvcsw.unsigned_abs()),
            involuntary_switches: Some(usage.ru_nivcsw.unsigned_abs()),
        }
    }

    /// Measures the use of this process until now.
    #[cfg(windows)]
    #[expect(unsafe_code, reason = "std does not tell the times of a process")]
    pub fn now() -> Self {
        use windows_sys::Win32::Foundation::FILETIME;
        use windows_sys::Win32::System::Threading::{GetCurrentProcess, GetProcessTimes};

        let mut times = [FILETIME {
            dwLowDateTime: 0,
            dwHighDateTime: 0,
        }; 4];
        let [created, ended, kernel, user] = &mut times;
        // SAFETY: takes nothing; what it gives stands for this process and needs no closing.
        let this = unsafe { GetCurrentProcess() };
        // SAFETY: the system writes four times where there is room for them.
        let done = unsafe { GetProcessTimes(this, created, ended, kernel, user) };
        debug_assert_ne!(done, 0, "a process may ask for its own times");
        Self {
            user_secs: secs(times[3]),
            system_secs: secs(times[2]),
            voluntary_switches: None,
            involuntary_switches: None,
        }
    }

    /// Returns the use between `earlier` and this measurement.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        let count = |now: Option<u64>, then: Option<u64>| Some(now?.saturating_sub(then?));
        Self {
            user_secs: self.user_secs - earlier.user_secs,
            system_secs: self.system_secs - earlier.system_secs,
            voluntary_switches: count(self.voluntary_switches, earlier.voluntary_switches),
            involuntary_switches: count(self.involuntary_switches, earlier.involuntary_switches),
        }
    }
}

#[cfg(unix)]
#[expect(
    clippy::cast_precision_loss,
    reason = "a process that runs for 2^53 seconds is not measured"
)]
#[allow(
    clippy::cast_lossless,
    reason = "how wide the microseconds are differs between systems"
)]
fn secs(time: libc::timeval) -> f64 {
    time.tv_sec as f64 + time.tv_usec as f64 * 1e-6
}

/// Converts a time in units of 100 nanoseconds.
#[cfg(windows)]
fn secs(time: windows_sys::Win32::Foundation::FILETIME) -> f64 {
    (f64::from(time.dwHighDateTime) * 4_294_967_296.0 + f64::from(time.dwLowDateTime)) * 1e-7
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn work_and_waiting_are_seen() {
        let before = Usage::now();
        while Usage::now().since(before).user_secs <= 0.0 {
            std::hint::black_box((0..100_000_u64).map(|n| n ^ (n << 3)).max());
        }
        for _ in 0..3 {
            std::thread::sleep(Duration::from_millis(1));
        }
        let used = Usage::now().since(before);
        assert!(used.user_secs > 0.0 && used.system_secs >= 0.0);
        #[cfg(unix)]
        assert!(used.voluntary_switches >= Some(3), "{used:?}");
    }
}
