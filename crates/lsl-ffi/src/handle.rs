//! Handles given to C. A handle is a number made of a slot and a generation, never an address:
//! whatever a caller passes is looked up, so stale, doubly destroyed, foreign and made-up handles are
//! told apart from good ones without touching memory. A call holds its object through an `Arc`, so an
//! object destroyed by another thread lives until the last call on it returns.
//!
//! (The style guide proposed addresses of slots that are never unmapped; numbers give the same
//! guarantees without a dereference, for one uncontended read lock per call.)

use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, MutexGuard, Once, PoisonError, RwLock, RwLockWriteGuard};

use lsl_platform::fork::at_fork;

use crate::inlet::InletObject;
use crate::log;
use crate::outlet::OutletObject;
use crate::resolver::ResolverObject;
use crate::streaminfo::InfoObject;
use crate::xml::NodeObject;

/// What C sees: an opaque pointer.
pub(crate) type Handle = *mut c_void;

/// An object that has a handle.
#[derive(Debug, Clone)]
pub(crate) enum Object {
    Info(Arc<InfoObject>),
    Node(Arc<NodeObject>),
    Outlet(Arc<OutletObject>),
    Inlet(Arc<InletObject>),
    Resolver(Arc<ResolverObject>),
}

#[derive(Debug)]
struct Slot {
    generation: usize,
    object: Option<Object>,
}

#[derive(Debug, Default)]
struct Table {
    slots: Vec<Slot>,
    free: Vec<usize>,
}

static TABLE: RwLock<Table> = RwLock::new(Table {
    slots: Vec::new(),
    free: Vec::new(),
});

/// Gives an object a handle; never NULL.
pub(crate) fn insert(object: Object) -> Handle {
    let mut table = TABLE.write().unwrap_or_else(PoisonError::into_inner);
    let index = table.free.pop().unwrap_or_else(|| {
        table.slots.push(Slot {
            generation: 1,
            object: None,
        });
        table.slots.len() - 1
    });
    let slot = &mut table.slots[index];
    slot.object = Some(object);
    encode(index, slot.generation)
}

/// The object behind a handle; `None` for anything that is not one, or no longer.
pub(crate) fn get(handle: Handle) -> Option<Object> {
    let (index, generation) = decode(handle);
    let table = TABLE.read().unwrap_or_else(PoisonError::into_inner);
    let slot = table.slots.get(index)?;
    if slot.generation != generation {
        return None;
    }
    slot.object.clone()
}

/// Ends a handle and gives its object back; `None` if it was none. The caller drops the object after
/// the table's lock is released.
pub(crate) fn remove(handle: Handle) -> Option<Object> {
    let (index, generation) = decode(handle);
    let mut table = TABLE.write().unwrap_or_else(PoisonError::into_inner);
    let slot = table.slots.get_mut(index)?;
    if slot.generation != generation {
        return None;
    }
    let object = slot.object.take()?;
    slot.generation = next_generation(slot.generation);
    table.free.push(index);
    Some(object)
}

macro_rules! typed {
    ($name:ident, $variant:ident, $type:ty) => {
        /// The object of this kind behind a handle.
        pub(crate) fn $name(handle: Handle) -> Option<Arc<$type>> {
            match get(handle)? {
                Object::$variant(object) => Some(object),
                _ => None,
            }
        }
    };
}

typed!(info, Info, InfoObject);
typed!(node, Node, NodeObject);
typed!(outlet, Outlet, OutletObject);
typed!(inlet, Inlet, InletObject);
typed!(resolver, Resolver, ResolverObject);

/// Number of forks between the first process that used the library and this one. Objects remember
/// the value they were made under: in a forked child their threads do not exist.
pub(crate) fn fork_generation() -> u32 {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        // They take and release locks and add to an atomic. Without memory for them a child finds out
        // when it forks, not before.
        let _ = at_fork(before_fork, in_parent, in_child);
    });
    FORKS.load(Ordering::Relaxed)
}

static FORKS: AtomicU32 = AtomicU32::new(0);

/// What the library locks for all of its objects, as the forking thread holds it. Were it in the hands
/// of another thread, it would stay locked in the child for ever.
static HELD: Held = Held(UnsafeCell::new(None));

type Locks = (
    RwLockWriteGuard<'static, Table>,
    MutexGuard<'static, Option<log::Callback>>,
);

struct Held(UnsafeCell<Option<Locks>>);

// SAFETY: only the thread that holds the table's lock for a fork looks into it.
unsafe impl Sync for Held {}

extern "C" fn before_fork() {
    let table = TABLE.write().unwrap_or_else(PoisonError::into_inner);
    let locks = (table, log::hold());
    // SAFETY: this thread holds the table's lock.
    unsafe { *HELD.0.get() = Some(locks) };
}

extern "C" fn in_parent() {
    // SAFETY: the thread that forked still holds the table's lock.
    let locks = unsafe { (*HELD.0.get()).take() };
    drop(locks);
}

extern "C" fn in_child() {
    FORKS.fetch_add(1, Ordering::Relaxed);
    in_parent();
}

/// Bits of a handle that name the slot; the rest is the generation.
const INDEX_BITS: u32 = usize::BITS * 3 / 8;

const GENERATION_MASK: usize = usize::MAX >> INDEX_BITS >> 1;

fn encode(index: usize, generation: usize) -> Handle {
    std::ptr::without_provenance_mut(generation << INDEX_BITS | index)
}

fn decode(handle: Handle) -> (usize, usize) {
    let bits = handle.addr();
    (bits & ((1 << INDEX_BITS) - 1), bits >> INDEX_BITS)
}

/// 0 is no generation, so that NULL and small integers are no handles.
fn next_generation(generation: usize) -> usize {
    (generation % GENERATION_MASK) + 1
}

#[cfg(test)]
mod tests {
    use lsl_core::StreamInfo;

    use super::*;

    fn info_object() -> Object {
        Object::Info(Arc::new(InfoObject::new(StreamInfo::invalid("test"))))
    }

    #[test]
    fn only_live_handles_of_the_right_kind_are_found() {
        let handle = insert(info_object());
        assert!(!handle.is_null());
        assert!(info(handle).is_some());
        assert!(outlet(handle).is_none());
        assert!(remove(handle).is_some());
        assert!(info(handle).is_none());
        assert!(remove(handle).is_none());
        // The slot is used again, the handle is not.
        let next = insert(info_object());
        assert_ne!(handle, next);
        assert!(info(handle).is_none());
        remove(next);
    }

    #[test]
    fn made_up_handles_are_nothing() {
        for bits in [0, 1, 2, 4096, usize::MAX, usize::MAX / 2] {
            let made_up = std::ptr::without_provenance_mut(bits);
            assert!(get(made_up).is_none(), "{bits:#x}");
            assert!(remove(made_up).is_none(), "{bits:#x}");
        }
    }
}
