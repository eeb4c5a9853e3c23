use std::cell::{Cell, RefCell};
use std::rc::Rc;

use proptest::prelude::*;

use super::*;

/// A socket that takes as many bytes as it is told to have room for.
#[derive(Debug, Default)]
struct Socket {
    received: RefCell<Vec<u8>>,
    room: Cell<usize>,
    wakes: Cell<usize>,
    broken: Cell<bool>,
    goodbyes: Cell<usize>,
}

impl Wire for Rc<Socket> {
    fn try_send(&self, bytes: &[u8]) -> io::Result<usize> {
        if self.broken.get() {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        let taken = bytes.len().min(self.room.get());
        if taken == 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        self.room.set(self.room.get() - taken);
        self.received
            .borrow_mut()
            .extend_from_slice(&bytes[..taken]);
        Ok(taken)
    }

    fn wake(&self) {
        self.wakes.set(self.wakes.get() + 1);
    }

    fn say_goodbye(&self) {
        self.goodbyes.set(self.goodbyes.get() + 1);
    }
}

const ID: ConsumerId = ConsumerId(7);

fn lane(terms: Terms) -> (Lane<Rc<Socket>>, Rc<Socket>) {
    let socket = Rc::new(Socket::default());
    socket.room.set(usize::MAX);
    let mut lane = Lane::default();
    lane.register(ID, Rc::clone(&socket), terms, b"<".to_vec());
    drain_all(&mut lane, &socket);
    (lane, socket)
}

/// What the consumer's task does, as long as the socket takes it.
fn drain_all(lane: &mut Lane<Rc<Socket>>, socket: &Rc<Socket>) -> Drain {
    let mut out = Vec::new();
    loop {
        match lane.drain(ID, 8, &mut out) {
            Drain::Send => {
                socket.received.borrow_mut().extend_from_slice(&out);
                out.clear();
            }
            other => return other,
        }
    }
}

fn push(lane: &mut Lane<Rc<Socket>>, text: &str, pushthrough: Pushthrough) -> u64 {
    let ends: Vec<usize> = (1..=text.len() / 2).map(|n| n * 2).collect();
    lane.publish(text.as_bytes(), &ends, pushthrough, SendBy::Pusher)
}

fn received(socket: &Socket) -> String {
    String::from_utf8(socket.received.borrow().clone()).unwrap()
}

const TERMS: Terms = Terms {
    capacity: 4,
    chunk: 3,
};

#[test]
fn a_caught_up_consumer_is_sent_to_at_once_and_nobody_is_woken() {
    let (mut lane, socket) = lane(TERMS);
    push(&mut lane, "a1", Pushthrough::Flush);
    push(&mut lane, "b1b2", Pushthrough::Flush);
    assert_eq!(received(&socket), "<a1b1b2");
    assert_eq!((socket.wakes.get(), lane.backlog_bytes()), (0, 0));
}

#[test]
fn held_samples_wait_for_a_flush_or_a_full_chunk() {
    let (mut lane, socket) = lane(TERMS);
    push(&mut lane, "a1", Pushthrough::Hold);
    push(&mut lane, "a2", Pushthrough::Hold);
    assert_eq!(received(&socket), "<");
    push(&mut lane, "a3", Pushthrough::Hold);
    assert_eq!(drain_all(&mut lane, &socket), Drain::Idle);
    assert_eq!(received(&socket), "<a1a2a3");
    push(&mut lane, "b1", Pushthrough::Hold);
    push(&mut lane, "b2", Pushthrough::Flush);
    drain_all(&mut lane, &socket);
    assert_eq!(received(&socket), "<a1a2a3b1b2");
    assert_eq!(lane.backlog_bytes(), 0);
}

#[test]
fn a_full_socket_wakes_its_task_once() {
    let (mut lane, socket) = lane(TERMS);
    socket.room.set(0);
    push(&mut lane, "a1", Pushthrough::Flush);
    push(&mut lane, "a2", Pushthrough::Flush);
    assert_eq!(socket.wakes.get(), 1);
    assert_eq!(drain_all(&mut lane, &socket), Drain::Idle);
    assert_eq!(received(&socket), "<a1a2");
    socket.room.set(usize::MAX);
    push(&mut lane, "a3", Pushthrough::Flush);
    assert_eq!(received(&socket), "<a1a2a3");
    assert_eq!(socket.wakes.get(), 1);
}

#[test]
fn the_oldest_are_dropped_and_counted_but_never_the_rest_of_a_cut_frame() {
    let (mut lane, socket) = lane(TERMS);
    socket.room.set(1);
    let mut dropped = 0;
    for text in ["a1", "a2", "a3", "a4", "a5", "a6", "a7"] {
        dropped += push(&mut lane, text, Pushthrough::Flush);
    }
    drain_all(&mut lane, &socket);
    assert_eq!(received(&socket), "<a1a4a5a6a7");
    assert_eq!(dropped, 2);
    let progress = lane.remove(ID).unwrap();
    assert_eq!(
        progress,
        Progress {
            sent: 5,
            dropped: 2,
            behind: 0
        }
    );
}

#[test]
fn a_ring_full_of_held_samples_is_flushed_before_any_is_dropped() {
    let (mut lane, socket) = lane(Terms {
        capacity: 2,
        chunk: 100,
    });
    for text in ["a1", "a2", "a3", "a4", "a5"] {
        assert_eq!(push(&mut lane, text, Pushthrough::Hold), 0);
        drain_all(&mut lane, &socket);
    }
    assert_eq!(received(&socket), "<a1a2a3a4");
}

#[test]
fn held_samples_take_no_room_from_those_that_flush_them() {
    let (mut lane, socket) = lane(TERMS);
    push(&mut lane, "a1a2", Pushthrough::Hold);
    assert_eq!(push(&mut lane, "b1b2b3b4", Pushthrough::Flush), 0);
    drain_all(&mut lane, &socket);
    assert_eq!(received(&socket), "<a1a2b1b2b3b4");
}

#[test]
fn closing_flushes_what_was_held() {
    let (mut lane, socket) = lane(TERMS);
    push(&mut lane, "a1", Pushthrough::Hold);
    lane.close();
    assert_eq!(drain_all(&mut lane, &socket), Drain::Finished);
    assert_eq!(received(&socket), "<a1");
}

/// Whoever has everything is told on the closing thread, others by their task.
#[test]
fn closing_says_goodbye_to_those_who_have_everything() {
    for (pushthrough, goodbyes) in [(Pushthrough::Flush, 1), (Pushthrough::Hold, 0)] {
        let (mut lane, socket) = lane(TERMS);
        push(&mut lane, "a1", pushthrough);
        lane.close();
        assert_eq!(socket.goodbyes.get(), goodbyes, "{pushthrough:?}");
        assert_eq!(drain_all(&mut lane, &socket), Drain::Finished);
    }
}

#[test]
fn a_broken_consumer_holds_nothing_back() {
    let (mut lane, socket) = lane(TERMS);
    socket.broken.set(true);
    push(&mut lane, "a1", Pushthrough::Flush);
    push(&mut lane, "a2", Pushthrough::Flush);
    assert_eq!(lane.backlog_bytes(), 0);
    assert_eq!(drain_all(&mut lane, &socket), Drain::Finished);
}

proptest! {
    /// Every sample arrives whole and in order, or is counted as dropped; whatever the socket's
    /// room, the chunking and the moments at which the task runs.
    #[test]
    fn every_sample_arrives_or_is_counted(
        steps in proptest::collection::vec((1usize..6, any::<bool>(), 0usize..20, 0u8..4), 1..80),
        capacity in 1usize..12,
        chunk in 1usize..9,
    ) {
        let (mut lane, socket) = lane(Terms { capacity, chunk });
        socket.received.borrow_mut().clear();
        let mut pushed = 0u16;
        let mut dropped = 0;
        for (samples, flush, room, task) in steps {
            socket.room.set(room);
            let mut encoded = Vec::new();
            let mut ends = Vec::new();
            for _ in 0..samples {
                // A frame: its number, then as many bytes as the number's low digit.
                encoded.extend_from_slice(&pushed.to_be_bytes());
                encoded.resize(encoded.len() + usize::from(pushed % 7), 0xEE);
                ends.push(encoded.len());
                pushed += 1;
            }
            let pushthrough = if flush { Pushthrough::Flush } else { Pushthrough::Hold };
            let by = if task == 1 { SendBy::Task } else { SendBy::Pusher };
            dropped += lane.publish(&encoded, &ends, pushthrough, by);
            if task == 0 {
                drain_all(&mut lane, &socket);
            }
        }
        lane.close();
        prop_assert_eq!(drain_all(&mut lane, &socket), Drain::Finished);
        let bytes = socket.received.borrow();
        let (mut at, mut last, mut seen) = (0, None, 0u64);
        while at < bytes.len() {
            let number = u16::from_be_bytes([bytes[at], bytes[at + 1]]);
            prop_assert!(last < Some(number), "{:?} then {}", last, number);
            at += 2 + usize::from(number % 7);
            last = Some(number);
            seen += 1;
        }
        prop_assert_eq!(at, bytes.len());
        prop_assert_eq!(seen + dropped, u64::from(pushed));
    }
}
