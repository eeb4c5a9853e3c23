//! Counts of one received stream of the demo: written by the receiving thread, read by the view.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use lsl_core::TimeCorrection;
use lsl_core::{StreamInfo, local_clock};
use serde::Serialize;

use crate::signal::latency::Latency;
use crate::signal::sequence::Sequence;

/// Counts samples of one stream.
#[derive(Debug)]
pub(super) struct Meter(Mutex<Counts>);

#[derive(Debug)]
struct Counts {
    sequence: Sequence,
    latency: Latency,
    first_arrival: Option<f64>,
    last_arrival: f64,
    /// Samples since `recent_since`, for the rate.
    recent: u64,
    recent_since: f64,
    recent_rate: Option<f64>,
    /// The newest values of one channel, thinned out.
    curve: VecDeque<f32>,
}

/// Counts of a meter at one moment.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Reading {
    pub(super) name: String,
    pub(super) channels: u32,
    pub(super) nominal_srate: f64,
    /// Samples a second since the first one.
    pub(super) rate: Option<f64>,
    /// `None` while sending goes on.
    pub(super) sent: Option<u64>,
    pub(super) received: u64,
    pub(super) lost: u64,
    pub(super) repeated: u64,
    pub(super) latency_ms: Option<Quantiles>,
    /// Offset to add to the sender's timestamps; the clocks are the same, so it should be near 0.
    pub(super) clock_offset_ms: Option<f64>,
    pub(super) round_trip_ms: Option<f64>,
    /// Samples a second since the last look.
    #[serde(skip)]
    pub(super) recent_rate: Option<f64>,
    #[serde(skip)]
    pub(super) curve: Vec<f32>,
}

/// One-way latency, from push to pull.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct Quantiles {
    pub(super) p50: f64,
    pub(super) p95: f64,
    pub(super) p99: f64,
    pub(super) max: f64,
}

impl Meter {
    pub(super) fn new() -> Self {
        Self(Mutex::new(Counts {
            sequence: Sequence::default(),
            latency: Latency::new(),
            first_arrival: None,
            last_arrival: 0.0,
            recent: 0,
            recent_since: local_clock(),
            recent_rate: None,
            curve: VecDeque::new(),
        }))
    }

    /// Counts a sample that arrived now. Its number is known up to multiples of `modulus`.
    pub(super) fn add(&self, number: u64, modulus: u64, latency_secs: f64, value: Option<&f32>) {
        let now = local_clock();
        let mut counts = self.lock();
        counts.sequence.add_wrapped(number, modulus);
        counts.latency.add(latency_secs);
        counts.first_arrival.get_or_insert(now);
        counts.last_arrival = now;
        counts.recent += 1;
        if let Some(value) = value
            && counts.sequence.received().is_multiple_of(CURVE_STEP)
        {
            if counts.curve.len() == CURVE_POINTS {
                counts.curve.pop_front();
            }
            counts.curve.push_back(*value);
        }
    }

    /// Returns the number of samples received so far.
    pub(super) fn received(&self) -> u64 {
        self.lock().sequence.received()
    }

    /// Returns the number of the sample that comes next.
    pub(super) fn expects(&self) -> u64 {
        self.lock().sequence.next()
    }

    /// Returns the counts to show. `sent` samples were sent in all, if that is known.
    pub(super) fn reading(
        &self,
        info: &StreamInfo,
        sent: Option<u64>,
        clock: Option<TimeCorrection>,
    ) -> Reading {
        let mut counts = self.lock();
        let now = local_clock();
        let window = now - counts.recent_since;
        if window >= RATE_WINDOW_SECS {
            counts.recent_rate = Some(counts.recent as f64 / window);
            counts.recent = 0;
            counts.recent_since = now;
        }
        let Counts {
            sequence,
            latency,
            first_arrival,
            last_arrival,
            ..
        } = &*counts;
        let rate = first_arrival.and_then(|first| {
            let secs = last_arrival - first;
            (secs > 0.0).then(|| (sequence.received() - 1) as f64 / secs)
        });
        let millis = |share| latency.quantile_secs(share).map(to_millis);
        let latency_ms = (|| {
            Some(Quantiles {
                p50: millis(0.5)?,
                p95: millis(0.95)?,
                p99: millis(0.99)?,
                max: to_millis(latency.largest_secs()?),
            })
        })();
        Reading {
            name: info.name().into_owned(),
            channels: info.channel_count(),
            nominal_srate: info.nominal_srate(),
            rate,
            sent,
            received: sequence.received(),
            lost: sequence.lost_of(sent.unwrap_or(0)),
            repeated: sequence.repeated(),
            latency_ms,
            clock_offset_ms: clock.map(|clock| to_millis(clock.offset_secs)),
            round_trip_ms: clock.map(|clock| to_millis(clock.uncertainty_secs)),
            recent_rate: counts.recent_rate,
            curve: counts.curve.iter().copied().collect(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        // Counts are plain numbers: right or at worst one sample behind after a panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Converts to milliseconds with the three digits that mean something.
fn to_millis(secs: f64) -> f64 {
    (secs * 1e6).round() / 1e3
}

const RATE_WINDOW_SECS: f64 = 0.99;
/// Every eighth of 500 samples a second: a 10 Hz wave has six points.
const CURVE_STEP: u64 = 8;
const CURVE_POINTS: usize = 62;

#[cfg(test)]
mod tests {
    use lsl_core::ChannelFormat;

    use super::*;

    #[test]
    fn readings_count_what_came_and_what_did_not() {
        let info = StreamInfo::new("a", "EEG", 1, 500.0, ChannelFormat::Float32, "").unwrap();
        let meter = Meter::new();
        let empty = meter.reading(&info, None, None);
        assert!((empty.received, empty.lost) == (0, 0) && empty.latency_ms.is_none());
        for number in [0, 1, 2, 4, 5] {
            meter.add(number % 4, 4, 0.001, Some(&1.0));
        }
        let reading = meter.reading(&info, Some(7), None);
        assert_eq!(
            (reading.received, reading.lost, reading.repeated),
            (5, 2, 0)
        );
        assert_eq!((meter.expects(), meter.received()), (6, 5));
        let latency = reading.latency_ms.unwrap();
        assert!((0.99..1.04).contains(&latency.p50) && latency.max >= latency.p50);
    }
}
