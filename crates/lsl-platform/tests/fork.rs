//! What a real `fork` does to a [`Generation`] and a [`PerProcess`]. A test binary of its own: the child of
//! a threaded process may do next to nothing, so it only compares and leaves by `_exit`.
#![cfg(unix)]
#![expect(unsafe_code, reason = "fork, waitpid and _exit have no safe form")]

mod forked;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, mpsc};

use lsl_platform::fork::{Generation, PerProcess};

use forked::in_child;

#[test]
fn inherited_objects_refuse_and_new_ones_work() {
    let parent = Generation::current();
    assert!(in_child(|| {
        let refused = !parent.is_current();
        let own = Generation::current();
        // Beginning the child's own generation must not revive the parent's.
        refused && own.is_current() && !parent.is_current()
    }));
    assert!(parent.is_current());
}

#[test]
fn every_ancestor_is_refused() {
    let first = Generation::current();
    assert!(in_child(|| {
        let second = Generation::current();
        let grandchild = in_child(|| {
            let third = Generation::current();
            third.is_current() && !second.is_current() && !first.is_current()
        });
        grandchild && second.is_current()
    }));
    // A child that never began a generation of its own must not confuse its own child either.
    assert!(in_child(|| in_child(|| {
        let own = Generation::current();
        own.is_current() && !first.is_current()
    })));
    assert!(first.is_current());
}

#[test]
fn a_child_makes_a_value_of_its_own() {
    let value = PerProcess::from(Mutex::new(1));
    // As if another thread were at it while this one forks.
    let held = value.get().lock();
    let is_own = |expected| value.get().try_lock().is_ok_and(|value| *value == expected);
    assert!(in_child(|| {
        let is_new = is_own(0);
        *value.get().lock().unwrap() = 2;
        is_new && in_child(|| is_own(0)) && is_own(2)
    }));
    drop(held);
    assert!(is_own(1));
}

#[test]
fn a_child_waits_for_no_thread_that_makes_a_value() {
    let value = PerProcess::new();
    let (begun, has_begun) = mpsc::channel();
    let (go_on, goes_on) = mpsc::channel();
    std::thread::scope(|scope| {
        let make = move || {
            begun.send(()).unwrap();
            goes_on.recv().unwrap()
        };
        let slow = &value;
        let maker = scope.spawn(move || *slow.get_or_init(make));
        has_begun.recv().unwrap();
        assert!(in_child(|| *value.get_or_init(|| 2) == 2));
        go_on.send(1).unwrap();
        assert_eq!(maker.join().unwrap(), 1);
    });
}

/// Says when it is dropped.
struct Noted<'a>(&'a AtomicBool);

impl Drop for Noted<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn what_a_child_inherits_is_never_dropped() {
    let [inherited, own] = [const { AtomicBool::new(false) }; 2];
    let is_dropped = |noted: &AtomicBool| noted.load(Ordering::Relaxed);
    let mut value = Some(PerProcess::from(Noted(&inherited)));
    assert!(in_child(|| {
        value
            .as_ref()
            .map(|value| value.get_or_init(|| Noted(&own)));
        drop(value.take());
        is_dropped(&own) && !is_dropped(&inherited)
    }));
    drop(value);
    assert!(is_dropped(&inherited) && !is_dropped(&own));
}
