//! `fw.read` of Windows: its registry, and the programs that have ports of LSL. Type-checked, tried under Wine alone.

use lsl_platform::port_holders::{port_holders, program_of};
use lsl_platform::registry::{self, Data};

use crate::firewall::windows::{Machine, read};
use crate::observe::{Firewall, Manager, PortsInUse, Program};

/// Reads the rules that concern programs of LSL, and this one.
pub(super) fn firewall(ports: PortsInUse) -> Firewall {
    let ports = [PortsInUse::default(), ports];
    let is_lsl = |port: u16| ports.iter().any(|it| it.multicast == port || it.has(port));
    let holders = port_holders().unwrap_or_default().into_iter();
    let holders = holders.filter(|it| is_lsl(it.port)).map(|it| it.pid);
    let own = std::process::id();
    let mut pids: Vec<u32> = holders.chain([own]).collect();
    pids.sort_unstable();
    pids.dedup();
    let programs = pids.into_iter().filter_map(|pid| {
        let path = program_of(pid)?;
        let name = path.rsplit('\\').next()?.to_owned();
        Some((Program { pid, name }, path))
    });
    let programs: Vec<_> = programs.collect();
    Firewall {
        manager: Manager::Windows,
        is_readable: true,
        chains: Vec::new(),
        windows: Some(read(&Registry, &programs, own, &ports)),
    }
}

struct Registry;

impl Machine for Registry {
    fn values(&self, key: &str) -> Vec<(String, Data)> {
        registry::values(key).unwrap_or_default()
    }

    fn keys(&self, key: &str) -> Vec<String> {
        registry::keys(key).unwrap_or_default()
    }

    fn variable(&self, name: &str) -> Option<String> {
        std::env::var(name).ok()
    }
}

#[cfg(all(test, windows))]
mod tests {
    use super::*;
    use crate::observe::{Observations, Os};
    use crate::table::diagnose;

    #[test]
    fn a_machine_where_nothing_is_blocked_has_no_finding() {
        let read = firewall(PortsInUse::default());
        let seen = Observations {
            os: Os::Windows,
            firewall: Some(read),
            ..Observations::default()
        };
        let diagnosis = diagnose(&seen);
        assert_eq!(
            (diagnosis.findings, diagnosis.notes),
            (Vec::new(), Vec::new())
        );
    }
}
