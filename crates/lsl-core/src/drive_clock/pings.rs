//! PINGs that the clock task wants and the task that reads the connection sends: the two meet here.
//! One question and one answer are kept, whatever the outlet sends. Spec: LSS/1 §9.5.

use std::task::{Context, Poll, Waker};

use crate::net::monitor::Monitor;

/// Between the clock of an inlet and one session.
#[derive(Debug, Default)]
pub(crate) struct Pings {
    state: Monitor<State>,
}

#[derive(Debug, Default)]
struct State {
    clock: PingSlot,
    /// The answer says only that it came: all that the outlet sent before is here.
    echo: PingSlot,
    reader: Option<Waker>,
}

/// Newest PING for one asker, and its answer.
#[derive(Debug, Default)]
struct PingSlot {
    /// Time of a PING that is not sent yet.
    wanted: Option<f64>,
    /// Time of a PING that is not answered yet.
    outstanding: Option<f64>,
    pong: Option<Pong>,
}

/// The answer to a PING of the clock.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Pong {
    /// As it was asked, and two times of the outlet.
    pub(crate) times: [f64; 3],
    /// When it was opened, in seconds of `local_clock`.
    pub(crate) opened_at: f64,
}

impl Pings {
    /// Wants a PING with this time. Whatever was wanted before is forgotten.
    pub(crate) fn ask(&self, t0: f64) {
        self.want(t0, |state| &mut state.clock);
    }

    /// Returns the answer to what was asked last, once. Dropping the future loses nothing.
    pub(crate) async fn answer(&self) -> Pong {
        loop {
            let pong = self
                .state
                .wait(f64::INFINITY, |state| state.clock.pong.take());
            if let Some(pong) = pong.await {
                return pong;
            }
        }
    }

    /// Wants a PING whose answer [`echo`](Self::echo) waits for, besides those of the clock.
    pub(crate) fn ask_echo(&self, t0: f64) {
        self.want(t0, |state| &mut state.echo);
    }

    /// Returns when the answer to the last [`ask_echo`](Self::ask_echo) is here.
    pub(crate) async fn echo(&self) {
        let is_answered = |state: &mut State| state.echo.pong.map(drop);
        self.state.wait(f64::INFINITY, is_answered).await;
    }

    fn want(&self, t0: f64, slot: impl FnOnce(&mut State) -> &mut PingSlot) {
        let mut state = self.state.lock();
        *slot(&mut state) = PingSlot {
            wanted: Some(t0),
            ..PingSlot::default()
        };
        let reader = state.reader.take();
        drop(state);
        if let Some(reader) = reader {
            reader.wake();
        }
    }

    /// What to send. For the one task that reads the session; it is woken for the next.
    pub(crate) fn poll(&self, context: &Context<'_>) -> Poll<f64> {
        let mut state = self.state.lock();
        match &mut state.reader {
            Some(waker) => waker.clone_from(context.waker()),
            none => *none = Some(context.waker().clone()),
        }
        let State { clock, echo, .. } = &mut *state;
        let slot = if clock.wanted.is_some() { clock } else { echo };
        let Some(t0) = slot.wanted.take() else {
            return Poll::Pending;
        };
        slot.outstanding = Some(t0);
        if state.echo.wanted.is_some() {
            context.waker().wake_by_ref();
        }
        Poll::Ready(t0)
    }

    /// Whether an answer is to come.
    pub(crate) fn is_outstanding(&self) -> bool {
        let state = self.state.lock();
        state.clock.outstanding.is_some() || state.echo.outstanding.is_some()
    }

    /// Takes the answer of the outlet. One that nobody asked for keeps the session alive and is no news.
    pub(crate) fn answered(&self, times: [f64; 3], opened_at: f64) {
        self.state.update(|state| {
            let is_asked = |asked: &mut f64| asked.to_bits() == times[0].to_bits();
            for slot in [&mut state.echo, &mut state.clock] {
                if slot.outstanding.take_if(is_asked).is_some() {
                    slot.pong = Some(Pong { times, opened_at });
                    return;
                }
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn poll(pings: &Pings) -> Option<f64> {
        match pings.poll(&Context::from_waker(Waker::noop())) {
            Poll::Ready(t0) => Some(t0),
            Poll::Pending => None,
        }
    }

    #[test]
    fn an_echo_does_not_disturb_the_clock() {
        let pings = Pings::default();
        let is_echoed = || pings.state.lock().echo.pong.is_some();
        pings.ask(1.0);
        pings.ask_echo(2.0);
        assert_eq!((poll(&pings), poll(&pings)), (Some(1.0), Some(2.0)));
        assert_eq!(poll(&pings), None);
        assert!(pings.is_outstanding());
        pings.answered([1.0; 3], 1.5);
        assert!(!is_echoed());
        pings.answered([2.0; 3], 2.5);
        assert!(is_echoed());
        assert_eq!(
            taken(&pings).unwrap().opened_at.to_bits(),
            1.5_f64.to_bits()
        );
        assert!(!pings.is_outstanding());
    }

    fn taken(pings: &Pings) -> Option<Pong> {
        pings.state.lock().clock.pong.take()
    }

    #[test]
    fn only_the_answer_to_the_last_question_is_kept_and_once() {
        let pings = Pings::default();
        assert_eq!(poll(&pings), None);
        pings.answered([0.0; 3], 1.0);
        assert_eq!(taken(&pings), None, "nobody asked");
        pings.ask(1.0);
        pings.answered([1.0; 3], 1.5);
        assert_eq!(taken(&pings), None, "not even sent");
        pings.ask(2.0);
        assert_eq!(poll(&pings), Some(2.0));
        assert_eq!(poll(&pings), None);
        for other in [1.0, -2.0, 2.000_000_000_000_000_4, f64::NAN, 30.0] {
            pings.answered([other, 7.0, 8.0], 2.5);
            assert_eq!(taken(&pings), None, "{other}");
        }
        pings.answered([2.0, 7.0, 8.0], 2.5);
        pings.answered([2.0, 7.1, 8.1], 2.6);
        let pong = taken(&pings).unwrap();
        assert_eq!((pong.times, pong.opened_at), ([2.0, 7.0, 8.0], 2.5));
        // A late answer does not outlive the next question.
        pings.ask(3.0);
        assert_eq!(poll(&pings), Some(3.0));
        pings.answered([3.0; 3], 3.5);
        pings.ask(4.0);
        assert_eq!(taken(&pings), None);
    }
}
