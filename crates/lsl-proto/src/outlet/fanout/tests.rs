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

impl Transmit for Rc<Socket> {
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

fn fanout(limits: FeedLimits) -> (Fanout<Rc<Socket>>, Rc<Socket>) {
    let socket = Rc::new(Socket::default());
    socket.room.set(usize::MAX);
    let mut fanout = Fanout::default();
    fanout.register(ID, Rc::clone(&socket), limits, b"<".to_vec());
    drain_all(&mut fanout, &socket);
    (fanout, socket)
}

/// What the consumer's task does, as long as the socket takes it.
fn drain_all(fanout: &mut Fanout<Rc<Socket>>, socket: &Rc<Socket>) -> Drain {
    let mut out = Vec::new();
    loop {
        match fanout.drain(ID, 8, &mut out) {
            Drain::Send => {
                socket.received.borrow_mut().extend_from_slice(&out);
                out.clear();
            }
            other => return other,
        }
    }
}

fn push(fanout: &mut Fanout<Rc<Socket>>, text: &str, pushthrough: Pushthrough) -> u64 {
    push_by(fanout, text, pushthrough, SendBy::Pusher).dropped
}

fn push_by(
    fanout: &mut Fanout<Rc<Socket>>,
    text: &str,
    pushthrough: Pushthrough,
    by: SendBy,
) -> Published {
    let mut ends: Vec<usize> = (1..=text.len() / 2).map(|n| n * 2).collect();
    fanout.publish(&mut text.as_bytes().to_vec(), &mut ends, pushthrough, by)
}

/// What the flush task does, until it has nothing left to do.
fn flush_all(fanout: &mut Fanout<Rc<Socket>>) {
    let mut batch = Batch::default();
    loop {
        fanout.fill(8, &mut batch);
        if batch.is_empty() {
            return;
        }
        while batch.send_next().is_some() {}
        fanout.finish(&mut batch);
    }
}

fn received(socket: &Socket) -> String {
    String::from_utf8(socket.received.borrow().clone()).unwrap()
}

const LIMITS: FeedLimits = FeedLimits {
    capacity: 4,
    chunk: 3,
};

#[test]
fn a_caught_up_consumer_is_sent_to_at_once_and_nobody_is_woken() {
    let (mut fanout, socket) = fanout(LIMITS);
    push(&mut fanout, "a1", Pushthrough::Flush);
    push(&mut fanout, "b1b2", Pushthrough::Flush);
    assert_eq!(received(&socket), "<a1b1b2");
    assert_eq!((socket.wakes.get(), fanout.backlog_bytes()), (0, 0));
}

#[test]
fn held_samples_wait_for_a_flush_or_a_full_chunk() {
    let (mut fanout, socket) = fanout(LIMITS);
    push(&mut fanout, "a1", Pushthrough::Hold);
    push(&mut fanout, "a2", Pushthrough::Hold);
    assert_eq!(received(&socket), "<");
    push(&mut fanout, "a3", Pushthrough::Hold);
    assert_eq!(drain_all(&mut fanout, &socket), Drain::Idle);
    assert_eq!(received(&socket), "<a1a2a3");
    push(&mut fanout, "b1", Pushthrough::Hold);
    push(&mut fanout, "b2", Pushthrough::Flush);
    drain_all(&mut fanout, &socket);
    assert_eq!(received(&socket), "<a1a2a3b1b2");
    assert_eq!(fanout.backlog_bytes(), 0);
}

#[test]
fn a_full_socket_wakes_its_task_once() {
    let (mut fanout, socket) = fanout(LIMITS);
    socket.room.set(0);
    push(&mut fanout, "a1", Pushthrough::Flush);
    push(&mut fanout, "a2", Pushthrough::Flush);
    assert_eq!(socket.wakes.get(), 1);
    assert_eq!(drain_all(&mut fanout, &socket), Drain::Idle);
    assert_eq!(received(&socket), "<a1a2");
    socket.room.set(usize::MAX);
    push(&mut fanout, "a3", Pushthrough::Flush);
    assert_eq!(received(&socket), "<a1a2a3");
    assert_eq!(socket.wakes.get(), 1);
}

#[test]
fn the_oldest_are_dropped_and_counted_but_never_the_rest_of_a_cut_frame() {
    let (mut fanout, socket) = fanout(LIMITS);
    socket.room.set(1);
    let mut dropped = 0;
    for text in ["a1", "a2", "a3", "a4", "a5", "a6", "a7"] {
        dropped += push(&mut fanout, text, Pushthrough::Flush);
    }
    drain_all(&mut fanout, &socket);
    assert_eq!(received(&socket), "<a1a4a5a6a7");
    assert_eq!(dropped, 2);
    let progress = fanout.remove(ID).unwrap();
    assert_eq!(
        progress,
        ConsumerProgress {
            sent: 5,
            dropped: 2,
            behind: 0
        }
    );
}

#[test]
fn a_ring_full_of_held_samples_is_flushed_before_any_is_dropped() {
    let (mut fanout, socket) = fanout(FeedLimits {
        capacity: 2,
        chunk: 100,
    });
    for text in ["a1", "a2", "a3", "a4", "a5"] {
        assert_eq!(push(&mut fanout, text, Pushthrough::Hold), 0);
        drain_all(&mut fanout, &socket);
    }
    assert_eq!(received(&socket), "<a1a2a3a4");
}

#[test]
fn held_samples_take_no_room_from_those_that_flush_them() {
    let (mut fanout, socket) = fanout(LIMITS);
    push(&mut fanout, "a1a2", Pushthrough::Hold);
    assert_eq!(push(&mut fanout, "b1b2b3b4", Pushthrough::Flush), 0);
    drain_all(&mut fanout, &socket);
    assert_eq!(received(&socket), "<a1a2b1b2b3b4");
}

#[test]
fn closing_flushes_what_was_held() {
    let (mut fanout, socket) = fanout(LIMITS);
    push(&mut fanout, "a1", Pushthrough::Hold);
    let _ = fanout.close();
    flush_all(&mut fanout);
    assert_eq!(drain_all(&mut fanout, &socket), Drain::Finished);
    assert_eq!(received(&socket), "<a1");
}

#[test]
fn what_is_pushed_after_the_end_goes_nowhere() {
    for by in [SendBy::Pusher, SendBy::Flusher, SendBy::Task] {
        let (mut fanout, socket) = fanout(LIMITS);
        push_by(&mut fanout, "a1", Pushthrough::Flush, by);
        let _ = fanout.close();
        let late = push_by(&mut fanout, "a2", Pushthrough::Flush, by);
        assert_eq!(late, Published::default(), "{by:?}");
        flush_all(&mut fanout);
        assert_eq!(drain_all(&mut fanout, &socket), Drain::Finished);
        assert_eq!(received(&socket), "<a1", "{by:?}");
    }
}

/// Whoever has everything is told on the closing thread, others by their task.
#[test]
fn closing_says_goodbye_to_those_who_have_everything() {
    for (pushthrough, goodbyes) in [(Pushthrough::Flush, 1), (Pushthrough::Hold, 0)] {
        let (mut fanout, socket) = fanout(LIMITS);
        push(&mut fanout, "a1", pushthrough);
        let _ = fanout.close();
        assert_eq!(socket.goodbyes.get(), goodbyes, "{pushthrough:?}");
        flush_all(&mut fanout);
        assert_eq!(drain_all(&mut fanout, &socket), Drain::Finished);
    }
}

#[test]
fn a_broken_consumer_holds_nothing_back() {
    let (mut fanout, socket) = fanout(LIMITS);
    socket.broken.set(true);
    push(&mut fanout, "a1", Pushthrough::Flush);
    push(&mut fanout, "a2", Pushthrough::Flush);
    assert_eq!(fanout.backlog_bytes(), 0);
    assert_eq!(drain_all(&mut fanout, &socket), Drain::Finished);
}

#[test]
fn the_courier_is_called_once_and_serves_everybody_from_the_same_bytes() {
    let mut fanout = Fanout::default();
    let sockets: Vec<Rc<Socket>> = (0..3).map(|_| Rc::default()).collect();
    for (id, socket) in (0..).zip(&sockets) {
        socket.room.set(usize::MAX);
        fanout.register(ConsumerId(id), Rc::clone(socket), LIMITS, Vec::new());
        assert_eq!(
            fanout.drain(ConsumerId(id), 8, &mut Vec::new()),
            Drain::Idle
        );
    }
    let first = push_by(&mut fanout, "a1", Pushthrough::Flush, SendBy::Flusher);
    let second = push_by(&mut fanout, "a2", Pushthrough::Flush, SendBy::Pusher);
    assert_eq!((first.flusher, second.flusher), (true, false));
    assert!(!fanout.is_drained());
    let mut batch = Batch::default();
    fanout.fill(100, &mut batch);
    assert_eq!(batch.send_next(), Some(4));
    // What comes meanwhile waits for the next batch, whoever is served already.
    push(&mut fanout, "a3", Pushthrough::Flush);
    while batch.send_next().is_some() {}
    fanout.finish(&mut batch);
    flush_all(&mut fanout);
    assert!(fanout.is_drained());
    for socket in &sockets {
        assert_eq!(
            (received(socket).as_str(), socket.wakes.get()),
            ("a1a2a3", 0)
        );
    }
    assert_eq!(fanout.backlog_bytes(), 0);
}

#[test]
fn a_socket_that_is_full_leaves_the_courier_for_its_own_task() {
    let (mut fanout, socket) = fanout(LIMITS);
    push_by(&mut fanout, "a1a2", Pushthrough::Flush, SendBy::Flusher);
    socket.room.set(3);
    flush_all(&mut fanout);
    assert_eq!(
        (received(&socket).as_str(), socket.wakes.get()),
        ("<a1a", 1)
    );
    push(&mut fanout, "a3", Pushthrough::Flush);
    assert_eq!(drain_all(&mut fanout, &socket), Drain::Idle);
    assert_eq!(received(&socket), "<a1a2a3");
}

/// The fanout is behind a lock, and the end of a connection is work that must not be done under it.
#[test]
fn the_wire_of_one_who_left_outlives_the_settling_of_the_round() {
    let (mut fanout, socket) = fanout(LIMITS);
    push_by(&mut fanout, "a1", Pushthrough::Flush, SendBy::Flusher);
    let mut batch = Batch::default();
    fanout.fill(8, &mut batch);
    fanout.remove(ID);
    while batch.send_next().is_some() {}
    fanout.finish(&mut batch);
    assert_eq!(Rc::strong_count(&socket), 2);
    batch.forget_gone();
    assert_eq!(Rc::strong_count(&socket), 1);
}

#[test]
fn a_task_that_is_woken_for_another_reason_takes_nothing_from_the_courier() {
    let (mut fanout, socket) = fanout(LIMITS);
    push_by(&mut fanout, "a1", Pushthrough::Flush, SendBy::Flusher);
    let mut batch = Batch::default();
    fanout.fill(8, &mut batch);
    push(&mut fanout, "a2", Pushthrough::Flush);
    assert_eq!(drain_all(&mut fanout, &socket), Drain::Idle);
    assert_eq!(received(&socket), "<");
    while batch.send_next().is_some() {}
    fanout.finish(&mut batch);
    flush_all(&mut fanout);
    assert_eq!(received(&socket), "<a1a2");
}

#[test]
fn whom_the_courier_serves_when_the_stream_ends_hears_the_end_from_its_task() {
    let (mut fanout, socket) = fanout(LIMITS);
    push_by(&mut fanout, "a1", Pushthrough::Flush, SendBy::Flusher);
    let _ = fanout.close();
    assert_eq!(drain_all(&mut fanout, &socket), Drain::Idle);
    flush_all(&mut fanout);
    assert_eq!(drain_all(&mut fanout, &socket), Drain::Finished);
    assert_eq!(
        (received(&socket).as_str(), socket.goodbyes.get()),
        ("<a1", 0)
    );
}

/// A reader in the property test: its socket, and what its task took out of the fanout and has not
/// sent yet.
#[derive(Debug)]
struct Reader {
    id: ConsumerId,
    socket: Rc<Socket>,
    out: Vec<u8>,
    registered_at: u16,
    finished: bool,
}

impl Reader {
    /// One step of the task: asks for bytes when it has none, then sends what the socket takes.
    fn step(&mut self, fanout: &mut Fanout<Rc<Socket>>) {
        if self.out.is_empty() {
            match fanout.drain(self.id, 24, &mut self.out) {
                Drain::Send | Drain::Idle => {}
                Drain::Finished => self.finished = true,
            }
        }
        if let Ok(sent) = self.socket.try_send(&self.out) {
            self.out.drain(..sent);
        }
    }

    /// Numbers of the frames that arrived, checking that they are whole and ascending. The feed of a
    /// reader that left may end anywhere.
    fn frames(&self) -> Vec<u16> {
        let bytes = self.socket.received.borrow();
        let (mut at, mut frames) = (1, Vec::new());
        assert_eq!(
            bytes.first().unwrap_or(&b'<'),
            &b'<',
            "the preamble is first"
        );
        while at + 2 <= bytes.len() {
            let number = u16::from_be_bytes([bytes[at], bytes[at + 1]]);
            assert!(frames.last() < Some(&number), "{frames:?} then {number}");
            let end = at + frame_len(number);
            if end > bytes.len() {
                break;
            }
            assert!(bytes[at + 2..end].iter().all(|&byte| byte == 0xEE));
            frames.push(number);
            at = end;
        }
        frames
    }
}

/// A frame: its number, then some bytes more.
fn frame_len(number: u16) -> usize {
    2 + usize::from(number % 7)
}

#[derive(Debug, Clone)]
enum Step {
    Push {
        samples: usize,
        flush: bool,
        by: SendBy,
    },
    Flush,
    Room {
        reader: usize,
        room: usize,
    },
    Task {
        reader: usize,
    },
    /// The flush task settles its batch, and makes another.
    Fill,
    /// The flush task serves one reader.
    Carry,
    Register {
        capacity: usize,
        chunk: usize,
    },
    Remove {
        reader: usize,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let by = prop_oneof![
        Just(SendBy::Pusher),
        Just(SendBy::Flusher),
        Just(SendBy::Task)
    ];
    prop_oneof![
        8 => (1usize..6, any::<bool>(), by)
            .prop_map(|(samples, flush, by)| Step::Push { samples, flush, by }),
        1 => Just(Step::Flush),
        4 => (0usize..4, 0usize..40).prop_map(|(reader, room)| Step::Room { reader, room }),
        6 => (0usize..4).prop_map(|reader| Step::Task { reader }),
        5 => Just(Step::Fill),
        6 => Just(Step::Carry),
        1 => (1usize..12, 1usize..9)
            .prop_map(|(capacity, chunk)| Step::Register { capacity, chunk }),
        1 => (0usize..4).prop_map(|reader| Step::Remove { reader }),
    ]
}

proptest! {
    /// Every sample arrives whole and in order, or is counted as dropped; whatever the sockets' room,
    /// the chunking, who sends, and the moments at which tasks and flusher run, and at which readers
    /// come and go.
    #[test]
    fn every_sample_arrives_or_is_counted(steps in proptest::collection::vec(step(), 1..120)) {
        let mut fanout = Fanout::default();
        let mut batch = Batch::default();
        let mut readers: Vec<Reader> = Vec::new();
        let mut gone: Vec<Reader> = Vec::new();
        let (mut pushed, mut dropped, mut next_id) = (0u16, 0, 0);
        let first = Step::Register { capacity: 5, chunk: 3 };
        for step in std::iter::once(first).chain(steps) {
            match step {
                Step::Push { samples, flush, by } => {
                    let (mut encoded, mut ends) = (Vec::new(), Vec::new());
                    for _ in 0..samples {
                        encoded.extend_from_slice(&pushed.to_be_bytes());
                        encoded.resize(encoded.len() + frame_len(pushed) - 2, 0xEE);
                        ends.push(encoded.len());
                        pushed += 1;
                    }
                    let pushthrough = if flush { Pushthrough::Flush } else { Pushthrough::Hold };
                    dropped += fanout.publish(&mut encoded, &mut ends, pushthrough, by).dropped;
                }
                Step::Flush => { let _ = fanout.flush(); }
                Step::Room { reader, room } => {
                    if let Some(reader) = readers.get(reader) {
                        reader.socket.room.set(room);
                    }
                }
                Step::Task { reader } => {
                    if let Some(reader) = readers.get_mut(reader) {
                        reader.step(&mut fanout);
                    }
                }
                Step::Fill => {
                    while batch.send_next().is_some() {}
                    fanout.finish(&mut batch);
                    fanout.fill(24, &mut batch);
                }
                Step::Carry => { batch.send_next(); }
                Step::Register { capacity, chunk } => {
                    let socket = Rc::<Socket>::default();
                    let id = ConsumerId(next_id);
                    next_id += 1;
                    let limits = FeedLimits { capacity, chunk };
                    fanout.register(id, Rc::clone(&socket), limits, b"<".to_vec());
                    readers.push(Reader {
                        id, socket, out: Vec::new(), registered_at: pushed, finished: false,
                    });
                }
                Step::Remove { reader } => {
                    if reader < readers.len() {
                        let reader = readers.swap_remove(reader);
                        prop_assert!(fanout.remove(reader.id).is_some());
                        gone.push(reader);
                    }
                }
            }
        }
        let _ = fanout.close();
        while batch.send_next().is_some() {}
        fanout.finish(&mut batch);
        for reader in &readers {
            reader.socket.room.set(usize::MAX);
        }
        let before: u64 = fanout.consumers().map(|(_, _, progress)| progress.dropped).sum();
        prop_assert!(before <= dropped);
        for _ in 0..3 {
            flush_all(&mut fanout);
            for reader in &mut readers {
                for _ in 0..200 {
                    reader.step(&mut fanout);
                }
            }
        }
        for reader in &readers {
            prop_assert!(reader.finished);
            let (_, _, progress) =
                fanout.consumers().find(|(id, ..)| *id == reader.id).expect("still there");
            let frames = reader.frames();
            let all: usize = frames.iter().map(|&number| frame_len(number)).sum();
            prop_assert_eq!(1 + all, reader.socket.received.borrow().len());
            prop_assert_eq!(progress.sent, frames.len() as u64);
            prop_assert_eq!(
                progress.sent + progress.dropped,
                u64::from(pushed - reader.registered_at)
            );
        }
        prop_assert_eq!(fanout.backlog_bytes(), 0);
        for reader in &gone {
            reader.frames();
        }
    }
}
