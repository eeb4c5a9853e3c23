//! Safe calls into a shared library with liblsl's C ABI, loaded at run time: what a comparison of
//! two implementations needs, float32 streams only. Knows nothing of our own implementation.
//!
//! Every object keeps the library alive; the library is never unloaded. Objects may move between
//! threads, and calls on one object from several threads are left to the library, as its ABI says.

mod symbols;

use std::ffi::{CString, NulError};
use std::path::Path;
use std::ptr::null_mut;
use std::sync::Arc;

use libloading::Library;
use symbols::{Handle, Symbols};

/// Code of float32 in the ABI.
const FLOAT32: i32 = 1;

/// Code of a call that waited in vain.
const TIMEOUT: i32 = -1;

/// Why a call did not do what it should.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no such library, or it is no liblsl.
    #[error("cannot load liblsl: {0}")]
    Load(#[from] libloading::Error),
    /// A text holds a NUL, which C cannot take.
    #[error("text with a NUL: {0}")]
    Nul(#[from] NulError),
    /// The library returned no object.
    #[error("{0} failed")]
    Refused(&'static str),
    /// The library returned this error code.
    #[error("{function} failed with code {code}")]
    Code {
        /// The function that was called.
        function: &'static str,
        /// Its answer.
        code: i32,
    },
    /// The number of values is not the number of channels.
    #[error("{given} values for {channels} channels")]
    Length {
        /// Values given.
        given: usize,
        /// Channels of the stream.
        channels: usize,
    },
}

/// A loaded library. Clones share it.
#[derive(Debug, Clone)]
pub struct Lsl {
    symbols: Arc<Symbols>,
}

impl Lsl {
    /// Loads the library at `path`, which must be liblsl or have its ABI: what stands behind the
    /// names is taken on trust. It is never unloaded, because its threads may outlive its objects.
    ///
    /// # Errors
    /// [`Error::Load`] when it cannot be loaded or lacks a function.
    #[expect(unsafe_code, reason = "loading runs the initialisers of the library")]
    pub fn load(path: &Path) -> Result<Self, Error> {
        // SAFETY: the initialisers of liblsl may run at any time and on any thread; that the file
        // is liblsl is the caller's promise.
        let library = unsafe { Library::new(path) }?;
        Ok(Self {
            symbols: Arc::new(Symbols::find(library)?),
        })
    }

    /// Version of the library, `major * 100 + minor`.
    #[expect(unsafe_code, reason = "a C function")]
    pub fn library_version(&self) -> i32 {
        // SAFETY: no arguments, no preconditions.
        unsafe { (self.symbols.lsl_library_version)() }
    }

    /// Seconds of the clock all of LSL shares on a host.
    #[expect(unsafe_code, reason = "a C function")]
    pub fn local_clock(&self) -> f64 {
        // SAFETY: no arguments, no preconditions.
        unsafe { (self.symbols.lsl_local_clock)() }
    }

    /// Describes a float32 stream; `source_id` may be empty.
    ///
    /// # Errors
    /// [`Error::Nul`], and [`Error::Refused`] when the library does not accept the description.
    #[expect(unsafe_code, reason = "a C function")]
    pub fn stream_info(
        &self,
        name: &str,
        stream_type: &str,
        channels: u16,
        nominal_srate: f64,
        source_id: &str,
    ) -> Result<Info, Error> {
        let (name, stream_type) = (CString::new(name)?, CString::new(stream_type)?);
        let source_id = CString::new(source_id)?;
        // SAFETY: the texts end with NUL and live until the call returns, which copies them.
        let handle = unsafe {
            (self.symbols.lsl_create_streaminfo)(
                name.as_ptr(),
                stream_type.as_ptr(),
                channels.into(),
                nominal_srate,
                FLOAT32,
                source_id.as_ptr(),
            )
        };
        let destroy = self.symbols.lsl_destroy_streaminfo;
        let object = Object::new(self, handle, destroy, "lsl_create_streaminfo")?;
        Ok(Info { object, channels })
    }

    /// Finds one float32 stream of so many `channels` with this value of a property, waiting at most
    /// `timeout_secs`.
    ///
    /// # Errors
    /// [`Error::Code`] when the library refuses the query.
    #[expect(unsafe_code, reason = "a C function")]
    pub fn resolve_one(
        &self,
        property: &str,
        value: &str,
        channels: u16,
        timeout_secs: f64,
    ) -> Result<Option<Info>, Error> {
        let (property, value) = (CString::new(property)?, CString::new(value)?);
        let mut handle = null_mut();
        // SAFETY: one slot is offered and there is one; the texts end with NUL and live until the
        // call returns.
        let found = unsafe {
            (self.symbols.lsl_resolve_byprop)(
                &raw mut handle,
                1,
                property.as_ptr(),
                value.as_ptr(),
                1,
                timeout_secs,
            )
        };
        check("lsl_resolve_byprop", found)?;
        if found == 0 {
            return Ok(None);
        }
        let destroy = self.symbols.lsl_destroy_streaminfo;
        let object = Object::new(self, handle, destroy, "lsl_resolve_byprop")?;
        Ok(Some(Info { object, channels }))
    }
}

/// Description of a stream.
#[derive(Debug)]
pub struct Info {
    object: Object,
    channels: u16,
}

/// Sends a float32 stream.
#[derive(Debug)]
pub struct Outlet {
    object: Object,
    channels: u16,
}

impl Outlet {
    /// Announces the stream and serves it; keeps `max_buffered_secs` for slow readers.
    ///
    /// # Errors
    /// [`Error::Refused`] when the library cannot serve it.
    #[expect(unsafe_code, reason = "a C function")]
    pub fn open(info: &Info, max_buffered_secs: i32) -> Result<Self, Error> {
        let lsl = &info.object.lsl;
        // SAFETY: the info is alive; the call copies it.
        let handle =
            unsafe { (lsl.symbols.lsl_create_outlet)(info.object.handle, 0, max_buffered_secs) };
        let destroy = lsl.symbols.lsl_destroy_outlet;
        Ok(Self {
            object: Object::new(lsl, handle, destroy, "lsl_create_outlet")?,
            channels: info.channels,
        })
    }

    /// Whether anybody reads the stream.
    #[expect(unsafe_code, reason = "a C function")]
    pub fn have_consumers(&self) -> bool {
        // SAFETY: the outlet is alive.
        unsafe { (self.object.lsl.symbols.lsl_have_consumers)(self.object.handle) != 0 }
    }

    /// Waits until somebody reads the stream; false when the time is up.
    #[expect(unsafe_code, reason = "a C function")]
    pub fn wait_for_consumers(&self, timeout_secs: f64) -> bool {
        let wait = self.object.lsl.symbols.lsl_wait_for_consumers;
        // SAFETY: the outlet is alive and cannot be destroyed while it is borrowed.
        unsafe { wait(self.object.handle, timeout_secs) != 0 }
    }

    /// Sends one sample at once; `timestamp` in seconds of the local clock.
    ///
    /// # Errors
    /// [`Error::Length`], and [`Error::Code`] when the library reports one.
    #[expect(unsafe_code, reason = "a C function")]
    pub fn push(&self, values: &[f32], timestamp: f64) -> Result<(), Error> {
        check_length(values.len(), self.channels)?;
        let push = self.object.lsl.symbols.lsl_push_sample_ftp;
        // SAFETY: the outlet is alive and reads as many values as it has channels, which were
        // counted.
        let code = unsafe { push(self.object.handle, values.as_ptr(), timestamp, 1) };
        check("lsl_push_sample_ftp", code)
    }
}

/// Receives a float32 stream.
#[derive(Debug)]
pub struct Inlet {
    object: Object,
    channels: u16,
}

impl Inlet {
    /// An inlet for the stream, not yet connected, that does not recover from losses.
    ///
    /// # Errors
    /// [`Error::Refused`] when the library does not accept the description.
    #[expect(unsafe_code, reason = "a C function")]
    pub fn new(info: &Info, max_buffered_secs: i32) -> Result<Self, Error> {
        let lsl = &info.object.lsl;
        // SAFETY: the info is alive; the call copies it.
        let handle =
            unsafe { (lsl.symbols.lsl_create_inlet)(info.object.handle, max_buffered_secs, 0, 0) };
        let destroy = lsl.symbols.lsl_destroy_inlet;
        Ok(Self {
            object: Object::new(lsl, handle, destroy, "lsl_create_inlet")?,
            channels: info.channels,
        })
    }

    /// Connects.
    ///
    /// # Errors
    /// [`Error::Code`], also when the time is up.
    #[expect(unsafe_code, reason = "a C function")]
    pub fn open_stream(&self, timeout_secs: f64) -> Result<(), Error> {
        let mut code = 0;
        let open = self.object.lsl.symbols.lsl_open_stream;
        // SAFETY: the inlet is alive; the code is written before the call returns.
        unsafe { open(self.object.handle, timeout_secs, &raw mut code) };
        check("lsl_open_stream", code)
    }

    /// Receives one sample into `values` and gives its timestamp; `None` when the time is up.
    ///
    /// # Errors
    /// [`Error::Length`], and [`Error::Code`] when the stream is lost.
    #[expect(unsafe_code, reason = "a C function")]
    pub fn pull(&self, values: &mut [f32], timeout_secs: f64) -> Result<Option<f64>, Error> {
        check_length(values.len(), self.channels)?;
        let mut code = 0;
        let pull = self.object.lsl.symbols.lsl_pull_sample_f;
        // SAFETY: the inlet is alive; as many values are announced as there is room for; the code
        // is written before the call returns.
        let timestamp = unsafe {
            pull(
                self.object.handle,
                values.as_mut_ptr(),
                self.channels.into(),
                timeout_secs,
                &raw mut code,
            )
        };
        if code != TIMEOUT {
            check("lsl_pull_sample_f", code)?;
        }
        Ok(Some(timestamp).filter(|timestamp| *timestamp != 0.0))
    }
}

/// A handle and how to give it back.
#[derive(Debug)]
struct Object {
    lsl: Lsl,
    handle: Handle,
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
    fn new(
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

fn check(function: &'static str, code: i32) -> Result<(), Error> {
    if code < 0 {
        Err(Error::Code { function, code })
    } else {
        Ok(())
    }
}

fn check_length(given: usize, channels: u16) -> Result<(), Error> {
    let channels = usize::from(channels);
    if given == channels {
        Ok(())
    } else {
        Err(Error::Length { given, channels })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nothing here has a liblsl; that calls work is shown by `latency`.
    #[test]
    fn what_is_no_liblsl_is_refused() {
        let refused = |path: &Path| matches!(Lsl::load(path), Err(Error::Load(_)));
        assert!(refused(Path::new("no-such-library.so")));
        let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
        assert!(refused(&manifest));
        // A library, but another one.
        if cfg!(target_os = "linux") {
            assert!(refused(Path::new("libc.so.6")));
        }
    }
}
