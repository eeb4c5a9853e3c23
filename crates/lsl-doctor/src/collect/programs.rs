//! `host.fds` and `lib.old`: programs of this machine that have sockets at ports of LSL.

use std::collections::BTreeSet;
use std::path::PathBuf;

use lsl_platform::udp_sockets::udp_sockets;

use super::files;
use crate::observe::{DescriptorsUsed, LibraryUsed, Observations, PortsInUse, Program};
use crate::proc::{library_version, listening, soft_limit};

/// Looks at the programs that this user may see, and that have a stream or ask for some.
pub(super) fn look(seen: &mut Observations) {
    let Ok(udp) = udp_sockets() else {
        return;
    };
    let text = |path: &str| files::text(path).unwrap_or_default();
    let defaults = PortsInUse::default();
    let is_lsl = |port: u16| {
        let ports = [defaults, seen.asked.ports];
        ports.iter().any(|it| it.multicast == port || it.has(port))
    };
    let asking = udp.iter().filter(|it| is_lsl(it.port));
    let asking: BTreeSet<u64> = asking.map(|it| it.inode).collect();
    let offered: BTreeSet<u16> = seen
        .own_streams
        .iter()
        .flatten()
        .map(|it| it.port)
        .collect();
    let offering = listening(&text("/proc/net/tcp")).into_iter();
    let offering: BTreeSet<u64> = offering
        .chain(listening(&text("/proc/net/tcp6")))
        .filter(|(port, _)| offered.contains(port))
        .map(|(_, inode)| inode)
        .collect();
    let (mut descriptors, mut libraries) = (Vec::new(), Vec::new());
    for process in processes() {
        let has =
            |set: &BTreeSet<u64>| process.sockets.iter().filter(|it| set.contains(it)).count();
        let streams = has(&offering);
        if process.pid == std::process::id() || streams == 0 && has(&asking) == 0 {
            continue;
        }
        let program = process.program();
        if let Some(allowed) = soft_limit(&process.text("limits")) {
            descriptors.push(DescriptorsUsed {
                program: program.clone(),
                used: process.open,
                allowed,
            });
        }
        if let Some(version) = library_version(&process.text("maps")) {
            libraries.push(LibraryUsed {
                program,
                version,
                streams,
            });
        }
    }
    descriptors.sort_by_key(|it| std::cmp::Reverse(it.used * 1000 / it.allowed.max(1)));
    descriptors.truncate(MOST_PROGRAMS);
    libraries.truncate(MOST_PROGRAMS);
    seen.descriptors = Some(descriptors);
    seen.libraries = Some(libraries);
}

/// A process that this user may look into.
pub(super) struct Process {
    pid: u32,
    folder: PathBuf,
    /// How many files and sockets it has.
    open: u64,
    /// Inodes of the sockets.
    pub(super) sockets: Vec<u64>,
}

impl Process {
    fn text(&self, name: &str) -> String {
        files::text(self.folder.join(name)).unwrap_or_default()
    }

    pub(super) fn program(&self) -> Program {
        Program {
            pid: self.pid,
            name: self.text("comm").trim().to_owned(),
        }
    }
}

/// Lists the processes of this machine.
pub(super) fn processes() -> impl Iterator<Item = Process> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| {
        let folder = entry.path();
        let pid = entry.file_name().to_str()?.parse().ok()?;
        let (mut open, mut sockets) = (0, Vec::new());
        for descriptor in std::fs::read_dir(folder.join("fd")).ok()?.flatten() {
            open += 1;
            let link = std::fs::read_link(descriptor.path()).unwrap_or_default();
            let number = link.to_str().and_then(|it| {
                let number = it.strip_prefix("socket:[")?.strip_suffix(']')?;
                number.parse().ok()
            });
            sockets.extend::<Option<u64>>(number);
        }
        Some(Process {
            pid,
            folder,
            open,
            sockets,
        })
    })
}

const MOST_PROGRAMS: usize = 16;
