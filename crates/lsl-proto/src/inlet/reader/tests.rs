use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;

/// The reader of a stream that flows at this time.
fn flowing(now: f64) -> Reader<u32> {
    let mut reader = Reader::default();
    reader.begin();
    reader.on_read(now - 0.01);
    reader.on_read(now);
    reader
}

#[test]
fn one_leads_and_the_next_when_it_has_left() {
    let mut reader = flowing(10.0);
    let first = reader.lead(10.1, &1).unwrap();
    assert_eq!(reader.leader(), Some(&1));
    assert_eq!(reader.lead(10.1, &2), None);
    reader.resign(first);
    let second = reader.lead(10.1, &2).unwrap();
    // Who left twice takes nothing from anybody.
    reader.resign(first);
    assert!(reader.is_leader(second) && !reader.is_leader(first));
}

#[test]
fn slow_and_new_streams_are_not_led() {
    let mut reader = flowing(10.0);
    assert_eq!(reader.lead(10.0 + QUIET_SECS, &1), None);
    reader.on_read(10.0 + QUIET_SECS);
    assert_eq!(reader.lead(10.0 + QUIET_SECS, &1), None, "the gap was long");
    reader.on_read(10.1 + QUIET_SECS);
    assert!(reader.lead(10.1 + QUIET_SECS, &1).is_some());
    let mut reader = flowing(10.0);
    reader.back_off();
    assert_eq!(reader.lead(10.0, &1), None);
    let mut reader = Reader::<u32>::default();
    reader.begin();
    assert_eq!(reader.lead(10.0, &1), None);
}

#[test]
fn a_leader_loses_the_lead_with_its_connection() {
    let mut reader = flowing(10.0);
    let lead = reader.lead(10.0, &7).unwrap();
    assert_eq!(reader.end(), Some(7));
    assert!(!reader.is_leader(lead));
    reader.begin();
    assert_eq!((reader.end(), reader.leader()), (None, None));
}

#[test]
fn a_leader_that_does_not_come_back_loses_the_lead() {
    let mut reader = flowing(10.0);
    let lead = reader.lead(10.0, &7).unwrap();
    let quiet_at = reader.quiet_at();
    assert_eq!(reader.depose(quiet_at), None, "it is late");
    assert_eq!(reader.depose(quiet_at + OVERDUE_SECS), Some(7));
    assert!(!reader.is_leader(lead));
    assert_eq!(reader.depose(quiet_at + OVERDUE_SECS), None);
}

#[test]
fn who_waits_has_the_socket_registered_and_who_stops_reading_too() {
    let mut reader = flowing(10.0);
    assert!(!reader.needs_reactor(10.0, false) && reader.needs_reactor(10.0, true));
    assert!(reader.request_reactor(10.0), "the task must be told");
    assert!(reader.needs_reactor(10.4, false) && !reader.needs_reactor(11.0, false));
    // A pull that found something takes it over, unless somebody waits or did just now.
    assert!(!reader.on_caller_read(10.1, true, false));
    assert!(!reader.on_caller_read(11.0, true, true));
    assert!(
        !reader.on_caller_read(11.0, false, false),
        "an idle stream stays"
    );
    assert!(reader.on_caller_read(11.0, true, false));
    // The task leaves it to callers for a tick after they read.
    reader.on_read(11.0);
    assert!(reader.is_read_by_callers(11.0) && !reader.is_read_by_callers(11.0));
}

#[test]
fn polling_a_stream_that_stopped_does_not_keep_it_from_being_registered() {
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

/// A socket, a ring, three pulling threads and the inlet's task, all by the rules of `lsl_core::drive_inlet`.
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
#[derive(Debug, Default)]
struct World {
    reader: Reader<usize>,
    /// Of the socket with the reactor.
    is_registered: bool,
    is_broken: bool,
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
    fn is_readable(&self) -> bool {
        self.is_open && !self.is_broken
    }

    fn request_reactor(&mut self) {
        let needed = self.reader.request_reactor(self.now);
        self.task_woken |= needed && self.is_readable() && !self.is_registered;
    }

    fn read(&mut self, by_leader: bool) -> bool {
        if !self.is_readable() || self.socket.is_empty() {
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
                let lead = (self.is_readable())
                    .then(|| self.reader.lead(self.now, &thread))
                    .flatten();
                match lead {
                    Some(id) => {
                        assert!(!is_led, "two lead");
                        self.task_woken |= std::mem::take(&mut self.is_registered);
                        self.leader = Some((id, thread));
                        // One whose connection ended may not have woken up yet: it does now.
                        if let Some(former) = former {
                            self.reader.resign(former);
                            self.interrupted = false;
                        }
                    }
                    None => self.request_reactor(),
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
                if self.reader.on_caller_read(self.now, arrived, false) {
                    self.task_woken |= std::mem::take(&mut self.is_registered);
                }
                self.pop();
            }
            Event::AsyncWait if !self.pop() => self.request_reactor(),
            Event::Task if self.reader.leader().is_none() => {
                self.task_woken = false;
                if self.reader.needs_reactor(self.now, false) && self.is_readable() {
                    self.is_registered = true;
                }
                if self.is_registered {
                    self.read(false);
                }
            }
            Event::TaskTick if self.reader.leader().is_none() => {
                let is_idle = !self.reader.is_read_by_callers(self.now) && !self.read(false);
                self.is_registered |= is_idle && self.is_readable();
            }
            Event::Later => {
                self.now += 0.1;
                // The task looks.
                self.interrupted |= self.reader.depose(self.now).is_some();
            }
            Event::Break => self.is_broken = true,
            Event::Close | Event::Reconnect => {
                // What was not read is gone with the connection.
                self.pulled.extend(self.ring.drain(..));
                self.pulled.extend(self.socket.drain(..));
                self.interrupted |= self.reader.end().is_some();
                self.is_open = matches!(event, Event::Reconnect);
                (self.is_registered, self.is_broken) = (false, false);
                self.reader.begin();
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
        if let Some((id, thread)) = self.leader {
            if self.reader.is_leader(id) {
                assert_eq!(self.reader.leader(), Some(&thread));
                assert!(
                    !self.is_registered,
                    "the leader and the reactor are both woken"
                );
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
