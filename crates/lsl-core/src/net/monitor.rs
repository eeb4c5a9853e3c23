//! `Monitor<T>`: a value, and waiting until it looks right. The one waiting primitive of the crate,
//! for blocked threads and for tasks of any executor alike.
//!
//! A waiter announces itself before it looks, under the lock that every change takes, so no change
//! falls between looking and sleeping; and a change costs a system call only if somebody waits.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::atomic::Ordering;
use std::sync::{Mutex as StdMutex, MutexGuard as StdGuard, PoisonError, TryLockError};
use std::task::Poll;
use std::time::Duration;

use tokio::time::Sleep;

use crate::net::runtime;
use crate::net::sync::{AtomicUsize, EventCount, Mutex, MutexGuard, Notify, local_clock};

/// Locks, going on with what a panicking holder left: every holder in this crate keeps the value
/// consistent at each step, and a streaming program must not fall over twice.
pub(crate) fn lock_ignoring_poison<T>(mutex: &StdMutex<T>) -> StdGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A value behind a lock, with waiting. See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct Monitor<T> {
    value: Mutex<T>,
    changes: EventCount,
    tasks: Notify,
    // Counted apart, because waking the one kind does not wake the other. Both change before the
    // waiter takes the lock, so whoever changes the value under that lock sees them.
    waiting_threads: AtomicUsize,
    waiting_tasks: AtomicUsize,
}

impl<T> Monitor<T> {
    pub(crate) fn new(value: T) -> Self {
        Self {
            value: Mutex::new(value),
            changes: EventCount::default(),
            tasks: Notify::new(),
            waiting_threads: AtomicUsize::new(0),
            waiting_tasks: AtomicUsize::new(0),
        }
    }

    /// Locks the value without waking anybody afterwards: for reading, or before [`Self::wake`].
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.value.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// As [`lock`](Self::lock), unless somebody holds the lock.
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.value.try_lock() {
            Ok(value) => Some(value),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Changes the value, then wakes every waiter to look again.
    pub(crate) fn update<R>(&self, change: impl FnOnce(&mut T) -> R) -> R {
        let result = change(&mut self.lock());
        self.wake();
        result
    }

    /// Wakes every waiter to look again; call it after changing the value through [`Self::lock`].
    pub(crate) fn wake(&self) {
        if self.waiting_threads.load(Ordering::Acquire) > 0 {
            self.changes.notify_all();
        }
        if self.waiting_tasks.load(Ordering::Acquire) > 0 {
            self.tasks.notify_waiters();
        }
    }

    /// Whether somebody waits: for callers that save work when nobody looks.
    pub(crate) fn has_waiters(&self) -> bool {
        self.waiting_threads.load(Ordering::Acquire) > 0
            || self.waiting_tasks.load(Ordering::Acquire) > 0
    }

    /// How many waiters there are.
    #[cfg(test)]
    pub(crate) fn waiters(&self) -> usize {
        self.waiting_threads.load(Ordering::Acquire) + self.waiting_tasks.load(Ordering::Acquire)
    }

    /// Blocks the calling thread until `ready` gives something, at the latest at `deadline` (seconds
    /// of `local_clock`, may be infinite). `ready` runs under the lock, at least once.
    pub(crate) fn wait_blocking<R>(
        &self,
        deadline: f64,
        mut ready: impl FnMut(&mut T) -> Option<R>,
    ) -> Option<R> {
        let _announced = Announced::new(&self.waiting_threads);
        let mut value = self.lock();
        loop {
            if let Some(result) = ready(&mut value) {
                return Some(result);
            }
            let remaining_secs = deadline - local_clock();
            if has_passed(remaining_secs) {
                return None;
            }
            let hop = Duration::from_secs_f64(remaining_secs.min(LONGEST_HOP_SECS));
            let seen = self.changes.current();
            // Signal handlers may push while it waits: an outlet's lock must be free then, to them and to
            // whoever waits for it with a lock that they need.
            drop(value);
            self.changes.wait(seen, hop);
            value = self.lock();
        }
    }

    /// Waits until `ready` gives something, at the latest at `deadline` (seconds of `local_clock`,
    /// may be infinite). Works inside any executor: the timer belongs to the process runtime.
    /// Dropping the future at any point loses nothing that `ready` did not already take.
    pub(crate) async fn wait<R>(
        &self,
        deadline: f64,
        mut ready: impl FnMut(&mut T) -> Option<R>,
    ) -> Option<R> {
        let _announced = Announced::new(&self.waiting_tasks);
        let mut alarm = None;
        let mut woken = pin!(self.tasks.notified());
        loop {
            // Registers before looking; a wake between here and the await is kept.
            woken.as_mut().enable();
            if let Some(result) = ready(&mut self.lock()) {
                return Some(result);
            }
            let remaining_secs = deadline - local_clock();
            if has_passed(remaining_secs) {
                return None;
            }
            // Waiting for ever needs no runtime.
            if alarm.is_none() && deadline.is_finite() {
                alarm = Some(alarm_after(remaining_secs)?);
            }
            poll_fn(|context| match woken.as_mut().poll(context) {
                Poll::Ready(()) => Poll::Ready(()),
                Poll::Pending => match &mut alarm {
                    Some(alarm) => alarm.as_mut().poll(context),
                    None => Poll::Pending,
                },
            })
            .await;
            woken.set(self.tasks.notified());
            if alarm.as_ref().is_some_and(|alarm| alarm.is_elapsed()) {
                // The last look is above; a hop that ended early sets the alarm again.
                alarm = None;
            }
        }
    }
}

/// Counts one waiter for as long as it exists, also when a future is dropped half-way.
struct Announced<'a> {
    waiting: &'a AtomicUsize,
}

impl<'a> Announced<'a> {
    fn new(waiting: &'a AtomicUsize) -> Self {
        waiting.fetch_add(1, Ordering::AcqRel);
        Self { waiting }
    }
}

impl Drop for Announced<'_> {
    fn drop(&mut self) {
        self.waiting.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Returns a timer of the process runtime, for use in a future that some other executor polls. `None` if there is
/// no runtime to keep time, in which case nothing else works either.
fn alarm_after(secs: f64) -> Option<Pin<Box<Sleep>>> {
    let handle = runtime::handle().ok()?;
    let _context = handle.enter();
    let hop = Duration::from_secs_f64(secs.min(LONGEST_HOP_SECS));
    Some(Box::pin(tokio::time::sleep(hop)))
}

/// A NaN deadline counts as passed, so that a caller's bad arithmetic cannot hang it.
pub(crate) fn has_passed(remaining_secs: f64) -> bool {
    remaining_secs.is_nan() || remaining_secs <= 0.0
}

/// Longest single sleep: an infinite deadline must not overflow a `Duration` or a timer wheel.
const LONGEST_HOP_SECS: f64 = 86_400.0;

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::thread;

    use super::*;

    /// Long enough that only a lost wake-up reaches it.
    fn soon() -> f64 {
        local_clock() + 20.0
    }

    fn on_runtime<R: Send + 'static>(task: impl Future<Output = R> + Send + 'static) -> R {
        let (sender, receiver) = std::sync::mpsc::channel();
        runtime::spawn(async move { sender.send(task.await).unwrap() }).unwrap();
        receiver.recv_timeout(Duration::from_mins(1)).unwrap()
    }

    #[test]
    fn a_condition_that_holds_is_seen_even_after_the_deadline() {
        let monitor = Arc::new(Monitor::new(3));
        assert_eq!(monitor.wait_blocking(0.0, |value| Some(*value)), Some(3));
        assert_eq!(monitor.wait_blocking(f64::NAN, |_| None::<()>), None);
        let shared = Arc::clone(&monitor);
        assert_eq!(
            on_runtime(async move { shared.wait(0.0, |value| Some(*value)).await }),
            Some(3)
        );
    }

    #[test]
    fn gives_up_at_the_deadline() {
        let monitor = Arc::new(Monitor::new(()));
        let start = local_clock();
        assert_eq!(monitor.wait_blocking(start + 0.01, |()| None::<()>), None);
        assert!(local_clock() >= start + 0.01);
        let start = local_clock();
        let shared = Arc::clone(&monitor);
        assert_eq!(
            on_runtime(async move { shared.wait(start + 0.01, |()| None::<()>).await }),
            None
        );
        assert!(local_clock() >= start + 0.01);
        assert_eq!(monitor.waiters(), 0);
    }

    #[test]
    fn threads_and_tasks_hand_a_token_around_without_losing_a_wake_up() {
        const ROUNDS: u32 = 2000;
        let monitor = Arc::new(Monitor::new(0_u32));
        let odd = Arc::clone(&monitor);
        let thread = thread::spawn(move || {
            for _ in 0..ROUNDS {
                let turn = |value: &mut u32| (*value % 2 == 1).then(|| *value += 1);
                odd.wait_blocking(soon(), turn)
                    .expect("wake-up lost in the thread");
                odd.wake();
            }
        });
        let even = Arc::clone(&monitor);
        on_runtime(async move {
            for _ in 0..ROUNDS {
                let turn = |value: &mut u32| value.is_multiple_of(2).then(|| *value += 1);
                even.wait(soon(), turn)
                    .await
                    .expect("wake-up lost in the task");
                even.wake();
            }
        });
        thread.join().unwrap();
        assert_eq!(*monitor.lock(), 2 * ROUNDS);
    }

    #[test]
    fn one_update_wakes_all_waiters() {
        let monitor = Arc::new(Monitor::new(false));
        let waiters: Vec<_> = (0..4)
            .map(|_| {
                let shared = Arc::clone(&monitor);
                thread::spawn(move || shared.wait_blocking(soon(), |open| open.then_some(())))
            })
            .collect();
        monitor.update(|open| *open = true);
        assert!(
            waiters
                .into_iter()
                .all(|waiter| waiter.join().unwrap().is_some())
        );
    }

    #[test]
    fn a_dropped_wait_leaves_no_waiter_behind() {
        let monitor = Arc::new(Monitor::new(()));
        let shared = Arc::clone(&monitor);
        let task = runtime::spawn(async move {
            shared.wait(f64::INFINITY, |()| None::<()>).await;
        })
        .unwrap();
        while monitor.waiters() == 0 {
            thread::yield_now();
        }
        task.abort();
        while monitor.waiters() > 0 {
            thread::yield_now();
        }
    }
}

#[cfg(all(test, lsl_loom))]
mod loom {
    use std::sync::Arc;

    use super::*;
    use crate::net::sync::{block_on, check, thread};

    #[test]
    fn two_threads_and_a_task_hand_a_token_around() {
        let turn = |own: u32| move |value: &mut u32| (*value == own).then(|| *value += 1);
        check(3, move || {
            let monitor = Arc::new(Monitor::new(0));
            let waiters = [1, 2].map(|own| {
                let monitor = Arc::clone(&monitor);
                thread(move || {
                    if own == 1 {
                        block_on(monitor.wait(f64::INFINITY, turn(own)));
                    } else {
                        monitor.wait_blocking(f64::INFINITY, turn(own));
                    }
                    monitor.wake();
                })
            });
            monitor.update(|value| *value += 1);
            monitor.wait_blocking(f64::INFINITY, turn(3));
            for waiter in waiters {
                waiter.join().unwrap();
            }
        });
    }
}
