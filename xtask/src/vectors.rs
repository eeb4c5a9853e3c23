//! The golden vectors are evidence captured from liblsl: nobody edits them to make a test pass.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use sha2::{Digest, Sha256};
use xshell::Shell;

use crate::Result;

const VECTORS: &str = "crates/lsl-core/tests/vectors";
const MANIFEST: &str = "crates/lsl-core/tests/vectors/SHA256SUMS";

/// Where the captured originals lie on the machines that hand them to us, seen from the root.
const ORIGINALS: &str = "../shared/vectors";

/// Compare the vectors with the manifest, and with the originals where there are some.
pub(crate) fn check(sh: &Shell) -> Result {
    let manifest = sh.read_file(MANIFEST)?;
    let expected: BTreeMap<&str, &str> = manifest
        .lines()
        .filter_map(|line| line.split_once("  "))
        .map(|(sum, name)| (name, sum))
        .collect();
    let actual = sums(sh)?;
    let mut problems = Vec::new();
    for (name, sum) in &actual {
        match expected.get(name.as_str()) {
            None => problems.push(format!("{name} is not in the manifest")),
            Some(wanted) if wanted != sum => problems.push(format!("{name} was changed")),
            Some(_) => {}
        }
        let original = format!("{ORIGINALS}/{name}");
        if sh.path_exists(&original) && sha256(&sh.read_binary_file(&original)?) != *sum {
            problems.push(format!("{name} differs from the captured original"));
        }
    }
    for name in expected.keys().filter(|name| !actual.contains_key(**name)) {
        problems.push(format!("{name} is gone"));
    }
    if problems.is_empty() {
        println!("vectors: {} files unchanged", actual.len());
        return Ok(());
    }
    Err(format!("golden vectors: {}", problems.join("; ")).into())
}

/// Write the manifest anew, after new vectors were captured.
pub(crate) fn bless(sh: &Shell) -> Result {
    let mut text = String::new();
    for (name, sum) in sums(sh)? {
        writeln!(text, "{sum}  {name}")?;
    }
    Ok(sh.write_file(MANIFEST, text)?)
}

/// File name → checksum of everything in the folder but the manifest.
fn sums(sh: &Shell) -> Result<BTreeMap<String, String>> {
    let mut sums = BTreeMap::new();
    for path in sh.read_dir(VECTORS)? {
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        if path.is_file() && !MANIFEST.ends_with(&name) {
            sums.insert(name, sha256(&sh.read_binary_file(&path)?));
        }
    }
    Ok(sums)
}

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes)
        .iter()
        .fold(String::new(), |mut text, byte| {
            // Writing to a String cannot fail.
            let _ = write!(text, "{byte:02x}");
            text
        })
}
