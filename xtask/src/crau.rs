//! crypto-auditing's own programs as judges of `lsl audit export`. Spec: audit §7 test 4.
//!
//! They are GPL-3 and tools of a test: installed as they are, called, never read, linked or copied. What happens
//! stands in `crau/crau.py`.

use xshell::{Shell, cmd};

use crate::campaign::tool;
use crate::{Result, interop};

/// Of one version: `crau-query`, `crau-event-broker` and `crau-client`.
const CRATES: [&str; 3] = [
    "crypto-auditing-log-parser",
    "crypto-auditing-event-broker",
    "crypto-auditing-client",
];
const VERSION: &str = "0.3.2";

/// Where the log and what is made of it lie.
const FOLDER: &str = "target/crau";

/// Has them read what two connections leave, from a file and as it grows. Returns what they found.
pub(crate) fn run(sh: &Shell) -> Result<String> {
    for name in CRATES {
        tool(sh, name, VERSION, "0")?;
    }
    let lsl = crate::programs(sh)?.join("lsl");
    let namespace = interop::enter(sh)?;
    sh.remove_path(FOLDER)?;
    sh.create_dir(FOLDER)?;
    let root = sh.current_dir();
    let tools = root.join("target/tools/bin");
    let [query, broker, client] = PROGRAMS.map(|name| tools.join(name));
    let folder = root.join(FOLDER);
    let (program, words) = namespace.split_first().ok_or("no namespace")?;
    let said = cmd!(
        sh,
        "{program} {words...} python3 xtask/src/crau/crau.py {lsl} {query} {broker} {client} {folder}"
    )
    .read()?;
    println!("{said}");
    Ok(said.lines().collect::<Vec<_>>().join("; "))
}

const PROGRAMS: [&str; 3] = ["crau-query", "crau-event-broker", "crau-client"];
