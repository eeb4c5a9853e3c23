//! An inlet's connection and an outlet's, on a virtual network in virtual time. Order, cuts and delays
//! follow from a seed, which a failure prints; the same again: `SIM_SEED=7 cargo test -p lsl-secure`.
#![expect(clippy::unwrap_used, clippy::print_stderr, reason = "a test")]

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use lsl_secure::connection::{Answer, Connection, Event, Question, SessionInfo};
use lsl_secure::handshake::PREAMBLE;
use lsl_secure::{Cause, Descriptor, Error, Local, Random, Result, SecretKey, Suites};

/// Splitmix64.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (word >> 33) as usize
    }

    fn byte(&mut self) -> u8 {
        self.next().to_le_bytes()[0]
    }

    /// One of so many, small ones most often.
    fn below(&mut self, count: usize) -> usize {
        let bits = self.next() % 31;
        (self.next() >> bits) % count
    }
}

impl Random for Dice {
    fn fill(&mut self, bytes: &mut [u8]) -> Result<()> {
        bytes.fill_with(|| self.byte());
        Ok(())
    }
}

/// What the network does with one direction, from one byte on.
#[derive(Clone, Copy)]
enum Fault {
    None,
    /// Ends it.
    Cut(usize),
    /// Loses what follows, without a word.
    Silence(usize),
    /// Changes this one bit.
    Flip(usize, usize),
}

/// Bytes on their way.
struct Pipe {
    bytes: VecDeque<u8>,
    room: usize,
    written: usize,
    fault: Fault,
}

impl Pipe {
    fn write(&mut self, bytes: &[u8], most: usize) -> io::Result<usize> {
        let free = self.room.saturating_sub(self.bytes.len());
        let taken = bytes.len().min(free).min(most);
        for &byte in &bytes[..taken] {
            match self.fault {
                Fault::Cut(at) | Fault::Silence(at) if self.written >= at => {}
                Fault::Flip(at, bit) if self.written == at => {
                    self.bytes.push_back(byte ^ (1 << bit));
                }
                _ => self.bytes.push_back(byte),
            }
            self.written += 1;
        }
        (taken > 0)
            .then_some(taken)
            .ok_or_else(|| io::ErrorKind::WouldBlock.into())
    }
}

/// One end, and the program that uses it.
struct Peer {
    connection: Connection,
    /// To the other.
    pipe: Pipe,
    /// Its answers to `Turn`, `PeerKey` and `Descriptor`, and how late they may be.
    answers: [Result<(), Cause>; 3],
    late_secs: u8,
    question: Option<(f64, Question)>,
    info: Option<Arc<SessionInfo>>,
    /// What to send, and not before when.
    plan: VecDeque<(f64, Vec<u8>)>,
    sent: Vec<u8>,
    received: Vec<u8>,
    pings: usize,
    pongs: usize,
    key_updates: usize,
    closed: bool,
    error: Option<Error>,
    has_hung_up: bool,
}

/// The inlet and the outlet.
struct World {
    dice: Dice,
    now: f64,
    peers: [Peer; 2],
}

impl World {
    fn new(seed: u64, faults: [Fault; 2]) -> Self {
        let mut dice = Dice(seed);
        let request = vec![b'?'; 1 + dice.below(3000)];
        let [inlet, outlet] = [1, 2].map(|seed| {
            Arc::new(Local {
                key: SecretKey::from_seed(&[seed; 32]),
                psk: None,
                suites: [Suites::ChaCha20Only, Suites::of_this_cpu()][dice.below(2)],
                pad_to: [0, 0, 64][dice.below(3)],
            })
        });
        let descriptor = Descriptor {
            channel_count: 1,
            channel_format: 1,
            ..Descriptor::default()
        };
        let mut inlet = Connection::initiator(inlet, &request, 0.0, &mut dice).unwrap();
        // Who accepts the connection reads this, and no byte more.
        let mut preamble = PREAMBLE.len();
        let skip = |bytes: &[u8]| match std::mem::take(&mut preamble).min(bytes.len()) {
            0 => Err(io::ErrorKind::WouldBlock.into()),
            taken => Ok(taken),
        };
        assert!(!inlet.flush(|| 0.0, skip).unwrap());
        let outlet = Connection::responder(outlet, Arc::new(descriptor), 0.0);
        let mut peer = |connection, sent, fault| Peer {
            connection,
            pipe: Pipe {
                bytes: VecDeque::new(),
                room: 1 + dice.below(100_000),
                written: 0,
                fault,
            },
            answers: [Ok(()); 3],
            late_secs: 0,
            question: None,
            info: None,
            plan: (0..dice.below(6))
                .map(|_| (0.0, vec![dice.byte(); dice.below(60_000)]))
                .collect(),
            sent,
            received: Vec::new(),
            pings: 0,
            pongs: 0,
            key_updates: 0,
            closed: false,
            error: None,
            has_hung_up: false,
        };
        let peers = [
            peer(inlet, request, faults[0]),
            peer(outlet, Vec::new(), faults[1]),
        ];
        Self {
            dice,
            now: 0.0,
            peers,
        }
    }

    /// A session with little to say.
    fn short(seed: u64, faults: [Fault; 2]) -> Self {
        let mut world = Self::new(seed, faults);
        for peer in &mut world.peers {
            peer.plan = [(0.0, vec![1; 20]), (0.0, vec![2; 30])].into();
        }
        world
    }

    /// Runs until both have hung up.
    fn run(mut self) -> [Peer; 2] {
        let mut idle = 0;
        while self.peers.iter().any(|peer| !peer.has_hung_up) {
            let (side, action) = (self.dice.below(2), self.dice.next() % 5);
            idle = if self.act(side, action) { 0 } else { idle + 1 };
            // Only when nothing else can happen, so that nobody is late by accident.
            if idle > 50 && !(0..10).any(|number| self.act(number / 5, number % 5)) {
                self.wait();
                idle = 0;
            }
        }
        self.peers
    }

    /// One thing that may happen to one peer; whether it did.
    fn act(&mut self, side: usize, action: usize) -> bool {
        let (now, dice) = (self.now, &mut self.dice);
        let [inlet, outlet] = &mut self.peers;
        let (peer, other) = if side == 0 {
            (inlet, outlet)
        } else {
            (outlet, inlet)
        };
        if peer.has_hung_up {
            return false;
        }
        if other.has_hung_up {
            // What nobody reads is lost.
            peer.pipe.room = usize::MAX;
        }
        let most = 1 + dice.below(70_000);
        let did = match action {
            0 => peer.answer(now, dice),
            1 => peer.flush(now, most),
            2 => peer.send(now, most),
            3 => peer.receive(other, most, now),
            _ => side == 0 && peer.ping(now, dice),
        };
        peer.settle(now, dice);
        assert!(other.sent.starts_with(&peer.received), "not what was sent");
        assert!(peer.info.is_some() || peer.received.is_empty(), "too early");
        let unsent = peer.connection.sender().map_or(0, |it| it.unsent());
        assert!(unsent <= 64 * 1024, "{unsent} bytes");
        did
    }

    /// Lets time pass until the next thing is due.
    fn wait(&mut self) {
        let mut next = f64::INFINITY;
        for peer in self.peers.iter().filter(|peer| !peer.has_hung_up) {
            let answer = peer.question.as_ref().map(|(at, _)| *at);
            let send = peer.info.as_ref().and_then(|_| Some(peer.plan.front()?.0));
            // What is due and does not happen waits for the other.
            let own = [answer, send]
                .into_iter()
                .flatten()
                .filter(|at| *at > self.now);
            next = own
                .chain(peer.connection.poll_timeout())
                .fold(next, f64::min);
        }
        assert!(next.is_finite(), "everybody waits for ever");
        self.now = self.now.max(next);
        for peer in self.peers.iter_mut().filter(|peer| !peer.has_hung_up) {
            if peer
                .connection
                .poll_timeout()
                .is_some_and(|at| at <= self.now)
            {
                let result = peer.connection.handle_timeout(self.now);
                peer.note(result);
                peer.settle(self.now, &mut self.dice);
            }
        }
    }
}

impl Peer {
    fn note(&mut self, result: Result<()>) {
        if let Err(error) = result {
            assert!(self.error.is_none(), "a second error: {error}");
            self.error = Some(error);
            self.question = None;
        }
    }

    fn answer(&mut self, now: f64, dice: &mut Dice) -> bool {
        let Some((_, question)) = self.question.take_if(|(at, _)| *at <= now) else {
            return false;
        };
        let answer = match question {
            Question::Turn => Answer::Turn(self.answers[0]),
            Question::Work(work) => Answer::Work(work.run(dice)),
            Question::PeerKey(key) => {
                Answer::PeerKey(self.answers[1].map(|()| key.fingerprint().to_string()))
            }
            Question::Descriptor(_) => Answer::Descriptor(self.answers[2]),
        };
        let result = self.connection.handle_answer(answer, now);
        self.note(result);
        true
    }

    fn flush(&mut self, now: f64, most: usize) -> bool {
        let before = self.pipe.written;
        let flushed = self
            .connection
            .flush(|| now, |bytes| self.pipe.write(bytes, most));
        flushed.unwrap();
        self.pipe.written > before
    }

    /// What is due of the plan, and CLOSE behind it.
    fn send(&mut self, now: f64, most: usize) -> bool {
        let Some(sender) = self.connection.sender().filter(|it| !it.has_ended()) else {
            return false;
        };
        let Some((_, bytes)) = self.plan.front_mut().filter(|(at, _)| *at <= now) else {
            let is_all = self.plan.is_empty();
            if is_all {
                sender.close();
            }
            return is_all;
        };
        let Ok(sealed) = sender.send(bytes, || now, |sealed| self.pipe.write(sealed, most)) else {
            return false;
        };
        self.sent.extend(bytes.drain(..sealed));
        if bytes.is_empty() {
            self.plan.pop_front();
        }
        true
    }

    /// Bytes, or the end of the stream.
    fn receive(&mut self, from: &mut Self, most: usize, now: f64) -> bool {
        let is_cut = matches!(from.pipe.fault, Fault::Cut(at) if from.pipe.written >= at);
        let has_ended = (from.has_hung_up || is_cut) && from.pipe.bytes.is_empty();
        let length = from
            .pipe
            .bytes
            .len()
            .min(self.connection.max_read())
            .min(most);
        if length == 0 && (!has_ended || self.connection.max_read() == 0) {
            return false;
        }
        let mut bytes: Vec<u8> = from.pipe.bytes.drain(..length).collect();
        let result = self.connection.handle_input(&mut bytes, now, |data| {
            self.received.extend_from_slice(data);
            Ok(())
        });
        self.note(result);
        self.has_hung_up = length == 0 && self.error.is_none();
        true
    }

    /// An inlet asks, now and then.
    fn ping(&mut self, now: f64, dice: &mut Dice) -> bool {
        let sender = self.connection.sender().filter(|it| !it.has_ended());
        if let Some(sender) = sender.filter(|_| self.pings < 20 && dice.below(20) == 9) {
            sender.ping(now).unwrap();
            self.pings += 1;
        }
        false
    }

    /// Takes the events, and hangs up after the end.
    fn settle(&mut self, now: f64, dice: &mut Dice) {
        while let Some(event) = self.connection.poll_event() {
            match event {
                Event::Question(question) => {
                    assert!(self.question.is_none(), "two questions at once");
                    let late = f64::from(self.late_secs) * f64::from(dice.byte()) / 256.0;
                    self.question = Some((now + late, question));
                }
                Event::Established(info) => self.info = Some(info),
                Event::Ping { t0, t1 } => self.connection.sender().unwrap().pong(t0, t1),
                Event::Pong { times, at } => {
                    assert!(times.is_sorted() && times[2] <= at);
                    self.pongs += 1;
                }
                Event::KeyUpdated => self.key_updates += 1,
                Event::Closed => self.closed = true,
            }
        }
        let due = self.connection.poll_timeout();
        self.has_hung_up |= match self.connection.sender() {
            Some(sender) if self.error.is_some() => sender.unsent() == 0,
            Some(sender) => self.closed && sender.is_closed(),
            None => self.error.is_some() && due.is_none(),
        };
    }
}

/// Calls `run` with many seeds, or with the one of `SIM_SEED`.
fn seeds(count: u64, run: impl Fn(u64)) {
    struct Seed(u64);
    impl Drop for Seed {
        fn drop(&mut self) {
            if std::thread::panicking() {
                eprintln!("SIM_SEED={}", self.0);
            }
        }
    }
    let only = std::env::var("SIM_SEED").ok();
    let only = only.map(|seed| seed.parse::<u64>().unwrap());
    for seed in only.map_or(0..count, |seed| seed..seed + 1) {
        let seed = Seed(seed);
        run(seed.0);
    }
}

/// A session with everything that was to be sent.
fn assert_whole([inlet, outlet]: &[Peer; 2]) {
    for (peer, other) in [(inlet, outlet), (outlet, inlet)] {
        assert!(peer.error.is_none() && peer.closed, "{:?}", peer.error);
        assert!(peer.plan.is_empty() && peer.received == other.sent);
    }
    let [ours, theirs] = [inlet, outlet].map(|peer| peer.info.as_ref().unwrap());
    assert_eq!((ours.id, ours.suite), (theirs.id, theirs.suite));
    let key = SecretKey::from_seed(&[2; 32]).public();
    assert_eq!(
        (ours.peer, &ours.peer_name),
        (key, &key.fingerprint().to_string())
    );
}

#[test]
fn however_bytes_are_cut_and_answers_are_late_everything_arrives() {
    seeds(20, |seed| {
        let mut world = World::new(seed, [Fault::None; 2]);
        for peer in &mut world.peers {
            peer.late_secs = 1;
        }
        assert_whole(&world.run());
    });
}

#[test]
fn keys_change_hourly_and_silence_in_between_ends_nothing() {
    seeds(5, |seed| {
        let mut world = World::new(seed, [Fault::None; 2]);
        for peer in &mut world.peers {
            peer.plan = (0..4)
                .map(|hour| (4000.0 * f64::from(hour), vec![hour; 100]))
                .collect();
        }
        let peers = world.run();
        assert_whole(&peers);
        assert!(peers.iter().all(|peer| peer.key_updates >= 3));
        assert!(peers[0].pongs > 300, "{} PONGs", peers[0].pongs);
    });
}

/// Breaks one direction: who receives on it has a prefix, and no end that anybody forged. Returns the cause
/// there, and whether the other was told of it.
fn broken(seed: u64, side: usize, fault: Fault) -> (Cause, bool) {
    let mut faults = [Fault::None; 2];
    faults[side] = fault;
    let [inlet, outlet] = World::short(seed, faults).run();
    let (sender, receiver) = if side == 0 {
        (inlet, outlet)
    } else {
        (outlet, inlet)
    };
    assert!(!receiver.closed, "an end that nobody sent");
    let cause = receiver.error.expect("an end without CLOSE").cause();
    (cause, matches!(sender.error, Some(Error::Alert { .. })))
}

/// How many bytes an honest run sends there.
fn length(seed: u64, side: usize) -> usize {
    World::short(seed, [Fault::None; 2]).run()[side]
        .pipe
        .written
}

#[test]
fn an_end_at_any_byte_is_no_end_of_the_session() {
    for side in 0..2 {
        for at in 0..length(0, side) {
            let expected = match (side, at) {
                (1, 0) => Cause::PeerNotSecure,
                _ => Cause::Truncated,
            };
            assert_eq!(
                broken(0, side, Fault::Cut(at)),
                (expected, false),
                "{at} bytes of {side}"
            );
        }
    }
}

#[test]
fn changed_bits_and_silence_end_the_session_and_nothing_wrong_is_delivered() {
    seeds(160, |seed| {
        let (mut dice, side) = (Dice(seed), usize::from(seed % 2 == 1));
        let (at, bit) = (dice.next() % length(seed, side), dice.next() % 12);
        if bit >= 8 {
            let (cause, is_told) = broken(seed, side, Fault::Silence(at));
            assert!(
                matches!(cause, Cause::Timeout | Cause::Truncated),
                "{cause:?}"
            );
            assert!(!is_told);
            return;
        }
        let (cause, is_told) = broken(seed, side, Fault::Flip(at, bit));
        // Behind M3 and M2: a length that says more than comes, or too much; or what does not open.
        if at >= [PREAMBLE.len() + 45 + 153, 188][side] {
            use Cause::{RecordAuthFailed, RecordOverflow, Timeout, Truncated};
            let expected = [RecordAuthFailed, RecordOverflow, Timeout, Truncated];
            assert!(expected.contains(&cause), "{cause:?} at {at}");
            assert_eq!(is_told, cause == RecordOverflow, "{cause:?} at {at}");
        }
    });
}

#[test]
fn who_is_refused_is_told_why_and_gets_no_session() {
    use Cause::{Busy, DescriptorMismatch, NotAuthorised, RoleNotAllowed};
    for (side, question, cause) in [
        (1, 0, Busy),
        (1, 1, NotAuthorised),
        (0, 1, RoleNotAllowed),
        (0, 2, DescriptorMismatch),
    ] {
        seeds(4, |seed| {
            let mut world = World::short(seed, [Fault::None; 2]);
            world.peers[side].answers[question] = Err(cause);
            let peers = world.run();
            assert!(peers[0].info.is_none());
            let causes = peers.map(|peer| peer.error.map(|error| error.cause()));
            assert_eq!(causes, [Some(cause); 2]);
        });
    }
}
