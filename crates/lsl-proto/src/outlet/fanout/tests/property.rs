//! Any order of pushes, tasks and full sockets.

use proptest::prelude::*;

use super::*;

/// A consumer in the property test.
#[derive(Debug)]
struct Reader {
    id: ConsumerId,
    socket: Rc<Socket>,
    joined_at: u16,
}

impl Reader {
    /// What the task of the connection does.
    fn step(&self, fanout: &mut Fanout<Sender>) {
        if fanout.status(self.id) == Status::Blocked && self.socket.room.get() > 0 {
            fanout.unblock(self.id);
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
    },
    Flush,
    Room {
        reader: usize,
        room: usize,
    },
    Task {
        reader: usize,
    },
    /// The flush task finishes its batch, and fills another.
    Fill,
    /// The flush task serves one reader.
    Send,
    Join {
        limits: FeedLimits,
    },
    Leave {
        reader: usize,
    },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (1usize..6, any::<bool>()).prop_map(|(samples, flush)| Step::Push { samples, flush }),
        1 => Just(Step::Flush),
        4 => (0usize..4, 0usize..40).prop_map(|(reader, room)| Step::Room { reader, room }),
        6 => (0usize..4).prop_map(|reader| Step::Task { reader }),
        5 => Just(Step::Fill),
        6 => Just(Step::Send),
        1 => (1usize..12, 1usize..9, any::<bool>()).prop_map(|(capacity, chunk, coalesces)| {
            Step::Join { limits: FeedLimits { capacity, chunk, coalesces, is_granted: false } }
        }),
        1 => (0usize..4).prop_map(|reader| Step::Leave { reader }),
    ]
}

proptest! {
    /// Every sample arrives whole and in order, or is counted as dropped; whatever the sockets' room,
    /// the chunking, who sends, and the moments at which tasks run, and at which readers come and go.
    #[test]
    fn every_sample_arrives_or_is_counted(steps in proptest::collection::vec(step(), 1..120)) {
        let mut fanout = Fanout::default();
        let mut batch = Batch::default();
        let mut readers: Vec<Reader> = Vec::new();
        let mut gone: Vec<Reader> = Vec::new();
        let (mut pushed, mut dropped) = (0u16, 0);
        let first = Step::Join { limits: FeedLimits { capacity: 5, ..LIMITS } };
        for step in std::iter::once(first).chain(steps) {
            match step {
                Step::Push { samples, flush } => {
                    let first = pushed.into();
                    let mut piece = Piece::default();
                    for _ in 0..samples {
                        piece.bytes.extend_from_slice(&pushed.to_be_bytes());
                        piece.bytes.resize(piece.bytes.len() + frame_len(pushed) - 2, 0xEE);
                        piece.ends.push(piece.bytes.len());
                        pushed += 1;
                    }
                    let pushthrough = if flush { Pushthrough::Flush } else { Pushthrough::Hold };
                    let at = Position { variant: VARIANT, first };
                    let published =
                        fanout.publish(&mut piece, at, pushthrough, Inline::Always, 0.0);
                    dropped += published.dropped;
                }
                Step::Flush => { let _ = fanout.flush(); }
                Step::Room { reader, room } => {
                    if let Some(reader) = readers.get(reader) {
                        reader.socket.room.set(room);
                    }
                }
                Step::Task { reader } => {
                    if let Some(reader) = readers.get(reader) {
                        reader.step(&mut fanout);
                    }
                }
                Step::Fill => {
                    while batch.send_next().is_some() {}
                    fanout.finish(&mut batch);
                    fanout.fill(24, &mut batch);
                }
                Step::Send => { batch.send_next(); }
                Step::Join { limits } => {
                    let (id, socket) = join_at(&mut fanout, limits, pushed.into());
                    socket.room.set(0);
                    readers.push(Reader { id, socket, joined_at: pushed });
                }
                Step::Leave { reader } => {
                    if reader < readers.len() {
                        let reader = readers.swap_remove(reader);
                        let sent = fanout.sent();
                        let _ = fanout.leave(reader.id);
                        prop_assert_eq!(fanout.sent(), sent);
                        gone.push(reader);
                    }
                }
            }
        }
        fanout.close();
        while batch.send_next().is_some() {}
        fanout.finish(&mut batch);
        for reader in &gone {
            prop_assert!(fanout.leave(reader.id).is_ready());
            reader.frames();
        }
        for reader in &readers {
            reader.socket.room.set(usize::MAX);
            reader.step(&mut fanout);
        }
        serve(&mut fanout);
        prop_assert_eq!(fanout.totals().1, dropped);
        for reader in &readers {
            prop_assert_eq!(fanout.status(reader.id), Status::Ended);
            let (_, _, progress) =
                fanout.consumers().find(|(id, ..)| *id == reader.id).expect("still there");
            let frames = reader.frames();
            let all: usize = frames.iter().map(|&number| frame_len(number)).sum();
            prop_assert_eq!(1 + all, reader.socket.received.borrow().len());
            prop_assert_eq!(progress.sent, frames.len() as u64);
            prop_assert_eq!(
                progress.sent + progress.dropped,
                u64::from(pushed - reader.joined_at)
            );
        }
        prop_assert_eq!(fanout.backlog_bytes(), 0);
    }
}
