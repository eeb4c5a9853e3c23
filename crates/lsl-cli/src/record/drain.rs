//! When a stream whose recording ends has handed over what belongs to it. Knows no socket.
//!
//! A stream at even intervals tells by itself: a sample behind the end means that none before it is
//! missing. Of others one may be on its way however long nothing came, so the outlet is asked, after the
//! end, for a sign of life:
//!
//! * An answer through the encrypted connection of the samples arrives behind everything that was sent
//!   before it, as TCP keeps the order. Nothing is in flight then but what the sender had in its hands.
//! * A plaintext connection cannot be asked. An answer by UDP says nothing of TCP by itself: a segment
//!   that was lost comes again only after a retransmission timer of the sender has run out. It says that
//!   sender and way are alive, so that the repeated segment arrives: within one such timer (200 ms on
//!   Linux, 230 on macOS, 300 on Windows, and a round trip) nothing older can come any more. On one
//!   machine nothing is lost, and the answer is as good as the first one.
//! * Without any answer a stream gets all the time there is.
//!
//! As long as anything comes that belongs to the recording, the wait begins anew: there may be a backlog.

use lsl_core::Echo;

/// What is known of a stream since the end.
#[derive(Debug, Default)]
pub(super) struct Drain {
    answer: Option<Echo>,
    quiet_since: f64,
}

impl Drain {
    /// The outlet answered a question that was asked after the end.
    pub(super) fn answered(&mut self, echo: Echo, now: f64) {
        self.answer = Some(echo);
        self.quiet_since = self.quiet_since.max(now);
    }

    /// Something came that belongs to the recording.
    pub(super) fn came(&mut self, now: f64) {
        self.quiet_since = self.quiet_since.max(now);
    }

    /// Whether the question was answered.
    pub(super) fn is_answered(&self) -> bool {
        self.answer.is_some()
    }

    /// Whether nothing can come any more.
    pub(super) fn is_over(&self, now: f64) -> bool {
        let quiet_secs = match self.answer {
            None => return false,
            Some(Echo::InBand | Echo::Beside { is_local: true }) => HANDS_SECS,
            Some(Echo::Beside { is_local: false }) => RETRANSMISSION_SECS,
        };
        now - self.quiet_since >= quiet_secs
    }
}

/// From a timestamp until the sample is given to the system: what programs and their threads take.
const HANDS_SECS: f64 = 0.05;
/// Longer than a sender waits before it repeats a lost segment, and that one takes.
const RETRANSMISSION_SECS: f64 = 0.5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silent_stream_ends_with_the_answer_of_its_outlet() {
        let after = |answer: Echo| {
            let mut drain = Drain::default();
            assert!(!drain.is_over(1000.0), "nobody answered");
            drain.answered(answer, 10.0);
            (0..100)
                .map(f64::from)
                .map(|n| 10.0 + n / 100.0)
                .find(|&now| drain.is_over(now))
        };
        let secs = |answer| after(answer).unwrap() - 10.0;
        assert!(secs(Echo::InBand) < 0.1);
        assert!(secs(Echo::Beside { is_local: true }) < 0.1);
        let repeated = secs(Echo::Beside { is_local: false });
        assert!((0.3..0.6).contains(&repeated), "no proof of TCP by itself");
    }

    #[test]
    fn what_still_comes_makes_it_wait() {
        let mut drain = Drain::default();
        drain.answered(Echo::InBand, 10.0);
        drain.came(10.04);
        assert!(!drain.is_over(10.06));
        assert!(drain.is_over(10.1));
        assert!(drain.is_answered());
    }
}
