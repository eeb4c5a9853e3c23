//! Tells whoever subscribes that the interfaces of this host changed, or that it slept: one watcher per process, as
//! long as somebody listens. It sleeps until the system has a notice; where there are none it looks every ten
//! seconds. Spec: doctor §2.2, §2.4.

use std::future::pending;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use lsl_platform::clock::{local_clock, slept_secs};
use lsl_platform::fork::{Generation, PerProcess};
use tokio::sync::watch;

use crate::drive_discovery::network_config::{forget_routes, present_interfaces};
use crate::net::monitor::lock_ignoring_poison;
use crate::net::runtime::{self, AbortOnDrop};

/// What happened since the process began to look.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Changes {
    /// Lists of interfaces that differed from the one before, also in the middle of a burst of changes.
    lists: u64,
    /// Bursts in which interfaces or addresses came, changed or went.
    pub interfaces: u64,
    /// Times that the machine slept for more than two seconds.
    pub sleeps: u64,
}

/// Returns what happened so far, as far as somebody listened.
pub(crate) fn seen() -> Changes {
    *Watching::of_process().changes.borrow()
}

/// A share in the watcher, with what its owner has not seen yet.
#[derive(Debug)]
pub(crate) struct Subscription {
    changes: Option<watch::Receiver<Changes>>,
    told: Changes,
    _watcher: Option<Arc<Watcher>>,
}

impl Subscription {
    /// Hears of what happens from now on.
    pub(crate) fn new() -> Self {
        let watching = Watching::of_process();
        let changes = watching.changes.subscribe();
        let mut running = lock_ignoring_poison(&watching.watcher);
        let watcher = running.upgrade().or_else(|| {
            let watcher = Watcher::start()
                .inspect_err(|error| tracing::warn!(%error, "nobody looks for new interfaces"));
            let watcher = Arc::new(watcher.ok()?);
            *running = Arc::downgrade(&watcher);
            Some(watcher)
        });
        let told = *changes.borrow();
        Self {
            told,
            changes: Some(changes),
            _watcher: watcher,
        }
    }

    /// Never hears of anything.
    pub(crate) fn none() -> Self {
        Self {
            changes: None,
            told: Changes::default(),
            _watcher: None,
        }
    }

    /// Waits until something happened that this did not tell yet, and is over. May be dropped and called again.
    pub(crate) async fn changed(&mut self) -> Changes {
        loop {
            let changes = self.listed().await;
            let before = std::mem::replace(&mut self.told, changes);
            if (before.interfaces, before.sleeps) != (changes.interfaces, changes.sleeps) {
                return changes;
            }
        }
    }

    /// Waits until the list of interfaces is another one, perhaps not for long. Nobody finds a stream by an interface
    /// that comes up unless its group is joined before the question comes.
    pub(crate) async fn listed(&mut self) -> Changes {
        if let Some(changes) = &mut self.changes
            && changes.changed().await.is_ok()
        {
            return *changes.borrow_and_update();
        }
        pending().await
    }
}

/// What a process knows of changes.
#[derive(Debug, Default)]
struct Watching {
    changes: watch::Sender<Changes>,
    watcher: Mutex<Weak<Watcher>>,
}

impl Watching {
    fn of_process() -> &'static Self {
        static WATCHING: PerProcess<Watching> = PerProcess::new();
        WATCHING.get()
    }
}

/// The task that looks. It ends with its last subscriber.
#[derive(Debug)]
struct Watcher {
    owner: Generation,
    task: Option<AbortOnDrop<()>>,
}

impl Watcher {
    fn start() -> crate::Result<Self> {
        Ok(Self {
            owner: Generation::current(),
            task: Some(AbortOnDrop(runtime::spawn(watch())?)),
        })
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        if !self.owner.is_current() {
            // A forked child: the task runs in the parent, whose runtime this process must not touch.
            std::mem::forget(self.task.take());
        }
    }
}

async fn watch() {
    let changes = &Watching::of_process().changes;
    let mut notices = Notices::open();
    let (mut present, mut slept) = (present_interfaces(), slept_secs());
    loop {
        notices.next().await;
        let mut settling = Settling::new(local_clock());
        let mut is_new = false;
        loop {
            // With each notice, and again before anybody is told.
            forget_routes();
            let listed = present_interfaces();
            if listed != present {
                present = listed;
                is_new = true;
                changes.send_modify(|changes| changes.lists += 1);
            }
            let Some(pause) = settling.pause(local_clock()) else {
                break;
            };
            if tokio::time::timeout(pause, notices.told()).await.is_ok() {
                settling.on_notice(local_clock());
                // A look for each notice would be too much.
                tokio::time::sleep(BREATH).await;
            }
        }
        let slept_by_now = slept_secs();
        let has_slept = is_sleep(slept, slept_by_now);
        slept = slept_by_now;
        if is_new || has_slept {
            tracing::debug!(is_new, has_slept, "the network changed");
            changes.send_modify(|changes| {
                changes.interfaces += u64::from(is_new);
                changes.sleeps += u64::from(has_slept);
            });
        }
    }
}

fn is_sleep(before: Option<f64>, after: Option<f64>) -> bool {
    matches!((before, after), (Some(before), Some(after)) if after - before > SLEEP_SECS)
}

/// A burst of notices, such as those of an interface that comes up with its addresses.
#[derive(Debug)]
struct Settling {
    first: f64,
    last: f64,
}

impl Settling {
    fn new(now: f64) -> Self {
        Self {
            first: now,
            last: now,
        }
    }

    fn on_notice(&mut self, now: f64) {
        self.last = now;
    }

    /// Returns how long to wait for more; `None` if that was all.
    fn pause(&self, now: f64) -> Option<Duration> {
        let ends_at = (self.last + QUIET_SECS).min(self.first + LONGEST_BURST_SECS);
        (ends_at > now).then(|| Duration::from_secs_f64(ends_at - now))
    }
}

#[cfg(target_os = "linux")]
use linux::Notices;

#[cfg(target_os = "linux")]
mod linux {
    use std::future::pending;
    use std::io;

    use lsl_platform::changes;
    use tokio::io::Interest;
    use tokio::io::unix::AsyncFd;

    use super::look_again;
    use crate::net::select2::select2;

    /// What the system tells of.
    pub(super) struct Notices {
        network: Option<AsyncFd<changes::Notices>>,
        waking: Option<AsyncFd<changes::Notices>>,
    }

    impl Notices {
        pub(super) fn open() -> Self {
            Self {
                network: register(changes::Notices::of_network()),
                waking: register(changes::Notices::of_waking()),
            }
        }

        /// Waits for a notice, or until it is time to look all the same.
        pub(super) async fn next(&mut self) {
            if self.network.is_some() {
                self.told().await;
            } else {
                select2(look_again(), self.told()).await;
            }
        }

        /// Waits for a notice.
        pub(super) async fn told(&mut self) {
            select2(told(&mut self.network), told(&mut self.waking)).await;
        }
    }

    #[allow(
        deprecated,
        reason = "newer versions of tokio want `unsafe`, because an AsyncFd may be made of anything that gives a \
                  descriptor; this one owns it, so that it cannot be closed under it"
    )]
    fn register(notices: io::Result<changes::Notices>) -> Option<AsyncFd<changes::Notices>> {
        notices
            .and_then(|notices| AsyncFd::with_interest(notices, Interest::READABLE))
            .inspect_err(|error| tracing::debug!(%error, "the system does not tell of changes"))
            .ok()
    }

    async fn told(source: &mut Option<AsyncFd<changes::Notices>>) {
        let taken = match source {
            None => pending().await,
            Some(notices) => match notices.readable().await {
                Ok(mut ready) => {
                    let taken = ready.get_inner().take();
                    ready.clear_ready();
                    taken
                }
                Err(error) => Err(error),
            },
        };
        if let Err(error) = taken {
            tracing::debug!(%error, "the system tells of no more changes");
            *source = None;
        }
    }
}

#[cfg(not(target_os = "linux"))]
struct Notices;

#[cfg(not(target_os = "linux"))]
#[allow(clippy::unused_self, reason = "the same calls as on Linux")]
impl Notices {
    fn open() -> Self {
        Self
    }

    async fn next(&mut self) {
        look_again().await;
    }

    async fn told(&mut self) {
        pending::<()>().await;
    }
}

async fn look_again() {
    tokio::time::sleep(runtime::until_next(LOOK_PERIOD)).await;
}

/// Between two looks where the system tells nothing.
pub(crate) const LOOK_PERIOD: Duration = Duration::from_secs(10);
const BREATH: Duration = Duration::from_millis(20);
const QUIET_SECS: f64 = 0.1;
const LONGEST_BURST_SECS: f64 = 0.5;
const SLEEP_SECS: f64 = 2.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_ends_after_quiet_or_when_it_lasts_too_long() {
        let mut settling = Settling::new(10.0);
        let millis = |settling: &Settling, now| {
            let pause = settling.pause(now);
            pause.map(|pause| pause.as_secs_f64() * 1000.0)
        };
        let near = |pause: Option<f64>, expected: f64| {
            assert!((pause.unwrap() - expected).abs() < 0.001, "{pause:?}");
        };
        near(millis(&settling, 10.0), 100.0);
        settling.on_notice(10.09);
        near(millis(&settling, 10.1), 90.0);
        assert_eq!(millis(&settling, 10.2), None);
        settling.on_notice(10.45);
        near(millis(&settling, 10.45), 50.0);
        settling.on_notice(10.499);
        assert_eq!(millis(&settling, 10.5), None);
    }

    #[test]
    fn a_machine_has_slept_if_its_clocks_are_further_apart() {
        for (before, after, expected) in [
            (Some(5.0), Some(5.001), false),
            (Some(5.0), Some(7.0), false),
            (Some(5.0), Some(7.1), true),
            (None, Some(9.0), false),
            (Some(1.0), None, false),
        ] {
            assert_eq!(is_sleep(before, after), expected, "{before:?} {after:?}");
        }
    }
}
