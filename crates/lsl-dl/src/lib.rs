//! Safe wrapper of a shared library with liblsl's C ABI, loaded at run time. Has the calls that a
//! comparison of two implementations needs, for streams of numbers. Knows nothing of our own
//! implementation, except that it may say whether a connection is encrypted.
//!
//! Every object keeps the library alive; the library is never unloaded. Objects may move between threads.
//! The library itself synchronises calls on one object from several threads, as its ABI says.

mod element;
mod info;
mod inlet;
mod outlet;
mod symbols;

use std::ffi::{CStr, NulError, c_char, c_ulong};
use std::path::Path;
use std::sync::Arc;

use libloading::Library;
use symbols::{Handle, Symbols};

pub use element::{Element, Format};
pub use info::Info;
pub use inlet::Inlet;
pub use outlet::Outlet;

/// Error code of the ABI for a timeout.
pub(crate) const TIMEOUT: i32 = -1;

/// Error of a call into the library.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The library cannot be loaded, or is no liblsl.
    #[error("cannot load liblsl: {0}")]
    Load(#[from] libloading::Error),
    /// A text contains a NUL, which C cannot represent.
    #[error("text with a NUL: {0}")]
    Nul(#[from] NulError),
    /// The library returned no object.
    #[error("{0} failed")]
    Refused(&'static str),
    /// The library returned this error code.
    #[error("{function} failed with code {code}{}", meaning(*code))]
    Code {
        /// Name of the function, without the letter of the type.
        function: &'static str,
        /// Negative code that it returned.
        code: i32,
    },
    /// The number of values or timestamps does not fit the stream or each other.
    #[error("{given} where {wanted} or a multiple are needed")]
    Length {
        /// Number of values or timestamps given.
        given: usize,
        /// Required number, or a divisor of it.
        wanted: usize,
    },
}

/// Returns the meaning of an ABI error code; empty for unknown codes.
fn meaning(code: i32) -> &'static str {
    match code {
        TIMEOUT => " (timed out)",
        -2 => " (stream lost)",
        -3 => " (argument)",
        -4 => " (internal)",
        _ => "",
    }
}

/// A loaded library. Clones share it.
#[derive(Debug, Clone)]
pub struct Lsl {
    pub(crate) symbols: Arc<Symbols>,
}

impl Lsl {
    /// Loads the library at `path`. That it has the ABI of liblsl is taken on trust. It is never unloaded,
    /// because its threads may outlive its objects.
    ///
    /// # Errors
    /// [`Error::Load`] if it cannot be loaded or lacks a function.
    #[expect(unsafe_code, reason = "loading runs the initialisers of the library")]
    pub fn load(path: &Path) -> Result<Self, Error> {
        // SAFETY: the initialisers of liblsl may run at any time and on any thread; that the file
        // is liblsl is the caller's promise.
        let library = unsafe { Library::new(path) }?;
        Ok(Self {
            symbols: Arc::new(Symbols::find(library)?),
        })
    }

    /// Returns the version of the library, `major * 100 + minor`.
    #[expect(unsafe_code, reason = "a C function")]
    pub fn library_version(&self) -> i32 {
        // SAFETY: no arguments, no preconditions.
        unsafe { (self.symbols.lsl_library_version)() }
    }

    /// Returns the library's build information; empty if it has none.
    #[expect(unsafe_code, reason = "a C function")]
    pub fn library_info(&self) -> String {
        let Some(ask) = self.symbols.lsl_library_info else {
            return String::new();
        };
        // SAFETY: no arguments, no preconditions.
        let text = unsafe { ask() };
        if text.is_null() {
            return String::new();
        }
        // SAFETY: the text ends with NUL and lives as long as the library.
        let text = unsafe { CStr::from_ptr(text) };
        text.to_string_lossy().into_owned()
    }

    /// Returns whether the library has encrypted sessions, as ours alone does.
    pub fn can_encrypt(&self) -> bool {
        self.symbols.lslx_is_encrypted.is_some()
    }

    /// Returns the time of LSL's clock on this host, in seconds.
    #[expect(unsafe_code, reason = "a C function")]
    pub fn local_clock(&self) -> f64 {
        // SAFETY: no arguments, no preconditions.
        unsafe { (self.symbols.lsl_local_clock)() }
    }

    /// Returns the message of this thread's last failed call; empty if the library keeps none.
    #[expect(unsafe_code, reason = "a C function")]
    pub fn last_error(&self) -> String {
        let Some(ask) = self.symbols.lsl_last_error else {
            return String::new();
        };
        // SAFETY: no arguments, no preconditions.
        let text = unsafe { ask() };
        if text.is_null() {
            return String::new();
        }
        // SAFETY: the text ends with NUL and lives until this thread's next call.
        let text = unsafe { CStr::from_ptr(text) };
        text.to_string_lossy().into_owned()
    }

    /// Copies a text that the caller owns, and frees the original.
    #[expect(unsafe_code, reason = "C functions")]
    pub(crate) fn take_text(&self, text: *mut c_char) -> String {
        if text.is_null() {
            return String::new();
        }
        // SAFETY: the library returned it as a text that ends with NUL.
        let copy = unsafe { CStr::from_ptr(text) }
            .to_string_lossy()
            .into_owned();
        // SAFETY: it came from this library, is the caller's, and is not used any more.
        unsafe { (self.symbols.lsl_destroy_string)(text) };
        copy
    }
}

/// Owned handle, freed by its `destroy` function when dropped.
#[derive(Debug)]
pub(crate) struct Object {
    pub(crate) lsl: Lsl,
    pub(crate) handle: Handle,
    destroy: unsafe extern "C" fn(Handle),
}

// SAFETY: the ABI allows any thread to use any object.
#[expect(unsafe_code, reason = "a raw pointer is not Send by itself")]
unsafe impl Send for Object {}

// SAFETY: all functions called through a shared reference lock what they need, as the ABI promises
// for outlets and inlets; infos are only read.
#[expect(unsafe_code, reason = "a raw pointer is not Sync by itself")]
unsafe impl Sync for Object {}

impl Object {
    pub(crate) fn new(
        lsl: &Lsl,
        handle: Handle,
        destroy: unsafe extern "C" fn(Handle),
        made_by: &'static str,
    ) -> Result<Self, Error> {
        if handle.is_null() {
            return Err(Error::Refused(made_by));
        }
        Ok(Self {
            lsl: lsl.clone(),
            handle,
            destroy,
        })
    }
}

impl Drop for Object {
    #[expect(unsafe_code, reason = "a C function")]
    fn drop(&mut self) {
        // SAFETY: the handle came from the function that `destroy` belongs to, and nobody else
        // owns it.
        unsafe { (self.destroy)(self.handle) }
    }
}

pub(crate) fn check(function: &'static str, code: i32) -> Result<(), Error> {
    if code < 0 {
        Err(Error::Code { function, code })
    } else {
        Ok(())
    }
}

/// Checks that `given` equals `wanted`.
pub(crate) fn check_sample(given: usize, wanted: u32) -> Result<(), Error> {
    let wanted = wanted as usize;
    if given == wanted {
        Ok(())
    } else {
        Err(Error::Length { given, wanted })
    }
}

/// Returns the number of samples that `given` values make. Fails unless they are whole.
pub(crate) fn whole_samples(given: usize, channels: u32) -> Result<u32, Error> {
    let wanted = channels as usize;
    match given.checked_div(wanted) {
        Some(samples) if samples * wanted == given => {
            u32::try_from(samples).map_err(|_| Error::Length { given, wanted })
        }
        _ => Err(Error::Length { given, wanted }),
    }
}

/// Converts a length to C's `unsigned long`, which has 32 bits on Windows.
pub(crate) fn c_count(given: usize) -> Result<c_ulong, Error> {
    c_ulong::try_from(given).map_err(|_| Error::Length {
        given,
        wanted: u32::MAX as usize,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Only failures are tested without a liblsl; `lsl bench` shows that calls work.
    #[test]
    fn what_is_no_liblsl_is_refused() {
        let refused = |path: &Path| matches!(Lsl::load(path), Err(Error::Load(_)));
        assert!(refused(Path::new("no-such-library.so")));
        let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
        assert!(refused(&manifest));
        // A library, but another one.
        if std::env::consts::OS == "linux" {
            assert!(refused(Path::new("libc.so.6")));
        }
    }

    #[test]
    fn only_whole_samples_pass() {
        assert_eq!(whole_samples(12, 4).unwrap(), 3);
        assert_eq!(whole_samples(0, 4).unwrap(), 0);
        for (given, channels) in [(13, 4), (3, 4), (4, 0)] {
            assert!(whole_samples(given, channels).is_err());
        }
        assert!(check_sample(4, 4).is_ok());
        assert!(check_sample(5, 4).is_err());
    }
}
