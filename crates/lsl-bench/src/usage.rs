//! Resources that this process has used and holds. Counts of held resources come from `/proc`,
//! where there is one.

use std::fs;

use lsl_platform::usage;

/// A moment in the life of this process. Looking is one system call, however many threads a library
/// has: it happens beside the measured work.
#[derive(Debug, Clone, Copy)]
pub(super) struct Usage {
    pub(super) cpu_secs: f64,
    /// Voluntary context switches of all threads, those that ended included.
    switches: Option<u64>,
}

impl Usage {
    pub(super) fn now() -> Self {
        let used = usage::Usage::now();
        Self {
            cpu_secs: used.user_secs + used.system_secs,
            switches: used.voluntary_switches,
        }
    }

    /// Returns processor seconds and context switches between `then` and this moment.
    pub(super) fn since(self, then: Self) -> (f64, Option<u64>) {
        let switched = |now: u64| Some(now.saturating_sub(then.switches?));
        (
            self.cpu_secs - then.cpu_secs,
            self.switches.and_then(switched),
        )
    }
}

/// Threads and descriptors of this process now.
#[derive(Debug, Clone, Copy)]
pub(super) struct Holdings {
    pub(super) threads: Option<usize>,
    pub(super) descriptors: Option<usize>,
}

impl Holdings {
    pub(super) fn now() -> Self {
        let count = |folder| fs::read_dir(folder).ok().map(Iterator::count);
        Self {
            threads: count("/proc/self/task"),
            descriptors: count("/proc/self/fd"),
        }
    }
}

/// The most memory this process ever had, in MiB.
pub(super) fn peak_rss_mib() -> Option<f64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    field(&status, "VmHWM:").map(|kib| kib as f64 / 1024.0)
}

/// A number of a `status` file of `/proc`.
pub(super) fn field(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_by_their_whole_name() {
        let status = "OldVmHWM:\t3 kB\nVmHWM:\t    2048 kB\n";
        assert_eq!(field(status, "VmHWM:"), Some(2048));
        assert_eq!(field(status, "VmPeak:"), None);
    }

    #[test]
    fn switches_of_threads_that_ended_count() {
        let then = Usage::now();
        let waits = || {
            for _ in 0..5 {
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
        };
        std::thread::spawn(waits).join().unwrap();
        let (cpu_secs, switches) = Usage::now().since(then);
        assert!(cpu_secs >= 0.0);
        let counted = usage::COUNTS_SWITCHES;
        assert!(
            switches.map_or(!counted, |count| count >= 5),
            "{switches:?}"
        );
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_process_holds_something() {
        assert!(Holdings::now().threads >= Some(1) && Holdings::now().descriptors >= Some(1));
        assert!(peak_rss_mib() > Some(0.1));
    }
}
