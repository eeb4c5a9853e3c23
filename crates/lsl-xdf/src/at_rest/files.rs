//! Whole files, many at once: lock, unlock, rotate, verify. Each has a result of its own; a target appears
//! complete or not at all, and nothing that exists goes unless the caller says so.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, BufReader, Read, Seek, SeekFrom, Write};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::SystemTime;

use super::decrypting::{Decrypting, End, Ending};
use super::error::{Error, Result};
use super::header::{Header, VERSION_LINE, encode};
use super::keys::{Identities, Recipients};
use super::payload::{NONCE_LEN, SEALED_LEN, TAG_LEN};
use super::pipe::{Cancel, Passed, Work, lock_stream, unlock_stream};
use super::replace::{Replacement, remove};
use crate::hold;

/// A file and the name of what is made from it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Task {
    /// The file to read.
    pub from: PathBuf,
    /// The file to make.
    pub to: PathBuf,
}

/// What happens to a target that exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Existing {
    /// It stays, and the task fails with [`Error::Exists`].
    #[default]
    Refuse,
    /// It is replaced, in one step, once the new one is complete.
    Replace,
}

/// What happens to the source of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Source {
    /// It stays.
    #[default]
    Keep,
    /// It is removed when the target is on the disk, and only if it was read to its proper end. Disks
    /// may keep the content of removed files for long; this is no erasure.
    Remove,
}

/// How much of a file changes when its recipients do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Rewrap {
    /// The header: the same file key for other recipients, at the speed of copying. Whoever could open
    /// the file before and kept the file key can open the new one.
    #[default]
    Header,
    /// Everything is encrypted anew under a new file key.
    Everything,
}

/// Told what happens to files, from several threads.
pub trait Watch: Sync {
    /// So many of the source's bytes are done.
    fn advanced(&self, file: &Path, done: u64, total: u64) {
        let _ = (file, done, total);
    }

    /// A file is through, in order of completion.
    fn finished(&self, outcome: &Outcome) {
        let _ = outcome;
    }
}

/// How files are worked on. The default refuses what exists, keeps sources, wants files whole and uses all
/// processors.
#[derive(Clone, Copy, Default)]
pub struct Options<'a> {
    /// What happens to a target that exists. `rotate` replaces its files, whatever stands here.
    pub existing: Existing,
    /// What happens to the source of `lock` and `unlock`.
    pub source: Source,
    /// What `unlock` and `rotate` with [`Rewrap::Everything`] do with a file that is cut off.
    pub ending: Ending,
    /// How many threads, over all files; as many as there are processors if `None`.
    pub threads: Option<NonZeroUsize>,
    /// Stops the work; what was not complete leaves nothing behind.
    pub cancel: Option<&'a Cancel>,
    /// Is told about progress.
    pub watch: Option<&'a dyn Watch>,
}

impl std::fmt::Debug for Options<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Options")
            .field("existing", &self.existing)
            .field("source", &self.source)
            .field("ending", &self.ending)
            .field("threads", &self.threads)
            .finish_non_exhaustive()
    }
}

/// What became of one file.
#[derive(Debug)]
#[non_exhaustive]
pub struct Outcome {
    /// The file that was read.
    pub from: PathBuf,
    /// The file that was to be made; none for `verify`.
    pub to: Option<PathBuf>,
    /// What was done, or why not. With an error the target is as it was before.
    pub result: Result<Done>,
}

/// What was done to one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Done {
    /// Plain bytes in the file.
    pub plain_bytes: u64,
    /// How the encrypted file ended; `None` where the payload was copied unopened.
    pub end: Option<End>,
    /// Whether the source is gone.
    pub source_removed: bool,
}

/// Encrypts files. A target has the owner and permissions of its source.
///
/// A file that is an age file already fails with [`Error::AlreadyLocked`]; one that is being recorded with
/// [`Error::InUse`], and one that changes meanwhile, because something else writes to it, with
/// [`Error::Changed`].
pub fn lock(tasks: &[Task], recipients: &Recipients, options: &Options<'_>) -> Vec<Outcome> {
    make(tasks, options, |task, work| {
        refuse_link(task, options)?;
        let mut source = open_held(&task.from, options.source == Source::Remove)?;
        let state = State::of(&source)?;
        let total = state.len;
        if starts_as_age(&mut source)? {
            return Err(Error::AlreadyLocked);
        }
        let (target, held) = begin(task, options)?;
        // One byte beyond is enough to see that it grows; somebody may append for ever.
        let content = (&source).take(total.saturating_add(1));
        let passed = lock_stream(content, target.file()?, recipients, work)?;
        // Not as it was when it was opened: something writes to it, and would go on.
        if passed.plain_bytes != total {
            return Err(Error::Changed);
        }
        state.check(&source)?;
        target.commit(&source)?;
        drop(held);
        done(task, options, passed, &source, state)
    })
}

/// Decrypts files. A target has the owner and permissions of its source, and appears only if all of it is
/// authentic; with [`Ending::Tolerant`] also as much as is whole of a file that was cut off, whose source then
/// stays in any case.
pub fn unlock(tasks: &[Task], identities: &Identities, options: &Options<'_>) -> Vec<Outcome> {
    make(tasks, options, |task, work| {
        refuse_link(task, options)?;
        // What is being recorded may be read as far as it is, but not be removed.
        let source = match options.source {
            Source::Keep => open_regular(&task.from)?,
            Source::Remove => open_held(&task.from, true)?,
        };
        let state = State::of(&source)?;
        let (target, held) = begin(task, options)?;
        let passed = unlock_stream(&source, target.file()?, identities, options.ending, work)?;
        target.commit(&source)?;
        drop(held);
        done(task, options, passed, &source, state)
    })
}

/// Exchanges the recipients of files, in place: the old file goes when the new one is on the disk.
///
/// With [`Rewrap::Header`] a file that is cut off stays as it is in this respect, and is not noticed. One
/// that is being recorded fails with [`Error::InUse`], one that changes meanwhile with [`Error::Changed`].
pub fn rotate(
    files: &[PathBuf],
    identities: &Identities,
    recipients: &Recipients,
    rewrap: Rewrap,
    options: &Options<'_>,
) -> Vec<Outcome> {
    each(files, options, |file, work| Outcome {
        from: file.clone(),
        to: Some(file.clone()),
        result: (|| {
            work.check()?;
            // The file behind a link is the one to replace.
            let path = fs::canonicalize(file)?;
            let source = open_held(&path, true)?;
            let state = State::of(&source)?;
            let target = Replacement::begin(&path, Existing::Replace)?;
            let done = match rewrap {
                Rewrap::Header => rewrap_header(
                    &source,
                    state.len,
                    target.file()?,
                    identities,
                    recipients,
                    work,
                )?,
                Rewrap::Everything => {
                    let mut plain =
                        Decrypting::new((&source).take(state.len), identities, options.ending)?;
                    lock_stream(&mut plain, target.file()?, recipients, work)?;
                    Done {
                        plain_bytes: plain.plain_bytes(),
                        end: plain.end(),
                        source_removed: false,
                    }
                }
            };
            // What somebody added would be lost.
            state.check(&source)?;
            target.commit(&source)?;
            Ok(done)
        })(),
    })
}

/// Opens files without writing anything: whether the identities fit, and whether the file is whole.
///
/// [`Error::CutOff`] and [`Error::Damaged`] say how much of a file is.
pub fn verify(files: &[PathBuf], identities: &Identities, options: &Options<'_>) -> Vec<Outcome> {
    each(files, options, |file, work| Outcome {
        from: file.clone(),
        to: None,
        result: (|| {
            work.check()?;
            let source = open_regular(file)?;
            let passed = unlock_stream(&source, io::sink(), identities, Ending::Strict, work)?;
            Ok(Done {
                plain_bytes: passed.plain_bytes,
                end: Some(passed.end),
                source_removed: false,
            })
        })(),
    })
}

/// Whether a file is an age file, by its first bytes: what reads recordings asks this and not the name.
///
/// # Errors
/// [`Error::Io`], [`Error::NotAFile`].
pub fn is_locked(path: &Path) -> Result<bool> {
    starts_as_age(&mut open_regular(path)?)
}

/// The name under which a file is locked: the same with `.age` behind it.
pub fn locked_name(path: &Path) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(".age");
    name.into()
}

/// The name under which a file is unlocked: without its `.age`; `None` if it has none.
pub fn unlocked_name(path: &Path) -> Option<PathBuf> {
    (path.extension()? == "age").then(|| path.with_extension(""))
}

/// The same file key for other recipients, and the payload as it is.
fn rewrap_header(
    mut source: &File,
    total: u64,
    mut target: &File,
    identities: &Identities,
    recipients: &Recipients,
    work: &Work<'_>,
) -> Result<Done> {
    let header = Header::read(&mut BufReader::new(source))?;
    let file_key = identities.unwrap(&header)?;
    target.write_all(&encode(&file_key, &recipients.wrap(&file_key)?))?;
    source.seek(SeekFrom::Start(header.len()))?;
    let mut copied = 0;
    // No more than there was when it was opened: somebody may append for ever.
    let mut rest = source.take(total.saturating_sub(header.len()));
    loop {
        work.check()?;
        // Between two files this is the kernel's own copy where it has one.
        let len = io::copy(&mut (&mut rest).take(COPY_LEN), &mut target)?;
        if len == 0 {
            break;
        }
        copied += len;
        if let Some(progress) = work.progress {
            progress(header.len() + copied);
        }
    }
    let payload = copied
        .checked_sub(NONCE_LEN as u64)
        .ok_or(Error::CutOff { plain_bytes: 0 })?;
    let tags = payload.div_ceil(SEALED_LEN as u64) * TAG_LEN as u64;
    Ok(Done {
        plain_bytes: payload.saturating_sub(tags),
        end: None,
        source_removed: false,
    })
}

/// The target, and the file that it replaces, held: as long as that is so, no recorder makes way for itself
/// under this name.
fn begin(task: &Task, options: &Options<'_>) -> Result<(Replacement, Option<File>)> {
    let same = fs::canonicalize(&task.to)
        .is_ok_and(|to| fs::canonicalize(&task.from).is_ok_and(|from| from == to));
    if same {
        return Err(Error::SameFile);
    }
    if options.existing == Existing::Refuse {
        return Ok((Replacement::begin(&task.to, Existing::Refuse)?, None));
    }
    match fs::symlink_metadata(&task.to) {
        // What is being recorded is not there to be replaced, either.
        Ok(to) if to.is_file() => {
            let held = open_held(&task.to, true)?;
            Ok((Replacement::begin(&task.to, Existing::Replace)?, Some(held)))
        }
        Ok(_) => Ok((Replacement::begin(&task.to, Existing::Replace)?, None)),
        // What appears meanwhile is somebody else's.
        Err(_) => Ok((Replacement::begin(&task.to, Existing::Refuse)?, None)),
    }
}

/// Removing a link would leave the file behind it, and say that it is gone.
fn refuse_link(task: &Task, options: &Options<'_>) -> Result<()> {
    if options.source == Source::Remove && fs::symlink_metadata(&task.from)?.is_symlink() {
        return Err(Error::Link);
    }
    Ok(())
}

fn done(
    task: &Task,
    options: &Options<'_>,
    passed: Passed,
    source: &File,
    state: State,
) -> Result<Done> {
    let source_removed = options.source == Source::Remove && passed.end == End::Whole;
    if source_removed {
        // The last moment to see somebody write who asked for no lock.
        state.check(source)?;
        if !hold::is_still(&task.from, source)? {
            return Err(Error::Changed);
        }
        remove(&task.from)?;
    }
    Ok(Done {
        plain_bytes: passed.plain_bytes,
        end: Some(passed.end),
        source_removed,
    })
}

/// Runs `run` on every task that has a target of its own.
fn make(
    tasks: &[Task],
    options: &Options<'_>,
    run: impl Fn(&Task, &Work<'_>) -> Result<Done> + Sync,
) -> Vec<Outcome> {
    let mut seen = HashSet::new();
    // Two sources with one target would leave one of them nowhere.
    let tasks: Vec<(&Task, bool)> = tasks
        .iter()
        .map(|task| (task, seen.insert(&task.to)))
        .collect();
    each(&tasks, options, |(task, first), work| Outcome {
        from: task.from.clone(),
        to: Some(task.to.clone()),
        result: work.check().and_then(|()| {
            if *first {
                run(task, work)
            } else {
                Err(Error::Exists(task.to.clone()))
            }
        }),
    })
}

/// What a file's name is to those who watch.
trait Named {
    fn name(&self) -> &Path;
}

impl Named for PathBuf {
    fn name(&self) -> &Path {
        self
    }
}

impl Named for (&Task, bool) {
    fn name(&self) -> &Path {
        &self.0.from
    }
}

/// Spreads items over threads, as many as there are items; what threads remain help inside the files.
fn each<T: Named + Sync>(
    items: &[T],
    options: &Options<'_>,
    run: impl Fn(&T, &Work<'_>) -> Outcome + Sync,
) -> Vec<Outcome> {
    let threads = options
        .threads
        .or_else(|| thread::available_parallelism().ok())
        .map_or(1, NonZeroUsize::get);
    let files_at_once = threads.min(items.len()).max(1);
    // A file alone gets help with its chunks; files in parallel keep the processors busy by themselves. Reading
    // and writing take a processor too: on two of them, a second thread for the chunks was no faster than one,
    // and one a quarter faster than none (1 GiB in memory, machine busy).
    let within = (threads / files_at_once).saturating_sub(1);
    let next = AtomicUsize::new(0);
    let results = Mutex::new(Vec::with_capacity(items.len()));
    let worker = || {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(index) else {
                return;
            };
            let total = fs::metadata(item.name()).map_or(0, |metadata| metadata.len());
            let progress = |done| {
                if let Some(watch) = options.watch {
                    watch.advanced(item.name(), done, total);
                }
            };
            let outcome = run(
                item,
                &Work {
                    threads: within,
                    cancel: options.cancel,
                    progress: Some(&progress),
                },
            );
            if let Some(watch) = options.watch {
                watch.finished(&outcome);
            }
            results
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push((index, outcome));
        }
    };
    thread::scope(|scope| {
        for _ in 1..files_at_once {
            // Without another thread this one does the work.
            let spawned = thread::Builder::new()
                .name("lsl-at-rest".into())
                .spawn_scoped(scope, worker);
            if spawned.is_err() {
                break;
            }
        }
        worker();
    });
    let mut results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    results.sort_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, outcome)| outcome).collect()
}

fn open_regular(path: &Path) -> Result<File> {
    // Opening a pipe would wait for a writer, so look first.
    if !fs::metadata(path)?.is_file() {
        return Err(Error::NotAFile);
    }
    Ok(File::open(path)?)
}

/// The same, if nobody records into it; `alone` if it is to go.
fn open_held(path: &Path, alone: bool) -> Result<File> {
    if !fs::metadata(path)?.is_file() {
        return Err(Error::NotAFile);
    }
    let file = hold::open_to_read(path, alone).map_err(|error| match error.kind() {
        io::ErrorKind::ResourceBusy => Error::InUse,
        _ => Error::Io(error),
    })?;
    // Another one may have replaced it before it was ours.
    if hold::is_still(path, &file)? {
        Ok(file)
    } else {
        Err(Error::Changed)
    }
}

/// By what one sees that a file was written to.
#[derive(Debug, Clone, Copy)]
struct State {
    len: u64,
    modified: Option<SystemTime>,
}

impl State {
    fn of(file: &File) -> Result<Self> {
        let metadata = file.metadata()?;
        Ok(Self {
            len: metadata.len(),
            modified: metadata.modified().ok(),
        })
    }

    fn check(self, file: &File) -> Result<()> {
        let now = Self::of(file)?;
        if (now.len, now.modified) == (self.len, self.modified) {
            Ok(())
        } else {
            Err(Error::Changed)
        }
    }
}

fn starts_as_age(file: &mut File) -> Result<bool> {
    let mut head = Vec::new();
    Read::by_ref(file)
        .take(VERSION_LINE.len() as u64)
        .read_to_end(&mut head)?;
    file.rewind()?;
    Ok(head == VERSION_LINE)
}

/// How much is copied between two looks at the request to stop.
const COPY_LEN: u64 = 8 * 1024 * 1024;
