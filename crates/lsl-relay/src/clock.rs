//! Clocks of the sources of streams, chained over links. Spec: relay §7; LSS/1 §9.4.
//!
//! Offsets are "source minus this relay" in seconds. Each uncertainty is a round trip: the error is at most half
//! of it. Drain [`Clocks::poll_event`] after each call.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use lsl_proto::clock::SourceClock;

use crate::book::{Uid, Way};
use crate::id::RelayId;

/// Time in seconds between PINGs of a link while somebody asks for a clock.
pub const FAST_PING_SECS: f64 = 0.25;

/// Clock of the relay at the other end of a link, from its PONGs.
#[derive(Debug, Default)]
struct Pings {
    /// The last 16 measurements.
    last: VecDeque<SourceClock>,
}

impl Pings {
    fn add(&mut self, [t0, t1, t2, t3]: [f64; 4]) {
        let measured = SourceClock {
            offset_secs: f64::midpoint(t1 - t0, t2 - t3),
            uncertainty_secs: (t3 - t0) - (t2 - t1),
            measured_at: t0,
        };
        if !measured.is_sound() || t1 > t2 {
            return;
        }
        if self.last.len() >= PINGS {
            self.last.pop_front();
        }
        self.last.push_back(measured);
    }

    /// Returns the measurement that is least uncertain now.
    fn estimate(&self, now: f64) -> Option<SourceClock> {
        let all = self.last.iter();
        let all = all.filter_map(|it| Some((it.uncertainty(now)?, *it)));
        let best = all.min_by(|(one, _), (other, _)| one.total_cmp(other));
        best.map(|(_, best)| best)
    }
}

/// Something that the driver must do.
#[derive(Debug, Clone, PartialEq)]
pub enum ClockEvent {
    /// Measure the source's clock over the direct way, every 2 s; or stop.
    Measure {
        /// Origin of the stream.
        uid: Uid,
        /// Whether to begin.
        on: bool,
    },
    /// Ask a relay for the clock of a stream, by `LSL:timekeys/1 UID`; an earlier such substream ends.
    Ask {
        /// Relay to ask.
        link: RelayId,
        /// Origin of the stream.
        uid: Uid,
    },
    /// Tell a relay the clock of a stream, by a `t` record.
    Tell {
        /// Relay that asked.
        link: RelayId,
        /// Origin of the stream.
        uid: Uid,
        /// What is known of it.
        clock: SourceClock,
    },
    /// Send PINGs on a link at this distance in seconds.
    PingEvery(RelayId, f64),
}

/// Clocks of all streams that somebody asks for.
#[derive(Debug, Default)]
pub struct Clocks {
    links: BTreeMap<RelayId, Pings>,
    streams: BTreeMap<Uid, Interest>,
    /// Links with PINGs at the short distance.
    fast: BTreeSet<RelayId>,
    /// Time by which there is something to do, or earlier.
    due: Option<f64>,
    events: VecDeque<ClockEvent>,
}

/// Interest in the clock of one stream's source.
#[derive(Debug)]
struct Interest {
    way: Option<Way>,
    /// Clock of the source as we measured it, or as the relay at the other end of the way told it of itself.
    told: Option<SourceClock>,
    /// Until when somebody here asks, and until when each relay.
    local_until: f64,
    links_until: BTreeMap<RelayId, f64>,
    next_tell: f64,
    next_ask: f64,
    is_measured: bool,
}

impl Interest {
    fn until(&self) -> f64 {
        self.links_until
            .values()
            .copied()
            .fold(self.local_until, f64::max)
    }
}

impl Clocks {
    /// Creates the clocks of a relay.
    pub fn new() -> Self {
        Self::default()
    }

    /// Notes a clock probe or `timekeys` connection for a stream: of a relay, or of somebody else. It counts for
    /// 60 s. `way` is the way in use.
    pub fn asked(&mut self, uid: &Uid, by: Option<RelayId>, way: Option<Way>, now: f64) {
        let clock = self.streams.entry(uid.clone()).or_insert(Interest {
            way,
            told: None,
            local_until: 0.0,
            links_until: BTreeMap::new(),
            next_tell: now,
            next_ask: now,
            is_measured: false,
        });
        let until = now + INTEREST_SECS;
        let is_new = match by {
            None => std::mem::replace(&mut clock.local_until, until) <= now,
            Some(link) => clock.links_until.insert(link, until).is_none(),
        };
        if is_new {
            // The first estimate is told at once.
            clock.next_tell = now;
            self.work(now);
        }
    }

    /// Notes that another way is in use; estimates of the former one hold no more.
    pub fn way_changed(&mut self, uid: &Uid, way: Option<Way>, now: f64) {
        let Some(clock) = self.streams.get_mut(uid) else {
            return;
        };
        if clock.way == way {
            return;
        }
        if std::mem::take(&mut clock.is_measured) {
            let uid = uid.clone();
            self.events
                .push_back(ClockEvent::Measure { uid, on: false });
        }
        clock.way = way;
        clock.told = None;
        clock.next_ask = now;
        self.work(now);
    }

    /// Takes the measurement of a source over the direct way.
    pub fn measured(&mut self, uid: &Uid, measured: SourceClock, now: f64) {
        let clock = self.streams.get_mut(uid);
        if let Some(clock) =
            clock.filter(|clock| matches!(clock.way, Some(Way::Direct(_) | Way::River)))
            && clock.take(measured, now)
        {
            self.work(now);
        }
    }

    /// Takes the `t` record of a relay, however long that waited on its way. One that is not of the way in use is
    /// ignored.
    pub fn told(&mut self, link: RelayId, uid: &Uid, told: SourceClock, now: f64) {
        let clock = self.streams.get_mut(uid);
        if let Some(clock) = clock.filter(|clock| clock.way == Some(Way::Link(link)))
            && clock.take(told, now)
        {
            self.work(now);
        }
    }

    /// Takes the answer to a PING: `[t0, t1, t2, t3]`, the outer two of our clock.
    pub fn pong(&mut self, link: RelayId, times: [f64; 4], now: f64) {
        let pings = self.links.entry(link).or_default();
        let is_first = pings.last.is_empty();
        pings.add(times);
        if is_first {
            self.work(now);
        }
    }

    /// Returns the shortest of the last round trips of a link in seconds.
    pub fn rtt(&self, link: RelayId) -> Option<f64> {
        let last = self.links.get(&link)?.last.iter();
        last.map(|ping| ping.uncertainty_secs).reduce(f64::min)
    }

    /// Forgets a link that is down, and what it asked.
    pub fn link_down(&mut self, link: RelayId) {
        self.links.remove(&link);
        self.fast.remove(&link);
        for clock in self.streams.values_mut() {
            clock.links_until.remove(&link);
            if clock.way == Some(Way::Link(link)) {
                clock.told = None;
            }
        }
    }

    /// Forgets a stream that is gone.
    pub fn gone(&mut self, uid: &Uid) {
        if let Some(clock) = self.streams.remove(uid) {
            self.stop(uid.clone(), &clock);
        }
    }

    /// Returns the clock of a stream's source; `None` before the first estimate and when the last one is too
    /// old: then nobody is answered.
    pub fn estimate(&self, uid: &Uid, now: f64) -> Option<SourceClock> {
        let clock = self.streams.get(uid)?;
        let told = clock.told?;
        match clock.way? {
            Way::Direct(_) | Way::River => told.uncertainty(now).map(|_| told),
            Way::Link(link) => told.told_by(&self.links.get(&link)?.estimate(now)?, now),
        }
    }

    /// Returns what happened next; drain it after each call.
    pub fn poll_event(&mut self) -> Option<ClockEvent> {
        self.events.pop_front()
    }

    /// Returns when to call [`Clocks::handle_timeout`], perhaps too early.
    pub fn poll_timeout(&self) -> Option<f64> {
        self.due
    }

    fn earliest(&self) -> Option<f64> {
        let times = self.streams.values().map(|clock| {
            let ask = matches!(clock.way, Some(Way::Link(_))).then_some(clock.next_ask);
            let tell = (!clock.links_until.is_empty()).then_some(clock.next_tell);
            let due = [ask, tell].into_iter().flatten();
            due.fold(clock.until(), f64::min)
        });
        times.reduce(f64::min)
    }

    /// Asks, tells and forgets what is due.
    pub fn handle_timeout(&mut self, now: f64) {
        self.work(now);
    }

    fn work(&mut self, now: f64) {
        let over: Vec<Uid> = self
            .streams
            .iter()
            .filter(|(_, clock)| clock.until() <= now)
            .map(|(uid, _)| uid.clone())
            .collect();
        for uid in &over {
            self.gone(uid);
        }
        let mut asked = BTreeSet::new();
        for (uid, clock) in &mut self.streams {
            clock.links_until.retain(|_, until| *until > now);
            match clock.way {
                Some(Way::Direct(_) | Way::River) if !clock.is_measured => {
                    clock.is_measured = true;
                    let uid = uid.clone();
                    self.events.push_back(ClockEvent::Measure { uid, on: true });
                }
                Some(Way::Link(link)) => {
                    asked.insert(link);
                    if now >= clock.next_ask {
                        clock.next_ask = now + ASK_SECS;
                        let uid = uid.clone();
                        self.events.push_back(ClockEvent::Ask { link, uid });
                    }
                }
                _ => {}
            }
        }
        let tell = self
            .streams
            .iter()
            .filter(|(_, clock)| now >= clock.next_tell && !clock.links_until.is_empty());
        let tell: Vec<_> = tell
            .map(|(uid, _)| (uid.clone(), self.estimate(uid, now)))
            .collect();
        for (uid, known) in tell {
            let Some(interest) = self.streams.get_mut(&uid) else {
                continue;
            };
            interest.next_tell = now + TELL_SECS;
            if let Some(clock) = known {
                // Never back into the link that it comes from.
                let links = interest
                    .links_until
                    .keys()
                    .filter(|link| interest.way != Some(Way::Link(**link)));
                for link in links {
                    let (link, uid) = (*link, uid.clone());
                    self.events.push_back(ClockEvent::Tell { link, uid, clock });
                }
            }
        }
        for link in asked.difference(&self.fast) {
            self.events
                .push_back(ClockEvent::PingEvery(*link, FAST_PING_SECS));
        }
        for link in self.fast.difference(&asked) {
            self.events
                .push_back(ClockEvent::PingEvery(*link, crate::mux::PING_SECS));
        }
        self.fast = asked;
        self.due = self.earliest();
    }

    fn stop(&mut self, uid: Uid, clock: &Interest) {
        if clock.is_measured {
            self.events
                .push_back(ClockEvent::Measure { uid, on: false });
        }
    }
}

impl Interest {
    /// Takes what is new. Returns whether it is the first, which is told at once.
    fn take(&mut self, clock: SourceClock, now: f64) -> bool {
        if !clock.is_sound() {
            return false;
        }
        let is_first = self.told.replace(clock).is_none();
        if is_first {
            self.next_tell = now;
        }
        is_first
    }
}

/// Measurements of a link that are kept.
const PINGS: usize = 16;

/// Time in seconds for which a probe counts as interest.
const INTEREST_SECS: f64 = 60.0;

/// Time in seconds after which a relay is asked again, before its interest ends.
const ASK_SECS: f64 = 30.0;

/// Time in seconds between two `t` records of a stream.
const TELL_SECS: f64 = 2.0;

#[cfg(test)]
mod tests;
