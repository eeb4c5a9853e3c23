//! A hook for the end of the process by `exit` or by returning from `main`. A signal or `_exit` skips it.

use std::io;

/// Registers `hook` to run when the process exits, on the thread that exits, while other threads still run.
/// A child made by `fork` inherits it. Hooks run last registered first, like the destructors of a C++
/// program's static objects. They must be quick and limit every wait: another thread may hold any lock for
/// ever. A panic in one ends the process.
///
/// # Errors
/// No memory for one more hook.
#[expect(unsafe_code, reason = "std has no hook for the end of a process")]
pub fn at_exit(hook: extern "C" fn()) -> io::Result<()> {
    // SAFETY: a function pointer is valid for as long as its library is loaded, and the C library runs
    // the hooks of a library before it unloads it.
    match unsafe { libc::atexit(hook) } {
        0 => Ok(()),
        _ => Err(io::ErrorKind::OutOfMemory.into()),
    }
}

/// Runs the hooks of [`at_exit`] and ends the process. Programs call this in place of std's `exit`, which on
/// Windows runs no hook of a program.
#[cfg_attr(
    windows,
    expect(unsafe_code, reason = "std's `exit` does not ask the C library")
)]
pub fn leave(status: i32) -> ! {
    #[cfg(unix)]
    std::process::exit(status);
    // SAFETY: it takes any number; hooks that call it again would be ours.
    #[cfg(windows)]
    unsafe {
        libc::exit(status)
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// Set in the environment of this binary when the test starts it again.
    const ROLE: &str = "LSL_EXIT_TEST_ROLE";

    extern "C" fn say_so() {
        let file = std::env::var_os(ROLE).unwrap();
        std::fs::write(file, "the end").unwrap();
    }

    #[test]
    fn a_hook_runs_when_the_process_exits() {
        if std::env::var_os(ROLE).is_some() {
            at_exit(say_so).unwrap();
            leave(0);
        }
        let file = std::env::temp_dir().join(format!("lsl-exit-{}", std::process::id()));
        let mut command = Command::new(std::env::current_exe().unwrap());
        let test = "exit::tests::a_hook_runs_when_the_process_exits";
        command.args(["--exact", test]).env(ROLE, &file);
        assert!(command.output().unwrap().status.success());
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "the end");
        std::fs::remove_file(file).unwrap();
    }
}
