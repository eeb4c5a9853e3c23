//! Layer 24 of the verification programme: a recorder opens 400 sessions at an outlet that is being
//! flooded. Connections, round trips and time-outs are played on a fake clock.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};

use super::pacing::{Pace, Pacing, Slot};
use super::*;

/// Behaviour of attackers once they are connected.
#[derive(Debug, Clone, Copy)]
enum Attack {
    /// Send M1, take M2, say nothing more.
    SilentAfterM2,
    /// Send M1 and an M3 that does not open.
    WrongM3,
    /// Send half a preamble and stay silent.
    SilentFromTheStart,
}

#[derive(Debug, Clone, Copy)]
struct Flood {
    sources: u32,
    per_second: u32,
    attack: Attack,
}

/// Result of a run for the recorder.
#[derive(Debug, Default)]
struct RecorderOutcome {
    /// From the first connection to the last session, for each time it connected.
    open_secs: Vec<f64>,
    /// Connections that were refused or pushed out and came again.
    retries: u32,
    most_pending: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum SimulatedEvent {
    FloodArrives(u32),
    RecorderStarts,
    /// A handshake of the recorder connects; the number is its pacing slot's place in `slots`.
    Connect(usize),
    /// M1 is there; asks for a turn. The second is when the connection gives up, in microseconds.
    Ask(u64, u64),
    /// Somebody else's call gave it its turn.
    Wake(u64),
    /// The peer answers M2, or its time for that is over.
    Finish(u64),
    /// No turn came in time.
    GiveUp(u64),
    RecorderLeaves,
}

/// Connection to which a ticket belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owner {
    Flood,
    Recorder(usize),
}

struct Simulation {
    admission: Admission,
    /// Whether the outlet wakes those whose turn has come, or leaves them asleep.
    wakes: bool,
    pacing: Pacing,
    flood: Option<Flood>,
    events: BinaryHeap<Reverse<(u64, SimulatedEvent)>>,
    owners: HashMap<u64, Owner>,
    working: HashSet<u64>,
    slots: Vec<Slot>,
    open: usize,
    started: u64,
    outcome: RecorderOutcome,
    random: u64,
}

const OUTLET: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
const RECORDER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2));
const SESSIONS: usize = 400;
/// Between two machines of a laboratory, with the work on both sides.
const ROUND_TRIP: u64 = 2_000;
const SECOND: u64 = 1_000_000;

impl Simulation {
    fn new(max_pending: usize, flood: Option<Flood>, wakes: bool) -> Self {
        Self {
            wakes,
            admission: Admission::new(max_pending),
            pacing: Pacing::default(),
            flood,
            events: BinaryHeap::new(),
            owners: HashMap::new(),
            working: HashSet::new(),
            slots: Vec::new(),
            open: 0,
            started: 0,
            outcome: RecorderOutcome::default(),
            random: 1,
        }
    }

    /// The recorder connects when the flood has filled everything, leaves when all is open, and
    /// connects again, known by now.
    fn run(mut self) -> RecorderOutcome {
        if let Some(flood) = self.flood {
            self.at(0, SimulatedEvent::FloodArrives(flood.sources));
        }
        // A slow flood fills everything in the time its connections live.
        let is_fast = self.flood.is_some_and(|flood| flood.per_second > 1000);
        let filled = if is_fast { 2 * SECOND } else { 6 * SECOND };
        self.at(filled, SimulatedEvent::RecorderStarts);
        while let Some(Reverse((now, event))) = self.events.pop() {
            self.step(now, event);
            if self.wakes {
                for ticket in self.admission.next(secs(now)) {
                    self.at(now, SimulatedEvent::Wake(ticket.0));
                }
            }
            let pending = self.admission.pending();
            self.outcome.most_pending = self.outcome.most_pending.max(pending);
            if self.outcome.open_secs.len() == 2 || now > filled + 20 * SECOND {
                break;
            }
        }
        self.outcome
    }

    fn at(&mut self, time: u64, event: SimulatedEvent) {
        self.events.push(Reverse((time, event)));
    }

    fn step(&mut self, now: u64, event: SimulatedEvent) {
        let clock = secs(now);
        match event {
            SimulatedEvent::FloodArrives(number) => self.flood_arrives(number, now),
            SimulatedEvent::RecorderStarts => {
                self.started = now;
                self.slots.clear();
                for index in 0..SESSIONS {
                    let pace = self.pacing.enter(OUTLET);
                    match pace {
                        Pace::Go(slot) => {
                            self.slots.push(slot);
                            self.at(now, SimulatedEvent::Connect(index));
                        }
                        Pace::Queue(slot) => self.slots.push(slot),
                    }
                }
            }
            SimulatedEvent::Connect(index) => {
                match self.arrive(RECORDER, Owner::Recorder(index), now) {
                    Some(ticket) => {
                        let m1_at = now + ROUND_TRIP / 2;
                        self.at(m1_at, SimulatedEvent::Ask(ticket.0, m1_at + 3 * SECOND));
                    }
                    None => self.retry(index, now),
                }
            }
            SimulatedEvent::Ask(number, give_up) => {
                if !self.owners.contains_key(&number) || self.working.contains(&number) {
                    return;
                }
                match self.admission.turn(Ticket(number), clock) {
                    Turn::Now => self.work(number, now),
                    Turn::Wait(at) => {
                        assert!(at > clock && at <= clock + 0.1 + 1e-9);
                        let at = micros(at).max(now + 1);
                        if at < give_up {
                            self.at(at, SimulatedEvent::Ask(number, give_up));
                        } else {
                            self.at(give_up, SimulatedEvent::GiveUp(number));
                        }
                    }
                }
            }
            SimulatedEvent::Wake(number) => {
                if self.owners.contains_key(&number) {
                    assert_eq!(self.admission.turn(Ticket(number), clock), Turn::Now);
                    self.work(number, now);
                }
            }
            SimulatedEvent::GiveUp(number) => {
                if !self.working.contains(&number) {
                    self.step(now, SimulatedEvent::Finish(number));
                }
            }
            SimulatedEvent::Finish(number) => {
                let Some(owner) = self.owners.remove(&number) else {
                    return;
                };
                let ticket = Ticket(number);
                match owner {
                    Owner::Recorder(index)
                        if self.admission.stages.get(&ticket) == Some(&Stage::Working) =>
                    {
                        self.admission.succeeded(ticket, clock);
                        self.open += 1;
                        if self.open == SESSIONS {
                            self.outcome.open_secs.push(secs(now - self.started));
                            self.at(now + SECOND, SimulatedEvent::RecorderLeaves);
                        }
                        if let Some(next) = self.pacing.leave(self.slots[index]) {
                            let next = self.slots.iter().position(|slot| *slot == next);
                            self.at(now, SimulatedEvent::Connect(next.unwrap()));
                        }
                    }
                    Owner::Recorder(index) => {
                        self.admission.failed(ticket, clock);
                        self.retry(index, now);
                    }
                    Owner::Flood => self.admission.failed(ticket, clock),
                }
            }
            SimulatedEvent::RecorderLeaves => {
                for _ in 0..SESSIONS {
                    self.admission.session_closed(RECORDER, clock);
                }
                self.open = 0;
                self.at(now + SECOND, SimulatedEvent::RecorderStarts);
            }
        }
    }

    fn flood_arrives(&mut self, number: u32, now: u64) {
        let flood = self.flood.unwrap();
        let address = 0x0a01_0000 + number % flood.sources;
        let source = IpAddr::from(address.to_be_bytes());
        if let Some(ticket) = self.arrive(source, Owner::Flood, now) {
            let give_up = now + 3 * SECOND;
            match flood.attack {
                Attack::SilentFromTheStart => self.at(give_up, SimulatedEvent::Finish(ticket.0)),
                Attack::SilentAfterM2 | Attack::WrongM3 => {
                    self.at(now, SimulatedEvent::Ask(ticket.0, give_up));
                }
            }
        }
        let next = now + SECOND / u64::from(flood.per_second);
        self.at(next, SimulatedEvent::FloodArrives(number + 1));
    }

    /// Asymmetric work, then M2, then what the peer makes of it.
    fn work(&mut self, number: u64, now: u64) {
        if !self.working.insert(number) {
            // Woken and asked at the same moment.
            return;
        }
        let finished = match (self.owners[&number], self.flood) {
            (Owner::Flood, Some(flood)) => match flood.attack {
                Attack::WrongM3 => ROUND_TRIP,
                _ => 5 * SECOND,
            },
            _ => ROUND_TRIP,
        };
        self.at(now + finished, SimulatedEvent::Finish(number));
    }

    fn arrive(&mut self, source: IpAddr, owner: Owner, now: u64) -> Option<Ticket> {
        match self.admission.arrive(source, secs(now)) {
            Arrival::Refuse => None,
            Arrival::Serve(ticket, evicted) => {
                self.owners.insert(ticket.0, owner);
                let evicted = evicted.and_then(|ticket| self.owners.remove(&ticket.0));
                if let Some(Owner::Recorder(index)) = evicted {
                    self.retry(index, now);
                }
                Some(ticket)
            }
        }
    }

    /// After 503: between a quarter of a second and one.
    fn retry(&mut self, index: usize, now: u64) {
        self.outcome.retries += 1;
        self.random = self
            .random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let pause = SECOND / 4 + (self.random >> 33) % (SECOND * 3 / 4);
        self.at(now + pause, SimulatedEvent::Connect(index));
    }
}

#[expect(clippy::cast_precision_loss, reason = "a minute of microseconds")]
fn secs(micros: u64) -> f64 {
    micros as f64 / 1e6
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a minute of microseconds"
)]
fn micros(secs: f64) -> u64 {
    (secs * 1e6).ceil() as u64
}

const MAX_PENDING: usize = 1024;

fn check(max_pending: usize, flood: Option<Flood>, wakes: bool, limit_secs: f64) {
    let outcome = Simulation::new(max_pending, flood, wakes).run();
    let case = format!("{max_pending} {flood:?} {wakes}: {outcome:?}");
    println!("{case}");
    assert_eq!(outcome.open_secs.len(), 2, "{case}");
    assert!(
        outcome.open_secs.iter().all(|secs| *secs < limit_secs),
        "{case}"
    );
    assert!(outcome.most_pending <= max_pending, "{case}");
}

#[test]
fn without_a_flood_a_recorder_is_not_slowed() {
    // 400 sessions, 64 at a time, three thousandths of a second each.
    check(MAX_PENDING, None, true, 0.05);
}

#[test]
fn a_recorder_opens_its_sessions_in_any_flood() {
    let floods = [
        (1, 2000, Attack::SilentAfterM2),
        (4, 200, Attack::SilentAfterM2),
        (4, 2000, Attack::SilentAfterM2),
        (254, 200, Attack::SilentAfterM2),
        (254, 2000, Attack::SilentAfterM2),
        (4, 2000, Attack::WrongM3),
        (254, 2000, Attack::WrongM3),
        (4, 2000, Attack::SilentFromTheStart),
        (254, 2000, Attack::SilentFromTheStart),
    ];
    for (sources, per_second, attack) in floods {
        let flood = Flood {
            sources,
            per_second,
            attack,
        };
        check(MAX_PENDING, Some(flood), true, 5.0);
        if per_second == 2000 {
            // With 128 descriptors, and an outlet that wakes nobody.
            check(128 / 4, Some(flood), false, 5.0);
        }
    }
    let worst = Flood {
        sources: 254,
        per_second: 2000,
        attack: Attack::SilentAfterM2,
    };
    check(MAX_PENDING, Some(worst), false, 5.0);
    check(128 / 4, Some(worst), true, 5.0);
}
