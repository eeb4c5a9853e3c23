//! What a real `fork` does to a [`Generation`]. A test binary of its own: the child of a threaded
//! process may do next to nothing, so it only compares and leaves by `_exit`.
#![cfg(unix)]
#![expect(unsafe_code, reason = "fork, waitpid and _exit have no safe form")]

use lsl_platform::fork::Generation;

/// Runs `child` in a forked process; true if it returned true there.
fn in_child(child: impl FnOnce() -> bool) -> bool {
    // SAFETY: the child allocates nothing, takes no lock and leaves by `_exit`.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0, "fork failed");
    if pid == 0 {
        let status = i32::from(!child());
        // SAFETY: ends this process at once, without running what belongs to the parent.
        unsafe { libc::_exit(status) };
    }
    let mut status = 0;
    // SAFETY: our own child, and a place for its status that outlives the call.
    let waited = unsafe { libc::waitpid(pid, &raw mut status, 0) };
    assert_eq!(waited, pid);
    libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0
}

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
