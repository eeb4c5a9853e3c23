//! Keeps one numbering of a stream. Spec: relay §12.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use lsl_core::local_clock;
use lsl_core::relay::{Either, Tap, select2};
use tokio::sync::watch;
use tokio::time::sleep;

use super::report::Row;
use super::source::Source;
use crate::book::Uid;
use crate::engine::spool::{Lane, Source as _, Step};
use crate::engine::{Engine, EngineError, ErrorKind, Meta, TEND_SECS};
use crate::shell::audit;
use crate::shell::state::Shared;

/// What is kept, where, and after which time it is written at the latest.
pub(super) struct Keeping<E> {
    pub(super) engine: Arc<E>,
    pub(super) meta: Meta,
    pub(super) tap: Tap,
    pub(super) flush: Duration,
}

/// Keeps a stream until it ends, or until one of `leave` says that it is kept no more.
pub(super) async fn keep<E: Engine>(
    shared: &Shared,
    keeping: Keeping<E>,
    row: &Row,
    mut leave: [watch::Receiver<bool>; 2],
) {
    let Keeping {
        engine,
        meta,
        tap,
        flush,
    } = keeping;
    let history = shared.history.as_ref();
    let uid = Uid::from(meta.info.uid());
    let mut history = history.map(|it| (it, it.reader(&uid, &meta.generation)));
    let mut reading = Source::new(tap, history.is_some());
    let mut lane = Lane::new(&meta.info, row.room());
    let mut told = None;
    loop {
        let mut has_room = lane.read(&mut reading);
        let lacks = has_room && reading.is_fetching();
        if let Some((history, reader)) = history.as_mut().filter(|_| lacks)
            // Meanwhile it stays there.
            && (lane.is_open() || history.numbers(&uid, &meta.generation).is_none())
        {
            reading.fetch(reader).await;
            has_room = lane.read(&mut reading);
        }
        if leave.iter().any(|leave| *leave.borrow()) {
            lane.leave();
        }
        if !engine.holds(&meta) {
            lane.doubt();
        }
        match lane.poll(local_clock()) {
            Step::Open => {
                let opened = meanwhile(engine.open(&meta), &mut lane, &mut reading).await;
                let kept = history.as_ref();
                reading.note_kept(kept.and_then(|(it, _)| it.numbers(&uid, &meta.generation)));
                lane.opened(opened, &mut reading, local_clock());
            }
            Step::Append(batches) => {
                let appending = engine.append(&meta, &batches);
                let appended = meanwhile(appending, &mut lane, &mut reading).await;
                lane.appended(appended, local_clock());
            }
            Step::Finish(end) => {
                let finished = engine.finish(&meta, end).await;
                lane.finished(finished, local_clock());
            }
            Step::Over => break,
            Step::Wait(until) => {
                let wait = until - local_clock();
                let samples = async {
                    if !has_room {
                        sleep(CROWDED).await;
                    } else if lane.stands_by() {
                        std::future::pending::<()>().await;
                    } else if lane.is_open() {
                        reading.ready().await;
                        // A timer of no time would wait for the next ms all the same.
                        if !flush.is_zero() && reading.waiting_bytes() < ENOUGH_BYTES {
                            sleep(flush).await;
                        }
                    } else {
                        sleep(LAGGING).await;
                    }
                };
                let wait = sleep(Duration::from_secs_f64(wait.clamp(0.0, TEND_SECS)));
                let [stop, end] = &mut leave;
                let left = select2(changed(stop), changed(end));
                select2(select2(samples, wait), left).await;
            }
        }
        row.set(&lane);
        let error = lane.trouble().map(|(_, error)| error);
        let kind = error.map(|error| error.kind);
        if std::mem::replace(&mut told, kind) != kind {
            tell(shared, &meta, row, error);
        }
        let since = lane.trouble().map_or(f64::INFINITY, |(since, _)| *since);
        let waited = local_clock() - since;
        if lane.has_read_all() && waited > RETAINED_SECS {
            reading.release();
            if waited > PATIENCE_SECS {
                let name = meta.info.name();
                tracing::error!("engine: the end of stream \"{name}\" is not stored");
                lane.give_up();
                break;
            }
        }
    }
    row.end(&lane);
}

/// Waits for an engine; one that does not answer keeps no samples from where they may wait.
async fn meanwhile<T>(asked: impl Future<Output = T>, lane: &mut Lane, reading: &mut Source) -> T {
    let mut asked = pin!(asked);
    loop {
        match select2(asked.as_mut(), sleep(LAGGING)).await {
            Either::First(answer) => return answer,
            Either::Second(()) => drop(lane.read(reading)),
        }
    }
}

/// Waits until it is to be left. One that nobody holds any more says nothing.
async fn changed(leave: &mut watch::Receiver<bool>) {
    if leave.changed().await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// Logs that an engine does not store a stream for another reason than before, or does so again.
fn tell(shared: &Shared, meta: &Meta, row: &Row, error: Option<&EngineError>) {
    let stays = |error: &&EngineError| !matches!(error.kind, ErrorKind::Retry | ErrorKind::Full);
    let Some(error) = error.filter(stays) else {
        return row.tell(error);
    };
    let name = meta.info.name();
    tracing::error!("engine: stream \"{name}\" is not stored: {error}; again every 60 s");
    if error.kind == ErrorKind::Denied {
        audit::engine_denied(shared, &meta.info, &error.text);
    }
}

/// Bytes that are worth a write as they are: more would be gained of gathering them only where the engine is slow, and
/// then they are gathered while it writes.
const ENOUGH_BYTES: usize = 16 * 1024;

/// Time in seconds for which an outlet that has ended is held, in case the engine loses what it had.
const RETAINED_SECS: f64 = 60.0;

/// Time in seconds after which the rest of a stream that has ended is given up.
const PATIENCE_SECS: f64 = 600.0;

/// Time between looks for samples of a stream that an engine does not take.
const LAGGING: Duration = Duration::from_millis(250);

/// The same for one that may hold no more of them.
const CROWDED: Duration = Duration::from_millis(50);
