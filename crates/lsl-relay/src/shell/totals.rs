//! Counts what a relay did since its start, over all streams, those included that are gone. Spec: relay §8, §13.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use lsl_core::{Outlet, OutletStats};
use serde_json::{Map, Value, json};

use crate::shell::state::Numbers;

/// Counters of a relay.
#[derive(Debug, Default)]
pub(super) struct Totals {
    /// What came from sources and links.
    pub(super) came: Numbers,
    pub(super) hop: Histogram,
    /// What readers of outlets got that are closed.
    gone: [AtomicU64; 3],
    refused: [AtomicU64; Why::ALL.len()],
}

/// What a relay refuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Why {
    /// A stream that no rule lets the peer read.
    Rule,
    /// A question or a watch, of one who has or asks too much.
    Questions,
    /// A connection beyond `limits.clients`.
    Clients,
    /// A stream of others beyond `limits.streams`.
    Streams,
    /// A link.
    Link,
    /// A program from elsewhere that does not encrypt.
    Plaintext,
}

impl Why {
    const ALL: [Self; 6] = [
        Self::Rule,
        Self::Questions,
        Self::Clients,
        Self::Streams,
        Self::Link,
        Self::Plaintext,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Rule => "rule",
            Self::Questions => "questions",
            Self::Clients => "clients",
            Self::Streams => "streams",
            Self::Link => "link",
            Self::Plaintext => "plaintext",
        }
    }
}

impl Totals {
    pub(super) fn refuse(&self, why: Why) {
        if let Some(count) = self.refused.get(why as usize) {
            count.fetch_add(1, Relaxed);
        }
    }

    /// Counts what readers of an outlet got that is given up.
    pub(super) fn retire(&self, outlet: &Outlet) {
        for (total, count) in self.gone.iter().zip(given(&outlet.stats())) {
            total.fetch_add(count, Relaxed);
        }
    }

    /// Returns all counters for the status; `open` are the outlets that are not given up.
    pub(super) fn status<'a>(&self, open: impl Iterator<Item = &'a OutletStats>) -> Value {
        let mut sums = self.gone.each_ref().map(|count| count.load(Relaxed));
        for stats in open {
            for (sum, count) in sums.iter_mut().zip(given(stats)) {
                *sum += count;
            }
        }
        let [sent, bytes, dropped] = sums;
        json!({
            "samples_in": self.came.received.load(Relaxed),
            "samples_out": sent,
            "bytes_in": self.came.bytes.load(Relaxed),
            "bytes_out": bytes,
            "lost_exact": self.came.lost_exact.load(Relaxed),
            "lost_unknown": self.came.lost_unknown.load(Relaxed),
            "reader_dropped": dropped,
            "refused": Why::ALL
                .iter()
                .zip(&self.refused)
                .map(|(why, count)| (why.name().to_owned(), count.load(Relaxed).into()))
                .collect::<Map<_, _>>(),
        })
    }
}

/// What readers of an outlet got: samples, bytes, and samples that they were too slow for.
fn given(stats: &OutletStats) -> [u64; 3] {
    [stats.sent, stats.bytes, stats.dropped]
}

/// Times in seconds, counted by how long they are.
#[derive(Debug, Default)]
pub(super) struct Histogram {
    /// As many as [`BOUNDS`], and one for what is longer.
    counts: [AtomicU64; BOUNDS.len() + 1],
    nanoseconds: AtomicU64,
}

impl Histogram {
    pub(super) fn note(&self, secs: f64) {
        let index = BOUNDS.partition_point(|bound| *bound < secs);
        if let Some(count) = self.counts.get(index) {
            count.fetch_add(1, Relaxed);
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "absurd times saturate"
        )]
        self.nanoseconds.fetch_add((secs * 1e9) as u64, Relaxed);
    }

    /// Returns how many times were not above each bound, the number of all, and their sum in seconds.
    pub(super) fn read(&self) -> (Vec<(f64, u64)>, u64, f64) {
        let mut all = 0;
        let mut counts = self.counts.iter();
        let up_to = BOUNDS.iter().zip(&mut counts).map(|(bound, count)| {
            all += count.load(Relaxed);
            (*bound, all)
        });
        let up_to = up_to.collect();
        all += counts.next().map_or(0, |count| count.load(Relaxed));
        #[expect(clippy::cast_precision_loss, reason = "a sum for averages")]
        let secs = self.nanoseconds.load(Relaxed) as f64 * 1e-9;
        (up_to, all, secs)
    }
}

/// Bounds in seconds, around the bars of relay §15.
const BOUNDS: [f64; 12] = [
    2e-5, 5e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 2.5e-2, 5e-2, 0.1, 0.5, 2.0,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_counted_up_to_each_bound() {
        let histogram = Histogram::default();
        for secs in [0.0, 2e-5, 4e-4, 0.3, 5.0, -1.0] {
            histogram.note(secs);
        }
        let (up_to, all, secs) = histogram.read();
        let count = |bound| up_to[BOUNDS.partition_point(|it| *it < bound)].1;
        assert_eq!(
            [2e-5, 1e-4, 1e-3, 0.1, 0.5, 2.0].map(count),
            [3, 3, 4, 4, 5, 5]
        );
        assert_eq!(all, 6);
        assert!((secs - 5.30042).abs() < 1e-6, "{secs}");
    }
}
