//! Authenticated clock probes over UDP with the keys of a live session. Spec: LSS/1 §9.

use std::collections::VecDeque;

use lsl_platform::fork::Generation;

use crate::kdf::Secret;
use crate::session::require_own;
use crate::{AeadKey, Cause, Error, Result, SessionId, Suite};

/// Every packet of both directions has this size.
pub const TIME_PACKET_LEN: usize = 79;

/// First bytes of every packet.
pub const TIME_PREFIX: &[u8; 15] = b"LSL:timesec/1\r\n";

/// The time keys of a session, before it is known which side uses them. Erased on drop.
#[derive(Debug)]
pub struct TimeKeys {
    prefix: [u8; 8],
    initiator: AeadKey,
    responder: AeadKey,
    generation: Generation,
}

impl TimeKeys {
    /// `time_i` and `time_r` of the session.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "the caller's copies of the secrets must end here"
    )]
    pub(crate) fn new(session: SessionId, initiator: Secret, responder: Secret) -> Self {
        let mut prefix = [0; 8];
        prefix.copy_from_slice(&session.0[..8]);
        // Independent of the suite of the records.
        let key = |secret| AeadKey::from_secret(Suite::ChaCha20Poly1305, secret);
        Self {
            prefix,
            initiator: key(&initiator),
            responder: key(&responder),
            generation: Generation::current(),
        }
    }

    /// Takes the inlet's part of the keys.
    pub fn into_prober(self) -> TimeProber {
        TimeProber {
            end: TimeEnd::new(self.prefix, self.initiator, self.responder, self.generation),
            outstanding: VecDeque::with_capacity(MOST_OUTSTANDING),
        }
    }

    /// Takes the outlet's part of the keys.
    pub fn into_responder(self) -> TimeResponder {
        TimeResponder {
            end: TimeEnd::new(self.prefix, self.responder, self.initiator, self.generation),
            window: ReplayWindow::default(),
        }
    }
}

/// The first 8 bytes of the session id in a packet of the right length and prefix.
pub fn session_prefix(packet: &[u8]) -> Option<[u8; 8]> {
    PacketHeader::parse(packet).map(|header| header.session)
}

/// The inlet's side: counts its probes and accepts one reply for each.
#[derive(Debug)]
pub struct TimeProber {
    end: TimeEnd,
    /// Counter and t0 of the probes without reply, oldest first.
    outstanding: VecDeque<(u64, f64)>,
}

/// An authentic reply. All in seconds: t0 and arrival of the inlet's clock, t1 and t2 of the outlet's.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TimeReply {
    /// When the probe was sent.
    pub t0: f64,
    /// When the probe arrived at the outlet.
    pub t1: f64,
    /// When the reply was sealed.
    pub t2: f64,
}

impl TimeProber {
    /// A probe that leaves now (`t0`). Of more than 64 without reply the oldest is given up.
    ///
    /// # Errors
    /// After 2^32 probes, and in a forked child.
    pub fn probe(&mut self, t0: f64) -> Result<[u8; TIME_PACKET_LEN]> {
        require_own(self.end.generation)?;
        let mut text = [0; TEXT_LEN];
        if let Some(to) = text.first_chunk_mut() {
            *to = t0.to_be_bytes();
        }
        let (counter, packet) = self.end.seal(text).ok_or_else(|| {
            Error::session(Cause::KeyLimit, "2^32 time probes: a new session is needed")
        })?;
        if self.outstanding.len() >= MOST_OUTSTANDING {
            self.outstanding.pop_front();
        }
        self.outstanding.push_back((counter, t0));
        Ok(packet)
    }

    /// Takes a packet that arrived at `now`. `None` for everything that is not an authentic first
    /// reply, within `max_rtt_secs`, to one of our probes. Who answers for another clock may say a t1 after t2: that is
    /// for the caller to judge.
    pub fn receive(&mut self, packet: &[u8], now: f64, max_rtt_secs: f64) -> Option<TimeReply> {
        let header = self.end.header(packet)?;
        let text = self.end.open(packet, header)?;
        let counter = u64::from_be_bytes(field(&text, 0)?);
        let [t0, t1, t2] = [1, 2, 3].map(|at| field(&text, at).map(f64::from_be_bytes));
        let reply = TimeReply {
            t0: t0?,
            t1: t1?,
            t2: t2?,
        };
        // A second reply to one probe finds nothing here, which is what stops replays.
        let probe = self
            .outstanding
            .iter()
            .position(|&(sent, _)| sent == counter)?;
        let (_, sent_t0) = self.outstanding.remove(probe)?;
        let rtt = (now - reply.t0) - (reply.t2 - reply.t1);
        let sound = reply.t0.to_bits() == sent_t0.to_bits()
            && [now, reply.t0, reply.t1, reply.t2]
                .iter()
                .all(|time| time.is_finite())
            // Never negative between honest clocks, and such a probe would win every selection.
            && (0.0..=max_rtt_secs).contains(&rtt);
        sound.then_some(reply)
    }
}

/// The outlet's side: a replay window, and answers of the same size.
#[derive(Debug)]
pub struct TimeResponder {
    end: TimeEnd,
    window: ReplayWindow,
}

impl TimeResponder {
    /// The key to find it by: [`session_prefix`] of its packets.
    pub fn prefix(&self) -> [u8; 8] {
        self.end.prefix
    }

    /// Answers a packet that arrived at `t1`; `t2` is read just before sealing. `None` for
    /// everything that is not authentic and new.
    pub fn answer(
        &mut self,
        packet: &[u8],
        t1: f64,
        t2: impl FnOnce() -> f64,
    ) -> Option<[u8; TIME_PACKET_LEN]> {
        self.answer_with(packet, || Some([t1, t2()]))
    }

    /// Does the same with t1 and t2 of another clock, which are asked for once the packet is known to deserve an
    /// answer; `None` if nobody knows them.
    pub fn answer_with(
        &mut self,
        packet: &[u8],
        times: impl FnOnce() -> Option<[f64; 2]>,
    ) -> Option<[u8; TIME_PACKET_LEN]> {
        let header = self.end.header(packet)?;
        // Looked up before opening, which costs more; moved only after, or a forged high counter
        // would lock out the real ones.
        if header.counter >= MOST_PACKETS || self.window.has_seen(header.counter) {
            return None;
        }
        let text = self.end.open(packet, header)?;
        self.window.note(header.counter);
        let t0 = field(&text, 0)?;
        if !f64::from_be_bytes(t0).is_finite() || text.iter().skip(8).any(|&byte| byte != 0) {
            return None;
        }
        let [t1, t2] = times()?.map(f64::to_be_bytes);
        let mut reply = [0; TEXT_LEN];
        let fields = [header.counter.to_be_bytes(), t0, t1, t2];
        for (to, field) in reply.chunks_exact_mut(8).zip(fields) {
            to.copy_from_slice(&field);
        }
        self.end.seal(reply).map(|(_, packet)| packet)
    }
}

/// State that both ends have: keys, and the counter of their own packets.
#[derive(Debug)]
struct TimeEnd {
    prefix: [u8; 8],
    ours: AeadKey,
    theirs: AeadKey,
    counter: u64,
    generation: Generation,
}

impl TimeEnd {
    fn new(prefix: [u8; 8], ours: AeadKey, theirs: AeadKey, generation: Generation) -> Self {
        Self {
            prefix,
            ours,
            theirs,
            counter: 0,
            generation,
        }
    }

    /// The header of a packet for this session, in the process that owns it.
    fn header(&self, packet: &[u8]) -> Option<PacketHeader> {
        PacketHeader::parse(packet)
            .filter(|header| header.session == self.prefix && self.generation.is_current())
    }

    /// A packet under the next counter, and that counter; `None` after the last one.
    fn seal(&mut self, mut text: [u8; TEXT_LEN]) -> Option<(u64, [u8; TIME_PACKET_LEN])> {
        let counter = self.counter;
        if counter >= MOST_PACKETS {
            return None;
        }
        self.counter += 1;
        let mut packet = [0; TIME_PACKET_LEN];
        let (head, rest) = packet.split_first_chunk_mut::<HEAD_LEN>()?;
        let (prefix, ids) = head.split_first_chunk_mut()?;
        *prefix = *TIME_PREFIX;
        let (session, count) = ids.split_first_chunk_mut()?;
        *session = self.prefix;
        count.copy_from_slice(&counter.to_be_bytes());
        let tag = self.ours.seal(counter, head, &mut text);
        let (body, end) = rest.split_first_chunk_mut()?;
        *body = text;
        end.copy_from_slice(&tag);
        Some((counter, packet))
    }

    fn open(&self, packet: &[u8], header: PacketHeader) -> Option<[u8; TEXT_LEN]> {
        let (head, body) = packet.split_first_chunk::<HEAD_LEN>()?;
        let mut body: [u8; TIME_PACKET_LEN - HEAD_LEN] = body.try_into().ok()?;
        let text = self.theirs.open(header.counter, head, &mut body)?;
        <[u8; TEXT_LEN]>::try_from(&*text).ok()
    }
}

/// Fields of a packet before its ciphertext.
#[derive(Debug, Clone, Copy)]
struct PacketHeader {
    session: [u8; 8],
    counter: u64,
}

impl PacketHeader {
    fn parse(packet: &[u8]) -> Option<Self> {
        if packet.len() != TIME_PACKET_LEN {
            return None;
        }
        let (session, rest) = packet.strip_prefix(TIME_PREFIX)?.split_first_chunk()?;
        Some(Self {
            session: *session,
            counter: u64::from_be_bytes(*rest.first_chunk()?),
        })
    }
}

/// Which of the last 64 counters were seen. Spec: LSS/1 §9.3.
#[derive(Debug, Default)]
struct ReplayWindow {
    /// One more than the highest seen.
    next: u64,
    /// Bit n: `next - 1 - n` was seen.
    seen: u64,
}

impl ReplayWindow {
    /// Whether `counter` was seen, or is too old to tell.
    fn has_seen(&self, counter: u64) -> bool {
        match self.next.checked_sub(counter) {
            None | Some(0) => false,
            Some(age) => age > 64 || self.seen & (1 << (age - 1)) != 0,
        }
    }

    /// Notes a counter for which [`has_seen`](Self::has_seen) was false.
    fn note(&mut self, counter: u64) {
        if counter >= self.next {
            let moved = counter - self.next + 1;
            let moved = u32::try_from(moved).unwrap_or(u32::MAX);
            self.seen = self.seen.checked_shl(moved).unwrap_or(0) | 1;
            self.next = counter.saturating_add(1);
        } else if self.next - counter <= 64 {
            self.seen |= 1 << (self.next - counter - 1);
        }
    }
}

/// Reads the `at`-th 8 bytes, counted from 0.
fn field(text: &[u8; TEXT_LEN], at: usize) -> Option<[u8; 8]> {
    text.chunks_exact(8).nth(at)?.try_into().ok()
}

/// Bytes before the ciphertext: prefix, session, counter.
const HEAD_LEN: usize = 31;

/// Bytes of plaintext: four fields of eight.
const TEXT_LEN: usize = 32;

/// Packets per direction and session.
const MOST_PACKETS: u64 = 1 << 32;

/// Probes that wait for their reply.
const MOST_OUTSTANDING: usize = 64;

#[cfg(test)]
mod tests;
