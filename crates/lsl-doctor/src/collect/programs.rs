//! `host.fds` and `lib.old`: programs of this machine that have sockets at ports of LSL.

use std::collections::BTreeSet;
use std::path::Path;

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
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let Ok(links) = std::fs::read_dir(entry.path().join("fd")) else {
            continue;
        };
        let links: Vec<_> = links
            .flatten()
            .map(|it| std::fs::read_link(it.path()))
            .collect();
        let inode = |link: &Path| {
            let number = link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?;
            number.parse().ok()
        };
        let inodes: Vec<u64> = links
            .iter()
            .flatten()
            .filter_map(|link| inode(link))
            .collect();
        let has = |set: &BTreeSet<u64>| inodes.iter().filter(|it| set.contains(it)).count();
        let streams = has(&offering);
        if pid == std::process::id() || streams == 0 && has(&asking) == 0 {
            continue;
        }
        let text = |name| files::text(entry.path().join(name)).unwrap_or_default();
        let program = Program {
            pid,
            name: text("comm").trim().to_owned(),
        };
        if let Some(allowed) = soft_limit(&text("limits")) {
            descriptors.push(DescriptorsUsed {
                program: program.clone(),
                used: links.len() as u64,
                allowed,
            });
        }
        if let Some(version) = library_version(&text("maps")) {
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

const MOST_PROGRAMS: usize = 16;
