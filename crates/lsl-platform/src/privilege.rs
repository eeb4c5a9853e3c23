//! Rights of this process, and the number of descriptors it may open. Decides nothing: which files it
//! should read is the caller's rule.

use std::fs;
use std::io;

use rustix::process::{Resource, getegid, geteuid, getgid, getrlimit, getuid};

/// Returns whether this process has more rights than the user who started it (setuid, setgid, file
/// capabilities: `AT_SECURE`). That user controls the environment. True also if the kernel does not tell
/// because the process is protected from inspection.
pub fn is_secure_execution() -> bool {
    if getuid() != geteuid() || getgid() != getegid() || is_tainted() {
        return true;
    }
    // Through a file, because asking libc is unsafe code. Only root may open this file of a process with
    // raised rights, so that a denial is an answer too. A missing file means no /proc.
    match fs::read("/proc/self/auxv") {
        Ok(vector) => at_secure(&vector),
        Err(error) => error.kind() == io::ErrorKind::PermissionDenied,
    }
}

/// Returns whether the program began with raised rights, even if it gave them up: Apple's systems remember
/// it.
#[cfg(target_vendor = "apple")]
#[expect(unsafe_code, reason = "neither std nor rustix asks for it")]
fn is_tainted() -> bool {
    unsafe extern "C" {
        safe fn issetugid() -> std::ffi::c_int;
    }
    issetugid() != 0
}

/// Returns false: elsewhere the auxiliary vector says more.
#[cfg(not(target_vendor = "apple"))]
fn is_tainted() -> bool {
    false
}

/// Returns the limit of open descriptors of this process; `None` without a limit.
pub fn open_file_limit() -> Option<u64> {
    getrlimit(Resource::Nofile).current
}

/// Returns whether `AT_SECURE` is set in an auxiliary vector: pairs of machine words, key and value.
fn at_secure(vector: &[u8]) -> bool {
    const AT_SECURE: usize = 23;
    const WORD: usize = size_of::<usize>();
    let word = |bytes: &[u8]| bytes.try_into().map_or(0, usize::from_ne_bytes);
    vector.chunks_exact(2 * WORD).any(|pair| {
        let (key, value) = pair.split_at(WORD);
        word(key) == AT_SECURE && word(value) != 0
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_secure_bit_is_found_in_a_vector() {
        let check = |pairs: &[(usize, usize)], expected| {
            let mut bytes = Vec::new();
            for (key, value) in pairs {
                bytes.extend(key.to_ne_bytes());
                bytes.extend(value.to_ne_bytes());
            }
            assert_eq!(at_secure(&bytes), expected, "{pairs:?}");
        };
        check(&[], false);
        check(&[(23, 0), (0, 0)], false);
        check(&[(16, 23), (23, 1), (0, 0)], true);
        check(&[(6, 4096), (16, 23)], false);
    }

    #[test]
    fn a_test_runs_without_raised_rights_and_with_descriptors() {
        assert!(!is_secure_execution());
        assert_ne!(open_file_limit(), Some(0));
    }
}
