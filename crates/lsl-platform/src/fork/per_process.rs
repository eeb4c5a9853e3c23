//! A value that belongs to one process. A forked child has none of its parent's threads, so a lock that
//! one of them held at the fork never opens there: the child gets a value of its own.

use std::convert::Infallible;
use std::marker::PhantomData;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};

use super::Generation;

/// A lazily made value, one per process of a chain of forks.
///
/// Not a `OnceLock`: a child forked while another thread initialises one would wait for ever. Here
/// a value is made first and published in one step; of several threads that make one at the same
/// time, all but the fastest drop theirs. An inherited value is never dropped: it may refer to
/// threads of the parent.
#[derive(Debug)]
pub struct PerProcess<T> {
    /// Made by this process or, until it needs one, by an ancestor; null if there is none at all.
    made: AtomicPtr<Made<T>>,
    /// Makes the type sent and shared as this would be.
    value: PhantomData<OnceLock<T>>,
}

#[derive(Debug)]
struct Made<T> {
    owner: Generation,
    value: T,
}

impl<T> PerProcess<T> {
    /// Creates a holder without a value.
    pub const fn new() -> Self {
        Self {
            made: AtomicPtr::new(ptr::null_mut()),
            value: PhantomData,
        }
    }

    /// This process's value, made now if there is none. Waits for no other thread.
    pub fn get_or_init(&self, make: impl FnOnce() -> T) -> &T {
        let Ok(value) = self.get_or_try_init(|| Ok::<_, Infallible>(make()));
        value
    }

    /// Works as [`get_or_init`](Self::get_or_init), for a value whose making may fail.
    ///
    /// # Errors
    /// That of `make`. The next call tries again.
    #[expect(unsafe_code, reason = "the value lies behind a pointer")]
    pub fn get_or_try_init<E>(&self, make: impl FnOnce() -> Result<T, E>) -> Result<&T, E> {
        let before = self.made.load(Ordering::Acquire);
        // SAFETY: null, or from a box below, which only `drop` frees.
        if let Some(made) = unsafe { before.as_ref() }
            && made.owner.is_current()
        {
            return Ok(&made.value);
        }
        let mut made = Box::into_raw(Box::new(Made {
            owner: Generation::current(),
            value: make()?,
        }));
        let published =
            self.made
                .compare_exchange(before, made, Ordering::AcqRel, Ordering::Acquire);
        if let Err(faster) = published {
            // SAFETY: it came from a box and was never published.
            drop(unsafe { Box::from_raw(made) });
            // Of this process as well: no other one can have replaced what was there.
            made = faster;
        }
        // SAFETY: it was published, and only `drop` frees it.
        Ok(unsafe { &(*made).value })
    }
}

impl<T: Default> PerProcess<T> {
    /// Returns this process's value, made by default if there is none.
    pub fn get(&self) -> &T {
        self.get_or_init(T::default)
    }
}

impl<T> From<T> for PerProcess<T> {
    fn from(value: T) -> Self {
        let this = Self::new();
        this.get_or_init(|| value);
        this
    }
}

impl<T> Default for PerProcess<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Drop for PerProcess<T> {
    #[expect(unsafe_code, reason = "the value lies behind a pointer")]
    fn drop(&mut self) {
        let made = *self.made.get_mut();
        // SAFETY: null, or from a box that is freed here alone.
        let is_own = unsafe { made.as_ref() }.is_some_and(|made| made.owner.is_current());
        if is_own {
            // SAFETY: as above; `&mut self` says that there is no reference to it.
            drop(unsafe { Box::from_raw(made) });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn a_process_always_gets_the_same_value() {
        static VALUE: PerProcess<Mutex<u32>> = PerProcess::new();
        *VALUE.get().lock().unwrap() = 7;
        let other = std::thread::spawn(|| *VALUE.get().lock().unwrap());
        assert_eq!(other.join().unwrap(), 7);
        assert!(ptr::eq(VALUE.get(), VALUE.get()));
    }

    #[test]
    fn of_several_that_are_made_at_once_one_stays_and_all_are_dropped() {
        use std::sync::{Arc, Barrier};

        let (made, everybody) = (Arc::new(()), Barrier::new(4));
        let value = PerProcess::new();
        let make = || {
            everybody.wait();
            Arc::clone(&made)
        };
        std::thread::scope(|scope| {
            let get = || ptr::from_ref(value.get_or_init(make)).addr();
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(get)).collect();
            let got = threads.into_iter().map(|thread| thread.join().unwrap());
            let mut got: Vec<_> = got.collect();
            got.dedup();
            assert_eq!(got.len(), 1);
        });
        assert_eq!(Arc::strong_count(&made), 2);
        drop(value);
        assert_eq!(Arc::strong_count(&made), 1);
    }

    #[test]
    fn what_could_not_be_made_is_tried_again() {
        let value = PerProcess::new();
        assert_eq!(value.get_or_try_init(|| Err("not now")), Err("not now"));
        assert_eq!(value.get_or_try_init(|| Ok::<_, &str>(3)), Ok(&3));
        assert_eq!(value.get_or_try_init(|| Err("too late")), Ok(&3));
    }
}
