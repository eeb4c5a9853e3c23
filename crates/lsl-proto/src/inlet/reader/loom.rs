//! The hand-over under every interleaving: `RUSTFLAGS="--cfg lsl_loom" cargo test -p lsl-proto
//! --lib loom --release --target-dir target/loom`.
//!
//! `Reader` is the real one. Around it is what `lsl_core::drive_inlet` and its `Monitor` do, step by step, on
//! loom's locks; the kernel is one more lock. Time stands still: no deadline and no tick saves a
//! thread, so a lost wake-up is a deadlock, which loom reports.

use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

use super::{LeaderId, Reader};

/// What lies behind the lock of the feed.
struct State {
    reader: Reader<()>,
    is_connected: bool,
    is_registered: bool,
    ring: usize,
    lost: bool,
}

/// What the system keeps: bytes in the socket, the leader's flag, the wake-up of the inlet's task.
#[derive(Default)]
struct Kernel {
    socket: usize,
    raised: bool,
    task_woken: bool,
    ended: bool,
}

struct World {
    state: Mutex<State>,
    threads: Condvar,
    waiting: AtomicUsize,
    kernel: Mutex<Kernel>,
    changed: Condvar,
}

/// All that happens does so at this time, at which the stream flows.
const NOW: f64 = 10.0;

impl World {
    fn new() -> Arc<Self> {
        let mut reader = Reader::default();
        reader.begin();
        reader.on_read(NOW - 0.01);
        reader.on_read(NOW);
        Arc::new(Self {
            state: Mutex::new(State {
                reader,
                is_connected: true,
                is_registered: true,
                ring: 0,
                lost: false,
            }),
            threads: Condvar::new(),
            waiting: AtomicUsize::new(0),
            kernel: Mutex::new(Kernel::default()),
            changed: Condvar::new(),
        })
    }

    fn kernel(&self, change: impl FnOnce(&mut Kernel)) {
        change(&mut self.kernel.lock().unwrap());
        self.changed.notify_all();
    }

    /// Sends a sample, as the outlet does.
    fn send(&self) {
        self.kernel(|kernel| kernel.socket += 1);
    }

    /// Wakes those who wait, as `Monitor::wake` does.
    fn wake(&self) {
        if self.waiting.load(Ordering::Acquire) > 0 {
            self.threads.notify_all();
        }
    }

    /// `FeedState::receive`, under the lock; whether samples came.
    fn receive(&self, state: &mut State, by_leader: bool) -> bool {
        if !state.is_connected {
            return false;
        }
        let taken = std::mem::take(&mut self.kernel.lock().unwrap().socket);
        state.ring += taken;
        if taken > 0 && !by_leader && state.reader.leader().is_some() {
            self.kernel(|kernel| kernel.raised = true);
        }
        taken > 0
    }

    /// Takes a sample, as `Feed::take` does.
    fn take(state: &mut State) -> Option<bool> {
        if state.lost {
            return Some(false);
        }
        (state.ring > 0).then(|| {
            state.ring -= 1;
            true
        })
    }

    /// `InletShared::pull_blocking` without a deadline; false if the stream is lost.
    fn pull(&self) -> bool {
        if let Some(found) = Self::take(&mut self.state.lock().unwrap()) {
            return found;
        }
        loop {
            match self.wait_or_lead(true) {
                Ok(found) => return found,
                Err(id) => {
                    if let Some(found) = self.lead(id) {
                        return found;
                    }
                }
            }
        }
    }

    /// What an `.await`ed pull does, with a thread in the place of its task.
    fn pull_async(&self) -> bool {
        self.wait_or_lead(false).unwrap_or(false)
    }

    /// Waits for samples as `Monitor::wait_blocking` does.
    fn wait_or_lead(&self, may_lead: bool) -> Result<bool, LeaderId> {
        self.waiting.fetch_add(1, Ordering::AcqRel);
        let mut state = self.state.lock().unwrap();
        let outcome = loop {
            if let Some(found) = Self::take(&mut state) {
                break Ok(found);
            }
            if may_lead
                && state.is_connected
                && let Some(id) = state.reader.lead(NOW, &())
            {
                if std::mem::take(&mut state.is_registered) {
                    self.kernel(|kernel| kernel.task_woken = true);
                }
                break Err(id);
            }
            if state.reader.request_reactor(NOW) && state.is_connected && !state.is_registered {
                self.kernel(|kernel| kernel.task_woken = true);
            }
            state = self.threads.wait(state).unwrap();
        };
        drop(state);
        self.waiting.fetch_sub(1, Ordering::AcqRel);
        outcome
    }

    /// Leads and reads as `InletShared::lead` does.
    fn lead(&self, id: LeaderId) -> Option<bool> {
        loop {
            let mut kernel = self.kernel.lock().unwrap();
            while kernel.socket == 0 && !kernel.raised {
                kernel = self.changed.wait(kernel).unwrap();
            }
            let readable = kernel.socket > 0;
            if !readable {
                kernel.raised = false;
            }
            drop(kernel);
            let mut state = self.state.lock().unwrap();
            let is_leader = state.reader.is_leader(id);
            if readable && is_leader {
                self.receive(&mut state, true);
            }
            let found = Self::take(&mut state);
            if is_leader && found.is_none() {
                continue;
            }
            state.reader.resign(id);
            drop(state);
            self.wake();
            return found;
        }
    }

    /// `InletShared::look`: samples that are there.
    fn available(&self) -> usize {
        let mut state = self.state.lock().unwrap();
        let arrived = self.receive(&mut state, false);
        let is_prompt = self.waiting.load(Ordering::Acquire) > 0;
        if state.reader.on_caller_read(NOW, arrived, is_prompt)
            && std::mem::take(&mut state.is_registered)
        {
            self.kernel(|kernel| kernel.task_woken = true);
        }
        let available = state.ring;
        drop(state);
        if arrived {
            self.wake();
        }
        available
    }

    /// Attends as `Attendance::attend` does, but without ticks.
    fn attend(&self) {
        loop {
            let mut state = self.state.lock().unwrap();
            if !state.is_connected {
                return;
            }
            let mut is_registered = false;
            let mut arrived = false;
            if state.reader.leader().is_none() {
                let is_prompt = self.waiting.load(Ordering::Acquire) > 0;
                state.is_registered |= state.reader.needs_reactor(NOW, is_prompt);
                is_registered = state.is_registered;
                if is_registered {
                    arrived = self.receive(&mut state, false);
                }
            }
            drop(state);
            if arrived {
                self.wake();
            }
            let mut kernel = self.kernel.lock().unwrap();
            // Registered with the reactor under the lock; somebody may have ended that since, and then
            // it wakes this task once in vain.
            while !kernel.task_woken && !kernel.ended && !(is_registered && kernel.socket > 0) {
                kernel = self.changed.wait(kernel).unwrap();
            }
            kernel.task_woken = false;
            if kernel.ended {
                return;
            }
        }
    }

    /// `Inlet::shut_down` and the end of its task.
    fn shut_down(&self) {
        let mut state = self.state.lock().unwrap();
        state.lost = true;
        drop(state);
        self.wake();
        let mut state = self.state.lock().unwrap();
        state.is_connected = false;
        let leader = state.reader.end();
        drop(state);
        if leader.is_some() {
            self.kernel(|kernel| kernel.raised = true);
        }
        self.wake();
        self.kernel(|kernel| kernel.ended = true);
    }
}

/// Explores a model with at most so many preemptions per execution.
fn check(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

#[test]
fn two_pullers_and_the_task_share_two_samples() {
    check(2, || {
        let world = World::new();
        let pullers: Vec<_> = (0..2)
            .map(|_| {
                let world = Arc::clone(&world);
                thread::spawn(move || assert!(world.pull()))
            })
            .collect();
        let task = {
            let world = Arc::clone(&world);
            thread::spawn(move || world.attend())
        };
        world.send();
        world.send();
        for puller in pullers {
            puller.join().unwrap();
        }
        world.shut_down();
        task.join().unwrap();
    });
}

#[test]
fn a_leader_is_told_of_samples_that_somebody_else_read() {
    check(3, || {
        let world = World::new();
        let puller = {
            let world = Arc::clone(&world);
            thread::spawn(move || assert!(world.pull()))
        };
        world.send();
        world.available();
        puller.join().unwrap();
        assert_eq!(world.available(), 0);
    });
}

#[test]
fn an_async_pull_beside_a_blocking_one_gets_its_sample() {
    check(2, || {
        let world = World::new();
        let blocking = {
            let world = Arc::clone(&world);
            thread::spawn(move || assert!(world.pull()))
        };
        let task = {
            let world = Arc::clone(&world);
            thread::spawn(move || world.attend())
        };
        world.send();
        world.send();
        assert!(world.pull_async());
        blocking.join().unwrap();
        world.shut_down();
        task.join().unwrap();
    });
}

#[test]
fn an_end_reaches_every_puller_whether_it_leads_or_follows() {
    check(3, || {
        let world = World::new();
        let pullers: Vec<_> = (0..2)
            .map(|_| {
                let world = Arc::clone(&world);
                thread::spawn(move || assert!(!world.pull()))
            })
            .collect();
        world.shut_down();
        for puller in pullers {
            puller.join().unwrap();
        }
    });
}
