//! Datagrams of discovery that the system dropped because they came faster than they were read. Spec: doctor §2.4.

use std::sync::atomic::{AtomicBool, Ordering};

use lsl_platform::socket::{AsSocket, drops};

use crate::stats::DiscoveryCounters;

static HAS_TOLD: AtomicBool = AtomicBool::new(false);

/// What one socket lost.
#[derive(Debug, Default)]
pub(crate) struct Overruns {
    counted: u64,
    next_look: f64,
}

impl Overruns {
    /// Counts what `socket` lost since the last call, and tells of the first loss of this process. Returns whether
    /// there was one.
    pub(crate) fn look(&mut self, socket: impl AsSocket, counters: &DiscoveryCounters) -> bool {
        let lost = drops(socket).unwrap_or(0).saturating_sub(self.counted);
        self.counted += lost;
        counters.overruns.add(lost);
        if lost > 0 && !HAS_TOLD.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                lost,
                "datagrams of discovery came faster than they were read, and streams may be missed; more room: \
                 sysctl -w net.core.rmem_max=4194304 net.core.rmem_default=1048576"
            );
        }
        lost > 0
    }

    /// The same now and then, for who reads datagrams all the time.
    pub(crate) fn look_now_and_then(
        &mut self,
        socket: impl AsSocket,
        counters: &DiscoveryCounters,
        now: f64,
    ) {
        if now >= self.next_look {
            self.next_look = now + LOOK_SECS;
            self.look(socket, counters);
        }
    }
}

const LOOK_SECS: f64 = 15.0;
