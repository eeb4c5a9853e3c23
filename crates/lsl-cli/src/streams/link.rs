//! Waiting for the other side: for an inlet to connect, for receivers to take everything. Inlets that recover try again for ever and their calls time out;
//! if that is for a reason of encryption, people get the reason instead, and soon.

use std::time::Duration;

use lsl_core::{Error, Inlet, Outlet, StreamInfo, TimeCorrection, Timeout, local_clock};

use crate::failure::{Failure, Outcome};
use crate::interrupt::LONGEST_NAP;
use crate::ui::text::printable;

/// Waits until samples flow, within `timeout`.
pub fn open(inlet: &Inlet, timeout: Timeout) -> Outcome {
    patiently(inlet, timeout, |nap| inlet.blocking().open(nap)).map_err(Stuck::into)
}

/// Waits for the full description, within `timeout`.
pub fn full_info(inlet: &Inlet, timeout: Timeout) -> Outcome<StreamInfo> {
    patiently(inlet, timeout, |nap| inlet.blocking().full_info(nap)).map_err(Stuck::into)
}

/// Waits for a measurement of the sender's clock.
pub fn time_correction(inlet: &Inlet, timeout: Timeout) -> Outcome<TimeCorrection> {
    let attempt = |nap| inlet.blocking().time_correction(nap);
    patiently(inlet, timeout, attempt).map_err(|stuck| match stuck {
        Stuck::Error(error) => {
            Failure::from(error).context("the stream's clock service (UDP) does not answer")
        }
        refused @ Stuck::Refused(_) => refused.into(),
    })
}

/// Reason why an inlet has no result.
#[derive(Debug)]
enum Stuck {
    /// Encryption refuses; the text is the reason.
    Refused(String),
    /// Any other error of the inlet.
    Error(Error),
}

impl From<Stuck> for Failure {
    fn from(stuck: Stuck) -> Self {
        match stuck {
            // It may quote the other side.
            Stuck::Refused(reason) => Self::Runtime(advised(&printable(&reason))),
            Stuck::Error(error) => error.into(),
        }
    }
}

/// Adds advice to a reason that has none.
fn advised(reason: &str) -> String {
    if reason.contains("run: ") {
        reason.to_owned()
    } else {
        format!("{reason}\n`lsl trust check` says what to do about it.")
    }
}

fn patiently<T>(
    inlet: &Inlet,
    timeout: Timeout,
    mut attempt: impl FnMut(Timeout) -> lsl_core::Result<T>,
) -> Result<T, Stuck> {
    let deadline = timeout.deadline(local_clock());
    let mut refused_since = None;
    loop {
        let left = deadline - local_clock();
        let nap = Timeout::from_secs(left.min(LONGEST_NAP.as_secs_f64()).max(0.0));
        let error = match attempt(nap) {
            Ok(value) => return Ok(value),
            Err(error) => error,
        };
        let is_over = !matches!(error, Error::Timeout { .. }) || left <= 0.0;
        match inlet.last_security_error() {
            Some(reason) => {
                // Full outlets and restarts of the other side pass within that time.
                let since = *refused_since.get_or_insert_with(local_clock);
                if is_over || local_clock() - since > GRACE_SECS {
                    return Err(Stuck::Refused(reason));
                }
            }
            None => refused_since = None,
        }
        if is_over {
            return Err(Stuck::Error(error));
        }
    }
}

/// Waits until connected receivers have everything, for a second at most: data still in the outlet
/// would end with the process.
pub(crate) fn drain<'a>(outlets: impl IntoIterator<Item = &'a Outlet>) {
    for outlet in outlets {
        outlet.blocking().flush(DRAIN_LIMIT);
    }
}

const GRACE_SECS: f64 = 1.2;
const DRAIN_LIMIT: Duration = Duration::from_secs(1);
