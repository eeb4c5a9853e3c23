//! A directory of one test, gone with it.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use lsl_platform::files::{mode_of, set_mode};

pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("lsl-secure-{}-{count}", std::process::id());
        let path = fs::canonicalize(std::env::temp_dir()).unwrap().join(name);
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Writes in place, with a mode whatever the umask.
    pub(crate) fn write(&self, name: &str, text: &str, mode: u32) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        self.chmod(name, mode);
        path
    }

    pub(crate) fn chmod(&self, name: &str, mode: u32) {
        set_mode(&self.path(name), mode).unwrap();
    }

    pub(crate) fn mode(&self, name: &str) -> u32 {
        mode_of(&self.path(name)).unwrap()
    }

    pub(crate) fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).unwrap();
        let mut names: Vec<_> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}

impl AsRef<Path> for Scratch {
    fn as_ref(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Whether a message says `words`. Those of Unix's modes are those of lists on Windows, and paths have other
/// signs there.
pub(crate) fn says(message: &str, words: &str) -> bool {
    if cfg!(windows)
        && ["chmod", "mode ", "0400"]
            .iter()
            .any(|of| words.contains(of))
    {
        message.contains("icacls")
    } else if cfg!(windows) {
        message.replace('\\', "/").contains(words)
    } else {
        message.contains(words)
    }
}
