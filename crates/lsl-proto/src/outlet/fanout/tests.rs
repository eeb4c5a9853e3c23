use std::cell::{Cell, RefCell};
use std::rc::Rc;

use super::*;
use crate::transport::Tx;

mod bounds;
mod granted;
mod holes;
mod property;

/// A socket that takes as many bytes as it is told to have room for.
#[derive(Debug, Default)]
struct Socket {
    received: RefCell<Vec<u8>>,
    room: Cell<usize>,
    wakes: Cell<usize>,
    broken: Cell<bool>,
    goodbyes: Cell<usize>,
}

#[derive(Debug)]
struct Sender {
    socket: Rc<Socket>,
    tx: Tx,
}

impl Sender {
    fn new(socket: &Rc<Socket>) -> Self {
        let mut tx = Tx::plain();
        tx.queue(b"<");
        Self {
            socket: Rc::clone(socket),
            tx,
        }
    }
}

impl Socket {
    fn write(&self, bytes: &[u8]) -> io::Result<usize> {
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
}

impl Transmit for Sender {
    type Info = Rc<Socket>;

    fn send(&mut self, bytes: &[u8], _: Caller) -> io::Result<usize> {
        let socket = &self.socket;
        self.tx.send(bytes, || 0.0, |bytes| socket.write(bytes))
    }

    fn queue(&mut self, bytes: &[u8]) {
        self.tx.queue(bytes);
    }

    fn flush(&mut self, _: Caller) -> io::Result<bool> {
        let socket = &self.socket;
        self.tx.flush(|| 0.0, |bytes| socket.write(bytes))
    }

    fn has_unsent(&self) -> bool {
        self.tx.unsent() > 0
    }

    fn queued_bytes(&self) -> usize {
        self.tx.unsent()
    }

    fn control(&mut self, control: Control) {
        match control {
            Control::Close => self.socket.goodbyes.set(self.socket.goodbyes.get() + 1),
            Control::Pong { .. } => self.tx.queue(b"!"),
            Control::Alert(_) => self.tx.queue(b"?"),
        }
    }

    fn wake(&self) {
        self.socket.wakes.set(self.socket.wakes.get() + 1);
    }
}

const LIMITS: FeedLimits = FeedLimits {
    capacity: 4,
    chunk: 3,
    coalesces: false,
    is_granted: false,
};

/// Of a consumer that the flush task serves.
const LAZY: FeedLimits = FeedLimits {
    coalesces: true,
    ..LIMITS
};

const VARIANT: Variant = Variant::V100;

type Sockets = Rc<Socket>;

/// Adds a consumer while no push is under way.
fn join(fanout: &mut Fanout<Sender>, limits: FeedLimits) -> (ConsumerId, Sockets) {
    let next = fanout.logs[VARIANT.index()].end();
    join_at(fanout, limits, next)
}

fn join_at(fanout: &mut Fanout<Sender>, limits: FeedLimits, next: u64) -> (ConsumerId, Sockets) {
    let socket = Rc::new(Socket::default());
    socket.room.set(usize::MAX);
    let sender = Sender::new(&socket);
    let id = fanout.join(sender, Rc::clone(&socket), VARIANT, limits, next..next);
    (id, socket)
}

fn fanout(limits: FeedLimits) -> (Fanout<Sender>, ConsumerId, Sockets) {
    let mut fanout = Fanout::default();
    let (id, socket) = join(&mut fanout, limits);
    (fanout, id, socket)
}

fn push(fanout: &mut Fanout<Sender>, text: &str, pushthrough: Pushthrough) -> Published {
    let mut piece = Piece {
        bytes: text.as_bytes().to_vec(),
        ends: (1..=text.len() / 2).map(|n| n * 2).collect(),
    };
    let at = Position {
        variant: VARIANT,
        first: fanout.logs[VARIANT.index()].end(),
    };
    fanout.publish(&mut piece, at, pushthrough, Inline::Always, 0.0)
}

/// What the flush task does, until it has nothing left to do.
fn serve(fanout: &mut Fanout<Sender>) {
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

/// The same after a socket got room.
fn resume(fanout: &mut Fanout<Sender>, id: ConsumerId, socket: &Socket) {
    socket.room.set(usize::MAX);
    fanout.unblock(id);
    serve(fanout);
}

fn received(socket: &Socket) -> String {
    String::from_utf8(socket.received.borrow().clone()).unwrap()
}

#[test]
fn a_caught_up_consumer_is_sent_to_at_once_and_nobody_is_woken() {
    let (mut fanout, id, socket) = fanout(LIMITS);
    let first = push(&mut fanout, "a1", Pushthrough::Flush);
    let second = push(&mut fanout, "b1b2", Pushthrough::Flush);
    assert_eq!([first, second], [Published::default(); 2]);
    assert_eq!(received(&socket), "<a1b1b2");
    assert_eq!((socket.wakes.get(), fanout.backlog_bytes()), (0, 0));
    assert_eq!(fanout.status(id), Status::Feeding);
    assert_eq!(fanout.totals(), (6, 0));
}

#[test]
fn who_joins_during_a_push_begins_with_the_next() {
    let (mut fanout, _, early) = fanout(LIMITS);
    push(&mut fanout, "a1", Pushthrough::Flush);
    let (_, late) = join_at(&mut fanout, LIMITS, 2);
    push(&mut fanout, "a2", Pushthrough::Flush);
    push(&mut fanout, "b1", Pushthrough::Hold);
    push(&mut fanout, "b2b3b4", Pushthrough::Flush);
    assert_eq!(received(&early), "<a1a2b1b2b3b4");
    assert_eq!(received(&late), "<b1b2b3b4");
    assert_eq!(fanout.backlog_bytes(), 0);
}

#[test]
fn held_samples_wait_for_a_flush_or_a_full_chunk() {
    let (mut fanout, _, socket) = fanout(LIMITS);
    push(&mut fanout, "a1", Pushthrough::Hold);
    push(&mut fanout, "a2", Pushthrough::Hold);
    assert_eq!(received(&socket), "<");
    push(&mut fanout, "a3", Pushthrough::Hold);
    assert_eq!(received(&socket), "<a1a2a3");
    push(&mut fanout, "b1", Pushthrough::Hold);
    push(&mut fanout, "b2", Pushthrough::Flush);
    assert_eq!(received(&socket), "<a1a2a3b1b2");
    assert_eq!(fanout.backlog_bytes(), 0);
}

#[test]
fn a_full_socket_wakes_flusher_and_task_once() {
    let (mut fanout, id, socket) = fanout(LIMITS);
    socket.room.set(0);
    assert!(push(&mut fanout, "a1", Pushthrough::Flush).wake_flusher);
    assert!(!push(&mut fanout, "a2", Pushthrough::Flush).wake_flusher);
    serve(&mut fanout);
    assert_eq!(fanout.status(id), Status::Blocked);
    assert!(!push(&mut fanout, "a3", Pushthrough::Flush).wake_flusher);
    assert!(!fanout.is_flushed());
    assert_eq!(fanout.unflushed().count(), 1);
    assert_eq!((received(&socket).as_str(), socket.wakes.get()), ("<", 1));
    resume(&mut fanout, id, &socket);
    assert!(fanout.is_flushed());
    assert_eq!(fanout.status(id), Status::Feeding);
    push(&mut fanout, "a4", Pushthrough::Flush);
    assert_eq!(received(&socket), "<a1a2a3a4");
    assert_eq!(socket.wakes.get(), 1);
}

#[test]
fn a_push_that_waits_sends_the_rest_itself() {
    let (mut fanout, id, socket) = fanout(LIMITS);
    socket.room.set(3);
    push(&mut fanout, "a1a2a3", Pushthrough::Flush);
    assert!(!fanout.send_ready(id));
    socket.room.set(1);
    assert!(!fanout.send_ready(id));
    assert!(!fanout.is_flushed());
    socket.room.set(usize::MAX);
    assert!(fanout.send_ready(id) && fanout.is_flushed());
    let state = (received(&socket), fanout.backlog_bytes());
    assert_eq!(state, ("<a1a2a3".to_owned(), 0));
    assert_eq!(
        (socket.wakes.get(), fanout.status(id)),
        (0, Status::Feeding)
    );
    socket.room.set(0);
    push(&mut fanout, "a4", Pushthrough::Flush);
    serve(&mut fanout);
    assert_eq!(fanout.status(id), Status::Blocked);
    assert!(!fanout.send_ready(id));
    socket.broken.set(true);
    assert!(fanout.send_ready(id), "nothing more can be sent");
    assert_eq!(fanout.status(id), Status::Ended);
    assert!(fanout.send_ready(id));
    assert!(matches!(fanout.leave(id), Poll::Ready(Some(_))));
    assert!(fanout.send_ready(id));
}

#[test]
fn a_push_does_not_wait_for_a_sender_that_is_away() {
    let (mut fanout, id, socket) = fanout(LAZY);
    push(&mut fanout, "a1", Pushthrough::Flush);
    let mut batch = Batch::default();
    fanout.fill(2, &mut batch);
    push(&mut fanout, "a2", Pushthrough::Flush);
    assert!(fanout.send_ready(id));
    while batch.send_next().is_some() {}
    fanout.finish(&mut batch);
    serve(&mut fanout);
    assert_eq!(received(&socket), "<a1a2");
}

#[test]
fn only_samples_for_consumers_that_coalesce_wait_for_more() {
    let (mut fanout, _, _) = fanout(LAZY);
    let (id, eager) = join(&mut fanout, LIMITS);
    push(&mut fanout, "a1", Pushthrough::Flush);
    assert!(!fanout.is_urgent());
    eager.room.set(0);
    push(&mut fanout, "a2", Pushthrough::Flush);
    assert!(fanout.is_urgent());
    serve(&mut fanout);
    push(&mut fanout, "a3", Pushthrough::Flush);
    assert!(!fanout.is_urgent(), "its socket is full");
    fanout.unblock(id);
    assert!(fanout.is_urgent());
}

#[test]
fn the_oldest_are_dropped_and_counted_but_never_the_rest_of_a_cut_frame() {
    let (mut fanout, _, socket) = fanout(LIMITS);
    socket.room.set(1);
    let mut dropped = 0;
    for text in ["a1", "a2", "a3", "a4", "a5", "a6", "a7"] {
        dropped += push(&mut fanout, text, Pushthrough::Flush).dropped;
    }
    socket.room.set(usize::MAX);
    serve(&mut fanout);
    assert_eq!(received(&socket), "<a1a4a5a6a7");
    assert_eq!((dropped, fanout.totals().1), (2, 2));
    let (_, _, progress) = fanout.consumers().next().unwrap();
    let expected = ConsumerProgress {
        sent: 5,
        dropped: 2,
        behind: 0,
    };
    assert_eq!(progress, expected);
}

#[test]
fn a_ring_full_of_held_samples_is_flushed_before_any_is_dropped() {
    let (mut fanout, _, socket) = fanout(FeedLimits {
        capacity: 2,
        chunk: 100,
        ..LIMITS
    });
    for text in ["a1", "a2", "a3", "a4", "a5"] {
        assert_eq!(push(&mut fanout, text, Pushthrough::Hold).dropped, 0);
    }
    assert_eq!(received(&socket), "<a1a2a3a4");
}

#[test]
fn held_samples_take_no_room_from_those_that_flush_them() {
    for limits in [LIMITS, LAZY] {
        let (mut fanout, _, socket) = fanout(limits);
        push(&mut fanout, "a1a2", Pushthrough::Hold);
        let flushed = push(&mut fanout, "b1b2b3b4", Pushthrough::Flush);
        assert_eq!(flushed.dropped, 0);
        serve(&mut fanout);
        assert_eq!(received(&socket), "<a1a2b1b2b3b4");
    }
}

#[test]
fn closing_flushes_what_was_held() {
    let (mut fanout, id, socket) = fanout(LIMITS);
    push(&mut fanout, "a1", Pushthrough::Hold);
    fanout.close();
    assert_eq!(fanout.status(id), Status::Feeding);
    serve(&mut fanout);
    assert_eq!(fanout.status(id), Status::Ended);
    assert_eq!(received(&socket), "<a1");
    assert_eq!((socket.wakes.get(), socket.goodbyes.get()), (2, 0));
}

#[test]
fn what_is_pushed_after_the_end_goes_nowhere() {
    for limits in [LIMITS, LAZY] {
        let (mut fanout, id, socket) = fanout(limits);
        push(&mut fanout, "a1", Pushthrough::Flush);
        fanout.close();
        let late = push(&mut fanout, "a2", Pushthrough::Flush);
        assert_eq!(late, Published::default());
        serve(&mut fanout);
        assert_eq!(fanout.status(id), Status::Ended);
        assert_eq!(received(&socket), "<a1");
        assert_eq!(fanout.has_consumers(), Some(false));
    }
}

/// Whoever has everything is told on the closing thread, others by their task.
#[test]
fn closing_says_goodbye_to_those_who_have_everything() {
    for (pushthrough, goodbyes) in [(Pushthrough::Flush, 1), (Pushthrough::Hold, 0)] {
        let (mut fanout, id, socket) = fanout(LIMITS);
        push(&mut fanout, "a1", pushthrough);
        fanout.close();
        assert_eq!(socket.goodbyes.get(), goodbyes, "{pushthrough:?}");
        serve(&mut fanout);
        assert_eq!(fanout.status(id), Status::Ended);
    }
}

#[test]
fn a_broken_consumer_holds_nothing_back() {
    for limits in [LIMITS, LAZY] {
        let (mut fanout, id, socket) = fanout(limits);
        socket.broken.set(true);
        push(&mut fanout, "a1", Pushthrough::Flush);
        serve(&mut fanout);
        push(&mut fanout, "a2", Pushthrough::Flush);
        assert_eq!(fanout.backlog_bytes(), 0);
        assert!(fanout.is_flushed());
        assert_eq!(fanout.status(id), Status::Ended);
        assert_eq!(socket.wakes.get(), 1);
        assert!(matches!(fanout.leave(id), Poll::Ready(Some(_))));
        assert!(matches!(fanout.leave(id), Poll::Ready(None)));
        assert_eq!(fanout.has_consumers(), None);
    }
}

#[test]
fn the_flush_task_is_called_once_and_serves_everybody_from_the_same_bytes() {
    let mut fanout = Fanout::default();
    let sockets: Vec<_> = (0..3).map(|_| join(&mut fanout, LAZY).1).collect();
    let first = push(&mut fanout, "a1", Pushthrough::Flush);
    let second = push(&mut fanout, "a2", Pushthrough::Flush);
    assert_eq!((first.wake_flusher, second.wake_flusher), (true, false));
    assert!(!fanout.is_flushed());
    let mut batch = Batch::default();
    fanout.fill(100, &mut batch);
    assert_eq!(batch.send_next(), Some(4));
    // What comes meanwhile waits for the next batch, whoever is served already.
    assert!(!push(&mut fanout, "a3", Pushthrough::Flush).wake_flusher);
    while batch.send_next().is_some() {}
    fanout.finish(&mut batch);
    serve(&mut fanout);
    assert!(fanout.is_flushed());
    for socket in &sockets {
        let state = (received(socket), socket.wakes.get());
        assert_eq!(state, ("<a1a2a3".to_owned(), 0));
    }
    assert_eq!(fanout.backlog_bytes(), 0);
}

#[test]
fn a_socket_that_is_full_leaves_the_flush_task_until_its_own_task_says_more() {
    let (mut fanout, id, socket) = fanout(LAZY);
    push(&mut fanout, "a1a2", Pushthrough::Flush);
    socket.room.set(3);
    serve(&mut fanout);
    let state = (
        received(&socket),
        socket.wakes.get(),
        fanout.backlog_bytes(),
    );
    assert_eq!(state, ("<a1a".to_owned(), 1, 1));
    push(&mut fanout, "a3", Pushthrough::Flush);
    serve(&mut fanout);
    assert_eq!(received(&socket), "<a1a");
    resume(&mut fanout, id, &socket);
    assert_eq!(received(&socket), "<a1a2a3");
}

/// A window belongs to whom was served longest ago: a long backlog does not keep others waiting.
#[test]
fn a_consumer_that_is_far_behind_and_others_take_turns() {
    let (mut fanout, slow_id, slow) = fanout(FeedLimits {
        capacity: 1000,
        ..LAZY
    });
    let (_, quick) = join(&mut fanout, LAZY);
    slow.room.set(0);
    for _ in 0..20 {
        push(&mut fanout, "a1a2", Pushthrough::Flush);
        serve(&mut fanout);
    }
    assert_eq!(fanout.status(slow_id), Status::Blocked);
    slow.room.set(usize::MAX);
    fanout.unblock(slow_id);
    push(&mut fanout, "b1b2", Pushthrough::Flush);
    let mut batch = Batch::default();
    for _ in 0..3 {
        fanout.fill(8, &mut batch);
        while batch.send_next().is_some() {}
        fanout.finish(&mut batch);
    }
    assert!(received(&quick).ends_with("b1b2"));
    assert!(!received(&slow).ends_with("b1b2"));
    serve(&mut fanout);
    assert_eq!(received(&slow), received(&quick));
}

#[test]
fn whose_sender_is_away_leaves_when_it_is_back() {
    let (mut fanout, id, socket) = fanout(LAZY);
    push(&mut fanout, "a1", Pushthrough::Flush);
    let mut batch = Batch::default();
    fanout.fill(8, &mut batch);
    assert!(fanout.leave(id).is_pending());
    push(&mut fanout, "a2", Pushthrough::Flush);
    while batch.send_next().is_some() {}
    fanout.finish(&mut batch);
    assert_eq!((socket.wakes.get(), fanout.backlog_bytes()), (1, 0));
    assert!(matches!(fanout.leave(id), Poll::Ready(Some(_))));
    assert!(fanout.is_empty());
    assert_eq!(received(&socket), "<a1");
}

const PONG: Control = Control::Pong {
    t0: 1.0,
    t1: 2.0,
    t2_shift_secs: 0.0,
};

#[test]
fn what_a_session_says_goes_at_once_or_when_its_sender_is_back() {
    let pong = PONG;
    let (mut fanout, id, socket) = fanout(LAZY);
    assert!(!fanout.control(id, pong));
    assert_eq!(received(&socket), "<!");
    push(&mut fanout, "a1", Pushthrough::Flush);
    let mut batch = Batch::default();
    fanout.fill(8, &mut batch);
    assert!(!fanout.control(id, pong));
    while batch.send_next().is_some() {}
    fanout.finish(&mut batch);
    serve(&mut fanout);
    assert_eq!(received(&socket), "<!a1!");
    socket.room.set(0);
    assert!(!fanout.control(id, pong));
    assert_eq!(fanout.status(id), Status::Blocked);
    push(&mut fanout, "a2", Pushthrough::Flush);
    socket.room.set(1);
    assert!(!fanout.control(id, pong), "still full");
    assert_eq!(received(&socket), "<!a1!", "sent by a push or a PING");
    fanout.unblock(id);
    assert!(fanout.control(id, pong), "the flush task sends it");
    assert_eq!(received(&socket), "<!a1!");
    resume(&mut fanout, id, &socket);
    assert_eq!(received(&socket), "<!a1!!!!a2");
    assert!(!fanout.control(id, Control::Alert(lsl_secure::Cause::NotAuthorised)));
    assert_eq!(fanout.status(id), Status::Ended);
    push(&mut fanout, "a3", Pushthrough::Flush);
    serve(&mut fanout);
    assert_eq!(received(&socket), "<!a1!!!!a2?");
    assert_eq!(fanout.backlog_bytes(), 0);
}

#[test]
fn an_alert_ends_a_consumer_whose_sender_is_away_and_no_pong_takes_its_place() {
    let (mut fanout, id, socket) = fanout(LAZY);
    push(&mut fanout, "a1", Pushthrough::Flush);
    let mut batch = Batch::default();
    fanout.fill(8, &mut batch);
    assert!(!fanout.control(id, Control::Alert(lsl_secure::Cause::NotAuthorised)));
    assert_eq!(fanout.status(id), Status::Ended);
    assert!(!fanout.control(id, PONG));
    push(&mut fanout, "a2", Pushthrough::Flush);
    while batch.send_next().is_some() {}
    fanout.finish(&mut batch);
    serve(&mut fanout);
    assert_eq!(fanout.status(id), Status::Ended);
    assert_eq!(received(&socket), "<a1?");
    assert!(socket.wakes.get() > 0);
}

#[test]
fn whom_the_flush_task_serves_when_the_stream_ends_hears_the_end_from_its_task() {
    let (mut fanout, id, socket) = fanout(LAZY);
    push(&mut fanout, "a1", Pushthrough::Flush);
    fanout.close();
    assert_eq!(fanout.status(id), Status::Feeding);
    serve(&mut fanout);
    assert_eq!(fanout.status(id), Status::Ended);
    let state = (received(&socket), socket.goodbyes.get());
    assert_eq!(state, ("<a1".to_owned(), 0));
}
