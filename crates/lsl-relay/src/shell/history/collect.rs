//! Takes samples from the streams that are kept, and hands them to the thread that writes. Spec: relay §9.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use lsl_core::relay::{Either, Frames, Tap, select2};
use lsl_core::{StreamInfo, local_clock};
use tokio::sync::mpsc::{Sender, UnboundedReceiver};

use super::writer::{Job, Samples};
use super::{History, lock_of, unix_now};
use crate::book::Uid;
use crate::history::Numbering;
use crate::shell::state::Shared;
use crate::shell::tap::Kept;

/// A numbering that is kept.
#[derive(Debug)]
struct Keeping {
    numbering: Arc<Numbering>,
    info: Arc<StreamInfo>,
    tap: Tap,
    /// When the oldest sample that waits was seen, in seconds since 1970.
    since: Option<f64>,
    /// Bytes that were left to wait.
    waited: usize,
    missed: u64,
    /// Whether a rule lets go of it.
    is_over: bool,
}

/// Keeps what is tapped, until the history ends.
pub(in crate::shell) async fn collect(
    shared: Arc<Shared>,
    history: Arc<History>,
    mut news: UnboundedReceiver<Kept>,
) {
    let Some(jobs) = lock_of(&history.jobs).take() else {
        return;
    };
    let mut all: HashMap<Uid, Vec<Keeping>> = HashMap::new();
    let mut offsets_at = 0.0;
    let mut is_ending = false;
    let (mut turn, mut looked_at) = (TURN, local_clock());
    while !is_ending {
        let next = select2(tokio::time::sleep(turn), history.stop.notified()).await;
        is_ending = matches!(next, Either::Second(()));
        let (mut most_come, mut over) = (0, Vec::new());
        while let Ok(news) = news.try_recv() {
            // How fast it is shows in a short turn.
            most_come = CHUNK_BYTES;
            take(&history, &mut all, news);
        }
        let is_stopped = history.state().stopped.is_some();
        for keepings in all.values_mut() {
            for keeping in keepings.iter_mut() {
                if !is_stopped {
                    let come = keeping.pass_on(&history, &jobs, is_ending).await;
                    most_come = most_come.max(come);
                }
            }
            keepings.retain_mut(|keeping| {
                let is_over = keeping.is_over || keeping.tap.end().is_some();
                let goes = is_over && keeping.tap.waiting_bytes() == 0;
                if goes {
                    keeping.count_missed(&history);
                    over.push(Job::Over {
                        numbering: Arc::clone(&keeping.numbering),
                        end: keeping.tap.end(),
                    });
                }
                !goes
            });
        }
        all.retain(|_, keepings| !keepings.is_empty());
        send_all(over, &jobs).await;
        let now = local_clock();
        turn = turn_after(most_come, now - looked_at);
        looked_at = now;
        if now >= offsets_at {
            offsets_at = now + OFFSET_SECS;
            tell_offsets(&shared, &all, &jobs).await;
        }
        // It looks at the clock, if it has nothing else to do.
        let _ = jobs.try_send(Job::Look);
    }
    // The thread finishes the segment when nobody sends any more.
    drop(jobs);
}

fn take(history: &History, all: &mut HashMap<Uid, Vec<Keeping>>, news: Kept) {
    match news {
        Kept::Begin(uid, tap) => {
            let Some(generation) = tap.generation() else {
                return;
            };
            let numbering = Arc::new(Numbering::new(Uid::clone(&uid), &generation));
            history
                .state()
                .change_live(&numbering, |live| live.outlets += 1);
            all.entry(uid).or_default().push(Keeping {
                numbering,
                info: Arc::new(tap.info().clone()),
                tap,
                since: None,
                waited: 0,
                missed: 0,
                is_over: false,
            });
        }
        // Its outlet ends, too, and the tap tells.
        Kept::Gone(uid) => tracing::debug!("stream {uid} of the history is over"),
        Kept::Stop(uid) => {
            for keeping in all.get_mut(&uid).into_iter().flatten() {
                keeping.is_over = true;
            }
        }
    }
}

impl Keeping {
    /// Passes on what waits, if it is enough or has waited for long. Returns the number of bytes that have come.
    async fn pass_on(&mut self, history: &History, jobs: &Sender<Job>, is_ending: bool) -> usize {
        let mut waiting = self.tap.waiting_bytes();
        // Of a stream that is faster than the disk the rest is for later, and others have their turn.
        let most = if is_ending { usize::MAX } else { waiting };
        let come = waiting.saturating_sub(self.waited);
        if waiting == 0 {
            (self.since, self.waited) = (None, 0);
            return 0;
        }
        let now = unix_now();
        let mut arrival = *self.since.get_or_insert(now);
        let is_due = is_ending || self.is_over || now - arrival >= CHUNK_SECS || now < arrival;
        let is_due = is_due || self.tap.end().is_some();
        let mut passed = 0;
        while passed < most && (waiting >= CHUNK_BYTES || is_due && waiting > 0) {
            // Without a place for them samples stay where they are.
            let Ok(place) = jobs.reserve().await else {
                break;
            };
            let mut frames = Frames::default();
            history.expect(&self.numbering);
            if !self.tap.read(CHUNK_BYTES, &mut frames) {
                history.settle(&self.numbering);
                break;
            }
            passed += frames.bytes.len();
            self.count_missed(history);
            place.send(Job::Samples(Samples {
                numbering: Arc::clone(&self.numbering),
                info: Arc::clone(&self.info),
                frames,
                arrival,
            }));
            arrival = now;
            waiting = self.tap.waiting_bytes();
        }
        self.since = (waiting > 0).then_some(arrival);
        self.waited = waiting;
        come
    }

    fn count_missed(&mut self, history: &History) {
        let missed = self.tap.missed();
        let more = missed.saturating_sub(self.missed);
        history.dropped.fetch_add(more, Ordering::Relaxed);
        self.missed = missed;
    }
}

/// Returns the time until the next look, if so many bytes of one stream came within so many seconds: outlets let go
/// what is not taken soon, and among many streams each keeps little.
fn turn_after(most_come: usize, secs: f64) -> Duration {
    #[expect(clippy::cast_precision_loss, reason = "bytes of seconds")]
    let secs = secs * (CHUNK_BYTES / 2) as f64 / most_come.max(1) as f64;
    Duration::from_secs_f64(secs.clamp(SHORT_TURN.as_secs_f64(), TURN.as_secs_f64()))
}

/// Has the clocks of the sources written down, and goes on asking for them.
async fn tell_offsets(shared: &Arc<Shared>, all: &HashMap<Uid, Vec<Keeping>>, jobs: &Sender<Job>) {
    let mut offsets = Vec::new();
    shared.act(|state, now| {
        for (uid, keepings) in all {
            let way = state.book.way(uid);
            state.clocks.machine.asked(uid, None, way, now);
            let Some(clock) = state.clocks.machine.estimate(uid, now) else {
                continue;
            };
            let offset = clock.offset_secs;
            for keeping in keepings {
                offsets.push(Job::Offset {
                    numbering: Arc::clone(&keeping.numbering),
                    time: now + offset,
                    value: -offset,
                });
            }
        }
    });
    send_all(offsets, jobs).await;
}

async fn send_all(all: Vec<Job>, jobs: &Sender<Job>) {
    for job in all {
        // The thread ends after this.
        let _ = jobs.send(job).await;
    }
}

/// Longest and shortest time between looks at what has come.
const TURN: Duration = Duration::from_millis(200);
const SHORT_TURN: Duration = Duration::from_millis(20);

/// Bytes of samples of a stream, or seconds of them, that make a chunk. Spec: relay §9.
const CHUNK_BYTES: usize = 64 << 10;
const CHUNK_SECS: f64 = 5.0;

/// Time in seconds between measurements of a clock that are written down.
const OFFSET_SECS: f64 = 5.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fast_stream_among_many_is_looked_at_often_enough() {
        // 8 channels at 250 Hz, and 7.7 MB/s, of which an outlet among a thousand keeps 68 ms.
        assert_eq!(turn_after(1_800, 0.2), TURN);
        let fast = turn_after(1_540_000, 0.2);
        assert_eq!(fast, SHORT_TURN);
        assert_eq!(turn_after(154_000, fast.as_secs_f64()), SHORT_TURN);
        let between = turn_after(64 << 10, 0.2).as_secs_f64();
        assert!((0.09..0.11).contains(&between), "{between}");
        assert_eq!(turn_after(0, 0.2), TURN);
    }
}
