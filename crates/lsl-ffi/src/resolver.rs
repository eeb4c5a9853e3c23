//! `lsl/resolver.h`: finding streams. Spec: c-abi §10.

use std::cell::Cell;
use std::ffi::c_char;
use std::mem::{self, MaybeUninit};
use std::ptr;
use std::slice;
use std::sync::Arc;

use lsl_core::{
    Context, ContinuousResolver, Error, Resolving, Result, Selector, StreamInfo, Timeout,
};
use lsl_platform::fork::Generation;
use lsl_proto::query::Query;

use crate::context::context;
use crate::guard::{code, fail, guard};
use crate::handle::{self, Handle, Object};
use crate::streaminfo::hand_out;
use crate::strings;
use crate::turns::{Progress, Turn, in_turns};

/// Searches for all streams of the session for `wait_time` seconds, always that long. Writes at most
/// `buffer_elements` infos, which the caller destroys, and returns their number. Other slots of the buffer
/// are not written. Spec: c-abi §10.
///
/// Negative and NaN mean 0 seconds; `LSL_FOREVER` never returns. -3 for a NULL buffer with room, -4 without
/// a network; both with `lsl_last_error`.
///
/// # Safety
/// `buffer` has room for as many infos as are found, or for `buffer_elements` if that is less.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn lsl_resolve_all(
    buffer: *mut Handle,
    buffer_elements: u32,
    wait_time: f64,
) -> i32 {
    // SAFETY: the caller vouches for it.
    unsafe { resolve(buffer, buffer_elements, || None, 0, wait_time) }
}

/// Searches for streams whose element `prop` has the text `value`, until `minimum` are found or for
/// `timeout` seconds. Without a positive `minimum` it always takes that long. A NULL `value` asks for any
/// stream with such an element, a NULL `prop` for any stream. Both become part of a query unchanged, so a
/// value with an apostrophe makes it invalid. Spec: c-abi §10.
///
/// As [`lsl_resolve_all`] otherwise; -3 also for an invalid query.
///
/// # Safety
/// As [`lsl_resolve_all`]; `prop` and `value` are NULL or NUL-terminated texts.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn lsl_resolve_byprop(
    buffer: *mut Handle,
    buffer_elements: u32,
    prop: *const c_char,
    value: *const c_char,
    minimum: i32,
    timeout: f64,
) -> i32 {
    let predicate = || {
        // SAFETY: the caller vouches for it.
        let prop = unsafe { strings::bytes(prop) };
        // SAFETY: the caller vouches for it.
        let value = unsafe { strings::bytes(value) };
        property(prop, value)
    };
    // SAFETY: the caller vouches for it.
    unsafe { resolve(buffer, buffer_elements, predicate, minimum, timeout) }
}

/// Searches for streams by an XPath 1.0 predicate, as [`lsl_resolve_byprop`]; NULL asks for any stream. The
/// predicate follows `session_id='…' and ` unchanged: one with `or` escapes from the session unless it has
/// parentheses. Spec: c-abi §10.
///
/// # Safety
/// As [`lsl_resolve_all`]; `predicate` is NULL or a NUL-terminated text.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn lsl_resolve_bypred(
    buffer: *mut Handle,
    buffer_elements: u32,
    predicate: *const c_char,
    minimum: i32,
    timeout: f64,
) -> i32 {
    // SAFETY: the caller vouches for it.
    let predicate = || unsafe { strings::bytes(predicate) }.map(<[u8]>::to_vec);
    // SAFETY: the caller vouches for it.
    unsafe { resolve(buffer, buffer_elements, predicate, minimum, timeout) }
}

/// Starts a search for all streams of the session, in the background. Streams without an answer for
/// `forget_after` seconds are removed; below about 2 live streams come and go. The caller destroys the
/// resolver; NULL, with `lsl_last_error`, without a network. Spec: c-abi §10.
#[unsafe(no_mangle)]
pub extern "C" fn lsl_create_continuous_resolver(forget_after: f64) -> Handle {
    guard(ptr::null_mut(), || keep_resolving(None, forget_after))
}

/// Starts a search for the streams of [`lsl_resolve_byprop`], as [`lsl_create_continuous_resolver`]; NULL
/// also for an invalid query. Spec: c-abi §10.
///
/// # Safety
/// `prop` and `value` are NULL or NUL-terminated texts.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lsl_create_continuous_resolver_byprop(
    prop: *const c_char,
    value: *const c_char,
    forget_after: f64,
) -> Handle {
    guard(ptr::null_mut(), || {
        // SAFETY: the caller vouches for it.
        let prop = unsafe { strings::bytes(prop) };
        // SAFETY: the caller vouches for it.
        let value = unsafe { strings::bytes(value) };
        keep_resolving(property(prop, value), forget_after)
    })
}

/// Starts a search for the streams of [`lsl_resolve_bypred`], as [`lsl_create_continuous_resolver`]; NULL
/// also for an invalid query. Spec: c-abi §10.
///
/// # Safety
/// `predicate` is NULL or a NUL-terminated text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lsl_create_continuous_resolver_bypred(
    predicate: *const c_char,
    forget_after: f64,
) -> Handle {
    guard(ptr::null_mut(), || {
        // SAFETY: the caller vouches for it.
        let predicate = unsafe { strings::bytes(predicate) }.map(<[u8]>::to_vec);
        keep_resolving(predicate, forget_after)
    })
}

/// Writes infos of the streams known now, at most `buffer_elements`. The caller destroys them, and they
/// outlive the resolver. Returns their number; other slots of the buffer are not written. Never blocks.
/// Returns 0 in a process that inherited the resolver by `fork`. Returns -3, with `lsl_last_error`, for
/// anything but a resolver, or for a NULL buffer with room. Spec: c-abi §10.
///
/// # Safety
/// As [`lsl_resolve_all`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lsl_resolver_results(
    resolver: Handle,
    buffer: *mut Handle,
    buffer_elements: u32,
) -> i32 {
    guard(code::INTERNAL, || {
        let Some(resolver) = handle::resolver(resolver) else {
            return fail(&Error::Argument(
                "This is no continuous resolver.".to_owned(),
            ));
        };
        if let Err(error) = check_buffer(buffer, buffer_elements) {
            return fail(&error);
        }
        // SAFETY: not NULL, and the caller vouches for the room.
        unsafe { fill(buffer, buffer_elements, resolver.results()) }
    })
}

/// Ends a continuous resolver. NULL and other handles are ignored. Spec: c-abi §10.
#[unsafe(no_mangle)]
pub extern "C" fn lsl_destroy_continuous_resolver(resolver: Handle) {
    guard((), || {
        if handle::resolver(resolver).is_some() {
            drop(handle::remove(resolver));
        }
    });
}

/// Continuous resolver for which C has a handle.
#[derive(Debug)]
pub(crate) struct ResolverObject {
    /// `None` only while it is dropped.
    resolver: Option<ContinuousResolver>,
    owner: Generation,
}

impl ResolverObject {
    fn new(resolver: ContinuousResolver) -> Self {
        Self {
            resolver: Some(resolver),
            owner: handle::owner(),
        }
    }

    fn is_inherited(&self) -> bool {
        !self.owner.is_current()
    }

    fn results(&self) -> Vec<StreamInfo> {
        match &self.resolver {
            Some(resolver) if !self.is_inherited() => resolver.results(),
            _ => Vec::new(),
        }
    }
}

impl Drop for ResolverObject {
    fn drop(&mut self) {
        if self.is_inherited() {
            // Its tasks run in the parent, and this process must not end them.
            mem::forget(self.resolver.take());
        }
    }
}

fn keep_resolving(predicate: Option<Vec<u8>>, forget_after: f64) -> Handle {
    let context = context();
    let resolver = selector(&context, predicate).and_then(|selector| {
        ContinuousResolver::in_context(&context, &selector, Timeout::from_secs(forget_after))
    });
    match resolver {
        Ok(resolver) => handle::insert(Object::Resolver(Arc::new(ResolverObject::new(resolver)))),
        Err(error) => {
            fail(&error);
            ptr::null_mut()
        }
    }
}

/// Searches for streams in turns and fills the buffer. Returns the number written, or an error code.
///
/// # Safety
/// As [`lsl_resolve_all`].
unsafe fn resolve(
    buffer: *mut Handle,
    buffer_elements: u32,
    predicate: impl Fn() -> Option<Vec<u8>> + Copy,
    minimum: i32,
    timeout: f64,
) -> i32 {
    let find = |turn: Turn| {
        if !turn.is_first {
            return Ok(go_on(SEARCH.take(), turn));
        }
        let context = context();
        let selector = selector(&context, predicate())?;
        check_buffer(buffer, buffer_elements)?;
        let minimum = usize::try_from(minimum).unwrap_or(0);
        if turn.is_last {
            let found = context.resolve_blocking(&selector, minimum, turn.timeout())?;
            return Ok(Progress::Break(found));
        }
        let timeout = Timeout::from_secs(timeout);
        let search = context.begin_resolving(&selector, minimum, timeout)?;
        Ok(go_on(Some(search), turn))
    };
    in_turns(timeout, |turn| {
        guard(Progress::Break(code::INTERNAL), || match find(turn) {
            Ok(progress) => progress.map_break(|found| {
                // SAFETY: the buffer was checked, and the caller vouches for the room.
                unsafe { fill(buffer, buffer_elements, found) }
            }),
            Err(error) => Progress::Break(fail(&error)),
        })
    })
}

thread_local! {
    /// Search of a call between two turns. It ends with the thread if that is cancelled there.
    static SEARCH: Cell<Option<Resolving>> = const { Cell::new(None) };
}

/// Waits for a search for the time of this turn.
fn go_on(search: Option<Resolving>, turn: Turn) -> Progress<Vec<StreamInfo>> {
    // In the last turn the search is about to end, so wait for that.
    let limit = if turn.is_last {
        Timeout::Forever
    } else {
        turn.timeout()
    };
    let found = match &search {
        Some(search) => search.wait_blocking(limit),
        // A call in a signal handler has replaced it.
        None => Some(Vec::new()),
    };
    found.map_or_else(
        || {
            SEARCH.set(search);
            turn.nothing(Vec::new())
        },
        Progress::Break,
    )
}

fn check_buffer(buffer: *mut Handle, buffer_elements: u32) -> Result<()> {
    if buffer.is_null() && buffer_elements > 0 {
        let text = "There is no buffer for the streams that are found.";
        return Err(Error::Argument(text.to_owned()));
    }
    Ok(())
}

/// Writes as many infos as there is room for and returns their number. Leaves other slots alone: callers
/// may claim more room than they have.
///
/// # Safety
/// `buffer` has room for as many infos as there are, or for `room` if that is less.
unsafe fn fill(buffer: *mut Handle, room: u32, found: Vec<StreamInfo>) -> i32 {
    let room = i32::try_from(room).unwrap_or(i32::MAX);
    let count = i32::try_from(found.len()).unwrap_or(i32::MAX).min(room);
    if count == 0 {
        return 0;
    }
    let slots = buffer.cast::<MaybeUninit<Handle>>();
    // SAFETY: the caller vouches for the room; no slot is read.
    let slots = unsafe { slice::from_raw_parts_mut(slots, usize::try_from(count).unwrap_or(0)) };
    for (slot, info) in slots.iter_mut().zip(found) {
        slot.write(hand_out(info));
    }
    count
}

/// Builds the predicate of a property, without any quoting.
fn property(prop: Option<&[u8]>, value: Option<&[u8]>) -> Option<Vec<u8>> {
    Some(match value {
        Some(value) => [prop?, b"='", value, b"'"].concat(),
        None => prop?.to_vec(),
    })
}

/// Builds the selector of a predicate. Checks the whole query before anything is sent, and errors show all
/// of it.
fn selector(context: &Context, predicate: Option<Vec<u8>>) -> Result<Selector> {
    let Some(predicate) = predicate else {
        return Ok(Selector::all());
    };
    let session = Selector::all().to_query(&context.config().lab().session_id)?;
    Query::parse([&*session, b" and ", &*predicate].concat())?;
    Selector::predicate(predicate)
}

#[cfg(test)]
mod tests;
