//! The network between hosts: loses, repeats and delays datagrams, and may be cut.

use std::collections::HashSet;
use std::net::{IpAddr, SocketAddr};

use crate::dice::Dice;

/// Faults of UDP, and what is cut off from what.
#[derive(Debug, Clone)]
pub(crate) struct Network {
    /// Probability that a copy of a datagram is lost.
    pub(crate) loss: f64,
    /// Probability that a datagram arrives twice.
    pub(crate) duplication: f64,
    /// Bounds of the delay, in seconds. Datagrams overtake each other.
    pub(crate) delay: (f64, f64),
    /// Whether groups and broadcasts reach other hosts.
    pub(crate) has_multicast: bool,
    cut: HashSet<IpAddr>,
}

/// A datagram on its way.
#[derive(Debug, Clone)]
pub(crate) struct Datagram {
    pub(crate) from: SocketAddr,
    pub(crate) to: SocketAddr,
    pub(crate) bytes: Vec<u8>,
}

impl Default for Network {
    fn default() -> Self {
        Self {
            loss: 0.0,
            duplication: 0.0,
            delay: (50e-6, 500e-6),
            has_multicast: true,
            cut: HashSet::new(),
        }
    }
}

impl Network {
    /// Cuts a host off from all others, or connects it again.
    pub(crate) fn set_cut(&mut self, address: IpAddr, is_cut: bool) {
        if is_cut {
            self.cut.insert(address);
        } else {
            self.cut.remove(&address);
        }
    }

    /// Returns the delays after which copies of a datagram arrive.
    pub(crate) fn delays(&self, from: IpAddr, to: IpAddr, dice: &mut Dice) -> Vec<f64> {
        if self.cut.contains(&from) || self.cut.contains(&to) {
            return Vec::new();
        }
        let copies = 1 + u64::from(dice.happens(self.duplication));
        let mut delays = Vec::new();
        for _ in 0..copies {
            let (shortest, longest) = self.delay;
            if !dice.happens(self.loss) {
                delays.push(shortest + (longest - shortest) * dice.share());
            }
        }
        delays
    }
}
