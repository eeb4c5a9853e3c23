//! State of one substream, in both directions. Spec: relay §4.2.

use std::collections::VecDeque;

/// One substream at one end of a link.
#[derive(Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each says that one slot is taken"
)]
pub(super) struct Substream {
    /// Request of an OPEN that has not been sent.
    pub(super) request: Option<Vec<u8>>,
    /// Bytes to send, at most one frame.
    pub(super) unsent: VecDeque<u8>,
    /// Bytes that may be sent.
    pub(super) credit: u32,
    pub(super) is_history: bool,
    /// Whether it has its place among those with data and credit.
    pub(super) has_turn: bool,
    /// Whether a write was cut short and [`super::Event::Writable`] is owed.
    pub(super) wants_room: bool,
    /// Bits of the time since which data wait for credit.
    pub(super) starving_since: Option<u64>,
    /// Whether nothing is written any more.
    pub(super) is_finished: bool,
    pub(super) end_sent: bool,

    /// Bytes that came and were not read.
    pub(super) unread: VecDeque<u8>,
    /// Bytes that the peer may still send.
    pub(super) granted: u32,
    /// Bytes read since credit was last given.
    pub(super) consumed: u32,
    pub(super) credit_due: bool,
    /// Whether [`super::Event::Readable`] was said since a read found nothing.
    pub(super) readable_told: bool,
    pub(super) end_received: bool,
}

impl Substream {
    pub(super) fn new(own_window: u32, peer_window: u32) -> Self {
        Self {
            request: None,
            unsent: VecDeque::new(),
            credit: peer_window,
            is_history: false,
            has_turn: false,
            wants_room: false,
            starving_since: None,
            is_finished: false,
            end_sent: false,
            unread: VecDeque::new(),
            granted: own_window,
            consumed: 0,
            credit_due: false,
            readable_told: false,
            end_received: false,
        }
    }

    /// Whether both directions ended and nothing is left to read.
    pub(super) fn is_over(&self) -> bool {
        self.end_sent && self.end_received && self.unread.is_empty()
    }
}
