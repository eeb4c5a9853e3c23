//! Granted feeds: whatever readers ask for and however they lag, each knows the number of every sample that it gets
//! and of every one that it misses, and computes the timestamps of an uninterrupted feed.

use proptest::prelude::*;

use super::*;
use crate::limits::Host;
use crate::outlet::retention::{Retain, Share};
use crate::wire::sample110::{Encoder110, Restamper};
use crate::wire::sequence::{Generation, ReplayFrom};
use crate::{ByteOrder, ChannelFormat};

const RATE: f64 = 100.0;
const RETAINED: Variant = Fanout::<Sender>::RETAINED;

fn generation() -> Generation {
    Generation::parse(b"a-1").unwrap()
}

/// An outlet that pushes single bytes, and what a reader of all of them has.
struct Outlet {
    fanout: Fanout<Sender>,
    encoder: Encoder110,
    batch: Batch<Sender>,
    /// Value and timestamp of each sample, numbered from 0; nothing for one that was skipped.
    pushed: Vec<Option<(u8, f64)>>,
    /// Every frame published.
    frames: Vec<Vec<u8>>,
    plain: Vec<Plain>,
    now: f64,
}

/// A reader, as far as it has received.
struct Reader {
    id: ConsumerId,
    socket: Rc<Socket>,
    begin: u64,
    /// Timestamp of the sample before, if the reader has it.
    last: Option<f64>,
}

/// A reader that is not granted, as liblsl's.
struct Plain {
    id: ConsumerId,
    socket: Rc<Socket>,
    capacity: usize,
    begin: usize,
    /// Frames that were dropped, by their places among all.
    dropped: Vec<Range<usize>>,
}

impl Plain {
    fn dropped(&self) -> usize {
        self.dropped.iter().map(ExactSizeIterator::len).sum()
    }

    /// Takes note of what a push dropped: the oldest of those that waited, and no more than that.
    fn note(&mut self, progress: ConsumerProgress, published: usize) {
        let [sent, dropped, behind] = [progress.sent, progress.dropped, progress.behind]
            .map(|samples| usize::try_from(samples).unwrap());
        assert_eq!(sent + dropped + behind, published - self.begin);
        assert!(behind <= self.capacity);
        let more = dropped - self.dropped();
        if more > 0 {
            assert_eq!(behind, self.capacity);
            let end = published - self.capacity;
            self.dropped.push(end - more..end);
        }
    }

    /// Returns the bytes that it must have got.
    fn expected(&self, frames: &[Vec<u8>]) -> Vec<u8> {
        let is_sent = |at: &usize| !self.dropped.iter().any(|dropped| dropped.contains(at));
        let sent = (self.begin..frames.len()).filter(is_sent);
        sent.flat_map(|at| frames[at].iter().copied()).collect()
    }
}

impl Outlet {
    fn new(limits: Retain) -> Self {
        let mut fanout = Fanout::default();
        let share = std::sync::Arc::new(Share::new(1 << 30));
        fanout.retain(Retention::new(limits, share, 0.0), RATE);
        Self {
            fanout,
            encoder: Encoder110::new(ChannelFormat::Int8, 1, ByteOrder::NATIVE),
            batch: Batch::default(),
            pushed: Vec::new(),
            frames: Vec::new(),
            plain: Vec::new(),
            now: 0.0,
        }
    }

    fn edge(&self) -> u64 {
        self.pushed.len() as u64
    }

    /// Pushes samples, of which those with a stamp transmit it.
    fn push(&mut self, stamps: &[Option<f64>], flush: bool) {
        let (mut piece, first) = self.encode(stamps);
        self.publish(&mut piece, first, flush);
    }

    fn publish(&mut self, piece: &mut Piece, first: u64, flush: bool) {
        let pushthrough = if flush {
            Pushthrough::Flush
        } else {
            Pushthrough::Hold
        };
        let at = Position {
            variant: RETAINED,
            first,
        };
        let mut start = 0;
        for &end in &piece.ends {
            self.frames.push(piece.bytes[start..end].to_vec());
            start = end;
        }
        let _ = (self.fanout).publish(piece, at, pushthrough, Inline::Always, self.now);
        for reader in &mut self.plain {
            let mut consumers = self.fanout.consumers();
            let (_, _, progress) = consumers.find(|(id, ..)| *id == reader.id).unwrap();
            reader.note(progress, self.frames.len());
        }
    }

    /// Numbers and encodes a part of a push. Returns it with its first number.
    fn encode(&mut self, stamps: &[Option<f64>]) -> (Piece, u64) {
        let (mut piece, first) = (Piece::default(), self.edge());
        for stamp in stamps {
            let [value, ..] = self.edge().to_le_bytes();
            let sent = stamp.unwrap_or(crate::DEDUCED_TIMESTAMP);
            (self.encoder)
                .encode_sample(&mut piece.bytes, sent, &[value.cast_signed()])
                .unwrap();
            piece.ends.push(piece.bytes.len());
            let last = self.pushed.iter().rev().flatten().next();
            let missing = self
                .pushed
                .iter()
                .rev()
                .take_while(|it| it.is_none())
                .count();
            let last = last.map_or(0.0, |(_, stamp)| *stamp);
            let before = Restamper::new(ByteOrder::NATIVE, RATE).after(last, missing as u64);
            let stamp = stamp.unwrap_or(before + 1.0 / RATE);
            self.pushed.push(Some((value, stamp)));
        }
        (piece, first)
    }

    fn stamps(&self, stamped: &[bool]) -> Vec<Option<f64>> {
        let stamps = stamped.iter().zip(0_u8..);
        let stamps = stamps.map(|(&it, n)| it.then_some(self.now + f64::from(n)));
        stamps.collect()
    }

    fn from(&self, kind: u8, count: u64) -> ReplayFrom {
        match kind {
            0 => ReplayFrom::Live,
            1 => ReplayFrom::Oldest,
            2 => ReplayFrom::LastSamples(count),
            _ => ReplayFrom::At(
                crate::wire::sequence::Position {
                    generation: generation(),
                    next: self.edge().saturating_sub(count),
                },
                None,
            ),
        }
    }

    fn join(&mut self, from: &ReplayFrom, capacity: usize) -> Reader {
        let live = Live {
            edge: self.edge(),
            generation: &generation(),
            nominal_srate: RATE,
        };
        let host = Host::from(std::net::IpAddr::from([127, 0, 0, 1]));
        let replay = self.fanout.replay(from, live, host, self.now);
        let begin = replay.start;
        let (id, socket) = self.join_at(replay, capacity, true);
        let last = (begin == 0).then_some(0.0);
        Reader {
            id,
            socket,
            begin,
            last,
        }
    }

    fn join_plain(&mut self, capacity: usize) {
        let edge = self.edge();
        let (id, socket) = self.join_at(edge..edge, capacity, false);
        self.plain.push(Plain {
            id,
            socket,
            capacity,
            begin: self.frames.len(),
            dropped: Vec::new(),
        });
    }

    fn join_at(
        &mut self,
        replay: Range<u64>,
        capacity: usize,
        is_granted: bool,
    ) -> (ConsumerId, Rc<Socket>) {
        let socket = Rc::new(Socket::default());
        let sender = Sender {
            socket: Rc::clone(&socket),
            tx: Tx::plain(),
        };
        let limits = FeedLimits {
            capacity,
            is_granted,
            ..LIMITS
        };
        let id = (self.fanout).join(sender, Rc::clone(&socket), RETAINED, limits, replay);
        (id, socket)
    }

    /// Sends a reader everything.
    fn serve(&mut self, id: ConsumerId, socket: &Socket) {
        while self.batch.send_next().is_some() {}
        self.fanout.finish(&mut self.batch);
        resume(&mut self.fanout, id, socket);
    }

    /// Decodes what a reader got, and compares it with what was pushed. Returns its next number and the samples
    /// that it misses.
    fn check(&self, reader: &Reader) -> (u64, u64) {
        let received = reader.socket.received.borrow();
        let (mut bytes, mut next, mut lost) = (received.as_slice(), reader.begin, 0);
        let mut last = reader.last;
        while let Some((tag, rest)) = bytes.split_first() {
            let stamp;
            (stamp, bytes) = match *tag {
                3 => {
                    let (to, rest) = rest[1..].split_first_chunk().unwrap();
                    let to = u64::from_ne_bytes(*to);
                    assert!(to > next, "{to} after {next}");
                    lost += to - next;
                    (next, last, bytes) = (to, None, rest);
                    continue;
                }
                2 => {
                    let (stamp, rest) = rest.split_first_chunk().unwrap();
                    (Some(f64::from_ne_bytes(*stamp)), rest)
                }
                _ => (last.map(|last| last + 1.0 / RATE), rest),
            };
            let (value, rest) = bytes.split_first().unwrap();
            let (pushed, expected) = self.pushed[usize::try_from(next).unwrap()].unwrap();
            // Who joins live between samples that transmit none computes others, as ever.
            assert_eq!(
                (*value, stamp.unwrap_or(expected)),
                (pushed, expected),
                "{next}"
            );
            (bytes, last, next) = (rest, stamp, next + 1);
        }
        (next, lost)
    }
}

#[derive(Debug, Clone)]
enum Step {
    /// Samples, of which the first and perhaps others are stamped.
    Push {
        stamped: Vec<bool>,
        flush: bool,
    },
    /// The same, in two parts, between which a reader joins.
    PushAround {
        stamped: Vec<bool>,
        from: u8,
        count: u64,
    },
    Skip {
        samples: usize,
    },
    Pass {
        secs: f64,
    },
    Room {
        reader: usize,
        room: usize,
    },
    Fill,
    Send,
    Join {
        from: u8,
        count: u64,
        capacity: usize,
    },
    JoinPlain {
        capacity: usize,
    },
    /// The connection breaks; a new one goes on where it was.
    Resume {
        reader: usize,
    },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        9 => (proptest::collection::vec(any::<bool>(), 1..40), any::<bool>())
            .prop_map(|(stamped, flush)| Step::Push { stamped, flush }),
        1 => (proptest::collection::vec(any::<bool>(), 2..40), 0u8..4, 0u64..50)
            .prop_map(|(stamped, from, count)| Step::PushAround { stamped, from, count }),
        1 => (1usize..5).prop_map(|samples| Step::Skip { samples }),
        2 => (0.0..3.0).prop_map(|secs| Step::Pass { secs }),
        1 => (1usize..60).prop_map(|capacity| Step::JoinPlain { capacity }),
        6 => (0usize..6, 0usize..300).prop_map(|(reader, room)| Step::Room { reader, room }),
        5 => Just(Step::Fill),
        6 => Just(Step::Send),
        2 => (0u8..4, 0u64..50, 1usize..60)
            .prop_map(|(from, count, capacity)| Step::Join { from, count, capacity }),
        2 => (0usize..4).prop_map(|reader| Step::Resume { reader }),
    ]
}

proptest! {
    #[test]
    fn every_sample_is_received_or_known_to_be_missing(
        steps in proptest::collection::vec(step(), 1..120),
        bytes in 1usize..2_000,
    ) {
        let mut outlet = Outlet::new(Retain { seconds: 4.0, bytes, unread: true });
        let mut readers: Vec<Reader> = Vec::new();
        for step in steps {
            match step {
                Step::Push { stamped, flush } => {
                    let stamps = outlet.stamps(&stamped);
                    outlet.push(&stamps, flush);
                }
                Step::PushAround { stamped, from, count } => {
                    let stamps = outlet.stamps(&stamped);
                    let (first, second) = stamps.split_at(stamps.len() / 2);
                    let [mut first, mut second] = [first, second].map(|part| outlet.encode(part));
                    outlet.publish(&mut first.0, first.1, true);
                    let from = outlet.from(from, count);
                    readers.push(outlet.join(&from, 60));
                    outlet.publish(&mut second.0, second.1, true);
                }
                Step::Skip { samples } => {
                    outlet.pushed.resize(outlet.pushed.len() + samples, None);
                }
                Step::Pass { secs } => {
                    outlet.now += secs;
                    outlet.fanout.look_after_retention(outlet.now);
                }
                Step::Room { reader, room } => {
                    let granted = readers.iter().take(4).map(|it| (it.id, &it.socket));
                    let plain = outlet.plain.iter().take(2).map(|it| (it.id, &it.socket));
                    if let Some((id, socket)) = granted.chain(plain).nth(reader) {
                        socket.room.set(room);
                        outlet.fanout.unblock(id);
                    }
                }
                Step::Fill => {
                    while outlet.batch.send_next().is_some() {}
                    outlet.fanout.finish(&mut outlet.batch);
                    outlet.fanout.fill(24, &mut outlet.batch);
                }
                Step::Send => { outlet.batch.send_next(); }
                Step::Join { from, count, capacity } => {
                    let from = outlet.from(from, count);
                    readers.push(outlet.join(&from, capacity));
                }
                Step::JoinPlain { capacity } => outlet.join_plain(capacity),
                Step::Resume { reader } => {
                    if reader < readers.len() {
                        let reader = readers.swap_remove(reader);
                        outlet.serve(reader.id, &reader.socket);
                        let (next, _) = outlet.check(&reader);
                        prop_assert!(outlet.fanout.leave(reader.id).is_ready());
                        let position = crate::wire::sequence::Position {
                            generation: generation(),
                            next,
                        };
                        let mut again = outlet.join(&ReplayFrom::At(position, None), 60);
                        prop_assert!(again.begin >= next);
                        if again.begin == next && next > reader.begin {
                            again.last = outlet.pushed[usize::try_from(next).unwrap() - 1].map(|it| it.1);
                        }
                        readers.push(again);
                    }
                }
            }
        }
        outlet.push(&[None], true);
        for reader in &readers {
            outlet.serve(reader.id, &reader.socket);
            let (next, lost) = outlet.check(reader);
            let (_, _, progress) =
                outlet.fanout.consumers().find(|(id, ..)| *id == reader.id).unwrap();
            prop_assert_eq!(next, outlet.edge());
            prop_assert_eq!(progress.sent, next - reader.begin - lost);
            let from = usize::try_from(reader.begin).unwrap();
            let skipped = outlet.pushed.iter().skip(from).filter(|it| it.is_none());
            let skipped = skipped.count() as u64;
            prop_assert_eq!(progress.dropped + skipped, lost);
        }
        for reader in std::mem::take(&mut outlet.plain) {
            outlet.serve(reader.id, &reader.socket);
            prop_assert_eq!(&*reader.socket.received.borrow(), &reader.expected(&outlet.frames));
        }
    }
}
