//! Times of the steps in the work on a file, for auditors.

use std::cell::RefCell;

use lsl_platform::clock::local_clock;

/// Step of the work on a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// The file key is wrapped for each recipient.
    Wrap,
    /// The file key is recovered from the header.
    Unwrap,
    /// The content is encrypted or decrypted.
    Payload,
    /// The content is copied as it is, where only the header changes.
    Copy,
    /// The result is brought to the disk and gets its name.
    Sync,
}

/// Step with its time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepTime {
    /// What was done.
    pub step: Step,
    /// Seconds from the begin of the work to that of the step.
    pub after_secs: f64,
    /// Seconds that it took.
    pub took_secs: f64,
}

/// Measures the steps of the work on one file, also those that fail.
#[derive(Debug)]
pub(super) struct Stopwatch {
    begun: f64,
    steps: RefCell<Vec<StepTime>>,
}

impl Stopwatch {
    pub(super) fn start() -> Self {
        Self {
            begun: local_clock(),
            steps: RefCell::default(),
        }
    }

    pub(super) fn time<R>(&self, step: Step, work: impl FnOnce() -> R) -> R {
        let start = local_clock();
        let done = work();
        self.steps.borrow_mut().push(StepTime {
            step,
            after_secs: start - self.begun,
            took_secs: local_clock() - start,
        });
        done
    }

    /// Returns the seconds that all took, and the steps.
    pub(super) fn stop(self) -> (f64, Vec<StepTime>) {
        (local_clock() - self.begun, self.steps.into_inner())
    }
}
