//! The log, on the standard error output, in `log.file`, or to a callback of the host. Starts when the
//! configuration is first read. A host with a `tracing` subscriber of its own (a Rust program that links
//! this crate's code) gets the messages instead.
//!
//! `log.level` and the levels given to the callback are liblsl's: -2 errors, -1 warnings, 0 information, 1
//! debugging, 2 and above everything. -3 silences the log.

use std::ffi::{CString, c_char, c_void};
use std::fmt::{self, Write as _};
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lsl_core::config::Log;
use lsl_core::local_clock;
use lsl_platform::reentry::interruptible;
use lsl_platform::stderr::StandardError;
use lsl_platform::terminal::printable;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span;
use tracing::subscriber::{NoSubscriber, set_global_default, with_default};
use tracing::{Event, Level, Metadata, Subscriber, dispatcher};

use crate::guard::guard;

/// The host's callback for messages: level, text, and the pointer that the host registered with it.
pub(crate) type LogCallback =
    unsafe extern "C" fn(level: i32, message: *const c_char, user: *mut c_void);

/// Gives every message to `callback` instead of writing it; NULL writes again. Not in liblsl. Set before the
/// first other call, it gets the messages about the configuration too. `log.level` selects the messages. The
/// text is valid during the call only.
///
/// Any thread of the library calls it, several at once. A call that has begun elsewhere may end after this
/// function returned. It may call the library, but not unwind or jump out.
///
/// # Safety
/// `callback` is NULL or a function that may be called with `user` from any thread. That holds until
/// another one is set and calls under way have returned.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lslx_set_log_callback(callback: Option<LogCallback>, user: *mut c_void) {
    guard((), || {
        let callback = callback.map(|function| (function, AtomicPtr::new(user)));
        *CALLBACK.lock().unwrap_or_else(PoisonError::into_inner) = callback;
    });
}

/// Holds an `AtomicPtr` because plain pointers are not `Send`.
static CALLBACK: Mutex<Option<Callback>> = Mutex::new(None);

pub(crate) type Callback = (LogCallback, AtomicPtr<c_void>);

/// Locks the callback. A forking thread holds it, because the child could never open a lock of another
/// thread.
pub(crate) fn hold() -> MutexGuard<'static, Option<Callback>> {
    CALLBACK.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs `read`, which reads the configuration, and returns its messages for [`install`]; `None` if the host
/// has a subscriber.
pub(crate) fn observe<R>(read: impl FnOnce() -> R) -> (R, Option<Vec<Message>>) {
    if dispatcher::get_default(|current| !current.is::<NoSubscriber>()) {
        return (read(), None);
    }
    let keeper = Arc::new(Logger::new(
        LevelFilter::TRACE,
        LogOutput::Kept(Mutex::default()),
    ));
    let result = with_default(Arc::clone(&keeper), read);
    (result, Some(keeper.take_kept()))
}

/// Starts the log and writes these messages first.
#[cfg_attr(
    test,
    expect(dead_code, reason = "tests share one process and listen themselves")
)]
pub(crate) fn install(config: &Log, messages: Vec<Message>) {
    let (output, failure) = LogOutput::open(&config.file);
    let logger = Arc::new(Logger::new(filter(config.level), output));
    if set_global_default(Arc::clone(&logger)).is_err() {
        // The host set a subscriber meanwhile, and it takes precedence.
        return;
    }
    for message in messages.into_iter().chain(failure) {
        if message.level <= logger.filter {
            logger.write(message);
        }
    }
}

/// Returns the filter of a `log.level`.
fn filter(level: i32) -> LevelFilter {
    match level {
        ..=-3 => LevelFilter::OFF,
        -2 => LevelFilter::ERROR,
        -1 => LevelFilter::WARN,
        0 => LevelFilter::INFO,
        1 => LevelFilter::DEBUG,
        2.. => LevelFilter::TRACE,
    }
}

/// Returns the level at which an event is logged. Audit events about sessions that come and go are
/// debugging messages; failures keep their level.
fn level_of(metadata: &Metadata<'_>) -> Level {
    match *metadata.level() {
        Level::INFO if metadata.target() == AUDIT => Level::DEBUG,
        level => level,
    }
}

/// Target of the events about encrypted sessions. Spec: LSS/1 §10.
const AUDIT: &str = "lsl_secure::audit";

/// Returns liblsl's number of a level.
fn number(level: Level) -> i32 {
    match level {
        Level::ERROR => -2,
        Level::WARN => -1,
        Level::INFO => 0,
        Level::DEBUG => 1,
        _ => 2,
    }
}

/// Message of the log, written as one line.
#[derive(Debug)]
pub(crate) struct Message {
    level: Level,
    text: String,
}

enum LogOutput {
    Stderr,
    File(File),
    Kept(Mutex<Vec<Message>>),
}

impl LogOutput {
    /// Opens the output. It is standard error for an empty name and, with a message, for an unusable one.
    fn open(name: &str) -> (Self, Option<Message>) {
        if name.is_empty() {
            return (Self::Stderr, None);
        }
        match OpenOptions::new().create(true).append(true).open(name) {
            Ok(file) => (Self::File(file), None),
            Err(error) => {
                let message = Message {
                    level: Level::WARN,
                    text: format!("cannot write the log file {name}: {error}"),
                };
                (Self::Stderr, Some(message))
            }
        }
    }
}

/// Subscriber that writes events and ignores spans.
struct Logger {
    filter: LevelFilter,
    output: LogOutput,
    start: f64,
}

impl Logger {
    fn new(filter: LevelFilter, output: LogOutput) -> Self {
        Self {
            filter,
            output,
            start: local_clock(),
        }
    }

    fn take_kept(&self) -> Vec<Message> {
        match &self.output {
            LogOutput::Kept(kept) => {
                std::mem::take(&mut kept.lock().unwrap_or_else(PoisonError::into_inner))
            }
            _ => Vec::new(),
        }
    }

    /// Writes a message as one line, whatever names and errors from the network it quotes.
    fn write(&self, mut message: Message) {
        if let LogOutput::Kept(kept) = &self.output {
            kept.lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(message);
            return;
        }
        message.text = printable(message.text.as_bytes(), LONGEST_TEXT_BYTES);
        if call_back(&message) {
            return;
        }
        let line = format!(
            "({:8.3}s) [{:>8}] {:>5}| {}\n",
            local_clock() - self.start,
            std::thread::current().name().unwrap_or(""),
            message.level,
            message.text
        );
        // A log that cannot be written has no place to report that.
        let _ = match &self.output {
            LogOutput::File(file) => { file }.write_all(line.as_bytes()),
            _ => StandardError.write_all(line.as_bytes()),
        };
    }
}

/// Upper limit for the text of a message.
const LONGEST_TEXT_BYTES: usize = 8 << 10;

/// Passes a message to the callback. Returns false if there is none.
fn call_back(message: &Message) -> bool {
    // The lock is released before foreign code runs.
    let callback = CALLBACK
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .as_ref()
        .map(|(function, user)| (*function, user.load(Ordering::Relaxed)));
    let Some((function, user)) = callback else {
        return false;
    };
    // Escaped text contains no NUL, which `new` would refuse.
    let text = CString::new(message.text.as_str()).unwrap_or_default();
    // SAFETY: the host promised that its function may be called so.
    interruptible(|| unsafe { function(number(message.level), text.as_ptr(), user) });
    true
}

impl Subscriber for Logger {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && level_of(metadata) <= self.filter
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(self.filter)
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = EventText::default();
        event.record(&mut line);
        self.write(Message {
            level: level_of(event.metadata()),
            text: line.message + &line.fields,
        });
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

/// Text of an event: `message key=value key=value`.
#[derive(Default)]
struct EventText {
    message: String,
    fields: String,
}

impl Visit for EventText {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a string does not fail.
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, " {name}={value:?}"),
        };
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;

    use super::*;

    /// The callback is one for all.
    static WRITING: Mutex<()> = Mutex::new(());

    fn say() {
        tracing::error!(peer = %"10.0.0.1:5", count = 3, "gone");
        tracing::warn!("odd");
        tracing::info!("there");
        tracing::debug!("detail");
        tracing::trace!("noise");
    }

    #[test]
    fn good_news_of_the_audit_log_is_detail() {
        let say = || {
            tracing::info!(target: AUDIT, "handshake_ok");
            tracing::warn!(target: AUDIT, "handshake_failed");
        };
        for (level, expected) in [(-1, 1), (0, 1), (1, 2)] {
            let logger = Arc::new(Logger::new(
                filter(level),
                LogOutput::Kept(Mutex::default()),
            ));
            with_default(Arc::clone(&logger), say);
            let kept = logger.take_kept();
            assert_eq!(kept.len(), expected, "{level}");
            assert!(kept.iter().all(|message| message.level != Level::INFO));
        }
    }

    #[test]
    fn levels_select_messages() {
        for (level, expected) in [(-3, 0), (-2, 1), (-1, 2), (0, 3), (1, 4), (2, 5), (9, 5)] {
            let logger = Arc::new(Logger::new(
                filter(level),
                LogOutput::Kept(Mutex::default()),
            ));
            with_default(Arc::clone(&logger), say);
            let kept = logger.take_kept();
            assert_eq!(kept.len(), expected, "{level}");
            if let Some(first) = kept.first() {
                assert_eq!(first.text, "gone peer=10.0.0.1:5 count=3");
            }
            assert!(kept.iter().all(|message| number(message.level) <= level));
        }
    }

    #[test]
    fn a_subscriber_of_the_host_is_respected() {
        let host = Arc::new(Logger::new(filter(2), LogOutput::Kept(Mutex::default())));
        let (seven, messages) = with_default(Arc::clone(&host), || {
            observe(|| {
                tracing::info!("read");
                7
            })
        });
        assert_eq!((seven, messages.is_none()), (7, true));
        assert_eq!(host.take_kept().len(), 1);
    }

    #[test]
    fn messages_are_kept_until_the_log_is_there() {
        let ((), messages) = observe(|| tracing::info!("configuration loaded"));
        assert_eq!(messages.unwrap()[0].text, "configuration loaded");
    }

    #[test]
    fn files_are_appended_to_and_useless_names_are_told() {
        let _alone = WRITING.lock();
        let path = std::env::temp_dir().join(format!("lsl-ffi-log-{}", std::process::id()));
        for _ in 0..2 {
            let (output, failure) = LogOutput::open(path.to_str().unwrap());
            assert!(failure.is_none());
            with_default(Logger::new(filter(0), output), || tracing::info!("there"));
        }
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(text.matches(" INFO| there\n").count(), 2, "{text}");
        let (output, failure) = LogOutput::open("/nonexistent/file");
        assert!(matches!(output, LogOutput::Stderr));
        assert!(failure.unwrap().text.contains("/nonexistent/file"));
    }

    /// B5: a name from the network makes neither a second line nor an escape sequence.
    #[test]
    fn log_injection() {
        let _alone = WRITING.lock();
        let path = std::env::temp_dir().join(format!("lsl-ffi-inject-{}", std::process::id()));
        let (output, failure) = LogOutput::open(path.to_str().unwrap());
        assert!(failure.is_none());
        let name = "Amp\n(   0.000s) [   lsl-io]  WARN| forged\x1b[2J\u{202e}\u{2028}";
        with_default(Logger::new(filter(0), output), || {
            tracing::info!(name = %name, "stream lost");
            tracing::warn!("{name}");
        });
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(text.lines().count(), 2, "{text}");
        assert!(text.ends_with('\n'), "{text}");
        let steers = |c: char| (c.is_control() && c != '\n') || "\u{202e}\u{2028}".contains(c);
        assert!(!text.chars().any(steers), "{text:?}");
        assert!(text.contains(r"name=Amp\n(   0.000s)"), "{text}");
    }

    extern "C" fn collect(level: i32, message: *const c_char, user: *mut c_void) {
        // SAFETY: the log gives a NUL-terminated text.
        let message = unsafe { CStr::from_ptr(message) };
        // SAFETY: the test gives a collection that outlives the calls.
        let collected = unsafe { &*user.cast::<Mutex<Vec<(i32, String)>>>() };
        let message = message.to_str().unwrap().to_owned();
        collected.lock().unwrap().push((level, message));
    }

    #[test]
    fn a_callback_gets_the_messages() {
        let _alone = WRITING.lock();
        let collected: Mutex<Vec<(i32, String)>> = Mutex::default();
        let user = (&raw const collected).cast_mut().cast();
        // SAFETY: `collected` lives until the callback is taken back.
        unsafe { lslx_set_log_callback(Some(collect), user) };
        let message = Message {
            level: Level::WARN,
            text: "a\0b".to_owned(),
        };
        Logger::new(filter(0), LogOutput::Stderr).write(message);
        // SAFETY: NULL is allowed.
        unsafe { lslx_set_log_callback(None, std::ptr::null_mut()) };
        let collected = collected.lock().unwrap();
        assert_eq!(*collected, [(-1, r"a\u{0}b".to_owned())]);
    }
}
