//! Limits the handshakes that an initiator has in flight: the counterpart of the outlet's limit per
//! source. Simulated recorders keep to it; those of `lsl-core` keep to it by a semaphore.
//! Spec: LSS/1 §6.2.

use std::collections::{HashMap, HashSet, VecDeque};
use std::net::IpAddr;

/// Limits one process to 64 handshakes at a time with each remote address; the others queue, first
/// come, first served.
#[derive(Debug, Default)]
pub(super) struct Pacing {
    next: u64,
    slots: HashMap<Slot, IpAddr>,
    remotes: HashMap<IpAddr, RemoteQueue>,
}

/// One handshake, in flight or queued.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Slot(u64);

/// Whether a handshake may begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pace {
    /// Connect now; the slot counts as in flight.
    Go(Slot),
    /// Wait until [`Pacing::leave`] of another names this slot, or [`Pacing::may_go`] says so.
    Queue(Slot),
}

#[derive(Debug, Default)]
struct RemoteQueue {
    in_flight: HashSet<Slot>,
    queue: VecDeque<Slot>,
}

impl Pacing {
    /// A handshake with `remote` is wanted. Every slot must [`leave`](Self::leave) in the end.
    pub(super) fn enter(&mut self, remote: IpAddr) -> Pace {
        let remote = remote.to_canonical();
        let slot = Slot(self.next);
        self.next += 1;
        self.slots.insert(slot, remote);
        let line = self.remotes.entry(remote).or_default();
        if line.in_flight.len() < MAX_IN_FLIGHT {
            line.in_flight.insert(slot);
            Pace::Go(slot)
        } else {
            line.queue.push_back(slot);
            Pace::Queue(slot)
        }
    }

    /// Whether a queued slot's time has come.
    pub(super) fn may_go(&self, slot: Slot) -> bool {
        let remote = self.slots.get(&slot);
        let line = remote.and_then(|remote| self.remotes.get(remote));
        line.is_some_and(|line| line.in_flight.contains(&slot))
    }

    /// The handshake is over, well or not, or is not wanted any more. Returns the slot that may go
    /// now instead: wake its owner. Leaving twice does nothing.
    pub(super) fn leave(&mut self, slot: Slot) -> Option<Slot> {
        let remote = self.slots.remove(&slot)?;
        let line = self.remotes.get_mut(&remote)?;
        if !line.in_flight.remove(&slot) {
            line.queue.retain(|other| *other != slot);
            return None;
        }
        let next = line.queue.pop_front();
        line.in_flight.extend(next);
        if line.in_flight.is_empty() {
            self.remotes.remove(&remote);
        }
        next
    }
}

/// Four recorders behind one NAT address stay within the outlet's 256.
const MAX_IN_FLIGHT: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn slot(pace: Pace) -> Slot {
        match pace {
            Pace::Go(slot) | Pace::Queue(slot) => slot,
        }
    }

    #[test]
    fn sixty_four_go_and_the_others_follow_in_order() {
        let mut pacing = Pacing::default();
        let remote: IpAddr = "10.0.0.1".parse().unwrap();
        let paces: Vec<Pace> = (0..70).map(|_| pacing.enter(remote)).collect();
        let going = paces.iter().filter(|pace| matches!(pace, Pace::Go(_)));
        assert_eq!(going.count(), 64);
        let slots: Vec<Slot> = paces.into_iter().map(slot).collect();
        assert!(pacing.may_go(slots[63]) && !pacing.may_go(slots[64]));
        // The same address in its other form; another address has its own 64.
        let mapped = "::ffff:10.0.0.1".parse().unwrap();
        assert!(matches!(pacing.enter(mapped), Pace::Queue(_)));
        assert!(matches!(
            pacing.enter("10.0.0.2".parse().unwrap()),
            Pace::Go(_)
        ));

        // Who gives up while queued makes no room.
        assert_eq!(pacing.leave(slots[64]), None);
        assert_eq!(pacing.leave(slots[0]), Some(slots[65]));
        assert!(pacing.may_go(slots[65]) && !pacing.may_go(slots[66]));
        assert_eq!(pacing.leave(slots[0]), None, "twice");
        assert_eq!(pacing.leave(slots[1]), Some(slots[66]));
    }

    #[test]
    fn nothing_is_remembered_when_all_have_left() {
        let mut pacing = Pacing::default();
        let mut slots = Vec::new();
        for host in 0..=255 {
            for _ in 0..100 {
                slots.push(slot(pacing.enter(IpAddr::from([10, 0, 0, host]))));
            }
        }
        // Also from the back, where the queued ones are.
        for slot in slots.into_iter().rev() {
            pacing.leave(slot);
        }
        assert!(pacing.slots.is_empty() && pacing.remotes.is_empty());
    }
}
