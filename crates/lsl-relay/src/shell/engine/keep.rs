//! Keeps one numbering of a stream. Spec: relay §12.

use std::sync::Arc;
use std::time::Duration;

use lsl_core::local_clock;
use lsl_core::relay::{Tap, select2};
use lsl_proto::outlet::frames::Frames;
use tokio::sync::watch;
use tokio::time::sleep;

use super::report::Row;
use crate::engine::spool::{Lane, Source, Step};
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

impl Source for Tap {
    fn next(&self) -> u64 {
        Self::next(self)
    }

    fn seek(&mut self, next: u64) {
        Self::seek(self, next);
    }

    fn read(&mut self, most_bytes: usize, frames: &mut Frames) -> bool {
        Self::read(self, most_bytes, frames)
    }

    fn end(&self) -> Option<u64> {
        Self::end(self)
    }
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
        mut tap,
        flush,
    } = keeping;
    let name = meta.info.name().into_owned();
    let mut lane = Lane::new(&meta.info, row.room());
    let mut told = None;
    loop {
        let has_room = lane.read(&mut tap);
        if leave.iter().any(|leave| *leave.borrow()) {
            lane.leave();
        }
        if !engine.holds(&meta) {
            lane.doubt();
        }
        match lane.poll(local_clock()) {
            Step::Open => {
                let opened = engine.open(&meta).await;
                lane.opened(opened, &mut tap, local_clock());
            }
            Step::Append(batches) => {
                let appended = engine.append(&meta, &batches).await;
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
                        tap.ready().await;
                        sleep(flush).await;
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
        tell(
            shared,
            &meta,
            &name,
            lane.trouble().map(|(_, it)| it),
            &mut told,
        );
    }
    row.end(&lane);
}

/// Waits until it is to be left. One that nobody holds any more says nothing.
async fn changed(leave: &mut watch::Receiver<bool>) {
    if leave.changed().await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// Logs that an engine takes no samples, once for each kind of reason, and that it takes them again.
fn tell(
    shared: &Shared,
    meta: &Meta,
    name: &str,
    trouble: Option<&EngineError>,
    told: &mut Option<ErrorKind>,
) {
    let kind = trouble.map(|error| error.kind);
    if *told == kind {
        return;
    }
    *told = kind;
    match trouble {
        None => tracing::info!("engine: stream \"{name}\" is stored again"),
        Some(error) => match error.kind {
            ErrorKind::Retry => tracing::info!("engine: stream \"{name}\" waits: {error}"),
            ErrorKind::Full => tracing::warn!("engine: stream \"{name}\" waits, no room: {error}"),
            _ => {
                tracing::error!(
                    "engine: stream \"{name}\" is not stored: {error}; again every 60 s"
                );
                if error.kind == ErrorKind::Denied {
                    audit::engine_denied(shared, &meta.info, &error.text);
                }
            }
        },
    }
}

/// Time between looks for samples of a stream that an engine does not take.
const LAGGING: Duration = Duration::from_millis(250);

/// The same for one that may hold no more of them.
const CROWDED: Duration = Duration::from_millis(50);
