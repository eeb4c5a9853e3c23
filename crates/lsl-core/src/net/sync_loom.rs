//! Locks, wake-ups, threads' flags and a clock that stands still, for models: `cargo xtask loom`. No deadline and no
//! timer saves a thread, so a lost wake-up is a deadlock, which loom reports.

use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use loom::sync::Condvar;
pub(crate) use loom::sync::atomic::{AtomicU64, AtomicUsize};
pub(crate) use loom::sync::{Mutex, MutexGuard};
use loom::thread::{Builder, JoinHandle};

/// Returns the time of everything that happens.
pub(crate) fn local_clock() -> f64 {
    10.0
}

/// Models `lsl_platform::event_count::EventCount`.
#[derive(Debug, Default)]
pub(crate) struct EventCount {
    count: Mutex<u32>,
    changed: Condvar,
}

impl EventCount {
    pub(crate) fn current(&self) -> u32 {
        *self.count.lock().unwrap()
    }

    pub(crate) fn wait(&self, seen: u32, _: Duration) {
        let mut count = self.count.lock().unwrap();
        while *count == seen {
            count = self.changed.wait(count).unwrap();
        }
    }

    pub(crate) fn notify_all(&self) {
        *self.count.lock().unwrap() += 1;
        self.changed.notify_all();
    }
}

/// Wraps that of tokio, in which loom sees nothing: every call is an access that it sees, and one step.
#[derive(Debug, Default)]
pub(crate) struct Notify {
    inner: tokio::sync::Notify,
    calls: AtomicUsize,
}

/// Future of a [`Notify`].
pub(crate) struct Notified<'a>(Pin<Box<tokio::sync::futures::Notified<'a>>>, &'a Notify);

impl Notify {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    fn call(&self) -> &tokio::sync::Notify {
        self.calls.fetch_add(1, Ordering::AcqRel);
        &self.inner
    }

    pub(crate) fn notify_one(&self) {
        self.call().notify_one();
    }

    pub(crate) fn notify_waiters(&self) {
        self.call().notify_waiters();
    }

    pub(crate) fn notified(&self) -> Notified<'_> {
        Notified(Box::pin(self.call().notified()), self)
    }
}

impl Notified<'_> {
    pub(crate) fn enable(mut self: Pin<&mut Self>) -> bool {
        self.1.call();
        self.0.as_mut().enable()
    }
}

impl Future for Notified<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        self.1.call();
        self.0.as_mut().poll(context)
    }
}

impl Drop for Notified<'_> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.1.call();
        }
    }
}

/// Models `lsl_platform::wait::Interrupt`.
#[derive(Debug, Default)]
pub(crate) struct Interrupt(Mutex<(bool, Option<Waker>)>);

impl Interrupt {
    pub(crate) fn of_thread() -> io::Result<Arc<Self>> {
        loom::thread_local!(static OWN: Arc<Interrupt> = Arc::default());
        Ok(OWN.with(Arc::clone))
    }

    pub(crate) fn raise(&self) {
        let mut state = self.0.lock().unwrap();
        state.0 = true;
        if let Some(waker) = state.1.take() {
            waker.wake();
        }
    }

    pub(crate) fn lower(&self) {
        self.0.lock().unwrap().0 = false;
    }

    /// Waits until the flag is raised.
    pub(crate) fn poll(&self, context: &Context<'_>) -> Poll<()> {
        let mut state = self.0.lock().unwrap();
        state.1 = Some(context.waker().clone());
        if state.0 {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }
}

/// Wakes a thread that runs a task.
#[derive(Default)]
struct Parked(EventCount);

impl Wake for Parked {
    fn wake(self: Arc<Self>) {
        self.0.notify_all();
    }
}

/// Runs a task on the calling thread.
pub(crate) fn block_on<F: Future>(task: F) -> F::Output {
    let parked = Arc::new(Parked::default());
    let waker = Waker::from(Arc::clone(&parked));
    let mut task = pin!(task);
    loop {
        let seen = parked.0.current();
        if let Poll::Ready(output) = task.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        parked.0.wait(seen, Duration::MAX);
    }
}

/// Runs a task on a thread of its own.
pub(crate) fn spawn(task: impl Future<Output = ()> + Send + 'static) {
    thread(|| block_on(task));
}

/// Runs a thread with room for what is not optimised.
pub(crate) fn thread<R: Send + 'static>(run: impl FnOnce() -> R + Send + 'static) -> JoinHandle<R> {
    let words = (1 << 20) / size_of::<usize>();
    Builder::new().stack_size(words).spawn(run).unwrap()
}

/// Explores a model with at most so many preemptions per execution.
pub(crate) fn check(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    // Nobody runs it, so its timers never fire.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    let _context = runtime.enter();
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 10_000;
    let model = Arc::new(model);
    builder.check(move || {
        let model = Arc::clone(&model);
        thread(move || model());
    });
}
