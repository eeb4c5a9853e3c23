//! The golden vectors are evidence, captured from liblsl or made by the reference script of LSS/1:
//! nobody edits them to make a test pass.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use sha2::{Digest, Sha256};
use xshell::Shell;

use crate::Result;

const MANIFEST: &str = "SHA256SUMS";

/// Vectors that lie in one folder of this repository, and where their originals lie on the machines
/// that hand them to us. Both seen from the root.
struct Folder {
    vectors: &'static str,
    originals: &'static str,
}

const FOLDERS: [Folder; 3] = [
    Folder {
        vectors: "crates/lsl-proto/tests/vectors",
        originals: "../shared/vectors",
    },
    Folder {
        vectors: "crates/lsl-secure/tests/vectors",
        originals: "../shared/spec",
    },
    Folder {
        vectors: "crates/lsl-xdf/tests/vectors/age",
        originals: "../shared/vectors/age",
    },
];

/// Compare the vectors with the manifests, and with the originals where there are some.
pub(crate) fn check(sh: &Shell) -> Result {
    let mut problems = Vec::new();
    for folder in &FOLDERS {
        let count = folder.check(sh, &mut problems)?;
        println!("vectors: {count} files in {}", folder.vectors);
    }
    if problems.is_empty() {
        println!("vectors: unchanged");
        return Ok(());
    }
    Err(format!("golden vectors: {}", problems.join("; ")).into())
}

/// Write the manifests anew, after new vectors were captured.
pub(crate) fn bless(sh: &Shell) -> Result {
    for folder in &FOLDERS {
        let mut text = String::new();
        for (name, sum) in folder.sums(sh)? {
            writeln!(text, "{sum}  {name}")?;
        }
        sh.write_file(folder.manifest(), text)?;
    }
    Ok(())
}

impl Folder {
    fn manifest(&self) -> String {
        format!("{}/{MANIFEST}", self.vectors)
    }

    /// How many vectors there are.
    fn check(&self, sh: &Shell, problems: &mut Vec<String>) -> Result<usize> {
        let manifest = sh.read_file(self.manifest())?;
        let expected: BTreeMap<&str, &str> = manifest
            .lines()
            .filter_map(|line| line.split_once("  "))
            .map(|(sum, name)| (name, sum))
            .collect();
        let actual = self.sums(sh)?;
        for (name, sum) in &actual {
            match expected.get(name.as_str()) {
                None => problems.push(format!("{name} is not in the manifest")),
                Some(wanted) if wanted != sum => problems.push(format!("{name} was changed")),
                Some(_) => {}
            }
            let original = format!("{}/{name}", self.originals);
            if sh.path_exists(&original) && sha256(&sh.read_binary_file(&original)?) != *sum {
                problems.push(format!("{name} differs from the original"));
            }
        }
        for name in expected.keys().filter(|name| !actual.contains_key(**name)) {
            problems.push(format!("{name} is gone"));
        }
        Ok(actual.len())
    }

    /// File name → checksum of everything in the folder but the manifest.
    fn sums(&self, sh: &Shell) -> Result<BTreeMap<String, String>> {
        let mut sums = BTreeMap::new();
        for path in sh.read_dir(self.vectors)? {
            let name = path
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            if path.is_file() && name != MANIFEST {
                sums.insert(name, sha256(&sh.read_binary_file(&path)?));
            }
        }
        Ok(sums)
    }
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
