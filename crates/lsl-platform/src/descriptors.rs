//! The limit of descriptors of this process, raised before it is reached.
//!
//! The soft limit (1024 as a rule) protects programs that wait with `select(2)`, which writes beyond its
//! sets for larger numbers. A library must not remove that protection from programs that never come near
//! the limit. So it is raised only when a new descriptor is close to it and the alternative is to fail.
//! Programs started from this one inherit the limit.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the limit if `newest` is close to it, as far as the hard limit allows. Makes system calls only
/// near the limit.
pub fn make_room(newest: impl AsFd) {
    let number = u64::try_from(newest.as_fd().as_raw_fd()).unwrap_or(0);
    if number >= LOOK_FROM.load(Ordering::Relaxed) {
        LOOK_FROM.store(raise_beyond(number).1, Ordering::Relaxed);
    }
}

/// Raises the limit if `error` says that it is reached. Returns false for other errors, or if it could not
/// be raised.
pub fn made_room_after(error: &io::Error) -> bool {
    Errno::from_io_error(error) == Some(Errno::MFILE) && raise_beyond(u64::MAX).0
}

/// Returns the error. Where descriptors have run out, its text names the limit and the remedy.
pub fn explained(error: io::Error) -> io::Error {
    match Errno::from_io_error(&error) {
        Some(Errno::MFILE) => {
            let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
            let text = |limit: Option<u64>| {
                limit.map_or_else(|| "none".to_owned(), |number| number.to_string())
            };
            io::Error::new(
                error.kind(),
                format!(
                    "no descriptors left: the limit of this process is {} (hard limit {}); raise it \
                     with \"ulimit -n\" or LimitNOFILE=",
                    text(current),
                    text(maximum)
                ),
            )
        }
        Some(Errno::NFILE) => io::Error::new(
            error.kind(),
            "no descriptors left in the whole system; raise fs.file-max",
        ),
        _ => error,
    }
}

/// Raises the soft limit unless it is far beyond `number`. Returns whether it did, and the number from
/// which the limit is checked again.
fn raise_beyond(number: u64) -> (bool, u64) {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let Some(soft) = current else {
        return (false, u64::MAX);
    };
    let look_from = |limit: u64| limit - RESERVE.min(limit / 8);
    if number < look_from(soft) {
        return (false, look_from(soft));
    }
    // In steps: some programs close every number up to the limit, which may be a billion.
    let wanted = soft.saturating_mul(4).max(FIRST_STEP);
    let raised = maximum.map_or(wanted, |hard| wanted.min(hard));
    let limit = Rlimit {
        current: Some(raised),
        maximum,
    };
    if raised > soft && setrlimit(Resource::Nofile, limit).is_ok() {
        (true, look_from(raised))
    } else {
        (false, u64::MAX)
    }
}

/// Number of a descriptor from which on the limit is checked.
static LOOK_FROM: AtomicU64 = AtomicU64::new(0);

/// Descriptors left for the program's own files when the limit is raised.
const RESERVE: u64 = 64;

/// Smallest raised limit: enough for thousands of streams at once.
const FIRST_STEP: u64 = 16_384;

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::process::Command;

    use super::*;

    /// The limit belongs to the process, so each case runs in one of its own: this test again, under
    /// limits set by a shell.
    #[test]
    fn the_limit_grows_when_it_is_near_and_is_named_when_it_cannot() {
        match std::env::var("LSL_TEST_LIMIT").as_deref() {
            Ok("may grow") => may_grow(),
            Ok("is hard") => is_hard(),
            _ => {
                for (limits, case) in [
                    ("ulimit -S -n 128", "may grow"),
                    ("ulimit -n 128", "is hard"),
                ] {
                    let status = Command::new("sh")
                        .args(["-c", &format!("{limits} && exec \"$@\""), "sh"])
                        .arg(std::env::current_exe().unwrap())
                        .args(["--exact", "descriptors::tests::the_limit_grows_when_it_is_near_and_is_named_when_it_cannot"])
                        .env("LSL_TEST_LIMIT", case)
                        .status()
                        .unwrap();
                    assert!(status.success(), "{case}");
                }
            }
        }
    }

    fn soft() -> u64 {
        getrlimit(Resource::Nofile).current.unwrap()
    }

    fn may_grow() {
        let mut files = Vec::new();
        while files.len() < 50 {
            files.push(File::open("/dev/null").unwrap());
            make_room(files.last().unwrap());
        }
        assert_eq!(soft(), 128, "not near yet");
        while files.len() < 300 {
            files.push(File::open("/dev/null").unwrap());
            make_room(files.last().unwrap());
        }
        assert!(soft() > 300);
    }

    fn is_hard() {
        let mut files = Vec::new();
        let error = loop {
            match File::open("/dev/null") {
                Ok(file) => files.push(file),
                Err(error) => break error,
            }
            make_room(files.last().unwrap());
            assert!(files.len() < 200);
        };
        assert!(!made_room_after(&error));
        let text = explained(error).to_string();
        files.clear();
        assert!(
            text.contains("limit of this process is 128 (hard limit 128)"),
            "{text}"
        );
        let other = explained(io::Error::from_raw_os_error(13));
        assert_eq!(other.raw_os_error(), Some(13));
    }
}
