//! Clocks of the sources of streams: who asks, who measures, and what linked relays tell each other.
//! Spec: relay §7.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use lsl_core::relay::{OpenSubstream, Peer, SourceClock, StreamClock, Substream};
use lsl_core::{Error, Inlet, Result};
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use crate::book::{Asker, Uid, Way};
use crate::clock::{ClockEvent, Clocks};
use crate::id::RelayId;
use crate::shell::state::{Shared, State};

/// Clocks of the streams that somebody asked for.
#[derive(Debug)]
pub(super) struct SourceClocks {
    /// Told when somebody asks for a clock that nobody asked for.
    bell: Arc<Notify>,
    pub(super) machine: Clocks,
    /// Clocks that answer for us.
    given: HashMap<Uid, GivenClock>,
    lent: Vec<Lent>,
    measuring: HashMap<Uid, AbortOnDrop>,
    /// Substreams by which relays are asked, with the time at which each was opened.
    asking: HashMap<Uid, (f64, Arc<dyn Substream>)>,
}

/// Clock of a connection that asks for nothing else.
#[derive(Debug)]
pub(super) struct Lent {
    pub(super) uid: Uid,
    pub(super) peer: Peer,
    asker: Asker,
    clock: Weak<StreamClock>,
}

#[derive(Debug)]
struct GivenClock {
    clock: Arc<StreamClock>,
    /// Time of the last question that the machine was told of.
    noted: f64,
}

impl SourceClocks {
    pub(super) fn new(bell: Arc<Notify>) -> Self {
        Self {
            bell,
            machine: Clocks::new(),
            given: HashMap::new(),
            lent: Vec::new(),
            measuring: HashMap::new(),
            asking: HashMap::new(),
        }
    }

    /// Returns the clock in which readers of a stream are answered.
    pub(super) fn of(&mut self, uid: &Uid) -> Arc<StreamClock> {
        let given = self.given.entry(uid.clone());
        let given = given.or_insert_with(|| GivenClock {
            clock: Arc::new(StreamClock::with_bell(Arc::clone(&self.bell))),
            noted: f64::NEG_INFINITY,
        });
        Arc::clone(&given.clock)
    }

    /// Returns the clock in which one peer is answered, for as long as it may read the stream.
    pub(super) fn lend(&mut self, uid: &Uid, (peer, asker): (&Peer, Asker)) -> Arc<StreamClock> {
        let clock = self.of(uid).lend();
        self.lent.retain(|lent| lent.clock.strong_count() > 0);
        self.lent.push(Lent {
            uid: uid.clone(),
            peer: peer.clone(),
            asker,
            clock: Arc::downgrade(&clock),
        });
        clock
    }

    /// Returns the streams whose clocks are lent.
    pub(super) fn lent(&self) -> impl Iterator<Item = &Uid> {
        self.lent.iter().map(|lent| &lent.uid)
    }

    /// Forgets a stream that is gone.
    pub(super) fn gone(&mut self, uid: &Uid) {
        self.machine.gone(uid);
        self.given.remove(uid);
        self.asking.remove(uid);
    }

    /// Notes the answer to a PING of a link, and answers for the streams behind it accordingly.
    pub(super) fn pong(&mut self, link: RelayId, times: [f64; 4], now: f64) -> Option<f64> {
        self.machine.pong(link, times, now);
        self.renew(now);
        self.machine.rtt(link)
    }

    /// Notes what a relay tells of a clock.
    pub(super) fn told(&mut self, link: RelayId, uid: &Uid, told: SourceClock, now: f64) {
        self.machine.told(link, uid, told, now);
        self.set(uid, now);
    }

    /// Answers by the estimates as they are now.
    pub(super) fn renew(&mut self, now: f64) {
        for (uid, given) in &self.given {
            given.clock.set(self.machine.estimate(uid, now));
        }
        (self.asking).retain(|_, (since, _)| now - *since < ASKED_SECS);
    }

    fn set(&self, uid: &Uid, now: f64) {
        if let Some(given) = self.given.get(uid) {
            given.clock.set(self.machine.estimate(uid, now));
        }
    }
}

impl State {
    /// Takes back the clocks of unsettled streams from peers that may not read them any more, and returns those.
    pub(super) fn take_back_clocks(&mut self) -> Vec<Lent> {
        let (book, unsettled) = (&self.book, &self.unsettled);
        let is_over = |lent: &mut Lent| {
            unsettled.contains_key(&lent.uid) && !book.may_read(&lent.uid, lent.asker)
        };
        let over: Vec<_> = self.clocks.lent.extract_if(.., is_over).collect();
        for clock in over.iter().filter_map(|lent| lent.clock.upgrade()) {
            clock.take_back();
        }
        over
    }

    /// Tells the machine of new questions.
    pub(super) fn notice_questions(&mut self, now: f64) {
        for (uid, given) in &mut self.clocks.given {
            let asked = given.clock.last_asked();
            if let Some(asked) = asked.filter(|asked| asked - given.noted > NOTE_SECS) {
                given.noted = asked;
                let way = self.book.way(uid);
                self.clocks.machine.asked(uid, None, way, now);
            }
        }
    }

    /// Does what the clocks want.
    pub(super) fn follow_clocks(&mut self, event: ClockEvent, shared: &Arc<Shared>, now: f64) {
        match event {
            ClockEvent::Measure { uid, on: true } => {
                let measuring = measure(Arc::clone(shared), uid.clone());
                let task = AbortOnDrop(shared.tasks.spawn(measuring));
                self.clocks.measuring.insert(uid, task);
            }
            ClockEvent::Measure { uid, on: false } => drop(self.clocks.measuring.remove(&uid)),
            ClockEvent::Ask { link, uid } => {
                let request = format!("LSL:timekeys/1 {uid}\r\n").into_bytes();
                let asking = self.link_to(link).map(|link| link.open(request));
                if let Some(Ok(substream)) = asking {
                    self.clocks.asking.insert(uid, (now, substream));
                }
            }
            ClockEvent::Tell { link, uid, clock } => {
                for (id, (watcher, outbox)) in &self.watchers {
                    // Nothing of a stream that it may not know of any more.
                    if *watcher == Some(link) && self.book.is_told(*id, &uid) {
                        outbox.put_clock(uid.clone(), clock);
                    }
                }
            }
            ClockEvent::PingEvery(link, secs) => {
                if let Some(link) = self.link_to(link) {
                    link.set_ping_secs(secs);
                }
            }
        }
    }
}

/// Measures the clock of a source that is seen on a face, until it is stopped.
async fn measure(shared: Arc<Shared>, uid: Uid) {
    let mut own = None;
    loop {
        let measured = measure_once(&shared, &uid, &mut own).await;
        if measured.is_err() {
            own = None;
        }
        tokio::time::sleep(MEASURE_EVERY).await;
    }
}

/// Measures once, by the inlet that reads the stream, if there is one, else by one that reads nothing.
async fn measure_once(shared: &Arc<Shared>, uid: &Uid, own: &mut Option<Inlet>) -> Result<()> {
    if shared.look(|state| state.book.way(uid)) == Some(Way::River) {
        let known = shared.look(|state| state.rivers.clock(uid));
        let known = known.ok_or_else(|| Error::Argument("nobody says its clock".into()))?;
        shared.act(|state, now| {
            state.clocks.machine.measured(uid, known, now);
            state.clocks.set(uid, now);
        });
        return Ok(());
    }
    let reading = shared.look(|state| state.flows.get(uid)?.inlet.upgrade());
    let correction = if let Some(inlet) = reading {
        inlet.time_correction(MEASURE_EVERY).await?
    } else {
        let inlet = if let Some(inlet) = own.take() {
            inlet
        } else {
            let seen = shared.look(|state| match state.book.way(uid)? {
                way @ Way::Direct(face) => {
                    let info = state.found.get(&(face, uid.clone()))?;
                    Some((info.clone(), shared.context_of(way)))
                }
                Way::Link(_) | Way::River => None,
            });
            let (info, context) = seen.ok_or_else(|| Error::Argument("it is not seen".into()))?;
            let inlet = Inlet::builder(&info).context(context);
            inlet.recover(false).create()?
        };
        own.insert(inlet).time_correction(MEASURE_EVERY).await?
    };
    let measured = SourceClock {
        offset_secs: -correction.offset_secs,
        uncertainty_secs: correction.uncertainty_secs,
        measured_at: correction.remote_time + correction.offset_secs,
    };
    shared.act(|state, now| {
        state.clocks.machine.measured(uid, measured, now);
        state.clocks.set(uid, now);
    });
    Ok(())
}

/// Task that ends with this.
#[derive(Debug)]
pub(super) struct AbortOnDrop(pub(super) AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

const MEASURE_EVERY: Duration = Duration::from_secs(2);

/// Time in seconds for which further questions are no news; they count for a minute.
const NOTE_SECS: f64 = 10.0;

/// Time in seconds after which a question to a relay counts no more there.
const ASKED_SECS: f64 = 60.0;
