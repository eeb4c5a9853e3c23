//! Numbers that are missing, and what is known of samples that were pushed while nobody retained them.

use super::*;
use crate::limits::Host;
use crate::outlet::retention::{Retain, Share};
use crate::wire::sequence::{Generation, ReplayFrom};

const R: Variant = Fanout::<Sender>::RETAINED;

fn publish(fanout: &mut Fanout<Sender>, first: u64, samples: u8) -> Published {
    let mut piece = Piece::default();
    for n in 0..samples {
        piece.bytes.extend([1, n]);
        piece.ends.push(piece.bytes.len());
    }
    let at = Position { variant: R, first };
    fanout.publish(&mut piece, at, Pushthrough::Flush, Inline::Always, 0.0)
}

fn serve(fanout: &mut Fanout<Sender>) {
    let mut batch = Batch::default();
    for _ in 0..20 {
        fanout.fill(1 << 20, &mut batch);
        while batch.send_next().is_some() {}
        fanout.finish(&mut batch);
    }
}

fn retaining(seconds: f64) -> Fanout<Sender> {
    let mut fanout = Fanout::default();
    let limits = Retain {
        seconds,
        bytes: 1 << 20,
        unread: false,
    };
    let share = std::sync::Arc::new(Share::new(1 << 30));
    fanout.retain(Retention::new(limits, share, 0.0), 100.0);
    fanout
}

/// Joins a reader at the live edge, or a granted one that asks for something.
fn read(
    fanout: &mut Fanout<Sender>,
    asked: Option<ReplayFrom>,
    edge: u64,
    capacity: usize,
) -> (ConsumerId, Rc<Socket>, Range<u64>) {
    let live = Live {
        edge,
        generation: &Generation::parse(b"a-1").unwrap(),
        nominal_srate: 100.0,
    };
    let host = Host::from(std::net::IpAddr::from([127, 0, 0, 1]));
    let replay = asked.map_or(edge..edge, |from| fanout.replay(&from, live, host, 5.0));
    let socket = Rc::new(Socket::default());
    socket.room.set(usize::MAX);
    let sender = Sender {
        socket: Rc::clone(&socket),
        tx: Tx::plain(),
    };
    let limits = FeedLimits {
        capacity,
        is_granted: asked.is_some(),
        ..LIMITS
    };
    let id = fanout.join(sender, Rc::clone(&socket), R, limits, replay.clone());
    serve(fanout);
    (id, socket, replay)
}

fn elsewhere() -> ReplayFrom {
    ReplayFrom::At(crate::wire::sequence::Position {
        generation: Generation::parse(b"b").unwrap(),
        next: 7,
    })
}

#[test]
fn a_log_that_retains_nothing_keeps_numbers_over_a_hole() {
    let mut fanout = Fanout::default();
    let (slow, slow_socket, _) = read(&mut fanout, None, 0, 1000);
    let (fast, fast_socket, _) = read(&mut fanout, None, 0, 1000);
    slow_socket.room.set(0);
    publish(&mut fanout, 0, 5);
    fast_socket.room.set(0);
    publish(&mut fanout, 15, 3);
    for (id, socket) in [(slow, &slow_socket), (fast, &fast_socket)] {
        socket.room.set(usize::MAX);
        fanout.unblock(id);
    }
    serve(&mut fanout);
    for socket in [slow_socket, fast_socket] {
        assert_eq!(socket.received.borrow().len(), 16);
    }
}

#[test]
fn skipped_numbers_take_no_room_from_samples() {
    let mut fanout = Fanout::default();
    let (slow, socket, _) = read(&mut fanout, None, 0, 100);
    socket.room.set(0);
    publish(&mut fanout, 0, 50);
    let published = publish(&mut fanout, 1050, 1);
    assert_eq!(published.dropped, 0);
    let (_, _, progress) = fanout.consumers().next().unwrap();
    assert_eq!(progress.behind, 51);
    let published = publish(&mut fanout, 1051, 60);
    assert_eq!(published.dropped, 11);
    socket.room.set(usize::MAX);
    fanout.unblock(slow);
    serve(&mut fanout);
    assert_eq!(socket.received.borrow().len(), 200);
}

#[test]
fn a_push_whose_readers_left_publishes_nothing_to_later_ones() {
    let mut fanout = retaining(1.0);
    publish(&mut fanout, 0, 2);
    fanout.look_after_retention(5.0);
    fanout.begin(R, 4);
    let (_, socket, replay) = read(&mut fanout, Some(ReplayFrom::Live), 4, 1000);
    publish(&mut fanout, 2, 2);
    publish(&mut fanout, 4, 2);
    serve(&mut fanout);
    assert_eq!((replay, fanout.logs[R.index()].end()), (4..4, 6));
    assert_eq!(socket.received.borrow().len(), 4);
}

#[test]
fn what_was_pushed_unread_is_not_replayed() {
    let mut fanout = retaining(1.0);
    fanout.look_after_retention(5.0);
    fanout.begin(R, 100);
    read(&mut fanout, None, 100, 1000);
    let (_, _, replay) = read(&mut fanout, Some(elsewhere()), 100, 1000);
    assert_eq!(replay, 100..100);
}

#[test]
fn samples_stay_for_as_long_after_the_last_granted_reader_left() {
    let mut fanout = retaining(30.0);
    publish(&mut fanout, 0, 1);
    let (id, ..) = read(&mut fanout, Some(ReplayFrom::Live), 1, 1000);
    for now in [10.0, 20.0, 30.0, 40.0] {
        fanout.look_after_retention(now);
    }
    assert!(fanout.leave(id).is_ready());
    for now in [50.0, 60.0, 70.1] {
        fanout.look_after_retention(now);
    }
    assert!(fanout.is_retaining());
    fanout.look_after_retention(80.1);
    assert!(!fanout.is_retaining());
}

#[test]
fn every_replayed_sample_is_counted() {
    let mut fanout = retaining(30.0);
    publish(&mut fanout, 0, 10);
    let (id, ..) = read(&mut fanout, Some(ReplayFrom::Oldest), 10, 1000);
    assert_eq!(fanout.retained().1, 10);
    assert!(fanout.leave(id).is_ready());
    assert_eq!(fanout.retained().1, 10);
}
