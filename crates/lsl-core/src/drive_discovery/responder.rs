//! The multicast responder of a context: one socket per family on the multicast port, member of all
//! configured groups on all usable interfaces. liblsl opens one per address and outlet; the system
//! delivers every group to each of them, so one is enough. Spec: lsl-protocol §3.3.

use std::collections::HashSet;
use std::net::{IpAddr, UdpSocket};
use std::sync::Arc;

use lsl_platform::interfaces::Interface;

use crate::drive_discovery::network_config::{NetworkConfig, present_interfaces};
use crate::net::changes::LOOK_PERIOD;
use crate::net::runtime;
use crate::net::select2::select2;
use crate::net::sockets::{self, Family};

/// Opens the responder of a family, or says in the log why there is none: without it streams are
/// still found by unicast.
pub(crate) fn open(
    network: &NetworkConfig,
    family: Family,
) -> Option<(tokio::net::UdpSocket, Memberships)> {
    let address = network.responder_address(family)?;
    network.targets(family).next()?;
    let opened = sockets::udp_responder(address, network.multicast_port).and_then(|socket| {
        let holder = socket.try_clone()?;
        Ok((socket, holder))
    });
    let (socket, holder) = match opened {
        Ok(opened) => opened,
        Err(error) => {
            let port = network.multicast_port;
            tracing::warn!(?family, port, %error, "no multicast responder for this family");
            return None;
        }
    };
    let mut memberships = Memberships {
        family,
        holders: vec![holder],
        joined: HashSet::new(),
    };
    memberships.join_all(network, &present_interfaces());
    let groups = network.targets(family).filter(IpAddr::is_multicast).count();
    if memberships.joined.is_empty() && groups > 0 {
        tracing::warn!(
            ?family,
            "no multicast group could be joined; relying on unicast"
        );
    }
    match sockets::into_tokio_udp(socket) {
        Ok(socket) => Some((socket, memberships)),
        Err(error) => {
            tracing::warn!(?family, %error, "no multicast responder for this family");
            None
        }
    }
}

/// Joins the groups on interfaces that come up later, for ever, and tells their subnets: a laptop joins its
/// network after the program was started, a cable is plugged in.
pub(crate) async fn upkeep(
    mut memberships: Memberships,
    network: Arc<NetworkConfig>,
    set_subnets: impl Fn(&[Interface]),
) {
    let mut changes = network.changes();
    // Something may have changed between the first look and now.
    let mut looks_again = true;
    loop {
        if looks_again {
            let pause = tokio::time::sleep(runtime::until_next(LOOK_PERIOD));
            select2(changes.listed(), pause).await;
        } else {
            changes.listed().await;
        }
        let present = present_interfaces();
        let has_all = memberships.join_all(&network, &present);
        set_subnets(&present);
        looks_again = !has_all || !network.self_healing;
    }
}

/// The groups that were joined and the sockets that hold the memberships.
#[derive(Debug)]
pub(crate) struct Memberships {
    family: Family,
    /// The responder itself first; more when the system allows a socket too few memberships.
    holders: Vec<UdpSocket>,
    joined: HashSet<(IpAddr, u32)>,
}

impl Memberships {
    /// Returns whether all groups are joined on all interfaces.
    fn join_all(&mut self, network: &NetworkConfig, present: &[Interface]) -> bool {
        let interfaces = network.multicast_interfaces(self.family, present);
        // An interface that went away and came back has lost its memberships.
        self.joined
            .retain(|(_, index)| interfaces.iter().any(|interface| interface.index == *index));
        let mut has_all = true;
        for group in network.targets(self.family).filter(IpAddr::is_multicast) {
            for interface in &interfaces {
                let membership = (group, interface.index);
                if self.joined.contains(&membership) {
                    continue;
                }
                if self.join(group, interface.address, interface.index) {
                    self.joined.insert(membership);
                } else {
                    has_all = false;
                }
            }
        }
        has_all
    }

    fn join(&mut self, group: IpAddr, address: IpAddr, index: u32) -> bool {
        let joined = |holder: Option<&UdpSocket>| match holder {
            Some(holder) => match sockets::join_multicast(holder, group, address, index) {
                Ok(()) => Some(true),
                Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => Some(true),
                Err(error) => {
                    tracing::debug!(%group, index, %error, "cannot join");
                    None
                }
            },
            None => None,
        };
        if let Some(done) = joined(self.holders.last()) {
            return done;
        }
        // Perhaps the socket has all the memberships it may have; a fresh one tells.
        let Ok(fresh) = sockets::membership_holder(self.family) else {
            return false;
        };
        if self.holders.len() >= MAX_HOLDERS || joined(Some(&fresh)).is_none() {
            return false;
        }
        self.holders.push(fresh);
        true
    }
}

const MAX_HOLDERS: usize = 16;
