//! Processors and open files that a process may use. For programs that measure.

use std::io;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Restricts this thread, and threads that it starts from now on, to one processor. Returns its number: the
/// last one allowed, since the first serves most of the machine's interrupts. Other threads are not
/// restricted.
///
/// # Errors
/// Those of the system.
#[cfg(target_os = "linux")]
pub fn use_one_processor() -> io::Result<usize> {
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

    let allowed = sched_getaffinity(None)?;
    let last = (0..CpuSet::MAX_CPU).rev().find(|cpu| allowed.is_set(*cpu));
    let last = last.ok_or(io::ErrorKind::NotFound)?;
    let mut one = CpuSet::new();
    one.set(last);
    sched_setaffinity(None, &one)?;
    Ok(last)
}

/// Fails: this system cannot restrict a thread to one processor.
///
/// # Errors
/// Always `Unsupported`.
#[cfg(not(target_os = "linux"))]
pub fn use_one_processor() -> io::Result<usize> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Raises the limit of open files to the hard limit. Returns it, or `u64::MAX` where there is no limit.
///
/// # Errors
/// Those of the system.
pub fn raise_open_files() -> io::Result<u64> {
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        let raised = Rlimit {
            current: limit.maximum,
            ..limit
        };
        setrlimit(Resource::Nofile, raised)?;
    }
    Ok(getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_os = "linux")]
    fn only_this_thread_and_its_children_lose_their_choice() {
        let processors = || std::thread::available_parallelism().unwrap().get();
        let before = processors();
        let pinned = std::thread::spawn(move || {
            use_one_processor().unwrap();
            [processors(), std::thread::spawn(processors).join().unwrap()]
        });
        assert_eq!(pinned.join().unwrap(), [1, 1]);
        assert_eq!(processors(), before);
    }

    #[test]
    fn the_limit_of_files_is_all_there_is() {
        let most = raise_open_files().unwrap();
        assert_eq!(raise_open_files().unwrap(), most);
        assert!(most >= 16);
    }
}
