//! Recordings as commands read them: plain, compressed (`.xdfz`) or encrypted (`.age`), by the
//! first bytes of the file and not by its name. No copies are made: decrypted data exists in memory
//! only.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, BufReader, Cursor, Read};
use std::path::Path;
use std::rc::Rc;

use flate2::read::MultiGzDecoder;
use indicatif::ProgressBar;
use lsl_xdf::at_rest::{self, Decrypting, End, Ending, Identities, is_locked};

use super::at_rest_keys::IdentityArgs;
use crate::failure::{Failure, Outcome};
use crate::interrupt::Stop;
use crate::ui::progress;
use crate::ui::prompt;

/// Opens recordings, and asks for the passphrase of those that were locked with one, once.
pub(crate) struct Opener {
    identities: Identities,
    asked: bool,
    stop: Stop,
}

impl Opener {
    /// An opener whose readers fail as soon as the user wants to end.
    pub(crate) fn new(identities: &IdentityArgs, stop: Stop) -> Outcome<Self> {
        Ok(Self::with(identities.identities()?, stop))
    }

    /// Opens recordings with keys that are read already.
    pub(crate) fn with(identities: Identities, stop: Stop) -> Self {
        Self {
            identities,
            asked: false,
            stop,
        }
    }

    /// An error if the user wants to end with only `done` of `files` looked at: the rest may be anything.
    pub(crate) fn check_stop(&self, done: usize, files: usize) -> Outcome {
        if self.stop.requested() && done < files {
            return Err(Failure::Runtime(format!(
                "stopped: {done} of {files} files were looked at"
            )));
        }
        Ok(())
    }

    /// Opens a file. `doing` is shown beside the progress.
    pub(crate) fn open(&mut self, path: &Path, doing: &str) -> Outcome<RecordingSource> {
        let named = |failure: Failure| failure.context(&path.display().to_string());
        let is_encrypted = is_locked(path).map_err(|error| named(error.into()))?;
        let file = File::open(path).map_err(|error| named(error.into()))?;
        let bar = progress::bytes(file.metadata().map_or(0, |data| data.len()), doing);
        let watched = |file: File| Watched {
            file,
            bar: bar.clone(),
            stop: self.stop.clone(),
        };
        let end = Rc::new(Cell::new(None));
        let plain: Box<dyn Read> = if is_encrypted {
            let opened = Decrypting::new(watched(file), &self.identities, Ending::Tolerant);
            let opened = match opened {
                Err(at_rest::Error::PassphraseNeeded) if !self.asked => {
                    let question = format!("Passphrase for {}: ", path.display());
                    let typed = prompt::ask(&question).map_err(named)?;
                    self.identities.add_passphrase(&typed);
                    self.asked = true;
                    let again = File::open(path).map_err(|error| named(error.into()))?;
                    let watched = Watched {
                        file: again,
                        bar: bar.clone(),
                        stop: self.stop.clone(),
                    };
                    Decrypting::new(watched, &self.identities, Ending::Tolerant)
                }
                opened => opened,
            };
            let inner = opened.map_err(|error| named(wrong_key(error)))?;
            Box::new(LockedRecording {
                inner,
                end: Rc::clone(&end),
            })
        } else {
            Box::new(watched(file))
        };
        let (is_compressed, input) = inflated(plain).map_err(|error| named(error.into()))?;
        Ok(RecordingSource {
            input,
            bar,
            end,
            is_encrypted,
            is_compressed,
        })
    }
}

/// Explains a file that none of the keys opens.
fn wrong_key(error: at_rest::Error) -> Failure {
    match error {
        at_rest::Error::NoMatchingIdentity { .. } => {
            Failure::Runtime(format!("{error} with --identity FILE"))
        }
        error => error.into(),
    }
}

/// The bytes of the XDF file, whatever they are wrapped in.
pub(crate) struct RecordingSource {
    input: Box<dyn Read>,
    bar: ProgressBar,
    end: Rc<Cell<Option<End>>>,
    /// Whether the file is an age file.
    pub(crate) is_encrypted: bool,
    /// Whether the content is compressed.
    pub(crate) is_compressed: bool,
}

impl RecordingSource {
    /// Whether this is the XDF file itself.
    pub(crate) fn is_plain(&self) -> bool {
        !self.is_encrypted && !self.is_compressed
    }

    /// Returns the fault of the encryption, once everything was read.
    pub(crate) fn trouble(&self) -> Option<&'static str> {
        match self.end.get() {
            Some(End::CutOff) => Some("the encrypted file is cut off"),
            Some(End::Damaged) => Some("the encrypted file was changed or damaged"),
            _ => None,
        }
    }

    /// Lines may be written over the bar without being torn.
    pub(crate) fn end_progress(&self) {
        self.bar.finish_and_clear();
    }
}

impl Read for RecordingSource {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.input.read(out)
    }
}

impl Drop for RecordingSource {
    fn drop(&mut self) {
        self.end_progress();
    }
}

/// A file whose reading shows, and ends when the user wants it to.
struct Watched {
    file: File,
    bar: ProgressBar,
    stop: Stop,
}

impl Read for Watched {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.stop.requested() {
            return Err(at_rest::Error::Cancelled.into());
        }
        let len = self.file.read(out)?;
        self.bar.inc(len as u64);
        Ok(len)
    }
}

struct LockedRecording {
    inner: Decrypting<Watched>,
    end: Rc<Cell<Option<End>>>,
}

impl Read for LockedRecording {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let len = self.inner.read(out)?;
        self.end.set(self.inner.end());
        Ok(len)
    }
}

/// Inflates what begins as gzip does.
fn inflated(mut plain: Box<dyn Read>) -> io::Result<(bool, Box<dyn Read>)> {
    let mut head = Vec::new();
    (&mut plain)
        .take(GZIP_MAGIC.len() as u64)
        .read_to_end(&mut head)?;
    let is_compressed = head == GZIP_MAGIC;
    let whole = BufReader::with_capacity(PIECE, Cursor::new(head).chain(plain));
    let input: Box<dyn Read> = if is_compressed {
        Box::new(Inflating(MultiGzDecoder::new(whole)))
    } else {
        Box::new(whole)
    };
    Ok((is_compressed, input))
}

/// A compressed file that is cut ends where it is cut, as a plain one does.
struct Inflating<R: Read>(MultiGzDecoder<R>);

impl<R: Read> Read for Inflating<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        match self.0.read(out) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(0),
            done => done,
        }
    }
}

/// The first bytes of a gzip file (RFC 1952) with the only method there is.
const GZIP_MAGIC: [u8; 3] = [0x1f, 0x8b, 8];
const PIECE: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn read(bytes: Vec<u8>) -> (bool, Vec<u8>) {
        let (is_compressed, mut input) = inflated(Box::new(Cursor::new(bytes))).unwrap();
        let mut text = Vec::new();
        input.read_to_end(&mut text).unwrap();
        (is_compressed, text)
    }

    #[test]
    fn compressed_files_are_known_by_their_first_bytes() {
        let content: Vec<u8> = (0..100_000_u32).flat_map(u32::to_le_bytes).collect();
        let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
        packed.write_all(&content).unwrap();
        let packed = packed.finish().unwrap();
        assert_eq!(read(packed.clone()), (true, content.clone()));
        assert_eq!(read(content.clone()), (false, content.clone()));
        assert_eq!(read(b"X".to_vec()), (false, b"X".to_vec()));
        let (is_compressed, text) = read(packed[..packed.len() / 2].to_vec());
        assert!(is_compressed && !text.is_empty() && content.starts_with(&text));
    }
}
