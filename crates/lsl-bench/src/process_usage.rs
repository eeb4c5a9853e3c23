//! Reads the resources that other processes use from `/proc`, while they run. Elsewhere there are
//! no values.

use std::fs;

use super::usage::field;

/// Resources that a process uses now.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Used {
    /// Processor time so far, of all its threads.
    pub(super) cpu_secs: f64,
    /// Resident memory at this moment.
    pub(super) rss_mib: f64,
    /// The most memory it ever had.
    pub(super) peak_mib: f64,
}

impl Used {
    /// Reads the process with this id; `None` if it has ended or the system does not tell.
    pub(super) fn of(id: u32) -> Option<Self> {
        let read = |name: &str| fs::read_to_string(format!("/proc/{id}/{name}")).ok();
        Self::from_texts(&read("stat")?, &read("status")?)
    }

    fn from_texts(stat: &str, status: &str) -> Option<Self> {
        // The name stands in parentheses and may hold blanks and parentheses itself.
        let (_, after) = stat.rsplit_once(')')?;
        let ticks: Option<Vec<u64>> = after
            .split_whitespace()
            .skip(USER_TIME)
            .take(2)
            .map(|text| text.parse().ok())
            .collect();
        let ticks: u64 = ticks?.into_iter().sum();
        let mib = |name| field(status, name).map(|kib| kib as f64 / 1024.0);
        Some(Self {
            cpu_secs: ticks as f64 / TICKS_PER_SEC,
            // A process that has ended and is not buried yet has no memory.
            rss_mib: mib("VmRSS:")?,
            peak_mib: mib("VmHWM:")?,
        })
    }
}

/// Fields of `/proc/ID/stat` between the name and the time in the program, which that in the kernel
/// follows (proc(5)).
const USER_TIME: usize = 11;
/// `USER_HZ`, which is this on every architecture that Rust has.
const TICKS_PER_SEC: f64 = 100.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_times_and_memory_are_found() {
        let stat = "7 (a) b) S 1 2 3 4 5 6 7 8 9 10 150 50 13";
        let status = "Name:\ta) b\nVmHWM:\t 4096 kB\nVmRSS:\t 2048 kB\n";
        let used = Used {
            cpu_secs: 2.0,
            rss_mib: 2.0,
            peak_mib: 4.0,
        };
        assert_eq!(Used::from_texts(stat, status), Some(used));
        assert_eq!(Used::from_texts(stat, "State:\tZ (zombie)\n"), None);
        assert_eq!(Used::from_texts("7", status), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_process_uses_memory() {
        let used = Used::of(std::process::id()).unwrap();
        assert!(used.rss_mib > 0.1 && used.peak_mib >= used.rss_mib);
    }
}
