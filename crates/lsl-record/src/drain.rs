//! Decides when an ending stream has handed over all its samples. Knows no socket.
//!
//! Some timestamps cannot be mapped to our clock, because that of the sender was never measured or
//! is not the one of LSL. Of such streams the samples that have come by the end are recorded, and
//! no others ([`Arrived`]).
//!
//! A stream at even intervals needs no question: a sample after the end means that none before it
//! is missing. A sample of another stream may still be on its way after any silence, so the outlet
//! is asked, after the end, for a sign of life:
//!
//! * An answer through the encrypted connection of the samples arrives after all bytes sent before
//!   it, as TCP keeps the order. Only samples that the sender had not sent yet can follow.
//! * A plaintext connection cannot be asked. An answer by UDP says nothing of TCP by itself. A lost
//!   segment comes again only after a retransmission timer of the sender has run out. The answer
//!   shows that sender and network are alive, so that the repeated segment arrives. After one such
//!   timer (200 ms on Linux, 230 on macOS, 300 on Windows, and a round trip) nothing older can
//!   come. On one machine nothing is lost, and the answer is as good as the first one.
//! * Without any answer a stream gets all the time there is.
//!
//! A sample that belongs to the recording cancels the question, asked or answered. There may be a
//! backlog, and an answer beside the samples does not tell its length.

use lsl_core::Echo;

/// State of a stream since the end of the recording.
#[derive(Debug, Default)]
pub(crate) struct Drain {
    /// The answer, and when it came.
    answer: Option<(Echo, f64)>,
}

impl Drain {
    /// The outlet answered a question that was asked after the end.
    pub(crate) fn answered(&mut self, echo: Echo, now: f64) {
        self.answer = Some((echo, now));
    }

    /// Notes a sample of the recording: the question has to be asked again.
    pub(crate) fn came(&mut self) {
        self.answer = None;
    }

    /// Whether the question was answered.
    pub(crate) fn is_answered(&self) -> bool {
        self.answer.is_some()
    }

    /// Whether nothing can come any more.
    pub(crate) fn is_over(&self, now: f64) -> bool {
        let Some((echo, since)) = self.answer else {
            return false;
        };
        let quiet_secs = match echo {
            Echo::InBand | Echo::Beside { is_local: true } => HANDS_SECS,
            Echo::Beside { is_local: false } => RETRANSMISSION_SECS,
        };
        now - since >= quiet_secs
    }
}

/// Samples present at the end, of a stream whose timestamps cannot be mapped.
#[derive(Debug, Default)]
pub(crate) struct Arrived {
    /// Number of them not taken yet; `None` before the first look.
    left: Option<usize>,
}

impl Arrived {
    /// Returns the number of samples to take after the end, `waiting` of which are here now.
    pub(crate) fn of(&mut self, waiting: usize) -> usize {
        *self.left.get_or_insert(waiting)
    }

    pub(crate) fn took(&mut self, count: usize) {
        self.left = self.left.map(|left| left.saturating_sub(count));
    }

    /// Whether nothing of it is left.
    pub(crate) fn is_taken(&self) -> bool {
        self.left == Some(0)
    }
}

/// Time from a timestamp until the sample is given to the system, by programs and their threads.
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
    fn what_comes_after_the_end_is_not_taken_where_timestamps_tell_nothing() {
        let mut arrived = Arrived::default();
        arrived.took(100);
        assert!(!arrived.is_taken(), "the end was not there yet");
        assert_eq!(arrived.of(5), 5);
        arrived.took(3);
        assert_eq!((arrived.of(40), arrived.is_taken()), (2, false));
        arrived.took(2);
        assert_eq!((arrived.of(40), arrived.is_taken()), (0, true));
    }

    #[test]
    fn what_still_comes_makes_it_wait() {
        let mut drain = Drain::default();
        drain.answered(Echo::InBand, 10.0);
        assert!(drain.is_answered());
        drain.came();
        assert!(!drain.is_answered(), "asked before");
        assert!(!drain.is_over(1000.0));
        drain.answered(Echo::InBand, 10.1);
        assert!(!drain.is_over(10.14));
        assert!(drain.is_over(10.16));
    }
}
