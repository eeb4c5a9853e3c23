//! Multiplexer of a link between two relays: frames, substreams, credit, and the order of sending.
//! Spec: relay §4.2, §4.3.
//!
//! Reading never waits for writing. What a received frame causes is state with one slot per kind and substream,
//! never a queue, so that memory is bounded by substreams times (window + one frame) even if nothing can be sent.
//! After each `handle_*` drain [`Mux::poll_event`], then send what [`Mux::poll_transmit`] gathers.

mod frame;
mod receive;
mod send;
mod substream;
#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashMap, VecDeque};

pub use frame::{Code, HEADER_LEN, MAX_PAYLOAD, MAX_TEXT, RECORD_LEN};
pub use receive::Read;
pub use send::{GATHER_LEN, Gathered};

use substream::Substream;

/// Side of a link, which decides the parity of the substreams it opens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// It opened the connection; its substreams have odd numbers.
    Dialler,
    /// It accepted the connection; its substreams have even numbers.
    Acceptor,
}

/// Limits that one side states in its hello. Spec: relay §4.1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes that the other side may send on a substream before it gets more credit.
    pub window: u32,
    /// Substreams that the other side may have open.
    pub streams: u32,
}

/// Something that happened on a link.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// The peer opened a substream with this request, whose text nobody has checked.
    Opened {
        /// Number of the substream.
        id: u32,
        /// Complete request, as on the relay's port.
        request: Vec<u8>,
    },
    /// There are bytes or an end to [`Mux::read`]. Said once until a read finds nothing.
    Readable(u32),
    /// A substream that took less than all of a [`Mux::write`] takes bytes again.
    Writable(u32),
    /// A substream is gone before its end; unread bytes are dropped.
    Reset {
        /// Number of the substream.
        id: u32,
        /// Reason of the side that ended it.
        code: Code,
        /// Text for logs.
        text: String,
        /// Whether the peer ended it.
        by_peer: bool,
    },
    /// The peer answered a PING. Seconds: `[t0, t1, t2, t3]`, the outer two of our clock.
    Pong([f64; 4]),
    /// The link ends and all substreams are gone. Said once, as the last event. By us: BYE is still sent.
    Closed {
        /// Reason of the side that ended it.
        code: Code,
        /// Text for logs.
        text: String,
        /// Side that ended it.
        by: ClosedBy,
    },
}

/// Cause of the end of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClosedBy {
    /// Us, by [`Mux::close`] or because the peer broke a rule.
    Us,
    /// The peer's BYE.
    Peer,
    /// No frame came for [`SILENCE_SECS`].
    Silence,
}

/// Reason for which no substream was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// As many are open as the peer allows.
    #[error("the peer allows no more substreams")]
    Limit,
    /// The request is empty or longer than [`MAX_PAYLOAD`].
    #[error("the request does not fit into a frame")]
    Length,
    /// The link ended, or all numbers were used: it must be made anew.
    #[error("the link takes no more substreams")]
    Closed,
}

/// Multiplexer at one end of a link.
#[derive(Debug)]
pub struct Mux {
    own: Limits,
    peer: Limits,
    substreams: HashMap<u32, Substream>,
    /// Number of the next substream of ours; `None` once all are used.
    next: Option<u32>,
    /// Highest number the peer used, 0 before the first.
    highest: u32,
    /// Substreams that we opened; the others are the peer's.
    ours: usize,
    /// Head of a frame whose rest has not arrived.
    partial: Vec<u8>,
    slots: Slots,
    /// Times of the PINGs without answer, oldest first.
    pings: VecDeque<f64>,
    ping_secs: f64,
    next_ping: f64,
    /// Time of the last frame.
    heard: f64,
    /// Substreams with data and no credit, by bits of the time since which; times are not negative.
    starving: BTreeSet<(u64, u32)>,
    is_closed: bool,
    events: VecDeque<Event>,
}

/// Frames that are due, one slot for each kind and substream.
#[derive(Debug, Default)]
struct Slots {
    bye: Option<(Code, String)>,
    resets: VecDeque<(u32, Code, String)>,
    ends: VecDeque<u32>,
    /// `t0` and time of arrival of the newest PING.
    pong: Option<(f64, f64)>,
    ping: bool,
    credits: VecDeque<u32>,
    opens: VecDeque<u32>,
    live: VecDeque<u32>,
    history: VecDeque<u32>,
    /// Turns of data so far; each eighth belongs to history.
    turns: u32,
}

impl Slots {
    /// Forgets what is due for a substream.
    fn remove(&mut self, id: u32) {
        let queues = [
            &mut self.ends,
            &mut self.credits,
            &mut self.opens,
            &mut self.live,
            &mut self.history,
        ];
        for queue in queues {
            queue.retain(|queued| *queued != id);
        }
    }
}

impl Mux {
    /// Creates one end of a link whose hello is done; a PING is due at once. Times are seconds of a clock that
    /// is never negative.
    pub fn new(side: Side, own: Limits, peer: Limits, now: f64) -> Self {
        Self {
            own,
            peer,
            substreams: HashMap::new(),
            next: Some(match side {
                Side::Dialler => 1,
                Side::Acceptor => 2,
            }),
            highest: 0,
            ours: 0,
            partial: Vec::new(),
            slots: Slots {
                ping: true,
                ..Slots::default()
            },
            pings: VecDeque::new(),
            ping_secs: PING_SECS,
            next_ping: now + PING_SECS,
            heard: now,
            starving: BTreeSet::new(),
            is_closed: false,
            events: VecDeque::new(),
        }
    }

    /// Opens a substream with a complete request. `is_history` gives its data way to live ones.
    ///
    /// # Errors
    /// [`OpenError`]: nothing was opened.
    pub fn open(&mut self, request: &[u8], is_history: bool) -> Result<u32, OpenError> {
        let id = self
            .next
            .filter(|_| !self.is_closed)
            .ok_or(OpenError::Closed)?;
        if request.is_empty() || request.len() > MAX_PAYLOAD {
            return Err(OpenError::Length);
        }
        if self.ours >= usize::try_from(self.peer.streams).unwrap_or(usize::MAX) {
            return Err(OpenError::Limit);
        }
        self.next = id.checked_add(2);
        self.ours += 1;
        let mut substream = Substream::new(self.own.window, self.peer.window);
        substream.request = Some(request.to_vec());
        substream.is_history = is_history;
        self.substreams.insert(id, substream);
        self.slots.opens.push_back(id);
        Ok(id)
    }

    /// Makes data of a substream give way to live ones, or be live again.
    pub fn set_history(&mut self, id: u32, is_history: bool) {
        if let Some(substream) = self.substreams.get_mut(&id) {
            // What is queued already keeps its place for one turn.
            substream.is_history = is_history;
        }
    }

    /// Ends a substream at once, in both directions. Does nothing if it is gone.
    pub fn reset(&mut self, id: u32, code: Code, text: &str) {
        if let Some(substream) = self.remove(id)
            && substream.request.is_none()
        {
            let text = frame::short(text).to_owned();
            self.slots.resets.push_back((id, code, text));
        }
    }

    /// Sets the time between PINGs in seconds; [`PING_SECS`] unless changed.
    pub fn set_ping_secs(&mut self, secs: f64, now: f64) {
        self.ping_secs = secs;
        self.next_ping = self.next_ping.min(now + secs);
    }

    /// Ends the link: BYE is sent, and nothing else any more.
    pub fn close(&mut self, code: Code, text: &str) {
        if !self.is_closed {
            self.slots = Slots {
                bye: Some((code, frame::short(text).to_owned())),
                ..Slots::default()
            };
            self.end(code, text, ClosedBy::Us);
        }
    }

    /// Whether [`Mux::poll_transmit`] has something to gather.
    pub fn is_due(&self) -> bool {
        let slots = &self.slots;
        let queues = [
            &slots.ends,
            &slots.credits,
            &slots.opens,
            &slots.live,
            &slots.history,
        ];
        slots.bye.is_some()
            || slots.pong.is_some()
            || slots.ping
            || !slots.resets.is_empty()
            || queues.iter().any(|queue| !queue.is_empty())
    }

    /// Whether the link ended; BYE may still be due.
    pub fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Returns the number of open substreams.
    pub fn substreams(&self) -> usize {
        self.substreams.len()
    }

    /// Returns the bytes that wait to be sent.
    pub fn unsent_bytes(&self) -> usize {
        let all = self.substreams.values();
        all.map(|substream| substream.unsent.len()).sum()
    }

    /// Returns what happened next; drain it after each call.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Returns when to call [`Mux::handle_timeout`]; `None` once the link ended.
    pub fn poll_timeout(&self) -> Option<f64> {
        let starved = self.starving.first();
        let starved = starved.map(|(since, _)| f64::from_bits(*since) + STARVED_SECS);
        let next = self.next_ping.min(self.heard + SILENCE_SECS);
        (!self.is_closed).then(|| starved.map_or(next, |starved| next.min(starved)))
    }

    /// Does what is due: PING, the end of starved substreams, the end of a silent link.
    pub fn handle_timeout(&mut self, now: f64) {
        if self.is_closed {
            return;
        }
        if now >= self.heard + SILENCE_SECS {
            self.slots = Slots::default();
            self.end(Code::DONE, "no frame for 15 s", ClosedBy::Silence);
            return;
        }
        if now >= self.next_ping {
            self.slots.ping = true;
            self.next_ping = now + self.ping_secs;
        }
        while let Some((since, id)) = self.starving.first().copied()
            && now >= f64::from_bits(since) + STARVED_SECS
        {
            let text = "no credit for 60 s".to_owned();
            self.reset(id, Code::TOO_SLOW, &text);
            self.events.push_back(Event::Reset {
                id,
                code: Code::TOO_SLOW,
                text,
                by_peer: false,
            });
        }
    }

    /// Forgets a substream and all that is due for it.
    fn remove(&mut self, id: u32) -> Option<Substream> {
        let substream = self.substreams.remove(&id)?;
        self.ours -= usize::from(self.is_ours(id));
        self.slots.remove(id);
        if let Some(since) = substream.starving_since {
            self.starving.remove(&(since, id));
        }
        Some(substream)
    }

    /// Whether a number has the parity of the substreams that we open.
    fn is_ours(&self, id: u32) -> bool {
        // Once all numbers are used, the peer's parity is still known by its highest one.
        self.next
            .map_or(id % 2 != self.highest % 2, |next| id % 2 == next % 2)
    }

    fn end(&mut self, code: Code, text: &str, by: ClosedBy) {
        self.is_closed = true;
        self.substreams.clear();
        self.starving.clear();
        self.partial = Vec::new();
        let text = text.to_owned();
        self.events.push_back(Event::Closed { code, text, by });
    }
}

/// Time in seconds between PINGs of an idle link.
pub const PING_SECS: f64 = 5.0;

/// Time in seconds without a frame after which a link is down.
pub const SILENCE_SECS: f64 = 15.0;

/// Time in seconds without credit after which a substream is reset.
const STARVED_SECS: f64 = 60.0;
