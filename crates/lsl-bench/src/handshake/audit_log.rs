//! The security logs of a benchmark: one for each turn, its lines counted afterwards.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lsl_benches::handshake::Peers;
use lsl_cli::failure::{Failure, Outcome};
use lsl_core::secure::audit::rotated;
use lsl_core::secure::{Audit, Session};

use super::Audited;
use crate::scratch::Folder;

/// A directory of its own, gone with this.
#[derive(Debug)]
pub(super) struct AuditLogs(Folder);

/// The log of one turn.
#[derive(Debug)]
pub(super) struct Log {
    audit: Audit,
    audited: Audited,
    /// Path of the log file, if lines are written.
    path: Option<PathBuf>,
    recorded: AtomicU64,
}

impl AuditLogs {
    /// Makes the folder of the logs in `parent`, or among temporary files.
    pub(super) fn new(parent: Option<&Path>) -> Outcome<Self> {
        let parent = parent.map_or_else(std::env::temp_dir, Path::to_owned);
        // Nobody else may have a hand in it: others can write to the parent.
        Ok(Self(Folder::make(&parent, "audit")?))
    }

    /// Opens a new log, with a file if `audited` asks for one.
    pub(super) fn open(&self, audited: Audited) -> Outcome<Log> {
        let path = match audited {
            Audited::None | Audited::Off => None,
            Audited::On | Audited::OnSync => Some(self.0.path("audit.jsonl")),
        };
        let audit = match &path {
            Some(path) => Audit::open(path, 0)?,
            None => Audit::default(),
        };
        Ok(Log {
            audit,
            audited,
            path,
            recorded: AtomicU64::new(0),
        })
    }
}

impl Log {
    /// Records a handshake on behalf of both sides, one event each.
    pub(super) fn record(&self, peers: &Peers, session: &Session) {
        if self.audited == Audited::None {
            return;
        }
        peers.record(&self.audit, session);
        self.recorded.fetch_add(EVENTS, Ordering::Relaxed);
        if self.audited == Audited::OnSync {
            self.audit.flush(LONGEST_WRITE);
        }
    }

    /// Returns the number of writes to the file.
    pub(super) fn writes(&self) -> u64 {
        self.audit.writes()
    }

    /// Waits until everything is written.
    pub(super) fn finish(&self) -> Outcome {
        if self.audit.flush(LONGEST_WRITE) {
            Ok(())
        } else {
            Err(Failure::Runtime(
                "the security log was not written in a minute".into(),
            ))
        }
    }

    /// Returns the numbers of written and dropped events and removes the files. Fails if an event
    /// is neither.
    pub(super) fn check(self) -> Outcome<(u64, u64)> {
        let dropped = self.audit.dropped();
        let recorded = self.recorded.load(Ordering::Relaxed);
        drop(self.audit);
        let Some(path) = self.path else {
            return Ok((0, 0));
        };
        let mut files = rotated(&path)?;
        files.push(path);
        let mut written = 0;
        for file in files {
            let lines = BufReader::new(File::open(&file)?).lines();
            for line in lines {
                // Not parsed, which would be half of what `--instructions` counts for the log.
                written += u64::from(line?.contains(r#""event":"handshake_ok""#));
            }
            fs::remove_file(&file)?;
        }
        if written + dropped == recorded {
            Ok((written, dropped))
        } else {
            Err(Failure::Lost(format!(
                "of {recorded} security events {written} were written and {dropped} counted as dropped: the \
                 others are lost without a word"
            )))
        }
    }
}

/// Events that each handshake records.
const EVENTS: u64 = 2;

const LONGEST_WRITE: Duration = Duration::from_mins(1);

#[cfg(test)]
mod tests {
    use lsl_core::secure::Suites;

    use super::*;

    #[test]
    fn events_are_written_and_counted_as_asked_for() {
        let parent = std::env::temp_dir().join(format!("lsl-logs-{}", std::process::id()));
        fs::create_dir(&parent).unwrap();
        let logs = AuditLogs::new(Some(&parent)).unwrap();
        let peers = Peers::new(Suites::ChaCha20Only);
        let (session, _) = peers.session().unwrap();
        for (audited, expected) in [
            (Audited::None, 0),
            (Audited::Off, 0),
            (Audited::On, 6),
            (Audited::OnSync, 6),
        ] {
            let log = logs.open(audited).unwrap();
            (0..3).for_each(|_| log.record(&peers, &session));
            log.finish().unwrap();
            assert_eq!(log.check().unwrap(), (expected, 0), "{audited:?}");
        }
        // A removed line is noticed.
        let log = logs.open(Audited::On).unwrap();
        log.record(&peers, &session);
        log.finish().unwrap();
        fs::write(log.path.as_ref().unwrap(), "").unwrap();
        assert!(matches!(log.check(), Err(Failure::Lost(_))));
        drop(logs);
        fs::remove_dir(&parent).unwrap();
    }
}
