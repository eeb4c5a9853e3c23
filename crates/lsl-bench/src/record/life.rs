//! A recording that goes on, seen from outside: memory and processor of both processes once a
//! second, and the recorder's own reports.

use std::process::ExitStatus;

use lsl_cli::failure::{Failure, Outcome};
use lsl_cli::interrupt::Stop;
use lsl_core::local_clock;
use serde::Deserialize;

use crate::child::{Child, interrupted};
use crate::process_usage::Used;
use crate::stats::slope;

/// Fields read from a line of `lsl record --json`.
#[derive(Debug, Deserialize)]
struct StatusLine {
    event: String,
    secs: f64,
    waiting_bytes: u64,
    unwritten_samples: u64,
    streams: Vec<StatusStream>,
}

#[derive(Debug, Deserialize)]
struct StatusStream {
    samples: u64,
    gaps: u64,
    missing_samples: u64,
}

/// Resources of both processes at one second of the recording.
#[derive(Debug, Clone, Copy)]
struct Look {
    secs: f64,
    recorder: Used,
    generator: Option<Used>,
}

/// Course of a whole recording, from start to end.
#[derive(Debug, Default)]
pub(super) struct Life {
    looks: Vec<Look>,
    /// Totals of the recorder's last line.
    pub(super) samples: u64,
    pub(super) streams: usize,
    pub(super) gaps: u64,
    pub(super) missing: u64,
    pub(super) unwritten: u64,
    pub(super) recorded_secs: f64,
    pub(super) most_waiting: u64,
    is_done: bool,
}

impl Life {
    /// Watches until the recorder has ended, for `limit_secs` at most.
    pub(super) fn watch(
        &mut self,
        recorder: &mut Child,
        generator: &mut Child,
        limit_secs: f64,
        stop: &Stop,
    ) -> Outcome<ExitStatus> {
        let deadline = local_clock() + limit_secs;
        let mut next_look = 0.0;
        loop {
            let ended = recorder.status()?;
            self.hear(recorder.said())?;
            let now = local_clock();
            if self.has_begun() && !self.is_done && now >= next_look {
                next_look = now + LOOK_SECS;
                self.looks.extend(Used::of(recorder.id()).map(|used| Look {
                    secs: now,
                    recorder: used,
                    generator: Used::of(generator.id()),
                }));
            }
            if let Some(status) = ended {
                // The last lines may still be on their way.
                stop.sleep_until(local_clock() + NAP_SECS);
                self.hear(recorder.said())?;
                return Ok(status);
            }
            if generator.status()?.is_some() {
                let text = generator.remarks().join(" | ");
                return Err(Failure::Runtime(format!("the generator ended: {text}")));
            }
            if now > deadline {
                let text = recorder.remarks().join(" | ");
                return Err(Failure::Runtime(format!(
                    "the recorder does not end: {text}"
                )));
            }
            if !stop.sleep_until(now + NAP_SECS) {
                return Err(interrupted());
            }
        }
    }

    fn has_begun(&self) -> bool {
        self.samples > 0
    }

    fn hear(&mut self, lines: Vec<String>) -> Outcome {
        for text in lines {
            let line: StatusLine = serde_json::from_str(&text).map_err(|error| {
                Failure::Runtime(format!(
                    "the recorder said {text}, which is not clear: {error}"
                ))
            })?;
            let sum = |of: fn(&StatusStream) -> u64| line.streams.iter().map(of).sum();
            self.samples = sum(|stream| stream.samples);
            self.gaps = sum(|stream| stream.gaps);
            self.missing = sum(|stream| stream.missing_samples);
            self.streams = line.streams.len();
            self.unwritten = line.unwritten_samples;
            self.recorded_secs = line.secs;
            self.most_waiting = self.most_waiting.max(line.waiting_bytes);
            self.is_done = line.event == "done";
        }
        Ok(())
    }

    /// Share of a core, recorder and generator, from the first look to the last.
    pub(super) fn cpu_percent(&self) -> Option<(f64, f64)> {
        let (first, last) = (self.looks.first()?, self.looks.last()?);
        let secs = last.secs - first.secs;
        let share = |then: Used, now: Used| (now.cpu_secs - then.cpu_secs) / secs * 100.0;
        let generator = share(first.generator?, last.generator?);
        (secs > 0.0).then(|| (share(first.recorder, last.recorder), generator))
    }

    /// Memory of the recorder: least, most, and growth in a minute, after it has settled.
    pub(super) fn memory(&self) -> Option<(f64, f64, Option<f64>)> {
        let begun = self.looks.first()?.secs;
        let length = self.looks.last()?.secs - begun;
        let settled = begun + SETTLE_SECS.min(length / 3.0);
        let after: Vec<(f64, f64)> = self
            .looks
            .iter()
            .filter(|look| look.secs >= settled)
            .map(|look| (look.secs, look.recorder.rss_mib))
            .collect();
        let values = || after.iter().map(|(_, mib)| *mib);
        let growth = slope(&after).map(|per_sec| per_sec * 60.0);
        Some((
            values().reduce(f64::min)?,
            values().reduce(f64::max)?,
            growth,
        ))
    }

    /// The most memory that the recorder ever had. The kernel counts it and that of now each in a
    /// hurry: the smaller one is wrong.
    pub(super) fn peak_mib(&self) -> Option<f64> {
        let peak = |look: &Look| look.recorder.peak_mib.max(look.recorder.rss_mib);
        self.looks.iter().map(peak).reduce(f64::max)
    }
}

const LOOK_SECS: f64 = 1.0;
const NAP_SECS: f64 = 0.05;
/// Buffers grow to their final size in this time.
const SETTLE_SECS: f64 = 10.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_recorder_add_up() {
        let line = |event, samples| {
            format!(
                r#"{{"event":"{event}","secs":2.5,"waiting_bytes":{samples},"unwritten_samples":0,
                   "streams":[{{"samples":{samples},"gaps":1,"missing_samples":3}},
                              {{"samples":1,"gaps":0,"missing_samples":0}}]}}"#
            )
        };
        let mut life = Life::default();
        life.hear(vec![line("status", 7), line("done", 5)]).unwrap();
        assert_eq!((life.samples, life.streams, life.gaps), (6, 2, 1));
        assert_eq!((life.missing, life.most_waiting), (3, 7));
        assert!(life.is_done);
        assert!(life.hear(vec!["?".into()]).is_err());
    }

    #[test]
    fn shares_and_growth_are_those_between_the_looks() {
        let look = |secs: f64| Look {
            secs: 100.0 + secs,
            recorder: Used {
                cpu_secs: 1.0 + secs / 2.0,
                rss_mib: 20.0 + secs / 60.0,
                peak_mib: 40.0,
            },
            generator: Some(Used {
                cpu_secs: secs,
                ..Used::default()
            }),
        };
        let life = Life {
            looks: (0..31).map(f64::from).map(look).collect(),
            ..Life::default()
        };
        let (recorder, generator) = life.cpu_percent().unwrap();
        assert!((recorder - 50.0).abs() < 1e-9 && (generator - 100.0).abs() < 1e-9);
        let (least, most, growth) = life.memory().unwrap();
        assert!((least - 20.0 - 10.0 / 60.0).abs() < 1e-9 && (most - 20.5).abs() < 1e-9);
        assert!((growth.unwrap() - 1.0).abs() < 1e-6);
        assert_eq!(life.peak_mib(), Some(40.0));
        assert_eq!(Life::default().cpu_percent(), None);
    }
}
