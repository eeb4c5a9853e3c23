//! Two doctors, one at each end: their connection, without its socket. Bytes and `now` in, bytes and events out.
//!
//! After `LSLD/1 CRLF` each side says one JSON line of each kind, in this order: `hello`, `plan`, `ready`, `counts`,
//! `report`, `bye`. What the other says never decides where anything is sent: each side plans for itself, to groups
//! and to the address at the other end, and says how much it will be. Spec: doctor §3.4

mod joint;
mod log;
mod messages;

use std::collections::VecDeque;
use std::fmt;

pub use joint::joint;
pub use log::{Heard, Probe, nonce, tag};
pub use messages::{Account, Counts, Hello, Path};
use messages::{Kind, Message};

/// Who opened the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// This one, which speaks first.
    Dials,
    /// The other one.
    Accepts,
}

/// What the driver hears.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// Who it is. Answered by [`Pair::plan`].
    Hello(Box<Hello>),
    /// Both know what comes: send what was planned. The other side sends by so many paths.
    Begin(usize),
    /// All that was sent has arrived, or never will. Answered by [`Pair::counted`].
    Count,
    /// What the other side heard.
    Counts(Box<Counts>),
    /// What it concludes. Answered by [`Pair::report`], if that was not said before.
    Account(Box<Account>),
    /// All was said.
    Done,
}

/// Why a pair ends early. It ends this connection alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PairError {
    /// The other end is no doctor.
    Foreign,
    /// A line is too long.
    Long,
    /// A line says nothing known, or not at its time.
    Order,
    /// It is of another version.
    Version,
    /// It wants to send more than any run needs.
    Greedy,
    /// It says nothing for too long.
    Slow,
    /// It closed the connection.
    Gone,
    /// What came is not what it encrypted.
    Forged,
    /// It ended the pair, for this reason.
    Ended(String),
    /// No encrypted session with it comes about, for this reason, or none where the policy here wants one.
    Refused(String),
    /// The user here ended it.
    Interrupted,
}

impl fmt::Display for PairError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Foreign => "what answers there is no lsl doctor",
            Self::Long => "it says more than a line may have",
            Self::Order => "it says something else than is expected",
            Self::Version => "it is of another version: update lsl on both machines",
            Self::Greedy => "it wants to send more than a run needs",
            Self::Slow => "it says nothing for too long",
            Self::Gone => "it closed the connection",
            Self::Forged => {
                "what came is not what it has encrypted: something between the two changes it"
            }
            Self::Interrupted => "interrupted",
            Self::Refused(why) => why,
            Self::Ended(why) => {
                return write!(
                    f,
                    "it ended: {}",
                    lsl_platform::terminal::printable(why.as_bytes(), 200)
                );
            }
        })
    }
}

impl std::error::Error for PairError {}

/// The connection of two doctors.
#[derive(Debug)]
pub struct Pair {
    side: Side,
    hello: Option<Hello>,
    /// Bytes of a line that is not complete.
    input: Vec<u8>,
    is_greeted: bool,
    output: Vec<u8>,
    events: VecDeque<Event>,
    /// How many kinds of lines were said, by this side and by the other.
    said: usize,
    heard: usize,
    /// How many paths this side plans, and the other.
    planned: usize,
    theirs: Option<usize>,
    /// When what was sent is counted.
    counts_at: Option<f64>,
    /// When the other side must have said its next line, and when all ends.
    deadline: f64,
    end: f64,
}

impl Pair {
    /// Begins to talk.
    pub fn new(side: Side, hello: Hello, now: f64) -> Self {
        let mut pair = Self {
            side,
            hello: Some(hello),
            input: Vec::new(),
            is_greeted: false,
            output: Vec::new(),
            events: VecDeque::new(),
            said: 0,
            heard: 0,
            planned: 0,
            theirs: None,
            counts_at: None,
            deadline: now + STEP_SECS,
            end: now + MOST_SECS,
        };
        if side == Side::Dials {
            pair.greet();
        }
        pair
    }

    /// Takes bytes from the socket, none at its end.
    ///
    /// # Errors
    /// Why the pair ends; [`take_output`](Self::take_output) has what the other is told.
    pub fn handle_input(&mut self, bytes: &[u8], now: f64) -> Result<(), PairError> {
        if bytes.is_empty() {
            return Err(if self.is_done() {
                return Ok(());
            } else {
                PairError::Gone
            });
        }
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            if self.input.len() + piece.len() > MAX_LINE_BYTES {
                return self.fail(PairError::Long);
            }
            self.input.extend_from_slice(piece);
            let greeting = PREAMBLE.get(..self.input.len().min(PREAMBLE.len()));
            if !self.is_greeted && !greeting.is_some_and(|it| self.input.starts_with(it)) {
                return Err(PairError::Foreign);
            }
            if piece.ends_with(b"\n") {
                let line = std::mem::take(&mut self.input);
                if let Err(error) = self.line(&line, now) {
                    return self.fail(error);
                }
            }
        }
        Ok(())
    }

    /// Does what is due.
    ///
    /// # Errors
    /// The other side is too slow.
    pub fn handle_timeout(&mut self, now: f64) -> Result<(), PairError> {
        if self.counts_at.is_some_and(|it| now >= it) {
            self.counts_at = None;
            self.events.push_back(Event::Count);
        }
        if !self.is_done() && now >= self.deadline.min(self.end) {
            return self.fail(PairError::Slow);
        }
        Ok(())
    }

    /// Returns when [`handle_timeout`](Self::handle_timeout) is due.
    pub fn poll_timeout(&self) -> f64 {
        let end = self.deadline.min(self.end);
        self.counts_at.map_or(end, |it| it.min(end))
    }

    /// Says what this side will send: at most what a run may.
    pub fn plan(&mut self, mut paths: Vec<Path>) -> Vec<Path> {
        let mut left = [MOST_DATAGRAMS / COPIES, MOST_CONNECTS];
        paths.retain(|path| {
            let [datagrams, connects] = &mut left;
            let left = if path.is_tcp { connects } else { datagrams };
            let fits = *left > 0;
            *left = left.saturating_sub(1);
            fits
        });
        self.planned = paths.len();
        self.say(&Message::Plan(paths.clone()));
        self.may_be_ready();
        paths
    }

    /// Says what this side heard.
    pub fn counted(&mut self, counts: Counts) {
        self.say(&Message::Counts(counts));
    }

    /// Says what this side concludes; if that is too long, without the last of it.
    pub fn report(&mut self, mut account: Account) {
        let is_long = |it: &Account| Message::Report(it.clone()).line().len() > MAX_LINE_BYTES;
        while is_long(&account) && account.findings.pop().is_some() {}
        self.say(&Message::Report(account));
        self.may_end();
    }

    /// Ends early, and tells the other why, unless it is a stranger.
    pub fn end(&mut self, why: &str) {
        if self.said > 0 {
            self.say(&Message::Bye(why.to_owned()));
        }
    }

    /// Returns what is to be sent.
    pub fn take_output(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.output)
    }

    /// Returns what happened.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Returns whether both said all.
    pub fn is_done(&self) -> bool {
        self.heard > Kind::Bye as usize && self.said > Kind::Bye as usize
    }

    fn greet(&mut self) {
        self.output.extend_from_slice(PREAMBLE);
        if let Some(hello) = self.hello.take() {
            self.say(&Message::Hello(Box::new(hello)));
        }
    }

    fn line(&mut self, line: &[u8], now: f64) -> Result<(), PairError> {
        if !self.is_greeted {
            self.is_greeted = true;
            if self.side == Side::Accepts {
                self.greet();
            }
            return Ok(());
        }
        let message: Message = serde_json::from_slice(line).map_err(|_| PairError::Order)?;
        if let Message::Bye(why) = &message
            && !why.is_empty()
        {
            return Err(PairError::Ended(why.clone()));
        }
        let is_next = message.kind() as usize == self.heard;
        // Nobody is ready for what was not planned, or leaves before both concluded.
        let is_time = match message.kind() {
            Kind::Ready => self.said > Kind::Plan as usize,
            Kind::Bye => self.said > Kind::Report as usize,
            _ => true,
        };
        if !is_next || !is_time {
            return Err(PairError::Order);
        }
        self.heard += 1;
        // The rest waits for checks of the other machine.
        let patience = if self.heard > Kind::Counts as usize {
            REPORT_SECS
        } else {
            STEP_SECS
        };
        self.deadline = now + patience;
        match message {
            Message::Hello(hello) => {
                if hello.v != VERSION {
                    return Err(PairError::Version);
                }
                self.events.push_back(Event::Hello(hello));
            }
            Message::Plan(paths) => {
                let connects = paths.iter().filter(|it| it.is_tcp).count();
                let datagrams = (paths.len() - connects) * COPIES;
                if connects > MOST_CONNECTS || datagrams > MOST_DATAGRAMS {
                    return Err(PairError::Greedy);
                }
                self.theirs = Some(paths.len());
                self.may_be_ready();
            }
            Message::Ready(paths) => {
                if paths != self.planned {
                    return Err(PairError::Order);
                }
                self.counts_at = Some(now + SENDING_SECS);
                self.events
                    .push_back(Event::Begin(self.theirs.unwrap_or_default()));
            }
            Message::Counts(counts) => self.events.push_back(Event::Counts(Box::new(counts))),
            Message::Report(account) => {
                self.events.push_back(Event::Account(Box::new(account)));
                self.may_end();
            }
            Message::Bye(_) => self.may_end(),
        }
        Ok(())
    }

    /// Once both have planned.
    fn may_be_ready(&mut self) {
        if let Some(paths) = self.theirs.filter(|_| self.said == Kind::Ready as usize) {
            self.say(&Message::Ready(paths));
        }
    }

    fn may_end(&mut self) {
        let [report, bye] = [Kind::Report as usize, Kind::Bye as usize];
        if self.said == bye && self.heard > report {
            self.say(&Message::Bye(String::new()));
        }
        if self.is_done() {
            self.events.push_back(Event::Done);
        }
    }

    fn say(&mut self, message: &Message) {
        self.output.extend(message.line());
        self.said = message.kind() as usize + 1;
    }

    /// Tells the other why it ends, unless that is what it told.
    fn fail(&mut self, error: PairError) -> Result<(), PairError> {
        if !matches!(error, PairError::Ended(_)) {
            self.end(&error.to_string());
        }
        Err(error)
    }
}

/// Returns the line that tells why a pair ends before it begins.
pub fn bye(why: &str) -> Vec<u8> {
    Message::Bye(why.to_owned()).line()
}

/// Copies of each datagram, and the time between them.
pub const COPIES: usize = 10;
/// In seconds.
pub const PAUSE_SECS: f64 = 0.02;
/// Most that a run sends.
pub const MOST_DATAGRAMS: usize = 500;
/// Most that it connects.
pub const MOST_CONNECTS: usize = 64;
/// First line of both sides.
pub const PREAMBLE: &[u8] = b"LSLD/1\r\n";
const VERSION: u32 = 1;
const MAX_LINE_BYTES: usize = 64 * 1024;
/// From the first datagram to the last that may arrive: connections take a second to be given up.
const SENDING_SECS: f64 = 1.6;
const STEP_SECS: f64 = 10.0;
/// A run may have been asked to take its time.
const REPORT_SECS: f64 = 120.0;
const MOST_SECS: f64 = 600.0;

#[cfg(test)]
mod tests;
