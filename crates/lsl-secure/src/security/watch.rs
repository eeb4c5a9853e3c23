//! Watching the trust file: replaced by rename, looked at every two seconds, never trusted half
//! written. Spec: LSS/1 §3.2.

use std::path::{Path, PathBuf};
use std::time::Duration;

use sha2::{Digest, Sha256};

use crate::files::{self, Content, MAX_LEN, Stamp};
use crate::trust::{StreamQueries, TrustList};
use crate::{Result, TokenBucket};

/// The trust file and which version of it was read.
#[derive(Debug)]
pub(super) struct Watch {
    path: PathBuf,
    /// Stamp of the version that was read last, good or bad.
    stamp: Option<Stamp>,
    /// Whether that version was old enough when it was read that a later one must have another stamp.
    settled: bool,
    /// A version that may be half written, and when (local clock) it was seen first.
    pending: Option<(Stamp, f64)>,
    /// Modification time of the last good version.
    modified: Duration,
    /// Hash of the last good version, if nothing went wrong since. Reading is cheap, checking keys is
    /// not: a flood of handshakes must not do it again and again while a version is not settled.
    good: Option<[u8; 32]>,
    failure: Option<Failure>,
}

#[derive(Debug)]
struct Failure {
    reason: String,
    /// A token is a time that it may be told.
    reminders: TokenBucket,
}

/// Result of one look at the trust file.
#[derive(Debug)]
pub(super) enum Look {
    /// The file has not changed since the last look.
    Same,
    /// The file cannot be used; the last good list stays. With a reason once a minute.
    Failed(Option<String>),
    /// The file was read. `recovered`: it could not be read before.
    Read { list: TrustList, recovered: bool },
}

impl Watch {
    /// Reads the file for the first time.
    pub(super) fn open(path: PathBuf, utc: Duration) -> Result<(Self, TrustList)> {
        let mut watch = Self::new(path);
        let list = watch.read(utc, None)?;
        // The first version is always news.
        Ok((watch, list.unwrap_or_default()))
    }

    /// Reads the file in a forked child, where failing is not fatal: then the list is empty, and the
    /// next look tells why.
    pub(super) fn of_child(path: PathBuf, utc: Duration) -> (Self, TrustList) {
        let mut watch = Self::new(path);
        let list = watch.read(utc, None).ok().flatten().unwrap_or_default();
        (watch, list)
    }

    fn new(path: PathBuf) -> Self {
        Self {
            path,
            stamp: None,
            settled: false,
            pending: None,
            modified: Duration::ZERO,
            good: None,
            failure: None,
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// When the list in use was written, for the date rule.
    pub(super) fn modified(&self) -> Duration {
        self.modified
    }

    /// Reads the file if it may be another version than the last one.
    pub(super) fn look(
        &mut self,
        utc: Duration,
        local: f64,
        queries: Option<&StreamQueries>,
    ) -> Look {
        if let Ok(now) = Stamp::of_path(&self.path) {
            if self.stamp == Some(now) {
                if self.settled {
                    return self.remind(local);
                }
            } else if !self.is_quiet(now, utc, local) {
                return self.remind(local);
            }
        }
        self.pending = None;
        match self.read(utc, queries) {
            Ok(Some(list)) => Look::Read {
                list,
                recovered: self.failure.take().is_some(),
            },
            Ok(None) => Look::Same,
            Err(error) => {
                let reason = error.to_string();
                match &mut self.failure {
                    Some(failure) => failure.reason = reason,
                    None => {
                        self.failure = Some(Failure {
                            reason,
                            reminders: TokenBucket::new(1.0 / REMINDER_SECS, 1.0),
                        });
                    }
                }
                self.remind(local)
            }
        }
    }

    /// Whether a new version is not being written any more. An editor that saves in place first makes
    /// the file empty, and an empty list would end every session.
    fn is_quiet(&mut self, now: Stamp, utc: Duration, local: f64) -> bool {
        if now.is_finished() || now.modified() + QUIET <= utc {
            return true;
        }
        // By the other clock, should the file's time lie in the future.
        match self.pending {
            Some((stamp, since)) if stamp == now => local - since >= QUIET.as_secs_f64(),
            _ => {
                self.pending = Some((now, local));
                false
            }
        }
    }

    /// Tells of a lasting failure once a minute.
    fn remind(&mut self, local: f64) -> Look {
        let Some(failure) = &mut self.failure else {
            return Look::Same;
        };
        let is_due = failure.reminders.take(local);
        Look::Failed(is_due.then(|| format!("{}; the last good list stays in use", failure.reason)))
    }

    /// The list, or `None` if it is the one that is known.
    fn read(
        &mut self,
        utc: Duration,
        queries: Option<&StreamQueries>,
    ) -> Result<Option<TrustList>> {
        // A version that cannot be opened is looked at again each time.
        self.stamp = None;
        let good = self.good.take();
        let (text, stamp) = files::read_stamped(&self.path, Content::Shared, MAX_LEN)?;
        // Time stamps of files are coarse: a write right after reading may leave none behind.
        self.settled = stamp.modified() + SETTLED <= utc;
        self.stamp = Some(stamp);
        let hash = Sha256::digest(text.as_bytes()).into();
        let is_known = good == Some(hash) && self.modified == stamp.modified();
        let list = if is_known {
            None
        } else {
            let list = TrustList::parse(&text, &self.path)?;
            if let Some(queries) = queries {
                list.check_streams(&self.path, queries)?;
            }
            Some(list)
        };
        self.good = Some(hash);
        self.modified = stamp.modified();
        Ok(list)
    }
}

/// Time for which the file must be unchanged before it is read. With looks every 2 s, a removal
/// counts within 3 s (limit: 5 s).
const QUIET: Duration = Duration::from_secs(1);

/// Longer than the time stamps of any file system are coarse.
const SETTLED: Duration = Duration::from_secs(3);

/// Interval between reports of a lasting failure.
const REMINDER_SECS: f64 = 60.0;

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::SecretKey;
    use crate::files::scratch::Scratch;

    #[test]
    fn a_version_that_is_not_settled_is_read_but_checked_only_once() {
        let scratch = Scratch::new();
        let entry = |seed| {
            let key = SecretKey::from_seed(&[seed; 32]).public();
            format!("[[peer]]\nname = \"a\"\nkey = \"{key}\"\n")
        };
        let path = scratch.write("trusted_peers.toml", &entry(1), 0o600);
        // A clock that is behind the file's: it never settles.
        let utc = Duration::from_secs(1000);
        let (mut watch, list) = Watch::open(path.clone(), utc).unwrap();
        assert_eq!(list.peers().len(), 1);
        for local in [0.0, 2.0] {
            assert!(matches!(watch.look(utc, local, None), Look::Same));
        }
        // Also what leaves no other stamp behind is seen: same length, same time.
        watch.stamp = Some(Stamp::of_path(&path).unwrap());
        fs::write(&path, entry(2)).unwrap();
        watch.stamp = Some(Stamp::of_path(&path).unwrap());
        assert!(matches!(watch.look(utc, 4.0, None), Look::Read { .. }));
        assert!(matches!(watch.look(utc, 6.0, None), Look::Same));
        // A good version after a bad one is news, even if it is the one before.
        let mut look_twice = |local| {
            [
                watch.look(utc, local, None),
                watch.look(utc, local + 2.0, None),
            ]
        };
        scratch.chmod("trusted_peers.toml", 0o666);
        let [_, failed] = look_twice(8.0);
        assert!(matches!(failed, Look::Failed(_)), "{failed:?}");
        scratch.chmod("trusted_peers.toml", 0o600);
        // Which of the two it is depends on how fine the times of files are.
        let recovered = look_twice(12.0);
        let is_news = |look: &Look| {
            matches!(
                look,
                Look::Read {
                    recovered: true,
                    ..
                }
            )
        };
        assert_eq!(
            recovered.iter().filter(|look| is_news(look)).count(),
            1,
            "{recovered:?}"
        );
    }
}
