use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;

/// A connection of which only the registration counts.
#[derive(Debug, Default)]
struct Fake {
    is_registered: bool,
    is_broken: bool,
}

impl Connection for Fake {
    fn is_registered(&self) -> bool {
        self.is_registered
    }

    fn unregister(&mut self) {
        self.is_registered = false;
    }

    fn is_broken(&self) -> bool {
        self.is_broken
    }
}

/// Reader of a stream that flows at this time.
fn flowing(now: f64) -> Reader<Fake, u32> {
    let mut reader = Reader::default();
    reader.begin(Fake::default());
    reader.on_read(now - 0.01);
    reader.on_read(now);
    reader
}

#[test]
fn one_leads_and_the_next_when_it_has_left() {
    let mut reader = flowing(10.0);
    reader.any_connection().unwrap().is_registered = true;
    let first = reader.lead(10.1, &1).unwrap();
    assert!(first.was_registered && !reader.any_connection().unwrap().is_registered);
    assert_eq!(reader.leader(), Some(&1));
    assert_eq!(reader.lead(10.1, &2), None);
    reader.resign(first.id);
    let second = reader.lead(10.1, &2).unwrap();
    assert!(!second.was_registered);
    // Who left twice takes nothing from anybody.
    reader.resign(first.id);
    assert!(reader.is_leader(second.id) && !reader.is_leader(first.id));
}

#[test]
fn slow_new_and_broken_streams_are_not_led() {
    let mut reader = flowing(10.0);
    assert_eq!(reader.lead(10.0 + QUIET_SECS, &1), None);
    reader.on_read(10.0 + QUIET_SECS);
    assert_eq!(reader.lead(10.0 + QUIET_SECS, &1), None, "the gap was long");
    reader.on_read(10.1 + QUIET_SECS);
    assert!(reader.lead(10.1 + QUIET_SECS, &1).is_some());
    let mut reader = flowing(10.0);
    reader.back_off();
    assert_eq!(reader.lead(10.0, &1), None);
    let mut reader = flowing(10.0);
    reader.any_connection().unwrap().is_broken = true;
    assert_eq!(reader.lead(10.0, &1), None);
    assert!(reader.connection().is_none() && reader.any_connection().is_some());
    let mut reader = Reader::<Fake, u32>::default();
    reader.begin(Fake::default());
    assert_eq!(reader.lead(10.0, &1), None);
}

#[test]
fn an_old_connection_ends_nothing_of_the_next() {
    let mut reader = flowing(10.0);
    let lead = reader.lead(10.0, &7).unwrap();
    let (connection, leader) = reader.close();
    assert!(connection.is_some() && leader == Some(7));
    assert!(!reader.is_leader(lead.id));
    let number = reader.begin(Fake::default());
    assert!(reader.end(number - 1).0.is_none());
    assert!(reader.connection_of(number - 1).is_none() && reader.connection_of(number).is_some());
    assert!(reader.connection().is_some());
    assert!(reader.end(number).0.is_some());
    assert!(reader.end(number).0.is_none());
}

#[test]
fn who_waits_has_the_socket_watched_and_who_stops_reading_too() {
    let mut reader = flowing(10.0);
    assert!(!reader.needs_reactor(10.0, false) && reader.needs_reactor(10.0, true));
    assert!(reader.request_reactor(10.0), "the task must be told");
    assert!(reader.needs_reactor(10.4, false) && !reader.needs_reactor(11.0, false));
    reader.any_connection().unwrap().is_registered = true;
    assert!(!reader.request_reactor(10.0), "it is watched");
    // A pull that found something takes it over, unless somebody waits or did just now.
    assert!(!reader.on_caller_read(10.1, true, false));
    assert!(!reader.on_caller_read(11.0, true, true));
    assert!(
        !reader.on_caller_read(11.0, false, false),
        "an idle stream stays"
    );
    assert!(reader.on_caller_read(11.0, true, false));
    assert!(!reader.any_connection().unwrap().is_registered);
    // The task leaves it to callers for a tick after they read.
    reader.on_read(11.0);
    assert!(reader.is_read_by_callers(11.0) && !reader.is_read_by_callers(11.0));
}

#[test]
fn polling_a_stream_that_stopped_does_not_keep_it_from_being_watched() {
    let mut reader = flowing(10.0);
    reader.on_caller_read(10.1, false, false);
    assert!(reader.is_read_by_callers(10.1), "it may only be slow");
    reader.on_caller_read(10.0 + QUIET_SECS, false, false);
    assert!(!reader.is_read_by_callers(10.0 + QUIET_SECS));
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

/// A socket, a ring, three pulling threads and the data task, all by the rules of `inlet::reader`.
#[derive(Debug, Default)]
struct World {
    reader: Reader<Fake, usize>,
    number: u64,
    now: f64,
    socket: VecDeque<u32>,
    sent: u32,
    ring: VecDeque<u32>,
    pulled: Vec<u32>,
    leader: Option<(LeaderId, usize)>,
    interrupted: bool,
    task_woken: bool,
    is_open: bool,
}

impl World {
    fn read(&mut self, by_leader: bool) -> bool {
        if self.reader.connection().is_none() || self.socket.is_empty() {
            return false;
        }
        self.ring.append(&mut self.socket);
        self.reader.on_read(self.now);
        if !by_leader && self.reader.leader().is_some() {
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
                let former = self.leader.map(|(id, _)| id);
                let is_led = former.is_some_and(|it| self.reader.is_leader(it));
                match self.reader.lead(self.now, &thread) {
                    Some(lead) => {
                        assert!(!is_led, "two lead");
                        self.task_woken |= lead.was_registered;
                        self.leader = Some((lead.id, thread));
                        // One whose connection ended may not have woken up yet: it does now.
                        if let Some(former) = former {
                            self.reader.resign(former);
                            self.interrupted = false;
                        }
                    }
                    None => self.task_woken |= self.reader.request_reactor(self.now),
                }
            }
            Event::Wakes => {
                let Some((id, _)) = self.leader else {
                    return;
                };
                if self.reader.is_leader(id) {
                    self.read(true);
                }
                self.interrupted = false;
                if self.pop() || !self.reader.is_leader(id) {
                    self.reader.resign(id);
                    self.leader = None;
                }
            }
            Event::Look if !self.pop() => {
                let arrived = self.read(false);
                self.task_woken |= self.reader.on_caller_read(self.now, arrived, false);
                self.pop();
            }
            Event::AsyncWait if !self.pop() => {
                self.task_woken |= self.reader.request_reactor(self.now);
            }
            Event::Task if self.reader.leader().is_none() => {
                self.task_woken = false;
                if self.reader.needs_reactor(self.now, false)
                    && let Some(connection) = self.reader.connection()
                {
                    connection.is_registered = true;
                }
                if self.reader.connection().is_some_and(|it| it.is_registered) {
                    self.read(false);
                }
            }
            Event::TaskTick if self.reader.leader().is_none() => {
                if !self.reader.is_read_by_callers(self.now)
                    && !self.read(false)
                    && let Some(connection) = self.reader.connection()
                {
                    connection.is_registered = true;
                }
            }
            Event::Later => self.now += 0.1,
            Event::Break => {
                if let Some(connection) = self.reader.connection() {
                    connection.is_broken = true;
                }
            }
            Event::Close | Event::Reconnect => {
                // What was not read is gone with the connection.
                self.pulled.extend(self.ring.drain(..));
                self.pulled.extend(self.socket.drain(..));
                let (_, leader) = self.reader.end(self.number);
                self.interrupted |= leader.is_some();
                self.is_open = matches!(event, Event::Reconnect);
                if self.is_open {
                    self.number = self.reader.begin(Fake::default());
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
        let is_registered = self.reader.connection().is_some_and(|it| it.is_registered);
        if let Some((id, thread)) = self.leader {
            if self.reader.is_leader(id) {
                assert_eq!(self.reader.leader(), Some(&thread));
                assert!(!is_registered, "the leader and the reactor are both woken");
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
            assert_eq!(self.reader.leader(), None, "led by nobody");
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
