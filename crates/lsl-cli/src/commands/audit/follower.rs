//! Reads a log while programs write it, across rotations: each line once, those of a program in its order.
//! Spec: audit §1.4, §1.6.
//!
//! A program that has much to say looks only once a second whether its file was rotated. So a rotated file
//! is read on for a while; and what it got before a newer one did is handed out before it.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use lsl_core::secure::audit::rotated;
use lsl_platform::clock::{local_clock, utc_now};
use lsl_platform::disk::is_still;

use super::lines::Lines;
use crate::failure::{Failure, Outcome};

/// The files of a log that may still grow, and what was read of them.
#[derive(Debug)]
pub(super) struct Follower {
    path: PathBuf,
    /// Oldest first.
    files: Vec<Followed>,
    /// Numbers of rotated files that are or were read.
    seen: BTreeSet<u64>,
}

#[derive(Debug)]
struct Followed {
    lines: Lines,
    /// Greater for newer files; that of the current one is the greatest.
    number: u64,
    /// When it was seen to be rotated, or gone.
    left_at: f64,
}

impl Follower {
    /// Begins with the oldest line that is there. There may be no log yet.
    pub(super) fn new(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            files: Vec::new(),
            seen: BTreeSet::new(),
        }
    }

    /// Hands the lines to `take` that were added since the last call.
    pub(super) fn read(&mut self, mut take: impl FnMut(&[u8]) -> Outcome) -> Outcome {
        self.find()?;
        // Whoever wrote a line to a newer file did so after those to an older one.
        let ends: Vec<u64> = self.files.iter().rev().map(Followed::len).collect();
        for (file, end) in self.files.iter_mut().zip(ends.into_iter().rev()) {
            while file.lines.position() < end {
                let Some(line) = file.lines.next_complete()? else {
                    break;
                };
                take(line)?;
            }
        }
        let now = local_clock();
        self.files.retain(|it| {
            let is_read = it.len() <= it.lines.position();
            let written = it.lines.file().metadata().and_then(|it| it.modified()).ok();
            let written = written.and_then(|it| it.duration_since(UNIX_EPOCH).ok());
            let since = utc_now().saturating_sub(written.unwrap_or_default());
            let is_quiet = now - it.left_at > MAY_GROW.as_secs_f64() && since > MAY_GROW;
            it.number == CURRENT || !is_quiet || !is_read
        });
        Ok(())
    }

    /// Opens what is new, and notes what was rotated.
    fn find(&mut self) -> Outcome {
        let now = local_clock();
        // One that was cut is a new one.
        self.files.retain(|it| it.len() >= it.lines.position());
        let is_current = self.files.last().is_some_and(|it| it.still_is(&self.path));
        if !is_current {
            // The former one gets its number below, if it has one.
            for file in self.files.iter_mut().filter(|it| it.number == CURRENT) {
                (file.number, file.left_at) = (CURRENT - 1, now);
            }
            match Lines::open(&self.path) {
                Ok(lines) => self.files.push(Followed {
                    lines,
                    number: CURRENT,
                    left_at: f64::INFINITY,
                }),
                // Between two files of a rotation there is none.
                Err(Failure::NotFound(_)) => {}
                Err(failure) => return Err(failure),
            }
        }
        // After the current one: all that are older have their numbers by now.
        let is_first = self.seen.is_empty();
        for path in rotated(&self.path).unwrap_or_default() {
            let number = path.extension().and_then(|it| it.to_str()?.parse().ok());
            let Some(number) = number.filter(|it| !self.seen.contains(it)) else {
                continue;
            };
            // A name that is being reserved leads to an empty file.
            if fs::metadata(&path).is_ok_and(|it| it.len() > 0) {
                let known = self.files.iter_mut().find(|it| it.still_is(&path));
                match known {
                    Some(known) => {
                        let left_at = known.left_at.min(now);
                        (known.number, known.left_at) = (number, left_at);
                    }
                    None => match Lines::open(&path) {
                        Ok(lines) => self.files.push(Followed {
                            lines,
                            number,
                            left_at: if is_first { f64::NEG_INFINITY } else { now },
                        }),
                        // Deleted, as old ones are.
                        Err(Failure::NotFound(_)) => {}
                        Err(failure) => return Err(failure),
                    },
                }
                self.seen.insert(number);
            }
        }
        self.files.sort_by_key(|it| it.number);
        Ok(())
    }
}

impl Followed {
    /// Whether the path leads to the file that is being read.
    fn still_is(&self, path: &Path) -> bool {
        is_still(path, self.lines.file()).unwrap_or(false)
    }

    fn len(&self) -> u64 {
        let metadata = self.lines.file().metadata();
        metadata.map_or(u64::MAX, |it| it.len())
    }
}

/// Number of the file that was not rotated.
const CURRENT: u64 = u64::MAX;
/// Time for which a rotated file may get more lines: a writer looks once a second.
const MAY_GROW: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;
    use std::io::Write;

    use super::*;

    struct Log {
        directory: PathBuf,
        follower: Follower,
    }

    impl Log {
        fn new(name: &str) -> Self {
            let name = format!("lsl-follower-{name}-{}", std::process::id());
            let directory = std::env::temp_dir().join(name);
            fs::create_dir(&directory).unwrap();
            let follower = Follower::new(&directory.join("log"));
            Self {
                directory,
                follower,
            }
        }

        fn path(&self, name: &str) -> PathBuf {
            self.directory.join(name)
        }

        fn append(&self, name: &str, text: &str) {
            let mut options = OpenOptions::new();
            let mut file = options
                .create(true)
                .append(true)
                .open(self.path(name))
                .unwrap();
            file.write_all(text.as_bytes()).unwrap();
        }

        fn rotate(&self, number: u32) {
            fs::rename(self.path("log"), self.path(&format!("log.{number}"))).unwrap();
        }

        fn check(&mut self, expected: &[&str]) {
            let mut lines = Vec::new();
            let take = |line: &[u8]| {
                lines.push(String::from_utf8(line.to_vec()).unwrap());
                Ok(())
            };
            self.follower.read(take).unwrap();
            assert_eq!(lines, expected);
        }
    }

    impl Drop for Log {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.directory).unwrap();
        }
    }

    #[test]
    fn a_rotated_file_that_grows_is_read_on() {
        let mut log = Log::new("grows");
        log.check(&[]);
        log.append("log", "1\n2\n3");
        log.check(&["1", "2"]);
        log.rotate(1);
        log.check(&[]);
        log.append("log", "5\n");
        // Another program has not seen it yet.
        log.append("log.1", "\n4\n");
        log.check(&["3", "4", "5"]);
        log.append("log.1", "6\n");
        log.check(&["6"]);
        log.append("log", "7\n");
        log.check(&["7"]);
    }

    #[test]
    fn several_rotations_between_two_looks_hide_nothing() {
        let mut log = Log::new("several");
        log.append("log.8", "1\n");
        log.append("log", "2\n");
        log.check(&["1", "2"]);
        for number in 9..13 {
            log.append("log", &format!("{number}a\n"));
            log.rotate(number);
            log.append("log", &format!("{number}b\n"));
        }
        // Reserved by a program that is about to rotate.
        log.append("log.13", "");
        log.check(&["9a", "9b", "10a", "10b", "11a", "11b", "12a", "12b"]);
        fs::remove_file(log.path("log.13")).unwrap();
        log.rotate(13);
        log.append("log", "14\n");
        log.append("log.13", "13\n");
        log.check(&["13", "14"]);
    }

    #[test]
    fn a_file_that_was_replaced_or_cut_is_read_from_its_beginning() {
        let mut log = Log::new("cut");
        log.append("log", "1\n2\n");
        log.check(&["1", "2"]);
        fs::write(log.path("log"), "3\n").unwrap();
        log.check(&["3"]);
        fs::remove_file(log.path("log")).unwrap();
        log.check(&[]);
        log.append("log", "4\n");
        log.check(&["4"]);
    }
}
