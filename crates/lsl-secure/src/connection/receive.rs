//! The direction from the peer: its records as DATA and events, and signs of life.
//! Spec: LSS/1 §8.1, §8.2, §9.5.

use std::collections::VecDeque;
use std::sync::Arc;

use super::{Event, SendHalf, SessionInfo};
use crate::{Cause, Error, Opener, Record, Result, Role, Totals};

/// The direction from the peer.
#[derive(Debug)]
pub struct ReceiveHalf {
    opener: Opener,
    events: VecDeque<Event>,
    is_closed: bool,
    keep_alive: Option<KeepAlive>,
}

/// When an initiator asks a silent outlet whether it lives.
#[derive(Debug)]
struct KeepAlive {
    ping_after: f64,
    due: f64,
    unanswered: u32,
}

impl ReceiveHalf {
    pub(super) fn new(opener: Opener, role: Role, info: Arc<SessionInfo>, now: f64) -> Self {
        Self {
            opener,
            events: VecDeque::from([Event::Established(info)]),
            is_closed: false,
            keep_alive: (role == Role::Inlet).then_some(KeepAlive {
                ping_after: PING_AFTER_SECS,
                due: now + PING_AFTER_SECS,
                unanswered: 0,
            }),
        }
    }

    /// As [`Connection::handle_input`](super::Connection::handle_input); the caller passes an error to
    /// [`SendHalf::fail`].
    ///
    /// # Errors
    /// Why the session ends: what [`Opener::receive`] and [`Opener::end`] say.
    pub fn handle_input(
        &mut self,
        bytes: &mut [u8],
        now: f64,
        mut data: impl FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        if bytes.is_empty() {
            return self.opener.end();
        }
        let Self {
            opener,
            events,
            is_closed,
            ..
        } = self;
        let before = opener.totals();
        let received = opener.receive(bytes, now, |record| {
            match record {
                Record::Data(bytes) => return data(bytes),
                Record::Ping(t0) => {
                    // Only the newest is answered.
                    if matches!(events.back(), Some(Event::Ping { .. })) {
                        events.pop_back();
                    }
                    events.push_back(Event::Ping { t0, t1: now });
                }
                Record::Pong(times) => events.push_back(Event::Pong { times, at: now }),
                Record::Close => {
                    *is_closed = true;
                    events.push_back(Event::Closed);
                }
                // The opener allows no second DESCRIPTOR, and makes an ALERT its error.
                Record::Descriptor(_) | Record::Alert(..) => {}
            }
            Ok(())
        });
        let after = self.opener.totals();
        // Anybody on the way can send bytes that never become a record.
        if after.records > before.records
            && let Some(keep_alive) = &mut self.keep_alive
        {
            keep_alive.due = now + keep_alive.ping_after;
            keep_alive.unanswered = 0;
        }
        for _ in before.key_updates..after.key_updates {
            self.events.push_back(Event::KeyUpdated);
        }
        received
    }

    /// Returns what happened next, DATA excepted, in order; key updates follow everything else of the
    /// same input.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Whether the peer has sent CLOSE.
    pub fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Returns what came so far.
    pub fn totals(&self) -> Totals {
        self.opener.totals()
    }

    /// For tests of silent outlets that cannot wait for 30 s.
    #[doc(hidden)]
    pub fn ping_after(&mut self, secs: f64, now: f64) {
        if let Some(keep_alive) = &mut self.keep_alive {
            keep_alive.ping_after = secs;
            keep_alive.due = now + secs;
        }
    }

    pub(super) fn poll_timeout(&self) -> Option<f64> {
        let keep_alive = self.keep_alive.as_ref().filter(|_| !self.is_closed)?;
        Some(keep_alive.due)
    }

    pub(super) fn handle_timeout(&mut self, now: f64, sender: &mut SendHalf) -> Result<()> {
        let Some(keep_alive) = &mut self.keep_alive else {
            return Ok(());
        };
        if now < keep_alive.due || self.is_closed {
            return Ok(());
        }
        if keep_alive.unanswered >= MOST_UNANSWERED {
            let text = "the outlet does not answer any more";
            return Err(Error::session(Cause::Timeout, text));
        }
        keep_alive.unanswered += 1;
        keep_alive.due = now + keep_alive.ping_after;
        if sender.has_ended() {
            return Ok(());
        }
        sender.ping(now)
    }

    /// Opens nothing more, erases the keys and stops the keep-alive.
    pub(super) fn fail(&mut self, error: &Error) {
        self.opener.fail(error);
        self.keep_alive = None;
    }
}

/// Silence of the outlet before it is asked whether it lives. Spec: LSS/1 §9.5.
const PING_AFTER_SECS: f64 = 30.0;

/// PINGs without a record after them.
const MOST_UNANSWERED: u32 = 3;
