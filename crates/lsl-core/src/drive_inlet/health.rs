//! What an inlet knows of its connection and of its stamps, for those who ask. Spec: doctor §2.6.

use std::net::SocketAddr;

use lsl_platform::clock::local_clock;
use lsl_proto::clock::ClockSuspect;
use lsl_proto::inlet::recovery::InletState;

use crate::drive_inlet::connection::Connection;
use crate::drive_inlet::shared::InletShared;

/// Health of an inlet at a moment.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct Health {
    /// State of the data connection.
    pub state: InletState,
    /// Address of its other end, a relay's if the samples come through one; `None` while there is none.
    pub peer: Option<SocketAddr>,
    /// Seconds since the last sample came, or a later connection was opened; `None` before the first sample.
    pub silent_secs: Option<f64>,
    /// So long the stream may be silent before it is suspect, by its longest pauses; `None` if that is not known, as of
    /// streams without a regular rate.
    pub expected_secs: Option<f64>,
    /// What is wrong with the stamps of its samples, which is known some seconds after the outlet's clock.
    pub clock: Option<ClockSuspect>,
}

impl InletShared {
    pub(crate) fn health(&self) -> Health {
        let feed = self.feed.lock();
        let connection = feed.connection.as_deref();
        let (is_opened, is_lost) = (feed.is_opened(), feed.feed.lost().is_some());
        let peer = connection.map(Connection::peer).filter(|it| it.port() != 0);
        let flow = feed.flow();
        let last_arrival = flow.last_arrival.filter(|_| flow.samples > 0);
        let clock = feed.feed.clock_suspect();
        drop(feed);
        let state = if is_lost {
            InletState::Lost
        } else {
            self.source.recovery.lock().state(is_opened)
        };
        Health {
            state,
            peer,
            silent_secs: last_arrival.map(|arrival| local_clock() - arrival),
            expected_secs: flow.patience_secs,
            clock,
        }
    }
}
