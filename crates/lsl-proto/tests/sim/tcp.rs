//! TCP connections: two pipes with a window each, which delay, cut, reset or change bytes on their way.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;

/// One end of a connection. Dropping it closes the end: with a reset if something was not read.
#[derive(Debug)]
pub(crate) struct Socket {
    link: Rc<Link>,
    side: Side,
}

/// The two ends of a connection, and the directions that lead to them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    /// The end that connected: an inlet.
    Inlet,
    /// The end that accepted: an outlet.
    Outlet,
}

/// A connection, shared by its sockets and the world.
#[derive(Debug)]
pub(crate) struct Link {
    /// Addresses of the inlet and of the outlet.
    pub(crate) addresses: [SocketAddr; 2],
    /// Pipes that lead to the inlet and to the outlet.
    pipes: [RefCell<Pipe>; 2],
    /// Fault that happens to its bytes.
    fault: Cell<Option<Fault>>,
    /// Whether a policy forbids plaintext behind the hello.
    is_secret: Cell<bool>,
}

/// One direction of a connection.
#[derive(Debug)]
pub(crate) struct Pipe {
    /// Written, and not on its way yet.
    written: VecDeque<Segment>,
    /// On its way, with the time of its arrival.
    flight: VecDeque<(f64, Segment)>,
    inbox: VecDeque<u8>,
    ending: Option<Ending>,
    window: usize,
    /// The writer found it full, and is told once there is room.
    is_awaited: bool,
    is_closed_by_writer: bool,
    is_closed_by_reader: bool,
    /// Everything that was ever written, for the checks of the world.
    pub(crate) history: Vec<u8>,
    checked: usize,
}

#[derive(Debug)]
enum Segment {
    Bytes(Vec<u8>),
    End(Ending),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    Finished,
    Reset,
}

/// A fault at one position of one direction.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Fault {
    /// The end to which the bytes go.
    pub(crate) to: Side,
    /// Position of the first byte that is concerned.
    pub(crate) at: usize,
    pub(crate) kind: FaultKind,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum FaultKind {
    /// Changes one bit of the byte.
    Flip,
    /// Ends both directions before the byte, as a proxy that stops does.
    Cut,
    /// Resets both directions before the byte.
    Reset,
}

impl Side {
    pub(crate) fn other(self) -> Self {
        match self {
            Self::Inlet => Self::Outlet,
            Self::Outlet => Self::Inlet,
        }
    }
}

impl Pipe {
    fn new(window: usize) -> RefCell<Self> {
        RefCell::new(Self {
            written: VecDeque::new(),
            flight: VecDeque::new(),
            inbox: VecDeque::new(),
            ending: None,
            window,
            is_awaited: false,
            is_closed_by_writer: false,
            is_closed_by_reader: false,
            history: Vec::new(),
            checked: 0,
        })
    }

    fn room(&self) -> usize {
        let waiting = self
            .written
            .iter()
            .chain(self.flight.iter().map(|it| &it.1));
        let waiting: usize = waiting.map(Segment::len).sum();
        self.window.saturating_sub(waiting + self.inbox.len())
    }

    fn end(&mut self, ending: Ending) {
        if !std::mem::replace(&mut self.is_closed_by_writer, true) {
            self.written.push_back(Segment::End(ending));
        }
    }

    fn reset(&mut self) {
        self.written.clear();
        self.is_closed_by_writer = true;
        self.written.push_back(Segment::End(Ending::Reset));
    }

    /// Returns true if the reader has something to look at.
    pub(crate) fn is_readable(&self) -> bool {
        !self.is_closed_by_reader && (!self.inbox.is_empty() || self.ending.is_some())
    }
}

impl Segment {
    fn len(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::End(_) => 0,
        }
    }
}

impl Link {
    /// Connects two addresses. Returns the sockets of the inlet and of the outlet.
    pub(crate) fn connect(
        addresses: [SocketAddr; 2],
        window: usize,
        fault: Option<Fault>,
    ) -> (Rc<Self>, [Socket; 2]) {
        let link = Rc::new(Self {
            addresses,
            pipes: [Pipe::new(window), Pipe::new(window)],
            fault: Cell::new(fault),
            is_secret: Cell::new(false),
        });
        let sockets = [Side::Inlet, Side::Outlet].map(|side| Socket {
            link: Rc::clone(&link),
            side,
        });
        (link, sockets)
    }

    pub(crate) fn pipe_to(&self, side: Side) -> &RefCell<Pipe> {
        &self.pipes[side as usize]
    }

    /// Ends both directions so many bytes from now, of what goes to one end.
    pub(crate) fn break_after(&self, to: Side, bytes: usize, kind: FaultKind) {
        let at = self.pipe_to(to).borrow().history.len() + bytes;
        self.fault.set(Some(Fault { to, at, kind }));
    }

    /// Forbids plaintext from now on.
    pub(crate) fn forbid_plaintext(&self) {
        self.is_secret.set(true);
    }

    /// Allows plaintext again, to a peer that is not bound by any policy.
    pub(crate) fn allow_plaintext(&self) {
        self.is_secret.set(false);
    }

    /// Sends what was written on its way; `delay` is that of one segment. Returns when each arrives.
    pub(crate) fn dispatch(&self, to: Side, now: f64, mut delay: impl FnMut() -> f64) -> Vec<f64> {
        self.apply_fault(to);
        let mut pipe = self.pipe_to(to).borrow_mut();
        let mut arrivals = Vec::new();
        while let Some(segment) = pipe.written.pop_front() {
            let last = pipe.flight.back().map_or(now, |it| it.0);
            let at = (now + delay()).max(last);
            pipe.flight.push_back((at, segment));
            arrivals.push(at);
        }
        arrivals
    }

    fn apply_fault(&self, to: Side) {
        let Some(fault) = self.fault.get().filter(|fault| fault.to == to) else {
            return;
        };
        let mut pipe = self.pipe_to(to).borrow_mut();
        let waiting: usize = pipe.written.iter().map(Segment::len).sum();
        let begin = pipe.history.len() - waiting;
        let Some(offset) = fault.at.checked_sub(begin).filter(|it| *it < waiting) else {
            return;
        };
        let mut bytes = Vec::new();
        for segment in &pipe.written {
            if let Segment::Bytes(part) = segment {
                bytes.extend_from_slice(part);
            }
        }
        pipe.written.retain(|segment| segment.len() == 0);
        let ending = match fault.kind {
            FaultKind::Flip => {
                bytes[offset] ^= 0x10;
                return pipe.written.push_front(Segment::Bytes(bytes));
            }
            FaultKind::Cut => Ending::Finished,
            FaultKind::Reset => Ending::Reset,
        };
        bytes.truncate(offset);
        pipe.written = [Segment::Bytes(bytes), Segment::End(ending)].into();
        pipe.is_closed_by_writer = true;
        let mut back = self.pipe_to(to.other()).borrow_mut();
        back.is_closed_by_writer = true;
        back.written.push_back(Segment::End(ending));
    }

    /// Lets arrive what is due. Returns whether the reader has something to look at.
    pub(crate) fn deliver(&self, to: Side, now: f64) -> bool {
        let mut pipe = self.pipe_to(to).borrow_mut();
        let mut has_news = false;
        while pipe.flight.front().is_some_and(|it| it.0 <= now) {
            has_news = true;
            let segment = pipe.flight.pop_front().map(|it| it.1);
            match segment.unwrap() {
                Segment::Bytes(bytes) if pipe.is_closed_by_reader => {
                    // The system answers bytes for nobody with a reset.
                    drop(bytes);
                    self.pipe_to(to.other()).borrow_mut().reset();
                }
                Segment::Bytes(bytes) => pipe.inbox.extend(bytes),
                Segment::End(ending) => {
                    if ending == Ending::Reset {
                        pipe.inbox.clear();
                        pipe.is_awaited = false;
                    }
                    pipe.ending = Some(ending);
                }
            }
        }
        has_news && pipe.is_readable()
    }

    /// Returns true once if the writer found the pipe full and there is room now.
    pub(crate) fn take_has_room(&self, to: Side) -> bool {
        let mut pipe = self.pipe_to(to).borrow_mut();
        let has_room = pipe.is_awaited && pipe.room() > 0;
        pipe.is_awaited &= !has_room;
        has_room
    }

    /// Whether the connection is over and nothing is under way.
    pub(crate) fn is_over(&self) -> bool {
        self.pipes.iter().all(|pipe| {
            let pipe = pipe.borrow();
            pipe.is_closed_by_reader && pipe.is_closed_by_writer && pipe.flight.is_empty()
        })
    }

    /// Checks that nothing was said in plaintext that a policy forbids to say so.
    pub(crate) fn check_secrecy(&self) {
        if !self.is_secret.get() {
            return;
        }
        for pipe in &self.pipes {
            let mut pipe = pipe.borrow_mut();
            let from = pipe.checked.saturating_sub(LONGEST_SECRET - 1);
            let new = &pipe.history[from..];
            for (at, first) in new.iter().enumerate() {
                let is_secret =
                    |secret: &&[u8]| secret[0] == *first && new[at..].starts_with(secret);
                let seen = SECRETS.iter().find(|secret| is_secret(secret));
                assert!(seen.is_none(), "{seen:?} in plaintext");
            }
            pipe.checked = pipe.history.len();
        }
    }
}

impl Socket {
    pub(crate) fn link(&self) -> &Rc<Link> {
        &self.link
    }

    pub(crate) fn peer(&self) -> SocketAddr {
        self.link.addresses[self.side.other() as usize]
    }

    /// Writes what there is room for.
    pub(crate) fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        if self.link.pipe_to(self.side).borrow().ending == Some(Ending::Reset) {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        let mut pipe = self.link.pipe_to(self.side.other()).borrow_mut();
        if pipe.is_closed_by_writer {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let taken = bytes.len().min(pipe.room());
        pipe.is_awaited = taken < bytes.len();
        if taken == 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        pipe.history.extend_from_slice(&bytes[..taken]);
        pipe.written
            .push_back(Segment::Bytes(bytes[..taken].to_vec()));
        Ok(taken)
    }

    /// Reads at most so many bytes; none at the end of the stream.
    pub(crate) fn read(&self, most: usize) -> io::Result<Vec<u8>> {
        let mut pipe = self.link.pipe_to(self.side).borrow_mut();
        if !pipe.inbox.is_empty() {
            let taken = most.min(pipe.inbox.len());
            return Ok(pipe.inbox.drain(..taken).collect());
        }
        match pipe.ending {
            None => Err(io::ErrorKind::WouldBlock.into()),
            Some(Ending::Finished) => Ok(Vec::new()),
            Some(Ending::Reset) => Err(io::ErrorKind::ConnectionReset.into()),
        }
    }

    pub(crate) fn has_room(&self) -> bool {
        self.link.pipe_to(self.side.other()).borrow().room() > 0
    }

    /// Ends the direction to the peer, after what was written.
    pub(crate) fn shut_down(&self) {
        let mut pipe = self.link.pipe_to(self.side.other()).borrow_mut();
        pipe.end(Ending::Finished);
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        let mut inward = self.link.pipe_to(self.side).borrow_mut();
        inward.is_closed_by_reader = true;
        let mut outward = self.link.pipe_to(self.side.other()).borrow_mut();
        if inward.inbox.is_empty() {
            outward.end(Ending::Finished);
        } else {
            outward.reset();
        }
    }
}

/// Part of every sample of the simulation, and of no ciphertext.
pub(crate) const SECRET: i64 = 0x5345_4352_4554_0000;

/// Bytes that nobody may see on a connection whose policy forbids plaintext.
const SECRETS: [&[u8]; 4] = [b"TERCES", b"LSL:streamfeed", b"LSL:fullinfo", b"<desc"];
const LONGEST_SECRET: usize = 14;
