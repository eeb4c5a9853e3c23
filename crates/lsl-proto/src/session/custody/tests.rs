use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;

/// A connection of which only the registration counts.
#[derive(Debug, Default)]
struct Fake {
    is_watched: bool,
    is_broken: bool,
}

impl Connection for Fake {
    fn is_watched(&self) -> bool {
        self.is_watched
    }

    fn unwatch(&mut self) {
        self.is_watched = false;
    }

    fn is_broken(&self) -> bool {
        self.is_broken
    }
}

/// Custody of a stream that flows at this time.
fn flowing(now: f64) -> Custody<Fake, u32> {
    let mut custody = Custody::default();
    custody.begin(Fake::default());
    custody.arrived(now - 0.01);
    custody.arrived(now);
    custody
}

#[test]
fn one_leads_and_the_next_when_it_has_left() {
    let mut custody = flowing(10.0);
    custody.any_connection().unwrap().is_watched = true;
    let first = custody.lead(10.1, &1).unwrap();
    assert!(first.was_watched && !custody.any_connection().unwrap().is_watched);
    assert_eq!(custody.leader(), Some(&1));
    assert_eq!(custody.lead(10.1, &2), None);
    custody.leave(first.ticket);
    let second = custody.lead(10.1, &2).unwrap();
    assert!(!second.was_watched);
    // Who left twice takes nothing from anybody.
    custody.leave(first.ticket);
    assert!(custody.is_led_by(second.ticket) && !custody.is_led_by(first.ticket));
}

#[test]
fn slow_new_and_broken_streams_are_not_led() {
    let mut custody = flowing(10.0);
    assert_eq!(custody.lead(10.0 + QUIET_SECS, &1), None);
    custody.arrived(10.0 + QUIET_SECS);
    assert_eq!(
        custody.lead(10.0 + QUIET_SECS, &1),
        None,
        "the gap was long"
    );
    custody.arrived(10.1 + QUIET_SECS);
    assert!(custody.lead(10.1 + QUIET_SECS, &1).is_some());
    let mut custody = flowing(10.0);
    custody.doubt();
    assert_eq!(custody.lead(10.0, &1), None);
    let mut custody = flowing(10.0);
    custody.any_connection().unwrap().is_broken = true;
    assert_eq!(custody.lead(10.0, &1), None);
    assert!(custody.connection().is_none() && custody.any_connection().is_some());
    let mut custody = Custody::<Fake, u32>::default();
    custody.begin(Fake::default());
    assert_eq!(custody.lead(10.0, &1), None);
}

#[test]
fn an_old_connection_ends_nothing_of_the_next() {
    let mut custody = flowing(10.0);
    let lead = custody.lead(10.0, &7).unwrap();
    let (connection, leader) = custody.close();
    assert!(connection.is_some() && leader == Some(7));
    assert!(!custody.is_led_by(lead.ticket));
    let number = custody.begin(Fake::default());
    assert!(custody.end(number - 1).0.is_none());
    assert!(custody.connection_of(number - 1).is_none() && custody.connection_of(number).is_some());
    assert!(custody.connection().is_some());
    assert!(custody.end(number).0.is_some());
    assert!(custody.end(number).0.is_none());
}

#[test]
fn who_waits_has_the_socket_watched_and_who_stops_reading_too() {
    let mut custody = flowing(10.0);
    assert!(!custody.shall_watch(10.0, false) && custody.shall_watch(10.0, true));
    assert!(custody.ask(10.0), "the task must be told");
    assert!(custody.shall_watch(10.4, false) && !custody.shall_watch(11.0, false));
    custody.any_connection().unwrap().is_watched = true;
    assert!(!custody.ask(10.0), "it is watched");
    // A pull that found something takes it over, unless somebody waits or did just now.
    assert!(!custody.pulled(10.1, true, false));
    assert!(!custody.pulled(11.0, true, true));
    assert!(!custody.pulled(11.0, false, false), "an idle stream stays");
    assert!(custody.pulled(11.0, true, false));
    assert!(!custody.any_connection().unwrap().is_watched);
    // The task leaves it to callers for a tick after they read.
    custody.arrived(11.0);
    assert!(custody.is_read_by_callers(11.0) && !custody.is_read_by_callers(11.0));
}

#[test]
fn polling_a_stream_that_stopped_does_not_keep_it_from_being_watched() {
    let mut custody = flowing(10.0);
    custody.pulled(10.1, false, false);
    assert!(custody.is_read_by_callers(10.1), "it may only be slow");
    custody.pulled(10.0 + QUIET_SECS, false, false);
    assert!(!custody.is_read_by_callers(10.0 + QUIET_SECS));
}

/// What can happen to an inlet, in any order.
#[derive(Debug, Clone, Copy)]
enum Event {
    Arrives,
    Lead(usize),
    /// A leader that the socket or an interrupt woke.
    Wakes,
    Look,
    AsyncWait,
    Task,
    TaskTick,
    Later,
    Break,
    Reconnect,
    Close,
}

/// A socket, a ring, three pulling threads and the data task, all by the rules of `net::custody`.
#[derive(Debug, Default)]
struct World {
    custody: Custody<Fake, usize>,
    number: u64,
    now: f64,
    socket: VecDeque<u32>,
    sent: u32,
    ring: VecDeque<u32>,
    pulled: Vec<u32>,
    leader: Option<(Ticket, usize)>,
    interrupted: bool,
    task_woken: bool,
    is_open: bool,
}

impl World {
    fn read(&mut self, by_leader: bool) -> bool {
        if self.custody.connection().is_none() || self.socket.is_empty() {
            return false;
        }
        self.ring.append(&mut self.socket);
        self.custody.arrived(self.now);
        if !by_leader && self.custody.leader().is_some() {
            self.interrupted = true;
        }
        true
    }

    fn pop(&mut self) -> bool {
        self.ring
            .pop_front()
            .map(|it| self.pulled.push(it))
            .is_some()
    }

    fn apply(&mut self, event: Event) {
        match event {
            Event::Arrives if self.is_open => {
                self.socket.push_back(self.sent);
                self.sent += 1;
            }
            Event::Lead(thread) if !self.pop() => {
                let former = self.leader.map(|(ticket, _)| ticket);
                let is_led = former.is_some_and(|it| self.custody.is_led_by(it));
                match self.custody.lead(self.now, &thread) {
                    Some(lead) => {
                        assert!(!is_led, "two lead");
                        self.task_woken |= lead.was_watched;
                        self.leader = Some((lead.ticket, thread));
                        // One whose connection ended may not have woken up yet: it does now.
                        if let Some(former) = former {
                            self.custody.leave(former);
                            self.interrupted = false;
                        }
                    }
                    None => self.task_woken |= self.custody.ask(self.now),
                }
            }
            Event::Wakes => {
                let Some((ticket, _)) = self.leader else {
                    return;
                };
                if self.custody.is_led_by(ticket) {
                    self.read(true);
                }
                self.interrupted = false;
                if self.pop() || !self.custody.is_led_by(ticket) {
                    self.custody.leave(ticket);
                    self.leader = None;
                }
            }
            Event::Look if !self.pop() => {
                let arrived = self.read(false);
                self.task_woken |= self.custody.pulled(self.now, arrived, false);
                self.pop();
            }
            Event::AsyncWait if !self.pop() => self.task_woken |= self.custody.ask(self.now),
            Event::Task if self.custody.leader().is_none() => {
                self.task_woken = false;
                if self.custody.shall_watch(self.now, false)
                    && let Some(connection) = self.custody.connection()
                {
                    connection.is_watched = true;
                }
                if self.custody.connection().is_some_and(|it| it.is_watched) {
                    self.read(false);
                }
            }
            Event::TaskTick if self.custody.leader().is_none() => {
                if !self.custody.is_read_by_callers(self.now)
                    && !self.read(false)
                    && let Some(connection) = self.custody.connection()
                {
                    connection.is_watched = true;
                }
            }
            Event::Later => self.now += 0.1,
            Event::Break => {
                if let Some(connection) = self.custody.connection() {
                    connection.is_broken = true;
                }
            }
            Event::Close | Event::Reconnect => {
                // What was not read is gone with the connection.
                self.pulled.extend(self.ring.drain(..));
                self.pulled.extend(self.socket.drain(..));
                let (_, leader) = self.custody.end(self.number);
                self.interrupted |= leader.is_some();
                self.is_open = matches!(event, Event::Reconnect);
                if self.is_open {
                    self.number = self.custody.begin(Fake::default());
                }
            }
            _ => {}
        }
    }

    /// What must hold whatever happened.
    fn check(&mut self) {
        let in_order = self.pulled.iter().chain(&self.ring).chain(&self.socket);
        assert!(
            in_order.copied().eq(0..self.sent),
            "lost, doubled or out of order"
        );
        let is_watched = self.custody.connection().is_some_and(|it| it.is_watched);
        if let Some((ticket, thread)) = self.leader {
            if self.custody.is_led_by(ticket) {
                assert_eq!(self.custody.leader(), Some(&thread));
                assert!(!is_watched, "the leader and the reactor are both woken");
                assert!(
                    self.ring.is_empty() || self.interrupted,
                    "a leader sleeps on samples"
                );
            } else {
                assert!(
                    self.interrupted,
                    "a leader waits for a connection that is gone"
                );
            }
        } else {
            assert_eq!(self.custody.leader(), None, "led by nobody");
        }
    }
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        6 => Just(Event::Arrives),
        4 => (0usize..3).prop_map(Event::Lead),
        6 => Just(Event::Wakes),
        2 => Just(Event::Look),
        2 => Just(Event::AsyncWait),
        3 => Just(Event::Task),
        2 => Just(Event::TaskTick),
        2 => Just(Event::Later),
        1 => Just(Event::Break),
        1 => Just(Event::Reconnect),
        1 => Just(Event::Close),
    ]
}

proptest! {
    #[test]
    fn nothing_is_lost_and_one_leads_in_any_order_of_events(
        events in proptest::collection::vec(event(), 1..200),
    ) {
        let mut world = World::default();
        world.apply(Event::Reconnect);
        for event in events {
            // A thread that leads is blocked; only another one can want to pull.
            if let (Event::Lead(thread), Some((_, leading))) = (event, world.leader)
                && thread == leading
            {
                continue;
            }
            world.apply(event);
            world.check();
        }
    }
}
