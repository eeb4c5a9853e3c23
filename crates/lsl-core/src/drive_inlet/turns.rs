//! Turns of those who connect in vain. Feeds that never come about, as of streams that were made up,
//! would else use up the descriptors of the process; and those who accept a connection and say nothing
//! would keep all turns from an outlet that answers.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Semaphore;

use crate::net::monitor::lock_ignoring_poison;
use crate::net::select2::{Either, select2};
use crate::{Error, Result};
use lsl_proto::limits::Host;

/// Semaphores of hosts, each for as long as somebody holds or awaits a permit.
#[derive(Debug)]
pub(crate) struct PerHost<K> {
    hosts: Mutex<HashMap<K, Arc<Semaphore>>>,
    permits: usize,
}

impl<K: Eq + Hash> PerHost<K> {
    pub(crate) fn new(permits: usize) -> Self {
        Self {
            hosts: Mutex::default(),
            permits,
        }
    }

    pub(crate) fn get(&self, host: K) -> Arc<Semaphore> {
        let mut hosts = lock_ignoring_poison(&self.hosts);
        hosts.retain(|_, permits| Arc::strong_count(permits) > 1);
        let new = || Arc::new(Semaphore::new(self.permits));
        Arc::clone(hosts.entry(host).or_insert_with(new))
    }
}

/// So many try at the same time, and fewer of them with the same host.
#[derive(Debug)]
pub(crate) struct Turns {
    all: Semaphore,
    hosts: PerHost<Host>,
    /// How long somebody may try while no turn is free.
    patience: Duration,
}

impl Default for Turns {
    fn default() -> Self {
        Self::new(MAX_TURNS, MAX_TURNS_OF_HOST, PATIENCE)
    }
}

impl Turns {
    fn new(most: usize, most_of_host: usize, patience: Duration) -> Self {
        Self {
            all: Semaphore::new(most),
            hosts: PerHost::new(most_of_host),
            patience,
        }
    }

    /// Tries to connect with `peer` when there is a turn.
    ///
    /// # Errors
    /// As `trying`; [`Error::Timeout`] if that took long and others wait.
    pub(crate) async fn take<T>(
        &self,
        peer: IpAddr,
        trying: impl Future<Output = Result<T>> + Unpin,
    ) -> Result<T> {
        let host = self.hosts.get(peer.into());
        // Nobody closes them.
        let _of_host = host.acquire().await;
        let _turn = self.all.acquire().await;
        match select2(trying, self.is_wanted(&host)).await {
            Either::First(outcome) => outcome,
            Either::Second(()) => Err(Error::Timeout {
                operation: "connect",
            }),
        }
    }

    /// Waits until a turn took long and no other is free.
    async fn is_wanted(&self, host: &Semaphore) {
        loop {
            tokio::time::sleep(self.patience).await;
            if self.all.available_permits() == 0 || host.available_permits() == 0 {
                return;
            }
        }
    }
}

const MAX_TURNS: usize = 256;

/// With a host that answers, so many are done in a moment.
const MAX_TURNS_OF_HOST: usize = 128;

/// Enough for two tries of TCP and a handshake on a slow machine.
const PATIENCE: Duration = Duration::from_secs(3);

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::pin::pin;

    use super::*;
    use crate::net::runtime;

    #[test]
    fn a_host_is_forgotten_with_its_last_permit() {
        let hosts = PerHost::new(2);
        let first = hosts.get(1);
        let held = Arc::clone(&hosts.get(1)).try_acquire_owned().unwrap();
        assert_eq!(
            (first.available_permits(), hosts.get(2).available_permits()),
            (1, 2)
        );
        drop(first);
        assert_eq!(hosts.get(1).available_permits(), 1);
        drop(held);
        hosts.get(2);
        assert_eq!(lock_ignoring_poison(&hosts.hosts).len(), 1);
    }

    #[test]
    fn the_silent_give_way_once_no_turn_is_free() {
        let turns = Arc::new(Turns::new(3, 2, Duration::from_millis(1)));
        let (sender, receiver) = std::sync::mpsc::channel();
        let start = |host: u8, says_something: bool| {
            let (turns, sender) = (Arc::clone(&turns), sender.clone());
            let trying = async move {
                let answering = async {
                    if !says_something {
                        pending::<()>().await;
                    }
                    Ok(())
                };
                let peer = [127, 0, 0, host].into();
                let outcome = turns.take(peer, pin!(answering)).await;
                sender.send((host, outcome.is_ok())).unwrap();
            };
            runtime::AbortOnDrop(runtime::spawn(trying).unwrap())
        };
        // All turns of one host, then all there are.
        for (silent, answers) in [(&[1, 1][..], 1), (&[1, 2, 3], 4)] {
            let _silent: Vec<_> = silent.iter().map(|host| start(*host, false)).collect();
            let _answers = start(answers, true);
            let next = || receiver.recv_timeout(Duration::from_secs(20)).unwrap();
            while next() != (answers, true) {}
        }
    }
}
