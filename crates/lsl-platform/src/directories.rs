//! Finds the directories of configuration files.

#[cfg(unix)]
use std::ffi::{CStr, OsStr, OsString};
use std::io::ErrorKind;
#[cfg(unix)]
use std::mem::MaybeUninit;
#[cfg(unix)]
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Returns the home directory: `HOME` if it is an absolute path, else the entry of the password database.
/// An empty or relative `HOME` counts as unset, because it would lead into the working directory. On
/// Windows `%USERPROFILE%` or the system's answer.
pub fn home() -> Option<PathBuf> {
    #[cfg(unix)]
    let home = named_home(std::env::var_os("HOME"));
    #[cfg(windows)]
    let home = std::env::home_dir();
    home
}

/// Returns whether this process may enter a directory and see its content. True also for a missing
/// directory, which has none.
pub fn may_enter(directory: &Path) -> bool {
    let inside = std::fs::symlink_metadata(directory.join("."));
    inside.map_or_else(
        |error| error.kind() != ErrorKind::PermissionDenied,
        |_| true,
    )
}

#[cfg(unix)]
fn named_home(variable: Option<OsString>) -> Option<PathBuf> {
    let named = variable.map(PathBuf::from);
    named
        .filter(|home| home.is_absolute())
        .or_else(home_in_password_database)
}

/// Looks up the home directory of this user. The standard library does so only where `HOME` is unset.
#[cfg(unix)]
#[expect(unsafe_code, reason = "neither std nor rustix looks users up")]
fn home_in_password_database() -> Option<PathBuf> {
    let user = rustix::process::getuid().as_raw();
    let mut texts = vec![0_u8; LONGEST_ENTRY_BYTES];
    let mut entry = MaybeUninit::<libc::passwd>::uninit();
    let mut found = std::ptr::null_mut();
    // SAFETY: all four are valid for writing, and the length is that of the buffer.
    let status = unsafe {
        libc::getpwuid_r(
            user,
            entry.as_mut_ptr(),
            texts.as_mut_ptr().cast(),
            texts.len(),
            &raw mut found,
        )
    };
    if status != 0 || found.is_null() {
        return None;
    }
    // SAFETY: an entry was found, so that it is filled in.
    let directory = unsafe { entry.assume_init() }.pw_dir;
    if directory.is_null() {
        return None;
    }
    // SAFETY: a text that ends with NUL, inside `texts`, which still lives.
    let directory = unsafe { CStr::from_ptr(directory) };
    let directory = PathBuf::from(OsStr::from_bytes(directory.to_bytes()));
    directory.is_absolute().then_some(directory)
}

/// Upper limit for an entry of the password database.
#[cfg(unix)]
const LONGEST_ENTRY_BYTES: usize = 64 << 10;

/// Returns the folder of LSL's configuration files for the whole machine: `/etc/lsl_api`, on Windows
/// `%ProgramData%\lsl_api`. Spec: LSS/1 §11.
#[cfg(unix)]
pub fn system() -> &'static Path {
    Path::new("/etc/lsl_api")
}

/// Returns the folder of LSL's configuration files for the whole machine.
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

    #[test]
    #[cfg(unix)]
    fn an_empty_or_relative_home_counts_as_unset() {
        let unset = named_home(None);
        for useless in ["", "data", "./data"] {
            assert_eq!(named_home(Some(useless.into())), unset, "{useless}");
        }
        assert_eq!(named_home(Some("/h".into())), Some("/h".into()));
        // The user of this test is in the password database or has no home.
        assert!(unset.is_none_or(|home| home.is_absolute()));
    }

    #[test]
    fn what_is_not_there_may_be_entered() {
        assert!(may_enter(&std::env::temp_dir()));
        assert!(may_enter(Path::new("/no/such/home")));
    }
}
