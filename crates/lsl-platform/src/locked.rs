//! Memory for keys: not swapped out, not in core dumps and, if it must not outlive a `fork`, cleared in
//! children. Spec: LSS/1 §8.6.
//!
//! Values lie in slots of pages that are mapped once and reused; dropping a value clears its slot. Where
//! the process may lock no more memory (`RLIMIT_MEMLOCK`), the other protections still hold. Outside Linux
//! a slot is ordinary memory that is cleared.

use std::fmt;
use std::ptr::NonNull;

use crate::fork::Generation;

/// Fate of a value in a forked child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InChild {
    /// It is gone: access panics.
    Gone,
    /// The child has a copy.
    Kept,
}

/// A value in memory for keys.
pub struct Locked<T> {
    place: NonNull<T>,
    in_child: InChild,
    owner: Generation,
}

// SAFETY: a `Locked` owns its value alone, as a `Box` does.
#[expect(unsafe_code, reason = "the value lies behind a pointer")]
unsafe impl<T: Send> Send for Locked<T> {}

// SAFETY: shared references to a `Locked` give shared references to its value alone.
#[expect(unsafe_code, reason = "the value lies behind a pointer")]
unsafe impl<T: Sync> Sync for Locked<T> {}

impl<T> Locked<T> {
    /// Moves a value into a slot. Its alignment is at most 64, checked at compile time.
    pub fn new(value: T, in_child: InChild) -> Self {
        const { assert!(align_of::<T>() <= SLOT_ALIGN) };
        let owner = Generation::current();
        let place = slots::take(size_of::<T>(), in_child).cast::<T>();
        // SAFETY: the slot is ours alone, writable, large enough, and aligned to `SLOT_ALIGN`.
        #[expect(unsafe_code, reason = "the slot lies outside Rust's memory")]
        unsafe {
            place.write(value);
        }
        Self {
            place,
            in_child,
            owner,
        }
    }

    /// Borrows the value.
    ///
    /// # Panics
    /// In a child that does not have the value.
    #[inline]
    pub fn get(&self) -> &T {
        self.require_value();
        // SAFETY: the value was written by `new` and, as just checked, not cleared by `fork` since.
        #[expect(unsafe_code, reason = "the slot lies outside Rust's memory")]
        unsafe {
            self.place.as_ref()
        }
    }

    /// Borrows the value exclusively.
    ///
    /// # Panics
    /// In a child that does not have the value.
    #[inline]
    pub fn get_mut(&mut self) -> &mut T {
        self.require_value();
        // SAFETY: as in `get`; `&mut self` makes the reference the only one.
        #[expect(unsafe_code, reason = "the slot lies outside Rust's memory")]
        unsafe {
            self.place.as_mut()
        }
    }

    /// Returns whether the value exists: always, except for [`InChild::Gone`] in a child of the process
    /// that made it.
    #[inline]
    pub fn has_value(&self) -> bool {
        self.in_child == InChild::Kept || self.owner.is_current()
    }

    #[inline]
    fn require_value(&self) {
        assert!(self.has_value(), "this key belongs to the parent process");
    }
}

impl<T> Drop for Locked<T> {
    fn drop(&mut self) {
        if self.has_value() {
            // SAFETY: the value exists and is never used after this.
            #[expect(unsafe_code, reason = "the slot lies outside Rust's memory")]
            unsafe {
                self.place.drop_in_place();
            }
        }
        // SAFETY: the slot is ours and large enough; it holds no value any more.
        #[expect(unsafe_code, reason = "the slot lies outside Rust's memory")]
        unsafe {
            self.place.cast::<u8>().write_bytes(0, size_of::<T>());
        }
        // Without an observer the compiler may drop writes to memory that is never read.
        std::hint::black_box(self.place);
        if self.owner.is_current() {
            slots::give_back(self.place.cast(), size_of::<T>(), self.in_child);
        }
        // The list of slots is the parent's; a child leaves this one alone.
    }
}

impl<T> fmt::Debug for Locked<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Locked")
    }
}

/// Returns the bytes of memory for keys in this process, and the number of them that are locked.
pub fn amounts() -> (usize, usize) {
    slots::amounts()
}

/// Size of a cache line: no key shares one with another.
const SLOT_ALIGN: usize = 64;

#[cfg(all(target_os = "linux", not(miri)))]
mod slots {
    use std::collections::HashMap;
    use std::ptr::{self, NonNull};
    use std::sync::{Mutex, MutexGuard, PoisonError};

    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mlock, mmap_anonymous};

    use super::{InChild, SLOT_ALIGN};
    use crate::fork::PerProcess;

    /// Free slots by size and kind. A child has lists of its own, because a thread of the parent may hold
    /// this lock during the fork.
    #[derive(Debug, Default)]
    struct Slots {
        free: HashMap<(usize, bool), Vec<usize>>,
        mapped: usize,
        locked: usize,
    }

    fn slots() -> MutexGuard<'static, Slots> {
        static SLOTS: PerProcess<Mutex<Slots>> = PerProcess::new();
        // A poisoned lock is consistent, since each change is one step.
        SLOTS.get().lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn class(size: usize, in_child: InChild) -> (usize, bool) {
        let size = size.max(1).next_multiple_of(SLOT_ALIGN);
        (size, in_child == InChild::Gone)
    }

    /// Returns a cleared slot with a single owner.
    pub(super) fn take(size: usize, in_child: InChild) -> NonNull<u8> {
        let class = class(size, in_child);
        let mut slots = slots();
        if let Some(slot) = slots.free.get_mut(&class).and_then(Vec::pop) {
            return at(slot);
        }
        let len = CHUNK_LEN.max(class.0).next_multiple_of(CHUNK_LEN);
        let Some((chunk, is_locked)) = map(len, in_child) else {
            drop(slots);
            // As every allocation that fails.
            std::alloc::handle_alloc_error(std::alloc::Layout::new::<[u8; CHUNK_LEN]>());
        };
        slots.mapped += len;
        slots.locked += if is_locked { len } else { 0 };
        let rest = (1..len / class.0).map(|index| chunk + index * class.0);
        slots.free.entry(class).or_default().extend(rest);
        at(chunk)
    }

    /// Returns a cleared slot of [`take`] to the free list, in the process that took it.
    pub(super) fn give_back(slot: NonNull<u8>, size: usize, in_child: InChild) {
        let address = slot.as_ptr().expose_provenance();
        let class = class(size, in_child);
        slots().free.entry(class).or_default().push(address);
    }

    pub(super) fn amounts() -> (usize, usize) {
        let slots = slots();
        (slots.mapped, slots.locked)
    }

    fn at(address: usize) -> NonNull<u8> {
        NonNull::new(ptr::with_exposed_provenance_mut(address)).expect("no mapping lies at zero")
    }

    /// Maps new pages, which are never unmapped. Returns their address and whether they are locked.
    #[expect(unsafe_code, reason = "the mapping calls take raw addresses")]
    fn map(len: usize, in_child: InChild) -> Option<(usize, bool)> {
        // SAFETY: no address is asked for, so no existing mapping can be touched.
        let pages = unsafe {
            mmap_anonymous(
                ptr::null_mut(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )
        }
        .ok()?;
        if in_child == InChild::Gone {
            // SAFETY: our own mapping of this length. Old kernels do not know the advice: then the
            // generation alone keeps children away, as it does anyway.
            let _ = unsafe { madvise(pages, len, Advice::LinuxWipeOnFork) };
        }
        // SAFETY: as above.
        let _ = unsafe { madvise(pages, len, Advice::LinuxDontDump) };
        // SAFETY: as above; locking changes nothing but where the pages may be.
        let is_locked = unsafe { mlock(pages, len) }.is_ok();
        Some((pages.expose_provenance(), is_locked))
    }

    /// Bytes mapped at once: a few dozen keys.
    const CHUNK_LEN: usize = 16 << 10;
}

#[cfg(not(all(target_os = "linux", not(miri))))]
mod slots {
    use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
    use std::ptr::NonNull;

    use super::{InChild, SLOT_ALIGN};

    fn layout(size: usize) -> Layout {
        Layout::from_size_align(size.max(1), SLOT_ALIGN).expect("keys are small")
    }

    /// Returns a cleared slot with a single owner.
    #[expect(unsafe_code, reason = "a slot is raw memory")]
    pub(super) fn take(size: usize, _in_child: InChild) -> NonNull<u8> {
        let layout = layout(size);
        // SAFETY: the layout is not of size zero.
        let slot = unsafe { alloc_zeroed(layout) };
        NonNull::new(slot).unwrap_or_else(|| handle_alloc_error(layout))
    }

    /// Frees a slot of [`take`].
    #[expect(unsafe_code, reason = "a slot is raw memory")]
    pub(super) fn give_back(slot: NonNull<u8>, size: usize, _in_child: InChild) {
        // SAFETY: it came from `take` with this size.
        unsafe { dealloc(slot.as_ptr(), layout(size)) }
    }

    pub(super) fn amounts() -> (usize, usize) {
        (0, 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_moved_changed_and_dropped_once() {
        let counted = std::sync::Arc::new(());
        let mut locked = Locked::new((7_u64, std::sync::Arc::clone(&counted)), InChild::Gone);
        assert_eq!(locked.get().0, 7);
        locked.get_mut().0 = 8;
        let locked = std::thread::spawn(move || {
            assert_eq!(locked.get().0, 8);
            locked
        });
        drop(locked.join().unwrap());
        assert_eq!(std::sync::Arc::strong_count(&counted), 1);
    }

    #[test]
    fn slots_are_not_shared_and_are_clear_when_they_are_used_again() {
        let many: Vec<_> = (0..1000_u32)
            .map(|it| Locked::new([it; 33], InChild::Gone))
            .collect();
        for (number, locked) in (0..).zip(&many) {
            assert_eq!(*locked.get(), [number; 33]);
            assert_eq!(locked.place.as_ptr().addr() % SLOT_ALIGN, 0);
        }
        drop(many);
        let (before, _) = amounts();
        drop(
            (0..1000_u32)
                .map(|it| Locked::new([it; 33], InChild::Gone))
                .collect::<Vec<_>>(),
        );
        // Other tests of this process may need some.
        assert!(amounts().0 <= before + (64 << 10));
    }

    /// Checks the kernel's flags of the pages that keys lie in.
    #[cfg(all(target_os = "linux", not(miri)))]
    #[test]
    fn pages_of_keys_are_locked_wiped_and_not_dumped() {
        let flags = |address: usize| {
            let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
            let mut inside = false;
            for line in maps.lines() {
                let range = line
                    .split(' ')
                    .next()
                    .and_then(|range| range.split_once('-'));
                let bounds = range.and_then(|(from, to)| {
                    let number = |text| usize::from_str_radix(text, 16).ok();
                    Some(number(from)?..number(to)?)
                });
                if let Some(bounds) = bounds {
                    inside = bounds.contains(&address);
                } else if let (true, Some(flags)) = (inside, line.strip_prefix("VmFlags:")) {
                    return flags.to_owned();
                }
            }
            panic!("no mapping at {address:x}");
        };
        for (in_child, is_wiped) in [(InChild::Gone, true), (InChild::Kept, false)] {
            let locked = Locked::new([1_u8; 5000], in_child);
            let flags = flags(locked.place.as_ptr().addr());
            assert!(flags.contains(" dd"), "dumped: {flags}");
            assert_eq!(flags.contains(" wf"), is_wiped, "{flags}");
            // Wherever there is room for them, whatever the library says that it locked.
            let room = rustix::process::getrlimit(rustix::process::Resource::Memlock).current;
            if room.is_none_or(|bytes| bytes >= 1 << 20) {
                assert!(flags.contains(" lo"), "not locked: {flags}");
            }
        }
    }
}
