//! The clock of one outlet: UDP probes, sealed if there is a session, PINGs where UDP gives no answer, and
//! alarms about what is measured. Sends nothing and reads no clock. Spec: lsl-protocol §5, LSS/1 §9.

use std::collections::VecDeque;

use lsl_secure::TimeProber;

use super::{Action, OffsetEstimator, PingAction, PingWaves, TimeAlarm, TimeCorrection, TimeWatch};
use crate::config::Tuning;
use crate::wire::timedata::{TimeReply, TimeRequest};

/// Measures the clock of whatever outlet the inlet is connected with. The keys of a session stay its own, so
/// that they end with it: they are lent for each call. Spec: LSS/1 §9.2.
#[derive(Debug)]
pub struct Clock {
    estimator: OffsetEstimator,
    pings: PingWaves,
    /// Past of the outlet's clock. Outlives sessions, which anybody on the way can end.
    watch: Option<TimeWatch>,
    /// Estimate that was watched last: what is watched is how waves differ.
    watched: Option<TimeCorrection>,
    is_sealed: bool,
    /// Whether a relay answers for the outlet, to PINGs alone.
    is_relayed: bool,
    /// Whether who answers may do so for another clock.
    is_for_another: bool,
    wave_id: i32,
    last_reply: f64,
    next_poll: f64,
    told: Option<TimeCorrection>,
    limits: ClockLimits,
    /// Between two waves nobody is asked, so nobody answers.
    silence_secs: f64,
    events: VecDeque<ClockEvent>,
}

/// Limits of what counts as an answer, in seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ClockLimits {
    /// Longest round trip of an authentic answer.
    pub max_rtt_secs: f64,
    /// Error above which a clock is too uncertain.
    pub warn_secs: f64,
}

/// Message that measures the outlet's clock, to be sent now.
#[derive(Debug, Clone, PartialEq)]
pub enum Probe {
    /// A datagram to the outlet's service port.
    Udp(Vec<u8>),
    /// A PING with this time through the session.
    Ping(f64),
}

/// News about the outlet's clock.
#[derive(Debug, PartialEq)]
pub enum ClockEvent {
    /// Another estimate, or none any more.
    Estimate(Option<TimeCorrection>),
    /// Something that an auditor wants to know of an authentic clock, with the estimate that shows it.
    Alarm(TimeAlarm, TimeCorrection),
    /// Nobody has answered for so long that the outlet may be gone.
    Silent,
    /// The keys cannot be used any more.
    Exhausted(String),
}

impl Clock {
    /// Creates a clock that nothing is known of. `seed` should be random: whoever can guess the ids of
    /// waves can forge answers.
    pub fn new(tuning: &Tuning, limits: ClockLimits, seed: u32) -> Self {
        Self {
            estimator: OffsetEstimator::new(tuning.into(), seed),
            pings: PingWaves::new(tuning.into()),
            watch: None,
            watched: None,
            is_sealed: false,
            is_relayed: false,
            is_for_another: false,
            wave_id: 0,
            last_reply: f64::NEG_INFINITY,
            next_poll: f64::NEG_INFINITY,
            told: None,
            limits,
            silence_secs: tuning.watchdog_time_threshold_secs + tuning.time_update_interval_secs,
            events: VecDeque::new(),
        }
    }

    /// Starts to ask at `now`, with or without encryption.
    pub fn begin(&mut self, is_sealed: bool, now: f64) {
        (self.is_sealed, self.is_relayed) = (is_sealed, false);
        self.set_for_another(false);
        self.watched = self.estimator.settled_estimate();
        self.last_reply = now;
        // What was not taken is not told again.
        self.events
            .retain(|event| matches!(event, ClockEvent::Estimate(_)));
    }

    /// Starts to ask a relay at `now`, by PINGs through the session of the stream. Spec: relay §3.1, §7.
    pub fn begin_relayed(&mut self, now: f64) {
        self.begin(true, now);
        self.is_relayed = true;
        self.set_for_another(true);
    }

    /// Says whether the outlet is one of a relay, which answers in the clock of the source: its t1 may come after its
    /// t2, by its own uncertainty. Spec: relay §3.1, §7.
    pub fn set_for_another(&mut self, is_for_another: bool) {
        self.is_for_another = is_for_another;
        self.pings.set_relayed(is_for_another);
    }

    /// Goes on after a time without keys, in which nobody was asked.
    pub fn resume(&mut self, now: f64) {
        self.last_reply = now;
    }

    /// Forgets everything, because another outlet has another clock, until proven otherwise.
    pub fn invalidate(&mut self) {
        self.estimator.invalidate();
        self.pings.reset();
        self.watch = None;
        self.tell();
    }

    /// Returns whether a known clock was replaced by another one since the last call.
    pub fn take_was_reset(&mut self) -> bool {
        self.estimator.take_was_reset()
    }

    /// Returns what to send at `now`; call it until there is nothing, then take the events. `keys` are those
    /// of the session, while there is one.
    pub fn poll_transmit(&mut self, now: f64, keys: Option<&mut TimeProber>) -> Option<Probe> {
        if self.is_sealed && keys.is_none() {
            self.next_poll = f64::INFINITY;
            return None;
        }
        let mut pings_from = f64::NEG_INFINITY;
        self.next_poll = f64::INFINITY;
        if !self.is_relayed {
            let action = self.estimator.poll(now);
            self.observe(now);
            match action {
                Action::SendProbe { wave_id, t0 } => {
                    self.wave_id = wave_id;
                    return self.probe(wave_id, t0, keys);
                }
                Action::WaitUntil(at) => self.next_poll = at,
            }
            pings_from = self.estimator.unanswered_from();
        }
        // UDP is asked all the while: as soon as anybody answers there, PINGs are not needed.
        if self.is_sealed {
            match self.pings.poll(now, pings_from) {
                PingAction::Send { t0 } => return Some(Probe::Ping(t0)),
                PingAction::Measured(correction) => {
                    self.estimator.adopt(correction);
                    self.observe(now);
                    // As soon as this is told.
                    self.next_poll = now;
                }
                PingAction::WaitUntil(at) => self.next_poll = self.next_poll.min(at),
            }
        }
        // A relay does not answer before it has an estimate of its own.
        if !self.is_relayed && now - self.last_reply > self.silence_secs {
            self.events.push_back(ClockEvent::Silent);
        }
        None
    }

    fn probe(&mut self, wave_id: i32, t0: f64, keys: Option<&mut TimeProber>) -> Option<Probe> {
        if !self.is_sealed {
            return Some(Probe::Udp(TimeRequest { wave_id, t0 }.to_bytes()));
        }
        match keys?.probe(t0) {
            Ok(packet) => Some(Probe::Udp(packet.to_vec())),
            Err(error) => {
                let text = format!("no clock probes: {error}");
                self.events.push_back(ClockEvent::Exhausted(text));
                None
            }
        }
    }

    /// Returns when to call [`poll_transmit`](Self::poll_transmit) again, if nothing comes before.
    pub fn poll_timeout(&self) -> f64 {
        self.next_poll
    }

    /// Takes a datagram that arrived at `now`. `keys` are those of the session, while there is one.
    pub fn handle_datagram(&mut self, datagram: &[u8], now: f64, keys: Option<&mut TimeProber>) {
        let max_rtt_secs = self.limits.max_rtt_secs;
        let reply = if self.is_sealed {
            let reply = keys.and_then(|keys| keys.receive(datagram, now, max_rtt_secs));
            let reply = reply.filter(|reply| reply.t1 <= reply.t2 || self.is_for_another);
            reply.map(|reply| (self.wave_id, [reply.t0, reply.t1, reply.t2]))
        } else {
            let reply = TimeReply::parse(datagram).ok();
            reply.map(|reply| (reply.wave_id, [reply.t0, reply.t1, reply.t2]))
        };
        if let Some((wave_id, [t0, t1, t2])) = reply
            && self.estimator.on_reply(now, wave_id, t0, t1, t2).is_ok()
        {
            self.last_reply = now;
        }
    }

    /// Takes the answer to a PING, which was opened at `now`.
    pub fn handle_pong(&mut self, times: [f64; 3], now: f64) {
        let max_rtt_secs = self.limits.max_rtt_secs;
        if self.pings.on_pong(now, times, max_rtt_secs) {
            self.last_reply = now;
        }
    }

    /// Returns what became known next, in order.
    pub fn poll_event(&mut self) -> Option<ClockEvent> {
        self.events.pop_front()
    }

    /// Tells the estimate, and looks at an authentic one once a wave.
    fn observe(&mut self, now: f64) {
        self.tell();
        if !self.is_sealed {
            return;
        }
        let (estimate, settled) = (self.estimator.estimate(), self.estimator.settled_estimate());
        let warn_secs = self.limits.warn_secs;
        let watch = || TimeWatch::new(warn_secs);
        match (estimate, settled) {
            (_, Some(settled)) if self.watched != Some(settled) => {
                self.watched = Some(settled);
                let alarms = self.watch.get_or_insert_with(watch).observe(now, settled);
                let alarms = alarms.into_iter();
                self.events
                    .extend(alarms.map(|alarm| ClockEvent::Alarm(alarm, settled)));
            }
            (Some(early), None) => self.watch.get_or_insert_with(watch).begin(now, early),
            _ => {}
        }
    }

    fn tell(&mut self) {
        let estimate = self.estimator.estimate();
        if self.told != estimate {
            self.told = estimate;
            self.events.push_back(ClockEvent::Estimate(estimate));
        }
    }
}

#[cfg(test)]
#[path = "machine_tests.rs"]
mod tests;
