//! Numbers that are missing, and what is known of samples that were pushed while nobody retained them.

use super::*;
use crate::limits::Host;
use crate::outlet::retention::{Retain, Share};
use crate::wire::sequence::{GapReason, Generation, ReplayFrom};

const R: Variant = Fanout::<Sender>::RETAINED;

/// Time of every push and admission.
const NOW: f64 = 5.0;

fn publish(fanout: &mut Fanout<Sender>, first: u64, samples: u8) -> Published {
    let mut piece = Piece::default();
    for n in 0..samples {
        piece.bytes.extend([1, n]);
        piece.ends.push(piece.bytes.len());
    }
    let at = Position { variant: R, first };
    fanout.publish(&mut piece, at, Pushthrough::Flush, Inline::Always, NOW)
}

/// Publishes a sample that transmits its timestamp.
fn publish_at(fanout: &mut Fanout<Sender>, first: u64, stamp: f64) {
    let mut piece = Piece {
        bytes: [&[2][..], &stamp.to_ne_bytes(), &[7]].concat(),
        ends: vec![10],
    };
    let at = Position { variant: R, first };
    fanout.publish(&mut piece, at, Pushthrough::Flush, Inline::Always, NOW);
}

/// Returns the timestamp of the first sample received, which transmits it.
fn first_stamp(socket: &Socket) -> f64 {
    let received = socket.received.borrow();
    f64::from_ne_bytes(received[1..9].try_into().unwrap())
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

/// Joins a reader at the live edge, or a granted one that asks for something, and serves it.
fn read(
    fanout: &mut Fanout<Sender>,
    asked: Option<ReplayFrom>,
    edge: u64,
    capacity: usize,
) -> (ConsumerId, Rc<Socket>, Range<u64>) {
    let reader = join_asked(fanout, asked, edge, capacity);
    serve(fanout);
    reader
}

fn join_asked(
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
    let replay = asked.map_or(edge..edge, |from| fanout.replay(&from, live, host, NOW));
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
    (id, socket, replay)
}

fn position(generation: &[u8], next: u64) -> ReplayFrom {
    let generation = Generation::parse(generation).unwrap();
    ReplayFrom::At(crate::wire::sequence::Position { generation, next }, None)
}

fn here(next: u64) -> ReplayFrom {
    position(b"a-1", next)
}

fn elsewhere() -> ReplayFrom {
    position(b"b", 7)
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
    fanout.look_after_retention(NOW);
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
    fanout.look_after_retention(NOW);
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

#[test]
fn no_timestamp_is_made_up_for_samples_from_before_retention() {
    let mut fanout = retaining(1.0);
    fanout.look_after_retention(NOW);
    let (_, socket, _) = read(&mut fanout, None, 0, 1000);
    // The reader takes the sample that transmits its timestamp, and lags behind those that follow it.
    publish_at(&mut fanout, 0, 1000.0);
    socket.room.set(0);
    publish(&mut fanout, 1, 1);
    serve(&mut fanout);
    publish(&mut fanout, 2, 2);
    let (_, late, replay) = read(&mut fanout, Some(ReplayFrom::Oldest), 4, 1000);
    assert_eq!((replay, late.received.borrow().len()), (4..4, 0));
    publish_at(&mut fanout, 4, 2000.0);
    publish(&mut fanout, 5, 1);
    let (_, late, replay) = read(&mut fanout, Some(ReplayFrom::Oldest), 6, 1000);
    assert_eq!((replay, first_stamp(&late)), (4..6, 2000.0));
    // Who goes on where it was computes them from its last one.
    let (_, late, replay) = read(&mut fanout, Some(here(2)), 6, 1000);
    assert_eq!((replay, late.received.borrow()[0]), (2..6, 1));
}

#[test]
fn a_timestamp_from_before_retention_counts() {
    let mut fanout = retaining(1.0);
    fanout.look_after_retention(NOW);
    let (slow, socket, _) = read(&mut fanout, None, 0, 1000);
    publish(&mut fanout, 0, 1);
    socket.room.set(0);
    publish_at(&mut fanout, 1, 1000.0);
    read(&mut fanout, Some(ReplayFrom::Live), 2, 1000);
    assert!(fanout.leave(slow).is_ready());
    publish(&mut fanout, 2, 1);
    let (_, late, replay) = read(&mut fanout, Some(ReplayFrom::LastSamples(1)), 3, 1000);
    assert_eq!((replay, first_stamp(&late)), (2..3, 1000.0 + 0.01));
}

#[test]
fn an_outlet_that_skipped_before_its_first_push_gives_all_of_itself() {
    let mut fanout = retaining(30.0);
    publish(&mut fanout, 5, 3);
    let (_, _, replay) = read(&mut fanout, Some(elsewhere()), 8, 1000);
    assert_eq!(replay, 0..8);
    fanout.look_after_retention(36.0);
    publish(&mut fanout, 8, 1);
    let (_, _, replay) = read(&mut fanout, Some(elsewhere()), 9, 1000);
    assert_eq!(replay, 9..9);
}

#[test]
fn a_reader_is_told_why_it_misses_samples() {
    let mut fanout = retaining(30.0);
    publish(&mut fanout, 0, 10);
    let (id, socket, replay) = join_asked(&mut fanout, Some(ReplayFrom::Oldest), 10, 1);
    assert_eq!(replay, 0..10);
    fanout.look_after_retention(36.0);
    assert_eq!(publish(&mut fanout, 10, 1).dropped, 10);
    serve(&mut fanout);
    assert_eq!(socket.received.borrow()[..2], [3, 4]);
    socket.room.set(0);
    publish(&mut fanout, 11, 1);
    serve(&mut fanout);
    publish(&mut fanout, 12, 1);
    fanout.look_after_retention(37.0);
    assert_eq!(publish(&mut fanout, 13, 1).dropped, 1);
    let received = socket.received.borrow().len();
    socket.room.set(usize::MAX);
    fanout.unblock(id);
    serve(&mut fanout);
    // Behind a frame without a timestamp.
    assert_eq!(socket.received.borrow()[received + 2..][..2], [3, 1]);
}

#[test]
fn the_reason_of_each_gap_is_passed_on_to_who_keeps_up_and_to_who_lags() {
    let mut fanout = retaining(30.0);
    publish(&mut fanout, 0, 1);
    let (_, quick, _) = read(&mut fanout, Some(ReplayFrom::Live), 1, 1000);
    let (id, slow, _) = read(&mut fanout, Some(ReplayFrom::Live), 1, 1000);
    slow.room.set(0);
    publish(&mut fanout, 1, 1);
    for (first, reason) in [(10, GapReason::LostBefore), (20, GapReason::Other(9))] {
        fanout.lose(reason);
        fanout.lose(GapReason::NotRetained);
        publish(&mut fanout, first, 1);
        serve(&mut fanout);
    }
    publish(&mut fanout, 30, 1);
    // What is lost before nobody stores it is nobody's later gap.
    fanout.lose(GapReason::NotRetained);
    fanout.begin(R, 40);
    publish(&mut fanout, 45, 1);
    slow.room.set(usize::MAX);
    fanout.unblock(id);
    serve(&mut fanout);
    let reasons = |socket: &Socket| -> Vec<u8> {
        let received = socket.received.borrow();
        let starts = received.windows(10);
        let gap = starts.filter(|bytes| {
            let to = u64::from_ne_bytes(bytes[2..].try_into().unwrap());
            bytes[0] == 3 && [10, 20, 30, 45].contains(&to)
        });
        gap.map(|bytes| bytes[1]).collect()
    };
    assert_eq!(reasons(&quick), [2, 9, 3, 3]);
    assert_eq!(reasons(&slow), reasons(&quick));
}

#[test]
fn a_feed_is_resumed_if_it_goes_on_with_what_it_asked_for() {
    let live = Live {
        edge: 10,
        generation: &Generation::parse(b"a-1").unwrap(),
        nominal_srate: 100.0,
    };
    let cases = [
        (here(5), 5..10, true),
        (here(5), 7..10, true),
        (here(10), 10..10, true),
        (here(5), 10..10, false),
        (here(11), 0..10, false),
        (elsewhere(), 0..10, false),
        (ReplayFrom::Oldest, 5..10, false),
    ];
    for (from, replay, resumes) in cases {
        assert_eq!(live.resumes(&from, &replay), resumes, "{from:?} {replay:?}");
    }
}
