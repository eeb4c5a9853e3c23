//! Handles given to C. A handle is a number made of a slot and a generation, never an address. Each one is
//! looked up, so that stale, doubly destroyed, foreign and made-up handles are refused without touching
//! memory. A call holds its object through an `Arc`: an object destroyed by another thread lives until the
//! last call on it returns.
//!
//! (The style guide proposed addresses of slots that are never unmapped; numbers give the same guarantees
//! without a dereference. A call pays one uncontended read lock.)
//!
//! pylsl up to 1.10 cuts them to 32 bits, which liblsl's addresses survive in a Python whose heap lies low. So as
//! long as there are handles below 2^31, no others are given out.

use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::sync::{Arc, MutexGuard, Once, PoisonError, RwLock, RwLockWriteGuard};

use lsl_platform::fork::{Generation, at_fork};
use lsl_platform::reentry::Call;

use crate::guard::set_last_error;
use crate::inlet::InletObject;
use crate::kept::{self, Kept};
use crate::log;
use crate::outlet::OutletObject;
use crate::resolver::ResolverObject;
use crate::streaminfo::InfoObject;
use crate::xml::NodeObject;

/// Handle as C sees it: an opaque pointer.
pub(crate) type Handle = *mut c_void;

/// An object that has a handle.
#[derive(Debug, Clone)]
pub(crate) enum Object {
    Info(Arc<InfoObject>),
    /// A destroyed info, as long as it is kept.
    PastInfo(Arc<InfoObject>),
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

#[derive(Debug)]
struct Table {
    slots: Vec<Slot>,
    free: Vec<usize>,
    /// Free slots whose further handles are not below 2^31: used when all others are.
    worn: Vec<usize>,
    max_slots: usize,
}

static TABLE: RwLock<Table> = RwLock::new(Table::new(MAX_SLOTS));

/// Assigns a handle to an object. Returns NULL, with a text in `lsl_last_error`, if all numbers are in use.
pub(crate) fn insert(object: Object) -> Handle {
    insert_into(&TABLE, object, kept::drop_oldest)
}

/// Inserts an object, and calls `make_room` as long as no number is free and it returns true. Where handles
/// are few (32 bits), kept objects must not use up those of live ones.
fn insert_into(table: &RwLock<Table>, mut object: Object, make_room: impl Fn() -> bool) -> Handle {
    loop {
        let inserted = table
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(object);
        match inserted {
            Ok(handle) => return handle,
            Err(refused) if make_room() => object = refused,
            Err(refused) => {
                drop(refused);
                set_last_error("no more handles: destroy what is not used any more");
                return std::ptr::null_mut();
            }
        }
    }
}

/// Returns the object behind a handle; `None` for anything but a live handle.
pub(crate) fn get(handle: Handle) -> Option<Object> {
    TABLE
        .read()
        .unwrap_or_else(PoisonError::into_inner)
        .get(handle)
}

/// Ends a handle and returns its object; `None` if it was no handle. The caller drops the object after the
/// table's lock is released.
pub(crate) fn remove(handle: Handle) -> Option<Object> {
    TABLE
        .write()
        .unwrap_or_else(PoisonError::into_inner)
        .remove(handle)
}

/// Replaces an inlet that a forked child inherited by `anew`, if it is still there. The inherited one is
/// never dropped: its references belong to the parent.
pub(crate) fn replace_inherited(handle: Handle, inherited: &Arc<InletObject>, anew: InletObject) {
    let anew = Object::Inlet(Arc::new(anew));
    let mut table = TABLE.write().unwrap_or_else(PoisonError::into_inner);
    let (index, generation) = decode(handle);
    if let Some(slot) = table.slots.get_mut(index)
        && slot.generation == generation
        && let Some(Object::Inlet(present)) = &slot.object
        && Arc::ptr_eq(present, inherited)
    {
        std::mem::forget(slot.object.replace(anew));
    }
}

impl Table {
    const fn new(max_slots: usize) -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            worn: Vec::new(),
            max_slots,
        }
    }

    /// Returns the object's handle, or the object if no number is free.
    fn insert(&mut self, object: Object) -> Result<Handle, Object> {
        let index = (self.free.pop())
            .or_else(|| self.add_slot(LOW_SLOTS))
            .or_else(|| self.worn.pop())
            .or_else(|| self.add_slot(MAX_SLOTS));
        let Some(index) = index else {
            return Err(object);
        };
        let slot = &mut self.slots[index];
        slot.object = Some(object);
        Ok(encode(index, slot.generation))
    }

    /// Adds a slot, unless there are `most` already.
    fn add_slot(&mut self, most: usize) -> Option<usize> {
        let index = self.slots.len();
        (index < most.min(self.max_slots)).then(|| {
            self.slots.push(Slot {
                // Generation 0 does not exist, so that NULL and small integers are no handles.
                generation: 1,
                object: None,
            });
            index
        })
    }

    fn get(&self, handle: Handle) -> Option<Object> {
        let (index, generation) = decode(handle);
        let slot = self.slots.get(index)?;
        (slot.generation == generation).then(|| slot.object.clone())?
    }

    fn remove(&mut self, handle: Handle) -> Option<Object> {
        let (index, generation) = decode(handle);
        let slot = self.slots.get_mut(index)?;
        if slot.generation != generation {
            return None;
        }
        let object = slot.object.take()?;
        // A slot that used up its generations is retired: no handle is given out twice.
        if slot.generation < MAX_GENERATION {
            slot.generation += 1;
            if index < LOW_SLOTS && slot.generation <= LOW_GENERATION {
                self.free.push(index);
            } else {
                self.worn.push(index);
            }
        }
        Some(object)
    }
}

/// Assigns another object to a handle, unless the handle has ended.
pub(crate) fn rebind(handle: Handle, object: Object) {
    let (index, generation) = decode(handle);
    let mut table = TABLE.write().unwrap_or_else(PoisonError::into_inner);
    if let Some(slot) = table.slots.get_mut(index)
        && slot.generation == generation
    {
        slot.object = Some(object);
    }
}

/// Turns the handle of an info into that of a destroyed one. Returns the info; `None` for other handles.
pub(crate) fn retire(handle: Handle) -> Option<Arc<InfoObject>> {
    let (index, generation) = decode(handle);
    let mut table = TABLE.write().unwrap_or_else(PoisonError::into_inner);
    let slot = table.slots.get_mut(index)?;
    match slot.object.take() {
        Some(Object::Info(info)) if slot.generation == generation => {
            slot.object = Some(Object::PastInfo(Arc::clone(&info)));
            Some(info)
        }
        other => {
            slot.object = other;
            None
        }
    }
}

/// Returns whether this once was a handle of an object.
pub(crate) fn has_ended(handle: Handle) -> bool {
    let (index, generation) = decode(handle);
    let table = TABLE.read().unwrap_or_else(PoisonError::into_inner);
    let slot = table.slots.get(index);
    slot.is_some_and(|slot| (1..slot.generation).contains(&generation))
}

macro_rules! typed {
    ($name:ident, $variant:ident, $type:ty) => {
        /// Returns the object of this kind behind a handle.
        pub(crate) fn $name(handle: Handle) -> Option<Arc<$type>> {
            match get(handle)? {
                Object::$variant(object) => Some(object),
                _ => None,
            }
        }
    };
}

typed!(info, Info, InfoObject);
typed!(past_info, PastInfo, InfoObject);
typed!(node, Node, NodeObject);
typed!(outlet, Outlet, OutletObject);
typed!(inlet, Inlet, InletObject);
typed!(resolver, Resolver, ResolverObject);

/// The running process, as the owner of an object: its threads do not exist in a forked child. Asked
/// before there is anything to inherit, so that from then on a fork takes the locks along.
pub(crate) fn owner() -> Generation {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        // They take and release locks. Without memory for them a child finds out when it forks, not before.
        let _ = at_fork(before_fork, release, release);
    });
    Generation::current()
}

/// Locks that all objects share, as the forking thread holds them. A lock held by another thread
/// would stay locked in the child for ever. A fork counts as a call until all of it is free again:
/// a signal handler that pushes meanwhile would wait for its own thread.
static HELD: Held = Held(UnsafeCell::new(None));

type Locks = (
    RwLockWriteGuard<'static, Table>,
    MutexGuard<'static, Option<log::Callback>>,
    MutexGuard<'static, Kept>,
    // Begun first, and the last to be dropped.
    Call,
);

struct Held(UnsafeCell<Option<Locks>>);

// SAFETY: only the thread that holds the table's lock for a fork looks into it.
unsafe impl Sync for Held {}

extern "C" fn before_fork() {
    let call = Call::begin();
    let table = TABLE.write().unwrap_or_else(PoisonError::into_inner);
    let locks = (table, log::hold(), kept::lock(), call);
    // SAFETY: this thread holds the table's lock.
    unsafe { *HELD.0.get() = Some(locks) };
}

/// Runs after a fork, in the parent and in the child.
extern "C" fn release() {
    // SAFETY: the thread that forked still holds the table's lock.
    let locks = unsafe { (*HELD.0.get()).take() };
    drop(locks);
}

/// Numbers of slots have half of a handle's bits.
const MAX_SLOTS: usize = 1 << (usize::BITS / 2);

/// Generations have the other half but one: the highest bit of a handle stays clear.
const MAX_GENERATION: usize = usize::MAX / MAX_SLOTS / 2;

/// A handle is, from its lowest bit on: 16 bits of the slot, 15 of the generation, the other bits of the slot and
/// those of the generation. On 32-bit systems there are no others.
const LOW_SLOTS: usize = 1 << LOW_SLOT_BITS;
const LOW_SLOT_BITS: u32 = 16;
const LOW_GENERATION: usize = (1 << LOW_GENERATION_BITS) - 1;
const LOW_GENERATION_BITS: u32 = 15;

fn encode(index: usize, generation: usize) -> Handle {
    let high = (index / LOW_SLOTS) | ((generation >> LOW_GENERATION_BITS) << LOW_SLOT_BITS);
    let low = (index % LOW_SLOTS) | ((generation & LOW_GENERATION) << LOW_SLOT_BITS);
    std::ptr::without_provenance_mut((high << (LOW_SLOT_BITS + LOW_GENERATION_BITS)) | low)
}

fn decode(handle: Handle) -> (usize, usize) {
    let low = handle.addr();
    let high = low >> (LOW_SLOT_BITS + LOW_GENERATION_BITS);
    let index = ((high % LOW_SLOTS) << LOW_SLOT_BITS) | (low % LOW_SLOTS);
    let generation = ((high >> LOW_SLOT_BITS) << LOW_GENERATION_BITS)
        | ((low >> LOW_SLOT_BITS) & LOW_GENERATION);
    (index, generation)
}

#[cfg(test)]
mod tests {
    use lsl_core::StreamInfo;

    use super::*;

    /// Asks for an interrupted call, as a signal handler does before it takes any lock.
    fn is_call_interrupting() -> bool {
        let _call = Call::begin();
        lsl_platform::reentry::is_interrupting()
    }

    #[test]
    fn a_fork_is_a_call_until_its_locks_are_free() {
        assert!(!is_call_interrupting());
        before_fork();
        let meanwhile = is_call_interrupting();
        release();
        assert!(
            meanwhile,
            "a push from a signal handler would wait for ever"
        );
        assert!(!is_call_interrupting());
    }

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
    fn handles_are_never_given_out_twice() {
        let mut table = Table::new(2);
        let first = table.insert(info_object()).unwrap();
        table.remove(first).unwrap();
        table.slots[0].generation = MAX_GENERATION;
        let last = table.insert(info_object()).unwrap();
        assert_eq!(decode(last), (0, MAX_GENERATION));
        assert!(table.remove(last).is_some());
        let next = table.insert(info_object()).unwrap();
        assert_eq!(decode(next), (1, 1), "the first slot is used up");
        assert!(table.get(first).is_none() && table.get(last).is_none());
        assert!(table.remove(last).is_none());
        assert!(table.insert(info_object()).is_err(), "there is no third");
        assert!(table.remove(next).is_some());
        assert!(table.insert(info_object()).is_ok());
    }

    #[test]
    fn every_slot_and_generation_has_a_handle_of_its_own() {
        let slots = [0, 1, LOW_SLOTS - 1, LOW_SLOTS, MAX_SLOTS - 1];
        let generations = [1, 2, LOW_GENERATION, LOW_GENERATION + 1, MAX_GENERATION];
        for index in slots.into_iter().filter(|it| *it < MAX_SLOTS) {
            for generation in generations.into_iter().filter(|it| *it <= MAX_GENERATION) {
                let handle = encode(index, generation);
                assert_eq!(decode(handle), (index, generation), "{handle:?}");
                assert_eq!(handle.addr() >> (usize::BITS - 1), 0, "{handle:?}");
                let is_low = index < LOW_SLOTS && generation <= LOW_GENERATION;
                assert_eq!(handle.addr() < 1 << 31, is_low, "{handle:?}");
            }
        }
    }

    #[test]
    fn handles_have_31_bits_for_as_long_as_they_can() {
        let mut table = Table::new(2);
        let first = table.insert(info_object()).unwrap();
        table.remove(first).unwrap();
        table.slots[0].generation = LOW_GENERATION;
        let last = table.insert(info_object()).unwrap();
        assert_eq!(decode(last), (0, LOW_GENERATION));
        table.remove(last).unwrap();
        // Another slot comes before further generations of this one.
        let next = table.insert(info_object()).unwrap();
        assert_eq!(decode(next), (1, 1));
        let large = table.insert(info_object()).ok();
        let is_64_bit = MAX_GENERATION > LOW_GENERATION;
        assert_eq!(
            large.map(decode),
            is_64_bit.then_some((0, LOW_GENERATION + 1))
        );
        table.remove(next).unwrap();
        assert_eq!(table.insert(info_object()).map(decode).ok(), Some((1, 2)));
    }

    #[test]
    fn what_is_kept_gives_way_where_there_are_no_more_handles() {
        let table = RwLock::new(Table::new(2));
        let put = |make_room: &dyn Fn() -> bool| insert_into(&table, info_object(), make_room);
        let kept = [put(&|| panic!("too early")), put(&|| panic!("too early"))];
        let left = std::cell::Cell::new(0);
        let make_room = || {
            let oldest = kept.get(left.replace(left.get() + 1));
            oldest.is_some_and(|&handle| table.write().unwrap().remove(handle).is_some())
        };
        for _ in kept {
            assert!(!put(&make_room).is_null());
        }
        assert!(put(&make_room).is_null(), "nothing is kept any more");
        assert_eq!(left.get(), 3);
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
