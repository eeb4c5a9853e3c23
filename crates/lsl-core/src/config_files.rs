//! Where the configuration is read from: files and environment. Spec: lsl-protocol §12.

use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use lsl_proto::config::Files;

/// The files and the environment of this process.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemFiles;

impl Files for SystemFiles {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let mut content = Vec::new();
        // Nobody writes a megabyte of configuration; somebody may name a device.
        std::fs::File::open(path)?
            .take(LONGEST_FILE_BYTES)
            .read_to_end(&mut content)?;
        Ok(content)
    }

    fn variable(&self, name: &str) -> Option<String> {
        std::env::var(name).ok()
    }

    fn account_home(&self) -> Option<PathBuf> {
        lsl_platform::directories::home()
    }

    fn current_dir(&self) -> Option<PathBuf> {
        std::env::current_dir().ok()
    }

    fn may_enter(&self, directory: &Path) -> bool {
        let inside = std::fs::symlink_metadata(directory.join("."));
        inside.map_or_else(
            |error| error.kind() != io::ErrorKind::PermissionDenied,
            |_| true,
        )
    }

    fn has_raised_rights(&self) -> bool {
        lsl_platform::privilege::is_secure_execution()
    }
}

const LONGEST_FILE_BYTES: u64 = 1 << 20;
