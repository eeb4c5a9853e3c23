//! Counters a user can look at: nothing is lost silently.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::net::changes;

/// A counter that threads add to and anybody reads.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, count: u64) {
        // Relaxed: a counter orders nothing.
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    pub(crate) fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Counters of all searches of a context since its creation. Spec: doctor §2.6.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DiscoveryStats {
    /// Waves of queries that began.
    pub waves: u64,
    /// Datagrams with a query that left.
    pub queries: u64,
    /// Answers that counted.
    pub answers: u64,
    /// Ports that were asked over TCP.
    pub tcp_probes: u64,
    /// Answers of streams over TCP.
    pub tcp_found: u64,
    /// Times that interfaces or addresses of this host changed while outlets or searches of the process ran.
    pub interface_changes: u64,
    /// Answers and questions that this process had no room for, so that the system dropped them.
    pub overruns: u64,
    /// Times that an inlet's outlet was gone, and it or its successor was found.
    pub rescued: u64,
    /// Streams of which two are there that cannot be told apart, or that two hosts say are theirs.
    pub conflicts: u64,
}

/// What becomes of [`DiscoveryStats`].
#[derive(Debug, Default)]
pub(crate) struct DiscoveryCounters {
    pub waves: Counter,
    pub queries: Counter,
    pub answers: Counter,
    pub tcp_probes: Counter,
    pub tcp_found: Counter,
    pub overruns: Counter,
    pub rescued: Counter,
    pub conflicts: Counter,
}

impl DiscoveryCounters {
    pub(crate) fn read(&self) -> DiscoveryStats {
        DiscoveryStats {
            waves: self.waves.value(),
            queries: self.queries.value(),
            answers: self.answers.value(),
            tcp_probes: self.tcp_probes.value(),
            tcp_found: self.tcp_found.value(),
            interface_changes: changes::seen().interfaces,
            overruns: self.overruns.value(),
            rescued: self.rescued.value(),
            conflicts: self.conflicts.value(),
        }
    }
}

/// Counters of an outlet since its creation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct OutletStats {
    /// Samples pushed, whether or not anybody read them.
    pub samples: u64,
    /// Samples handed to sockets, summed over all consumers past and present.
    pub sent: u64,
    /// Bytes encoded for consumers, summed over all of them, whether they took them or were too slow.
    pub bytes: u64,
    /// Samples dropped because a consumer was too slow, summed over all consumers past and present.
    pub dropped: u64,
    /// Consumers that connected since the outlet was created.
    pub consumers_seen: u64,
    /// Connections ended because their peer broke the protocol, stalled or asked for something this
    /// outlet does not offer.
    pub refused: u64,
    /// Bytes of encoded samples waiting for slow consumers now.
    pub backlog_bytes: u64,
    /// Connections that went on where the one before them broke. Spec: resume §6.
    pub resumed: u64,
    /// Samples that were sent again, or for the first time to readers that asked for the past.
    pub replayed: u64,
    /// Readers that had asked for too much of that, and began live.
    pub replay_refused: u64,
    /// Bytes of encoded samples that are retained now.
    pub retained_bytes: u64,
    /// Samples that the program said were lost before they came here.
    pub skipped: u64,
}

/// One connected reader of an outlet.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConsumerStats {
    /// Address and port that it connects from.
    pub peer: SocketAddr,
    /// Samples handed to its socket.
    pub sent: u64,
    /// Samples dropped because it was too slow.
    pub dropped: u64,
    /// Samples waiting for it in the outlet.
    pub behind: u64,
    /// Encryption of the connection and its authenticated peer; `None` in plaintext.
    pub encryption: Option<Encryption>,
}

/// An encrypted connection, as people want to see it. Spec: LSS/1 §3.1, §5.4.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Encryption {
    /// Name of the peer in our trust file.
    pub peer_name: String,
    /// The peer's key, as `SHA256:…`.
    pub fingerprint: String,
    /// The cipher, such as `AES-256-GCM`.
    pub suite: &'static str,
}

/// Counters of an inlet since its creation.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
#[non_exhaustive]
pub struct InletStats {
    /// Samples received on all data connections.
    pub samples: u64,
    /// Bytes received on the data connection.
    pub bytes: u64,
    /// Samples dropped here because nobody pulled them in time.
    pub dropped: u64,
    /// Times the data connection was made again after a loss.
    pub reconnects: u64,
    /// Samples waiting to be pulled.
    pub available: usize,
    /// Bytes of channel data waiting to be pulled.
    pub available_bytes: usize,
    /// Seconds since the last sample came, or a later connection was opened; `None` before either.
    pub idle_secs: Option<f64>,
    /// Connections that went on without a loss where the one before them broke. Spec: resume §6.
    pub resumed: u64,
    /// Samples received that had been pushed before their connection was made.
    pub replayed: u64,
    /// Samples known to be missing.
    pub lost_exact: u64,
    /// Interruptions whose loss cannot be told.
    pub lost_unknown: u64,
    /// Numberings of samples met, the first included: 0 if the outlet does not number them.
    pub generations: u64,
    /// Losses that [`Inlet::take_gaps`](crate::Inlet::take_gaps) cannot return any more, because nobody took them.
    pub gaps_forgotten: u64,
}
