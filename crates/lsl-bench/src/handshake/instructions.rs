//! Instructions of a handshake, both sides, as valgrind counts them: what two runs of this program differ by. They hardly
//! change from run to run, and do not depend on what else a machine does.

use std::collections::BTreeMap;
use std::process::Command;

use lsl_cli::failure::{Failure, Outcome};

use super::super::scratch::Folder;

/// Counts those of a suite and a way of auditing, by their names on the command line.
pub(super) fn count(suite: &str, audited: &str) -> Outcome<BTreeMap<String, f64>> {
    let [few, many] = [run(suite, audited, FEW)?, run(suite, audited, MANY)?];
    let each = (many as f64 - few as f64) / (MANY - FEW) as f64;
    Ok([("instructions".to_owned(), each)].into())
}

fn run(suite: &str, audited: &str, handshakes: u64) -> Outcome<u64> {
    let folder = Folder::make(&std::env::temp_dir(), "counted")?;
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(std::env::current_exe()?)
        .args(["handshake", "--threads", "1", "--repeat", "1"])
        .args(["--suite", suite, "--audit", audited])
        .args(["--count", &handshakes.to_string(), "--output"])
        .arg(folder.path("results"))
        .env("GLIBC_TUNABLES", NO_REP)
        .output();
    let output = output.map_err(|error| Failure::from(error).context("valgrind"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    let counted = collected(&said).filter(|_| output.status.success());
    counted.ok_or_else(|| {
        let last = said.lines().last().unwrap_or_default();
        Failure::Runtime(format!("no count from valgrind: {last}"))
    })
}

/// `==123== Collected : 4711`
fn collected(text: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.contains("Collected : "))?;
    line.rsplit(' ').next()?.parse().ok()
}

/// Valgrind counts `rep movsb` once per byte.
const NO_REP: &str =
    "glibc.cpu.x86_rep_movsb_threshold=0x10000000:glibc.cpu.x86_rep_stosb_threshold=0x10000000";
/// Handshakes of the two runs.
const FEW: u64 = 20;
const MANY: u64 = 120;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_count_is_found() {
        let text = "==7== Events    : Ir\n==7== Collected : 12458694\n";
        assert_eq!(collected(text), Some(12_458_694));
        assert_eq!(collected("==7== Events    : Ir\n"), None);
    }
}
