//! Operations on many whole files: lock, unlock, rotate, verify. Each file has a result of its own. A
//! target appears complete or not at all. Existing files are replaced or removed only on request.

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

use lsl_platform::remedy::typed;

use super::decrypting::{Decrypting, End, Ending};
use super::error::{Error, Result};
use super::header::{Header, VERSION_LINE, encode};
use super::keys::{Identities, Recipients};
use super::payload::{NONCE_LEN, SEALED_LEN, TAG_LEN};
use super::pipe::{Cancel, Passed, Work, open_stream, seal_stream};
use super::replace::{Replacement, remove};
use super::steps::{Step, StepTime, Stopwatch};
use crate::file_lock;

/// Source and target of one operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Task {
    /// Path of the file to read.
    pub from: PathBuf,
    /// Path of the file to create.
    pub to: PathBuf,
}

/// Treatment of a target that exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Existing {
    /// The target stays, and the task fails with [`Error::Exists`].
    #[default]
    Refuse,
    /// The target is replaced, in one step, once the new one is complete.
    Replace,
}

/// Treatment of the source of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Source {
    /// The source stays as it is.
    #[default]
    Keep,
    /// The source is removed when the target is on the disk, and only if it was read to its proper end.
    /// This is no erasure: disks may keep the content of removed files for long.
    Remove,
}

/// Extent of the change when a file gets other recipients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Rewrap {
    /// The header: the same file key for other recipients, at the speed of copying. A former recipient who
    /// kept the file key can open the new file.
    #[default]
    Header,
    /// The whole content is encrypted anew under a new file key.
    Everything,
}

/// Observer of the work on files, called from several threads.
pub trait Watch: Sync {
    /// Reports that `done` of the source's `total` bytes are processed.
    fn advanced(&self, file: &Path, done: u64, total: u64) {
        let _ = (file, done, total);
    }

    /// Reports the outcome of a file, in order of completion.
    fn finished(&self, outcome: &FileOutcome) {
        let _ = outcome;
    }
}

/// Options for the work on files. The default refuses existing targets, keeps sources, wants files whole
/// and uses all processors.
#[derive(Clone, Copy, Default)]
pub struct Options<'a> {
    /// Treatment of targets that exist. `rotate` replaces its files in any case.
    pub existing: Existing,
    /// Treatment of the sources of `lock` and `unlock`.
    pub source: Source,
    /// Treatment of a cut off file in `unlock`, and in `rotate` with [`Rewrap::Everything`].
    pub ending: Ending,
    /// Number of threads, over all files; one per processor if `None`.
    pub threads: Option<NonZeroUsize>,
    /// Request to stop. Incomplete work leaves nothing behind.
    pub cancel: Option<&'a Cancel>,
    /// Observer that is told about progress.
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

/// Outcome of the work on one file.
#[derive(Debug)]
#[non_exhaustive]
pub struct FileOutcome {
    /// The file that was read.
    pub from: PathBuf,
    /// The file to create; `None` for `verify`.
    pub to: Option<PathBuf>,
    /// Summary of the work, or its error. With an error the target is as it was before.
    pub result: Result<Done>,
    /// Seconds that the work took.
    pub took_secs: f64,
    /// The costly steps of it; the last one may be the one that failed.
    pub steps: Vec<StepTime>,
}

impl FileOutcome {
    fn new(from: &Path, to: Option<&Path>, result: Result<Done>) -> Self {
        Self {
            from: from.to_owned(),
            to: to.map(Path::to_owned),
            result,
            took_secs: 0.0,
            steps: Vec::new(),
        }
    }
}

/// Summary of the work on one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Done {
    /// Plain bytes in the file.
    pub plain_bytes: u64,
    /// Way in which the encrypted file ended; `None` where the payload was copied unopened.
    pub end: Option<End>,
    /// Whether the source was removed.
    pub source_removed: bool,
}

/// Encrypts files. A target has the owner and permissions of its source.
///
/// An age file fails with [`Error::AlreadyLocked`], and one that is being recorded with [`Error::InUse`].
/// One that changes meanwhile, because something else writes to it, fails with [`Error::Changed`].
pub fn lock(tasks: &[Task], recipients: &Recipients, options: &Options<'_>) -> Vec<FileOutcome> {
    make(tasks, options, |task, work, steps| {
        refuse_link(task, options)?;
        let mut source = open_held(&task.from, options.source == Source::Remove)?;
        let state = FileState::of(&source)?;
        let total = state.len;
        if starts_as_age(&mut source)? {
            return Err(Error::AlreadyLocked);
        }
        let (target, held) = begin(task, options)?;
        // One byte beyond is enough to see that it grows; a writer may append for ever.
        let mut content = (&source).take(total.saturating_add(1));
        let passed = seal_stream(&mut content, &mut target.file()?, recipients, work, steps)?;
        // It has changed since it was opened: something writes to it, and would go on.
        if passed.plain_bytes != total {
            return Err(Error::Changed);
        }
        state.check(&source)?;
        target.make_alike(&source)?;
        steps.time(Step::Sync, || target.commit(held))?;
        done(task, options, passed, &source, state)
    })
}

/// Decrypts files. A target has the owner and permissions of its source, and appears only if all of it is
/// authentic. With [`Ending::Tolerant`] a cut off file gives as much as is whole, and its source stays in
/// any case.
pub fn unlock(tasks: &[Task], identities: &Identities, options: &Options<'_>) -> Vec<FileOutcome> {
    make(tasks, options, |task, work, steps| {
        refuse_link(task, options)?;
        // A file that is being recorded may be read up to its present end, but not be removed.
        let source = match options.source {
            Source::Keep => open_regular(&task.from)?,
            Source::Remove => open_held(&task.from, true)?,
        };
        let state = FileState::of(&source)?;
        let (target, held) = begin(task, options)?;
        let passed = open_stream(
            &source,
            &mut target.file()?,
            identities,
            options.ending,
            work,
            steps,
        )?;
        target.make_alike(&source)?;
        steps.time(Step::Sync, || target.commit(held))?;
        done(task, options, passed, &source, state)
    })
}

/// Exchanges the recipients of files, in place: the old file goes when the new one is on the disk.
///
/// With [`Rewrap::Header`] a cut off file stays cut off, without notice. A file that is being recorded
/// fails with [`Error::InUse`], one that changes meanwhile with [`Error::Changed`].
pub fn rotate(
    files: &[PathBuf],
    identities: &Identities,
    recipients: &Recipients,
    rewrap: Rewrap,
    options: &Options<'_>,
) -> Vec<FileOutcome> {
    each(files, options, |file, work, steps| {
        let result = || {
            work.check()?;
            // The file behind a link is the one to replace.
            let path = typed(&fs::canonicalize(file)?);
            let source = open_held(&path, true)?;
            let state = FileState::of(&source)?;
            let target = Replacement::begin(&path, Existing::Replace)?;
            let done = match rewrap {
                Rewrap::Header => rewrap_header(
                    &source,
                    state.len,
                    target.file()?,
                    identities,
                    recipients,
                    work,
                    steps,
                )?,
                Rewrap::Everything => {
                    let content = (&source).take(state.len);
                    let mut plain = steps.time(Step::Unwrap, || {
                        Decrypting::new(content, identities, options.ending)
                    })?;
                    seal_stream(&mut plain, &mut target.file()?, recipients, work, steps)?;
                    Done {
                        plain_bytes: plain.plain_bytes(),
                        end: plain.end(),
                        source_removed: false,
                    }
                }
            };
            // Bytes added meanwhile would be lost.
            state.check(&source)?;
            target.make_alike(&source)?;
            steps.time(Step::Sync, || target.commit(Some(source)))?;
            Ok(done)
        };
        FileOutcome::new(file, Some(file), result())
    })
}

/// Checks files without writing anything: whether the identities fit, and whether the file is whole.
///
/// [`Error::CutOff`] and [`Error::Damaged`] tell the length of the whole part.
pub fn verify(
    files: &[PathBuf],
    identities: &Identities,
    options: &Options<'_>,
) -> Vec<FileOutcome> {
    each(files, options, |file, work, steps| {
        let result = || {
            work.check()?;
            let source = open_regular(file)?;
            let passed = open_stream(
                &source,
                &mut io::sink(),
                identities,
                Ending::Strict,
                work,
                steps,
            )?;
            Ok(Done {
                plain_bytes: passed.plain_bytes,
                end: Some(passed.end),
                source_removed: false,
            })
        };
        FileOutcome::new(file, None, result())
    })
}

/// Returns whether a file is an age file, by its first bytes. Readers of recordings ask this and ignore the
/// name.
///
/// # Errors
/// [`Error::Io`], [`Error::NotAFile`].
pub fn is_locked(path: &Path) -> Result<bool> {
    starts_as_age(&mut open_regular(path)?)
}

/// Returns the name of a locked file: the same with `.age` behind it.
pub fn locked_name(path: &Path) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(".age");
    name.into()
}

/// Returns the name of an unlocked file, which lacks the `.age`; `None` for names without one.
pub fn unlocked_name(path: &Path) -> Option<PathBuf> {
    (path.extension()? == "age").then(|| path.with_extension(""))
}

/// Writes a header with the same file key for other recipients, and copies the payload.
fn rewrap_header(
    mut source: &File,
    total: u64,
    mut target: &File,
    identities: &Identities,
    recipients: &Recipients,
    work: &Work<'_>,
    steps: &Stopwatch,
) -> Result<Done> {
    let header = Header::read(&mut BufReader::new(source))?;
    let file_key = steps.time(Step::Unwrap, || identities.unwrap(&header))?;
    let wrapped = steps.time(Step::Wrap, || recipients.wrap(&file_key))?;
    target.write_all(&encode(&file_key, &wrapped))?;
    source.seek(SeekFrom::Start(header.len()))?;
    // No more than there was when it was opened: a writer may append for ever.
    let mut rest = source.take(total.saturating_sub(header.len()));
    let copied = steps.time(Step::Copy, || -> Result<u64> {
        let mut copied = 0;
        loop {
            work.check()?;
            // Between two files the kernel copies by itself where it can.
            let len = io::copy(&mut (&mut rest).take(COPY_LEN), &mut target)?;
            if len == 0 {
                return Ok(copied);
            }
            copied += len;
            if let Some(progress) = work.progress {
                progress(header.len() + copied);
            }
        }
    })?;
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

/// Begins the target, and holds the file that it replaces: meanwhile no recorder moves that file aside to
/// record under its name.
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
        // A file that is being recorded must not be replaced either.
        Ok(to) if to.is_file() => {
            let held = open_held(&task.to, true)?;
            Ok((Replacement::begin(&task.to, Existing::Replace)?, Some(held)))
        }
        Ok(_) => Ok((Replacement::begin(&task.to, Existing::Replace)?, None)),
        // A file that appears meanwhile belongs to another program.
        Err(_) => Ok((Replacement::begin(&task.to, Existing::Refuse)?, None)),
    }
}

/// Refuses to remove a link, which would leave the file behind it and report it as removed.
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
    state: FileState,
) -> Result<Done> {
    let source_removed = options.source == Source::Remove && passed.end == End::Whole;
    if source_removed {
        // The last moment to detect a writer that takes no lock.
        state.check(source)?;
        if !file_lock::is_still(&task.from, source)? {
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

/// Runs `run` on every task whose target no earlier task has.
fn make(
    tasks: &[Task],
    options: &Options<'_>,
    run: impl Fn(&Task, &Work<'_>, &Stopwatch) -> Result<Done> + Sync,
) -> Vec<FileOutcome> {
    let mut seen = HashSet::new();
    // Two sources with one target would lose one of the results.
    let tasks: Vec<(&Task, bool)> = tasks
        .iter()
        .map(|task| (task, seen.insert(&task.to)))
        .collect();
    each(&tasks, options, |(task, first), work, steps| {
        let result = work.check().and_then(|()| {
            if *first {
                run(task, work, steps)
            } else {
                Err(Error::Exists(task.to.clone()))
            }
        });
        FileOutcome::new(&task.from, Some(&task.to), result)
    })
}

/// Item with a file name for observers.
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

/// Spreads items over threads, at most one per item; the remaining threads help inside the files.
fn each<T: Named + Sync>(
    items: &[T],
    options: &Options<'_>,
    run: impl Fn(&T, &Work<'_>, &Stopwatch) -> FileOutcome + Sync,
) -> Vec<FileOutcome> {
    let threads = options
        .threads
        .or_else(|| thread::available_parallelism().ok())
        .map_or(1, NonZeroUsize::get);
    let files_at_once = threads.min(items.len()).max(1);
    // A file alone gets help with its chunks; files in parallel keep the processors busy by themselves.
    // Reading and writing take a processor too. On two of them, one thread for the chunks gained a quarter,
    // and a second one nothing (1 GiB in memory, machine busy).
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
            let steps = Stopwatch::start();
            let mut outcome = run(
                item,
                &Work {
                    threads: within,
                    cancel: options.cancel,
                    progress: Some(&progress),
                },
                &steps,
            );
            (outcome.took_secs, outcome.steps) = steps.stop();
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
    // Opening a pipe would wait for a writer, so check first.
    if !fs::metadata(path)?.is_file() {
        return Err(Error::NotAFile);
    }
    Ok(File::open(path)?)
}

/// Opens a regular file unless it is being recorded; `alone` takes the lock exclusively.
fn open_held(path: &Path, alone: bool) -> Result<File> {
    if !fs::metadata(path)?.is_file() {
        return Err(Error::NotAFile);
    }
    let file = file_lock::open_to_read(path, alone).map_err(|error| match error.kind() {
        io::ErrorKind::ResourceBusy => Error::InUse,
        _ => Error::Io(error),
    })?;
    // The file may have been replaced before the lock was taken.
    if file_lock::is_still(path, &file)? {
        Ok(file)
    } else {
        Err(Error::Changed)
    }
}

/// Length and time of a file, by which a change is detected.
#[derive(Debug, Clone, Copy)]
struct FileState {
    len: u64,
    modified: Option<SystemTime>,
}

impl FileState {
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

/// Bytes copied between two checks of the request to stop.
const COPY_LEN: u64 = 8 * 1024 * 1024;
