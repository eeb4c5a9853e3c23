//! Waiting for an inlet to connect. Inlets that recover try again for ever and their calls time out;
//! if that is for a reason of encryption, people get the reason instead, and soon.

use lsl_core::{Error, Inlet, StreamInfo, Timeout, local_clock};

use crate::failure::{Failure, Outcome};
use crate::interrupt::LONGEST_NAP;

/// Waits until samples flow.
pub(crate) fn open(inlet: &Inlet, timeout: Timeout) -> Outcome {
    patiently(inlet, timeout, |nap| inlet.blocking().open(nap))
}

/// Waits for the full description.
pub(crate) fn full_info(inlet: &Inlet, timeout: Timeout) -> Outcome<StreamInfo> {
    patiently(inlet, timeout, |nap| inlet.blocking().full_info(nap))
}

fn patiently<T>(
    inlet: &Inlet,
    timeout: Timeout,
    mut attempt: impl FnMut(Timeout) -> lsl_core::Result<T>,
) -> Outcome<T> {
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
                    return Err(Failure::Runtime(reason));
                }
            }
            None => refused_since = None,
        }
        if is_over {
            return Err(error.into());
        }
    }
}

const GRACE_SECS: f64 = 1.2;
