//! A real `fork` for tests, each of which is a binary of its own: the child of a threaded process may do next to nothing.

/// Runs `child` in a forked process; true if it returned true there. An alarm ends a child that waits
/// for a lock for ever.
pub(crate) fn in_child(child: impl FnOnce() -> bool) -> bool {
    // SAFETY: what the child needs of this process is the subject of the test; it leaves by `_exit`.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0, "fork failed");
    if pid == 0 {
        // SAFETY: the default action of SIGALRM ends the child.
        unsafe { libc::alarm(20) };
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
