//! Resources that this process has used and holds. Counts of held resources come from `/proc`,
//! where there is one.

use std::fs;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use lsl_core::local_clock;
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

/// A thread that looks once a second at how much of the processor this process takes.
#[derive(Debug)]
pub(super) struct EverySecond {
    looks: thread::JoinHandle<Option<f64>>,
    end: mpsc::Sender<()>,
}

impl EverySecond {
    pub(super) fn start() -> Self {
        Self::every(SECOND)
    }

    fn every(period: Duration) -> Self {
        let (end, ended) = mpsc::channel();
        let looks = move || {
            let mut most: Option<f64> = None;
            let (mut then, mut before) = (local_clock(), Usage::now());
            while ended.recv_timeout(period) == Err(RecvTimeoutError::Timeout) {
                let (now, used) = (local_clock(), Usage::now());
                let (cpu_secs, _) = used.since(before);
                let percent = 100.0 * cpu_secs / (now - then);
                most = Some(most.map_or(percent, |most| most.max(percent)));
                (then, before) = (now, used);
            }
            most
        };
        Self {
            looks: thread::spawn(looks),
            end,
        }
    }

    /// Ends it, and returns the most of a second in percent of one core; `None` if none is over.
    pub(super) fn peak_percent(self) -> Option<f64> {
        drop(self.end);
        self.looks.join().ok().flatten()
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

const SECOND: Duration = Duration::from_secs(1);

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
                thread::sleep(Duration::from_millis(1));
            }
        };
        thread::spawn(waits).join().unwrap();
        let (cpu_secs, switches) = Usage::now().since(then);
        assert!(cpu_secs >= 0.0);
        let counted = usage::COUNTS_SWITCHES;
        assert!(
            switches.map_or(!counted, |count| count >= 5),
            "{switches:?}"
        );
    }

    #[test]
    fn the_busiest_second_is_known_once_one_is_over() {
        let hour = EverySecond::every(Duration::from_hours(1));
        assert_eq!(hour.peak_percent(), None);
        // Often, so that a busy machine does not miss all of them.
        let looks = EverySecond::every(Duration::from_millis(10));
        let end = local_clock() + 1.0;
        while local_clock() < end {
            std::hint::black_box(());
        }
        assert!(looks.peak_percent() > Some(1.0));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_process_holds_something() {
        assert!(Holdings::now().threads >= Some(1) && Holdings::now().descriptors >= Some(1));
        assert!(peak_rss_mib() > Some(0.1));
    }
}
