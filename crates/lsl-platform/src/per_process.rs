//! A value that belongs to one process. A forked child has none of its parent's threads, so a lock that
//! one of them held at the fork never opens there: the child gets a value of its own.

use std::sync::OnceLock;

use crate::process::ProcessId;

/// A lazily made value, one per process of a chain of forks.
#[derive(Debug)]
pub struct PerProcess<T> {
    value: OnceLock<(ProcessId, T)>,
    /// Of the children.
    next: OnceLock<Box<Self>>,
}

impl<T> PerProcess<T> {
    /// None is made yet.
    pub const fn new() -> Self {
        Self {
            value: OnceLock::new(),
            next: OnceLock::new(),
        }
    }
}

impl<T> Default for PerProcess<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Default> PerProcess<T> {
    /// This process's value.
    pub fn get(&self) -> &T {
        let mut place = self;
        loop {
            let fresh = || (ProcessId::current(), T::default());
            let (owner, value) = place.value.get_or_init(fresh);
            if owner.is_current() {
                return value;
            }
            place = place.next.get_or_init(|| Box::new(Self::new()));
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
        assert!(std::ptr::eq(VALUE.get(), VALUE.get()));
    }
}
