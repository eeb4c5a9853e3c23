//! `lsl/outlet.h`: creating and destroying outlets, and their readers. The push functions are in `push`
//! (numbers, raw) and `push_text`. Spec: c-abi §7.

pub(crate) mod push;
pub(crate) mod push_text;
#[cfg(test)]
mod tests;

use std::ptr;
use std::sync::Arc;

use lsl_core::{BufferLength, ChannelFormat, Outlet, Pushthrough};
use lsl_platform::fork::Generation;
use lsl_platform::reentry::is_interrupting;

use crate::context::context;
use crate::guard::{code, fail, guard};
use crate::handle::{self, Handle, Object};
use crate::memory::{Outcome, refuse};
use crate::streaminfo::InfoObject;
use crate::turns::{Progress, in_turns};

/// Outlet for which C has a handle.
#[derive(Debug)]
pub(crate) struct OutletObject {
    pub(crate) outlet: Outlet,
    channels: usize,
    format: ChannelFormat,
    /// Process that made it: a forked child has no threads for it.
    owner: Generation,
}

/// Returns the outlet behind a handle: -3 for anything else, -4 for one inherited by a forked child. In a
/// signal handler that interrupted another call it fails with -4 and no text, instead of waiting for its
/// locks.
pub(crate) fn find(handle: Handle) -> Outcome<Arc<OutletObject>> {
    if is_interrupting() {
        return Err(code::INTERNAL);
    }
    let object =
        handle::outlet(handle).ok_or_else(|| refuse(code::ARGUMENT, "this is not an outlet"))?;
    if object.owner.is_current() {
        Ok(object)
    } else {
        let text = "this outlet belongs to the parent process";
        Err(refuse(code::INTERNAL, text))
    }
}

/// `lsl_create_outlet`: offers a stream with the default transport; see [`lsl_create_outlet_ex`].
/// Spec: c-abi §7.1.
#[unsafe(no_mangle)]
pub extern "C" fn lsl_create_outlet(info: Handle, chunk_size: i32, max_buffered: i32) -> Handle {
    guard(ptr::null_mut(), || {
        create(info, chunk_size, max_buffered, 0)
    })
}

/// `lsl_create_outlet_ex`: offers the stream that `info` describes (copied). `chunk_size` is ignored as in
/// liblsl; `max_buffered` limits the lag of a reader, in the unit that `flags` says. NULL with a text in
/// `lsl_last_error` on failure. Spec: c-abi §7.1.
#[unsafe(no_mangle)]
pub extern "C" fn lsl_create_outlet_ex(
    info: Handle,
    chunk_size: i32,
    max_buffered: i32,
    flags: i32,
) -> Handle {
    guard(ptr::null_mut(), || {
        create(info, chunk_size, max_buffered, flags)
    })
}

/// `lsl_destroy_outlet`: ends the stream. Threads that wait on it return at once; NULL and handles
/// destroyed before are ignored. Spec: c-abi §7.1, §3.4.
#[unsafe(no_mangle)]
pub extern "C" fn lsl_destroy_outlet(out: Handle) {
    guard((), || {
        if handle::outlet(out).is_none() {
            return;
        }
        let Some(Object::Outlet(object)) = handle::remove(out) else {
            return;
        };
        if object.owner.is_current() {
            object.outlet.close();
        } else {
            // Its threads, and maybe holders of its locks, live in the parent only.
            std::mem::forget(object);
        }
    });
}

/// `lsl_get_info`: returns a new info of the stream as it is announced, for the caller to destroy; NULL for
/// anything but an outlet. Spec: c-abi §7.1.
#[unsafe(no_mangle)]
pub extern "C" fn lsl_get_info(out: Handle) -> Handle {
    guard(ptr::null_mut(), || match find(out) {
        Ok(object) => {
            let info = InfoObject::new(object.outlet.info().clone());
            handle::insert(Object::Info(Arc::new(info)))
        }
        Err(_) => ptr::null_mut(),
    })
}

/// `lsl_have_consumers`: returns 1 if an inlet reads the stream now, else 0. Spec: c-abi §7.1.
#[unsafe(no_mangle)]
pub extern "C" fn lsl_have_consumers(out: Handle) -> i32 {
    guard(0, || {
        find(out).map_or(0, |object| i32::from(object.outlet.have_consumers()))
    })
}

/// `lsl_wait_for_consumers`: blocks until an inlet reads the stream (1), or `timeout` seconds passed
/// or the outlet was destroyed (0). Spec: c-abi §7.1.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn lsl_wait_for_consumers(out: Handle, timeout: f64) -> i32 {
    in_turns(timeout, |turn| {
        guard(Progress::Break(0), || {
            let Ok(object) = find(out) else {
                return Progress::Break(0);
            };
            let waiting = object.outlet.blocking();
            if waiting.wait_for_consumers(turn.timeout()) {
                return Progress::Break(1);
            }
            turn.nothing(0)
        })
    })
}

/// Returns the buffer length that `max_buffered` means with these transport flags. Spec: c-abi §7.1.
pub(crate) fn buffer_length(length: i32, flags: i32) -> Outcome<BufferLength> {
    match (flags & BUFFER_SAMPLES != 0, flags & BUFFER_THOUSANDTHS != 0) {
        (false, false) => Ok(BufferLength::Seconds(f64::from(length))),
        // Values below 1 become one sample.
        (true, false) => Ok(BufferLength::Samples(usize::try_from(length).unwrap_or(0))),
        (false, true) => Ok(BufferLength::Milliseconds(
            u32::try_from(length).unwrap_or(0),
        )),
        (true, true) => Err(refuse(
            code::ARGUMENT,
            "transp_bufsize_samples and transp_bufsize_thousandths are mutually exclusive",
        )),
    }
}

/// Returns a copy of the info behind a handle; -3 if there is none.
pub(crate) fn info_of(info: Handle) -> Outcome<lsl_core::StreamInfo> {
    match handle::info(info) {
        Some(object) => Ok(object.snapshot()),
        None => Err(refuse(code::ARGUMENT, "this is not a stream info")),
    }
}

fn create(info: Handle, _chunk_size: i32, max_buffered: i32, flags: i32) -> Handle {
    try_create(info, max_buffered, flags).unwrap_or(ptr::null_mut())
}

fn try_create(info: Handle, max_buffered: i32, flags: i32) -> Outcome<Handle> {
    let info = info_of(info)?;
    let object = OutletObject {
        channels: info.channel_count() as usize,
        format: info.channel_format(),
        owner: handle::owner(),
        outlet: Outlet::builder(info)
            .context(&context())
            .buffer(buffer_length(max_buffered, flags)?)
            .synchronous(flags & SYNC_BLOCKING != 0)
            .open()
            .map_err(|error| fail(&error))?,
    };
    Ok(handle::insert(Object::Outlet(Arc::new(object))))
}

/// Converts a `pushthrough` argument: 0 holds the sample, any other value sends it.
fn pushthrough(value: i32) -> Pushthrough {
    if value == 0 {
        Pushthrough::Hold
    } else {
        Pushthrough::Flush
    }
}

/// Flags of `lsl_transport_options_t`. Spec: c-abi §2.
const BUFFER_SAMPLES: i32 = 1;
const BUFFER_THOUSANDTHS: i32 = 2;
const SYNC_BLOCKING: i32 = 4;
