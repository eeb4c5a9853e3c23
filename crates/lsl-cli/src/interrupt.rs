//! Ctrl-C and termination as a flag that loops look at, so that every command ends with its summary.
//! A second Ctrl-C ends the process at once. Commands install it only when their loop starts: while
//! they search or connect, Ctrl-C keeps its usual meaning.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use lsl_core::local_clock;
use lsl_platform::exit::leave;
use lsl_platform::termination::{Request, catch};
use lsl_xdf::at_rest::Cancel;

use crate::failure::{Failure, Outcome};

/// Set once the user wants the command to end.
#[derive(Debug, Clone, Default)]
pub struct Stop {
    first: Cancel,
    second: Cancel,
    /// Wakes who sleeps.
    alarm: Arc<(Mutex<()>, Condvar)>,
}

impl Stop {
    /// Starts to catch Ctrl-C and termination. Call it once.
    pub fn install() -> Outcome<Self> {
        Self::install_patient(1)
    }

    /// Works as `install`, with so many requests before the one that ends the process at once:
    /// commands that take long to end look at the [`second`](Self::second) one.
    pub fn install_patient(patience: u32) -> Outcome<Self> {
        let stop = Self::default();
        let flag = stop.clone();
        let mut last = None;
        let mut wishes = 0;
        // Runs on a thread of its own, not in a signal handler.
        let handler = move |request| {
            if request == Request::EndNow {
                flag.second.cancel();
                flag.request();
                // The system ends the process after some five seconds, without its last words.
                thread::sleep(LAST_MOMENTS);
                leave(INTERRUPTED);
            }
            let now = local_clock();
            // Terminals and wrappers such as `timeout` signal both a process and its group: two
            // signals in a row are one wish.
            if last.is_some_and(|last| now - last <= SAME_WISH_SECS) {
                return;
            }
            last = Some(now);
            wishes += 1;
            if wishes > patience {
                leave(INTERRUPTED);
            }
            if flag.requested() {
                flag.second.cancel();
            }
            flag.request();
        };
        catch(handler)
            .map_err(|error| Failure::Runtime(format!("cannot catch Ctrl-C: {error}")))?;
        Ok(stop)
    }

    /// Returns whether the command shall end.
    pub fn requested(&self) -> bool {
        self.first.is_cancelled()
    }

    /// The first wish, as libraries understand it.
    pub fn first(&self) -> &Cancel {
        &self.first
    }

    /// The second wish: to hurry.
    pub fn second(&self) -> &Cancel {
        &self.second
    }

    /// Ends every loop that looks at this flag.
    pub fn request(&self) {
        self.first.cancel();
        let (lock, alarm) = &*self.alarm;
        drop(lock.lock().unwrap_or_else(PoisonError::into_inner));
        alarm.notify_all();
    }

    /// Sleeps until `local_clock` reaches `deadline`. Returns false as soon as the user wants to end.
    pub fn sleep_until(&self, deadline: f64) -> bool {
        let (lock, alarm) = &*self.alarm;
        let mut asleep = lock.lock().unwrap_or_else(PoisonError::into_inner);
        while !self.requested() {
            let left = deadline - local_clock();
            if left <= 0.0 {
                return true;
            }
            let left = Duration::from_secs_f64(left.min(LONGEST_SLEEP_SECS));
            let woken = alarm.wait_timeout(asleep, left);
            asleep = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
        false
    }
}

/// Longest wait of a blocking call before the flag is looked at again.
pub const LONGEST_NAP: Duration = Duration::from_millis(50);
/// Sleeps may be asked for that never end.
const LONGEST_SLEEP_SECS: f64 = 3600.0;
const SAME_WISH_SECS: f64 = 0.5;
/// Time of a process whose window was closed.
const LAST_MOMENTS: Duration = Duration::from_secs(3);
/// Exit status that shells report for a process that Ctrl-C ended.
const INTERRUPTED: i32 = 130;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleeping_ends_at_the_deadline_or_on_request() {
        let stop = Stop::default();
        let start = local_clock();
        assert!(stop.sleep_until(start + 0.01));
        assert!(local_clock() >= start + 0.01);
        stop.request();
        assert!(!stop.sleep_until(start + 1e6));
    }
}
