//! Ways to streams through relays, by uid: programs copy infos and make them again from their text, so what a way
//! needs is kept beside them. Spec: relay §5.2.

use std::collections::{HashMap, VecDeque};

/// Ways to streams. `W` is one way, through the relay whose number stands beside it.
#[derive(Debug)]
pub struct Ways<W> {
    by_uid: HashMap<Vec<u8>, Vec<(u32, W)>>,
    /// Uids in the order in which they came, some of which may be gone.
    order: VecDeque<Vec<u8>>,
    most: usize,
}

impl<W: Clone> Ways<W> {
    /// Creates an empty table for at most so many streams; beyond it the oldest make room.
    pub fn new(most: usize) -> Self {
        Self {
            by_uid: HashMap::new(),
            order: VecDeque::new(),
            most: most.max(1),
        }
    }

    /// Adds the way through a relay, in place of the one before.
    pub fn add(&mut self, uid: &[u8], relay: u32, way: W) {
        if let Some(ways) = self.by_uid.get_mut(uid) {
            ways.retain(|(known, _)| *known != relay);
            ways.push((relay, way));
            ways.sort_by_key(|(relay, _)| *relay);
            return;
        }
        while self.by_uid.len() >= self.most
            && let Some(oldest) = self.order.pop_front()
        {
            self.by_uid.remove(&oldest);
        }
        if self.order.len() >= 2 * self.most {
            let by_uid = &self.by_uid;
            self.order.retain(|uid| by_uid.contains_key(uid));
        }
        self.order.push_back(uid.to_vec());
        self.by_uid.insert(uid.to_vec(), vec![(relay, way)]);
    }

    /// Removes the way through a relay.
    pub fn remove(&mut self, uid: &[u8], relay: u32) {
        if let Some(ways) = self.by_uid.get_mut(uid) {
            ways.retain(|(known, _)| *known != relay);
            if ways.is_empty() {
                self.by_uid.remove(uid);
            }
        }
    }

    /// Returns the ways to a stream, in the order of the relays.
    pub fn of(&self, uid: &[u8]) -> Vec<W> {
        let ways = self.by_uid.get(uid).into_iter().flatten();
        ways.map(|(_, way)| way.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ways_are_kept_by_uid_up_to_a_bound() {
        let mut ways = Ways::new(3);
        ways.add(b"a", 1, "a1");
        ways.add(b"a", 0, "a0");
        ways.add(b"a", 1, "a1 again");
        assert_eq!(ways.of(b"a"), ["a0", "a1 again"]);
        ways.remove(b"a", 0);
        assert_eq!(ways.of(b"a"), ["a1 again"]);
        ways.remove(b"a", 1);
        assert_eq!(ways.of(b"a"), [""; 0]);
        for number in 0..1000_u32 {
            ways.add(&number.to_be_bytes(), 0, "x");
            ways.add(b"comes and goes", 0, "y");
            ways.remove(b"comes and goes", 0);
        }
        assert!(ways.by_uid.len() <= 3 && ways.order.len() <= 6, "{ways:?}");
        assert_eq!(ways.of(&999_u32.to_be_bytes()), ["x"]);
        assert!(ways.of(&1_u32.to_be_bytes()).is_empty());
    }
}
