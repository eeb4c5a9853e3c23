//! The network between hosts: loses, repeats and delays datagrams, and may be cut.

use std::collections::HashSet;
use std::net::{IpAddr, SocketAddr};

use crate::dice::Dice;
use crate::tcp::Side;

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
    /// Bounds of the delay of TCP, in seconds. Its segments keep their order and are not lost.
    pub(crate) tcp_delay: (f64, f64),
    /// Bytes that a connection takes before its reader does.
    pub(crate) window: usize,
    /// Delays what TCP carries to this side by so many seconds more.
    pub(crate) holds_up: Option<(Side, f64)>,
    /// What somebody on the way does to the answers of clocks.
    pub(crate) clocks: ClockFault,
    /// Answers of clocks, as seen on the way.
    pub(crate) heard_time: Vec<Vec<u8>>,
    cut: HashSet<IpAddr>,
}

/// Fault of the answers of clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClockFault {
    None,
    /// They do not arrive.
    Filtered,
    /// What went by is repeated and changed.
    Forged,
    /// Nonsense arrives in their place.
    Lies,
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
            tcp_delay: (20e-6, 200e-6),
            window: 64 * 1024,
            holds_up: None,
            clocks: ClockFault::None,
            heard_time: Vec::new(),
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

    /// Whether a host is cut off.
    pub(crate) fn is_cut(&self, address: IpAddr) -> bool {
        self.cut.contains(&address)
    }

    /// Returns the delay of a segment of TCP.
    pub(crate) fn tcp_delay(&self, to: Side, dice: &mut Dice) -> f64 {
        let (shortest, longest) = self.tcp_delay;
        let held_up = self.holds_up.filter(|it| it.0 == to).map_or(0.0, |it| it.1);
        shortest + (longest - shortest) * dice.share() + held_up
    }

    /// Lets an answer of a clock go by. Returns what arrives in its place.
    pub(crate) fn pass_time(&mut self, bytes: &[u8], dice: &mut Dice) -> Vec<Vec<u8>> {
        self.heard_time.push(bytes.to_vec());
        if self.clocks == ClockFault::Filtered {
            return Vec::new();
        }
        let mut arrive = Vec::new();
        if self.clocks == ClockFault::Lies {
            let text = String::from_utf8_lossy(bytes).into_owned();
            let [wave, t0] = [0, 1].map(|at| text.split_whitespace().nth(at).unwrap_or_default());
            let lies = [
                format!(" {wave} {t0} nan nan"),
                format!(" {wave} {t0} inf -inf"),
                format!(" {wave} 1e999 1 1"),
                format!(" {wave} {t0}"),
                format!(" 7{wave} {t0} 5 5"),
                " 1 1 1 1".to_owned(),
                String::new(),
            ];
            return lies.map(String::into_bytes).into();
        }
        if self.clocks == ClockFault::Forged {
            for _ in 0..3 {
                let count = u64::try_from(self.heard_time.len()).unwrap();
                let at = usize::try_from(dice.below(count)).unwrap();
                let mut forged = self.heard_time[at].clone();
                match dice.below(3) {
                    // As it was.
                    0 => {}
                    1 => forged.truncate(30),
                    _ => {
                        let length = u64::try_from(forged.len()).unwrap();
                        let byte = usize::try_from(dice.below(length)).unwrap();
                        forged[byte] ^= 1 << dice.below(8);
                    }
                }
                // The true one is worth nothing any more where it came first.
                if forged != bytes {
                    arrive.push(forged);
                }
            }
            arrive.push(b" 1804289383 1.0 99.0 99.0".to_vec());
        }
        arrive.push(bytes.to_vec());
        arrive
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
