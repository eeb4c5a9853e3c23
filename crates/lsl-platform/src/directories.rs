//! Where configurations belong.

use std::path::{Path, PathBuf};

/// The home directory: `HOME` (which may be empty, or no absolute path: that is the caller's to judge),
/// else that of the password database. On Windows `%USERPROFILE%` or what the system says.
pub fn home() -> Option<PathBuf> {
    // Newer standard libraries take an empty variable for none.
    #[cfg(unix)]
    if let Some(home) = std::env::var_os("HOME") {
        return Some(home.into());
    }
    std::env::home_dir()
}

/// The folder of LSL's configuration files for the whole machine: `/etc/lsl_api`, on Windows
/// `%ProgramData%\lsl_api`. Spec: LSS/1 §11.
#[cfg(unix)]
pub fn system() -> &'static Path {
    Path::new("/etc/lsl_api")
}

/// The folder of LSL's configuration files for the whole machine.
#[cfg(windows)]
pub fn system() -> &'static Path {
    static FOUND: std::sync::OnceLock<PathBuf> = std::sync::OnceLock::new();
    FOUND.get_or_init(|| {
        std::env::var_os("ProgramData")
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
            .unwrap_or_else(|| PathBuf::from(r"C:\ProgramData"))
            .join("lsl_api")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_are_absolute_where_tests_run() {
        assert!(system().is_absolute() && system().ends_with("lsl_api"));
        #[cfg(unix)]
        assert_eq!(system(), Path::new("/etc/lsl_api"));
        assert!(home().is_none_or(|home| home.is_absolute()));
    }
}
