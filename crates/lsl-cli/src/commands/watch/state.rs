//! Judges a stream from what is seen of it, look by look, and says when that becomes an alarm. Sans-IO.
//! Spec: doctor §3.6

use lsl_core::ClockSuspect;
use serde::Serialize;

use super::requirement::Limits;

/// State of a stream, in the words of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum State {
    Ok,
    Missing,
    Duplicate,
    /// Encryption, or its absence, forbids it, or it has another key.
    Key,
    /// Found, and it does not open.
    Closed,
    Silent,
    Slow,
    Lossy,
    Late,
    Clock,
}

impl State {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Missing => "missing",
            Self::Duplicate => "duplicate",
            Self::Key => "key",
            Self::Closed => "closed",
            Self::Silent => "silent",
            Self::Slow => "slow",
            Self::Lossy => "lossy",
            Self::Late => "late",
            Self::Clock => "clock",
        }
    }
}

/// What is seen of a stream at a moment. What is not known is no trouble.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Facts {
    /// How many streams fit.
    pub(super) found: usize,
    /// Announced samples a second.
    pub(super) nominal: f64,
    /// Why it does not open.
    pub(super) closed: Option<String>,
    /// Why its key is not the one that is wanted.
    pub(super) key: Option<String>,
    /// Time without a sample.
    pub(super) silent_secs: Option<f64>,
    /// Measured samples a second.
    pub(super) rate: Option<f64>,
    /// Losses and interruptions until now.
    pub(super) losses: u64,
    /// The age of samples when they come.
    pub(super) late_secs: Option<f64>,
    pub(super) uncertainty_secs: Option<f64>,
    pub(super) suspect: Option<ClockSuspect>,
}

/// Something that is told.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Event {
    pub(super) kind: Kind,
    pub(super) state: State,
    /// Since when.
    pub(super) since: f64,
    pub(super) detail: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Kind {
    State,
    Alarm,
    Clear,
    End,
}

/// A stream that is watched.
#[derive(Debug, Clone)]
pub(super) struct Watched {
    limits: Limits,
    /// When a stream that never came is missing.
    due: f64,
    has_come: bool,
    state: State,
    since: f64,
    detail: String,
    /// The last state of which there was an alarm, until it is cleared.
    alarm: Option<State>,
    losses: u64,
    lost_at: f64,
    /// Every state that there was an alarm of.
    alarms: Vec<State>,
}

impl Watched {
    /// Begins; a stream has until `due` to come.
    pub(super) fn new(limits: Limits, now: f64, due: f64) -> Self {
        Self {
            limits,
            due,
            has_come: false,
            state: State::Missing,
            since: now,
            detail: "it has not come yet".into(),
            alarm: None,
            losses: 0,
            lost_at: f64::NEG_INFINITY,
            alarms: Vec::new(),
        }
    }

    pub(super) fn state(&self) -> State {
        self.state
    }

    /// Returns whether it has been in this state for so long that it may stay there.
    pub(super) fn is_settled(&self, now: f64) -> bool {
        now - self.since >= SETTLED_SECS
    }

    /// Returns whether it never came.
    pub(super) fn never_came(&self) -> bool {
        !self.has_come
    }

    /// Returns whether there was an alarm for which this holds.
    pub(super) fn had_alarm(&self, holds: impl Fn(State) -> bool) -> bool {
        self.alarms.iter().any(|state| holds(*state))
    }

    /// Looks at what is seen now.
    pub(super) fn look(&mut self, now: f64, facts: &Facts) -> Vec<Event> {
        let mut events = Vec::new();
        let (state, detail) = self.judge(now, facts);
        self.has_come |= facts.found > 0;
        self.detail = detail;
        if state != self.state {
            (self.state, self.since) = (state, now);
            events.push(self.event(Kind::State));
        }
        if state == State::Ok {
            if self.alarm.is_some() && now - self.since >= CLEAR_SECS {
                self.alarm = None;
                events.push(self.event(Kind::Clear));
            }
        } else if self.alarm != Some(state) && now >= self.alarm_at() {
            self.alarm = Some(state);
            self.alarms.push(state);
            events.push(self.event(Kind::Alarm));
        }
        events
    }

    /// Says how it stands at the end.
    pub(super) fn end(&self) -> Event {
        self.event(Kind::End)
    }

    fn alarm_at(&self) -> f64 {
        if self.has_come {
            self.since + ALARM_SECS
        } else {
            self.due
        }
    }

    fn event(&self, kind: Kind) -> Event {
        Event {
            kind,
            state: self.state,
            since: self.since,
            detail: self.detail.clone(),
        }
    }

    /// The worst of what is wrong, and what it is.
    fn judge(&mut self, now: f64, facts: &Facts) -> (State, String) {
        if facts.losses > self.losses {
            self.losses = facts.losses;
            self.lost_at = now;
        }
        match facts.found {
            0 if self.has_come => return (State::Missing, "it answers no more".into()),
            0 => return (State::Missing, "it has not come yet".into()),
            1 => {}
            many => return (State::Duplicate, format!("{many} streams fit")),
        }
        if let Some(why) = &facts.key {
            return (State::Key, why.clone());
        }
        if let Some(why) = &facts.closed {
            return (State::Closed, why.clone());
        }
        let limits = &self.limits;
        let over = |value: Option<f64>, limit: Option<f64>| {
            value.filter(|it| Some(*it) > limit && limit.is_some())
        };
        if let Some(secs) = over(facts.silent_secs, limits.silent_secs(facts.nominal)) {
            return (State::Silent, format!("no sample for {secs:.1} s"));
        }
        // A stall is none until it ends, or is silence.
        let is_stalled = facts
            .silent_secs
            .is_some_and(|secs| secs > STALL_SECS.max(STALL_SAMPLES / facts.nominal));
        let least = limits.rate(facts.nominal).filter(|_| !is_stalled);
        if let Some(rate) = facts
            .rate
            .filter(|rate| least.is_some_and(|least| *rate < least))
        {
            let least = least.unwrap_or_default();
            return (
                State::Slow,
                format!("{rate:.1} samples a second, not {least:.1}"),
            );
        }
        if limits.no_loss && now - self.lost_at < LOSSY_SECS {
            return (
                State::Lossy,
                format!("{} losses or interruptions", self.losses),
            );
        }
        // Of stamps of another clock no age can be told.
        if facts.suspect.is_none()
            && let Some(secs) = over(facts.late_secs, Some(limits.late_secs()))
        {
            return (
                State::Late,
                format!("{:.0} ms old when it comes", secs * 1000.0),
            );
        }
        if let Some(suspect) = facts.suspect {
            return (State::Clock, format!("stamps: {suspect}"));
        }
        if let Some(secs) = over(facts.uncertainty_secs, Some(limits.clock_secs())) {
            let detail = format!("its clock is known to {:.1} ms only", secs * 1000.0);
            return (State::Clock, detail);
        }
        (State::Ok, String::new())
    }
}

const ALARM_SECS: f64 = 1.0;
const CLEAR_SECS: f64 = 5.0;
/// Silence shows after two.
const SETTLED_SECS: f64 = 2.5;
const STALL_SECS: f64 = 0.5;
const STALL_SAMPLES: f64 = 5.0;
/// How long a loss counts.
const LOSSY_SECS: f64 = 2.0;

#[cfg(test)]
mod tests {
    use super::*;

    fn fine() -> Facts {
        Facts {
            found: 1,
            nominal: 100.0,
            silent_secs: Some(0.01),
            rate: Some(100.0),
            late_secs: Some(0.002),
            uncertainty_secs: Some(0.001),
            ..Facts::default()
        }
    }

    /// Kinds of what is told between two times, ten looks a second.
    fn run(watched: &mut Watched, from: f64, secs: f64, facts: &Facts) -> Vec<(Kind, State)> {
        let mut events = Vec::new();
        let mut now = from;
        while now < from + secs {
            events.extend(
                watched
                    .look(now, facts)
                    .into_iter()
                    .map(|it| (it.kind, it.state)),
            );
            now += 0.1;
        }
        events
    }

    #[test]
    fn each_state_is_entered_alarmed_left_and_cleared() {
        type Change = fn(&mut Facts);
        let cases: &[(State, Change)] = &[
            (State::Missing, |it| it.found = 0),
            (State::Duplicate, |it| it.found = 2),
            (State::Key, |it| it.key = Some("plaintext".into())),
            (State::Closed, |it| it.closed = Some("refused".into())),
            (State::Silent, |it| it.silent_secs = Some(2.1)),
            (State::Slow, |it| it.rate = Some(94.0)),
            (State::Late, |it| it.late_secs = Some(0.3)),
            (State::Clock, |it| it.uncertainty_secs = Some(0.011)),
            (State::Clock, |it| it.suspect = Some(ClockSuspect::Unix)),
        ];
        for (state, change) in cases {
            let mut watched = Watched::new(Limits::default(), 0.0, 10.0);
            assert_eq!(
                run(&mut watched, 0.0, 6.0, &fine()),
                [(Kind::State, State::Ok)]
            );
            let mut facts = fine();
            change(&mut facts);
            // For a moment it is no alarm.
            assert_eq!(
                run(&mut watched, 10.0, 0.9, &facts),
                [(Kind::State, *state)]
            );
            assert_eq!(
                run(&mut watched, 10.9, 1.0, &facts),
                [(Kind::Alarm, *state)]
            );
            assert_eq!(
                run(&mut watched, 12.0, 4.8, &fine()),
                [(Kind::State, State::Ok)]
            );
            assert_eq!(
                run(&mut watched, 16.8, 2.0, &fine()),
                [(Kind::Clear, State::Ok)]
            );
            assert!(watched.had_alarm(|it| it == *state) && !watched.never_came());
        }
    }

    #[test]
    fn losses_count_if_they_are_asked_about() {
        let limits = Limits {
            no_loss: true,
            ..Limits::default()
        };
        for (limits, expected) in [
            (limits, vec![State::Lossy, State::Lossy, State::Ok]),
            (Limits::default(), vec![]),
        ] {
            let mut watched = Watched::new(limits, 0.0, 10.0);
            run(&mut watched, 0.0, 1.0, &fine());
            let facts = Facts {
                losses: 3,
                ..fine()
            };
            let told = run(&mut watched, 1.0, 3.0, &facts);
            assert_eq!(
                told.into_iter().map(|it| it.1).collect::<Vec<_>>(),
                expected
            );
        }
    }

    #[test]
    fn a_stream_has_time_to_come() {
        let mut watched = Watched::new(Limits::default(), 0.0, 10.0);
        let absent = Facts::default();
        assert_eq!(run(&mut watched, 0.0, 9.9, &absent), []);
        assert_eq!(
            run(&mut watched, 9.9, 1.0, &absent),
            [(Kind::Alarm, State::Missing)]
        );
        let mut brief = Watched::new(Limits::default(), 0.0, 0.5);
        assert_eq!(
            run(&mut brief, 0.0, 0.7, &absent),
            [(Kind::Alarm, State::Missing)]
        );
        assert!(watched.never_came());
        assert_eq!(watched.end().detail, "it has not come yet");
    }

    #[test]
    fn what_changes_into_worse_is_told_again() {
        let mut watched = Watched::new(Limits::default(), 0.0, 10.0);
        run(&mut watched, 0.0, 1.0, &fine());
        let closed = Facts {
            closed: Some("x".into()),
            ..fine()
        };
        run(&mut watched, 1.0, 2.0, &closed);
        let told = run(&mut watched, 3.0, 2.0, &Facts::default());
        assert_eq!(
            told,
            [(Kind::State, State::Missing), (Kind::Alarm, State::Missing)]
        );
    }
}
