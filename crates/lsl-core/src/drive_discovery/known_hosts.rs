//! The hosts that searches ask by unicast, and the look-ups of their names.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::{Arc, Mutex};

use lsl_platform::fork::PerProcess;
use tokio::task::JoinSet;

use crate::drive_discovery::network_config::NetworkConfig;
use crate::net::monitor::lock_ignoring_poison;
use crate::net::runtime::BlockingWork;
use crate::net::sockets::Family;

/// The hosts that are asked by unicast. Names are looked up once, while the search already runs.
#[derive(Debug)]
pub(crate) struct KnownHosts {
    known: Mutex<Vec<(SocketAddr, Option<u16>)>>,
}

impl KnownHosts {
    /// Returns this host and the peers that are given as addresses.
    pub(crate) fn literal(network: &NetworkConfig) -> Self {
        let mut known = Vec::new();
        if !network.uses(Family::V4) {
            // The configuration names 127.0.0.1 for this host, which is out of reach then.
            known.push((SocketAddr::new(Family::V6.loopback(), 0), None));
        }
        for (host, port) in &network.peers {
            if let Ok(address) = host.parse::<IpAddr>() {
                known.push((SocketAddr::new(address, 0), *port));
            }
        }
        Self {
            known: Mutex::new(known),
        }
    }

    /// Looks all names up at once: one that a slow name server does not know must not hold up the others.
    pub(crate) async fn look_up(self: Arc<Self>, network: Arc<NetworkConfig>) {
        let mut lookups = JoinSet::new();
        for (host, port) in network.peers.clone() {
            if host.parse::<IpAddr>().is_ok() {
                continue;
            }
            let hosts = Arc::clone(&self);
            lookups.spawn(async move {
                match addresses_of(host.clone()).await {
                    Ok(addresses) => {
                        let found = addresses.into_iter().map(|address| (address, port));
                        lock_ignoring_poison(&hosts.known).extend(found);
                    }
                    Err(error) => tracing::warn!(host, %error, "known peer not found"),
                }
            });
        }
        while lookups.join_next().await.is_some() {}
    }

    pub(crate) fn known(&self) -> Vec<(SocketAddr, Option<u16>)> {
        lock_ignoring_poison(&self.known).clone()
    }
}

/// Returns what the system knows of a name, when it is its turn.
pub(crate) async fn addresses_of(host: String) -> io::Result<Vec<SocketAddr>> {
    let look_up = move || Ok((host.as_str(), 0).to_socket_addrs()?.collect());
    LOOKUPS.get().run(look_up).await.map_err(io::Error::other)?
}

/// Look-ups of names. A dead name server keeps each of them in a thread of the runtime's pool for many seconds, and
/// handshakes need threads of that pool too.
static LOOKUPS: PerProcess<BlockingWork<MAX_LOOKUPS>> = PerProcess::new();

/// Of the four threads of the pool.
const MAX_LOOKUPS: usize = 2;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::net::runtime;

    #[test]
    fn names_that_take_long_leave_threads_for_others() {
        let turns = Arc::clone(&LOOKUPS.get().0);
        let (done, seen) = std::sync::mpsc::channel();
        runtime::spawn(async move {
            // As a dead name server keeps them.
            let busy = Arc::clone(&turns).acquire_many_owned(MAX_LOOKUPS.try_into().unwrap());
            let busy = busy.await.unwrap();
            let waits = tokio::spawn(addresses_of("localhost".to_owned()));
            let handshake = tokio::task::spawn_blocking(|| 1).await.unwrap();
            assert!(!waits.is_finished());
            drop(busy);
            done.send((handshake, waits.await.unwrap())).unwrap();
        })
        .unwrap();
        let (handshake, found) = seen.recv_timeout(Duration::from_secs(20)).unwrap();
        assert_eq!(handshake, 1);
        assert!(
            found
                .unwrap()
                .iter()
                .all(|address| address.ip().is_loopback())
        );
    }
}
