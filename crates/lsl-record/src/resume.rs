//! Recordings that a crash left without their end. The journal beside them tells. Spec: recorder §3.4.

use std::fs;
use std::path::{Path, PathBuf};

use lsl_xdf::is_being_written;

/// Returns the other recordings in the same folder that have no end and are not being written,
/// sorted. `lsl_xdf::repair` adds the missing end.
pub fn unfinished_beside(path: &Path) -> Vec<PathBuf> {
    let folder = path.parent().filter(|it| !it.as_os_str().is_empty());
    let Ok(entries) = fs::read_dir(folder.unwrap_or_else(|| Path::new("."))) else {
        return Vec::new();
    };
    let mut found: Vec<PathBuf> = entries
        .filter_map(|entry| {
            let name = entry.ok()?.file_name();
            let name = name.to_str()?.strip_suffix(".lslj")?;
            let file = path.with_file_name(name);
            // Nobody named it, so that a link is not followed.
            let is_file = fs::symlink_metadata(&file).is_ok_and(|it| it.is_file());
            let is_left = file != path && is_file && !is_being_written(&file).unwrap_or(true);
            is_left.then_some(file)
        })
        .collect();
    found.sort();
    found
}
