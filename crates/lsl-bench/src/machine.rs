//! Describes the machine and time of a benchmark, as far as the system tells.

use std::fs;

use lsl_platform::calendar::rfc3339;
use lsl_platform::clock::utc_now;
use lsl_platform::process::hostname;

use super::result::Machine;

/// Reads the load of 1, 5 and 15 minutes; zeros where the system does not tell.
pub(super) fn load() -> [f64; 3] {
    let mut load = [0.0; 3];
    let loads = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    for (slot, text) in load.iter_mut().zip(loads.split_whitespace()) {
        *slot = text.parse().unwrap_or(0.0);
    }
    load
}

impl Machine {
    /// Reads the properties of this machine at this moment.
    pub(super) fn here() -> Self {
        let read = |path: &str| fs::read_to_string(path).ok();
        let cpus = read("/proc/cpuinfo").unwrap_or_default();
        let governor = read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
        Self {
            started: rfc3339(utc_now()),
            host: String::from_utf8_lossy(&hostname()).into_owned(),
            cpu: cpu_name(&cpus).unwrap_or(std::env::consts::ARCH).into(),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            kernel: kernel(read("/proc/sys/kernel/osrelease").as_deref()),
            governor: governor.map(|text| text.trim().to_owned()),
            load: load(),
            version: env!("CARGO_PKG_VERSION").into(),
            busy: None,
        }
    }
}

fn kernel(release: Option<&str>) -> String {
    let release = release.unwrap_or_default().trim();
    format!("{} {release}", std::env::consts::OS)
        .trim_end()
        .into()
}

/// The first name in `/proc/cpuinfo`; on ARM only the board has one.
fn cpu_name(cpus: &str) -> Option<&str> {
    let value = |name: &str| {
        let line = cpus.lines().find(|line| line.starts_with(name))?;
        line.split_once(':').map(|(_, value)| value.trim())
    };
    value("model name").or_else(|| value("Model"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_processors() {
        let x86 = "processor\t: 0\nmodel\t\t: 1\nmodel name\t: AMD EPYC\n";
        assert_eq!(cpu_name(x86), Some("AMD EPYC"));
        let arm = "processor\t: 0\nModel\t\t: Raspberry Pi 5\n";
        assert_eq!(cpu_name(arm), Some("Raspberry Pi 5"));
        assert_eq!(cpu_name(""), None);
    }
}
