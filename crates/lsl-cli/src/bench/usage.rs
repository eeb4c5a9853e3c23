//! What this process has used so far. Counts are those of the kernel, from `/proc` where there is one.

use std::fs;

/// A moment in the life of this process.
#[derive(Debug, Clone, Copy)]
pub(super) struct Usage {
    pub(super) cpu_secs: f64,
    /// Voluntary context switches of the threads that live.
    pub(super) switches: Option<u64>,
}

impl Usage {
    pub(super) fn now() -> Self {
        Self {
            switches: switches(),
            // Last, so that looking is not counted at the start and a little of it at the end.
            cpu_secs: lsl_platform::clock::process_cpu_secs(),
        }
    }

    /// From then to now.
    pub(super) fn since(self, then: Self) -> (f64, Option<u64>) {
        let switches = self.switches.zip(then.switches);
        (
            self.cpu_secs - then.cpu_secs,
            switches.map(|(now, then)| now.saturating_sub(then)),
        )
    }
}

fn switches() -> Option<u64> {
    let mut sum = 0;
    for task in fs::read_dir("/proc/self/task").ok()?.flatten() {
        // A thread may end while we look.
        if let Ok(status) = fs::read_to_string(task.path().join("status")) {
            sum += field(&status, "voluntary_ctxt_switches:").unwrap_or(0);
        }
    }
    Some(sum)
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

fn field(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_by_their_whole_name() {
        let status = "VmHWM:\t    2048 kB\nvoluntary_ctxt_switches:\t17\n\
                      nonvoluntary_ctxt_switches:\t3\n";
        assert_eq!(field(status, "VmHWM:"), Some(2048));
        assert_eq!(field(status, "voluntary_ctxt_switches:"), Some(17));
        assert_eq!(field(status, "VmPeak:"), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_process_has_used_something() {
        let then = Usage::now();
        let (cpu_secs, switches) = Usage::now().since(then);
        assert!(cpu_secs >= 0.0 && switches.is_some());
        assert!(Holdings::now().threads >= Some(1) && Holdings::now().descriptors >= Some(1));
        assert!(peak_rss_mib() > Some(0.1));
    }
}
