//! The one tokio runtime of the process: thread `lsl-io`, built on first use, never torn down.
//!
//! It is leaked on purpose, so that no destructor waits for tasks while a program exits. A forked
//! child has none of its parent's threads; it gets a runtime of its own on first use.
//! Nothing here knows LSL.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::available_parallelism;
use std::time::Duration;

use lsl_platform::clock::local_clock;
use lsl_platform::fork::PerProcess;
use lsl_platform::socket::requests_end_with_threads;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::Semaphore;
use tokio::task::{AbortHandle, JoinError, JoinHandle};

use crate::{Error, Result};

/// Handle of the process runtime, which is built now if it does not exist in this process.
/// Works from any thread, inside or outside another runtime; blocks only while building.
///
/// # Errors
/// [`Error::Io`] if the system refuses threads or descriptors.
pub(crate) fn handle() -> Result<Handle> {
    static RUNTIME: PerProcess<ProcessRuntime> = PerProcess::new();
    let built = RUNTIME.get_or_try_init(|| build().map(ProcessRuntime::new))?;
    Ok(built.handle.clone())
}

/// Returns the runtime of the process, built with so many threads if there is none yet: of a process that only passes
/// samples on, those threads are the hot path.
///
/// # Errors
/// If it cannot be built.
pub fn with_workers(workers: usize) -> Result<Handle> {
    WORKERS.store(workers, Ordering::Relaxed);
    handle()
}

/// Threads that somebody asked for; 0 if nobody did.
static WORKERS: AtomicUsize = AtomicUsize::new(0);

/// Runs `task` on the process runtime.
///
/// # Errors
/// As [`handle`]; the task is dropped then.
pub(crate) fn spawn<F>(task: F) -> Result<JoinHandle<F::Output>>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    Ok(handle()?.spawn(task))
}

/// As [`spawn`], but the future is made on the runtime: callers with small stacks have no room for it,
/// and of such a size is the frame of whoever makes it, also when it does not.
///
/// # Errors
/// As [`handle`].
pub(crate) fn start<F>(make: impl FnOnce() -> F + Send + 'static) -> Result<AbortHandle>
where
    F: Future<Output = ()> + Send + 'static,
{
    Ok(spawn(async move { Box::pin(make()).await })?.abort_handle())
}

/// Runs `register` where sockets can be registered with the reactor: on the calling thread if that
/// still has its thread-locals and takes nothing along when it ends. In `atexit` handlers and static
/// destructors the main thread has none, and tokio panics there: then on a thread for it, and the caller
/// waits. It must not wait for the runtime, which may wait for a lock of the caller.
///
/// # Errors
/// As [`handle`].
pub(crate) fn register<R: Send + 'static>(
    register: impl FnOnce() -> R + Send + 'static,
) -> Result<R> {
    let handle = handle()?;
    let may_register = match Handle::try_current() {
        // Its threads end with the process, or have been idle.
        Ok(current) if current.id() == handle.id() => true,
        Err(error) if error.is_thread_local_destroyed() => false,
        _ => !requests_end_with_threads(),
    };
    if may_register {
        let _context = handle.enter();
        return Ok(register());
    }
    let failed = |source| Error::io("cannot register a socket", source);
    let (sender, receiver) = mpsc::sync_channel(1);
    let job = move || {
        let _context = handle.enter();
        // Who waits for it is there.
        let _ = sender.send(register());
    };
    let registrar = REGISTRAR.get_or_try_init(start_registrar).map_err(failed)?;
    // A thread that has ended drops the job, and its sender.
    let _ = registrar.send(Box::new(job));
    let ended = |_| std::io::Error::other("the thread that registers sockets has ended");
    receiver.recv().map_err(ended).map_err(failed)
}

/// Piece of work for another thread.
type Job = Box<dyn FnOnce() + Send>;

static REGISTRAR: PerProcess<mpsc::Sender<Job>> = PerProcess::new();

/// Starts the thread that registers sockets for others. It ends when nobody can ask it.
fn start_registrar() -> std::io::Result<mpsc::Sender<Job>> {
    let (sender, jobs) = mpsc::channel::<Job>();
    let work = move || {
        lsl_platform::reentry::block_signals();
        for job in jobs {
            // Nobody else could register anything after it.
            let _ = catch_unwind(AssertUnwindSafe(job));
        }
    };
    std::thread::Builder::new()
        .name("lsl-register".into())
        .spawn(work)?;
    Ok(sender)
}

/// How long to sleep for something that is done once in `period`. All that have one period wake in the
/// same millisecond, on the whole host: an idle process with a hundred inlets wakes as often as with one.
/// The first time may come early.
pub(crate) fn until_next(period: Duration) -> Duration {
    let period_secs = period.as_secs_f64().max(0.001);
    Duration::from_secs_f64(period_secs - local_clock() % period_secs)
}

/// Blocking work of one kind: at most so many pieces at a time in the pool of the runtime.
pub(crate) struct BlockingWork<const MOST: usize>(pub(crate) Arc<Semaphore>);

impl<const MOST: usize> Default for BlockingWork<MOST> {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(MOST)))
    }
}

impl<const MOST: usize> BlockingWork<MOST> {
    /// Runs a piece of work when it is its turn, which lasts as long as a thread is busy with it, also if nobody
    /// waits any more.
    pub(crate) async fn run<R: Send + 'static>(
        &self,
        work: impl FnOnce() -> R + Send + 'static,
    ) -> std::result::Result<R, JoinError> {
        // Nobody closes the semaphore.
        let turn = Arc::clone(&self.0).acquire_owned().await.ok();
        let work = move || {
            let _turn = turn;
            work()
        };
        tokio::task::spawn_blocking(work).await
    }
}

/// A task that ends with its owner.
#[derive(Debug)]
pub(crate) struct AbortOnDrop<T>(pub JoinHandle<T>);

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

struct ProcessRuntime {
    handle: Handle,
    runtime: Option<Runtime>,
}

impl ProcessRuntime {
    fn new(runtime: Runtime) -> Self {
        Self {
            handle: runtime.handle().clone(),
            runtime: Some(runtime),
        }
    }
}

impl Drop for ProcessRuntime {
    /// Another thread was faster; nobody has seen this one.
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

fn build() -> Result<Runtime> {
    lsl_platform::module::pin();
    let workers = match WORKERS.load(Ordering::Relaxed) {
        // More workers only bounce samples between cores; LSL's work is a few system calls a second
        // per stream, and the hot path runs on the callers' own threads.
        0 if available_parallelism().is_ok_and(|cores| cores.get() >= 8) => 2,
        0 => 1,
        workers => workers,
    };
    Builder::new_multi_thread()
        .worker_threads(workers)
        .max_blocking_threads(4)
        // Files are looked at and names looked up there; threads without work go.
        .thread_keep_alive(IDLE_THREAD_LIMIT)
        .thread_name("lsl-io")
        .on_thread_start(lsl_platform::reentry::block_signals)
        .enable_io()
        .enable_time()
        .build()
        .map_err(|source| Error::io("cannot start the I/O runtime", source))
}

const IDLE_THREAD_LIMIT: Duration = Duration::from_millis(200);

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn runs_tasks_on_its_own_named_thread() {
        let (sender, receiver) = mpsc::channel();
        spawn(async move {
            let name = std::thread::current().name().map(str::to_owned);
            sender.send(name).unwrap();
        })
        .unwrap();
        assert_eq!(receiver.recv().unwrap().as_deref(), Some("lsl-io"));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn garbage_collectors_can_suspend_the_library_s_thread() {
        // `man 7 signal`, as on all architectures but MIPS, SPARC and Alpha.
        let [term, usr2, segv, xcpu, pwr] = [15, 12, 11, 24, 30];
        let (sender, receiver) = mpsc::channel();
        spawn(async move {
            let status = std::fs::read_to_string("/proc/thread-self/status");
            sender.send(status.unwrap()).unwrap();
        })
        .unwrap();
        let status = receiver.recv().unwrap();
        let blocked = status.lines().find_map(|line| line.strip_prefix("SigBlk:"));
        let blocked = u64::from_str_radix(blocked.unwrap().trim(), 16).unwrap();
        let is_blocked = |signal: u32| blocked & (1 << (signal - 1)) != 0;
        assert!([term, usr2].into_iter().all(is_blocked), "{blocked:x}");
        let let_through = [segv, xcpu, pwr].into_iter().chain(34..=64);
        for signal in let_through {
            assert!(!is_blocked(signal), "{signal}");
        }
    }

    #[test]
    fn what_has_one_period_wakes_together() {
        let period = Duration::from_secs(1000);
        let wakes_at = || local_clock() + until_next(period).as_secs_f64();
        let (first, second) = (wakes_at(), wakes_at());
        let distance = (first / 1000.0).round() * 1000.0 - first;
        assert!(distance.abs() < 0.01, "{first}");
        let moved = (second - first).rem_euclid(1000.0);
        assert!(!(0.01..=999.99).contains(&moved), "{first} {second}");
        assert!(until_next(Duration::ZERO) <= Duration::from_millis(1));
    }

    #[test]
    fn sockets_are_registered_when_the_thread_has_lost_its_locals() {
        struct AtTheEnd(mpsc::Sender<bool>);

        impl Drop for AtTheEnd {
            fn drop(&mut self) {
                let lost = Handle::try_current().unwrap_err();
                assert!(lost.is_thread_local_destroyed());
                let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
                listener.set_nonblocking(true).unwrap();
                let registered = register(move || tokio::net::TcpListener::from_std(listener));
                self.0.send(registered.unwrap().is_ok()).unwrap();
            }
        }

        thread_local! {
            static LAST: std::cell::RefCell<Option<AtTheEnd>> = const { std::cell::RefCell::new(None) };
        }
        let (sender, receiver) = mpsc::channel();
        let ending = std::thread::spawn(move || {
            // Made before tokio's, so that it outlives them.
            LAST.set(Some(AtTheEnd(sender)));
            drop(handle().unwrap().enter());
        });
        let registered = receiver.recv_timeout(Duration::from_mins(1));
        assert_eq!(registered, Ok(true));
        ending.join().unwrap();
    }

    #[test]
    fn can_be_first_used_inside_another_runtime() {
        let other = Builder::new_current_thread().build().unwrap();
        #[expect(
            clippy::disallowed_methods,
            reason = "this test plays the foreign runtime"
        )]
        let answer = other.block_on(async {
            // Building afresh here is the hard case, whatever the other tests did before.
            let built = build().unwrap();
            let answer = built.spawn(async { 7 }).await.unwrap();
            built.shutdown_background();
            answer
        });
        assert_eq!(answer, 7);
    }
}
