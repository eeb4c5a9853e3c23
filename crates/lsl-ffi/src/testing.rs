//! Shared parts of stream tests: a C program's outlets and inlets on loopback.

use std::ffi::{CStr, c_char};
use std::sync::Arc;
use std::thread::JoinHandle;

use lsl_core::{ChannelFormat, Selector, StreamInfo};

use crate::common::lsl_destroy_string;
use crate::context::context;
use crate::guard;
use crate::handle::{self, Handle, Object};
use crate::inlet::{lsl_create_inlet, lsl_destroy_inlet, lsl_open_stream};
use crate::outlet::{lsl_create_outlet, lsl_destroy_outlet};
use crate::streaminfo::{InfoObject, lsl_destroy_streaminfo};

/// Longest wait in seconds; only a hang reaches it.
pub(crate) const SOON: f64 = 20.0;

/// Error code that no call returns, to see that it is overwritten.
pub(crate) const UNSET: i32 = 99;

/// Returns a number that is no handle.
pub(crate) fn no_handle() -> Handle {
    std::ptr::without_provenance_mut(0x1234)
}

/// Creates a stream info whose source id is its name.
pub(crate) fn info(name: &str, channels: u32, rate: f64, format: ChannelFormat) -> Handle {
    let info = StreamInfo::new(name, "Test", channels, rate, format, name).unwrap();
    handle::insert(Object::Info(Arc::new(InfoObject::new(info))))
}

/// Creates an outlet with default settings.
pub(crate) fn outlet(name: &str, channels: u32, rate: f64, format: ChannelFormat) -> Handle {
    let info = info(name, channels, rate, format);
    let outlet = lsl_create_outlet(info, 0, 360);
    assert!(!outlet.is_null(), "{}", last_error());
    lsl_destroy_streaminfo(info);
    outlet
}

/// Resolves the stream of this name. Returns its info, with its addresses.
pub(crate) fn resolved(name: &str) -> Handle {
    let selector = Selector::property("name", name).unwrap();
    let limit = std::time::Duration::from_secs_f64(SOON);
    let found = context().resolve_blocking(&selector, 1, limit).unwrap();
    let info = found.into_iter().next().expect(name);
    handle::insert(Object::Info(Arc::new(InfoObject::new(info))))
}

/// Creates an inlet on the stream of this name, not opened yet.
pub(crate) fn inlet(name: &str, recover: bool) -> Handle {
    let info = resolved(name);
    let inlet = lsl_create_inlet(info, 360, 0, i32::from(recover));
    assert!(!inlet.is_null(), "{}", last_error());
    lsl_destroy_streaminfo(info);
    inlet
}

/// Opens an inlet and waits for its stream.
pub(crate) fn open(inlet: Handle) {
    let mut ec = UNSET;
    // SAFETY: `ec` may be written.
    unsafe { lsl_open_stream(inlet, SOON, &raw mut ec) };
    assert_eq!(ec, 0, "{}", last_error());
}

/// A stream: its outlet and an open inlet without recovery.
pub(crate) struct Stream {
    pub(crate) out: Handle,
    pub(crate) inlet: Handle,
}

impl Stream {
    pub(crate) fn new(name: &str, channels: u32, rate: f64, format: ChannelFormat) -> Self {
        let out = outlet(name, channels, rate, format);
        let inlet = inlet(name, false);
        open(inlet);
        Self { out, inlet }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        lsl_destroy_inlet(self.inlet);
        lsl_destroy_outlet(self.out);
    }
}

/// Returns the last error of the thread.
pub(crate) fn last_error() -> String {
    // SAFETY: always a NUL-terminated text.
    let text = unsafe { CStr::from_ptr(guard::last_error()) };
    text.to_string_lossy().into_owned()
}

/// Copies a text that was pulled, up to its NUL, and releases it.
pub(crate) fn take_text(text: *mut c_char) -> Vec<u8> {
    assert!(!text.is_null());
    // SAFETY: pulled texts are NUL-terminated.
    let copy = unsafe { CStr::from_ptr(text) }.to_bytes().to_vec();
    // SAFETY: it belongs to the caller.
    unsafe { lsl_destroy_string(text) };
    copy
}

/// Waits until a condition holds.
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = lsl_core::local_clock() + SOON;
    while !holds() {
        assert!(lsl_core::local_clock() < deadline, "in vain: {what}");
        std::thread::yield_now();
    }
}

/// Handle that may go to other threads, as any number may.
struct Sent(Handle);

// SAFETY: a handle is a number that every thread may use.
unsafe impl Send for Sent {}

/// Runs a call on another thread.
pub(crate) fn on_thread<R: Send + 'static>(
    handle: Handle,
    call: impl FnOnce(Handle) -> R + Send + 'static,
) -> JoinHandle<R> {
    let sent = Sent(handle);
    std::thread::spawn(move || {
        // Capture the whole wrapper, not the pointer inside.
        let sent = { sent };
        call(sent.0)
    })
}
