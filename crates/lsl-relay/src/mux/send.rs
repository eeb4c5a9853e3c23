//! The sending half of a multiplexer: which frame goes next. Spec: relay §4.2.

use super::frame::{HEADER_LEN, Header, Kind, MAX_PAYLOAD, RECORD_LEN, append};
use super::{Event, Mux};

/// Most bytes that one [`Mux::poll_transmit`] gathers.
pub const GATHER_LEN: usize = 4 * RECORD_LEN;

/// Frames to send, in records that no frame crosses. Reused from call to call.
#[derive(Debug, Default)]
pub struct Gathered {
    bytes: Vec<u8>,
    /// End of each record in `bytes`.
    ends: Vec<usize>,
}

impl Gathered {
    /// Returns the records, each of at most [`RECORD_LEN`] bytes.
    pub fn records(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts
            .zip(&self.ends)
            .filter_map(|(start, end)| self.bytes.get(start..*end))
    }

    /// Returns the bytes of all records.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl Mux {
    /// Takes bytes to send on a substream and returns how many; less than all if a frame's worth of them waits
    /// already, and then [`Event::Writable`] follows. 0 for a substream that is gone or was finished.
    pub fn write(&mut self, id: u32, bytes: &[u8], now: f64) -> usize {
        let Some(substream) = self.substreams.get_mut(&id).filter(|it| !it.is_finished) else {
            return 0;
        };
        let room = MAX_PAYLOAD - substream.unsent.len();
        let taken = bytes.get(..room).unwrap_or(bytes);
        substream.unsent.extend(taken);
        substream.wants_room |= taken.len() < bytes.len();
        if !taken.is_empty() && !substream.has_turn {
            self.queue_data(id);
            self.note_starving(id, now);
        }
        taken.len()
    }

    /// Says that nothing more is written on a substream: END follows its data.
    pub fn finish(&mut self, id: u32) {
        let Some(substream) = self.substreams.get_mut(&id) else {
            return;
        };
        if !std::mem::replace(&mut substream.is_finished, true)
            && substream.unsent.is_empty()
            && substream.request.is_none()
        {
            self.slots.ends.push_back(id);
        }
    }

    /// Gathers frames into `to`, at most [`GATHER_LEN`] bytes, in the order of §4.2. False if nothing is due.
    /// The bytes must be sent before the next call.
    pub fn poll_transmit(&mut self, now: f64, to: &mut Gathered) -> bool {
        to.bytes.clear();
        to.ends.clear();
        while to.ends.len() < GATHER_LEN / RECORD_LEN {
            let start = to.bytes.len();
            self.fill_record(&mut to.bytes, start + RECORD_LEN, now);
            if to.bytes.len() == start {
                break;
            }
            to.ends.push(to.bytes.len());
        }
        !to.ends.is_empty()
    }

    /// Appends frames up to the length `limit`, the first that is due first. Stops at one that does not fit.
    fn fill_record(&mut self, out: &mut Vec<u8>, limit: usize, now: f64) {
        let fits = |out: &Vec<u8>, payload: usize| out.len() + HEADER_LEN + payload <= limit;
        if let Some((code, text)) = self.slots.bye.take() {
            let parts = [&code.0.to_be_bytes(), text.as_bytes()];
            return append(out, Kind::Bye, 0, &parts);
        }
        while let Some((id, code, text)) = self.slots.resets.front() {
            if !fits(out, 2 + text.len()) {
                return;
            }
            let parts = [&code.0.to_be_bytes(), text.as_bytes()];
            append(out, Kind::Reset, *id, &parts);
            self.slots.resets.pop_front();
        }
        while let Some(&id) = self.slots.ends.front() {
            if !fits(out, 0) {
                return;
            }
            self.slots.ends.pop_front();
            append(out, Kind::End, id, &[]);
            self.end_sent(id);
        }
        if let Some((t0, t1)) = self.slots.pong.filter(|_| fits(out, 24)) {
            let times = [t0, t1, now].map(f64::to_be_bytes);
            append(out, Kind::Pong, 0, &[times.as_flattened()]);
            self.slots.pong = None;
        }
        if self.slots.ping && fits(out, 8) {
            append(out, Kind::Ping, 0, &[&now.to_be_bytes()]);
            self.slots.ping = false;
            if self.pings.len() >= MOST_PINGS {
                self.pings.pop_front();
            }
            self.pings.push_back(now);
        }
        if self.slots.ping || self.slots.pong.is_some() {
            return;
        }
        while let Some(&id) = self.slots.credits.front() {
            if !fits(out, 4) {
                return;
            }
            self.slots.credits.pop_front();
            if let Some(substream) = self.substreams.get_mut(&id) {
                let more = std::mem::take(&mut substream.consumed);
                substream.granted = substream.granted.saturating_add(more);
                substream.credit_due = false;
                append(out, Kind::Credit, id, &[&more.to_be_bytes()]);
            }
        }
        while let Some(&id) = self.slots.opens.front() {
            let Some(substream) = self.substreams.get_mut(&id) else {
                self.slots.opens.pop_front();
                continue;
            };
            let len = substream.request.as_ref().map_or(0, Vec::len);
            if !fits(out, len) {
                return;
            }
            self.slots.opens.pop_front();
            let request = substream.request.take().unwrap_or_default();
            append(out, Kind::Open, id, &[&request]);
            if substream.is_finished && substream.unsent.is_empty() {
                self.slots.ends.push_back(id);
            }
            self.queue_data(id);
        }
        while let Some(id) = self.next_turn() {
            if !self.send_data(id, out, limit, now) {
                return;
            }
        }
    }

    /// Takes the substream whose turn it is: live ones first, history in every eighth turn.
    fn next_turn(&mut self) -> Option<u32> {
        let slots = &mut self.slots;
        let is_historys = slots.turns % 8 == 7 || slots.live.is_empty();
        let queue = if is_historys && !slots.history.is_empty() {
            &mut slots.history
        } else {
            &mut slots.live
        };
        queue.pop_front()
    }

    /// Appends data of a substream whose turn it is; false if the record is full and the turn goes on in the next.
    fn send_data(&mut self, id: u32, out: &mut Vec<u8>, limit: usize, now: f64) -> bool {
        let Some(substream) = self.substreams.get_mut(&id) else {
            return true;
        };
        let credit = usize::try_from(substream.credit).unwrap_or(usize::MAX);
        let due = substream.unsent.len().min(credit);
        let room = limit.saturating_sub(out.len() + HEADER_LEN);
        // A scrap at the end of a record costs more than the room is worth.
        let len = if room < due.min(LEAST_PIECE) {
            0
        } else {
            due.min(room)
        };
        let is_whole = len == due;
        if len > 0 {
            let header = Header {
                kind: Kind::Data,
                len,
                substream: id,
            };
            out.extend_from_slice(&header.to_bytes());
            let (first, second) = substream.unsent.as_slices();
            let from_first = first.get(..len).unwrap_or(first);
            out.extend_from_slice(from_first);
            out.extend_from_slice(second.get(..len - from_first.len()).unwrap_or_default());
            substream.unsent.drain(..len);
            substream.credit -= u32::try_from(len).unwrap_or(0);
        }
        if is_whole {
            substream.has_turn = false;
            self.slots.turns = self.slots.turns.wrapping_add(1);
            if substream.unsent.is_empty() && substream.is_finished {
                self.slots.ends.push_back(id);
            }
        } else if substream.is_history {
            self.slots.history.push_front(id);
        } else {
            self.slots.live.push_front(id);
        }
        if std::mem::take(&mut substream.wants_room) {
            if substream.unsent.len() < MAX_PAYLOAD {
                self.events.push_back(Event::Writable(id));
            } else {
                substream.wants_room = true;
            }
        }
        self.note_starving(id, now);
        is_whole
    }

    /// Gives a substream with data and credit its place among those whose turn comes.
    pub(super) fn queue_data(&mut self, id: u32) {
        let Some(substream) = self.substreams.get_mut(&id) else {
            return;
        };
        let is_ready = !substream.unsent.is_empty() && substream.credit > 0;
        if !is_ready || substream.has_turn || substream.request.is_some() {
            return;
        }
        substream.has_turn = true;
        if let Some(since) = substream.starving_since.take() {
            self.starving.remove(&(since, id));
        }
        if substream.is_history {
            self.slots.history.push_back(id);
        } else {
            self.slots.live.push_back(id);
        }
    }

    /// Notes since when data of a substream wait for credit.
    fn note_starving(&mut self, id: u32, now: f64) {
        if let Some(substream) = self.substreams.get_mut(&id)
            && substream.credit == 0
            && !substream.unsent.is_empty()
            && substream.starving_since.is_none()
        {
            let since = now.to_bits();
            substream.starving_since = Some(since);
            self.starving.insert((since, id));
        }
    }

    fn end_sent(&mut self, id: u32) {
        if let Some(substream) = self.substreams.get_mut(&id) {
            substream.end_sent = true;
            if substream.is_over() {
                self.remove(id);
            }
        }
    }
}

/// Smallest piece of data, in bytes, for which a record is filled up.
const LEAST_PIECE: usize = 512;

/// PINGs whose answers are waited for.
const MOST_PINGS: usize = 64;
