//! Waiting for a change without a lock. Threads hold the lock of a condition variable briefly before and
//! after they sleep. A signal handler that needs it then would wait for ever.

use std::time::Duration;

use crate::reentry::interruptible;

/// Counter of changes that threads can wait for. The data has a lock of its own: take the count under it,
/// unlock, wait, look again.
#[derive(Debug, Default)]
pub struct EventCount(system::Count);

impl EventCount {
    /// Returns the number of changes so far.
    #[inline]
    pub fn current(&self) -> u32 {
        self.0.current()
    }

    /// Blocks the calling thread, which holds no lock, until the count differs from `seen` or `limit` has
    /// passed. May return earlier. Signal handlers may push meanwhile.
    pub fn wait(&self, seen: u32, limit: Duration) {
        interruptible(|| self.0.wait(seen, limit));
    }

    /// Increments the count and wakes all waiting threads.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}

#[cfg(all(target_os = "linux", not(miri)))]
mod system {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Duration;

    use rustix::thread::futex::{self, Flags, Timespec};

    #[derive(Debug, Default)]
    pub(super) struct Count(AtomicU32);

    impl Count {
        #[inline]
        pub(super) fn current(&self) -> u32 {
            self.0.load(Ordering::Acquire)
        }

        pub(super) fn wait(&self, seen: u32, limit: Duration) {
            let limit = Timespec::try_from(limit).ok();
            // The reason is irrelevant: the caller looks again.
            let _ = futex::wait(&self.0, Flags::PRIVATE, seen, limit.as_ref());
        }

        pub(super) fn notify_all(&self) {
            self.0.fetch_add(1, Ordering::Release);
            let _ = futex::wake(&self.0, Flags::PRIVATE, i32::MAX.cast_unsigned());
        }
    }
}

/// Uses a lock where the system has no wait without one.
#[cfg(not(all(target_os = "linux", not(miri))))]
mod system {
    use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
    use std::time::Duration;

    #[derive(Debug, Default)]
    pub(super) struct Count {
        count: Mutex<u32>,
        changed: Condvar,
    }

    impl Count {
        fn lock(&self) -> MutexGuard<'_, u32> {
            self.count.lock().unwrap_or_else(PoisonError::into_inner)
        }

        pub(super) fn current(&self) -> u32 {
            *self.lock()
        }

        pub(super) fn wait(&self, seen: u32, limit: Duration) {
            let count = self.lock();
            if *count == seen {
                drop(self.changed.wait_timeout(count, limit));
            }
        }

        pub(super) fn notify_all(&self) {
            let mut count = self.lock();
            *count = count.wrapping_add(1);
            drop(count);
            self.changed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_counted_before_a_wait_ends_it_and_what_comes_during_it_too() {
        let events = EventCount::default();
        let forever = Duration::from_hours(24);
        let seen = events.current();
        events.notify_all();
        events.wait(seen, forever);
        events.wait(events.current(), Duration::ZERO);
        let seen = events.current();
        std::thread::scope(|threads| {
            let waiting = threads.spawn(|| {
                while events.current() == seen {
                    events.wait(seen, forever);
                }
            });
            events.notify_all();
            waiting.join().unwrap();
        });
    }
}
