//! Whether an object still lives in the process that made it. After `fork` a child holds copies of
//! its parent's keys and counters; using them would seal other data under the same nonces.
//!
//! The answer lies in one page that the kernel clears in every child (`MADV_WIPEONFORK`), because
//! `_Fork` and raw `clone` run no fork handler. Spec: LSS/1 §8.6.

mod per_process;

use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

pub use per_process::PerProcess;

/// The life of one process since its last `fork`. Never equal between an object that a child
/// inherited and one that it made itself.
#[derive(Debug, Clone, Copy)]
pub struct Generation {
    value: u64,
    /// The word that the kernel clears; `None` where it cannot, and `value` is the process id.
    word: Option<&'static AtomicU64>,
}

impl Generation {
    /// The generation of the running process, begun by this call if it is the first since `fork`.
    /// Cheap, except once per process. Safe from any thread.
    pub fn current() -> Self {
        let Some(word) = word() else {
            return Self {
                value: process_id(),
                word: None,
            };
        };
        let value = match word.load(Ordering::Relaxed) {
            0 => begin(word, &LAST),
            value => value,
        };
        Self {
            value,
            word: Some(word),
        }
    }

    /// Whether the caller runs in the process, and not in a child of the process, that called
    /// [`current`](Self::current). One relaxed load.
    #[inline]
    pub fn is_current(&self) -> bool {
        // Relaxed is enough: a thread of this process always finds the value here, since it can have
        // this object only after `current` returned; and a child starts as a copy of one thread.
        match self.word {
            Some(word) => word.load(Ordering::Relaxed) == self.value,
            None => process_id() == self.value,
        }
    }
}

/// Gives the cleared `word` a value that no ancestor used. `last` survives `fork`, so that it is at
/// least what every inherited object holds.
fn begin(word: &AtomicU64, last: &AtomicU64) -> u64 {
    let next = last.fetch_add(1, Ordering::Relaxed) + 1;
    match word.compare_exchange(0, next, Ordering::Relaxed, Ordering::Relaxed) {
        Ok(_) => next,
        Err(faster) => faster,
    }
}

fn process_id() -> u64 {
    u64::from(std::process::id())
}

/// Calls `before` in a thread that is about to fork, and then one of the others, in that thread of the
/// parent and in the child. A child made by `_Fork` or raw `clone` runs none of them. Nothing forks, and
/// nothing is called, on Windows.
///
/// # Errors
/// No memory for one more hook.
#[cfg(unix)]
#[expect(unsafe_code, reason = "std has no hook for fork")]
pub fn at_fork(
    before: extern "C" fn(),
    in_parent: extern "C" fn(),
    in_child: extern "C" fn(),
) -> std::io::Result<()> {
    // SAFETY: function pointers are valid for as long as their library is loaded, and the C library drops
    // the hooks of a library that it unloads.
    match unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) } {
        0 => Ok(()),
        error => Err(std::io::Error::from_raw_os_error(error)),
    }
}

/// Nothing forks on Windows.
///
/// # Errors
/// None.
#[cfg(windows)]
pub fn at_fork(
    _before: extern "C" fn(),
    _in_parent: extern "C" fn(),
    _in_child: extern "C" fn(),
) -> std::io::Result<()> {
    Ok(())
}

/// The word of this process, or `None` if the system has no pages that `fork` clears.
///
/// Not a `OnceLock`: a child forked while another thread initialises one would wait for ever.
fn word() -> Option<&'static AtomicU64> {
    let mut word = WORD.load(Ordering::Acquire);
    if word.is_null() {
        let new = page::map().unwrap_or_else(|| (&raw const NO_PAGE).cast_mut());
        word = match WORD.compare_exchange(
            std::ptr::null_mut(),
            new,
            Ordering::AcqRel,
            Ordering::Acquire,
        ) {
            Ok(_) => new,
            Err(faster) => {
                page::unmap(new);
                faster
            }
        };
    }
    if std::ptr::eq(word, &raw const NO_PAGE) {
        return None;
    }
    Some(page::borrow(word))
}

static WORD: AtomicPtr<AtomicU64> = AtomicPtr::new(std::ptr::null_mut());
/// The last generation of this process and its ancestors; ordinary memory.
static LAST: AtomicU64 = AtomicU64::new(0);
/// Address that stands for "no such page".
static NO_PAGE: AtomicU64 = AtomicU64::new(0);

/// The one page, which is never unmapped once published.
#[cfg(all(target_os = "linux", not(miri)))]
mod page {
    use std::ptr;
    use std::sync::atomic::AtomicU64;

    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

    /// Rounded up to whole pages by the kernel.
    const LEN: usize = 4096;

    /// A new page that is cleared on `fork` and left out of core dumps.
    #[expect(unsafe_code, reason = "the mapping calls take raw addresses")]
    pub(super) fn map() -> Option<*mut AtomicU64> {
        // SAFETY: no address is asked for, so no existing mapping can be touched.
        let page = unsafe {
            mmap_anonymous(
                ptr::null_mut(),
                LEN,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )
        }
        .ok()?;
        // SAFETY: `page` is our own mapping of this length; this advice changes nothing but what a
        // child and a core dump see.
        let wiped = unsafe { madvise(page, LEN, Advice::LinuxWipeOnFork) };
        if wiped.is_err() {
            unmap(page.cast());
            return None;
        }
        // SAFETY: as above. Failing is harmless: a generation is no secret.
        let _ = unsafe { madvise(page, LEN, Advice::LinuxDontDump) };
        Some(page.cast())
    }

    /// Unmaps a page of [`map`] that was not handed out.
    #[expect(unsafe_code, reason = "the mapping calls take raw addresses")]
    pub(super) fn unmap(page: *mut AtomicU64) {
        if ptr::eq(page, &raw const super::NO_PAGE) {
            return;
        }
        // SAFETY: `page` came from `map` and was never published, so there is no reference into it.
        let _ = unsafe { munmap(page.cast(), LEN) };
    }

    /// The word at the start of a published page.
    #[expect(unsafe_code, reason = "the page lies outside Rust's memory")]
    pub(super) fn borrow(page: *const AtomicU64) -> &'static AtomicU64 {
        // SAFETY: `page` came from `map`: aligned to a page, readable, writable, zero or a value
        // of ours, and never unmapped after it was published. Only atomics access it.
        unsafe { &*page }
    }
}

#[cfg(not(all(target_os = "linux", not(miri))))]
mod page {
    use std::sync::atomic::AtomicU64;

    pub(super) fn map() -> Option<*mut AtomicU64> {
        None
    }

    pub(super) fn unmap(_page: *mut AtomicU64) {}

    pub(super) fn borrow(_page: *const AtomicU64) -> &'static AtomicU64 {
        &super::NO_PAGE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stays_current_in_its_process() {
        let first = Generation::current();
        let threads: Vec<_> = (0..8)
            .map(|_| {
                std::thread::spawn(move || {
                    assert!(first.is_current());
                    Generation::current().value
                })
            })
            .collect();
        for thread in threads {
            assert_eq!(thread.join().unwrap(), first.value);
        }
        assert!(first.is_current());
    }

    #[test]
    fn a_cleared_word_begins_a_generation_that_no_ancestor_had() {
        let (word, last) = (AtomicU64::new(0), AtomicU64::new(0));
        let mut seen = vec![0];
        for _ in 0..5 {
            // As `fork` does: the page is cleared, ordinary memory is copied.
            word.store(0, Ordering::Relaxed);
            let value = begin(&word, &last);
            assert!(!seen.contains(&value));
            assert_eq!(word.load(Ordering::Relaxed), value);
            seen.push(value);
        }
    }

    #[test]
    fn one_of_two_beginners_wins() {
        let (word, last) = (AtomicU64::new(0), AtomicU64::new(7));
        let mut values = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|_| scope.spawn(|| begin(&word, &last)))
                .collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap())
                .collect::<Vec<_>>()
        });
        values.dedup();
        assert_eq!(values, [word.load(Ordering::Relaxed)]);
        assert!(values[0] > 7);
    }

    #[test]
    fn works_without_such_pages() {
        let generation = Generation {
            value: process_id(),
            word: None,
        };
        assert!(generation.is_current());
        let parent = Generation {
            value: process_id() + 1,
            word: None,
        };
        assert!(!parent.is_current());
    }
}
