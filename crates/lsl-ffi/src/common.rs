//! `lsl/common.h`: versions, clock, configuration, strings, last error. Spec: c-abi §4.

#[cfg(test)]
use std::ffi::CStr;
use std::ffi::{CString, c_char, c_ulong};
use std::path::PathBuf;
use std::sync::{Mutex, OnceLock, PoisonError};

use lsl_core::Context;
use lsl_core::config::Overrides;

use crate::context::context;
use crate::guard::{self, guard};
use crate::{security, strings};

/// Version of the liblsl whose functions and behaviour this library has, times 100.
const LIBRARY_VERSION: i32 = 118;

/// Newest protocol version spoken, times 100.
const PROTOCOL_VERSION: i32 = 110;

/// Start of [`lsl_library_info`]: name, version and secure sessions of this library. The policy follows.
const LIBRARY: &str = concat!(
    "lsl-rs ",
    env!("CARGO_PKG_VERSION"),
    " (liblsl 1.18 ABI in Rust)/lsl-secure:LSS1;policy:"
);

/// Returns the protocol version times 100: 110, or less if `tuning.UseProtocolVersion` says so. Reads the
/// configuration. Spec: c-abi §4.
#[unsafe(no_mangle)]
pub extern "C" fn lsl_protocol_version() -> i32 {
    guard(PROTOCOL_VERSION, || {
        let configured = context().config().tuning().protocol_version;
        i32::try_from(configured).map_or(PROTOCOL_VERSION, |version| version.min(PROTOCOL_VERSION))
    })
}

/// Returns the version of liblsl that this library replaces, times 100. Spec: c-abi §4.
#[unsafe(no_mangle)]
pub extern "C" fn lsl_library_version() -> i32 {
    guard(LIBRARY_VERSION, || LIBRARY_VERSION)
}

/// Returns the name and version of this library and its policy, as in `…/lsl-secure:LSS1;policy:required`.
/// The policy is `off`, `migrate`, `required`, or `unusable` if the security configuration is broken.
/// Static text, never NULL. Reads the security configuration, but not `lsl_api.cfg`, which may still be
/// named. Spec: c-abi §4, LSS/1 §11.
#[unsafe(no_mangle)]
pub extern "C" fn lsl_library_info() -> *const c_char {
    static INFO: OnceLock<CString> = OnceLock::new();
    guard(c"lsl-rs".as_ptr(), || {
        let text = INFO.get_or_init(|| {
            let policy = security::policy_of_process().map_or("unusable", security::policy_name);
            CString::new(format!("{LIBRARY}{policy}")).unwrap_or_default()
        });
        text.as_ptr()
    })
}

/// Returns the seconds of the clock that all LSL programs on this host share. Spec: c-abi §4.
#[unsafe(no_mangle)]
pub extern "C" fn lsl_local_clock() -> f64 {
    guard(0.0, lsl_core::local_clock)
}

/// Returns the text of the thread's last recorded error, at most 511 bytes. Never NULL, and the same
/// address for the life of the thread. Success does not clear it. Spec: c-abi §3.3.
#[unsafe(no_mangle)]
pub extern "C" fn lsl_last_error() -> *const c_char {
    guard(c"".as_ptr(), guard::last_error)
}

/// Releases a text that the library gave to the caller, as `free` does. NULL is ignored. Spec: c-abi §4, §11.
///
/// # Safety
/// `text` is NULL or was given by the library and not released yet.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lsl_destroy_string(text: *mut c_char) {
    // SAFETY: the caller vouches for what `release` asks.
    guard((), || unsafe { strings::release(text) });
}

/// Releases the texts in `texts[0..count]`; NULL entries are skipped. Neither frees nor changes the array
/// itself; a NULL array is ignored. Spec: c-abi §4.
///
/// # Safety
/// `texts` is NULL or has `count` entries, each of them good for [`lsl_destroy_string`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lsl_destroy_string_array(texts: *mut *mut c_char, count: c_ulong) {
    guard((), || {
        if texts.is_null() {
            return;
        }
        let count = usize::try_from(count).unwrap_or(0);
        // SAFETY: not NULL, and the caller vouches for the length.
        let texts = unsafe { std::slice::from_raw_parts(texts, count) };
        for &text in texts {
            // SAFETY: the caller vouches for each entry.
            unsafe { strings::release(text) };
        }
    });
}

/// Names a configuration file, ahead of the usual places but after `LSLAPICFG`. Has no effect once the
/// configuration was needed; NULL is ignored. Spec: c-abi §4.
///
/// # Safety
/// `path` is NULL or a NUL-terminated text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lsl_set_config_filename(path: *const c_char) {
    guard((), || {
        // SAFETY: the caller vouches for it.
        if let Some(path) = unsafe { strings::bytes(path) } {
            configure(|overrides| overrides.file = Some(file_name(path)));
        }
    });
}

/// Supplies the configuration as text, ahead of every file. Has no effect once the configuration was
/// needed; NULL is ignored. Spec: c-abi §4.
///
/// # Safety
/// `content` is NULL or a NUL-terminated text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lsl_set_config_content(content: *const c_char) {
    guard((), || {
        // SAFETY: the caller vouches for it.
        if let Some(content) = unsafe { strings::bytes(content) } {
            let content = String::from_utf8_lossy(content).into_owned();
            configure(|overrides| overrides.content = Some(content));
        }
    });
}

/// Changes the overrides of the configuration. File and content are set by different calls, and one does
/// not undo the other.
fn configure(change: impl FnOnce(&mut Overrides)) {
    static CHOSEN: Mutex<Overrides> = Mutex::new(Overrides {
        content: None,
        file: None,
    });
    let mut chosen = CHOSEN.lock().unwrap_or_else(PoisonError::into_inner);
    change(&mut chosen);
    Context::configure_global(chosen.clone());
}

#[cfg(unix)]
fn file_name(bytes: &[u8]) -> PathBuf {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    OsStr::from_bytes(bytes).into()
}

#[cfg(not(unix))]
fn file_name(bytes: &[u8]) -> PathBuf {
    String::from_utf8_lossy(bytes).into_owned().into()
}

/// Copies a text that the library gave, as a C program prints it. For tests.
#[cfg(test)]
pub(crate) fn shown(text: *const c_char) -> String {
    assert!(!text.is_null());
    // SAFETY: the library gives NUL-terminated texts, and the tests look while they live.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use std::ptr;

    use super::*;

    #[test]
    fn versions_and_clock() {
        assert_eq!((lsl_library_version(), lsl_protocol_version()), (118, 110));
        // SAFETY: a static text.
        let info = unsafe { CStr::from_ptr(lsl_library_info()) };
        let info = info.to_str().unwrap();
        assert!(info.starts_with("lsl-rs ") && info.contains(env!("CARGO_PKG_VERSION")));
        assert!(info.ends_with("/lsl-secure:LSS1;policy:off"), "{info}");
        assert_eq!(info.as_ptr().addr(), lsl_library_info().addr(), "static");
        let before = lsl_local_clock();
        assert!(before > 0.0 && lsl_local_clock() >= before);
    }

    #[test]
    fn last_error_has_one_address_per_thread() {
        let here = lsl_last_error();
        guard::set_last_error("here");
        assert_eq!(here, lsl_last_error());
        let there = std::thread::spawn(|| lsl_last_error().addr());
        assert_ne!(there.join().unwrap(), here.addr());
    }

    #[test]
    fn strings_are_released_alone_and_in_arrays() {
        let one = strings::allocate(b"one");
        // SAFETY: just allocated; NULL is allowed.
        unsafe { lsl_destroy_string(one) };
        // SAFETY: NULL is allowed.
        unsafe { lsl_destroy_string(ptr::null_mut()) };
        let mut texts = [
            strings::allocate(b"a"),
            ptr::null_mut(),
            strings::allocate(b""),
        ];
        let before = texts;
        // SAFETY: three entries, each NULL or just allocated.
        unsafe { lsl_destroy_string_array(texts.as_mut_ptr(), 3) };
        assert_eq!(texts, before, "the array stays as it was");
        for count in [0, 5] {
            // SAFETY: NULL is allowed with any count.
            unsafe { lsl_destroy_string_array(ptr::null_mut(), count) };
        }
    }

    #[test]
    fn null_configuration_is_ignored() {
        // SAFETY: NULL is allowed.
        unsafe { lsl_set_config_content(ptr::null()) };
        // SAFETY: NULL is allowed.
        unsafe { lsl_set_config_filename(ptr::null()) };
        assert_eq!(file_name(b"/a/b.cfg"), PathBuf::from("/a/b.cfg"));
    }
}
