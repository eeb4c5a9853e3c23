//! What a lane reads of a stream: its outlet, and of the history what the outlet let go meanwhile. Spec: relay §12.

use lsl_core::relay::{ReadPast, Tap};
use lsl_proto::outlet::frames::Frames;

use crate::engine::spool;

/// Source of the samples of one numbering.
#[derive(Debug, Clone)]
pub(super) struct Source {
    outlet: Outlet,
    /// Number before which nothing is fetched; `None` without a history.
    floor: Option<u64>,
    /// Number up to which history was asked, from `next` on.
    asked_until: u64,
    /// What it had, and is read next.
    fetched: Option<Frames>,
}

/// What is read of a stream, until all of it was: then its outlet is not held any more.
#[derive(Debug, Clone)]
enum Outlet {
    Open(Tap),
    Over { next: u64, end: u64 },
}

impl Source {
    /// Reads a tap; where that lacks samples from its present place on, they are to be fetched if there `is_history`.
    pub(super) fn new(tap: Tap, is_history: bool) -> Self {
        Self {
            floor: is_history.then_some(tap.next()),
            asked_until: 0,
            fetched: None,
            outlet: Outlet::Open(tap),
        }
    }

    /// Fetches the next samples that the outlet lacks, if it lacks any.
    pub(super) async fn fetch(&mut self, history: &mut impl ReadPast) {
        let Some((from, until)) = self.lacking() else {
            return;
        };
        self.asked_until = until;
        match history.read(from, until).await {
            Ok(Some(frames)) if frames.first < until && frames.count > 0 => {
                self.asked_until = frames.end();
                self.fetched = Some(frames);
            }
            Ok(_) => {}
            Err(error) => tracing::warn!("engine: {error}; the samples from {from} on are a gap"),
        }
    }

    /// Returns the numbers of samples that are not in the outlet any more, and for which history was not asked.
    fn lacking(&self) -> Option<(u64, u64)> {
        let Outlet::Open(tap) = &self.outlet else {
            return None;
        };
        if self.fetched.is_some() {
            return None;
        }
        let from = tap.next().max(self.floor?).max(self.asked_until);
        let until = tap.stored_from(from);
        (from < until).then_some((from, until))
    }

    /// Lets go of the outlet once all of it was read.
    pub(super) fn release(&mut self) {
        if let Outlet::Open(tap) = &self.outlet
            && let Some(end) = tap.end()
        {
            let next = tap.next();
            self.outlet = Outlet::Over { next, end };
        }
    }

    pub(super) async fn ready(&self) {
        match &self.outlet {
            Outlet::Open(tap) => tap.ready().await,
            Outlet::Over { .. } => std::future::pending().await,
        }
    }

    pub(super) fn waiting_bytes(&self) -> usize {
        match &self.outlet {
            Outlet::Open(tap) => tap.waiting_bytes(),
            Outlet::Over { .. } => 0,
        }
    }
}

impl spool::Source for Source {
    fn next(&self) -> u64 {
        match &self.outlet {
            Outlet::Open(tap) => tap.next(),
            Outlet::Over { next, .. } => *next,
        }
    }

    fn seek(&mut self, to: u64) {
        // An engine that has nothing may begin where the outlet does.
        if let Some(floor) = self.floor.as_mut().filter(|_| to > 0) {
            *floor = (*floor).min(to);
        }
        (self.asked_until, self.fetched) = (0, None);
        match &mut self.outlet {
            Outlet::Open(tap) => tap.seek(to),
            Outlet::Over { next, .. } => *next = to,
        }
    }

    fn read(&mut self, most_bytes: usize, frames: &mut Frames) -> bool {
        if self.lacking().is_some() {
            return false;
        }
        let Outlet::Open(tap) = &mut self.outlet else {
            return false;
        };
        match self.fetched.take() {
            Some(fetched) => {
                tap.seek(fetched.end());
                *frames = fetched;
                true
            }
            None => tap.read(most_bytes, frames),
        }
    }

    fn end(&self) -> Option<u64> {
        match &self.outlet {
            Outlet::Open(tap) => tap.end(),
            Outlet::Over { end, .. } => Some(*end),
        }
    }

    fn is_fetching(&self) -> bool {
        self.lacking().is_some()
    }

    fn has_before(&self, number: u64) -> bool {
        match &self.outlet {
            Outlet::Open(tap) => tap.stored_from(tap.next()) < number,
            Outlet::Over { .. } => false,
        }
    }
}
