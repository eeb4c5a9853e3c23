//! The receiving half of a multiplexer: frames to substreams. Spec: relay §4.2.

use std::collections::VecDeque;
use std::io::Read as _;

use super::frame::{self, HEADER_LEN, Header, Kind};
use super::substream::Substream;
use super::{ClosedBy, Code, Event, Mux};

/// Result of [`Mux::read`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Read {
    /// So many bytes were read, at least one.
    Bytes(usize),
    /// Nothing has come yet: [`Event::Readable`] will say.
    Wait,
    /// Nothing comes any more.
    End,
}

impl Mux {
    /// Takes bytes of the session below, in the order they came, in pieces of any size. Mistakes end the link
    /// with BYE 4.
    pub fn handle_input(&mut self, mut bytes: &[u8], now: f64) {
        while !self.is_closed && !bytes.is_empty() {
            if self.partial.is_empty()
                && let Some((head, rest)) = bytes.split_first_chunk()
            {
                let Some(header) = self.header(*head) else {
                    return;
                };
                if let Some((payload, rest)) = rest.split_at_checked(header.len) {
                    self.frame(header, payload, now);
                    bytes = rest;
                    continue;
                }
            }
            let known = self.partial.first_chunk().copied();
            let missing = match known.map(Header::parse) {
                Some(Ok(header)) => HEADER_LEN + header.len - self.partial.len(),
                _ => HEADER_LEN - self.partial.len(),
            };
            let (piece, rest) = bytes.split_at_checked(missing).unwrap_or((bytes, b""));
            self.partial.extend_from_slice(piece);
            bytes = rest;
            let Some((head, payload)) = self.partial.split_first_chunk() else {
                return;
            };
            let (head, got) = (*head, payload.len());
            let Some(header) = self.header(head) else {
                return;
            };
            if got == header.len {
                let mut whole = std::mem::take(&mut self.partial);
                self.frame(header, whole.get(HEADER_LEN..).unwrap_or_default(), now);
                whole.clear();
                self.partial = whole;
            }
        }
    }

    /// Reads bytes of a substream into `to`, which is not empty. Credit for them is given by half windows.
    pub fn read(&mut self, id: u32, to: &mut [u8]) -> Read {
        let Some(substream) = self.substreams.get_mut(&id) else {
            return Read::End;
        };
        // Reading from memory cannot fail.
        let count = substream.unread.read(to).unwrap_or(0);
        if count == 0 {
            substream.readable_told = false;
            return if substream.end_received {
                Read::End
            } else {
                Read::Wait
            };
        }
        if substream.unread.is_empty() && substream.unread.capacity() > KEEP_BYTES {
            substream.unread = VecDeque::new();
        }
        // At most a window was unread, so it fits.
        substream.consumed += u32::try_from(count).unwrap_or(0);
        let is_due = substream.consumed >= self.own.window / 2 && !substream.end_received;
        if is_due && !substream.credit_due {
            substream.credit_due = true;
            self.slots.credits.push_back(id);
        }
        if substream.is_over() {
            self.remove(id);
        }
        Read::Bytes(count)
    }

    fn header(&mut self, bytes: [u8; HEADER_LEN]) -> Option<Header> {
        let parsed = Header::parse(bytes);
        parsed.map_err(|mistake| self.refuse(mistake)).ok()
    }

    /// Ends the link because the peer broke a rule.
    fn refuse(&mut self, mistake: &str) {
        self.close(Code::PROTOCOL, mistake);
    }

    fn frame(&mut self, header: Header, payload: &[u8], now: f64) {
        self.heard = now;
        let id = header.substream;
        match header.kind {
            Kind::Open => self.on_open(id, payload),
            Kind::Ping => {
                self.slots.pong = frame::time(payload, 0).map(|t0| (t0, now));
            }
            Kind::Pong => self.on_pong(payload, now),
            Kind::Bye => {
                let (code, text) = frame::reason(payload);
                self.slots = super::Slots::default();
                self.end(code, &text, ClosedBy::Peer);
            }
            Kind::Data | Kind::Credit | Kind::End | Kind::Reset => {
                if let Some(substream) = self.substreams.get_mut(&id)
                    && substream.request.is_none()
                {
                    match header.kind {
                        Kind::Data => self.on_data(id, payload),
                        Kind::Credit => self.on_credit(id, payload),
                        Kind::End => self.on_end(id),
                        _ => self.on_reset(id, payload),
                    }
                } else if !self.was_open(id) {
                    self.refuse("a frame for a substream that was never opened");
                }
                // Else it was on the way when the substream ended.
            }
        }
    }

    /// Whether a number was used before.
    fn was_open(&self, id: u32) -> bool {
        if self.is_ours(id) {
            let is_unsent = self.substreams.contains_key(&id);
            !is_unsent && self.next.is_none_or(|next| id < next)
        } else {
            id <= self.highest
        }
    }

    fn on_open(&mut self, id: u32, request: &[u8]) {
        if self.is_ours(id) || id <= self.highest {
            return self.refuse("an OPEN with a number that is not the peer's next");
        }
        self.highest = id;
        let most = usize::try_from(self.own.streams).unwrap_or(usize::MAX);
        if self.slots.resets.len() > most {
            return self.close(Code::LIMIT, "too many refused substreams");
        }
        if self.substreams.len() - self.ours >= most {
            let text = "too many substreams".to_owned();
            self.slots.resets.push_back((id, Code::LIMIT, text));
            return;
        }
        let substream = Substream::new(self.own.window, self.peer.window);
        self.substreams.insert(id, substream);
        let request = request.to_vec();
        self.events.push_back(Event::Opened { id, request });
    }

    fn on_pong(&mut self, payload: &[u8], now: f64) {
        let [t0, t1, t2] = [0, 1, 2].map(|at| frame::time(payload, at));
        let (Some(t0), Some(t1), Some(t2)) = (t0, t1, t2) else {
            return;
        };
        // A second answer to one PING finds nothing here.
        let sent = self
            .pings
            .iter()
            .position(|sent| sent.to_bits() == t0.to_bits());
        if let Some(sent) = sent {
            self.pings.drain(..=sent);
            self.events.push_back(Event::Pong([t0, t1, t2, now]));
        }
    }

    fn on_data(&mut self, id: u32, payload: &[u8]) {
        let Some(substream) = self.substreams.get_mut(&id) else {
            return;
        };
        let len = u32::try_from(payload.len()).unwrap_or(u32::MAX);
        if substream.end_received {
            return self.refuse("data after the end of a substream");
        }
        let Some(left) = substream.granted.checked_sub(len) else {
            return self.refuse("more data than credit");
        };
        substream.granted = left;
        substream.unread.extend(payload);
        self.tell_readable(id);
    }

    fn on_credit(&mut self, id: u32, payload: &[u8]) {
        let Some(substream) = self.substreams.get_mut(&id) else {
            return;
        };
        let more = payload
            .first_chunk()
            .map_or(0, |more| u32::from_be_bytes(*more));
        let credit = substream.credit.checked_add(more);
        let Some(credit) = credit.filter(|credit| *credit <= MAX_CREDIT) else {
            return self.refuse("credit above 2^31");
        };
        substream.credit = credit;
        self.queue_data(id);
    }

    fn on_end(&mut self, id: u32) {
        let Some(substream) = self.substreams.get_mut(&id) else {
            return;
        };
        if substream.end_received {
            return self.refuse("a second end of a substream");
        }
        substream.end_received = true;
        let is_over = substream.is_over();
        if std::mem::take(&mut substream.credit_due) {
            self.slots.credits.retain(|queued| *queued != id);
        }
        self.tell_readable(id);
        if is_over {
            self.remove(id);
        }
    }

    fn on_reset(&mut self, id: u32, payload: &[u8]) {
        self.remove(id);
        let (code, text) = frame::reason(payload);
        self.events.push_back(Event::Reset {
            id,
            code,
            text,
            by_peer: true,
        });
    }

    fn tell_readable(&mut self, id: u32) {
        if let Some(substream) = self.substreams.get_mut(&id)
            && !std::mem::replace(&mut substream.readable_told, true)
        {
            self.events.push_back(Event::Readable(id));
        }
    }
}

/// Most credit that a substream may have.
const MAX_CREDIT: u32 = 1 << 31;

/// Capacity in bytes that an empty buffer keeps.
const KEEP_BYTES: usize = 16 * 1024;
