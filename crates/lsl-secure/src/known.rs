//! `known_secure`: outlets that were encrypted once and must never be read in plaintext again while
//! the policy is `migrate`. Spec: LSS/1 §4.3.
//!
//! One JSON object per line, oldest first. Several processes append to one file, so each looks again
//! whenever the file is not the version it knows. Any doubt is an error: the caller then acts as if
//! the policy were `required`.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use lsl_platform::append;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::files::{self, Content, Stamp};
use crate::{Descriptor, Error, PublicKey, Result};

/// The list of one process; behind a file if there is one.
#[derive(Debug)]
pub(crate) struct Known {
    path: Option<PathBuf>,
    state: Mutex<KnownStreams>,
}

#[derive(Debug)]
struct KnownStreams {
    limits: Limits,
    entries: VecDeque<KnownStream>,
    stamp: Option<Stamp>,
    /// Lines of the file, superseded ones included.
    lines: usize,
}

/// Limits on the length of the list.
#[derive(Debug, Clone, Copy)]
struct Limits {
    /// Beyond it the oldest entries are dropped.
    entries: usize,
    /// Lines beyond the entries that the file may have before it is rewritten.
    slack: usize,
}

/// Bytes are kept as ASCII with escapes, which is one to one, so that comparing needs no decoding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct KnownStream {
    source_id: String,
    name: String,
    #[serde(rename = "type")]
    stream_type: String,
    key: String,
}

impl Known {
    /// A list that ends with the process.
    pub(crate) fn in_memory() -> Self {
        Self {
            path: None,
            state: Mutex::new(KnownStreams::new(LIMITS)),
        }
    }

    /// The file, if there is one.
    pub(crate) fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// The list of a file, which is made if it does not exist.
    ///
    /// # Errors
    /// If it cannot be read **and** written.
    pub(crate) fn open(path: PathBuf) -> Result<Self> {
        Self::open_limited(path, LIMITS)
    }

    fn open_limited(path: PathBuf, limits: Limits) -> Result<Self> {
        append::open(&path).map_err(|error| unusable(&path, &error))?;
        let mut state = KnownStreams::new(limits);
        state.look(&path)?;
        Ok(Self {
            path: Some(path),
            state: Mutex::new(state),
        })
    }

    /// The key of a stream with this non-empty source id, or with this name and type, if one was
    /// encrypted before. Bytes as resolved.
    ///
    /// # Errors
    /// If the file changed and cannot be read any more.
    pub(crate) fn find(
        &self,
        name: &[u8],
        stream_type: &[u8],
        source_id: &[u8],
    ) -> Result<Option<PublicKey>> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(path) = &self.path {
            state.look(path)?;
        }
        let (name, stream_type) = (escaped(name), escaped(stream_type));
        let source_id = escaped(source_id);
        // The newest one is the one to name, should there be several.
        let found = state.entries.iter().rev().find(|entry| {
            (!source_id.is_empty() && entry.source_id == source_id)
                || (entry.name == name && entry.stream_type == stream_type)
        });
        found.map(|entry| entry.key.parse()).transpose()
    }

    /// Remembers the stream of an accepted DESCRIPTOR.
    ///
    /// # Errors
    /// If the file cannot be read or written.
    pub(crate) fn note(&self, descriptor: &Descriptor, peer: &PublicKey) -> Result<()> {
        let entry = KnownStream {
            source_id: escaped(&descriptor.source_id),
            name: escaped(&descriptor.name),
            stream_type: escaped(&descriptor.stream_type),
            key: peer.to_string(),
        };
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(path) = &self.path else {
            if !state.entries.contains(&entry) {
                state.push(entry);
            }
            return Ok(());
        };
        state.look(path)?;
        if state.entries.contains(&entry) {
            return Ok(());
        }
        state.append(path, entry)
    }
}

impl KnownStreams {
    fn new(limits: Limits) -> Self {
        Self {
            limits,
            entries: VecDeque::new(),
            stamp: None,
            lines: 0,
        }
    }

    fn push(&mut self, entry: KnownStream) {
        self.entries.push_back(entry);
        if self.entries.len() > self.limits.entries {
            self.entries.pop_front();
        }
    }

    /// Reads the file if it is not the version that is known.
    fn look(&mut self, path: &Path) -> Result<()> {
        let failed = |error: io::Error| unusable(path, &error);
        if self.stamp == Some(Stamp::of_path(path).map_err(failed)?) {
            return Ok(());
        }
        // Under the lock, so that no line is seen half written.
        let file = append::open(path).map_err(failed)?;
        let _locked = append::lock(&file).map_err(failed)?;
        self.look_locked(path)
    }

    fn look_locked(&mut self, path: &Path) -> Result<()> {
        let now = Stamp::of_path(path).map_err(|error| unusable(path, &error))?;
        if self.stamp == Some(now) {
            return Ok(());
        }
        // Nothing is believed of a file that cannot be read to its end.
        self.stamp = None;
        let (text, stamp) = files::read_stamped(path, Content::Secret, MAX_BYTES)?;
        let mut entries = VecDeque::new();
        for (index, line) in text.lines().enumerate() {
            let entry: Option<KnownStream> = serde_json::from_str(line).ok();
            // Whether it is a point of the curve is asked when it is needed: that takes time.
            let entry = entry.filter(|entry| entry.key.len() == KEY_LEN);
            entries.push_back(entry.ok_or_else(|| damaged(path, index + 1))?);
        }
        if !text.is_empty() && !text.ends_with('\n') {
            return Err(damaged(path, entries.len()));
        }
        self.lines = entries.len();
        entries.drain(..self.lines.saturating_sub(self.limits.entries));
        self.entries = entries;
        self.stamp = Some(stamp);
        Ok(())
    }

    /// Adds an entry at the end of the file, and now and then cuts off the oldest ones.
    fn append(&mut self, path: &Path, entry: KnownStream) -> Result<()> {
        let failed = |error: io::Error| unusable(path, &error);
        loop {
            let locked = append::lock(append::open(path).map_err(failed)?).map_err(failed)?;
            // Another process may have put a shortened file in its place while we waited.
            if append::still_names(path, locked.file())
                .map_err(failed)?
                .is_none()
            {
                continue;
            }
            self.look_locked(path)?;
            if self.entries.contains(&entry) {
                return Ok(());
            }
            if self.lines < self.limits.entries + self.limits.slack {
                let line = line_of(&entry)?;
                let mut file = locked.file();
                file.write_all(line.as_bytes()).map_err(failed)?;
                file.sync_data().map_err(failed)?;
                self.push(entry);
                self.lines += 1;
            } else {
                self.push(entry);
                let lines: Result<String> = self.entries.iter().map(line_of).collect();
                let rename = |from: &Path, to: &Path| append::replace(from, to, &locked);
                files::replace_by(rename, path, lines?.as_bytes())?;
                self.lines = self.entries.len();
                // The lock may be that of the old file: another process may have written to the
                // new one.
                self.stamp = None;
                return Ok(());
            }
            // Nobody else wrote: all of them take the lock.
            self.stamp = Some(Stamp::of_path(path).map_err(failed)?);
            return Ok(());
        }
    }
}

fn line_of(entry: &KnownStream) -> Result<String> {
    let line = serde_json::to_string(entry)
        .map_err(|error| Error::session(crate::Cause::Internal, error.to_string()))?;
    Ok(line + "\n")
}

/// The text of bytes from a stream info or a DESCRIPTOR, which cuts long ones.
fn escaped(bytes: &[u8]) -> String {
    let cut;
    let bytes = if bytes.len() > 1024 {
        cut = [&bytes[..992], &Sha256::digest(bytes)].concat();
        &cut
    } else {
        bytes
    };
    if bytes.len() <= MAX_TEXT {
        bytes.escape_ascii().to_string()
    } else {
        // No escape sequence begins like this.
        let mut text = String::from("\\sha256:");
        for byte in Sha256::digest(bytes) {
            let _ = write!(text, "{byte:02x}");
        }
        text
    }
}

fn unusable(path: &Path, error: &io::Error) -> Error {
    Error::file(
        path,
        format!(
            "the list of streams that were encrypted before cannot be used: {error}; give the file \
             ({}) and its directory to the user who runs this program",
            lsl_platform::remedy::SECRET
        ),
    )
}

fn damaged(path: &Path, line: usize) -> Error {
    Error::file(
        path,
        format!(
            "line {line} is damaged; remove this line, or the file: then every stream may be \
             plaintext until it was encrypted once"
        ),
    )
}

/// Limits of §4.3; the slack saves rewriting the file each time.
const LIMITS: Limits = Limits {
    entries: 10_000,
    slack: 1000,
};

/// `lsl-ed25519:` and base64 of 32 bytes.
const KEY_LEN: usize = 12 + 44;

/// Longer texts are kept as their hash, so that a full file stays below [`MAX_BYTES`].
const MAX_TEXT: usize = 64;

const MAX_BYTES: u64 = 16 << 20;

#[cfg(test)]
mod tests;
