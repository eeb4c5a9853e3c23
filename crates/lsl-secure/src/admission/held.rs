//! Sockets that are held after a refusal, so that liblsl's fullinfo loop does not spin.
//! Spec: LSS/1 §4.4 (R1, R2).

use std::net::IpAddr;

use super::pool::Pool;
use crate::Host;

/// Refused connections of one process that stay open for a second.
#[derive(Debug)]
pub struct HeldSockets {
    max: usize,
    pool: Pool,
}

/// Identifier of one refused connection that is held open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Held(u64);

impl HeldSockets {
    /// Creates the pool; `max` is min(256, RLIMIT_NOFILE/8), at least 1.
    pub fn new(max: usize) -> Self {
        Self {
            max: max.max(1),
            pool: Pool::default(),
        }
    }

    /// Holds a refused connection from now. If there is a second value, close that one now. It is
    /// the oldest of the source that holds most, so that a flood pushes out only itself.
    pub fn hold(&mut self, source: IpAddr) -> (Held, Option<Held>) {
        let held = Held(self.pool.insert(Host::from(source)));
        if self.pool.len() <= self.max {
            return (held, None);
        }
        let victim = self.pool.oldest_of_largest(|_| false);
        if let Some(victim) = victim {
            self.pool.remove(victim);
        }
        (held, victim.map(Held))
    }

    /// Releases a connection that is closed. One that was pushed out may be released again.
    pub fn release(&mut self, held: Held) {
        self.pool.remove(held.0);
    }

    /// Returns the number of held sockets.
    pub fn len(&self) -> usize {
        self.pool.len()
    }

    /// Returns true if no socket is held.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_pushes_out_only_itself() {
        let mut sockets = HeldSockets::new(4);
        let (flood, legacy) = ("10.0.0.9".parse().unwrap(), "10.0.0.1".parse().unwrap());
        let (kept, none) = sockets.hold(legacy);
        assert_eq!(none, None);
        let mut flooding: Vec<Held> = (0..3).map(|_| sockets.hold(flood).0).collect();
        assert_eq!(sockets.len(), 4);
        for _ in 0..100 {
            let (held, pushed_out) = sockets.hold(flood);
            assert_eq!(pushed_out, Some(flooding.remove(0)));
            flooding.push(held);
        }
        // A second connection of the legacy inlet pushes out the flood, too.
        let (_, pushed_out) = sockets.hold(legacy);
        assert_eq!(pushed_out, Some(flooding[0]));
        sockets.release(kept);
        sockets.release(kept);
        assert_eq!(sockets.len(), 3);
        assert!(!sockets.is_empty());
    }
}
