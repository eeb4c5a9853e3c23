//! `lsl/inlet.h`: creating and destroying inlets, their connection, time and info. The pull functions are
//! in `pull` (numbers, raw) and `pull_text`. Spec: c-abi §8.

#[cfg(test)]
mod conversions;
pub(crate) mod pull;
pub(crate) mod pull_text;
#[cfg(test)]
mod tests;

use std::cell::Cell;
use std::ptr;
use std::sync::{Arc, OnceLock};

use lsl_core::{BlockingInlet, ChannelFormat, Error, Inlet, ProcessingOptions, Result};
use lsl_platform::fork::Generation;
use lsl_platform::signal::Signal;

use crate::context::context;
use crate::guard::{code, fail, guard, set_last_error};
use crate::handle::{self, Handle, Object};
use crate::memory::{Outcome, refuse, status, store};
use crate::outlet::{buffer_length, info_of};
use crate::streaminfo::hand_out;
use crate::turns::{Progress, Turn, with_code_in_turns};

/// Inlet for which C has a handle.
#[derive(Debug)]
pub(crate) struct InletObject {
    pub(crate) inlet: Inlet,
    /// Signal of `lslx_inlet_fd` and `lslx_inlet_handle`; `None` if it could not be created.
    pub(crate) signal: OnceLock<Option<Arc<Signal>>>,
    channels: usize,
    format: ChannelFormat,
    /// Process that made it: a forked child has no threads for it.
    owner: Generation,
}

impl InletObject {
    /// Returns the code of a failed call. `lsl_last_error` gets its text and, if security is the reason,
    /// the cause and remedy. Spec: LSS/1 §4.2.
    fn fail(&self, error: &Error) -> i32 {
        let code = fail(error);
        if let Some(reason) = self.inlet.last_security_error() {
            let text = error.to_string();
            // The text of a lost stream contains it already.
            if !text.contains(&reason) {
                set_last_error(&format!("{text} {reason}"));
            }
        }
        code
    }

    /// Returns the pulls of this turn: only the first one connects, or what another thread closes meanwhile would be
    /// opened again.
    #[inline]
    fn pulls(&self, turn: Turn) -> BlockingInlet<'_> {
        let calls = self.inlet.blocking();
        if turn.is_first {
            calls
        } else {
            calls.without_connecting()
        }
    }

    /// Converts the result of a turn. A timeout is `Continue` unless the turn is the last.
    fn outcome<T>(&self, turn: Turn, result: Result<T>) -> Outcome<Progress<T>> {
        match result {
            Ok(value) => Ok(Progress::Break(value)),
            Err(Error::Timeout { .. }) if !turn.is_last => Ok(Progress::Continue(turn.done)),
            Err(error) => Err(self.fail(&error)),
        }
    }

    /// Records the security reason, if there is one, for a pull without a sample. That is no error in liblsl.
    fn nothing_came(&self) {
        if let Some(reason) = self.inlet.last_security_error() {
            set_last_error(&reason);
        }
    }
}

/// Returns the inlet behind a handle, or -3. In a forked child an inlet that its parent never used is made
/// anew, as in liblsl; any other fails with -2.
pub(crate) fn find(handle: Handle) -> Outcome<Arc<InletObject>> {
    let object =
        handle::inlet(handle).ok_or_else(|| refuse(code::ARGUMENT, "this is not an inlet"))?;
    if object.owner.is_current() {
        return Ok(object);
    }
    let anew = object.inlet.in_forked_child(&context());
    let Some(inlet) = anew.map_err(|error| fail(&error))? else {
        let text = "The stream read by this inlet has been lost: the inlet was used by the parent \
                    process before the fork.";
        return Err(refuse(code::LOST, text));
    };
    let anew = InletObject {
        signal: OnceLock::new(),
        owner: handle::owner(),
        inlet,
        ..*object
    };
    // Another thread of this process may have replaced or destroyed it first.
    handle::replace_inherited(handle, &object, anew);
    find(handle)
}

/// Finds an inlet for a call that waits: one destroyed between two turns is lost, as within a turn.
fn find_for(handle: Handle, turn: Turn) -> Outcome<Arc<InletObject>> {
    if !turn.is_first && handle::inlet(handle).is_none() {
        let reason = "the inlet was destroyed".into();
        return Err(fail(&Error::Lost { reason }));
    }
    find(handle)
}

/// `lsl_create_inlet`: creates an inlet with the default transport; see [`lsl_create_inlet_ex`].
/// Spec: c-abi §8.1.
#[unsafe(no_mangle)]
pub extern "C" fn lsl_create_inlet(
    info: Handle,
    max_buflen: i32,
    max_chunklen: i32,
    recover: i32,
) -> Handle {
    guard(ptr::null_mut(), || {
        create(info, max_buflen, max_chunklen, recover, 0).unwrap_or(ptr::null_mut())
    })
}

/// `lsl_create_inlet_ex`: creates an inlet for the stream that `info` describes (copied), without network
/// traffic. `max_buflen` limits the samples that wait here, in the unit that `flags` says. `max_chunklen`
/// limits the samples sent together (0: the sender decides). NULL with a text in `lsl_last_error` on
/// failure. Spec: c-abi §8.1.
#[unsafe(no_mangle)]
pub extern "C" fn lsl_create_inlet_ex(
    info: Handle,
    max_buflen: i32,
    max_chunklen: i32,
    recover: i32,
    flags: i32,
) -> Handle {
    guard(ptr::null_mut(), || {
        create(info, max_buflen, max_chunklen, recover, flags).unwrap_or(ptr::null_mut())
    })
}

/// `lsl_destroy_inlet`: disconnects. Threads blocked in a call on it return -2 at once; NULL and
/// handles destroyed before are ignored. Spec: c-abi §8.1, §3.4.
#[unsafe(no_mangle)]
pub extern "C" fn lsl_destroy_inlet(inlet: Handle) {
    guard((), || {
        if handle::inlet(inlet).is_none() {
            return;
        }
        let Some(Object::Inlet(object)) = handle::remove(inlet) else {
            return;
        };
        if object.owner.is_current() {
            object.inlet.shut_down();
        } else {
            // Its threads, and maybe holders of its locks, live in the parent only.
            std::mem::forget(object);
        }
    });
}

/// `lsl_open_stream`: connects and waits until the stream flows; -1 after `timeout` seconds (the
/// attempt goes on) or when another thread closes the stream, -2 if it is lost. Every sample pushed after this
/// returned is received. Spec: c-abi §8.2.
///
/// # Safety
/// `ec` is NULL or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn lsl_open_stream(inlet: Handle, timeout: f64, ec: *mut i32) {
    let begun = Cell::new(None);
    let body = |turn: Turn| {
        let object = find_for(inlet, turn)?;
        let begin = || object.inlet.begin_open().map_err(|error| fail(&error));
        let epoch = begun.get().map_or_else(begin, Ok)?;
        begun.set(Some(epoch));
        let opened = object.inlet.blocking().opened(epoch, turn.timeout());
        object.outcome(turn, opened)
    };
    // SAFETY: the caller vouches for `ec`.
    unsafe { with_code_in_turns(ec, (), timeout, body) };
}

/// `lsl_close_stream`: disconnects and drops queued samples. The next pull or open connects again. An open that
/// another thread waits in returns -1; a pull waits on, without a connection, until its own time is up.
/// Spec: c-abi §8.2.
#[unsafe(no_mangle)]
pub extern "C" fn lsl_close_stream(inlet: Handle) {
    guard((), || {
        if let Ok(object) = find(inlet) {
            object.inlet.close();
        }
    });
}

/// `lsl_time_correction`: returns the seconds to add to timestamps of the sender's clock to get this
/// host's. The first call measures for about 0.6 s. 0.0 with -1 (timeout) or -2 (lost). Spec: c-abi §8.6.
///
/// # Safety
/// `ec` is NULL or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn lsl_time_correction(
    inlet: Handle,
    timeout: f64,
    ec: *mut i32,
) -> f64 {
    let unwanted = ptr::null_mut();
    // SAFETY: the caller vouches for `ec`.
    unsafe { correction(inlet, unwanted, unwanted, timeout, ec) }
}

/// `lsl_time_correction_ex`: as [`lsl_time_correction`]; also gives the sender's clock at the
/// measurement and its round-trip time in seconds, both untouched on error and skipped if NULL.
/// Spec: c-abi §8.6.
///
/// # Safety
/// Each pointer is NULL or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn lsl_time_correction_ex(
    inlet: Handle,
    remote_time: *mut f64,
    uncertainty: *mut f64,
    timeout: f64,
    ec: *mut i32,
) -> f64 {
    // SAFETY: the caller of this function vouches for it.
    unsafe { correction(inlet, remote_time, uncertainty, timeout, ec) }
}

/// `lsl_was_clock_reset`: returns 1 once after the stream was recovered from another outlet while an
/// estimate existed, else 0. Spec: c-abi §8.6.
#[unsafe(no_mangle)]
pub extern "C" fn lsl_was_clock_reset(inlet: Handle) -> u32 {
    guard(0, || {
        find(inlet).map_or(0, |object| u32::from(object.inlet.was_clock_reset()))
    })
}

/// `lsl_set_postprocessing`: selects the corrections that pulls apply to timestamps, a sum of
/// `lsl_processing_options_t`; unknown bits are ignored. Spec: c-abi §8.7.
#[unsafe(no_mangle)]
pub extern "C" fn lsl_set_postprocessing(inlet: Handle, flags: u32) -> i32 {
    status(|| {
        let object = find(inlet)?;
        object
            .inlet
            .set_processing(ProcessingOptions::from_bits(flags));
        Ok(())
    })
}

/// `lsl_smoothing_halftime`: sets the half-time of the dejitter filter in seconds, used when it next
/// starts. Spec: c-abi §8.7.
#[unsafe(no_mangle)]
pub extern "C" fn lsl_smoothing_halftime(inlet: Handle, value: f32) -> i32 {
    status(|| {
        find(inlet)?.inlet.set_smoothing_halftime(value);
        Ok(())
    })
}

/// `lsl_samples_available`: returns the number of samples that wait to be pulled. Spec: c-abi §8.5.
#[unsafe(no_mangle)]
pub extern "C" fn lsl_samples_available(inlet: Handle) -> u32 {
    guard(0, || {
        find(inlet).map_or(0, |object| count(object.inlet.samples_available()))
    })
}

/// `lsl_inlet_flush`: drops the samples that wait and returns their number. Spec: c-abi §8.5.
#[unsafe(no_mangle)]
pub extern "C" fn lsl_inlet_flush(inlet: Handle) -> u32 {
    guard(0, || {
        find(inlet).map_or(0, |object| count(object.inlet.flush()))
    })
}

/// `lsl_get_fullinfo`: returns a new info with the stream's metadata, for the caller to destroy. Fetched
/// once per outlet. NULL with -1 (timeout) or -2 (lost). Spec: c-abi §8.6.
///
/// # Safety
/// `ec` is NULL or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn lsl_get_fullinfo(
    inlet: Handle,
    timeout: f64,
    ec: *mut i32,
) -> Handle {
    let body = |turn: Turn| {
        let object = find_for(inlet, turn)?;
        let fetched = object.inlet.blocking().full_info(turn.timeout());
        Ok(object.outcome(turn, fetched)?.map_break(hand_out))
    };
    // SAFETY: the caller vouches for `ec`.
    unsafe { with_code_in_turns(ec, ptr::null_mut(), timeout, body) }
}

fn create(
    info: Handle,
    max_buflen: i32,
    max_chunklen: i32,
    recover: i32,
    flags: i32,
) -> Outcome<Handle> {
    let info = info_of(info)?;
    let buffer = buffer_length(max_buflen, flags)?;
    let max_chunk = u32::try_from(max_chunklen).map_err(|_| {
        let text = "The max_chunklen argument must not be smaller than 0.";
        refuse(code::ARGUMENT, text)
    })?;
    let object = InletObject {
        signal: OnceLock::new(),
        channels: info.channel_count() as usize,
        format: info.channel_format(),
        owner: handle::owner(),
        inlet: Inlet::builder(&info)
            .context(&context())
            .buffer(buffer)
            .max_chunk(max_chunk)
            .recover(recover != 0)
            .create()
            .map_err(|error| fail(&error))?,
    };
    Ok(handle::insert(Object::Inlet(Arc::new(object))))
}

/// # Safety
/// Each pointer is NULL or may be written.
unsafe fn correction(
    inlet: Handle,
    remote_time: *mut f64,
    uncertainty: *mut f64,
    timeout: f64,
    ec: *mut i32,
) -> f64 {
    let body = |turn: Turn| {
        let object = find_for(inlet, turn)?;
        let measured = object.inlet.blocking().time_correction(turn.timeout());
        Ok(object.outcome(turn, measured)?.map_break(|found| {
            // SAFETY: the caller vouches for it.
            unsafe { store(remote_time, found.remote_time) };
            // SAFETY: as above.
            unsafe { store(uncertainty, found.uncertainty_secs) };
            found.offset_secs
        }))
    };
    // SAFETY: the caller vouches for `ec`.
    unsafe { with_code_in_turns(ec, 0.0, timeout, body) }
}

fn count(samples: usize) -> u32 {
    u32::try_from(samples).unwrap_or(u32::MAX)
}
